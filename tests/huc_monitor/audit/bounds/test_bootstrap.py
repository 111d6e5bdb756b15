"""The multiplier bootstrap against plain numpy with the same multipliers."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import huc_monitor as hm
from huc_monitor.audit.bounds import bootstrap
from huc_monitor.audit.bounds.bootstrap import BootstrapBound, draw_multipliers
from huc_monitor.audit.clusters import Sizes
from huc_monitor.audit.scan import Groups
from huc_monitor.errors import InvalidInputError

TREE = hm.LabelTree.from_nested({"left": {"a": None, "b": None, "e": None}, "right": ["c", "d"]})
UTILITIES = [
    hm.Payoff("pay", {"a": -1, "b": 1, "c": 0.5, "d": 0.25}),
    hm.LevelCorrectness(level=1),
    hm.BinaryAction("act", active=["a", "b", "c"], favours=["b"], threshold=0.25),
]


def window(n, *, ties, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(5, 1.5), n)
    if ties:
        p = p[rng.integers(0, max(1, n // 6), n)]
    frame = pd.DataFrame({"g": rng.choice(["x", "y"], n), "w": rng.uniform(-1, 1, n)})
    return p, rng.integers(0, 5, n), frame


def audit(p, labels, frame, **options):
    groups = hm.Subgroups.from_reference(frame, {"g": "each"}, weights={"tilt": "w"})
    return hm.audit(
        p, labels, tree=TREE, utilities=UTILITIES, subgroups=groups, features=frame, **options
    )


def all_multipliers(n, n_draws, seed, repeats=None):
    groups = Groups.of([np.ones(n)], None if repeats is None else repeats.astype(float))
    blocks = np.empty((-(-n_draws // 32), n, 32), dtype=np.float32)
    for number, block in enumerate(blocks):
        draw_multipliers(seed, number, groups, block)
    return np.hstack(blocks)[:, :n_draws].astype(np.float64)


def plain_radii(p, labels, frame, *, n_draws, seed, level=0.95, repeats=None):
    """The definition, one candidate and one draw at a time, over prefix sums of tie blocks."""
    n = len(p)
    total = n if repeats is None else repeats.sum()
    times = np.ones(n) if repeats is None else repeats
    xi = all_multipliers(n, n_draws, seed, repeats)
    weights = [np.ones(n), frame["g"] == "x", frame["g"] == "y", frame["w"]]
    found, scales = [], []
    rows = hm.decompose(p, labels, tree=TREE, utilities=UTILITIES)
    relevant = [utility.relevant_branches(TREE).size for utility in UTILITIES]
    share = math.log(len(weights) * sum(relevant) / (1 - level))
    for utility in rows:
        dense = utility.to_frame()
        order = np.argsort(utility.scores, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(utility.scores[order])), n - 1)
        for weight in weights:
            for branch in utility.relevant:
                a = (dense[TREE.branches[branch]] * weight).to_numpy()
                prefix = np.cumsum((xi * a[:, None])[order], axis=0)[ends]
                prefix = np.vstack([np.zeros((1, n_draws)), prefix])
                spread = utility.utility.spreads(TREE)[branch]
                scale = math.sqrt((times * a**2).sum() / total + spread**2 * share / total)
                scales.append(scale)
                found.append((prefix.max(axis=0) - prefix.min(axis=0)) / total / scale)
    rank = math.ceil((1 - 0.8 * (1 - level)) * (n_draws + 1) - 1e-9)
    q = max(np.sort(np.max(found, axis=0))[rank - 1], math.sqrt(share / total))
    return q * np.array(scales)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("n", "n_draws"), [(5, 24), (37, 32), (400, 100)])
def test_radii_equal_the_plain_definition(n, n_draws, ties):
    p, labels, frame = window(n, ties=ties, seed=n)
    result = audit(p, labels, frame, bounds="bootstrap", n_draws=n_draws, rng=5)
    expected = plain_radii(p, labels, frame, n_draws=n_draws, seed=5)
    np.testing.assert_allclose(result.radii, expected, rtol=2e-5)


def test_radii_of_weighted_rows_equal_the_plain_definition():
    p, labels, frame = window(80, ties=True, seed=3)
    repeats = np.random.default_rng(4).integers(1, 5, 80)
    result = audit(p, labels, frame, weights=repeats, n_draws=60, rng=5)
    expected = plain_radii(p, labels, frame, n_draws=60, seed=5, repeats=repeats)
    np.testing.assert_allclose(result.radii, expected, rtol=2e-5)


def test_a_row_of_weight_zero_is_not_there():
    p, labels, frame = window(80, ties=True, seed=3)
    weights = np.arange(80) % 3
    kept = weights > 0
    one = audit(p, labels, frame, weights=weights, n_draws=60)
    two = audit(p[kept], labels[kept], frame[kept], weights=weights[kept], n_draws=60)
    np.testing.assert_array_equal(one.radii, two.radii)


def test_ties_are_never_split():
    # All scores are equal, so that the only intervals are nothing and everything.
    p = np.tile([0.2, 0.2, 0.2, 0.2, 0.2], (64, 1))
    labels = np.random.default_rng(0).integers(0, 5, 64)
    result = hm.audit(p, labels, tree=TREE, utilities=UTILITIES[:1], n_draws=2_000, rng=1)
    columns = hm.decompose(p, labels, tree=TREE, utilities=UTILITIES[:1])[0].to_frame()
    spread = UTILITIES[0].spreads(TREE)
    share = math.log(3 / 0.05) / 64
    xi = all_multipliers(64, 2_000, 1)
    scales, largest = [], []
    for branch in range(3):
        a = columns[TREE.branches[branch]].to_numpy()
        scales.append(math.sqrt(np.mean(a**2) + spread[branch] ** 2 * share))
        largest.append(np.abs(xi.T @ a) / 64 / scales[-1])
    q = np.sort(np.max(largest, axis=0))[math.ceil(0.96 * 2_001) - 1]
    np.testing.assert_allclose(result.radii, max(q, math.sqrt(share)) * np.array(scales), rtol=1e-4)


def test_a_single_row_gets_the_floor_and_not_zero():
    p, labels, _ = window(1, ties=False)
    result = hm.audit(p, labels, tree=TREE, utilities=UTILITIES[0])
    x = math.log(3 / 0.05)
    assert (result.radii >= UTILITIES[0].spreads(TREE) * x * (1 - 1e-12)).all()


def test_a_branch_that_is_never_seen_keeps_the_radius_of_an_unseen_outcome():
    n = 2_000
    p, labels, _ = window(n, ties=False)
    labels = np.where(labels >= 3, 0, labels)  # nothing below "right"
    result = hm.audit(p, labels, tree=TREE, utilities=UTILITIES[0])
    frame = result.to_frame(all_columns=True).set_index("node")
    assert frame.loc["right", "moment"] == 0
    spread = UTILITIES[0].spreads(TREE)[TREE.branch_index("right")]
    assert frame.loc["right", "radius"] >= spread * math.log(3 / 0.05) / n


def test_an_empty_subgroup_is_bounded_like_an_unseen_one():
    p, labels, frame = window(50, ties=False)
    groups = hm.Subgroups.from_reference(frame, {"g": "each"})
    frame["g"] = "x"
    result = hm.audit(
        p, labels, tree=TREE, utilities=UTILITIES[0], subgroups=groups, features=frame
    )
    found = result.to_frame(all_columns=True).set_index(["subgroup", "node"])
    empty = next(name for name in groups.names if name.endswith("y"))
    floor = UTILITIES[0].spreads(TREE) * math.log(9 / 0.05) / 50
    assert (found.loc[empty, "moment"] == 0).all()
    assert (found.loc[empty, "radius"].to_numpy() >= floor * (1 - 1e-12)).all()


def test_a_utility_without_relevant_branches_has_no_radii():
    p, labels, _ = window(10, ties=False)
    flat = hm.Payoff("flat", dict.fromkeys("abcde", 0.5))
    assert hm.audit(p, labels, tree=TREE, utilities=flat).radii.size == 0


def test_the_same_seed_gives_the_same_radii_and_another_seed_others():
    p, labels, frame = window(200, ties=True)
    one, two, other = (audit(p, labels, frame, n_draws=64, rng=rng).radii for rng in (7, 7, 8))
    np.testing.assert_array_equal(one, two)
    assert (one != other).all()
    assert one == pytest.approx(other, rel=0.5)


def test_a_generator_gives_its_own_seed():
    p, labels, frame = window(100, ties=False)
    one, two = (
        audit(p, labels, frame, n_draws=64, rng=np.random.default_rng(3)).radii for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)


def test_gathering_fewer_contributions_at_a_time_changes_nothing(monkeypatch):
    p, labels, frame = window(300, ties=True)
    whole = audit(p, labels, frame, n_draws=64).radii
    monkeypatch.setattr(bootstrap, "_MOST_TERMS", 1)
    np.testing.assert_array_equal(audit(p, labels, frame, n_draws=64).radii, whole)


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    # More than 100,000 rows, where two threads sort differently from one; heavy ties.
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 50)[rng.integers(0, 50, 120_000)]
    y = rng.integers(0, 3, 120_000)
    tree = hm.LabelTree.from_nested({"m": ["a", "b"], "c": None})
    utilities = [hm.TopK(1), hm.LevelCorrectness(level=1)]
    found = set()
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("HUC_NUM_THREADS", threads)
        result = hm.audit(p, y, tree=tree, utilities=utilities, n_draws=70, rng=1)
        found.add(result.radii.tobytes())
    assert len(found) == 1
    assert len(found.pop()) > 8


def test_multipliers_are_normal_and_independent_across_rows_draws_and_seeds():
    xi = all_multipliers(4_000, 64, 9)
    assert np.abs(xi.mean(axis=0)).max() < 1e-6
    assert stats.kstest(xi[::7].ravel(), "norm").pvalue > 1e-3
    assert abs(xi.std() - 1) < 0.005
    other = all_multipliers(4_000, 64, 10)
    off = np.corrcoef(np.hstack([xi, other]).T) - np.eye(128)
    assert np.abs(off).max() < 6 / math.sqrt(4_000)
    lagged = np.mean(xi[1:] * xi[:-1], axis=0)
    assert np.abs(lagged).max() < 5 / math.sqrt(4_000)


def test_quantiles_of_the_normal_law_rise_and_are_symmetric():
    quantiles = bootstrap._normal_quantiles()
    assert (np.diff(quantiles) > 0).all()
    np.testing.assert_array_equal(quantiles, -quantiles[::-1])


def test_more_draws_begin_with_the_same_draws():
    np.testing.assert_array_equal(all_multipliers(50, 40, 2), all_multipliers(50, 80, 2)[:, :40])


def test_too_few_draws_for_the_level_are_refused():
    p, labels, frame = window(10, ties=False)
    with pytest.raises(InvalidInputError, match=r"`n_draws` must be at least 24 .* 0\.95; got 23"):
        audit(p, labels, frame, n_draws=23)
    assert audit(p, labels, frame, n_draws=24).n_draws == 24


@pytest.mark.parametrize("n_variables", [1, 18, 200])
def test_a_level_beyond_the_draws_is_reached_and_not_by_far(n_variables):
    """The law of the largest of independent normal variables is known at every level."""
    level, n_draws = 1 - 1 / 3000, 2000
    bound = BootstrapBound(n_draws, 0)
    bound.start(Sizes(1e3, 1e3, 1e3, 1e3), n_variables, level)
    rng, asked = np.random.default_rng(0), 0.8 * (1 - level)
    drawn = stats.norm.isf((1 - rng.random((500, n_draws)) ** (1 / n_variables)) / 2)
    found = np.array([bound.quantile(row) for row in drawn])
    exact = stats.norm.isf((1 - (1 - asked) ** (1 / n_variables)) / 2)
    assert exact < found.mean() < 1.05 * exact
    assert np.mean(2 * n_variables * stats.norm.sf(found)) < asked
    # Where the largest standard deviation is larger than the scale says, the draws notice.
    for factor in (1.2, 2.0):
        larger = np.mean([bound.quantile(factor * row) for row in drawn])
        assert 0.95 < larger / (factor * exact) < 1.05


def test_draws_made_elsewhere_give_the_radii_of_their_definition():
    from huc_monitor import _kernels

    rng, n = np.random.default_rng(0), 400.0
    squares, spreads = rng.uniform(0.01, 0.1, (2, 3)), np.array([1.0, 0.5, 0.25])
    ranges = (rng.exponential(1.0, (2, 3, 96)) * _kernels.DRAW_UNIT).astype(np.int64)
    bound = BootstrapBound(96, 0)
    bound.start(Sizes(n, n, n, n), 6, 0.9)
    bound.visit_summary(squares, ranges, spreads)
    log = math.log(6 / 0.1)
    scales = np.sqrt(squares + spreads**2 * log / n)
    worst = (ranges * (spreads / scales)[..., None]).max(axis=(0, 1)) / _kernels.DRAW_UNIT
    q = np.sort(worst)[math.ceil(0.92 * 97) - 1]
    np.testing.assert_allclose(bound.radii(), q * scales.ravel() / math.sqrt(n))
    # No draws can make them smaller than this; of dependent rows the scale is made of draws.
    np.testing.assert_allclose(bound.least_radii(), np.sqrt(log / n) * scales.ravel())
    clustered = BootstrapBound(96, 0)
    clustered.start(Sizes(n, n, n, n, n_clusters=40.0), 6, 0.9)
    clustered.visit_summary(squares, ranges, spreads)
    np.testing.assert_array_equal(clustered.least_radii(), np.zeros(6))


def test_a_level_that_five_draws_exceed_is_their_order_statistic():
    level = 1 - 1 / 300
    bound = BootstrapBound(1875, 0)
    bound.start(Sizes(1e3, 1e3, 1e3, 1e3), 18, level)
    assert bound.quantile(np.arange(1875.0)) == 1870
    bound = BootstrapBound(1700, 0)
    bound.start(Sizes(1e3, 1e3, 1e3, 1e3), 18, level)
    z = stats.norm.ppf([1 - 0.8 / 300, 1696 / 1701])
    far = (z[0] - z[1]) * (1695 - 849.5) / z[1]
    assert bound.quantile(np.arange(1700.0)) == pytest.approx(1695 + far)
    few = BootstrapBound(999, 0)
    with pytest.raises(InvalidInputError, match=r"`n_draws` must be at least 1000 .*; got 999"):
        few.start(Sizes(1e3, 1e3, 1e3, 1e3), 18, 1 - 1 / 3000)


def test_a_higher_level_gives_wider_radii():
    p, labels, frame = window(300, ties=False)
    narrow, wide = (
        audit(p, labels, frame, n_draws=400, confidence_level=level).radii for level in (0.8, 0.99)
    )
    assert (narrow < wide).all()
