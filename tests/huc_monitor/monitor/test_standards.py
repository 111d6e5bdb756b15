"""A reference that has not ended, or whose labels are not due, is not frozen of a part of it."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from support.production_log import after, make_log
from support.watched import Ear, make

import huc_monitor as hm
from huc_monitor._common.times import get_zone
from huc_monitor.monitor._state import MonitorState
from huc_monitor.monitor.muting import Maintenance, odd_times
from huc_monitor.monitor.ports.tracker import MemoryTracker
from huc_monitor.monitor.tolerance import Tolerance
from huc_monitor.monitor.windows import CountWindows

DAYS = (after(0), after(3))
SAID = (
    "The reference ends 2024-03-04 and its labels are due 2024-03-04 12:00 UTC: windows are "
    "audited from then on, none is lost. To begin earlier, give the reference an earlier end."
)


@pytest.fixture
def growing():
    """Logs as they were on some day; from the second on they have a third protocol."""
    log, labels = make_log(6, 600)
    late = (log["at"] >= after(1)) & (log["id"] % 3 == 0)
    log = log.assign(protocol=log["protocol"].mask(late, "icmp"))

    def growing(day):
        return log[log["at"] < after(day)], labels[labels["known_at"] < after(day)]

    return growing


def state_of(monitor):
    return MonitorState.from_dict(monitor.tracker.load_state())


def test_nothing_is_frozen_or_audited_before_the_reference_is_complete(growing):
    tracker, ear = MemoryTracker(), Ear()
    for day in (1.6, 2.6, 3.4):
        given = {"tracker": tracker, "notifiers": {"ear": ear}, "identity": "5f"}
        monitor = make(*growing(day), reference=DAYS, **given)
        result = monitor.check(after(day))
        assert (result.records, result.status, result.waiting) == ((), "ok", SAID)
        assert state_of(monitor).reference is None
        assert state_of(monitor).subgroups is None
    assert [message.data["notes"] for message in ear.heard] == [[SAID]]  # once


def test_windows_that_waited_are_audited_when_the_reference_is_there_as_by_one_check(growing):
    tracker = MemoryTracker()
    for day in (1.6, 2.6, 3.6, 4.6):
        daily = make(*growing(day), reference=DAYS, tracker=tracker, identity="5f")
        result = daily.check(after(day))
    once = make(*growing(4.6), reference=DAYS, identity="5f")
    once.check(after(4.6))
    assert result.waiting is None
    done = [[r for r in one.records() if r.status == "audited"] for one in (daily, once)]
    assert [record.ordinal for record in done[0]] == [1, 2, 3, 4]
    assert [r.audit for r in done[0]] == [r.audit for r in done[1]]
    assert [r.change for r in done[0]] == [r.change for r in done[1]]
    state = state_of(daily)
    assert state.reference == state_of(once).reference
    assert state.waiting is None
    assert "protocol=icmp" in hm.Subgroups.from_dict(state.subgroups).names


@pytest.mark.parametrize(
    "more",
    [
        {"windows": CountWindows(n_rows=500, label_lag="12h")},
        {"tolerance": Tolerance(value=0.03, relative_to="reference")},
        {"subgroups": hm.Subgroups.whole()},
    ],
)
def test_every_kind_of_monitor_waits_for_the_whole_reference(growing, more):
    assert make(*growing(2.6), reference=DAYS, **more).check(after(2.6)).waiting == SAID
    result = make(*growing(3.6), reference=DAYS, **more).check(after(3.6))
    assert result.waiting is None
    assert result.records


def test_without_a_time_for_the_reference_the_first_window_is_audited_when_it_is_due(growing):
    result = make(*growing(1.6)).check(after(1.6))
    assert [record.status for record in result.records] == ["audited"]
    assert result.waiting is None


def test_a_dry_run_says_that_it_waits_each_time_and_keeps_nothing(growing):
    monitor = make(*growing(1.6), reference=DAYS)
    for _ in range(2):
        assert monitor.check(after(1.6), dry_run=True).waiting == SAID
    assert monitor.tracker.load_state() is None


def test_a_reference_frozen_earlier_stays_when_asked_as_of_a_time_before_its_end(growing):
    monitor = make(*growing(6), reference=DAYS)
    monitor.check(after(3.6))
    result = monitor.check(after(2))
    assert result.waiting is None
    assert state_of(monitor).reference is not None


def test_a_log_that_ended_in_the_reference_is_frozen_when_it_is_due_and_says_with_how_many(growing):
    log, labels = growing(1.5)
    monitor = make(log, labels, reference=DAYS)
    assert monitor.check(after(1.6)).waiting == SAID
    notes = monitor.check(after(3.6)).message.data["notes"]
    n = state_of(monitor).reference["drift"]["n"]
    newest = log.loc[log["id"].isin(labels["id"]), "at"].max()
    assert (
        f"The reference (2024-03-01 to 2024-03-04) is frozen with {n} labelled rows, the newest of "
        f"{newest:%Y-%m-%d %H:%M} UTC: later windows are compared with these. If more were to "
        "come, or were deleted, choose another time for the reference."
    ) in notes


def test_a_reference_whose_old_rows_were_deleted_before_it_was_complete_says_so(growing):
    log, labels = growing(6)
    tracker = MemoryTracker()
    given = {"reference": DAYS, "tracker": tracker, "identity": "5f"}
    assert make(*growing(1.6), **given).check(after(1.6)).waiting is not None
    left = log[log["at"] >= after(1.5)]
    notes = make(left, labels, **given).check(after(3.6)).message.data["notes"]
    oldest = left.loc[left["id"].isin(labels["id"]), "at"].min()
    assert any(
        f"labelled rows, the oldest of {oldest:%Y-%m-%d %H:%M} UTC" in note for note in notes
    )


def test_the_last_day_of_a_reference_ends_at_midnight_of_the_monitor(growing):
    log, labels = growing(6)
    days = tuple(time + timedelta(hours=8) for time in DAYS)
    log = log[(log["at"] < after(2.9)) | (log["at"] >= days[1])]  # until two in the afternoon
    windows = CountWindows(n_rows=500, label_lag="12h", time_zone="America/Los_Angeles")
    message = make(log, labels, reference=days, windows=windows).check(after(5)).message
    assert message is None or not any("eference" in note for note in message.data["notes"])


def test_a_complete_reference_is_frozen_without_a_word(growing):
    log, labels = growing(6)
    message = make(log, labels, reference=DAYS).check(after(4.6)).message
    assert message is None or not any("eference" in note for note in message.data["notes"])


def test_labels_that_come_after_the_reference_is_due_do_not_change_it(growing):
    log, labels = growing(6)
    late = labels.assign(known_at=labels["known_at"].mask(labels["id"] % 2 == 0, after(5)))
    references = []
    for day in (3.6, 5.6):
        monitor = make(log, late, reference=DAYS)
        monitor.check(after(day))
        references.append(state_of(monitor).reference)
    assert references[0] == references[1]


def test_a_log_that_stops_while_the_reference_is_waited_for_is_told(growing):
    tracker = MemoryTracker()
    given = {"reference": (after(0), after(9)), "tracker": tracker, "identity": "5f"}
    assert make(*growing(1.6), **given).check(after(1.6)).status == "ok"
    result = make(*growing(1.6), **given).check(after(7.6))
    assert "NO NEW DATA" in result.message.text
    assert result.status == "warning"


def test_states_that_wait_for_nothing_are_written_as_before(growing):
    monitor = make(*growing(1.6), reference=DAYS)
    monitor.check(after(1.6))
    state = state_of(monitor)
    assert state.to_dict()["waiting"] == SAID
    assert "waiting" not in dataclasses.replace(state, waiting=None).to_dict()


def test_rows_of_maintenance_in_a_reference_that_is_set_are_told(growing):
    shut = [
        Maintenance(start="2024-03-02", end="2024-03-03", purpose="closed"),
        Maintenance(start="2024-03-02T12:00", end="2024-03-04", branch="attack"),
    ]
    monitor = make(*growing(4.6), reference=DAYS, maintenance=shut)
    said = "The reference holds 600 labelled rows of maintenance among 1,800: later windows are"
    assert said in monitor.check(after(4.6)).message.text
    assert state_of(monitor).reference["drift"]["n"] == 1_800


def test_odd_times_are_those_of_maintenance_about_everything_each_moment_once():
    items = [
        Maintenance(start="2024-03-01T20:00", end="2024-03-02T02:00", repeat_every="1d"),
        Maintenance(start="2024-03-03", end="2024-03-04"),
        Maintenance(start="2024-03-02", end="2024-03-09", branch="attack"),
    ]
    found = odd_times(items, after(0), after(3.5), get_zone("UTC"))
    hours = [[(time - after(0)) / timedelta(hours=1) for time in span] for span in found]
    assert hours == [[20, 26], [44, 50], [50, 72], [72, 74]]
