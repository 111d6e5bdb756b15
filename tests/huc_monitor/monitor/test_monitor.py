from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from support.production_log import TREE, after, make_log, tree
from support.report_page import Page
from support.watched import UTILITIES, Ear, make, revisited, source_of

import huc_monitor as hm
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor import TrendPoint, _standards
from huc_monitor.monitor._rows import RowCache
from huc_monitor.monitor.ports.tracker import MemoryTracker
from huc_monitor.monitor.tolerance import Tolerance
from huc_monitor.monitor.windows import TimeWindows
from huc_monitor.reporting import render_report
from huc_monitor.sources import TableSource


@pytest.fixture(scope="module")
def broken():
    return make_log(8, 3000, broken_from=4)


@pytest.fixture(scope="module")
def story(broken):
    """A monitor that was asked once a day."""
    monitor = make(*broken, alerts={"cool_down": "7d"})
    results = [monitor.check(after(day + 1.5)) for day in range(8)]
    return monitor, results


def states(monitor):
    return monitor.tracker.load_state()


def test_the_right_branch_subgroup_and_direction_become_critical_and_no_other_subgroup(story):
    monitor, results = story
    assert [result.status for result in results[:4]] == ["ok"] * 4
    assert results[4].status == "critical"
    critical = {alert.candidate for alert in monitor.alerts if alert.level == "critical"}
    assert ("family", "protocol=udp", "attack") in critical
    assert not any(subgroup == "protocol=tcp" for _, subgroup, _ in critical)
    (alert,) = [a for a in monitor.alerts if a.candidate == ("family", "protocol=udp", "attack")]
    assert alert.moment < 0
    assert alert.first_seen == after(4)


def test_every_window_has_one_record_numbered_from_one(story):
    monitor, _ = story
    assert [(r.ordinal, r.revision, r.status) for r in monitor.records()] == [
        (day + 1, 0, "audited") for day in range(8)
    ]


def test_the_message_says_which_children_drive_it_and_what_else_moved(story):
    _, results = story
    text = results[4].message.text
    assert "of the cases under *attack*, *dos* was predicted in" in text
    assert "The label mix moved since the reference" in text
    assert results[5].message is None or "CRITICAL" not in results[5].message.text


def test_an_audit_in_a_record_is_the_audit_of_that_day(broken, story):
    monitor, _ = story
    record = monitor.records()[5]
    data = source_of(*broken).labelled(record.start, record.end, as_of=record.due_at)
    groups = hm.Subgroups.from_dict(states(monitor)["subgroups"])
    result = hm.audit(
        data.probabilities,
        data.labels,
        tree=tree(),
        utilities=UTILITIES,
        subgroups=groups,
        features=data.features,
        n_draws=100,
    )
    assert record.audit == result.to_dict()
    assert record.n_labelled == data.n_labelled


def test_a_check_with_nothing_due_changes_nothing(story):
    monitor, _ = story
    before = states(monitor)
    result = monitor.check(after(9))
    assert (len(result), result.message, result.status) == (0, None, "critical")
    assert states(monitor) == before


@pytest.mark.seconds
def test_one_check_for_all_days_gives_the_records_of_daily_checks(broken, story):
    monitor, _ = story
    at_once = make(*broken, alerts={"cool_down": "7d"})
    at_once.check(after(8.5))
    # Daily checks also see each day early, while labels are missing; here nothing was early.
    assert at_once.records() == monitor.records()


@pytest.mark.seconds
def test_a_dry_run_finds_the_same_and_keeps_nothing(broken):
    ear, calls = Ear(), []
    monitor = make(
        *broken, notifiers={"ear": ear}, recalibration={"enabled": True}, recalibrate=calls.append
    )
    dry = monitor.check(after(8.5), dry_run=True)
    assert states(monitor) is None
    assert not ear.heard
    assert not calls
    real = monitor.check(after(8.5))
    assert real.records == dry.records
    assert real.message == dry.message


def test_since_skips_older_windows_for_good_and_until_leaves_later_ones(broken):
    monitor = make(*broken)
    first = monitor.check(after(8.5), since=after(2), until=after(4))
    assert [record.ordinal for record in first] == [3, 4]
    assert [record.ordinal for record in monitor.check(after(8.5))] == [5, 6, 7, 8]


def test_each_row_reaches_the_detector_once_though_windows_overlap(broken):
    windows = TimeWindows(length="3d", stride="1d", label_lag="12h")
    log, labels = broken
    monitor = make(log, labels, windows=windows)
    monitor.check(after(8.5))
    # The last window that starts before the log ends has not ended: rows up to day 8 are due.
    due = log["at"] < pd.Timestamp(after(8))
    assert states(monitor)["detector"]["n_rows"] == due.sum()


def test_each_row_is_decomposed_once_though_windows_overlap(broken, monkeypatch):
    made = []

    class Spy(RowCache):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(_standards, "RowCache", Spy)
    log, labels = broken
    monitor = make(log, labels, windows=TimeWindows(length="3d", stride="1d", label_lag="12h"))
    records = monitor.check(after(8.5)).records
    assert sum(record.n_labelled for record in records) > 2 * len(log)
    assert made[0].n_decomposed == (log["at"] < pd.Timestamp(after(8))).sum()


def test_rolling_windows_are_audited_as_if_each_were_read_by_itself():
    log, labels = make_log(5, 600, late_share=0.1, broken_from=2)
    windows = TimeWindows(length="3d", stride="1d", label_lag="12h")
    monitor = make(
        log,
        labels,
        windows=windows,
        subgroups=hm.Subgroups.whole(),
        drift={"enabled": False},
        forecast={"enabled": False},
    )
    for record in monitor.check(after(6)):
        data = source_of(log, labels).labelled(record.start, record.end, as_of=record.due_at)
        result = hm.audit(
            data.probabilities, data.labels, tree=tree(), utilities=UTILITIES, n_draws=100
        )
        assert record.audit == result.to_dict()


@pytest.mark.parametrize("reference", [None, (after(0), after(1))])
def test_rows_that_subgroups_come_from_are_read_once(monkeypatch, reference):
    ranges = []

    def counting(self, *where, labelled=TableSource.labelled, **more):
        ranges.append((where, more))
        return labelled(self, *where, **more)

    monkeypatch.setattr(TableSource, "labelled", counting)
    monitor = make(*make_log(3, 300), reference=reference, change={"enabled": False})
    monitor.check(after(4), since=after(1 if reference else 0))
    assert [where for where, _ in ranges] == [(after(day), after(day + 1)) for day in range(3)]


def test_a_row_with_a_zero_is_decomposed_the_same_whatever_comes_with_it():
    log, labels = make_log(2, 300)
    columns = [f"p_{leaf}" for leaf in tree().leaves]
    log.loc[5, columns] = [0.0, 0.5, 0.5, 0.0, 0.0]
    cache = [
        RowCache(
            source_of(log, labels), tree=tree(), utilities=UTILITIES, subgroups=hm.Subgroups.whole()
        )
        for _ in range(2)
    ]
    whole = cache[0].window(after(0), after(2), None)
    part = cache[1].window(after(0), after(1), None)
    for one, other in zip(whole.rows, part.rows, strict=True):
        np.testing.assert_array_equal(one.scores[: other.scores.size], other.scores)
        np.testing.assert_array_equal(one.contributions[: other.scores.size], other.contributions)
    assert whole.interiorized


# What goes wrong elsewhere, one documented behaviour each.


def test_late_labels_make_a_revision_and_feed_the_detector_once():
    log, labels = make_log(3, 400, late_share=0.2)
    monitor = make(log, labels, windows=revisited("6d"))
    first = monitor.check(after(3.5))
    assert {record.revision for record in first} == {0, 1}, "labels of day 1 were late by now"
    later = monitor.check(after(6))
    assert {(r.ordinal, r.revision) for r in later} >= {(3, 1)}
    assert monitor.check(after(6)).records == ()
    assert states(monitor)["detector"]["n_rows"] == len(log), "no row twice, none left out"
    last = {record.ordinal: record for record in monitor.records()}
    assert [last[n].coverage for n in (1, 2, 3)] == [1.0, 1.0, 1.0]
    kept = {(r.ordinal, r.revision): r.n_labelled for r in monitor.records()}
    assert kept[3, 0] < kept[3, 1], "the first audit stays on record"


def test_asking_as_of_an_earlier_time_revises_nothing():
    log, labels = make_log(3, 400, late_share=0.2)
    monitor = make(log, labels, windows=revisited("9d"))
    monitor.check(after(6))
    before = states(monitor)
    assert monitor.check(after(4)).records == ()
    assert states(monitor) == before


def test_a_revision_of_an_older_window_changes_no_alert():
    log, labels = make_log(4, 3000, broken_from=1, late_share=0.2)
    monitor = make(log, labels, windows=revisited("9d"))
    for record in monitor.check(after(6)):
        if record.revision and record.ordinal < 4:
            assert record.transitions == ()
            assert "changes no alert" in " ".join(record.notes)


def test_without_a_revisit_late_labels_are_left_alone():
    log, labels = make_log(3, 400, late_share=0.2)
    assert {record.revision for record in make(log, labels).check(after(8))} == {0}


def test_an_empty_day_is_recorded_as_empty_and_changes_no_alert():
    log, labels = make_log(4, 3000, broken_from=0)
    log = log[(log["at"] < pd.Timestamp(after(1))) | (log["at"] >= pd.Timestamp(after(2)))]
    records = make(log, labels).check(after(4.5)).records
    assert [record.status for record in records] == ["audited", "empty", "audited", "audited"]
    assert records[1].alerts == records[0].alerts
    assert records[1].transitions == ()


def test_a_day_with_few_labels_is_thin_and_says_why():
    log, labels = make_log(2, 400)
    few = labels[(labels["id"] >= 400) | (labels["id"] < 30)]
    records = make(log, few).check(after(2.5)).records
    assert [(r.status, r.reason, r.n_labelled) for r in records] == [
        ("thin", "few labels", 30),
        ("audited", None, 400),
    ]
    assert states_rows(make(log, few)) == 430, "thin windows feed the detector too"


def states_rows(monitor):
    monitor.check(after(2.5))
    return states(monitor)["detector"]["n_rows"]


def test_no_window_is_due_before_its_labels_have_matured():
    log, labels = make_log(3, 300)
    monitor = make(log, labels, drift={"enabled": False})
    assert len(monitor.check(after(1.49))) == 0
    assert len(monitor.check(after(1.5))) == 1


def test_days_follow_the_calendar_of_the_time_zone_across_a_clock_change():
    start = datetime(2024, 3, 29, 23, tzinfo=UTC)
    at = pd.date_range(start, periods=4 * 24 * 30, freq="2min")
    n = len(at)
    log, labels = make_log(1, n)
    log["at"], labels["known_at"] = at, pd.Timestamp(start)
    windows = TimeWindows(length="1d", time_zone="Europe/Berlin")
    records = make(log, labels, windows=windows).check(start + timedelta(days=9)).records
    assert [record.n_predictions for record in records] == [720, 690, 720, 720, 30]


def in_berlin(n_days=5):
    """A log from before to after the change of clocks on 2024-03-31; `attack` is off from then."""
    log, labels = make_log(n_days, 2000, broken_from=2)
    later = pd.Timedelta(days=28)
    log["at"], labels["known_at"] = log["at"] + later, labels["known_at"] + later
    windows = TimeWindows(
        length="1d", label_lag="12h", time_zone="Europe/Berlin", begin="2024-03-30"
    )
    return make(log, labels, windows=windows)


def test_people_read_times_of_the_windows_zone_and_what_is_stored_stays_in_utc():
    monitor = in_berlin()
    result = monitor.check(after(33.6))
    assert result.message.title.endswith("(data to 2024-04-03 00:00 CEST)")
    assert "First seen 2024-03-31, open for" in result.message.text
    assert "UTC" not in result.message.text
    hints = " ".join(hint for one in result for step in one.transitions for hint in step.hints)
    assert "since the reference (2024-03-30 to 2024-03-31)" in hints
    plain = [record.to_dict() for record in result]
    assert [(one["start"], one["end"]) for one in plain[:2]] == [
        ("2024-03-29T23:00:00+00:00", "2024-03-30T23:00:00+00:00"),
        ("2024-03-30T23:00:00+00:00", "2024-03-31T22:00:00+00:00"),
    ]
    assert {one["time_zone"] for one in plain} == {"Europe/Berlin"}
    assert hm.WindowRecord.from_dict(plain[0]) == result[0]
    page = Page(render_report(list(result), tree=monitor.tree))
    shown = page.words.split("Windows, newest first")[1]
    days = re.findall(r"2024-\d\d-\d\d", shown)[:5]
    assert days == ["2024-04-02", "2024-04-01", "2024-03-31", "2024-03-30"]


def test_a_record_of_utc_does_not_name_its_time_zone():
    log, labels = make_log(1, 300)
    (record,) = make(log, labels).check(after(1.5)).records
    assert "time_zone" not in record.to_dict()
    assert hm.WindowRecord.from_dict(record.to_dict()).time_zone == "UTC"


def test_a_changed_model_version_resets_the_detector_and_says_so():
    log, labels = make_log(4, 600)
    log.loc[log["at"] >= pd.Timestamp(after(2)), "version"] = "2"
    records = make(log, labels).check(after(4.5)).records
    assert [record.model_version for record in records] == ["1", "1", "2", "2"]
    assert [record.detector["reset"] for record in records] == [
        None,
        None,
        "model version 1 became 2",
        None,
    ]
    assert records[2].model_versions == {"2": 600}


def test_a_window_without_labels_has_the_version_that_made_its_predictions():
    log, labels = make_log(4, 600)
    log.loc[log["at"] >= pd.Timestamp(after(3)), "version"] = "2"
    records = make(log, labels).check(after(4.25)).records
    assert [record.status for record in records] == [*["audited"] * 3, "pending"]
    assert [record.model_version for record in records] == ["1", "1", "1", "2"]


@pytest.mark.seconds
def test_versions_that_serve_side_by_side_keep_their_evidence():
    log, labels = make_log(20, 600, broken_from=0, seed=3)
    settings = {"tolerance": 0.035, "audit": {"bounds": None}, "drift": {"enabled": False}}

    def alarms(log):
        records = make(log, labels, **settings).check(after(21)).records
        assert sum(record.detector["reset"] is not None for record in records) <= 1
        return [record.ordinal for record in records if record.detector["alarm"]]

    alone = alarms(log)
    half = np.random.default_rng(0).random(len(log)) < 0.5
    both = alarms(log.assign(version=np.where(half, "1", "2")))
    assert alone[0] > 2, "the fault is small: one window does not show it"
    assert both[0] <= 3 * alone[0]


def test_the_newest_versions_are_kept_and_a_crowd_of_versions_is_pooled():
    log, labels = make_log(3, 600)
    day = (log["at"] - pd.Timestamp(after(0))).dt.days
    version = np.where(day == 0, "old", np.where(day == 1, "b", (log["id"] % 30).astype(str)))
    monitor = make(log.assign(version=version), labels)
    records = monitor.check(after(3.5)).records
    state = states(monitor)
    kept = {state["model_version"], *state["detectors"]}
    assert len(kept) == 8
    assert {"b", "old"} & kept == set()
    assert "(other versions)" in kept
    assert records[2].detector["n_rows"] == 600, "no row is left out"


@pytest.mark.seconds
def test_a_check_goes_on_with_the_evidence_of_every_version(broken):
    log, labels = broken
    log = log.assign(version=np.where(log["id"] % 3 == 0, "1", "2"))
    at_once = make(log, labels)
    at_once.check(after(6.5))
    daily = make(log, labels)
    for day in range(2, 7):
        daily.check(after(day + 0.5))
    assert [r.detector for r in daily.records()] == [r.detector for r in at_once.records()]
    assert states(daily)["detectors"] == states(at_once)["detectors"]


def test_a_changed_tolerance_keeps_records_and_starts_the_detector_afresh(broken):
    tracker = MemoryTracker()
    make(*broken, tracker=tracker, identity="same").check(after(3.5))
    again = make(*broken, tracker=tracker, identity="same", tolerance=0.05)
    records = again.check(after(4.5)).records
    assert [record.ordinal for record in records] == [4]
    assert "tolerance" in records[0].detector["reset"]
    assert states(again)["detector"]["n_batches"] == 1


def test_a_changed_tree_is_another_monitor(broken):
    log, labels = broken
    tracker = MemoryTracker()
    one = make(log, labels, tracker=tracker)
    one.check(after(2.5))
    flat = hm.LabelTree.flat(tree().leaves)
    source = dataclasses.replace(source_of(log, labels), tree=flat)
    other = make(log, labels, tracker=tracker, tree=flat, source=source, utilities=[hm.TopK(1)])
    assert other.identity != one.identity
    with pytest.raises(InvalidInputError, match="must hold the state of this monitor"):
        other.check(after(3.5))


def test_class_columns_in_another_order_give_the_same_records():
    log, labels = make_log(2, 400)
    shuffled = log[log.columns[::-1]]
    assert (
        make(shuffled, labels).check(after(3)).records == make(log, labels).check(after(3)).records
    )


def test_an_unknown_label_is_quarantined_and_counted():
    log, labels = make_log(1, 400)
    labels.loc[7, "label"] = "martian"
    (record,) = make(log, labels).check(after(2)).records
    assert (record.status, record.n_labelled, record.n_quarantined) == ("audited", 400, 1)
    assert sum(record.quarantine.values()) == 1
    assert record.n_usable == record.audit["n"] == 399
    assert TrendPoint.of(record).n_labelled == 399, "pages count as reports do"


def test_too_many_unknown_labels_fail_that_window_and_no_other():
    log, labels = make_log(3, 400)
    labels.loc[labels["id"].between(400, 600), "label"] = "martian"
    result = make(log, labels).check(after(3.5))
    assert [record.status for record in result] == ["audited", "failed", "audited"]
    assert "martian" in result[1].reason or "label" in result[1].reason
    assert [window.id for window in result.failed] == [result[1].window_id]
    assert "was not audited" in result.message.text


def test_a_tolerance_relative_to_the_reference_accepts_what_was_there_at_deployment():
    log, labels = make_log(6, 3000, broken_from=0)
    absolute = make(log, labels).check(after(6.5))
    assert absolute.status == "critical"
    relative = make(log, labels, tolerance=Tolerance(value=0.03, relative_to="reference")).check(
        after(6.5)
    )
    assert relative.status != "critical"
    assert relative[0].transitions == ()
    assert all(level is None for level in relative[0].levels)


def test_a_reference_range_freezes_subgroups_and_moments(broken):
    monitor = make(*broken, reference=(after(0), after(2)))
    monitor.check(after(3.5))
    state = states(monitor)
    assert [s["name"] for s in state["subgroups"]["subgroups"]] == ["protocol=tcp", "protocol=udp"]
    assert state["reference"]["drift"]["n"] == 6000


@pytest.mark.parametrize("changes", [{"subgroups": hm.Subgroups.whole()}, {}])
def test_a_reference_without_labels_is_an_error(broken, changes):
    monitor = make(*broken, reference=(after(-9), after(-8)), **changes)
    with pytest.raises(InvalidInputError, match="`reference` must hold labelled rows"):
        monitor.check(after(3.5))
    assert states(monitor) is None


def test_repeated_rows_change_no_bound_and_are_told():
    log, labels = make_log(2, 600)
    once = make(log, labels).check(after(2.5))
    twice = make(pd.concat([log, log.iloc[:250]]), labels).check(after(2.5))
    assert [r.audit for r in twice] == [r.audit for r in once]
    assert [r.n_repeated for r in twice] == [250, 0]
    assert "250 repeated rows left out, of 850 labelled rows." in twice.message.text


def test_repeated_rows_are_told_once_and_again_when_their_share_doubles():
    log, labels = make_log(5, 600)
    day = log["id"] // 600
    retried = [log[day == at].iloc[:n] for at, n in ((0, 60), (1, 70), (2, 50), (3, 150), (4, 160))]
    monitor = make(pd.concat([log, *retried]), labels)
    results = [monitor.check(after(day + 1.5)) for day in range(5)]
    assert [result[0].n_repeated for result in results] == [60, 70, 50, 150, 160]
    notes = [result.message.data["notes"] if result.message else [] for result in results]
    told = [[note for note in found if "repeated rows" in note] for found in notes]
    assert [len(found) for found in told] == [1, 0, 0, 1, 0]
    assert "150 repeated rows left out, of 750 labelled rows." in told[3][0]


def test_contradicting_labels_are_set_aside_and_told_and_too_many_fail_the_window():
    log, labels = make_log(3, 600)
    first = labels[(labels["id"] < 20) & (labels["label"] != "smurf")]
    other = pd.concat([labels, first.assign(label="smurf")])
    result = make(log, other).check(after(3.5))
    assert result[0].quarantine == {"conflicting labels": len(first)}
    assert f"{len(first)} rows set aside (conflicting labels)" in result.message.text
    many = pd.concat([labels, labels[labels["id"].between(600, 900)].assign(label="smurf")])
    assert [record.status for record in make(log, many).check(after(3.5))] == [
        "audited",
        "failed",
        "audited",
    ]


def test_a_row_that_comes_again_in_the_next_piece_of_a_rolling_window_counts_once():
    log, labels = make_log(3, 400)
    again = log.iloc[:40].assign(at=log["at"].iloc[400:440].to_numpy())
    rolling = TimeWindows(length="2d", stride="1d", label_lag="12h", min_labelled=50)
    records = make(pd.concat([log, again]), labels, windows=rolling).check(after(4)).records
    assert records[0].n_repeated == 40
    assert records[0].audit["n"] == 800


@pytest.mark.parametrize("source", [pd.DataFrame({"a": [0.5]}), "log.csv"])
def test_a_source_that_is_none_is_refused_when_the_monitor_is_made(source):
    with pytest.raises(InvalidInputError, match=r"`source` must be .*TableSource\(FrameTable\("):
        make(*make_log(1, 20), source=source)


def test_a_monitor_reads_its_tree_from_a_file(tmp_path):
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(tree().to_dict()), "utf-8")
    log, labels = make_log(1, 100)
    read = make(log, labels, tree=str(path))
    assert (read.tree, read.identity) == (tree(), make(log, labels).identity)
    with pytest.raises(InvalidInputError, match="`tree` must be a LabelTree or the path"):
        make(log, labels, tree=TREE)
