"""A factor on all weights changes no bit of a moment, and weights keep their meaning."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.audit.row_weights import WeightUnit
from huc_monitor.sources.large import Rows, audit_pieces

TREE = hm.LabelTree.from_nested({"a": ["x", "y", "z"], "b": ["u", "v"]})
UTILITIES = [hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2), hm.TopK(2)]
KINDS = {
    "counts": lambda rng, n: rng.integers(0, 5, n) + (np.arange(n) == 0),
    "even counts": lambda rng, n: 2 * rng.integers(1, 4, n),
    "large counts": lambda rng, n: rng.integers(1, 10**6, n),
    "one weight": lambda _, n: np.full(n, 0.37),
    "two weights": lambda rng, n: rng.choice(rng.random(2) + 0.1, n),
    "decimals": lambda rng, n: np.round(rng.random(n), 2) + 0.01,
    "numbers": lambda rng, n: rng.random(n),
    "heavy tail": lambda rng, n: rng.pareto(0.7, n),
}


def window(seed, n):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(5), n), rng.integers(0, 5, n), rng


def moments(p, labels, weights):
    result = hm.audit(p, labels, weights=weights, tree=TREE, utilities=UTILITIES, bounds="sharp")
    frame = result.to_frame(all_columns=True)
    columns = ["moment", "interval_low", "interval_high", "on_uc_interval", "on_worst_interval"]
    return frame[columns].to_numpy(), result


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 120),
    factor=st.floats(1e-12, 1e12) | st.sampled_from([0.1, 0.5, 2, 3, 7, 1e-4, math.pi]),
)
def test_a_positive_factor_on_all_weights_changes_no_bit_of_the_moments(kind, seed, n, factor):
    p, labels, rng = window(seed, n)
    weights = KINDS[kind](rng, n)
    one, before = moments(p, labels, weights)
    other, after = moments(p, labels, weights * factor)
    assert one.tobytes() == other.tobytes()
    assert after.n == pytest.approx(before.n * factor, rel=1e-12)


@pytest.mark.parametrize("scale", [1.0, 0.01, 1e-3, 1e-4, 1e-200, 1e200])
def test_equal_weights_of_any_size_give_the_moments_of_plain_rows(scale):
    p, labels, _ = window(3, 100)
    plain, _ = moments(p, labels, None)
    weighted, result = moments(p, labels, np.full(100, scale))
    assert plain.tobytes() == weighted.tobytes()
    assert result.n == pytest.approx(100 * scale)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_the_weighted_means_they_are_said_to_be(kind):
    p, labels, rng = window(8, 80)
    weights = KINDS[kind](rng, 80).astype(float)
    result = hm.audit(
        p, labels, weights=weights, tree=TREE, utilities=[hm.LevelCorrectness(level=2)], bounds=None
    )
    (rows,) = hm.decompose(p, labels, tree=TREE, utilities=[hm.LevelCorrectness(level=2)])
    frame = rows.to_frame()
    for found in result.to_frame(all_columns=True).itertuples():
        inside = frame["score"].between(found.interval_low, found.interval_high).to_numpy()
        expected = np.sum((frame[found.node] * weights)[inside]) / weights.sum()
        assert found.moment == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [1.0, 0.1, 3.0, 1e-6])
def test_pieces_of_a_window_share_one_unit(kind, factor):
    p, labels, rng = window(5, 90)
    weights = KINDS[kind](rng, 90) * factor
    cuts = [slice(0, 20), slice(20, 65), slice(65, 90)]
    what = {"tree": TREE, "utilities": UTILITIES, "bounds": "bootstrap", "n_draws": 200}
    pieces = audit_pieces(
        lambda: [Rows(p[cut], labels[cut], None, weights[cut]) for cut in cuts], **what
    )
    whole = hm.audit(p, labels, weights=weights, **what)
    assert pieces.n == pytest.approx(whole.n)
    for name in ("moment", "interval_low", "interval_high", "n_in_interval"):
        pair = pieces.to_frame(all_columns=True)[name], whole.to_frame(all_columns=True)[name]
        assert np.allclose(*pair, rtol=1e-14, atol=1e-12, equal_nan=True), name
    assert np.allclose(pieces.radii, whole.radii, rtol=1e-5)


@pytest.mark.parametrize("kind", ["counts", "decimals", "numbers"])
@pytest.mark.parametrize("factor", [0.1, 3.0, 1e-6])
def test_a_factor_on_all_weights_keeps_a_boosts_first_update(kind, factor):
    p, labels, rng = window(11, 200)
    weights = KINDS[kind](rng, 200)
    fits = [
        hm.HUCBoost(tree=TREE, utilities=UTILITIES, max_updates=1, initial=None).fit(
            p, labels, weights=given
        )
        for given in (weights, weights * factor)
    ]
    one, other = (boost.history_.iloc[0] for boost in fits)
    assert one.equals(other)


def test_weights_that_are_multiples_of_one_another_are_whole_numbers():
    counts = np.array([6.0, 0.0, 9.0, 15.0])
    for factor in (1.0, 0.1, 1 / 3, 2.0**-60, math.pi):
        unit = WeightUnit.of(counts * factor)
        assert unit.whole == 5
        assert unit.count(counts * factor).tolist() == [2, 0, 3, 5]


def test_units_of_parts_merge_to_the_unit_of_the_whole():
    rng = np.random.default_rng(0)
    for _ in range(200):
        weights = rng.integers(0, 30, 12) * rng.random()
        parts = np.split(weights, [3, 7])
        merged = WeightUnit()
        for part in parts:
            merged = merged.merge(WeightUnit.of(part))
        assert merged == WeightUnit.of(weights)


def test_a_small_weight_beside_a_large_one_still_counts():
    weights = np.array([1.0, math.pi * 1e-9, 0.0])
    counted = WeightUnit.of(weights).count(weights)
    assert counted[1] == pytest.approx(math.pi * 1e-9, rel=1e-7)
    assert counted[2] == 0
    assert WeightUnit.of(weights).count(np.array([1e-300]))[0] > 0


def test_weights_whose_sum_is_no_number_are_refused():
    p, labels, _ = window(0, 3)
    with pytest.raises(hm.InvalidInputError, match="`weights` must have a finite sum"):
        moments(p, labels, np.full(3, 1e308))
