from __future__ import annotations

import dataclasses
import threading
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from production_log import FIRST_DAY, after, make_log, tree
from watched import UTILITIES, Ear, make, source_of

import huc_monitor as hm
from huc_monitor.alerts import AlertPolicy
from huc_monitor.drift import DriftPolicy
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor import CheckInProgressError, Monitor
from huc_monitor.monitor import _check as check_module
from huc_monitor.monitor._lock import hold
from huc_monitor.monitor._rows import RowCache
from huc_monitor.retraining import RetrainingPolicy
from huc_monitor.sources import Columns, FrameTable, TableSource
from huc_monitor.tolerance import Tolerance
from huc_monitor.tracking import FilesTracker, MemoryTracker, MonitorInfo
from huc_monitor.windows import TimeWindows


@pytest.fixture(scope="module")
def broken():
    return make_log(8, 3000, broken_from=4)


@pytest.fixture(scope="module")
def story(broken):
    """A monitor that was asked once a day."""
    monitor = make(*broken)
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


def test_one_check_for_all_days_gives_the_records_of_daily_checks(broken, story):
    monitor, _ = story
    at_once = make(*broken)
    at_once.check(after(8.5))
    # Daily checks also see each day early, while labels are missing; here nothing was early.
    assert at_once.records() == monitor.records()


def test_a_dry_run_finds_the_same_and_keeps_nothing(broken):
    ear, calls = Ear(), []
    monitor = make(
        *broken, notifiers={"ear": ear}, retraining=RetrainingPolicy(), retrain=calls.append
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

    monkeypatch.setattr(check_module, "RowCache", Spy)
    log, labels = broken
    monitor = make(log, labels, windows=TimeWindows(length="3d", stride="1d", label_lag="12h"))
    records = monitor.check(after(8.5)).records
    assert sum(record.n_labelled for record in records) > 2 * len(log)
    assert made[0].n_decomposed == (log["at"] < pd.Timestamp(after(8))).sum()


def test_rolling_windows_are_audited_as_if_each_were_read_by_itself():
    log, labels = make_log(5, 600, late_share=0.1, broken_from=2)
    windows = TimeWindows(length="3d", stride="1d", label_lag="12h")
    monitor = make(log, labels, windows=windows, subgroups=None, drift=None)
    for record in monitor.check(after(6)):
        data = source_of(log, labels).labelled(record.start, record.end, as_of=record.due_at)
        result = hm.audit(
            data.probabilities, data.labels, tree=tree(), utilities=UTILITIES, n_draws=100
        )
        assert record.audit == result.to_dict()


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
    monitor = make(log, labels, revisit="6d")
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
    monitor = make(log, labels, revisit="9d")
    monitor.check(after(6))
    before = states(monitor)
    assert monitor.check(after(4)).records == ()
    assert states(monitor) == before


def test_a_revision_of_an_older_window_changes_no_alert():
    log, labels = make_log(4, 3000, broken_from=1, late_share=0.2)
    monitor = make(log, labels, revisit="9d")
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
    monitor = make(log, labels, drift=None)
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


def test_too_many_unknown_labels_fail_that_window_and_no_other():
    log, labels = make_log(3, 400)
    labels.loc[labels["id"].between(400, 600), "label"] = "martian"
    result = make(log, labels).check(after(3.5))
    assert [record.status for record in result] == ["audited", "failed", "audited"]
    assert "martian" in result[1].reason or "label" in result[1].reason
    assert result.failed == (result[1],)
    assert "was not audited" in result.message.text


def test_a_tolerance_relative_to_the_reference_accepts_what_was_there_at_deployment():
    log, labels = make_log(6, 3000, broken_from=0)
    absolute = make(log, labels).check(after(6.5))
    assert absolute.status == "critical"
    relative = make(log, labels, tolerance=Tolerance(value=0.03, relative=True)).check(after(6.5))
    assert relative.status != "critical"
    assert relative[0].transitions == ()
    assert all(level is None for level in relative[0].levels)


def test_a_reference_range_freezes_subgroups_and_moments(broken):
    monitor = make(*broken, reference=(after(0), after(2)))
    monitor.check(after(3.5))
    state = states(monitor)
    assert [s["name"] for s in state["subgroups"]["subgroups"]] == ["protocol=tcp", "protocol=udp"]
    assert state["reference"]["drift"]["n"] == 6000


def test_a_reference_without_labels_is_an_error(broken):
    monitor = make(*broken, subgroups=None, reference=(after(-9), after(-8)))
    with pytest.raises(InvalidInputError, match="`reference` must hold labelled rows"):
        monitor.check(after(3.5))
    assert states(monitor) is None


# Drift before labels, messages, retraining.


def drifting():
    """Predictions move on day 3, and so does what happens: calibrated, but elsewhere."""
    log, labels = make_log(3, 4000)
    rng = np.random.default_rng(9)
    late = (log["at"] >= pd.Timestamp(after(2))).to_numpy()
    p = rng.dirichlet([1.0, 6.0, 1.0, 1.0, 1.0], size=late.sum())
    codes = (p.cumsum(axis=1) < rng.random(len(p))[:, None]).sum(axis=1).clip(max=4)
    log.loc[late, [f"p_{leaf}" for leaf in tree().leaves]] = p
    names = pd.Series(np.array(tree().leaves)[codes], index=log.loc[late, "id"])
    labels["label"] = labels["id"].map(names).fillna(labels["label"])
    return log, labels


def test_drift_is_reported_before_labels_as_drift_and_reconciled_when_they_come():
    monitor = make(*drifting())
    monitor.check(after(2.6))
    early = monitor.check(after(3.2))
    (record,) = early.records
    assert record.status == "pending"
    assert record.audit is None
    assert any(item.drifted and item.name == "root" for item in record.drift)
    assert "says nothing about calibration" in early.message.text
    assert early.status == "ok"
    assert monitor.check(after(3.2)).records == (), "once per window"
    (audited,) = monitor.check(after(3.5)).records
    assert "did no harm to calibration" in " ".join(audited.notes)
    assert [r.status for r in monitor.records()] == ["audited", "audited", "pending", "audited"]


def test_drift_that_became_miscalibration_is_said_to_be_so():
    log, labels = drifting()
    labels.loc[labels["id"] >= 8000, "label"] = "normal"
    monitor = make(log, labels)
    monitor.check(after(2.6))
    monitor.check(after(3.2))
    (audited,) = monitor.check(after(3.5)).records
    assert "is miscalibration by now: " in " ".join(audited.notes)


def test_a_message_that_cannot_be_sent_is_kept_and_sent_again_once(broken):
    ear = Ear(deaf=True)
    monitor = make(*broken, notifiers={"ear": ear})
    first = monitor.check(after(5.5))
    assert first.status == "critical"
    assert first.n_unsent == 1
    ear.deaf = False
    assert monitor.check(after(5.5)).n_unsent == 0
    monitor.check(after(5.5))
    assert [message.key for message in ear.heard] == [first.message.key]


def test_one_channel_that_fails_does_not_keep_another_from_hearing_once(broken):
    good, bad = Ear(), Ear(deaf=True)
    monitor = make(*broken, notifiers={"good": good, "bad": bad})
    monitor.check(after(5.5))
    bad.deaf = False
    monitor.check(after(5.5))
    assert (len(good.heard), len(bad.heard)) == (1, 1)


def test_retraining_is_asked_for_once_per_cool_down_and_again_if_it_failed(broken):
    calls = []

    def failing(trigger):
        calls.append(trigger.id)
        if len(calls) == 1:
            raise ConnectionError(111)

    policy = RetrainingPolicy(critical_windows=2, on_alarm=False, cool_down="30d")
    monitor = make(*broken, retraining=policy, retrain=failing)
    monitor.check(after(5.5))
    assert calls == []
    result = monitor.check(after(6.5))
    assert result[0].retraining is not None
    assert "critical for 2 windows" in result[0].retraining.reason
    monitor.check(after(6.5))
    monitor.check(after(8.5))
    assert len(calls) == 2
    assert len(set(calls)) == 1


def test_the_status_is_published_when_it_changes_only(broken):
    class Told(MemoryTracker):
        def __init__(self):
            super().__init__()
            self.told = []

        def set_alert_status(self, status, alerts):
            self.told.append((status, len(alerts)))

    tracker = Told()
    monitor = make(*broken, tracker=tracker)
    for day in range(8):
        monitor.check(after(day + 1.5))
    assert tracker.told[0][0] == "ok"
    assert [status for status, _ in tracker.told].count("critical") == 1


def test_cancelling_branches_are_said_to_cancel():
    n = 8000
    nested = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
    labels = np.repeat(["a", "c", "d"], [n // 4, 3 * n // 8, 3 * n // 8])
    log = pd.DataFrame(dict.fromkeys("abcd", 0.25), index=range(n))
    log["y"] = np.random.default_rng(0).permutation(labels)
    log["at"] = pd.date_range(FIRST_DAY, periods=n, freq="1s")
    source = TableSource(FrameTable(log), tree=nested, columns=Columns(time="at", label="y"))
    monitor = Monitor(
        source=source,
        windows=TimeWindows(length="1d"),
        tree=nested,
        utilities=[hm.Payoff("pay", {"a": -1, "b": 1, "c": 1, "d": 1})],
        n_draws=100,
    )
    text = monitor.check(after(2)).message.text
    assert "Branch *left* (whole population, utility *pay*)" in text
    assert "cancels against *root* (+0.250), so overall UC shows only 0." in text


# One at a time.


def test_a_second_check_leaves_with_a_clear_message(tmp_path, broken):
    tracker = FilesTracker(MonitorInfo("m", "x"), tmp_path)
    monitor = make(*broken, tracker=tracker, identity="x")
    with (
        hold(tracker.lock_path),
        pytest.raises(CheckInProgressError, match=r"must run once at a time .*process [0-9]+ has"),
    ):
        monitor.check(after(2.5))
    assert len(monitor.check(after(2.5))) == 2


def test_a_second_check_can_wait_for_the_first(tmp_path, broken):
    tracker = FilesTracker(MonitorInfo("m", "x"), tmp_path)
    monitor = make(*broken, tracker=tracker, identity="x")
    held, release = threading.Event(), threading.Event()

    def holder():
        with hold(tracker.lock_path):
            held.set()
            release.wait(10)

    thread = threading.Thread(target=holder)
    thread.start()
    held.wait(10)
    threading.Timer(0.3, release.set).start()
    assert len(monitor.check(after(2.5), wait=20)) == 2
    thread.join()


def test_progress_counts_the_windows(broken):
    seen = []
    make(*broken).check(after(3.5), progress=lambda *news: seen.append(news[:2]))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_files_for_a_record_are_made_from_the_record(broken):
    monitor = make(*broken, artifacts=lambda record: {"n.txt": str(record.n_labelled).encode()})
    monitor.check(after(1.5))
    assert list(monitor.tracker.artifacts.values()) == [{"n.txt": b"3000"}]


def test_quiet_settings_are_honoured(broken):
    monitor = make(
        *broken, average_run_length=None, drift=None, bounds=None, alerts=AlertPolicy(min_windows=2)
    )
    records = monitor.check(after(6.5)).records
    assert all(record.detector is None for record in records)
    assert all(record.drift == () for record in records)
    assert records[4].transitions == ()
    assert any(step.kind == "opened" for step in records[5].transitions)
    assert records[5].level == "warning", "without bounds nothing is certain"


def test_a_policy_for_drift_decides_what_is_worth_telling():
    monitor = make(*drifting(), drift=DriftPolicy(min_distance=0.9))
    monitor.check(after(2.6))
    early = monitor.check(after(3.2))
    assert early.message is None


def test_an_alert_of_the_detector_stays_open_as_long_as_its_cause():
    log, good = make_log(20, 600)
    _, bad = make_log(20, 600, broken_from=4)
    both = good.merge(bad, on="id").merge(log[["id", "at"]], on="id").sort_values("id")
    half = np.random.default_rng(1).random(len(both)) < 0.6
    # Too little for a single window's estimate, from the fifth day to the sixteenth.
    spoiled = half & (both["at"] < after(16)).to_numpy()
    label = both["label_x"].where(~spoiled, both["label_y"])
    labels = pd.DataFrame({"id": both["id"], "label": label, "known_at": both["known_at_x"]})
    patient = AlertPolicy(cool_down="30d")
    monitor = make(log, labels, tolerance=0.08, detector_tolerance=0.01, alerts=patient)
    steps = [step for record in monitor.check(after(30)) for step in record.transitions]
    by_detector = [step for step in steps if "estimate" not in step.reasons]
    assert {step.kind for step in by_detector} == {"opened", "resolved"}
    for candidate in {step.candidate for step in by_detector}:
        kinds = [step.kind for step in steps if step.candidate == candidate]
        assert kinds == ["opened", "resolved"], "once, though the detector starts afresh"
    assert min(s.window_end for s in by_detector if s.kind == "resolved") > after(16)
