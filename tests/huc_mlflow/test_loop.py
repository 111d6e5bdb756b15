"""The closed loop: a drift is found, repaired, promoted, and the alert goes away."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from datetime import UTC, datetime, timedelta

import huc_mlflow
import mlflow
import pytest
from huc_mlflow._fit_since import began_under, calm_since, fit_since
from support.deployment import (
    STRICT,
    World,
    a_trigger,
    check_records,
    check_rollback,
    check_story,
    tell,
)
from support.documents import assert_follows
from support.forests import log_forest

from huc_monitor._common.times import within
from huc_monitor.cli import main
from huc_monitor.monitor._state import KeptWindow, MonitorState
from huc_monitor.monitor.change import CandidateChange
from huc_monitor.monitor.records import AlertState, RecalibrationTrigger


@pytest.mark.slow
def test_the_loop_closes_on_sqlite_without_a_server(story, store, capsys):
    log_forest(story, "triage")
    world = World(story, store, mlflow.get_tracking_uri())
    world.configure(gate=STRICT)
    results = tell(world, days=30, drift_from=15)
    check_story(world, results, 15)
    check_records(world, 30)
    check_rollback(world, capsys)


DAY = datetime(2024, 3, 1, tzinfo=UTC)
TRIGGER = RecalibrationTrigger(
    id="5f", reason="test", window_id="5f", ordinal=20, window_end=DAY + timedelta(days=20)
)


def open_alert(node, subgroup, day, level="critical"):
    seen = {"first_seen": DAY + timedelta(days=day), "last_seen": TRIGGER.window_end}
    counted = {"first_ordinal": day, "last_ordinal": 20, "n_windows": 20 - day}
    return AlertState(
        utility="level3", subgroup=subgroup, node=node, level=level, **seen, **counted
    )


CALM = (DAY, "since the reference began; no critical alert is open")
begin = functools.partial(fit_since, calm=CALM)


def test_rows_are_those_since_the_branch_that_went_wrong_last():
    alerts = [
        open_alert("major", "all", 5),
        open_alert("major", "sex=m", 14),  # the same fault, seen in one more place
        open_alert("milder", "all", 12),
        open_alert("root", "all", 18, level="warning"),
    ]
    assert begin(TRIGGER, alerts) == (
        DAY + timedelta(days=12),
        "since the alert on branch milder began, the newest of 2 branches",
    )
    assert begin(TRIGGER, alerts[:2]) == (
        DAY + timedelta(days=5),
        "since the alert on branch major began",
    )
    together = [*alerts, open_alert("survived", "all", 11), open_alert("coma", "all", 13)]
    assert begin(TRIGGER, together) == (
        DAY + timedelta(days=11),
        "since the alert on branch survived began, the newest of 4 branches",
    ), "alerts of one fault may come a window apart"
    asked = dataclasses.replace(TRIGGER, since=DAY)
    assert begin(asked, alerts) == (DAY, "since the time you gave")
    assert begin(TRIGGER, alerts[3:]) == CALM
    late = (DAY + timedelta(days=30), "all of the log; no critical alert is open")
    assert begin(TRIGGER, [], calm=late)[0] == TRIGGER.window_end


def test_without_a_critical_alert_rows_are_all_of_what_serves():
    times = [DAY + timedelta(days=days) for days in (4, 7)]
    assert calm_since(None, tuple(times), DAY) == (
        DAY + timedelta(days=4),
        "since the reference began; no critical alert is open",
    )
    assert calm_since(None, tuple(times), DAY + timedelta(days=5))[0] == DAY + timedelta(days=5)
    assert calm_since(None, None, DAY) == (DAY, "all of the log; no critical alert is open")
    served = DAY + timedelta(days=10)
    why = "since the version that serves first answered; no critical alert is open"
    assert calm_since(served, tuple(times), DAY) == (served, why)


def changed(node, day):
    numbers = {"before": 0.0, "after": 0.1, "difference": 0.1, "lower": 0.05, "upper": 0.15}
    where = {"interval_low": 0.0, "interval_high": 1.0, "n_windows": 1}
    onset = None if day is None else DAY + timedelta(days=day)
    return CandidateChange(
        utility="level3", subgroup="all", node=node, onset=onset, **numbers, **where
    )


def test_rows_begin_with_the_fault_where_the_alert_was_told_later():
    alerts = [open_alert("major", "all", 5), open_alert("milder", "all", 12)]
    changes = [
        changed("milder", 10),
        changed("major", 3),
        changed("root", 1),
        changed("none", None),
    ]
    start, why = begin(TRIGGER, alerts, changes)
    assert start == DAY + timedelta(days=10)
    said = "since the change behind the alert on branch milder likeliest began, the newest of 2"
    assert why == f"{said} branches"
    together = [*alerts, open_alert("survived", "all", 13)]
    assert begin(TRIGGER, together, [changed("survived", 9)])[0] == DAY + timedelta(days=9)
    windows = [
        KeptWindow(str(day), day, start, start + timedelta(days=1), start, "", version=version)
        for day, version in [(3, "1"), (9, "1"), (10, "2"), (11, None), (12, "2")]
        for start in [DAY + timedelta(days=day)]
    ]
    serving = MonitorState(identity="m", compared=windows).serving_since
    assert serving == DAY + timedelta(days=10)
    assert [one.node for one in began_under(serving, changes)] == ["milder"]
    assert began_under(MonitorState(identity="m").serving_since, changes) == []
    late = begin(TRIGGER, alerts[:1], [changed("major", 6)])
    assert late == (DAY + timedelta(days=5), "since the alert on branch major began")


def test_rows_begin_with_the_version_that_serves_where_the_fault_is_older_than_it():
    windows = [
        KeptWindow(str(day), day, start, start + timedelta(days=1), start, "", version=version)
        for day, version in [(3, "1"), (9, "1"), (10, "2"), (11, "2"), (12, "2")]
        for start in [DAY + timedelta(days=day)]
    ]
    served = MonitorState(identity="m", compared=windows).replaced_at
    assert served == DAY + timedelta(days=10)
    one_version = MonitorState(identity="m", compared=windows[2:])
    assert one_version.replaced_at is None, "when it began to serve is not known"
    late = [open_alert("milder", "all", 12)]
    start, why = begin(TRIGGER, late, [changed("milder", 3)], served)
    assert start == DAY + timedelta(days=10)
    told = "since the version that serves first answered; the fault behind the alert on branch"
    assert why == f"{told} milder is older"
    assert begin(TRIGGER, late, [changed("milder", 11)], served)[0] == DAY + timedelta(days=11)
    assert begin(TRIGGER, late, [], served)[0] == DAY + timedelta(days=12)
    older = [open_alert("milder", "all", 5)]
    assert begin(TRIGGER, older, [], served)[0] == DAY + timedelta(days=10)
    assert begin(TRIGGER, older, [], None)[0] == DAY + timedelta(days=5)
    asked = dataclasses.replace(TRIGGER, since=DAY)
    assert begin(asked, older, [], served)[0] == DAY


def test_rows_of_maintenance_are_no_part_of_a_recalibration(story, store):
    log_forest(story, "triage")
    world = World(story, store, mlflow.get_tracking_uri(), enabled=False)
    for _ in range(3):
        world.serve(drift=0.0)
    world.check()

    def rows_since_the_third_day():
        host, trigger = a_trigger(world)
        state = host._state()
        state.alerts = {("level3", "all", "milder"): open_alert("milder", "all", 2)}
        return host._rows(trigger, world.champion(), state)

    assert len(rows_since_the_third_day()[0].labels) == 1_800
    world.settings["maintenance"] = [
        {"start": "2024-03-02T12:00", "end": "2024-03-03T12:00"},
        {"start": "2024-03-02", "end": "2024-03-03", "branch": "milder"},
    ]
    world.configure()
    rows, why = rows_since_the_third_day()
    assert (len(rows.labels), rows.start) == (1_800, DAY), "older rows take their place"
    assert not within(rows.times, [(DAY + timedelta(days=1.5), DAY + timedelta(days=2.5))]).any()
    assert why.endswith(
        "the newest, at least 1,000 if there are so many; 900 of maintenance are left out"
    )


@pytest.mark.slow
def test_a_fault_that_came_last_is_not_diluted_by_rows_from_before_it(story, store, capsys):
    log_forest(story, "triage")
    world = World(story, store, mlflow.get_tracking_uri(), promotion="manual", enabled=False)
    for day in range(8):
        world.serve(drift=1.0 if day >= 2 else 0.0, spread=day >= 6)
        world.check()
    config = ["--config", str(world.config)]
    found = {}
    for given in ([], ["--since", "2024-03-03"]):
        capsys.readouterr()
        main(["recalibrate", *config, *given, "--json"])
        outcome = json.loads(capsys.readouterr().out)
        after = re.search(r"([\d.]+) after", outcome["summary"] or outcome["reasons"][0])
        found[outcome["rows"]] = float(after[1])
    (newest, lately), (_, diluted) = found.items()
    assert "2024-03-07 00:00 to 2024-03-09 00:00 UTC: since the alert on branch milder" in newest
    assert lately < diluted / 2
    assert main(["recalibrate", *config, "--since", "2024-04-01"]) == 2
    assert "`since` must be before the end of the newest checked window" in capsys.readouterr().err


@pytest.mark.slow
def test_recalibrate_promote_and_rollback_are_commands(story, store, capsys):
    log_forest(story, "triage")
    world = World(story, store, mlflow.get_tracking_uri(), promotion="manual", enabled=False)
    world.settings["utilities"][0] |= {"units": "EUR", "scale": 40.0}
    world.configure()
    for _ in range(3):
        world.serve(drift=1.0)
    world.check()
    capsys.readouterr()
    config = ["--config", str(world.config)]
    assert main(["recalibrate", *config, "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert_follows("recalibrate", outcome)
    assert (outcome["result"], outcome["version"], outcome["promoted"]) == (
        "registered",
        "2",
        False,
    )
    assert outcome["columns"] == ["sex"], "some of its updates are for one sex"
    assert main(["recalibrate", *config]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "version 2 as challenger. HUC 0." in said
    money = r"held-out rows\. HUC of utility \w+: [\d.]+ EUR before, [\d.]+ EUR after\."
    assert re.search(money, said), said
    assert len(huc_mlflow.Registry("triage").versions()) == 2
    assert main(["promote", *config]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "champion is version 2 instead of version 1" in said
    assert "Requests must now carry: sex." in said
    assert "resolved after 2 windows in a row of version 2 without it" in said
    assert main(["promote", *config]) == 0
    assert "nothing to do, version 2 is champion already" in capsys.readouterr().out
    assert main(["promote", *config, "--version", "9"]) == 2
    said = capsys.readouterr()
    assert "`version` must be a version of 'triage'; got '9'. There are: 1, 2." in said.err
    assert "Downloading" not in said.err + said.out
    assert main(["rollback", *config, "--json"]) == 0
    move = json.loads(capsys.readouterr().out)
    assert_follows("rollback", move)
    assert_follows("promote", move)
    assert move["version"] == "1"
    assert main(["rollback", *config]) == 2
    assert "must have a champion that replaced another" in capsys.readouterr().err
    assert main(["promote", *config]) == 2
    assert "There is nothing to promote: 'triage' has no challenger" in capsys.readouterr().err
