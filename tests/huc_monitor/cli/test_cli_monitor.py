"""The commands check, watch and status, as a scheduler and a person meet them."""

from __future__ import annotations

import json
import logging
import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pandas as pd
import pytest
from support.documents import assert_follows
from support.production_log import make_log, write_project

import huc_monitor as hm
from huc_monitor.cli import main
from huc_monitor.cli.status import _say_alerts
from huc_monitor.monitor import CheckInProgressError, CheckResult, Watch, watch_lock
from huc_monitor.monitor.people import Action
from huc_monitor.monitor.ports import RecalibrationOutcome
from huc_monitor.monitor.records import AlertState

MAIN = [sys.executable, "-c", "import sys; from huc_monitor.cli import main; sys.exit(main())"]
NOW = "2024-03-06T12:00"


@pytest.fixture(scope="module")
def projects(tmp_path_factory):
    folder = tmp_path_factory.mktemp("projects")
    made = {}
    for name, broken_from in (("good", None), ("bad", 3)):
        log, labels = make_log(5, 4000, broken_from=broken_from)
        made[name] = write_project(folder / name, log, labels)
    return made


@pytest.fixture
def fresh(projects, tmp_path):
    """Make a project with an empty state."""

    def make(name, **changes):
        text = projects[name].read_text("utf-8")
        for old, new in changes.items():
            text = text.replace(old, new)
        folder = projects[name].parent
        for entry in ("log", "labels.parquet", "tree.json"):
            (tmp_path / entry).symlink_to(folder / entry)
        (tmp_path / "huc.yaml").write_text(text, "utf-8")
        return str(tmp_path / "huc.yaml")

    return make


@pytest.fixture(autouse=True)
def _quiet_logger():
    yield
    logger = logging.getLogger("huc_monitor")
    logger.handlers, logger.propagate = [], True


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_check_is_silent_in_cron_when_all_is_well(fresh, capsys):
    assert run(capsys, "check", "--config", fresh("good"), "--now", NOW) == (0, "", "")


def test_check_tells_an_alert_once_and_exits_with_one_while_it_is_open(fresh, capsys):
    config = fresh("bad")
    code, out, err = run(capsys, "check", "--config", config, "--now", NOW)
    assert code == 1
    assert "\nCRITICAL\nBranch attack (" in out
    assert "Branch attack (subgroup protocol=udp, utility family)" in out
    assert err == ""
    assert run(capsys, "check", "--config", config, "--now", NOW) == (1, "", "")


@pytest.mark.parametrize(("level", "code"), [("warning", 1), ("critical", 1), ("never", 0)])
def test_fail_on_decides_the_exit_code(fresh, capsys, level, code):
    arguments = ("check", "--config", fresh("bad"), "--now", NOW, "--fail-on", level)
    assert run(capsys, *arguments)[0] == code


def test_check_prints_one_json_document(fresh, capsys):
    code, out, _ = run(capsys, "check", "--config", fresh("bad"), "--now", NOW, "--json")
    document = json.loads(out)
    assert code == 1
    assert document["status"] == "critical"
    assert [record["ordinal"] for record in document["records"]] == [1, 2, 3, 4, 5]
    assert document["message"]["level"] == "critical"


def test_a_dry_run_leaves_nothing_behind(fresh, capsys, tmp_path):
    code, out, _ = run(capsys, "check", "--config", fresh("bad"), "--now", NOW, "--dry-run")
    assert code == 1
    assert "CRITICAL" in out
    assert not list(tmp_path.rglob("state.json"))


def test_since_and_until_choose_windows_in_the_time_zone_of_the_windows(fresh, capsys):
    config = fresh("good", **{"length: 1d": "length: 1d, time_zone: Europe/Berlin"})
    arguments = ("--since", "2024-03-02", "--until", "2024-03-04", "--json")
    _, out, _ = run(capsys, "check", "--config", config, "--now", NOW, *arguments)
    starts = [record["start"] for record in json.loads(out)["records"]]
    assert starts == ["2024-03-01T23:00:00+00:00", "2024-03-02T23:00:00+00:00"]


def test_status_shows_times_in_the_zone_of_the_windows_and_json_in_utc(fresh, capsys):
    config = fresh("bad", **{"length: 1d": "length: 1d, time_zone: Europe/Berlin"})
    run(capsys, "check", "--config", config, "--now", NOW)
    code, out, _ = run(capsys, "status", "--config", config)
    assert code == 1
    rows = [line.split()[:2] for line in out.splitlines() if re.match(r" \d ", line)]
    assert rows == [[f"{n}", f"2024-03-0{n}"] for n in range(1, 6)]
    assert "(2024-03-04):" in out
    assert "UTC" not in out
    document = json.loads(run(capsys, "status", "--config", config, "--json")[1])
    assert document["windows"][0]["start"] == "2024-02-29T23:00:00+00:00"
    mute = ("mute", "--all", "--until", "2030-07-01", "--by", "ann", "--config", config)
    assert "by ann until 2030-07-01 00:00 CEST" in run(capsys, *mute)[1]
    assert " ok " in run(capsys, "status", "--config", config, "--config", config)[1]


def test_a_window_of_bad_data_is_exit_code_two(fresh, capsys, tmp_path):
    config = fresh("good", **{"{path: log}": "{path: log}\n  max_bad_share: 0.0"})
    labels = pd.read_parquet(tmp_path / "labels.parquet")
    labels.loc[3, "label"] = "martian"
    (tmp_path / "labels.parquet").unlink()
    labels.to_parquet(tmp_path / "labels.parquet")
    code, out, _ = run(capsys, "check", "--config", config, "--now", NOW)
    assert code == 2
    assert "was not audited" in out


def test_a_missing_configuration_is_exit_code_two_with_a_remedy(capsys):
    code, out, err = run(capsys, "check", "--config", "nowhere.yaml")
    assert (code, out) == (2, "")
    assert "huc-monitor init" in err


def test_an_odd_time_is_exit_code_two(fresh, capsys):
    code, _, err = run(capsys, "check", "--config", fresh("good"), "--now", "yesterday")
    assert code == 2
    assert "`now` must be a date or time; got 'yesterday'" in err


def test_the_log_is_json_if_asked(fresh, capsys):
    _, _, err = run(
        capsys, "check", "--config", fresh("good"), "--now", NOW, "--log-format", "json"
    )
    lines = [json.loads(line) for line in err.splitlines()]
    assert [line["fields"]["huc.window.ordinal"] for line in lines] == [1, 2, 3, 4, 5]
    assert {line["event"] for line in lines} == {"huc.window_checked"}


def test_status_shows_windows_and_open_alerts(fresh, capsys):
    config = fresh("bad")
    code, out, _ = run(capsys, "status", "--config", config)
    assert (code, out.strip()) == (0, "No window was checked yet. Run: huc-monitor check")
    twin = Path(config).with_name("twin.yaml")
    twin.write_text(Path(config).read_text("utf-8").replace("intrusion", "twin"), "utf-8")
    code, out, _ = run(capsys, "status", "--config", config, "--config", twin)
    assert (code, out.count("not checked"), " ok " in out) == (0, 2, False)
    run(capsys, "check", "--config", config, "--now", NOW)
    code, out, _ = run(capsys, "status", "--config", config, "--last", "2")
    assert code == 1
    assert run(capsys, "status", "--config", config, "--fail-on", "never")[0] == 0
    assert "Status critical" in out
    assert "protocol=udp" in out
    assert "2024-03-01 00:00" not in out, "only the last two windows"
    document = json.loads(run(capsys, "status", "--config", config, "--json")[1])
    assert document["status"] == "critical"
    assert [row["ordinal"] for row in document["windows"]] == [1, 2, 3, 4, 5]


@pytest.mark.seconds
def test_a_changed_tree_is_a_new_monitor_and_the_old_records_stay(fresh, capsys, tmp_path):
    config = fresh("good")
    run(capsys, "check", "--config", config, "--now", NOW)
    (tmp_path / "tree.json").unlink()
    leaves = ["normal", "neptune", "smurf", "satan", "nmap"]
    nested = {"normal": None, "attack": leaves[1:]}
    (tmp_path / "tree.json").write_text(json.dumps(nested), "utf-8")
    _, out, _ = run(capsys, "check", "--config", config, "--now", NOW, "--json")
    assert [record["ordinal"] for record in json.loads(out)["records"]] == [1, 2, 3, 4, 5]
    assert len(list((tmp_path / "huc-state").iterdir())) == 2


@pytest.mark.seconds
def test_a_progress_bar_is_shown_on_a_terminal_only(fresh):
    config = fresh("good")
    command = [*MAIN, "check", "--config", config, "--now", NOW]
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    assert process.wait(60) == 0
    assert "━".encode() in shown
    assert b"/5" in shown
    assert b"Status ok; 5 new windows: 5 audited" in shown


# Watch.


def result(status="ok"):
    return CheckResult((), None, status, ())


class Scripted:
    """Plays a list of results and errors, and stops the watch at its end."""

    def __init__(self, *script):
        self.script, self.pauses, self.told = list(script), [], []
        rng = random.Random(0)  # noqa: S311 - not a secret
        self.watch = Watch(self.check, timedelta(minutes=15), tell=self.told.append, rng=rng)
        self.watch.stop = self

    def check(self, progress):
        item = self.script.pop(0)
        if isinstance(item, BaseException):
            raise item
        progress(0, 1, "")
        return item

    def is_set(self):
        return not self.script

    def wait(self, seconds):
        self.pauses.append(seconds / 60)


def test_a_watch_checks_at_its_pace_with_jitter():
    script = Scripted(*[result() for _ in range(30)], result())
    assert script.watch.run() == 31
    assert all(13.5 <= pause <= 16.5 for pause in script.pauses)
    assert len({round(pause, 6) for pause in script.pauses}) > 20


def test_a_watch_outlives_errors_and_asks_less_and_less_often():
    errors = [ConnectionError("away")] * 10
    script = Scripted(result(), *errors, result(), result())
    script.watch.jitter = 0.0
    script.watch.run()
    assert script.pauses[:5] == [15, 0.5, 1, 2, 4]
    assert max(script.pauses) == 60
    assert script.pauses[11] == 15, "back to its pace"
    assert len(script.told) >= 2


def test_a_watch_that_meets_a_running_check_skips_and_does_not_back_off():
    script = Scripted(CheckInProgressError("busy"), result(), result())
    script.watch.jitter = 0.0
    script.watch.run()
    assert script.pauses[0] == 15


def test_a_watch_stops_between_two_windows():
    stop, seen = Event(), []

    def check(progress):
        for done in range(5):
            progress(done, 5, "")
            seen.append(done)
            if done == 2:
                stop.set()
        return result()

    assert Watch(check, timedelta(hours=1), stop=stop).run() == 1
    assert seen == [0, 1, 2]


def test_only_one_watch_runs_per_configuration(fresh, capsys):
    config = fresh("good")
    with watch_lock(config):
        code, _, err = run(capsys, "watch", "--config", config, "--checks", "1")
    assert code == 2
    assert "Another watch is running (pid " in err


@pytest.mark.seconds
@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_watch_stops_cleanly_on_a_signal(fresh, name):
    command = [*MAIN, "watch", "--config", fresh("good"), "--every", "1h", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first = json.loads(process.stdout.readline())
    assert_follows("watch", first)
    assert (first["status"], first["silences"]) == ("ok", {}), "a log of 2024 is no news"
    started = time.monotonic()
    process.send_signal(name)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")
    assert time.monotonic() - started < 10


def test_watch_refuses_an_odd_pace(fresh, capsys):
    code, _, err = run(capsys, "watch", "--config", fresh("good"), "--every", "often")
    assert code == 2
    assert "`every` must be a whole number and one of the units" in err


def test_windows_that_are_audited_again_are_counted_apart(tmp_path, capsys):
    log, labels = make_log(3, 400, late_share=0.3)
    config = write_project(tmp_path, log, labels, windows=", revisit: 30d")
    check = ("check", "--config", config, "--dry-run", "--now", "2024-03-04T00:00")
    assert "; 3 new windows: 2 audited, 1 pending; 2 revised.\n" in run(capsys, *check)[1]


def test_check_dry_run_and_status_say_that_the_reference_has_not_ended(tmp_path, capsys):
    more = "reference: {start: 2024-03-01, end: 2024-03-08}"
    config = write_project(tmp_path, *make_log(2, 400), more=more)
    check = ("check", "--config", config, "--now", "2024-03-03")
    said = "The reference ends 2024-03-08 and its labels are due 2024-03-08 12:00 UTC: windows are"
    for again in range(2):
        code, out, _ = run(capsys, *check, "--dry-run")
        assert (code, said in out.replace("\n", " ")) == (0, True)
        code, out, _ = run(capsys, *check)
        assert (code, said in out.replace("\n", " ")) == (0, not again)
        code, out, _ = run(capsys, "status", "--config", config)
        assert (code, said in out.replace("\n", " ")) == (0, True)


@pytest.mark.seconds
def test_a_log_that_ended_is_a_warning_of_check_and_status(tmp_path, capsys):
    config = write_project(tmp_path, *make_log(2, 400))
    config.write_text(config.read_text("utf-8").replace("0.03", "0.3"), "utf-8")
    check = ("check", "--config", config, "--fail-on", "warning", "--now")
    assert run(capsys, *check, "2024-03-05") == (0, "", "")
    code, out, _ = run(capsys, *check, "2024-03-10")
    assert (code, "NO NEW DATA\nThe log has no rows since 2024-03-02 23:5" in out) == (1, True)
    assert run(capsys, *check, "2024-03-11") == (1, "", ""), "told once"
    code, out, _ = run(capsys, "status", "--config", config)
    assert (code, "\nWARNING\nThe log has no rows since 2024-03-02 23:5" in out) == (0, True)
    assert "Status warning; 0 open alerts." in out
    code, out, _ = run(capsys, "status", "--config", config, "--json", "--fail-on", "warning")
    said = json.loads(out)
    assert_follows("status", said)
    assert (code, said["silences"]["rows"][:13]) == (1, "2024-03-02T23")


@pytest.mark.seconds
def test_a_failed_window_is_told_by_every_check_until_a_person_dismisses_it(tmp_path, capsys):
    log, labels = make_log(2, 400)
    labels.loc[labels["id"] < 100, "label"] = "nept"
    config = write_project(tmp_path, log, labels)
    config.write_text(config.read_text("utf-8").replace("0.03", "0.3"), "utf-8")
    check = ("check", "--config", config, "--now", "2024-03-04")
    for _ in range(2):
        code, out, _ = run(capsys, *check)
        assert code == 2
        assert "could not be audited: 1 (2024-03-01)" in out
        assert "huc-monitor ack 1" in out
    for form, code in (((), 2), (("--json",), 2), (("--fail-on", "never"), 0)):
        assert run(capsys, "status", "--config", config, *form)[0] == code
    assert (
        "Status failed; 0 open alerts, 1 failed windows."
        in run(capsys, "status", "--config", config)[1]
    )
    assert json.loads(run(capsys, *check, "--json")[1])["failed"][0]["ordinal"] == 1
    assert run(capsys, "ack", "2", "--config", config)[0] == 2
    code, out, _ = run(capsys, "ack", "1", "--config", config)
    assert (code, "stays without an audit. Status ok." in out) == (0, True)
    assert run(capsys, *check) == (0, "", "")
    assert run(capsys, "status", "--config", config)[0] == 0


@pytest.mark.seconds
def test_a_changed_tree_is_told_and_open_alerts_are_carried_over(fresh, capsys, tmp_path):
    config = fresh("bad")
    run(capsys, "check", "--config", config, "--now", NOW)
    before = json.loads(run(capsys, "status", "--config", config, "--json")[1])
    tree = json.loads((tmp_path / "tree.json").read_text("utf-8"))
    (tmp_path / "tree.json").unlink()
    tree["attack"] = {"dos": tree["attack"]["dos"], "scan": tree["attack"]["probe"]}
    (tmp_path / "tree.json").write_text(json.dumps(tree), "utf-8")
    code, out, _ = run(capsys, "status", "--config", config)
    assert code == 1
    assert "because `tree` changed: this is a new monitor" in out
    assert "Status critical" in out
    after = json.loads(run(capsys, "status", "--config", config, "--json")[1])
    kept = [alert for alert in before["alerts"] if alert["node"] != "probe"]
    assert after["alerts"] == kept
    code, out, _ = run(capsys, "check", "--config", config, "--now", NOW)
    assert code == 1
    assert "NOTE\nThe configuration's identity changed from" in out
    assert f"{len(kept)} carried over" in out
    again = json.loads(run(capsys, "status", "--config", config, "--json")[1])
    first_seen = {alert["node"]: alert["first_seen"] for alert in kept}
    assert {alert["node"]: alert["first_seen"] for alert in again["alerts"]} == first_seen


def test_status_tells_moments_in_money_where_the_utility_has_units():
    at = datetime(2026, 11, 11, tzinfo=UTC)
    times = {"first_seen": at, "last_seen": at, "first_ordinal": 1, "last_ordinal": 1}
    sizes = {"moment": -0.0459, "opened_moment": -0.0839, "tolerance": 0.093, "n_windows": 1}
    alert = AlertState(
        utility="cost", subgroup="all", node="delay", level="warning", **sizes, **times
    )
    utility = hm.Payoff("cost", {"a": 1}, units="EUR", scale=40)
    (said,) = _say_alerts([alert], [utility])
    assert "-1.84 EUR in window 1, -3.36 EUR at first; tolerance 3.72 EUR" in said
    (said,) = _say_alerts([alert])
    assert "-0.0459 in window 1, -0.0839 at first; tolerance 0.093" in said


def test_a_refused_recalibration_is_told_in_money_too(monkeypatch, capsys, fresh):
    gains = "HUC of utility cost: 20.0 EUR before, 19.0 EUR after"
    outcome = RecalibrationOutcome("5f", "refused", reasons=("too little",), summary=gains)
    host = SimpleNamespace(recalibrate=lambda *_: outcome)
    monkeypatch.setattr("huc_monitor.config.opening.open_recalibration_host", lambda *_: host)
    code, out, _ = run(capsys, "recalibrate", "--config", fresh("good"))
    assert (code, out) == (1, f"Refused: too little. {gains}.\n")


def test_an_action_that_covers_some_alerts_of_a_branch_says_how_many():
    at = datetime(2026, 11, 11, tzinfo=UTC)
    times = {"first_seen": at, "last_seen": at, "first_ordinal": 1, "last_ordinal": 1}
    acked = {"actions": (Action(kind="ack", at=at, by="ann"),)}
    alerts = [
        AlertState(
            utility=name, subgroup="all", node="delay", level="warning", n_windows=1, **times, **did
        )
        for name, did in {"a": acked, "b": acked, "c": {}}.items()
    ]
    assert "  - 2 of 3 alerts: acknowledged by ann, " in _say_alerts(alerts)[0]
    assert "  - Acknowledged by ann, " in _say_alerts(alerts[:2])[0]


def test_status_heads_a_muted_branch_as_muted_and_tells_no_end_of_a_mute_that_was_ended(
    fresh, capsys
):
    config = fresh("bad")
    run(capsys, "check", "--config", config, "--now", NOW)
    for text in ("first try", "second try"):
        arguments = ("--branch", "attack", "--by", "ann", "--config", config)
        run(capsys, "mute", *arguments, "--until", "3d", "--text", text)
        out = run(capsys, "status", "--config", config)[1]
        assert out.startswith("Status ok (muted alerts do not count); ")
        assert "MUTED (critical)\nBranch attack" in out
        assert "CRITICAL" not in out
        assert out.count(" until ") == out.count(text) == out.count("MUTED")
        run(capsys, "mute", *arguments, "--until", "now")
    out = run(capsys, "status", "--config", config)[1]
    assert out.startswith("Status critical; ")
    assert "CRITICAL\nBranch attack" in out
    assert "Muted by ann, " in out
    assert " until " not in out
