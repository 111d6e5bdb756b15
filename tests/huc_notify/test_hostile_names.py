"""Hostile names in messages, as each kind of channel receives them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from apprise.plugins import slack
from huc_notify import AppriseNotifier, WebhookNotifier, verify
from support.hostile import NAMES, assert_clean
from support.receiver import Receiver

from huc_monitor.monitor.messages import compose
from huc_monitor.monitor.records import AlertTransition, DriftFinding

DAY = datetime(2024, 3, 1, tzinfo=UTC)
SECRET = "a secret that nobody else knows 4711"  # noqa: S105 - of a test


def message_of(name):
    step = AlertTransition(
        kind="opened",
        utility=name,
        subgroup=name,
        node=name,
        level="critical",
        window_id="5f",
        window_end=DAY,
        first_seen=DAY,
        n_windows=1,
        announced=True,
        moment=0.1,
        lower=0.05,
        upper=0.2,
        tolerance=0.02,
        interval_low=0.1,
        interval_high=0.2,
        uc=0.01,
        units=None,
        scale=1.0,
        reasons=("bound",),
        hints=(),
        cancels_node=name,
        cancels_moment=-0.1,
    )
    drift = DriftFinding(
        kind="branch",
        name=name,
        distance=0.3,
        lower=0.2,
        drifted=True,
        before={name: 0.5},
        after={name: 0.7},
    )
    return compose(
        [step], drift=[drift], notes=[f"version {name}"], monitor=name, identity="5f", until=DAY
    )


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_message_is_clean_short_and_marks_only_names(name):
    message = message_of(name)
    for text in (message.title, message.text):
        assert_clean(text)
        assert len(text) < 20_000
    heads = [row for row in message.text.split("\n") if row.isupper()]
    assert heads == ["CRITICAL", "DRIFT", "NOTE"]
    assert message.text.count("*") == 2 * len({"node", "utility", "cancels", "branch", "child"})


@pytest.mark.parametrize("name", NAMES[:-2], ids=range(len(NAMES) - 2))
def test_a_webhook_gets_clean_text_and_true_names(name):
    message = message_of(name)
    with Receiver() as receiver:
        WebhookNotifier(None, receiver.url, SECRET).send(message)
    (got,) = receiver.got
    heard = verify(got.body, got.headers, SECRET)
    assert_clean(heard.text)
    assert heard.data["transitions"][0]["node"] == name


@pytest.mark.parametrize("name", [NAMES[0], NAMES[2], NAMES[8], NAMES[12]])
def test_a_chat_shows_no_markup_of_a_name(name, monkeypatch):
    with Receiver() as receiver:
        monkeypatch.setattr(slack.NotifySlack, "webhook_url", f"{receiver.url}/services")
        token = "T1JJ3T3L2/A1BRTD4JD/hunter2Hunter2hunter2Hu9"  # noqa: S105 - of a test
        AppriseNotifier(None, f"slack://{token}").send(message_of(name))
    body = "".join(got.body.decode() for got in receiver.got)
    assert "<!channel>" not in body
    assert "](http" not in body
    assert "*bold*" not in body
    assert "\\u001b" not in body
