"""Rows that depend on each other, and labels that were chosen with known probability."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.audit.bounds.clustered import student
from huc_monitor.audit.clusters import check_clusters
from huc_monitor.audit.scan import Groups, second_moments

TREE = hm.LabelTree.from_nested({"l": ["a", "b", "c"], "r": ["d", "e"]})
PAY = hm.Payoff("pay", {"a": 1, "b": -1, "c": 0.5, "d": 0.2, "e": -0.3})


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(5, 0.7), n)
    return p, (p.cumsum(1) < rng.random(n)[:, None]).sum(1).clip(0, 4)


def audit(p, y, n_draws=200, **more):
    return hm.audit(p, y, tree=TREE, utilities=[PAY], n_draws=n_draws, **more)


def same(one, other, *, but=()):
    ours, theirs = one.to_frame(all_columns=True), other.to_frame(all_columns=True)
    kept = [name for name in ours if name not in but]
    pd.testing.assert_frame_equal(ours[kept], theirs[kept], check_exact=True)


BOUNDS = ("lower", "upper", "radius", "detectable")


def test_clusters_of_one_row_each_are_no_clusters_bit_for_bit():
    p, y = rows(300)
    for bounds in ("bootstrap", "sharp", "theorem"):
        plain, alone = audit(p, y, bounds=bounds), audit(p, y, bounds=bounds, clusters=range(300))
        same(plain, alone)
        assert alone.design is None


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 40), st.integers(0, 10_000), st.booleans())
def test_what_clusters_are_called_and_in_which_order_changes_only_the_draws(n_clusters, seed, text):
    p, y = rows(120, seed)
    codes = np.random.default_rng(seed).integers(0, n_clusters, 120)
    codes[:2] = 0, 1
    named = codes.astype(str) if text else codes.astype(float)
    same(audit(p, y, clusters=codes), audit(p, y, clusters=named))
    renamed = audit(p, y, clusters=n_clusters - codes, n_draws=60)
    same(audit(p, y, clusters=codes, n_draws=60), renamed, but=BOUNDS)


def test_the_order_of_rows_changes_nothing_but_by_the_rounding_of_sums():
    p, y = rows(400)
    codes = np.arange(400) // 8
    order = np.random.default_rng(1).permutation(400)
    one = audit(p, y, clusters=codes)
    other = audit(p[order], y[order], clusters=codes[order])
    np.testing.assert_allclose(one.candidates.radius, other.candidates.radius, rtol=1e-6)
    np.testing.assert_array_equal(one.candidates.moment, other.candidates.moment)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4))
def test_copies_of_a_row_in_its_cluster_are_a_weight_of_it(seed, times):
    p, y = rows(90, seed)
    codes = np.arange(90) // 3
    weights = np.where(np.arange(90) % 2, times, 1)
    repeated = np.repeat(np.arange(90), weights)
    once = audit(p, y, clusters=codes, weights=weights)
    copied = audit(p[repeated], y[repeated], clusters=codes[repeated])
    np.testing.assert_allclose(once.candidates.moment, copied.candidates.moment, atol=1e-12)
    np.testing.assert_allclose(once.candidates.radius, copied.candidates.radius, rtol=1e-5)
    assert once.n == copied.n
    assert once.design.n_clusters == copied.design.n_clusters == 30


def test_every_row_three_times_in_its_cluster_has_the_radius_of_the_row_once():
    p, y = rows(600)
    once = audit(p, y, n_draws=2000)
    thrice = audit(*(np.repeat(x, 3, axis=0) for x in (p, y)), clusters=np.arange(1800) // 3)
    np.testing.assert_allclose(once.candidates.moment, thrice.candidates.moment, atol=1e-12)
    ratio = thrice.candidates.radius / once.candidates.radius
    assert 0.95 < np.median(ratio) < 1.15
    assert thrice.design.n_effective == pytest.approx(600, rel=0.25)


def test_the_draws_of_clusters_are_those_of_a_plain_loop():
    from huc_monitor._kernels import DRAW_UNIT
    from huc_monitor.audit.bounds.bootstrap import BootstrapBound, draw_multipliers
    from huc_monitor.audit.decomposition import sort_rows

    p, y = rows(60)
    codes = np.arange(60) % 7
    probability = np.linspace(0.1, 1.0, 60)
    groups = Groups.of([np.ones(60, np.uint8)], None, probability, check_clusters(codes, 60))
    (found,) = hm.decompose(p, y, tree=TREE, utilities=[PAY])
    bound = BootstrapBound(32, 0)
    spreads = PAY.spreads(TREE)[found.relevant]
    bound.start(groups.sizes(), found.relevant.size, 0.5)
    ordered = sort_rows(found, groups.scale)
    bound.visit(ordered, groups, spreads, second_moments(ordered, groups))
    bound.radii()
    ranges = bound._drawn[0].ranges[0]
    xi = np.empty((60, 32), dtype=np.float32)
    draw_multipliers(0, 0, groups, xi)
    weights = 1 / probability
    by_cluster = xi[codes == 3].astype(float).T / weights[codes == 3]
    assert np.ptp(by_cluster, axis=1).max() < 1e-5
    assert np.abs(xi.astype(float).sum(axis=0)).max() < 1e-4
    frame = found.to_frame()
    order = np.argsort(frame["score"].to_numpy())
    square = sum(weights[codes == c].sum() ** 2 for c in range(7)) / (groups.unit**2)
    for j, v in enumerate(found.relevant):
        terms = frame[TREE.branches[v]].to_numpy()[order, None] * xi[order]
        prefix = np.vstack([np.zeros(32), np.cumsum(terms, axis=0)])
        expected = (prefix.max(0) - prefix.min(0)) / (spreads[j] * np.sqrt(square))
        np.testing.assert_allclose(ranges[j] / DRAW_UNIT, expected, rtol=1e-4)


@pytest.mark.parametrize("bounds", ["sharp", "theorem"])
def test_closed_forms_count_rows_over_the_rows_of_the_largest_cluster(bounds):
    p, y = rows(400)
    equal = audit(p, y, bounds=bounds, clusters=np.arange(400) // 4)
    assert equal.design.n_effective == 100
    assert (equal.radii > audit(p, y, bounds=bounds).radii).all()
    few = audit(p, y, bounds=bounds, clusters=np.r_[np.zeros(40), np.arange(1, 361)])
    assert few.design.n_effective == 10
    assert (few.radii > equal.radii).all()


def test_a_giant_cluster_is_told_and_makes_bounds_wide():
    p, y = rows(400)
    giant = audit(p, y, clusters=np.r_[np.zeros(40), np.arange(1, 361)])
    assert "largest has 10% of the rows" in giant.notes[1]
    even = audit(p, y, clusters=np.arange(400) // 4)
    (note,) = even.notes
    assert note.startswith("400 rows in 100 clusters: as good as ")
    assert (giant.radii > 2 * even.radii).all()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 1))
def test_equal_label_probabilities_are_none(seed, probability):
    p, y = rows(80, seed)
    same(audit(p, y), audit(p, y, label_probability=np.full(80, probability)))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_moments_of_chosen_labels_are_those_of_weights_and_counts_are_of_rows(seed):
    p, y = rows(150, seed)
    probability = np.random.default_rng(seed).uniform(0.05, 1, 150)
    chosen = audit(p, y, label_probability=probability)
    weighted = audit(p, y, weights=1 / probability)
    np.testing.assert_allclose(chosen.candidates.moment, weighted.candidates.moment, atol=1e-9)
    assert chosen.n == 150
    assert chosen.candidates.n_in_subgroup[0] == 150
    assert (chosen.candidates.n_in_interval % 1 == 0).all()
    w = 1 / probability
    assert chosen.design.n_effective == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert chosen.design.min_label_probability == pytest.approx(probability.min())


def test_labels_chosen_by_outcome_with_known_probability_are_put_right():
    p, y = rows(20_000)
    wrong = p.argmax(1) != y
    probability = np.where(wrong, 0.9, 0.3)
    seen = np.random.default_rng(0).random(20_000) < probability
    naive = audit(p[seen], y[seen], bounds=None)
    mended = audit(p[seen], y[seen], bounds=None, label_probability=probability[seen])
    assert naive.huc > 0.04
    assert mended.huc < naive.huc / 3


def test_a_result_with_a_design_goes_through_its_dict():
    p, y = rows(100)
    made = audit(p, y, clusters=np.arange(100) // 2, label_probability=np.linspace(0.2, 1, 100))
    back = hm.AuditResult.from_dict(made.to_dict())
    assert back.design == made.design
    assert "in 50 clusters, labelled with probability 0.2 or more" in str(made.design)
    assert "design" not in audit(p, y).to_dict()


def test_weights_that_are_no_counts_say_how_they_were_read():
    p, y = rows(50)
    (note,) = audit(p, y, weights=np.linspace(0.5, 2, 50)).notes
    assert "pass `label_probability` instead" in note
    assert not audit(p, y, weights=np.arange(1, 51)).notes
    (many,) = audit(p, y, weights=np.full(50, 1e6)).notes
    assert "the 50 rows count as 50,000,000 independent ones" in many


BAD = {
    "shape": ({"clusters": [1, 2]}, r"`clusters` must be one value per row \(50\); got shape"),
    "missing": ({"clusters": [None, *range(49)]}, r"row 0 has none \(1 in all\)"),
    "missing beside text": (
        {"clusters": [float("nan"), *map("u{}".format, range(49))]},
        r"row 0 has none \(1 in all\)",
    ),
    "one": ({"clusters": ["x"] * 50}, "must have at least two different values"),
    "zero": ({"label_probability": np.arange(50) / 50}, r"above 0 and at most 1; got 0.0 \(row 0"),
    "text": ({"label_probability": ["x"] * 50}, r"must be one number per row \(50\)"),
    "sharp": (
        {"label_probability": np.arange(1, 51) / 50, "bounds": "sharp"},
        "`bounds` must be 'bootstrap' or None where labels were chosen",
    ),
}


@pytest.mark.parametrize(("given", "match"), BAD.values(), ids=BAD)
def test_bad_clusters_and_probabilities_are_refused(given, match):
    p, y = rows(50)
    with pytest.raises(hm.InvalidInputError, match=match):
        audit(p, y, **given)


def test_joined_windows_keep_clusters_apart_and_together():
    one, two = check_clusters(["u", "v"], 2), check_clusters(["v", "w"], 2)
    weights = [np.ones(2, np.uint8)]
    parts = [Groups.of(weights, None, None, keys) for keys in (one, two)]
    joined = Groups.joined(parts)
    assert np.unique(joined.clusters).size == 3
    mixed = Groups.joined([parts[0], Groups.of(weights, None)])
    assert np.unique(mixed.clusters).size == 4
    assert dataclasses.replace(mixed).total == 4


@pytest.mark.parametrize(("z", "nu"), [(1.96, 24), (2.8, 24), (2.8, 99), (3.5, 49)])
def test_students_quantile_is_that_of_scipy(z, nu):
    from scipy.stats import norm, t

    assert student(z, nu) == pytest.approx(t.ppf(norm.cdf(z), nu), rel=0.01)


def test_a_utility_that_no_branch_changes_has_nothing_to_bound():
    p, y = rows(40)
    same = hm.Payoff("same", dict.fromkeys(TREE.leaves, 1.0))
    found = hm.audit(p, y, tree=TREE, utilities=[same], n_draws=100, clusters=np.arange(40) // 2)
    assert found.candidates.n == 0
    assert found.huc == 0


def test_planning_counts_effective_rows():
    from huc_monitor.planning import labels_needed, pilot_candidates

    p, y = rows(600)
    plain = pilot_candidates(p, y, tree=TREE, utilities=[PAY])
    assert "design_effect" not in plain
    copies = [np.repeat(x, 3, axis=0) for x in (p, y)]
    pilot = pilot_candidates(*copies, tree=TREE, utilities=[PAY], clusters=np.arange(1800) // 3)
    row = pilot.iloc[0]
    assert 2 < row["design_effect"] <= 3
    asked = {"bounds": "bootstrap", "n_candidates": 3, "mean_square": row["mean_square"]}
    once = labels_needed(0.05, **asked)
    assert labels_needed(0.05, **asked, design_effect=3) == pytest.approx(3 * once, abs=3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["users 0.7", "retries", "blocks", "outcome"])
def test_bounds_hold_for_dependent_rows_and_chosen_labels(kind):
    """200 windows of 500 rows: at 95 % fewer than 181 hold with a probability below 0.2 %."""
    import importlib.util
    import sys
    from pathlib import Path

    path = Path(__file__).parents[2] / "bench" / "dependence.py"
    spec = importlib.util.spec_from_file_location("dependence_bench", path)
    bench = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = bench
    spec.loader.exec_module(bench)
    found = bench.coverage(bench.World.make(1.0), kind, 500, 200, seed=7)
    assert found["coverage"] >= 0.905
