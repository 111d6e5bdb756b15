from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise

import pytest
from huc_notify import WebhookNotifier, verify
from support.receiver import Receiver, free_port

from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.monitor.ports import Notifier, make_plugin
from huc_monitor.monitor.ports.notifier import (
    Message,
    NotSentError,
    RejectedError,
    deliver,
)

SECRET = "correct horse battery staple"  # noqa: S105 - of a test
TOKEN = "hunter2hunter2"  # noqa: S105 - of a test
MESSAGE = Message(
    "5f0c", "critical", "triage: 1 critical", "Branch *größe*", {"monitor": "triage", "n": [1]}
)


def notifier(receiver, **options):
    return WebhookNotifier(None, f"{receiver.url}/hook?token={TOKEN}", SECRET, **options)


def keys(receiver):
    return [got.headers["Idempotency-Key"] for got in receiver.got]


def test_a_message_arrives_signed_with_its_key():
    with Receiver() as receiver:
        notifier(receiver).send(MESSAGE)
    (got,) = receiver.got
    assert (got.method, got.path) == ("POST", f"/hook?token={TOKEN}")
    assert got.headers["Idempotency-Key"] == MESSAGE.key
    assert got.headers["Content-Type"].startswith("application/json")
    assert got.headers["User-Agent"].startswith("huc-monitor/")
    assert verify(got.body, got.headers, SECRET) == MESSAGE


@pytest.mark.parametrize("answer", [409, 429, 503, "drop"])
def test_a_receiver_in_trouble_is_tried_again_with_the_same_key(answer):
    with Receiver(answer) as receiver:
        notifier(receiver).send(MESSAGE)
    assert keys(receiver) == [MESSAGE.key] * 2
    assert receiver.got[1].at - receiver.got[0].at >= 0.25
    assert [verify(got.body, got.headers, SECRET) for got in receiver.got] == [MESSAGE] * 2


def test_pauses_grow_and_end_with_the_budget():
    with Receiver(*[503] * 50) as receiver:
        started = time.monotonic()
        with pytest.raises(NotSentError, match=r"answered 503, tried \d times"):
            notifier(receiver, budget=3.0).send(MESSAGE)
        assert time.monotonic() - started < 3.5
    at = [got.at for got in receiver.got]
    pauses = [b - a for a, b in pairwise(at)]
    assert len(pauses) >= 2
    for n, pause in enumerate(pauses):
        assert 0.25 * 2**n <= pause < 0.5 * 2**n + 0.3


def test_retry_after_is_honoured_as_seconds_and_as_a_date():
    for seconds in (True, False):
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
        with Receiver((429, [("Retry-After", "1" if seconds else date)])) as receiver:
            notifier(receiver).send(MESSAGE)
        waited = receiver.got[1].at - receiver.got[0].at
        assert waited >= (1.0 if seconds else 0.9), "a date has no fractions of a second"


def test_a_receiver_that_asks_for_an_hour_is_left_alone():
    with Receiver((503, [("Retry-After", "3600")])) as receiver:
        started = time.monotonic()
        with pytest.raises(NotSentError, match="answered 503, tried once"):
            notifier(receiver).send(MESSAGE)
        assert time.monotonic() - started < 2
    assert len(receiver.got) == 1


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 413, 422])
def test_a_refusal_is_not_repeated(code):
    with Receiver(code) as receiver, pytest.raises(RejectedError, match=f"answered {code}"):
        notifier(receiver).send(MESSAGE)
    assert len(receiver.got) == 1


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(code):
    with Receiver() as elsewhere:
        answer = (code, [("Location", f"{elsewhere.url}/stolen")])
        with Receiver(answer) as receiver, pytest.raises(RejectedError, match=f"{code}"):
            notifier(receiver).send(MESSAGE)
    assert elsewhere.got == []


def test_a_receiver_that_is_down_costs_no_more_than_the_budget():
    sender = WebhookNotifier(None, f"http://127.0.0.1:{free_port()}/{TOKEN}", SECRET, budget=1.0)
    started = time.monotonic()
    with pytest.raises(NotSentError, match="could not be reached: ConnectionRefusedError") as error:
        sender.send(MESSAGE)
    assert time.monotonic() - started < 1.5
    assert TOKEN not in str(error.value)
    assert error.value.__cause__ is None


def test_a_receiver_that_never_answers_costs_no_more_than_the_budget():
    with Receiver("hang", "hang") as receiver:
        started = time.monotonic()
        with pytest.raises(NotSentError, match="could not be reached: Timeout"):
            notifier(receiver, timeout=0.5, budget=1.0).send(MESSAGE)
        assert time.monotonic() - started < 2


def test_a_receiver_that_answers_a_letter_at_a_time_does_not_hold_up_a_check():
    with Receiver("drip") as receiver:
        started = time.monotonic()
        entry = {"message": MESSAGE.to_dict(), "left": ["ops"]}
        assert deliver([entry], {"ops": notifier(receiver)}, longest=1.0) == [entry]
        assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    "url",
    [
        f"ftp://host/{TOKEN}",
        f"https://{TOKEN}:{TOKEN}@host/",
        f"https:///{TOKEN}",
        f"https://host:port/{TOKEN}",
        f"https://host/{TOKEN}\r\nX-Evil: 1",
        f"https://host/{TOKEN} x",
        TOKEN,
        None,
    ],
)
def test_an_address_that_is_none_is_refused_and_not_shown(url):
    with pytest.raises(InvalidInputError, match="`url` must be an address like") as error:
        WebhookNotifier(None, url, SECRET)
    assert TOKEN not in str(error.value)


@pytest.mark.parametrize("name", ["timeout", "budget"])
@pytest.mark.parametrize("value", [0, -1, "5", True, float("nan")])
def test_times_are_positive_numbers(name, value):
    with pytest.raises(InvalidInputError, match=f"`{name}` must be a number of seconds"):
        WebhookNotifier(None, "https://host/", SECRET, **{name: value})


def test_a_channel_may_want_critical_messages_only():
    with Receiver() as receiver:
        pager = notifier(receiver, min_level="critical")
        for level in ("note", "drift", "warning", "resolved", "critical"):
            pager.send(Message(level, level, "", "", {}))
    assert keys(receiver) == ["resolved", "critical"]
    with pytest.raises(UnknownNameError, match="Did you mean 'critical'"):
        WebhookNotifier(None, "https://host/", SECRET, min_level="crit")


def test_it_is_found_by_its_name_and_shows_nothing_of_itself():
    options = {"url": f"https://host/{TOKEN}", "secret": SECRET}
    made = make_plugin("huc_monitor.notifiers", "webhook", Notifier, None, options, role="channel")
    assert isinstance(made, WebhookNotifier)
    assert repr(made) == "WebhookNotifier(min_level='note')"
