"""Planning: the formulas by hand, the pilot against the audit, the simulated change exactly."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import huc_monitor as hm
from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.planning._alarm_simulation import _branch, _tilt, largest_moment

TREE = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
UTILITIES = [hm.LevelCorrectness(level=1), hm.Payoff("pay", {"lion": 1, "lynx": -1, "dog": 0.5})]


@pytest.fixture
def pilot():
    rng = np.random.default_rng(1)
    p = rng.dirichlet([2, 1, 1], size=600)
    labels = np.array([rng.choice(3, p=row) for row in p])
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], 600), "tilt": rng.uniform(-1, 1, 600)})
    groups = hm.Subgroups.from_reference(frame, {"sex": "each"}, weights={"tilt": "tilt"})
    return p, labels, {"subgroups": groups, "features": frame}


@settings(max_examples=60, deadline=None)
@given(
    bounds=st.sampled_from(["theorem", "sharp", "bootstrap"]),
    size=st.floats(0.021, 0.9),
    mean_square=st.floats(0, 0.25),
    n_candidates=st.integers(1, 10_000),
)
def test_labels_needed_is_the_first_n_that_shows_the_size(bounds, size, mean_square, n_candidates):
    plan = {
        "bounds": bounds,
        "n_candidates": n_candidates,
        "mean_square": mean_square,
        "tolerance": 0.02,
    }
    n = hm.labels_needed(size, **plan)
    assert hm.detectable_size(n, **plan) <= size
    assert n == 1 or hm.detectable_size(n - 1, **plan) > size


@pytest.mark.parametrize("bounds", ["theorem", "sharp", "bootstrap"])
def test_planning_for_the_pilots_own_size_gives_its_own_radii(pilot, bounds):
    p, labels, groups = pilot
    planned = hm.pilot_candidates(p, labels, tree=TREE, utilities=UTILITIES, **groups)
    result = hm.audit(p, labels, tree=TREE, utilities=UTILITIES, bounds=bounds, **groups)
    frame = result.to_frame(all_columns=True)
    keys = ["utility", "subgroup", "node"]
    assert planned[keys].equals(frame[keys])
    sizes = [
        hm.detectable_size(
            600,
            bounds=bounds,
            n_candidates=len(planned),
            mean_square=row.mean_square,
            spread=row.spread,
            quantile=row.quantile,
        )
        for row in planned.itertuples()
    ]
    assert sizes == pytest.approx((2 * result.radii).tolist(), rel=1e-6)


def test_a_pilot_whose_labels_stop_above_the_leaves_gives_its_own_radii(pilot):
    p, codes, groups = pilot
    labels = np.where(np.arange(600) % 3 == 0, "cat", np.array(TREE.leaves)[codes]).astype(object)
    labels[codes == 2] = "dog"
    planned = hm.pilot_candidates(p, labels, tree=TREE, utilities=UTILITIES, **groups)
    result = hm.audit(p, labels, tree=TREE, utilities=UTILITIES, bounds="bootstrap", **groups)
    assert (result.candidates.label_coverage < 0.8).any()
    shared = {"bounds": "bootstrap", "n_candidates": len(planned)}
    columns = ["mean_square", "spread", "quantile"]
    rows = planned[columns].to_dict("records")
    sizes = [hm.detectable_size(600, **shared, **row) for row in rows]
    assert sizes == pytest.approx((2 * result.radii).tolist(), rel=1e-6)


def test_a_pilot_of_chosen_labels_gives_its_own_radii(pilot):
    """Labels of what is nearly certain were rare: other branches took 14 times the labels."""
    p, labels, groups = pilot
    chance = np.where(p[:, 2] < 0.2, 0.05, 1.0)
    given = {"tree": TREE, "utilities": UTILITIES, "label_probability": chance, **groups}
    planned = hm.pilot_candidates(p, labels, **given)
    result = hm.audit(p, labels, bounds="bootstrap", **given)
    shared = {"bounds": "bootstrap", "n_candidates": len(planned)}
    columns = ["mean_square", "spread", "quantile", "design_effect"]
    rows = planned[columns].to_dict("records")
    sizes = [hm.detectable_size(600, **shared, **row) for row in rows]
    assert sizes == pytest.approx((2 * result.radii).tolist(), rel=1e-6)


def test_a_branch_that_no_label_of_a_pilot_reaches_is_planned_for_at_its_widest():
    labels = ["cat"] * 30 + ["dog"] * 30
    p = [[0.3, 0.3, 0.4]] * 60
    planned = hm.pilot_candidates(p, labels, tree=TREE, utilities=UTILITIES)
    (cat,) = planned[planned["node"] == "cat"].itertuples()
    assert (cat.mean_square, planned.notna().all(axis=None)) == (cat.spread**2 / 4, True)


def test_a_branch_that_no_label_reaches_leaves_the_plan_of_the_others_as_it_is(pilot):
    p, codes, _ = pilot
    given = {"tree": TREE, "utilities": [hm.LevelCorrectness(level=2)]}
    full, stopped, none = (
        hm.pilot_candidates(p, labels, **given).iloc[0]
        for labels in (codes, np.where(codes < 2, "cat", "dog"), np.full(len(p), "root"))
    )
    assert (full["node"], full["mean_square"]) == ("root", pytest.approx(stopped["mean_square"]))
    assert stopped["quantile"] == pytest.approx(full["quantile"], rel=0.15)
    # Labels that say nothing leave what is taken without a pilot.
    guessed = {"bounds": "bootstrap", "n_candidates": 2}
    wanted = hm.labels_needed(0.1, **guessed)
    assert hm.labels_needed(0.1, **guessed, quantile=none["quantile"]) == wanted


def test_a_pilot_of_utilities_that_no_branch_changes_has_no_candidates(pilot):
    planned = hm.pilot_candidates(*pilot[:2], tree=TREE, utilities=[hm.TopK(3)])
    assert planned.empty


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table])
def test_the_largest_moment_takes_features_of_any_library(pilot, make):
    p, _, groups = pilot
    given = {"tree": TREE, "utilities": UTILITIES, "candidate": ("pay", "tilt", "root")}
    features = make({name: column.tolist() for name, column in groups["features"].items()})
    found = largest_moment(p, **given, subgroups=groups["subgroups"], features=features)
    assert found == largest_moment(p, **given, **groups)


def test_without_a_pilot_the_bootstraps_quantile_is_on_the_safe_side(pilot):
    p, labels, groups = pilot
    planned = hm.pilot_candidates(p, labels, tree=TREE, utilities=UTILITIES, **groups)
    shared = {"bounds": "bootstrap", "n_candidates": len(planned), "mean_square": 0.04}
    measured = hm.detectable_size(600, quantile=planned["quantile"].iloc[0], **shared)
    guessed = hm.detectable_size(600, **shared)
    assert measured < guessed < 1.5 * measured


@pytest.mark.parametrize("candidate", [("pay", "all", "cat"), ("pay", "tilt", "root")])
@pytest.mark.parametrize("size", [0.06, -0.06])
def test_the_simulated_change_has_exactly_that_moment_and_no_other(pilot, candidate, size):
    p, _, groups = pilot
    subgroups, features = groups["subgroups"], groups["features"]
    utility = next(item for item in UTILITIES if item.name == candidate[0])
    weights = subgroups.weights(features, 600)[subgroups.names.index(candidate[1])]
    branch = _branch(p, utility, candidate[2], weights.astype(float), tree=TREE)
    truth = _tilt(p, branch, size)
    assert truth.sum(axis=1) == pytest.approx(1)
    # Audit every prediction with every label, weighted by the label's true probability.
    result = hm.audit(
        np.repeat(p, 3, axis=0),
        np.tile(np.arange(3), 600),
        tree=TREE,
        utilities=UTILITIES,
        subgroups=subgroups,
        features=features.loc[features.index.repeat(3)],
        weights=truth.ravel(),
        bounds="theorem",
    )
    frame = result.to_frame(all_columns=True).set_index(["utility", "subgroup", "node"])
    assert frame.loc[candidate, "moment"] == pytest.approx(size, abs=1e-9)
    elsewhere = frame[frame.index.get_level_values("node") != candidate[2]]
    assert elsewhere["moment"].abs().max() < 1e-9


def test_larger_moments_take_fewer_labels_and_runs_repeat(pilot):
    p, _, groups = pilot
    plan = {
        "tree": TREE,
        "utilities": UTILITIES,
        "candidate": ("pay", "all", "cat"),
        "tolerance": 0.01,
        "n_runs": 5,
        "n_before": 2,
        **groups,
    }
    small, large = (hm.simulate_alarm(p, size=size, **plan) for size in (0.05, 0.2))
    assert large.median < small.median < math.inf
    assert large.found == 1
    assert hm.simulate_alarm(p, size=0.2, **plan) == large
    assert large.quantile(1.0) == max(large.labels)


def test_a_change_that_no_labels_can_show_is_refused(pilot):
    p, _, groups = pilot
    shared = {"tree": TREE, "utilities": UTILITIES, "candidate": ("pay", "all", "cat"), **groups}
    most = largest_moment(p, **shared)
    for size in (most, 0.0):
        with pytest.raises(InvalidInputError, match=f"between 0 and {most:.4g}, the largest"):
            hm.simulate_alarm(p, size=size, tolerance=0.01, **shared)


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (("gain", "all", "cat"), "got 'gain'. Choose from 'level1', 'pay'"),
        (("pay", "old", "cat"), "got 'old'. Choose from 'all'"),
        (("level1", "all", "cat"), "got 'cat'. Choose from 'root'"),
    ],
)
def test_an_unknown_candidate_is_named(pilot, candidate, message):
    p, _, groups = pilot
    plan = {"tree": TREE, "utilities": UTILITIES, "size": 0.05, "tolerance": 0.01, **groups}
    with pytest.raises(UnknownNameError, match=message):
        hm.simulate_alarm(p, candidate=candidate, **plan)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"bounds": "exact"}, "'bootstrap', 'sharp', 'theorem'; got 'exact'"),
        ({"n": 0}, "`n` must be a number above 0; got 0"),
        ({"spread": -1.0}, "`spread` must be a number above 0"),
        ({"mean_square": -1.0}, "`mean_square` must be a number of at least 0"),
        ({"confidence_level": 1.0}, "`confidence_level` must be less than 1; got 1"),
    ],
)
def test_bad_plans_are_named(given_, message):
    plan = {"n": 100, "bounds": "sharp", "n_candidates": 3} | given_
    with pytest.raises(InvalidInputError, match=message):
        hm.detectable_size(plan.pop("n"), **plan)


def test_sizes_at_the_tolerance_are_refused():
    with pytest.raises(InvalidInputError, match=r"above the tolerance, 0\.1; got 0\.1"):
        hm.labels_needed(0.1, bounds="sharp", n_candidates=3, tolerance=0.1)


def test_sizes_that_no_moment_has_are_refused():
    plan = {"bounds": "bootstrap", "n_candidates": 40}
    with pytest.raises(InvalidInputError, match=r"`size` must be at most 1, the spread .* got 5"):
        hm.labels_needed(5, **plan)
    assert hm.labels_needed(1.5, spread=2.0, **plan) > 1


def test_the_bootstraps_radius_is_that_of_normal_theory():
    n, n_candidates, square, spread = 400, 12, 0.09, 1.5
    share = math.log(n_candidates / 0.1)
    quantile = stats.norm.isf(0.1 / (8 * n_candidates))
    assert quantile > math.sqrt(share), "so that it is not the floor which is tested"
    scale = math.sqrt(square + spread**2 * share / n)
    plan = {"bounds": "bootstrap", "mean_square": square, "spread": spread, "tolerance": 0.02}
    plan |= {"n_candidates": n_candidates, "confidence_level": 0.9}
    found = hm.detectable_size(n, **plan)
    assert found == pytest.approx(0.02 + 2 * quantile * scale / math.sqrt(n), rel=1e-9)
    floor = 0.02 + 2 * math.sqrt(share) * scale / math.sqrt(n)
    assert hm.detectable_size(n, quantile=0.0, **plan) == pytest.approx(floor)


@pytest.mark.parametrize("bounds", ["sharp", "bootstrap"])
def test_without_a_mean_square_contributions_are_as_large_as_a_calibrated_branch_allows(bounds):
    plan = {"bounds": bounds, "n_candidates": 5, "spread": 2.0}
    assert hm.detectable_size(90, **plan) == hm.detectable_size(90, mean_square=1.0, **plan)


def test_one_label_can_be_enough_and_no_number_of_labels_for_a_size_at_the_tolerance():
    plan = {"bounds": "theorem", "n_candidates": 1, "spread": 99.0}
    assert hm.labels_needed(hm.detectable_size(1, **plan), **plan) == 1
    assert hm.labels_needed(hm.detectable_size(2, **plan), **plan) == 2
    with pytest.raises(InvalidInputError, match=r"further above the tolerance, 0\.1; got"):
        hm.labels_needed(0.1 + 1e-9, tolerance=0.1, **plan)


@pytest.mark.parametrize("name", ["n", "n_candidates", "spread"])
@pytest.mark.parametrize("value", [0, math.inf])
def test_sizes_of_plans_are_positive_and_finite(name, value):
    plan = {"n": 100, "bounds": "sharp", "n_candidates": 3, name: value}
    with pytest.raises(InvalidInputError, match=f"`{name}` must be a number above 0"):
        hm.detectable_size(plan.pop("n"), **plan)


def test_a_tolerance_of_nothing_is_allowed_and_a_negative_one_is_not():
    plan = {"bounds": "sharp", "n_candidates": 3}
    assert hm.detectable_size(100, mean_square=0.0, tolerance=0.0, **plan) > 0
    with pytest.raises(InvalidInputError, match="`tolerance` must be a number of at least 0"):
        hm.detectable_size(100, tolerance=-0.1, **plan)


def test_plans_read_their_tree_from_a_file_as_an_audit_does(tmp_path):
    path = tmp_path / "tree.json"
    path.write_text(json.dumps({"cat": ["lion", "lynx"], "dog": None}), "utf-8")
    p = np.random.default_rng(0).dirichlet([2, 2, 1], 60)
    labels, utility = ["lion", "lynx", "dog"] * 20, hm.SubtreeIndicator(node="lion")
    one, two = (hm.pilot_candidates(p, labels, tree=t, utilities=[utility]) for t in (path, TREE))
    pd.testing.assert_frame_equal(one, two)
    given = {"utilities": utility, "candidate": ("in_lion", "all", "cat")}
    assert largest_moment(p, tree=path, **given) == largest_moment(p, tree=TREE, **given)
    given |= {"size": 0.05, "tolerance": 0.01, "n_runs": 1, "max_batches": 3, "n_before": 1}
    delays = [hm.simulate_alarm(p, tree=t, **given).labels for t in (path, TREE)]
    assert delays[0] == delays[1]


def test_a_seed_that_is_no_number_is_refused_by_its_name():
    p = np.full((10, 3), 1 / 3)
    told = "`rng` must be a whole number; got 'a'"
    with pytest.raises(InvalidInputError, match=told):
        hm.plan_labels(p, tree=TREE, budget=5, rng="a")
    given = {"utilities": hm.SubtreeIndicator(node="lion"), "candidate": ("in_lion", "all", "cat")}
    with pytest.raises(InvalidInputError, match=told):
        hm.simulate_alarm(p, tree=TREE, size=0.05, tolerance=0.01, rng="a", **given)
