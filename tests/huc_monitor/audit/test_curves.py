from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.audit.curves import ReliabilityCurve, reliability_curve
from huc_monitor.audit.scan import Groups

TREE = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"], "e": None})
UTILITIES = [hm.LevelCorrectness(level=1), hm.TopK(2)]
SUBGROUPS = hm.Subgroups.from_reference({"sex": ["f", "m"]}, {"sex": "each"})


def case(seed: int, n: int = 300, *, decimals: int = 3, repeats: bool = False):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(5), size=n).round(decimals) + 10.0**-decimals
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    labels = rng.integers(0, 5, size=n)
    sex = {"sex": rng.choice(["f", "m"], size=n)}
    weights = rng.integers(1, 4, size=n).astype(float) if repeats else None
    result = hm.audit(
        probabilities,
        labels,
        tree=TREE,
        utilities=UTILITIES,
        subgroups=SUBGROUPS,
        features=sex,
        weights=weights,
        bounds=None,
    )
    rows = hm.decompose(probabilities, labels, tree=TREE, utilities=UTILITIES)
    groups = Groups.of(SUBGROUPS.weights(sex, n), weights)
    return result, rows, groups


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), decimals=st.sampled_from([1, 3]), repeats=st.booleans())
def test_the_running_sum_moves_by_the_moment_over_the_interval(seed, decimals, repeats):
    result, rows, groups = case(seed, decimals=decimals, repeats=repeats)
    worst = result.worst
    curve = reliability_curve(rows, groups, worst, subgroups=SUBGROUPS)
    before = [r for s, r in zip(curve.score, curve.running, strict=True) if s < worst.interval_low]
    until = [r for s, r in zip(curve.score, curve.running, strict=True) if s <= worst.interval_high]
    start = before[-1] if before else 0.0
    assert until[-1] - start == pytest.approx(worst.moment, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_bins_inside_the_interval_average_to_the_moment(seed):
    result, rows, groups = case(seed)
    worst = result.worst
    curve = reliability_curve(rows, groups, worst, subgroups=SUBGROUPS)
    predicted, by_node, n = (np.array(x) for x in (curve.predicted, curve.by_node, curve.rows))
    inside = (predicted >= worst.interval_low) & (predicted <= worst.interval_high)
    total = float(((by_node - predicted) * n)[inside].sum())
    assert total / groups.total == pytest.approx(worst.moment, abs=1e-9)
    assert n[inside].sum() == worst.n_in_interval


def test_all_bins_together_give_the_mean_realised_utility():
    result, rows, groups = case(5)
    worst = result.worst
    curve = reliability_curve(rows, groups, worst, subgroups=SUBGROUPS)
    chosen = groups.weights[SUBGROUPS.names.index(worst.subgroup)].astype(bool)
    frame = next(r for r in rows if r.utility.name == worst.utility).to_frame()[chosen]
    n = np.array(curve.rows)
    assert n.sum() == chosen.sum()
    assert float(n @ curve.realised) == pytest.approx((frame["score"] + frame["residual"]).sum())
    assert float(n @ curve.predicted) == pytest.approx(frame["score"].sum())


def test_a_curve_has_few_points_however_many_rows_there_are():
    result, rows, groups = case(6, n=5000)
    curve = reliability_curve(rows, groups, result.worst, subgroups=SUBGROUPS)
    assert 10 <= len(curve.rows) <= 24
    assert 100 <= len(curve.running) <= 202


def test_a_curve_survives_json():
    result, rows, groups = case(7)
    curve = reliability_curve(rows, groups, result.worst, subgroups=SUBGROUPS)
    assert ReliabilityCurve.from_dict(json.loads(json.dumps(curve.to_dict()))) == curve


def test_a_curve_of_another_version_is_refused():
    with pytest.raises(
        hm.InvalidInputError, match="`ReliabilityCurve` must have schema_version 1; got 2"
    ):
        ReliabilityCurve.from_dict({"schema_version": 2})


def test_columns_of_unequal_length_are_refused():
    result, rows, groups = case(7)
    data = reliability_curve(rows, groups, result.worst, subgroups=SUBGROUPS).to_dict()
    data["realised"] = data["realised"][:-1]
    with pytest.raises(hm.InvalidInputError, match="columns of equal length"):
        ReliabilityCurve.from_dict(data)


@pytest.mark.parametrize("wrong", ["utility", "subgroup", "node"])
def test_an_unknown_candidate_is_refused_by_name(wrong):
    import dataclasses

    result, rows, groups = case(8)
    other = dataclasses.replace(result.worst, **{wrong: "nobody"})
    with pytest.raises(hm.UnknownNameError, match=f"known {wrong}; got 'nobody'"):
        reliability_curve(rows, groups, other, subgroups=SUBGROUPS)
