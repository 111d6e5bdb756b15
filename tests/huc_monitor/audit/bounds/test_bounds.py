"""Radii of the theorem and of the sharp inequality."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.audit.bounds.closed_forms import sharp_radius, theorem_radius
from huc_monitor.audit.options import AuditOptions
from huc_monitor.errors import InvalidInputError, UnknownNameError

TREE = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
PAY = hm.Payoff("pay", {"a": -1, "b": 1, "c": 0.5, "d": 0.25})


def load_bench(name):
    path = Path(__file__).parents[3] / "bench" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"bench_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def window(n=300, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(4), n)
    return p, rng.integers(0, 4, n), pd.DataFrame({"g": rng.choice(["x", "y"], n)})


def test_the_theorem_radius_is_the_formula_of_the_paper():
    expected = 16 / math.sqrt(500) + 4 * math.sqrt(math.log(84 / 0.1) / (2 * 500))
    assert theorem_radius(500, 84, 0.9) == pytest.approx(expected, rel=1e-14)


def test_the_sharp_radius_is_never_wider_than_its_published_form_for_any_split():
    # Theorem 2.1 of Bartlett, Bousquet and Mendelson, with 4 sigma / sqrt(n) for twice the
    # Rademacher average and an envelope of 2b, minimised over a on a grid.
    grid = np.geomspace(1e-4, 1e4, 4_001)
    for n in (20, 500, 100_000):
        for mean_square in (0.0, 1e-4, 0.04, 0.3):
            for b in (0.6, 2.0):
                x = math.log(2 * 84 / 0.05)
                sigma = min(
                    b, b * (math.sqrt(x / 2 / n) + math.sqrt(mean_square / b**2 + x / 2 / n))
                )
                published = (
                    4 * (1 + grid) * sigma / math.sqrt(n)
                    + sigma * math.sqrt(2 * x / n)
                    + 2 * b * (1 / 3 + 1 / grid) * x / n
                )
                found = sharp_radius(n, mean_square, b, n_candidates=84, level=0.95)
                assert found <= published.min() * (1 + 1e-12)
                assert found >= published.min() / 2


def test_the_second_moment_step_of_the_sharp_radius_solves_its_quadratic():
    # With probability 1 - exp(-x): v - W <= sqrt(2 v x / n); the radius uses the largest such v.
    n, b, mean_square = 400, 1.5, 0.09
    x = math.log(2 * 10 / 0.05)
    w = mean_square / b**2
    root = math.sqrt(x / 2 / n) + math.sqrt(w + x / 2 / n)
    assert root**2 - w == pytest.approx(root * math.sqrt(2 * x / n), rel=1e-12)
    sigma = b * root
    expectation, envelope = 4 * sigma / math.sqrt(n), b + sigma
    expected = (
        expectation
        + math.sqrt(2 * x * (sigma**2 + 2 * envelope * expectation) / n)
        + envelope * x / (3 * n)
    )
    found = sharp_radius(n, mean_square, b, n_candidates=10, level=0.95)
    assert found == pytest.approx(expected, rel=1e-12)


def test_the_sharp_radius_of_clusters_solves_the_inequality_of_klein_and_rio():
    # Beyond the mean E0, t is the largest with t^2 <= x (2 V + 3 U t / k), where U = 2 b limits a
    # cluster's term and V = (s2 + 2 U E0) / k.
    k, b, mean_square = 400, 1.5, 0.09
    x = math.log(2 * 10 / 0.05)
    sigma = b * (math.sqrt(x / 2 / k) + math.sqrt(mean_square / b**2 + x / 2 / k))
    mean, envelope = 4 * sigma / math.sqrt(k), 2 * b
    found = sharp_radius(k, mean_square, b, n_candidates=10, level=0.95, clustered=True)
    t = float(found) - mean
    v = (sigma**2 + 2 * envelope * mean) / k
    assert t**2 == pytest.approx(x * (2 * v + 3 * envelope * t / k), rel=1e-12)


sizes = st.integers(1, 10**7)
squares = st.floats(0, 1)
spreads = st.floats(1e-3, 2)


@given(sizes, sizes, squares, spreads)
def test_the_sharp_radius_shrinks_with_more_rows(n, more, share, b):
    at = {"mean_square": share * b**2, "spread": b, "n_candidates": 9, "level": 0.95}
    assert sharp_radius(n + more, **at) < sharp_radius(n, **at)


@given(sizes, squares, squares, spreads)
def test_the_sharp_radius_grows_with_the_contributions(n, share, other, b):
    low, high = sorted((share * b**2, other * b**2))
    at = {"spread": b, "n_candidates": 9, "level": 0.95}
    assert sharp_radius(n, low, **at) <= sharp_radius(n, high, **at)


@given(sizes, squares, spreads, spreads)
def test_the_sharp_radius_grows_with_the_spread(n, share, b, other):
    low, high = sorted((b, other))
    at = {"mean_square": share * low**2, "n_candidates": 9, "level": 0.95}
    assert sharp_radius(n, spread=low, **at) <= sharp_radius(n, spread=high, **at)


@given(st.floats(0.01, 100), sizes, squares, spreads)
def test_the_sharp_radius_scales_with_the_unit(unit, n, share, b):
    at = {"n_candidates": 9, "level": 0.95}
    one = sharp_radius(n, share * b**2, b, **at)
    assert sharp_radius(n, unit**2 * share * b**2, unit * b, **at) == pytest.approx(unit * one)


def test_the_sharp_audit_uses_each_candidates_own_mean_square():
    p, labels, frame = window()
    groups = hm.Subgroups.from_reference(frame, {"g": "each"})
    result = hm.audit(
        p, labels, tree=TREE, utilities=PAY, subgroups=groups, features=frame, bounds="sharp"
    )
    (rows,) = hm.decompose(p, labels, tree=TREE, utilities=[PAY])
    columns = rows.to_frame()
    spread = dict(zip(TREE.branches, PAY.spreads(TREE), strict=True))
    for row in result.to_frame(all_columns=True).itertuples():
        inside = np.ones(300) if row.subgroup == "all" else frame["g"] == row.subgroup[-1]
        mean_square = float(np.mean((columns[row.node] * inside) ** 2))
        expected = sharp_radius(300, mean_square, spread[row.node], n_candidates=9, level=0.95)
        assert row.radius == pytest.approx(float(expected), rel=1e-12)


def test_weights_count_as_repetitions_in_the_sharp_radius():
    p, labels, _ = window(60)
    weights = np.random.default_rng(1).integers(0, 4, 60)
    options = {"tree": TREE, "utilities": PAY, "bounds": "sharp"}
    weighted = hm.audit(p, labels, weights=weights, **options)
    repeated = hm.audit(np.repeat(p, weights, axis=0), np.repeat(labels, weights), **options)
    np.testing.assert_allclose(weighted.radii, repeated.radii, rtol=1e-12)


def test_without_bounds_everything_but_the_bounds_is_there():
    p, labels, _ = window(50)
    plain = hm.audit(p, labels, tree=TREE, utilities=PAY, bounds=None)
    bounded = hm.audit(p, labels, tree=TREE, utilities=PAY, bounds="theorem")
    assert plain.method is None
    assert plain.huc == bounded.huc
    assert math.isnan(plain.huc_lower)
    assert math.isnan(plain.worst.lower)
    assert (
        plain.to_frame(all_columns=True)[["lower", "upper", "radius", "detectable"]]
        .isna()
        .all(axis=None)
    )
    assert plain.to_dict()["candidates"][0]["radius"] is None
    assert not plain.violations(0.0)["confident"].any()


def test_a_result_says_how_its_bounds_were_made():
    p, labels, _ = window(50)
    for method, draws in (("theorem", None), ("sharp", None), ("bootstrap", 40)):
        result = hm.audit(p, labels, tree=TREE, utilities=PAY, bounds=method, n_draws=40)
        assert (result.method, result.n_draws) == (method, draws)
        assert result.to_dict()["n_draws"] == draws


def test_the_default_is_the_bootstrap_with_a_thousand_draws():
    p, labels, _ = window(50)
    result = hm.audit(p, labels, tree=TREE, utilities=PAY)
    assert (result.method, result.n_draws) == ("bootstrap", 1000)


def test_a_moment_of_the_detectable_size_is_seen_when_the_bounds_hold():
    p, labels, _ = window(50)
    frame = hm.audit(p, labels, tree=TREE, utilities=PAY, bounds="sharp").to_frame(all_columns=True)
    # If the empirical moment is within the radius of a true one above `detectable`, it shows.
    assert (frame["detectable"] - frame["radius"] - frame["radius"] == 0).all()
    assert list(frame.columns).index("detectable") == list(frame.columns).index("radius") + 1


def test_an_unknown_bound_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"'bootstrap', 'sharp' or 'theorem'; got 'wide'"):
        AuditOptions(bounds="wide")


@pytest.mark.parametrize(
    ("n_draws", "rule"),
    [
        (0, "at least 1; got 0"),
        (2.5, "a whole number; got 2.5"),
        (True, "a whole number; got True"),
        ("many", "a whole number; got 'many'"),
    ],
)
def test_a_bad_number_of_draws_is_refused(n_draws, rule):
    with pytest.raises(InvalidInputError, match=f"`n_draws` must be {rule}"):
        AuditOptions(n_draws=n_draws)


@pytest.mark.parametrize(
    ("rng", "rule"),
    [
        (-1, "at least 0; got -1"),
        (1.5, "a whole number; got 1.5"),
        (None, "a whole number; got None"),
        (2**64, "less than 1.84467e"),
    ],
)
def test_a_bad_seed_is_refused(rng, rule):
    with pytest.raises(InvalidInputError, match=f"`rng` must be {rule}"):
        AuditOptions(rng=rng)


def test_a_generator_gives_a_seed():
    seeds = [AuditOptions(rng=np.random.default_rng(5)).rng for _ in range(2)]
    assert seeds[0] == seeds[1] == int(np.random.default_rng(5).integers(0, 1 << 63))


@pytest.mark.slow
@pytest.mark.parametrize("miscalibrated", [False, True])
def test_simulated_windows_are_covered_as_often_as_promised(miscalibrated):
    bench = load_bench("coverage")
    population = bench.Population.of(miscalibrated=miscalibrated)
    assert population.moments.size == 84
    assert (population.moments.max() > 0.05) == miscalibrated
    found = bench.coverage(population, 500, windows=300, n_draws=300, seed=11)
    # 300 windows: one standard error is 1.3 points.
    assert found["bootstrap"]["uniform"] >= 0.915
    assert found["bootstrap"]["coverage"] >= found["bootstrap"]["uniform"]
    assert found["sharp"]["uniform"] >= 0.95
    assert found["theorem"]["uniform"] >= 0.95


@pytest.mark.slow
def test_the_bootstrap_covers_at_other_levels_too():
    bench = load_bench("coverage")
    population = bench.Population.of(miscalibrated=False)
    found = bench.coverage(population, 1_000, windows=300, n_draws=300, seed=12, level=0.8)
    assert 0.76 <= found["bootstrap"]["uniform"] <= 0.92


@pytest.mark.slow
def test_radii_at_two_thousand_rows_are_far_below_the_theorems():
    bench = load_bench("coverage")
    population = bench.Population.of(miscalibrated=True)
    found = bench.coverage(population, 2_000, windows=10, n_draws=1_000, seed=13)
    theorem = found["theorem"]["median_radius"]
    assert found["bootstrap"]["median_radius"] <= theorem / 15
    assert found["sharp"]["median_radius"] <= theorem / 5
