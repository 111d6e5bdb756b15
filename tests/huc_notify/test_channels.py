"""Channels of a configuration, from a check to a receiver and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from huc_notify import verify
from support.production_log import make_log, write_project
from support.receiver import Receiver, free_port

from huc_monitor.cli import main

TESTS = Path(__file__).parents[1]
SECRET = "a secret that nobody else knows 4711"  # noqa: S105 - of a test
TOKEN = "hunter2Hunter2hunter2"  # noqa: S105 - of a test
TIMES = ["2024-03-03T13:00+00:00", "2024-03-04T13:00+00:00", "2024-03-06T13:00+00:00"]
CHANNELS = """\
alerts: {cool_down: 1d, channels: [ops, chat]}
channels:
  ops:
    name: webhook
    settings: {budget: 0.8, timeout: 0.7}
    secrets: {url: "${HUC_URL}", secret: "${HUC_SECRET}"}
  chat: {name: apprise, secrets: {url: "${HUC_CHAT}"}}
"""
ONE = CHANNELS.replace(", chat]", "]").split("  chat:")[0]


def project(folder, more):
    log, labels = make_log(5, 400, broken_from=2)
    return write_project(folder, log, labels, draws=100, more=more)


@pytest.fixture
def told(tmp_path, monkeypatch):
    """A project with two channels and their receivers."""
    with Receiver() as ops, Receiver() as chat:
        monkeypatch.setenv("HUC_URL", f"{ops.url}/{TOKEN}")
        monkeypatch.setenv("HUC_SECRET", SECRET)
        monkeypatch.setenv("HUC_CHAT", f"json://{TOKEN}:{TOKEN}@127.0.0.1:{chat.port}/{TOKEN}")
        yield project(tmp_path / "triage", CHANNELS), ops, chat


def check(config, now, *more):
    return main([*more, "check", "--config", str(config), "--now", now, "--fail-on", "never"])


def steps(receiver):
    """Every transition the receiver was told of, in verified messages of distinct keys."""
    messages = {}
    for got in receiver.got:
        message = verify(got.body, got.headers, SECRET)
        messages.setdefault(message.key, message)
    return [
        (step["kind"], step["window_id"], step["utility"], step["subgroup"], step["node"])
        for message in messages.values()
        for step in message.data["transitions"]
    ]


def test_each_transition_is_told_once_however_often_a_check_is_run(told):
    config, ops, chat = told
    for now in TIMES:
        for _ in range(2):
            assert check(config, now) == 0
    told_of = steps(ops)
    assert len(told_of) == len(set(told_of)) > 3
    assert len(ops.got) == len({got.headers["Idempotency-Key"] for got in ops.got})
    keys = [[got.headers["Idempotency-Key"] for got in where.got] for where in (ops, chat)]
    assert keys[0] == keys[1], "both channels hear the same, in the same order"


def test_an_outage_costs_nothing_but_time(told, capsys):
    config, ops, _ = told
    ops.answers = [503] * 100
    assert check(config, TIMES[0]) == 0
    assert check(config, TIMES[1]) == 0
    assert len(ops.got) > 0
    err = capsys.readouterr().err
    assert "message not sent to ops (answered 503, tried 2 times); it is kept" in err
    assert "messages could not be sent and are kept" in err
    ops.answers, ops.got = [], []
    assert check(config, TIMES[2]) == 0
    assert len(steps(ops)) == len(set(steps(ops))) > 3
    untils = [json.loads(got.body)["data"]["until"] for got in ops.got]
    assert untils == sorted(untils), "the oldest first"
    assert "not sent" not in capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_are_in_no_log_no_state_no_record_and_no_output(told, form, tmp_path, capfd):
    config, ops, chat = told
    ops.answers, chat.answers = [503, 404] * 50, [500, 403] * 50
    for now in TIMES:
        check(config, now, "--log-format", form)
    ops.answers, chat.answers = [], []
    check(config, TIMES[-1], "--log-format", form)
    main(["status", "--config", str(config), "--json"])
    main(["doctor", "--config", str(config)])
    out, err = capfd.readouterr()
    assert "message not sent to ops" in err
    assert "message not sent to chat" in err
    places = {"standard output": out, "standard error": err}
    for file in tmp_path.rglob("*"):
        if file.is_file():
            places[str(file)] = file.read_bytes().decode("utf-8", "replace")
    assert sum("huc-state" in name for name in places) >= 6
    for name, text in places.items():
        for secret in (TOKEN, SECRET):
            assert secret.lower() not in text.lower(), name


def test_secrets_are_in_no_log_even_if_everything_is_logged(told):
    config, ops, chat = told
    ops.answers, chat.answers = [503] * 9, [500] * 9
    code = (
        "import logging, sys; logging.basicConfig(level=1)\n"
        "from huc_monitor.config.opening import open_monitor\n"
        "result = open_monitor(sys.argv[1]).check(sys.argv[2]); print(result.n_unsent)"
    )
    command = [sys.executable, "-c", code, str(config), TIMES[1]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
    assert done.stderr.count("message not sent to") == 2
    for secret in (TOKEN, SECRET):
        assert secret.lower() not in done.stderr.lower()


def test_a_channel_that_cannot_be_made_is_an_error_of_the_configuration(told, monkeypatch, capsys):
    config, *_ = told
    monkeypatch.setenv("HUC_CHAT", f"nosuch://{TOKEN}")
    assert check(config, TIMES[0]) == 2
    err = capsys.readouterr().err
    assert "`url` must be an apprise URL" in err
    assert TOKEN not in err


def disturb(folder, n, times):
    config = project(folder / "triage", ONE)
    inbox = folder / "inbox"
    inbox.mkdir()
    port = free_port()
    settings = {
        "HUC_PORT": str(port),
        "HUC_URL": f"http://127.0.0.1:{port}/{TOKEN}",
        "HUC_SECRET": SECRET,
        "PYTHONPATH": str(TESTS),
    }
    script = str(TESTS / "support" / "sending.py")
    command = [sys.executable, script, str(config), str(inbox), str(n), "1", *times]
    done = subprocess.run(
        command,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_check_that_dies_as_it_sends_tells_everything_once_by_key(tmp_path):
    found = disturb(tmp_path, 2, TIMES[1:])
    assert found["happened"] == {"kill-before": 1, "kill-after": 1}
    assert found["wrong"] == found["forged"] == 0
    assert found["twice_on_the_wire"] == 2, "which is what a key is for"


@pytest.mark.slow
def test_kills_and_outages_change_nothing_that_a_receiver_hears(tmp_path):
    n = 25
    found = disturb(tmp_path, n, TIMES)
    print(found)
    assert found["wrong"] == found["forged"] == 0
    assert found["most_often_told"] == 1
    assert found["messages"] >= 3
    for mode in ("kill-before", "kill-after", "503", "down"):
        assert found["happened"][mode] == n // 5
    # A kill around the answer is what a key is for; nothing else sends twice.
    assert (
        n // 5
        <= found["twice_on_the_wire"]
        <= 2 * (n // 5) + found["happened"].get("kill-anywhere", 0)
    )
