from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.production_log import after, make_log, write_project
from support.watched import Ear, by_protocol, make

from huc_monitor._common.times import get_zone
from huc_monitor.config.opening import open_actions
from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.monitor import CheckInProgressError, MonitorState
from huc_monitor.monitor._lock import hold
from huc_monitor.monitor.alerts import AlertPolicy, Judgement, advance
from huc_monitor.monitor.muting import Maintenance
from huc_monitor.monitor.people import Action, covers, parse_until, say_people, say_people_of
from huc_monitor.monitor.ports import FilesTracker, MonitorInfo
from huc_monitor.monitor.records import WindowRecord
from huc_monitor.monitor.windows import TimeWindows
from huc_monitor.reporting import render_report

BERLIN = get_zone("Europe/Berlin")


def spreading():
    """`attack` goes wrong for udp from day 2; `root` for everyone from day 5; well from day 9."""
    log, labels = make_log(11, 3000, broken_from=2)
    clean = make_log(11, 3000)[1].set_index("id")["label"]
    day = ((log["at"] - log["at"].iloc[0].normalize()) // pd.Timedelta(days=1)).to_numpy()
    label = labels.set_index("id")["label"].reindex(log["id"]).to_numpy(dtype=object)
    swapped = (day >= 5) & (label == "normal") & (log["id"].to_numpy() % 2 == 0)
    mixed = np.where(swapped, "neptune", label)
    mixed = np.where(day >= 9, clean.reindex(log["id"]).to_numpy(dtype=object), mixed)
    named = pd.Series(mixed, index=log["id"])
    return log, labels.assign(label=labels["id"].map(named))


@pytest.fixture(scope="module")
def log():
    return spreading()


def told(result):
    """Branches that a check's message speaks of as critical, warning or resolved."""
    if result.message is None:
        return {}
    found = {}
    for step in result.message.data["transitions"]:
        kind = "resolved" if step["kind"] == "resolved" else step["level"]
        found.setdefault(kind, set()).add(step["node"])
    return found


@pytest.mark.seconds
def test_an_operators_story(log):
    ear = Ear()
    monitor = make(*log, notifiers={"ear": ear}, alerts=AlertPolicy(cool_down="1d"))
    first = monitor.check(after(3.5))
    assert first.status == "critical"
    assert told(first)["critical"] == {"attack"}

    seen = monitor.actions.ack(branch="attack", by="ann", text="looking", now=after(3.6))
    assert {alert.node for alert in seen} == {"attack"}
    assert all(alert.acked.by == "ann" for alert in seen)
    quiet = monitor.check(after(4.5))
    assert quiet.status == "critical", "an acknowledged alert is still one"
    assert told(quiet) == {}, "it is not repeated after the cool-down"

    # Day 4 is Tuesday, 2024-03-05; Friday is 2024-03-08, day 7.
    mute = monitor.actions.mute(branch="attack", until="friday", by="ann", now=after(4.6))
    assert mute.until == after(7)
    assert monitor.status == "ok"
    muted = monitor.check(after(5.5))
    assert muted.status == "ok"
    assert told(muted) == {}
    assert {alert.node for alert in muted.alerts} == {"attack"}, "it is there, and counted"
    assert all("by ann until 2024-03-08" in alert.muted for alert in muted.alerts)
    assert muted[-1].alerts[0].actions == muted.alerts[0].actions, "the record knows it too"

    spread = monitor.check(after(6.5))
    assert spread.status == "critical"
    assert told(spread)["critical"] == {"root"}
    assert "MUTED" in spread.message.text
    assert "*attack* by ann until 2024-03-08 00:00 UTC" in spread.message.text

    over = monitor.check(after(7.5))
    assert "attack" in told(over)["critical"]
    assert "Acknowledged by ann, 2024-03-04 14:24 UTC: looking." in over.message.text
    assert (
        "It was muted by ann until 2024-03-08 00:00 UTC, and is still there." in over.message.text
    )
    assert all(alert.muted is None for alert in over.alerts)

    monitor.check(after(9.5))
    done = monitor.check(after(11.5))  # from day 9 on a recalibrated version serves
    assert done.status == "ok"
    assert told(done)["resolved"] == {"attack", "root"}
    assert ear.heard[0].level == "critical"
    assert ear.heard[-1].level == "resolved"


def test_a_mute_that_ends_between_windows_is_told_by_the_next_check(log):
    monitor = make(*log)
    monitor.check(after(3.5))
    monitor.actions.mute(branch="attack", until="2h", by="ann", now=after(3.5))
    assert monitor.check(after(3.55)).message is None
    result = monitor.check(after(3.7))
    assert result.records == ()
    assert told(result)["critical"] == {"attack"}
    assert "and is still there" in result.message.text
    assert monitor.check(after(3.8)).message is None, "once"


def test_an_alert_that_opens_while_muted_is_told_when_the_mute_is_over(log):
    monitor = make(*log)
    monitor.check(after(2.5))
    monitor.actions.mute(until="3d", by="ann", now=after(2.5))
    quiet = monitor.check(after(4.5))
    assert (quiet.message, quiet.status) == (None, "ok")
    assert quiet.alerts
    assert all(not alert.told for alert in quiet.alerts)
    assert told(monitor.check(after(5.6)))["critical"] >= {"attack"}


def test_what_is_muted_asks_for_no_recalibration(log):
    calls = []
    given = {"enabled": True, "critical_windows": 2, "cool_down": "30d"}
    monitor = make(*log, recalibration=given, recalibrate=calls.append)
    monitor.check(after(2.5))
    monitor.actions.mute(until="2d", by="ann", now=after(2.5))
    monitor.check(after(4.4))
    assert calls == []
    monitor.check(after(5.5))
    assert len(calls) == 1


def test_a_person_ends_a_mute_before_its_time(log):
    monitor = make(*log)
    monitor.check(after(3.5))
    monitor.actions.mute(branch="attack", until="3d", by="ann", now=after(3.5))
    with pytest.raises(
        UnknownNameError, match=r"No mute is about branch dos. In force: branch att"
    ):
        monitor.actions.unmute(branch="dos", now=after(3.6))
    (ended,) = monitor.actions.unmute(branch="attack", by="bob", now=after(3.6))
    assert ended.by == "ann"
    assert monitor.status == "critical"
    assert [a.kind for a in monitor.alerts[0].actions] == ["mute", "unmute"]


def test_the_end_of_a_narrow_mute_leaves_what_a_broader_one_covers_muted(log):
    monitor = make(*log)
    monitor.check(after(3.5))
    monitor.actions.mute(until="30d", by="ann", now=after(3.5))
    monitor.actions.mute(branch="attack", until="3d", by="bob", now=after(3.5))
    (ended,) = monitor.actions.unmute(branch="attack", by="bob", now=after(3.6))
    assert ended.by == "bob"
    assert monitor.status == "ok"
    assert all("by ann until" in alert.muted for alert in monitor.alerts)
    assert say_people(monitor.alerts[0]) == [
        "Muted by ann, 2024-03-04 12:00 UTC.",
        "Muted by bob, 2024-03-04 12:00 UTC.",
        "Unmuted by bob, 2024-03-04 14:24 UTC.",
        "Muted by ann until 2024-04-03 12:00 UTC.",
    ]
    assert told(monitor.check(after(4.5))) == {}
    monitor.actions.unmute(by="ann", now=after(4.6))
    assert (monitor.status, monitor.actions.mutes(after(4.6))) == ("critical", ())


def test_the_end_of_a_mute_is_no_end_of_one_that_covers_some_of_its_alerts(log):
    monitor = make(*log)
    monitor.check(after(3.5))
    monitor.actions.mute(subgroup="all", until="30d", by="ann", now=after(3.5))
    monitor.actions.mute(branch="attack", until="3d", by="bob", now=after(3.5))
    monitor.actions.unmute(branch="attack", by="bob", now=after(3.6))
    assert {alert.subgroup for alert in monitor.alerts if alert.muted is not None} == {"all"}
    assert {alert.subgroup for alert in monitor.alerts if alert.muted is None} == {"protocol=udp"}


def test_what_a_person_said_twice_of_an_alert_is_told_and_counted_once(log):
    monitor = make(*log)
    monitor.check(after(3.5))
    for _ in range(2):
        seen = monitor.actions.ack(branch="attack", by="ann", now=after(3.6))
    assert len(seen) > 1
    said = ["Acknowledged by ann, 2024-03-04 14:24 UTC."]
    assert say_people(seen[0]) == said
    assert say_people_of(seen) == said


def test_maintenance_keeps_its_windows_out_of_every_test(log):
    """Days 2 to 8 are wrong, all under maintenance: nothing is told then or later."""
    ear = Ear()
    times = [{"start": "2024-03-03", "end": "2024-03-10", "purpose": "migration"}]
    monitor = make(*log, notifiers={"ear": ear}, maintenance=times)
    result = monitor.check(after(8.5))
    assert result.status == "ok"
    assert ear.heard == []
    assert result.alerts == ()
    frame = result[-1].to_frame()
    assert "attack" in set(frame.loc[frame["level"] == "critical", "node"]), "it is on record"
    assert "muted for maintenance from 2024-03-03 to 2024-03-10 (migration)" in result[-1].notes[0]
    said = "for maintenance from 2024-03-03 to 2024-03-10 (migration)"
    assert [record.maintenance for record in result] == [None, None, *[said] * 6]
    assert WindowRecord.from_dict(result[-1].to_dict()) == result[-1]
    assert "maintenance" not in result[0].to_dict()
    assert result[-1].detector is None
    assert result[-1].change is None
    later = monitor.check(after(11.5))
    assert later.status == "ok"
    assert later.alerts == ()
    assert ear.heard == []


def test_a_window_in_maintenance_has_no_finding_that_stands(log):
    days = (after(0), after(2))
    times = [{"start": "2024-03-04", "end": "2024-03-05"}]
    told = {"reference": days, "change": {"alerts": "change"}}
    (open_,) = make(*log, **told).check(after(4.5)).records[-1:]
    assert [one.node for one in open_.findings] == ["attack"]
    (shut,) = make(*log, **told, maintenance=times).check(after(4.5)).records[-1:]
    assert shut.maintenance is not None
    assert shut.findings == ()


def test_after_maintenance_nobody_is_told_of_a_fault_that_was_in_it_alone(log):
    """Day 2 alone is in the log as wrong, and in maintenance; days 3 and 4 are clean."""
    rows, labels = log
    clean = make_log(11, 3000)[1]
    odd = set(rows.loc[rows["at"].dt.day == 3, "id"])
    mixed = pd.concat([clean[~clean["id"].isin(odd)], labels[labels["id"].isin(odd)]])
    ear = Ear()
    times = [{"start": "2024-03-03", "end": "2024-03-04"}]
    given = {"notifiers": {"ear": ear}, "maintenance": times, "reference": (after(0), after(2))}
    for alerts in ("tolerance", "change"):
        monitor = make(rows, mixed, change={"alerts": alerts}, **given)
        assert [monitor.check(after(day)).status for day in (3.5, 4.5, 5.5)] == ["ok"] * 3
        assert (monitor.alerts, ear.heard) == ((), [])


def test_an_alert_from_before_maintenance_is_as_it_was_after_it(log):
    calls = []
    asked = {"enabled": True, "critical_windows": 1, "cool_down": "1h"}
    times = [{"start": "2024-03-04", "end": "2024-03-06"}]
    monitor = make(*log, maintenance=times, recalibration=asked, recalibrate=calls.append)
    before = monitor.check(after(3.5)).alerts
    assert {alert.node for alert in before} == {"attack"}
    (first,) = calls
    during = monitor.check(after(5.5))
    assert (during.alerts, during.message, calls) == (before, None, [first])
    after_it = [alert for alert in monitor.check(after(6.5)).alerts if alert.node == "attack"]
    assert {alert.n_windows for alert in after_it} == {2}
    assert len(calls) == 2


def test_maintenance_of_one_branch_leaves_others_alone(log):
    times = [{"start": "2024-03-03", "end": "2024-03-10", "branch": "root"}]
    monitor = make(*log, maintenance=times)
    result = monitor.check(after(6.5))
    assert {a.node for a in result.alerts if a.muted is None} == {"attack"}
    assert {a.node for a in result.alerts if a.muted is not None} == {"root"}
    assert result[-1].maintenance is None


def test_the_end_of_a_mute_leaves_muted_what_maintenance_covers_too(log):
    times = [{"start": "2024-03-03", "end": "2024-03-10", "branch": "root"}]
    monitor = make(*log, maintenance=times)
    before = monitor.check(after(6.5))
    for name in ("attack", "root"):
        monitor.actions.mute(branch=name, until="30d", by="ann", now=after(6.5))
    monitor.actions.unmute(by="ann", now=after(6.6))
    assert monitor.status == before.status
    muted = {alert.candidate: alert.muted for alert in before.alerts}
    assert {alert.candidate: alert.muted for alert in monitor.alerts} == muted
    assert {a.node for a in monitor.alerts if a.muted is not None} == {"root"}


def test_acting_by_a_file_knows_its_maintenance(tmp_path, log):
    shut = 'maintenance: [{start: "2024-03-03", end: "2024-03-10", branch: root}]'
    config = write_project(tmp_path, *log, more=shut)
    (item,) = open_actions(config).maintenance
    assert item.branch == "root"


def test_what_people_did_is_told_in_the_zone_of_the_windows(log):
    windows = TimeWindows(length="1d", label_lag="12h", time_zone="Europe/Berlin")
    monitor = make(*log, windows=windows)
    monitor.check(after(3.5))
    (ack, *_) = monitor.actions.ack(branch="attack", by="ann", now=after(3.6))
    assert say_people(ack) == ["Acknowledged by ann, 2024-03-04 15:24 CET."]
    mute = monitor.actions.mute(branch="attack", until="friday", by="ann", now=after(3.6))
    assert mute.until == after(7) - timedelta(hours=1)
    assert str(mute) == "branch attack by ann until 2024-03-08 00:00 CET"
    assert mute.to_dict()["until"] == "2024-03-07T23:00:00+00:00"
    later = monitor.actions.mute(branch="attack", until="2024-04-02T18:00", now=after(3.7))
    assert "until 2024-04-02 18:00 CEST" in str(later), "the clocks have changed by then"
    assert monitor.alerts[0].muted == later.words


def test_notes_stay_with_an_alert_and_are_bounded(log):
    monitor = make(*log)
    monitor.check(after(3.5))
    for n in range(60):
        monitor.actions.note(text=f"note {n}\n*x*" + "y" * 2000, by="b" * 500, now=after(3.5))
    alert = monitor.alerts[0]
    assert len(alert.actions) == 50
    assert max(len(action.text) for action in alert.actions) == 1000
    assert len(alert.actions[-1].by) == 100
    assert "\n" not in "".join(say_people(alert))


def test_acting_on_nothing_says_what_there_is(log):
    monitor = make(*log)
    with pytest.raises(UnknownNameError, match="Open alerts on branches: none"):
        monitor.actions.ack(branch="attack")
    monitor.check(after(3.5))
    with pytest.raises(UnknownNameError, match=r"No open alert is about branch dos. .* attack"):
        monitor.actions.ack(branch="dos")
    with pytest.raises(UnknownNameError) as nothing:
        monitor.actions.ack(branch="attack", subgroup="udp")
    assert str(nothing.value) == (
        "No open alert is about branch attack, subgroup udp. Open alerts on subgroups: all, "
        "protocol=udp. Did you mean 'protocol=udp'?"
    )
    with pytest.raises(
        UnknownNameError, match=r"`branch` must be .* 'atack'. Did you mean 'attack'"
    ):
        monitor.actions.mute(branch="atack", until="3d")
    with pytest.raises(UnknownNameError, match="`subgroup` must be"):
        monitor.actions.mute(subgroup="protocol=icmp", until="3d")
    with pytest.raises(InvalidInputError, match="`text` must say something"):
        monitor.actions.note(text=" ")


def test_acting_waits_for_a_check_and_gives_up_in_time(log):
    monitor = make(*log)
    monitor.check(after(3.5))
    with hold(monitor.lock_path), pytest.raises(CheckInProgressError, match="Another check"):
        monitor.actions.ack(branch="attack", wait=0.2)


def test_a_state_with_mutes_is_written_and_read(log):
    monitor = make(*log)
    monitor.check(after(3.5))
    assert "mutes" not in monitor.tracker.load_state(), "as earlier versions wrote it"
    monitor.actions.mute(branch="attack", until="3d", by="ann", now=after(3.5))
    plain = monitor.tracker.load_state()
    state = MonitorState.from_dict(plain)
    assert state.to_dict() == plain
    assert state.mutes[0].by == "ann"


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        ("friday", "2024-03-07T23:00"),
        ("FRI", "2024-03-07T23:00"),
        ("tuesday", "2024-03-11T23:00"),
        ("2024-03-08", "2024-03-07T23:00"),
        ("2024-03-08T10:00", "2024-03-08T09:00"),
        ("2024-03-08T10:00+00:00", "2024-03-08T10:00"),
        ("3d", "2024-03-08T12:00"),
        ("90m", "2024-03-05T13:30"),
    ],
)
def test_until_is_a_date_a_time_a_weekday_or_a_length(until, expected):
    tuesday = datetime(2024, 3, 5, 12, tzinfo=UTC)
    assert parse_until(until, tuesday, BERLIN).isoformat()[:16] == expected


@pytest.mark.parametrize("until", ["", "soon", "3", "3x", "2024-13-01", "frid", "th"])
def test_until_of_another_kind_is_refused(until):
    with pytest.raises(InvalidInputError, match="`until` must be"):
        parse_until(until, datetime(2024, 3, 5, tzinfo=UTC), BERLIN)


def test_until_in_the_past_is_refused():
    with pytest.raises(InvalidInputError, match="`until` must lie in the future"):
        parse_until("2024-03-01", datetime(2024, 3, 5, tzinfo=UTC), BERLIN)


@given(
    hours=st.integers(1, 400),
    length=st.integers(1, 20),
    every=st.sampled_from([None, "1d", "7d", "36h"]),
    begin=st.integers(0, 24 * 40),
    wide=st.integers(1, 60),
)
def test_maintenance_meets_a_window_as_an_hour_by_hour_count_says(
    hours, length, every, begin, wide
):
    zero = datetime(2024, 1, 1, tzinfo=UTC)
    start, end = zero + timedelta(hours=hours), zero + timedelta(hours=hours + length)
    item = Maintenance(start=start.isoformat(), end=end.isoformat(), repeat_every=every)
    step = {None: None, "1d": 24, "7d": 168, "36h": 36}[every]
    covered = set()
    for k in range(60 if step else 1):
        first = hours + k * (step or 0)
        covered |= set(range(first, first + length))
    window = zero + timedelta(hours=begin), zero + timedelta(hours=begin + wide)
    expected = bool(covered & set(range(begin, begin + wide)))
    assert item.meets(*window, get_zone("UTC")) == expected


def test_maintenance_that_makes_no_sense_is_refused():
    with pytest.raises(InvalidInputError, match="must end after its start"):
        Maintenance(start="2024-03-02", end="2024-03-01")
    with pytest.raises(InvalidInputError, match="must be shorter than `repeat_every`"):
        Maintenance(start="2024-03-01", end="2024-03-04", repeat_every="2d")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"branch": "atack"}, r"\[0\]\.branch` must be .* 'atack'. Did you mean 'attack'"),
        ({"utility": "famly"}, r"\[0\]\.utility` must be .* 'famly'. Did you mean 'family'"),
        ({"subgroup": "udp"}, r"\[0\]\.subgroup` must be .* 'udp'. Did you mean 'protocol=udp'"),
    ],
)
def test_maintenance_of_what_the_monitor_does_not_have_is_refused(log, names, message):
    times = {"start": "2024-03-03", "end": "2024-03-04"}
    with pytest.raises(UnknownNameError, match=message):
        make(*log, maintenance=[{**times, **names}]).check(after(3.5))


def test_maintenance_of_an_unknown_subgroup_is_refused_before_a_check_where_it_can_be(log):
    fixed = by_protocol(log[0])
    times = {"start": "2024-03-03", "end": "2024-03-04", "subgroup": "udp"}
    with pytest.raises(UnknownNameError, match=r"`maintenance\[0\]\.subgroup` must be"):
        make(*log, maintenance=[times], subgroups=fixed)
    make(*log, maintenance=[{**times, "subgroup": "protocol=udp"}], subgroups=fixed)


def test_a_scope_covers_what_has_all_its_names():
    assert covers((None, None, None), ("a", "b", "c"))
    assert covers((None, "b", None), ("a", "b", "c"))
    assert not covers((None, "b", "x"), ("a", "b", "c"))
    assert not covers(("a", "b", None), ("a", None, None))


def test_an_acknowledged_warning_that_becomes_critical_is_told_and_repeated():
    ack = Action(kind="ack", at=after(1), by="ann")
    story, alerts = [], {}
    for n, level in enumerate(["warning", "warning", "warning", "critical", "critical"]):
        sizes = {"warning": 0.03, "critical": 0.06}
        reasons = ("estimate",) if level == "warning" else ("estimate", "bound")
        said = Judgement(0, ("u", "all", "a"), level, reasons, sizes[level], 0.01, 0.02)
        times = {"ordinal": n + 1, "start": after(n), "end": after(n + 1)}
        alerts, steps = advance(alerts, [said], policy=AlertPolicy(cool_down="1d"), **times)
        story.append([step.kind for step in steps if step.announced])
        if n == 0:
            (only,) = alerts.values()
            seen = dataclasses.replace(only, actions=(dataclasses.replace(ack, level="warning"),))
            alerts = {seen.candidate: seen}
    assert story == [["opened"], [], [], ["escalated"], ["repeated"]]


def test_people_and_checks_that_write_at_once_lose_nothing(log, tmp_path):
    """Five people and two checks, each with a tracker of its own, on one folder."""
    info = MonitorInfo("intrusion", "5f")

    def one():
        return make(*log, tracker=FilesTracker(info, folder=tmp_path), identity="5f")

    one().check(after(3.5))

    def annotate(person):
        for n in range(4):
            one().actions.note(text=f"{n}", by=f"p{person}", now=after(3.6), wait=60.0)

    def look(_):
        one().check(after(4.5), wait=60.0)

    with ThreadPoolExecutor(7) as pool:
        list(pool.map(lambda job: job[0](job[1]), [*[(annotate, n) for n in range(5)], (look, 0)]))
    state = one()
    attack = next(alert for alert in state.alerts if alert.first_ordinal <= 3)
    assert sorted(f"{a.by} {a.text}" for a in attack.actions) == [
        f"p{person} {n}" for person in range(5) for n in range(4)
    ]
    assert [record.ordinal for record in state.records()] == [1, 2, 3, 4]


def test_the_report_says_who_did_what(log):
    monitor = make(*log)
    monitor.check(after(3.5))
    monitor.actions.ack(branch="attack", by="<b>ann</b>", text="looking", now=after(3.6))
    monitor.check(after(4.5))
    page = render_report(monitor.records(), tree=monitor.tree)
    assert "Acknowledged by &lt;b&gt;ann&lt;/b&gt;, 2024-03-04 14:24 UTC: looking." in page
    assert "<b>ann</b>" not in page
