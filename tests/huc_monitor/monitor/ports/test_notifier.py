from __future__ import annotations

import logging
import threading
import time

import pytest

from huc_monitor.monitor.ports.notifier import (
    Message,
    NotSentError,
    RejectedError,
    deliver,
)


class Channel:
    """Remembers what it got; `answers` maps a key to what it raises."""

    def __init__(self, **answers):
        self.answers, self.tried, self.got = answers, [], []

    def send(self, message):
        self.tried.append(message.key)
        if message.key in self.answers:
            raise self.answers[message.key]
        self.got.append(message.key)


def unsent(*keys, left=("a",)):
    message = {"level": "warning", "title": "t", "text": "x", "data": {}}
    return [{"message": {"key": key, **message}, "left": list(left)} for key in keys]


def keys(entries):
    return [(entry["message"]["key"], entry["left"]) for entry in entries]


def test_messages_arrive_in_order_and_nothing_is_left():
    channel = Channel()
    assert deliver(unsent("1", "2", "3"), {"a": channel}) == []
    assert channel.got == ["1", "2", "3"]


@pytest.mark.parametrize("error", [NotSentError("down"), ConnectionError("to user:hunter2@host")])
def test_a_channel_that_is_down_is_tried_once_and_keeps_the_order(error, caplog):
    channel = Channel(**{"2": error})
    left = deliver(unsent("1", "2", "3"), {"a": channel})
    assert keys(left) == [("2", ["a"]), ("3", ["a"])]
    assert channel.tried == ["1", "2"]
    assert "message not sent to a (" in caplog.text
    assert "hunter2" not in caplog.text
    channel.answers.clear()
    assert deliver(left, {"a": channel}) == []
    assert channel.got == ["1", "2", "3"]


def test_a_refused_message_does_not_keep_others_from_arriving():
    channel = Channel(**{"1": RejectedError("answered 400")})
    assert keys(deliver(unsent("1", "2"), {"a": channel})) == [("1", ["a"])]
    assert channel.got == ["2"]


def test_one_channel_that_is_down_keeps_no_other_from_hearing():
    down, up = Channel(**{"1": NotSentError("down")}), Channel()
    left = deliver(unsent("1", "2", left=("a", "b")), {"a": down, "b": up})
    assert keys(left) == [("1", ["a"]), ("2", ["a"])]
    assert up.got == ["1", "2"]


def test_messages_for_a_channel_that_is_gone_are_dropped():
    up = Channel()
    assert deliver(unsent("1", left=("gone", "a")), {"a": up}) == []
    assert up.got == ["1"]


def test_a_channel_that_hangs_is_not_waited_for():
    release, up = threading.Event(), Channel()

    class Hanging:
        got = 0

        def send(self, message):  # noqa: ARG002
            self.got += 1
            release.wait(20)

    hanging = Hanging()
    started = time.monotonic()
    left = deliver(unsent("1", "2", left=("a", "b")), {"a": hanging, "b": up}, longest=0.3)
    assert time.monotonic() - started < 5
    assert keys(left) == [("1", ["a"]), ("2", ["a"])]
    assert up.got == ["1", "2"]
    release.set()
    for thread in threading.enumerate():
        if thread.name == "huc-notify-a":
            thread.join(5)
    assert hanging.got == 1, "after giving up no further message is sent behind the check's back"


def test_channels_work_side_by_side():
    gate = threading.Barrier(2, timeout=5)

    class Meeting:
        def send(self, message):  # noqa: ARG002
            gate.wait()

    assert deliver(unsent("1", left=("a", "b")), {"a": Meeting(), "b": Meeting()}) == []


def test_what_is_no_failure_of_a_channel_is_raised():
    with pytest.raises(SystemExit, match="3"):
        deliver(unsent("1"), {"a": Channel(**{"1": SystemExit(3)})})


def test_the_log_names_the_channel_and_the_reason_for_machines(caplog):
    with caplog.at_level(logging.WARNING, logger="huc_monitor"):
        deliver(unsent("1"), {"a": Channel(**{"1": NotSentError("answered 503")})})
    (record,) = caplog.records
    assert record.huc == {"event": "message_not_sent", "channel": "a", "reason": "answered 503"}


def test_a_message_is_read_back_as_it_was():
    message = Message("k", "note", "t", "x", {"status": "ok"})
    assert Message.from_dict(message.to_dict()) == message
