"""Windows that could not be audited: tried again, told until they are, or dismissed."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from support.production_log import after, make_log, write_project
from support.watched import Ear
from support.watched import make as make_monitor

from huc_monitor.config.opening import open_monitor
from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.monitor.ports.tracker import MemoryTracker


def make(log, labels, **changes):
    return make_monitor(log, labels, tolerance=0.3, **changes)


def half_loaded(n_days=3):
    """Labels of the second day, a third of them cut off while they were loaded."""
    log, labels = make_log(n_days, 400)
    cut = labels.copy()
    cut.loc[cut["id"].between(400, 540), "label"] = "nept"
    return log, labels, cut


def unreadable(log, ids):
    """The same log with predictions that are no numbers."""
    return log.assign(p_normal=log["p_normal"].where(~log["id"].isin(ids)))


def test_a_window_that_cannot_be_looked_at_early_is_told_once_and_stops_nothing():
    log, labels = make_log(4, 1500, broken_from=1)
    damaged = unreadable(log, range(4500, 4700))  # of the last day, which waits for labels
    ear = Ear()
    tracker = MemoryTracker()
    monitor = make_monitor(damaged, labels, tracker=tracker, notifiers={"ear": ear})
    result = monitor.check(after(4.25))
    assert [record.status for record in result.records] == ["audited"] * 3 + ["pending"]
    assert "200 of 1,500" in result.records[-1].reason
    assert (result.status, result.failed) == ("critical", ())
    assert ear.heard == [result.message]
    assert "CRITICAL" in result.message.text
    said = "The window of 2024-03-04 waits for labels and was not looked at early: "
    assert result.message.text.count(said) == 1
    again = monitor.check(after(4.3))
    assert (again.records, again.message) == ((), None)
    failed = monitor.check(after(4.5))
    assert [record.status for record in failed.records] == ["failed"]
    mended = make_monitor(log, labels, tracker=tracker).check(after(4.6))
    assert [record.status for record in mended.records] == ["audited"]
    assert tracker.load_state()["early_drift"] == {}


def test_a_window_with_few_labels_and_unusable_predictions_is_thin_and_has_no_forecast():
    log, labels = make_log(3, 800)
    few = labels[labels["id"] < 1630]
    result = make_monitor(unreadable(log, range(2200, 2400)), few).check(after(3.5))
    assert [record.status for record in result.records] == ["audited", "audited", "thin"]
    assert result.records[-1].forecasts == ()
    assert result.message.text.count("2024-03-03: no forecast; ") == 1


def test_a_window_that_fails_twice_in_one_check_is_told_as_it_failed_last():
    log, labels = make_log(2, 400)
    later = labels["id"].between(541, 600)
    labels["label"] = labels["label"].where(~labels["id"].between(400, 600), "nept")
    labels["known_at"] = labels["known_at"].where(~later, pd.Timestamp(after(2.55)))
    result = make(log, labels).check(after(2.6))
    assert [r.revision for r in result.records if r.status == "failed"] == [0, 1]
    assert result.message.text.count("The window of 2024-03-02 was not audited: ") == 1
    assert "201 of 400" in result.message.text


def test_a_window_that_fails_and_is_corrected_in_one_check_is_not_told():
    log, labels, cut = half_loaded(2)
    right = labels[cut["label"] == "nept"].assign(known_at=pd.Timestamp(after(2.55)))
    result = make(log, pd.concat([cut, right])).check(after(2.6))
    assert [r.status for r in result.records if r.ordinal == 2] == ["failed", "audited"]
    assert result.message is None or "was not audited" not in result.message.text
    assert result.message is None or "had failed" not in result.message.text


def test_labels_corrected_in_place_are_read_and_the_window_is_audited():
    log, labels, cut = half_loaded()
    tracker = MemoryTracker()
    first = make(log, cut, tracker=tracker).check(after(3.5))
    assert (first.status, [w.ordinal for w in first.failed]) == ("failed", [2])
    again = make(log, labels, tracker=tracker).check(after(3.6))
    (record,) = again.records
    assert (record.ordinal, record.revision, record.status) == (2, 1, "audited")
    assert (again.status, again.failed) == ("ok", ())
    assert "2024-03-02, which had failed, can be read now" in again.message.text
    whole = make(log, labels).check(after(3.5))
    assert record.audit == whole[1].audit


def test_a_window_that_still_fails_is_recorded_once_but_stays_failed():
    log, _, cut = half_loaded()
    monitor = make(log, cut)
    monitor.check(after(3.5))
    saved = monitor.tracker.load_state()
    again = monitor.check(after(3.7))
    assert (again.records, again.message, again.status) == ((), None, "failed")
    assert monitor.tracker.load_state() == saved
    assert len(monitor.records()) == 3


def test_a_window_that_fails_for_another_reason_is_a_new_revision():
    log, _, cut = half_loaded()
    tracker = MemoryTracker()
    make(log, cut, tracker=tracker).check(after(3.5))
    worse = cut.copy()
    worse.loc[worse["id"].between(400, 700), "label"] = "nept"
    (record,) = make(log, worse, tracker=tracker).check(after(3.6)).records
    assert (record.revision, record.status) == (1, "failed")
    assert "301 of 400" in record.reason


def test_a_failed_window_that_is_put_into_maintenance_is_not_said_to_be_read_now():
    log, _, cut = half_loaded()
    tracker = MemoryTracker()
    assert make(log, cut, tracker=tracker).check(after(2.6)).status == "failed"
    closed = [{"start": "2024-03-02", "end": "2024-03-03"}]
    result = make(log, cut, tracker=tracker, maintenance=closed).check(after(2.7))
    assert [(r.status, r.revision) for r in result.records] == [("failed", 1)]
    assert result.status == "ok"
    assert result.message is None or "can be read now" not in result.message.text


def test_a_dismissed_window_is_not_tried_again():
    log, labels, cut = half_loaded()
    tracker = MemoryTracker()
    monitor = make(log, cut, tracker=tracker)
    monitor.check(after(3.5))
    with pytest.raises(UnknownNameError, match=r"got '3'. Failed: 2\."):
        monitor.actions.dismiss(3)
    assert monitor.actions.dismiss(2).ordinal == 2
    assert monitor.status == "ok"
    assert make(log, labels, tracker=tracker).check(after(3.6)).records == ()


def test_the_first_window_may_fail_and_be_corrected_before_subgroups_are_frozen():
    log, labels = make_log(1, 400)
    tracker = MemoryTracker()
    cut = labels.assign(label="nept")
    assert make(log, cut, tracker=tracker).check(after(1.5)).status == "failed"
    (record,) = make(log, labels, tracker=tracker).check(after(1.6)).records
    assert record.audit["candidates"] == make(log, labels).check(after(1.5))[0].audit["candidates"]


@pytest.mark.seconds
def test_only_the_newest_failed_windows_are_read_again_unless_counts_change():
    log, labels = make_log(20, 60)
    broken = labels.assign(label="nept")
    tracker = MemoryTracker()
    make(log, broken, tracker=tracker).check(after(20.5))
    old = labels["id"] < 240  # the first four days; in place, and with one label less
    mended = broken.assign(label=labels["label"].where(old, "nept"))
    assert make(log, mended, tracker=tracker).check(after(20.6)).records == ()
    fewer = mended[mended["id"] != 7]
    last = make(log, fewer, tracker=tracker).check(after(20.7))
    assert [(record.ordinal, record.status) for record in last] == [(1, "audited")]


@pytest.mark.seconds
def test_one_row_from_1970_is_refused_before_thousands_of_empty_windows_are_recorded():
    log, labels = make_log(2, 300)
    log.loc[log.index[0], "at"] = pd.Timestamp(0, tz="UTC")
    monitor = make(log, labels)
    with pytest.raises(
        InvalidInputError, match=r"1 rows in the 9,\d+ windows from 1970-01-01 .*next on 2024-03-01"
    ):
        monitor.check(after(2.5))
    assert monitor.records() == []
    assert len(monitor.check(after(2.5), since="2024-03-01T00:00Z").records) == 2
    assert len(monitor.check(after(3.5)).records) == 0


@pytest.mark.seconds
def test_hundreds_of_empty_windows_before_the_log_begins_are_told_once():
    log, labels = make_log(2, 300)
    log.loc[log.index[0], "at"] = pd.Timestamp("2023-09-01", tz="UTC")
    monitor = make(log, labels)
    first = monitor.check(after(2.5))
    assert len(first.records) == 184
    said = "1 rows in the 92 windows from 2023-09-01 to 2023-12-02, and the next on 2024-03-01"
    assert first.message.text.count(said) == 1
    assert monitor.check(after(2.6)).message is None


def test_a_state_of_an_older_version_which_knew_no_failed_windows_is_read():
    log, _, cut = half_loaded()
    monitor = make(log, cut)
    monitor.check(after(3.5))
    state = monitor.tracker.load_state()
    for item in state["visited"]:
        del item["failed"]
    monitor.tracker.save_state(state)
    assert monitor.status == "ok"


def test_a_window_that_failed_is_told_with_its_rows_in_the_zone_of_the_windows(tmp_path):
    log, labels = make_log(2, 400)
    labels.loc[labels["id"] < 100, "label"] = "nept"
    zone = ", time_zone: Europe/Berlin"
    said = open_monitor(write_project(tmp_path, log, labels, windows=zone)).check(after(4)).message
    assert "The window of 2024-03-01 was not audited" in said.text
    assert "from 2024-03-01 00:00 to 2024-03-02 00:00 CET are unusable" in said.text
    assert re.search(r"First: id \d+, 2024-03-01 01:\d\d:\d\d: ", said.text)


def test_a_label_whose_time_cannot_be_read_costs_no_window():
    log, labels = make_log(3, 400)
    labels["known_at"] = labels["known_at"].dt.strftime("%Y-%m-%dT%H:%M:%SZ").astype(object)
    labels.loc[labels["id"] == 5, "known_at"] = "2024-02-30T10:00:00Z"
    first, *later = make(log, labels).check(after(2.6)).records
    assert [record.status for record in (first, *later)] == ["audited"] * 2
    assert (first.n_quarantined, later[0].n_quarantined) == (1, 0)


def test_a_window_whose_label_times_cannot_be_read_is_read_again_once_they_can():
    log, labels = make_log(3, 400)
    texts = labels.assign(known_at=labels["known_at"].dt.strftime("%Y-%m-%dT%H:%M:%SZ"))
    odd = texts.copy()
    odd.loc[odd["id"] < 400, "known_at"] = "2024-02-30T10:00:00Z"
    tracker = MemoryTracker()
    result = make(log, odd, tracker=tracker).check(after(2.6))
    assert [record.status for record in result.records] == ["failed", "audited"]
    assert "400 label time that cannot be read" in result.records[0].reason
    again = make(log, texts, tracker=tracker).check(after(2.7))
    assert [(record.ordinal, record.status) for record in again.records] == [(1, "audited")]
