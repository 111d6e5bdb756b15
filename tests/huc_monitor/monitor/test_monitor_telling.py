from __future__ import annotations

import dataclasses
import threading
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import yaml
from support.production_log import FIRST_DAY, after, make_log, tree, write_project
from support.watched import Ear, make

import huc_monitor as hm
from huc_monitor._common.stages import begin_stage
from huc_monitor.config.opening import open_monitor
from huc_monitor.monitor import CheckInProgressError, Monitor
from huc_monitor.monitor._lock import hold
from huc_monitor.monitor.alerts import AlertPolicy
from huc_monitor.monitor.describing import describe
from huc_monitor.monitor.drift import DriftPolicy
from huc_monitor.monitor.ports import FilesTracker, MemoryTracker, MonitorInfo
from huc_monitor.monitor.recalibrating import RecalibrationPolicy
from huc_monitor.monitor.windows import CountWindows, TimeWindows
from huc_monitor.sources import Columns, FrameTable, TableSource


@pytest.fixture(scope="module")
def broken():
    return make_log(8, 3000, broken_from=4)


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
    assert "so no error is known" in early.message.text
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
    early = monitor.check(after(3.2))
    assert early.message.title == "intrusion: drift (predictions to 2024-03-04 00:00 UTC)"
    (audited,) = monitor.check(after(3.5)).records
    assert "is miscalibration by now: " in " ".join(audited.notes)


def test_titles_of_alerts_name_the_newest_window_with_labels(broken):
    lag = TimeWindows(length="1d", label_lag="2d", min_labelled=50)
    monitor = make(*broken, windows=lag)
    first = monitor.check(after(7.1))
    assert [record.status for record in first].count("pending") == 2
    assert first.message.title.endswith(f"(data to {after(5):%Y-%m-%d} 00:00 UTC)")
    second = monitor.check(after(8.1))
    assert second.message.title.endswith(f"(data to {after(6):%Y-%m-%d} 00:00 UTC)")


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


@pytest.mark.seconds
def test_recalibrating_is_asked_for_once_per_cool_down_and_again_if_it_failed(broken):
    calls = []

    def failing(trigger):
        calls.append(trigger.id)
        if len(calls) == 1:
            raise ConnectionError(111)

    policy = RecalibrationPolicy(
        enabled=True, critical_windows=2, on_sequential_alarm=False, cool_down="30d"
    )
    monitor = make(*broken, recalibration=policy, recalibrate=failing)
    monitor.check(after(5.5))
    assert calls == []
    result = monitor.check(after(6.5))
    assert result[0].recalibration is not None
    assert "critical for 2 windows" in result[0].recalibration.reason
    monitor.check(after(6.5))
    monitor.check(after(8.5))
    assert len(calls) == 2
    assert len(set(calls)) == 1


@pytest.mark.seconds
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
        policy=hm.Policy(audit={"n_draws": 100}),
    )
    text = monitor.check(after(2)).message.text
    assert "Branch *left* (whole population, utility *pay*)" in text
    assert "Branch *root* errs the other way (+0.250), so the sum over all branches (UC)" in text


# One at a time.


def test_a_second_check_leaves_with_a_clear_message(tmp_path, broken):
    tracker = FilesTracker(MonitorInfo("m", "x"), tmp_path)
    monitor = make(*broken, tracker=tracker, identity="x")
    with (
        hold(tracker.lock_path),
        pytest.raises(CheckInProgressError, match=r"Another check is running \(pid [0-9]+, lock "),
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


def test_rows_that_come_after_a_count_window_was_cut_are_told_once_and_no_row_counts_twice():
    log, labels = make_log(3, 1000)
    late = (log["id"] % 10 == 3) & (log["at"] >= pd.Timestamp(after(1)))
    early = log[~late & (log["at"] < pd.Timestamp(after(2)))]
    tracker, windows = MemoryTracker(), CountWindows(n_rows=600, min_labelled=50)
    given = {"windows": windows, "tracker": tracker, "identity": "5f", "drift": {"enabled": False}}
    first = make(early, labels, **given).check(after(4))
    assert len(first) == 3
    later = make(log, labels, **given)
    result = later.check(after(4))
    assert (
        "came late or were deleted after this window was cut at 600 rows: it holds 6"
        in result.message.text
    )
    records = later.records()
    assert all(a.end == b.start for a, b in pairwise(records))
    assert {record.n_predictions for record in records} <= {600, 601}, "equal times stay together"
    assert later.check(after(4)).message is None


def test_quiet_settings_are_honoured(broken):
    monitor = make(
        *broken,
        sequential={"enabled": False},
        drift={"enabled": False},
        audit={"bounds": None},
        alerts=AlertPolicy(min_windows=2),
    )
    records = monitor.check(after(6.5)).records
    assert all(record.detector is None for record in records)
    assert all(record.drift == () for record in records)
    assert records[4].transitions == ()
    assert any(step.kind == "opened" for step in records[5].transitions)
    assert records[5].level == "warning", "without bounds nothing is certain"


def test_a_file_says_how_patient_alerts_are_and_how_much_drift_is_told(tmp_path):
    path = write_project(tmp_path, *make_log(2, 300))
    text = path.read_text()

    def opened(**changes):
        path.write_text(yaml.safe_dump({**yaml.safe_load(text), **changes}))
        return open_monitor(path).policy

    alerts = {"cool_down": "3d", "min_windows": 2, "resolve_after": 4, "quiet_after": 5}
    assert dict(opened(alerts=alerts).alerts) == dict(AlertPolicy(**alerts)) | {
        "channels": (),
        "page": None,
    }
    assert opened(drift={"min_distance": 0.2}).drift == DriftPolicy(min_distance=0.2)
    assert opened().drift == DriftPolicy()
    assert not opened(drift={"enabled": False}).drift.enabled


def test_a_policy_for_drift_decides_what_is_worth_telling():
    monitor = make(*drifting(), drift=DriftPolicy(min_distance=0.9))
    monitor.check(after(2.6))
    early = monitor.check(after(3.2))
    assert early.message is None


@pytest.mark.seconds
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
    monitor = make(log, labels, tolerance=0.08, sequential={"tolerance": 0.01}, alerts=patient)
    steps = [step for record in monitor.check(after(30)) for step in record.transitions]
    by_detector = [step for step in steps if "estimate" not in step.reasons]
    assert {step.kind for step in by_detector} == {"opened", "resolved"}
    for candidate in {step.candidate for step in by_detector}:
        kinds = [step.kind for step in steps if step.candidate == candidate]
        assert kinds == ["opened", "resolved"], "once, though the detector starts afresh"
    assert min(s.window_end for s in by_detector if s.kind == "resolved") > after(16)


def test_an_error_that_the_reference_had_is_not_said_to_be_a_change():
    log, labels = make_log(4, 3000, broken_from=0)
    later = make(log, labels, reference=(after(0), after(1))).check(after(4.5))
    hints = [hint for record in later for step in record.transitions for hint in step.hints]
    assert any(hint.startswith("The reference shows about as much") for hint in hints)
    assert not any("inputs look as before, and outcomes differ" in hint for hint in hints)
    log, labels = make_log(4, 3000, broken_from=2)
    changed = make(log, labels, reference=(after(0), after(1))).check(after(4.5))
    hints = [hint for record in changed for step in record.transitions for hint in step.hints]
    assert any("inputs look as before, and outcomes differ" in hint for hint in hints)


def test_progress_tells_the_stages_of_a_recalibration(broken):
    seen = []

    def recalibrate(_trigger):
        begin_stage("fitting huc_boost (1 of 2)")

    policy = RecalibrationPolicy(enabled=True, critical_windows=1)
    monitor = make(*broken, recalibration=policy, recalibrate=recalibrate)
    monitor.check(after(6.5), progress=lambda *news: seen.append(news))
    assert seen[-1] == (6, 6, "fitting huc_boost (1 of 2)")


class Remarking(MemoryTracker):
    """Knows something about every window that has a version."""

    said = "The log's rows were served by version 1, and the champion is version 2."

    def remark(self, record):
        return self.said if record.model_version is not None else None


def test_what_a_tracker_knows_of_a_window_is_told_once(broken):
    tracker = Remarking()
    monitor = make(*broken, tracker=tracker)
    result = monitor.check(after(2.5))
    assert result.message.text.count(Remarking.said) == 1
    assert [Remarking.said in record.notes for record in tracker.records()] == [True, False]
    later = monitor.check(after(3.5))
    assert later.message is None or Remarking.said not in later.message.text


def test_what_a_tracker_no_longer_says_at_the_end_of_a_check_is_not_told(broken, monkeypatch):
    def of_the_first(_, record):
        return Remarking.said if record.ordinal == 1 else None

    monkeypatch.setattr(Remarking, "remark", of_the_first)
    tracker = Remarking()
    message = make(*broken, tracker=tracker).check(after(2.5)).message
    assert message is None or Remarking.said not in message.text
    assert Remarking.said in tracker.records()[0].notes


def overconfident(n_days):
    """Every branch of the tree is a little too sure of its likeliest child."""
    log, labels = make_log(n_days, 9000)
    rng = np.random.default_rng(5)
    leaves = list(tree().leaves)
    columns = [f"p_{leaf}" for leaf in leaves]
    truth = log[columns].to_numpy()
    codes = (truth.cumsum(axis=1) < rng.random(len(log))[:, None]).sum(axis=1).clip(max=4)
    sharp = truth**1.6
    log[columns] = sharp / sharp.sum(axis=1, keepdims=True)
    names = pd.Series(np.array(leaves)[codes], index=log["id"])
    labels["label"] = labels["id"].map(names).fillna(labels["label"])
    return log, labels


def test_errors_of_branches_that_add_up_are_told_once_though_no_branch_exceeds_the_tolerance():
    log, labels = overconfident(4)
    utilities = [hm.LevelCorrectness(level=tree().height)]
    worst = hm.audit(
        log[[f"p_{leaf}" for leaf in tree().leaves]].to_numpy(),
        log["id"].map(labels.groupby("id")["label"].last()).to_numpy(),
        tree=tree(),
        utilities=utilities,
    )
    assert worst.uc > 1.2 * worst.huc, "the errors add up"
    limit = 1.06 * worst.huc
    monitor = make(log, labels, tolerance=limit, utilities=utilities, drift={"enabled": False})
    notes = []
    for day in range(1, 5):
        message = monitor.check(after(day + 0.6)).message
        notes += [] if message is None else message.data["notes"]
    said = [note for note in notes if note.startswith("Over the whole tree")]
    assert len(said) == 1
    assert "is overstated by" in said[0]
    assert "no branch by itself exceeds the tolerance" in said[0]
    calm = make(*make_log(4, 3000), tolerance=0.03, utilities=utilities, drift={"enabled": False})
    told = calm.check(after(5)).message
    assert told is None or "Over the whole tree" not in told.text


def test_a_label_that_is_no_node_is_told_once_by_its_name():
    log, labels = make_log(4, 1000)
    fox = labels["id"].isin(log.loc[::100, "id"])
    labels.loc[fox, "label"] = "fox"
    owl = labels["id"].isin(log.loc[2500::100, "id"])
    labels.loc[owl, "label"] = "owl"
    monitor = make(log, labels, drift={"enabled": False})
    notes = []
    for day in range(1, 5):
        message = monitor.check(after(day + 0.6)).message
        notes += [] if message is None else message.data["notes"]
    told = [note for note in notes if "no node of the tree" in note]
    assert [("'fox'" in note, "'owl'" in note) for note in told] == [(True, False), (False, True)]


def test_an_alert_that_ends_above_the_tolerance_is_not_said_to_be_back_within_it(broken):
    records = make(*broken).check(after(9)).records
    transition = next(step for record in records for step in record.transitions)
    ended = dataclasses.replace(
        transition, kind="resolved", reasons=("bound",), moment=0.05, tolerance=0.03, settings=()
    )
    assert "no longer beyond the tolerance of 0.03 by more than chance, now" in describe(ended)
    within = dataclasses.replace(ended, moment=0.02)
    assert "back within the tolerance of 0.03, now" in describe(within)


def test_a_tolerance_that_nothing_can_exceed_is_told_once(broken):
    monitor = make(*broken, tolerance=46)
    assert "No moment of status, family can" in monitor.check(after(2.6)).message.text
    later = monitor.check(after(3.6)).message
    assert later is None or "No moment" not in later.text
