"""Forecasts of a monitor: made while labels are missing, judged when they come."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from support.production_log import after, make_log
from support.watched import make, revisited

import huc_monitor as hm
from huc_monitor.audit.forecast import residuals
from huc_monitor.cli.check import say_forecasts
from huc_monitor.monitor._state import MonitorState
from huc_monitor.monitor.forecasting import (
    ForecastScore,
    say_score,
    say_versions,
    score_forecasts,
    waiting,
)
from huc_monitor.monitor.muting import Maintenance
from huc_monitor.monitor.ports.tracker import MemoryTracker
from huc_monitor.monitor.records import WindowRecord
from huc_monitor.reporting import render_report
from huc_monitor.reporting.ui._fleet import Overview
from huc_monitor.reporting.ui._pages import _forecast
from huc_monitor.tree.labels import LeafCodes


@pytest.fixture(scope="module")
def watched():
    """A monitor that was asked at the end of every day, and again when labels were there."""
    monitor = make(*make_log(6, 1500), alerts={"cool_down": "7d"})
    early = [monitor.check(after(day + 1.25)) for day in range(5)]
    monitor.check(after(5.5))
    return monitor, early


def test_a_window_without_labels_gets_a_forecast_per_utility(watched):
    _, early = watched
    pending = [record for record in early[2].records if record.status == "pending"]
    assert [item.utility for item in pending[0].forecasts] == ["status", "family"]
    assert waiting(early[2].records) == pending
    assert WindowRecord.from_json(pending[0].to_json()).forecasts == pending[0].forecasts


def test_a_forecast_for_another_version_than_the_audited_one_says_so(watched):
    _, early = watched
    records = early[2].records
    assert say_versions(records) is None
    renamed = [
        dataclasses.replace(r, model_version="2" if r.status == "pending" else "1") for r in records
    ]
    assert say_versions(renamed).startswith(
        "Version 1 was audited, and version 2 predicted where labels are missing: "
    )
    pending = [record for record in renamed if record.status == "pending"]
    assert say_versions(pending) is None
    assert say_versions(pending, "1") == say_versions(renamed)
    said = say_forecasts(renamed, {})
    assert said[0] == say_versions(renamed), "before the numbers"


def test_the_version_that_is_named_beside_the_audited_one_is_another(watched):
    _, early = watched
    (pending,) = [record for record in early[2].records if record.status == "pending"]
    old = dataclasses.replace(pending, window_id="old", model_version="1")
    new = dataclasses.replace(pending, model_version="2")
    for records in ([old, new], [new, old]):
        said = say_versions(records, "2")
        assert said.startswith("Version 2 was audited, and version 1 predicted where labels are")


@pytest.mark.parametrize(
    ("outside", "told"), [(0.0004, ""), (0.02, "2.0% of its rows lie outside")]
)
def test_rows_outside_the_audited_ranges_are_told_where_there_are_some(watched, outside, told):
    records = [r for r in watched[1][2].records if r.status == "pending"]
    (item, *_) = records[0].forecasts
    items = (dataclasses.replace(item, outside=outside),)
    (_, said, *_) = say_forecasts([dataclasses.replace(records[0], forecasts=items)], {})
    assert told in said
    assert ("lie outside" in said) is bool(told)


def test_a_version_of_which_nothing_was_audited_has_no_forecast_and_a_score_of_its_own():
    log, labels = make_log(7, 1500)
    log.loc[log["at"] >= pd.Timestamp(after(4)), "version"] = "2"
    monitor = make(log, labels)
    results = [monitor.check(after(day + 0.25)) for day in range(3, 8)]
    results.append(monitor.check(after(7.75)))
    before, _, second, *_ = (
        [text for text in say_forecasts(r.records, r.forecast_scores) if text.startswith("2024")]
        for r in results
    )
    assert "not known" not in before[0]
    assert "*status* is not known yet: only version 1 was audited; model predicts 0." in second[0]
    scores = results[-1].forecast_scores
    assert say_score(results[1].forecast_scores).split(" held")[0].endswith("of version 1")
    assert say_score(scores).split(" held")[0].endswith("of version 2")
    own = [
        item
        for record in monitor.records()
        if record.model_version == "2"
        for item in record.forecasts
        if item.realised is not None
    ]
    assert {(item.audited_version, item.inside is None) for item in own} == {
        ("1", True),
        (None, False),
    }
    n = sum(item.audited_version is None for item in own)
    assert 0 < n == sum(score.n for score in scores.values()) < len(own)
    assert score_forecasts(monitor.records()) == scores
    assert "is not known yet: only version 1" in render_report(
        [
            r
            for r in monitor.records()
            if r.start <= after(4) and not (r.audit and r.start == after(4))
        ]
    )


def test_a_forecast_is_judged_by_the_labels_and_counted(watched):
    monitor, _ = watched
    done = [r for r in monitor.records() if r.status == "audited" and r.forecasts]
    assert done
    item = done[-1].forecasts[0]
    assert item.inside
    assert item.realised == pytest.approx(item.value, abs=0.05)
    scores = score_forecasts(monitor.records())
    state = MonitorState.from_dict(monitor.tracker.load_state())
    assert state.forecast_scores == scores
    assert scores["status"].n == len(done)
    assert say_score(scores).startswith(
        f"{2 * len(done)} of {2 * len(done)} past forecasts of version 1 held"
    )
    assert not state.forecasts
    assert not waiting(monitor.records())


def test_the_realised_utility_is_that_of_the_labelled_rows(watched):
    monitor, _ = watched
    record = [r for r in monitor.records() if r.status == "audited" and r.forecasts][-1]
    data = monitor.source.labelled(record.start, record.end, as_of=record.due_at)
    for item, rows in zip(
        record.forecasts,
        hm.decompose(
            data.probabilities,
            LeafCodes(data.labels),
            tree=monitor.tree,
            utilities=monitor.utilities,
        ),
        strict=True,
    ):
        assert item.realised == pytest.approx(item.score + residuals(rows).mean(), abs=1e-9)


def test_a_monitor_forecasts_as_python_does_from_the_same_rows(watched):
    """What is kept of audited windows is enough: scores, gaps and predicted leaves."""
    monitor, early = watched
    (pending,) = [record for record in early[2].records if record.status == "pending"]
    audited = [r for r in monitor.records() if r.status == "audited" and r.start < pending.start]
    past = [monitor.source.labelled(r.start, r.end, as_of=r.due_at) for r in audited]
    window = monitor.source.predictions(pending.start, pending.end)
    wanted = hm.forecast(
        window.probabilities,
        np.concatenate([data.probabilities for data in past]),
        LeafCodes(np.concatenate([data.labels for data in past])),
        tree=monitor.tree,
        utilities=monitor.utilities,
    )
    for one, other in zip(pending.forecasts, wanted, strict=True):
        assert one.n_audited == other.n_audited
        assert (one.value, one.upper) == pytest.approx((other.value, other.upper), abs=1e-6)


def test_a_due_window_with_too_few_labels_is_forecast_and_said_to_wait():
    log, labels = make_log(3, 800)
    few = labels[labels["id"] < 1630]
    monitor = make(log, few)
    records = monitor.check(after(3.5)).records
    assert [record.status for record in records] == ["audited", "audited", "thin"]
    assert [item.utility for item in records[-1].forecasts] == ["status", "family"]
    assert waiting(records) == [records[-1]]


def ask_at(monitor, *days):
    """Check at these times; return the scores that the last check told."""
    for day in days:
        result = monitor.check(after(day))
    return result.forecast_scores


@pytest.fixture(scope="module")
def with_a_gap():
    """Three days that are due, the second without labels, and a fourth that waits for its own."""
    log, labels = make_log(4, 800)
    monitor = make(log, labels[~labels["id"].between(800, 1599)])
    ask_at(monitor, 1.5, 2.25, 2.5, 4.25)
    return monitor


def test_forecasts_are_told_newest_first_and_say_where_labels_did_not_come(with_a_gap):
    records = with_a_gap.records()
    found = [(record.start, record.status) for record in waiting(records)]
    assert found == [(after(3), "pending"), (after(1), "thin")]
    said = [text.partition(": ")[0] for text in say_forecasts(records, {})[1:5]]
    late = "2024-03-02 (too few labels by 2024-03-03 12:00 UTC)"
    assert said == ["2024-03-04", "2024-03-04", late, late]
    page = render_report(records)
    assert -1 < page.index("Forecast for ") < page.index("too few labels by ")


def test_the_version_that_is_named_is_that_of_the_newest_window(with_a_gap):
    versions = {"pending": "3", "thin": "2"}
    records = [
        dataclasses.replace(record, model_version=versions.get(record.status, "1"))
        for record in with_a_gap.records()
    ]
    assert "version 3 predicted" in say_versions(records, "1")


def test_the_fleet_page_dates_the_newest_forecast(with_a_gap):
    state = MonitorState.from_dict(with_a_gap.tracker.load_state())
    assert set(state.forecast_starts) == set(state.forecasts)
    said = _forecast(Overview("a", "a", "", state, state.trend, zone="Europe/Berlin"))
    assert said[0] == "2024-03-04 01:00 CET:"
    assert [text.split()[0] for text in said[1:]] == ["“status”", "“family”"]


def test_the_fleet_page_shows_no_forecast_older_than_the_newest_audit(with_a_gap):
    state = MonitorState.from_dict(with_a_gap.tracker.load_state())
    state.forecasts.popitem()
    assert state.forecasts
    assert _forecast(Overview("a", "a", "", state, state.trend)) == []
    assert _forecast(Overview("a", "a", "", state))[0] == "2024-03-02:"
    state.forecast_starts = {}  # as an earlier version left it
    assert _forecast(Overview("a", "a", "", state)) == []


DAY_OUT = Maintenance(start=str(after(2)), end=str(after(3)), purpose="migration")
PART_OUT = Maintenance(start=str(after(2)), end=str(after(3)), branch="attack")


@pytest.mark.parametrize("n_labels", [1700, 10_000])
def test_a_window_in_maintenance_has_no_forecast(n_labels):
    log, labels = make_log(4, 800)
    labels = labels[labels["id"] < n_labels]
    monitor = make(log, labels, maintenance=[DAY_OUT], windows=revisited("9d"))
    ask_at(monitor, 1.5, 2.5, 3.25)
    (pending,) = [r for r in monitor.records() if r.status == "pending" and r.start == after(2)]
    assert pending.forecasts == ()
    assert not MonitorState.from_dict(monitor.tracker.load_state()).forecasts
    ask_at(monitor, 3.5)
    assert not waiting([r for r in monitor.records() if r.start == after(2)])


@pytest.mark.parametrize(("n_labels", "status"), [(1630, "thin"), (10_000, "audited")])
def test_a_forecast_made_before_its_maintenance_was_declared_is_neither_judged_nor_shown(
    n_labels, status
):
    log, labels = make_log(3, 800)
    kept = {"tracker": MemoryTracker(), "identity": "5f"}
    data = log, labels[labels["id"] < n_labels]
    ask_at(make(*data, **kept), 1.5, 2.5, 3.25)
    assert MonitorState.from_dict(kept["tracker"].load_state()).forecasts
    declared = make(*data, maintenance=[DAY_OUT], **kept)
    assert sum(score.n for score in ask_at(declared, 3.5).values()) == 0
    records = declared.records()
    assert (records[-1].status, records[-1].forecasts) == (status, ())
    assert not waiting(records)
    assert not MonitorState.from_dict(kept["tracker"].load_state()).forecasts


def test_a_forecast_counts_where_maintenance_is_of_one_branch_alone():
    monitor = make(*make_log(3, 800), maintenance=[PART_OUT])
    assert {score.n for score in ask_at(monitor, 1.5, 2.5, 3.25, 3.5).values()} == {1}


def test_forecasts_can_be_left_out():
    monitor = make(*make_log(3, 500), forecast={"enabled": False})
    monitor.check(after(1.5))
    (record,) = monitor.check(after(2.25)).records
    assert (record.status, record.forecasts) == ("pending", ())
    assert "forecasts" not in record.to_dict()


@pytest.mark.seconds
def test_after_a_sure_change_only_windows_since_then_correct_a_forecast():
    monitor = make(*make_log(8, 3000, broken_from=4))
    for day in range(7):
        monitor.check(after(day + 1.5))
    (record,) = monitor.check(after(8.25)).records[-1:]
    assert record.status == "pending"
    # Days five to seven, of 3,000 rows each; nothing of the four days before.
    assert record.forecasts[0].n_audited <= 9_000
    done = monitor.check(after(8.5)).records[-1]
    family = next(item for item in done.forecasts if item.utility == "family")
    assert family.inside
    assert abs(family.value - family.realised) < abs(family.score - family.realised)


def test_scores_of_no_forecast_say_nothing():
    assert say_score({}) is None
    assert say_score({"status": ForecastScore()}) is None
