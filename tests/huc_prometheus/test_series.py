"""How many series there are, which are kept, and what is said of the others."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from huc_prometheus._series import (
    BRANCH,
    CANDIDATE,
    N_FIXED,
    check_families,
    check_limit,
    window_families,
)
from hypothesis import given
from hypothesis import strategies as st
from support.report_cases import audit_dict, small_tree
from support.report_cases import candidate as a_candidate

from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.change import CandidateChange
from huc_monitor.monitor.findings import Finding
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.monitor.ports.exporter import Standing
from huc_monitor.monitor.records import AlertState, WindowRecord

DAY = datetime(2024, 3, 1, tzinfo=UTC)
INFO = MonitorInfo("triage", "5f", model="triage")
SMALLEST = N_FIXED + len(CANDIDATE)


def record_of(candidates, tolerances, **changes):
    audit = audit_dict(candidates, small_tree())
    facts = {
        "monitor": "triage",
        "identity": "5f",
        "window_id": "w",
        "ordinal": 3,
        "start": DAY,
        "end": DAY,
        "due_at": DAY,
        "status": "audited",
        "audit": audit,
        "tolerances": tuple(tolerances),
    }
    return WindowRecord(**{**facts, **changes})


def candidate(position, moment, radius=0.1):
    return a_candidate(utility="cost", node=f"n{position}", moment=moment, radius=radius)


def standing(*alerts, status="ok"):
    return Standing(status, alerts, 0, (), list)


def alert(node, level):
    times = {"first_seen": DAY, "last_seen": DAY, "first_ordinal": 1, "last_ordinal": 1}
    names = {"utility": "cost", "subgroup": "all", "node": node}
    return AlertState(**names, level=level, n_windows=1, **times)


def samples(families):
    return {
        (family.name, *list(sample.labels.values())[1:]): sample.value
        for family in families
        for sample in family.samples
    }


def nodes(found):
    return {key[3] for key in found if key[0] == "huc_moment"}


moments = st.lists(st.floats(-1, 1), max_size=60)


@given(moments, st.integers(SMALLEST, 200), st.sampled_from([0.0, 0.02, 0.5]))
def test_there_are_never_more_series_than_allowed_and_every_candidate_is_counted(
    values, limit, tolerance
):
    rows = [candidate(i, moment, radius=abs(moment) / 2) for i, moment in enumerate(values)]
    record = record_of(rows, [tolerance] * len(rows))
    made = window_families(INFO, [record], standing(), max_series=limit)
    found = samples(made)
    n_series = sum(len(family.samples) for family in [*made, *check_families(INFO, standing())])
    assert n_series <= limit
    kept = nodes(found)
    assert len(kept) + found["huc_rest_candidates",] == found["huc_candidates",] == len(rows)
    rest = [row for row in rows if row["node"] not in kept]
    sizes = [abs(row["moment"]) for row in rest]
    assert found["huc_rest_largest_moment",] == max(sizes, default=0)
    half = max(sizes, default=0) / 2
    assert found["huc_rest_largest_moment_lower",] == pytest.approx(half, abs=1e-300)
    if kept:
        least = min(abs(row["moment"]) for row in rows if row["node"] in kept)
        assert least >= max(sizes, default=0)


def test_an_open_alert_has_series_before_a_larger_moment_without_one():
    rows = [candidate(0, 0.9), candidate(1, 0.1), candidate(2, 0.2)]
    alerts = [alert("n1", "warning")]
    made = window_families(
        INFO, [record_of(rows, [0.5] * 3)], standing(*alerts), max_series=SMALLEST
    )
    found = samples(made)
    assert nodes(found) == {"n1"}
    assert found["huc_moment_alert", "cost", "all", "n1"] == 1
    assert found["huc_rest_largest_ratio",] == pytest.approx(1.8)


def test_candidates_are_ordered_by_how_far_they_exceed_their_own_tolerance():
    rows = [candidate(0, 0.3), candidate(1, -0.2)]
    made = window_families(INFO, [record_of(rows, [0.3, 0.01])], standing(), max_series=SMALLEST)
    assert samples(made)["huc_moment", "cost", "all", "n1"] == -0.2


def test_a_number_that_is_not_known_has_no_series():
    rows = [{**candidate(0, 0.3), "radius": None}]
    made = window_families(INFO, [record_of(rows, [0.1])], standing(), max_series=100)
    found = samples(made)
    assert ("huc_largest_moment_upper",) not in found
    assert ("huc_moment_lower", "cost", "all", "n0") not in found
    assert found["huc_moment_tolerance", "cost", "all", "n0"] == 0.1


def test_moments_are_those_of_the_newest_audit_and_facts_those_of_the_newest_window():
    old = record_of([candidate(0, 0.1)], [0.1], ordinal=3, n_labelled=90)
    revised = record_of([candidate(0, 0.2)], [0.1], ordinal=3, revision=1, n_labelled=95)
    empty = record_of([], [], ordinal=4, status="thin", audit=None, n_labelled=2)
    pending = record_of([], [], ordinal=5, status="pending", audit=None)
    made = window_families(INFO, [old, revised, empty, pending], standing(), max_series=100)
    found = samples(made)
    assert found["huc_moment", "cost", "all", "n0"] == 0.2
    assert found["huc_window_labelled",] == 2
    assert found["huc_window_ordinal",] == 4
    states = {key[1]: value for key, value in found.items() if key[0] == "huc_window_status"}
    assert states == {"audited": 0, "empty": 0, "thin": 1, "failed": 0}


def test_without_a_window_there_is_nothing_to_say():
    pending = record_of([], [], status="pending", audit=None)
    assert window_families(INFO, [pending], standing(), max_series=100) is None


@pytest.mark.parametrize(("value", "expected"), [(50.0, 0.5), (None, math.inf)])
def test_evidence_of_the_detector_is_in_units_of_an_alarm(value, expected):
    detector = {"value": value, "threshold": 100.0}
    record = record_of([], [], detector=detector)
    found = samples(window_families(INFO, [record], standing(), max_series=100))
    assert found["huc_detector_evidence_ratio",] == expected


def test_every_check_says_when_it_was_and_what_is_open():
    alerts = [alert("a", "critical"), alert("b", "warning"), alert("c", "warning")]
    found = samples(check_families(INFO, standing(*alerts, status="critical")))
    assert found["huc_status",] == 2
    assert (found["huc_alerts", "warning"], found["huc_alerts", "critical"]) == (2, 1)
    now = datetime.now(UTC).timestamp()
    assert 0 <= now - found["huc_last_check_timestamp_seconds",] < 60


@pytest.mark.parametrize("limit", [0, SMALLEST - 1, 1e9, True, "all"])
def test_a_limit_without_room_for_a_candidate_is_refused(limit):
    with pytest.raises(InvalidInputError, match=f"whole number of at least {SMALLEST}; got"):
        check_limit(limit)


def a_change(node, difference=-0.03):
    change = CandidateChange(
        utility="cost",
        subgroup="channel=app",
        node=node,
        before=0.0,
        after=difference,
        difference=difference,
        lower=difference - 0.01,
        upper=difference + 0.01,
        interval_low=0.1,
        interval_high=0.9,
        n_windows=1,
        onset=DAY,
    )
    names = {"subgroups": ("channel=app", "all"), "utilities": ("cost",)}
    return Finding(kind="changed", node=node, change=change, **names)


def test_what_changed_has_series_with_bounds_and_onset_and_what_stands_is_counted():
    stands = Finding(kind="standing", node="root", subgroups=("all",), utilities=("cost",))
    record = record_of([candidate(0, 0.1)], [0.1], findings=(a_change("billing"), stands))
    found = samples(window_families(INFO, [record], standing(), max_series=100))
    names = ("cost", "channel=app", "billing")
    assert found["huc_change", *names] == -0.03
    assert found["huc_change_lower", *names] == pytest.approx(-0.04)
    assert found["huc_change_upper", *names] == pytest.approx(-0.02)
    assert found["huc_change_onset_timestamp_seconds", *names] == DAY.timestamp()
    assert found["huc_largest_change",] == -0.03
    counts = {key[1]: value for key, value in found.items() if key[0] == "huc_findings"}
    assert counts == {"changed": 1, "both": 0, "standing": 1}


@given(st.integers(0, 40), st.integers(0, 40), st.integers(SMALLEST, 300))
def test_however_many_branches_changed_there_are_never_more_series_than_allowed(n, rows, limit):
    findings = tuple(a_change(f"b{k}") for k in range(n))
    made = window_families(
        INFO,
        [record_of([candidate(k, 0.1) for k in range(rows)], [0.1] * rows, findings=findings)],
        standing(),
        max_series=limit,
    )
    n_series = sum(len(family.samples) for family in [*made, *check_families(INFO, standing())])
    assert n_series <= limit
    shown = [key[3] for key in samples(made) if key[0] == "huc_change"]
    assert shown == [f"b{k}" for k in range(min(n, 10, (limit - SMALLEST) // 4))]
    assert rows == 0 or nodes(samples(made))


def test_branches_that_lack_labels_have_series_the_lowest_first_and_no_more_than_ten():
    rows = [candidate(k, 0.1) | {"label_coverage": 1 - k / 100} for k in range(30)]
    predicted = {f"c{k}": k / 20 for k in range(21)}
    record = record_of(rows, [0.1] * 30, branch_coverage=predicted)
    made = window_families(INFO, [record], standing(), max_series=1_000)
    by_name = {family.name: family.samples for family in made}
    deep = by_name["huc_label_depth_ratio"]
    assert [sample.labels["node"] for sample in deep] == [f"n{k}" for k in range(29, 19, -1)]
    assert deep[0].value == pytest.approx(0.71)
    found = by_name["huc_predicted_coverage_ratio"]
    assert [sample.value for sample in found] == pytest.approx([k / 20 for k in range(10)])
    tight = window_families(INFO, [record], standing(), max_series=SMALLEST)
    assert "huc_label_depth_ratio" not in {family.name for family in tight}


def test_full_labels_need_no_series_of_coverage():
    record = record_of([candidate(0, 0.1)], [0.1], branch_coverage={"l": 1.0, "r": 1.0})
    made = window_families(INFO, [record], standing(), max_series=100)
    assert not {family.name for family in made} & set(BRANCH)
