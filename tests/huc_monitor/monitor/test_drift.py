from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from support.documented import defaults, documented_defaults

import huc_monitor as hm
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.drift import (
    DriftPolicy,
    DriftReference,
    _distribution,
    _quartiles,
    compare,
    label_shift,
    leaf_shares,
    summarise,
)
from huc_monitor.monitor.records import DriftFinding

TREE = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": ["pug", "husky"]})
UTILITIES = [hm.LevelCorrectness(level=1), hm.TopK(1)]


def sample(n, rng, alpha=(1.0, 1.0, 1.0, 1.0), old=0.5):
    p = rng.dirichlet(alpha, size=n)
    ages = {"age": np.where(rng.random(n) < old, 9, 1)}
    groups = hm.Subgroups.from_reference({"age": [1, 9]}, {"age": [5]})
    rows = hm.decompose(p, np.zeros(n, int), tree=TREE, utilities=UTILITIES)
    return (p, rows, groups.weights(ages, n)), groups


def drifted(before, after, groups, **policy):
    reference = summarise(*before, subgroups=groups)
    found = compare(reference, *after, tree=TREE, subgroups=groups, policy=DriftPolicy(**policy))
    return {(item.kind, item.name): item for item in found}


def test_distances_are_those_of_scipy_and_of_the_definition():
    rng = np.random.default_rng(0)
    before, groups = sample(200, rng)
    after, _ = sample(300, rng, alpha=(2.0, 1.0, 1.0, 0.5), old=0.8)
    found = drifted(before, after, groups)
    # A reference of no more rows than quantiles is kept whole.
    for item_before, item_after in zip(before[1], after[1], strict=True):
        exact = stats.ks_2samp(item_before.scores, item_after.scores).statistic
        mine = found["scores", item_before.utility.name].distance
        assert exact - 1 / 200 <= mine <= exact + 1e-12
    share = before[0].mean(axis=0)
    now = after[0].mean(axis=0)
    expected = abs(now[0] - share[0] / share[:2].sum() * now[:2].sum())
    assert found["branch", "cat"].distance == pytest.approx(expected)
    assert found["subgroup", "age>=5"].distance == pytest.approx(
        abs(after[2][2].mean() - before[2][2].mean())
    )


def test_a_shift_of_mass_between_two_children_is_seen_at_their_parent_only():
    rng = np.random.default_rng(1)
    p = rng.dirichlet([2.0, 2.0, 2.0, 2.0], size=20_000)
    before, groups = sample(20_000, rng, alpha=(2.0, 2.0, 2.0, 2.0))
    moved = p.copy()
    moved[:, 0], moved[:, 1] = p[:, 0] * 0.4, p[:, 1] + p[:, 0] * 0.6
    rows = hm.decompose(moved, np.zeros(20_000, int), tree=TREE, utilities=UTILITIES)
    found = drifted(before, (moved, rows, before[2]), groups)
    assert [key for key, item in found.items() if item.drifted and key[0] == "branch"] == [
        ("branch", "cat")
    ]
    assert found["branch", "cat"].before["lion"] == pytest.approx(0.5, abs=0.02)
    assert found["branch", "cat"].after["lion"] == pytest.approx(0.2, abs=0.02)


@pytest.mark.slow
def test_without_drift_nothing_drifts_in_nineteen_of_twenty_samples():
    false = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        before, groups = sample(500, rng)
        after, _ = sample(400, rng)
        found = drifted(before, after, groups, min_distance=0.0)
        false += any(item.drifted for item in found.values())
    assert false <= 10, "at most 5 % at confidence level 0.95, and these bounds are conservative"


def test_a_reference_survives_its_json_form():
    (p, rows, weights), groups = sample(50, np.random.default_rng(2))
    one = summarise(p, rows, weights, subgroups=groups, labels=np.zeros(50, int))
    assert DriftReference.from_dict(one.to_dict()).to_dict() == one.to_dict()


def test_an_empty_sample_has_no_findings():
    before, groups = sample(50, np.random.default_rng(2))
    empty = (
        before[0][:0],
        [row.take(np.arange(0)) for row in before[1]],
        [w[:0] for w in before[2]],
    )
    assert drifted(before, empty, groups) == {}


def test_the_leaves_whose_labels_moved_are_named_only_if_they_moved_by_more_than_chance():
    (p, rows, weights), groups = sample(4000, np.random.default_rng(3))
    labels = np.repeat(np.arange(4), 1000)
    reference = summarise(p, rows, weights, subgroups=groups, labels=labels)
    moved = np.repeat([0, 1, 2, 3], [1800, 200, 1000, 1000])
    assert set(label_shift(reference, moved, DriftPolicy())) == {0, 1}
    assert label_shift(reference, labels, DriftPolicy()).size == 0
    assert label_shift(reference, moved[::200], DriftPolicy()).size == 0


def test_the_least_distance_is_a_share():
    with pytest.raises(InvalidInputError, match="`min_distance` must be less than 1; got 1"):
        DriftPolicy(min_distance=1.0)


def rare(n, mass, split, rng):
    """Rows of which a share `mass` is all cat, the others all dog; a share `split` of cats lion."""
    cat = rng.random(n) < mass
    lion = rng.random(n) < split
    p = np.zeros((n, 4))
    p[cat & lion, 0] = p[cat & ~lion, 1] = 1.0
    p[~cat, 2] = p[~cat, 3] = 0.5
    rows = hm.decompose(p, np.zeros(n, int), tree=TREE, utilities=UTILITIES)
    return p, rows, hm.Subgroups.whole().weights(None, n)


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("n_before", "before", "n_after", "after", "split"),
    [
        (2_000, 0.002, 5_000, 0.4, 0.5),
        (2_000, 0.01, 5_000, 0.6, 0.3),
        (500, 0.05, 5_000, 0.9, 0.5),
        (20_000, 0.0005, 20_000, 0.2, 0.5),
    ],
)
def test_drift_of_a_branch_that_was_rare_is_overstated_in_one_of_twenty_samples(
    n_before, before, n_after, after, split
):
    groups, n_runs, wrong = hm.Subgroups.whole(), 100, 0
    for seed in range(n_runs):
        rng = np.random.default_rng(seed)
        old = rare(n_before, before, split, rng)
        found = drifted(old, rare(n_after, after, split, rng), groups)
        wrong += found["branch", "cat"].lower > 0  # the split of cats is the same: no distance
    limit = 0.05
    assert wrong / n_runs <= limit + 3 * np.sqrt(limit * (1 - limit) / n_runs)


def test_drift_of_a_branch_that_was_uncommon_is_still_found():
    rng = np.random.default_rng(0)
    groups = hm.Subgroups.whole()
    old, new = rare(20_000, 0.05, 0.5, rng), rare(20_000, 0.3, 0.95, rng)
    item = drifted(old, new, groups)["branch", "cat"]
    assert item.drifted
    assert 0.05 < item.lower < 0.3 * 0.45


def test_a_branch_that_the_reference_does_not_have_is_compared_with_nothing():
    rng = np.random.default_rng(0)
    groups = hm.Subgroups.whole()
    found = drifted(rare(2_000, 0.0, 0.5, rng), rare(2_000, 0.4, 0.9, rng), groups)
    item = found["branch", "cat"]
    assert (item.drifted, item.distance, item.lower) == (False, 0.0, 0.0)
    assert item.note == "no reference for this branch"
    assert found["branch", "root"].drifted, "that it is there at all is drift of its parent"
    assert DriftFinding.from_dict(item.to_dict()) == item


def test_the_root_has_the_radius_of_two_samples_of_its_size():
    rng = np.random.default_rng(0)
    before, groups = sample(900, rng, alpha=(9, 9, 1, 1))
    after, _ = sample(400, rng, alpha=(1, 1, 9, 9))
    item = drifted(before, after, groups, confidence_level=0.9)["branch", "root"]
    n_statistics = 3 + 2 + 2  # branches, utilities, subgroups
    root = np.sqrt(np.log(4 * n_statistics / 0.1) / 2)
    radius = (0.5 * np.sqrt(2) + root) * (1 / 30 + 1 / 20)
    assert item.distance - item.lower == pytest.approx(radius, rel=1e-12)


def test_defaults_are_those_of_the_docstring():
    assert defaults(DriftPolicy) == documented_defaults(DriftPolicy) != {}
    with pytest.raises(InvalidInputError, match=r"`min_distance` must be at least 0; got -0\.1"):
        DriftPolicy(min_distance=-0.1)


def constant(row, n):
    """Predictions that are all the same, without utilities or subgroups."""
    return np.tile(np.array(row, dtype=float), (n, 1)), [], hm.Subgroups.whole().weights(None, n)


def of_branches(before, after, **policy):
    found = drifted(before, after, hm.Subgroups.whole(), **policy)
    return {name: item for (_, name), item in found.items()}


@pytest.mark.parametrize(("mass", "sure"), [(0.2, True), (0.004, False)])
def test_the_radius_below_the_root_is_that_of_the_module_docstring(mass, sure):
    n_before, n_after = 10_000, 2_500
    old = constant([mass / 2, mass / 2, 0.5 - mass / 2, 0.5 - mass / 2], n_before)
    new = constant([0.8, 0.0, 0.1, 0.1], n_after)
    item = of_branches(old, new, confidence_level=0.9)["cat"]
    assert item.distance == pytest.approx(0.4)
    x = math.log(4 * 3 / 0.1)  # three branches
    most = (math.sqrt(x / 2 / n_before) + math.sqrt(mass + x / 2 / n_before)) ** 2
    m = math.sqrt(2 * most / n_before) / 2
    error = m + math.sqrt(x * (most / 2 + 4 * m) / n_before) + x / 3 / n_before
    window = (math.sqrt(2) / 2 + math.sqrt(x / 2)) / math.sqrt(n_after)
    radius = window + 0.8 * error / mass
    assert item.lower == pytest.approx(max(0, 0.4 - radius), rel=1e-9)
    assert item.drifted == sure


def test_what_is_at_the_least_distance_is_not_told():
    old, new = constant([0.25] * 4, 5_000), constant([0.1, 0.1, 0.4, 0.4], 5_000)
    item = of_branches(old, new)["root"]
    assert (item.before, item.after) == ({"cat": 0.5, "dog": 0.5}, {"cat": 0.2, "dog": 0.8})
    at_least = of_branches(old, new, min_distance=item.lower)["root"]
    assert (at_least.drifted, at_least.before, at_least.after) == (False, {}, {})
    assert of_branches(old, new, min_distance=item.lower * (1 - 1e-12))["root"].drifted


def test_findings_are_listed_from_the_largest_distance_on():
    old, new = constant([0.25] * 4, 50), constant([0.3, 0.2, 0.5, 0.0], 50)
    found = of_branches(old, new)
    assert list(found) == ["dog", "cat", "root"] or list(found) == ["dog", "root", "cat"]
    assert [item.distance for item in found.values()] == pytest.approx([0.25, 0.05, 0.0])


def test_a_branch_that_the_window_does_not_have_has_not_moved():
    found = of_branches(constant([0.25] * 4, 500), constant([0.0, 0.0, 0.5, 0.5], 500))
    assert (found["cat"].distance, found["cat"].drifted) == (0.0, False)
    assert found["root"].distance == 0.5


def test_scores_and_subgroups_have_the_radius_of_two_samples():
    n_before, n_after = 900, 400
    groups = hm.Subgroups.from_reference(
        {"age": [1, 9], "tilt": [0.0, 1.0]}, {"age": [5]}, weights={"tilt": "tilt"}
    )

    def a_sample(n, row, age, tilt):
        p = np.tile(row, (n, 1))
        rows = hm.decompose(p, np.zeros(n, int), tree=TREE, utilities=[hm.TopK(1)])
        return p, rows, groups.weights({"age": np.full(n, age), "tilt": np.full(n, tilt)}, n)

    before = a_sample(n_before, [0.4, 0.3, 0.2, 0.1], 1, -1.0)
    after = a_sample(n_after, [0.7, 0.1, 0.1, 0.1], 9, 0.5)
    found = drifted(before, after, groups, confidence_level=0.9)
    root = math.sqrt(math.log(4 * (3 + 1 + 3) / 0.1) / 2)  # branches, utilities, subgroups
    radius = root * (1 / 30 + 1 / 20)
    expected = {("scores", "top1"): 1.0, ("subgroup", "age<5"): 1.0, ("subgroup", "tilt"): 0.75}
    for key, distance in expected.items():
        assert found[key].distance == pytest.approx(distance)
        assert found[key].lower == pytest.approx(distance - radius)
    assert ("subgroup", "all") not in found
    assert found["subgroup", "tilt"].before == {"share": -1.0}
    assert found["scores", "top1"].after["median"] == pytest.approx(0.7)


def test_a_distribution_is_kept_at_its_quantiles_ends_included():
    points, shares = _distribution(np.arange(1000.0))
    assert (points[0], points[-1], points.size) == (0.0, 999.0, 200)
    np.testing.assert_allclose(shares, (points + 1) / 1000)
    assert _quartiles(*_distribution(np.arange(1.0, 101.0))) == {
        "quarter": 25.0,
        "median": 50.0,
        "three_quarters": 75.0,
    }
    assert _quartiles(*_distribution(np.empty(0))) == {}


def test_an_empty_reference_is_kept_as_such_and_compared_with_nothing():
    whole = hm.Subgroups.whole()
    empty = summarise(*constant([0.25] * 4, 0), subgroups=whole, labels=np.empty(0, dtype=int))
    assert (empty.n, empty.leaf_mass.tolist(), empty.mix) == (0, [0.0] * 4, {"all": 0.0})
    assert empty.label_share is None
    assert of_branches(constant([0.25] * 4, 0), constant([0.25] * 4, 9)) == {}


def test_labels_moved_once_their_distance_exceeds_its_radius_by_the_least_distance():
    reference = summarise(
        *constant([0.25] * 4, 3_600),
        subgroups=hm.Subgroups.whole(),
        labels=np.repeat(np.arange(4), 900),
    )
    moved = np.repeat([0, 1, 2, 3], [450, 50, 200, 200])  # by 1/4, less 7/36 and twice 1/36
    per_root = math.sqrt(4) / 2 + math.sqrt(math.log(4 / 0.1) / 2)
    surely = 0.25 - per_root * (1 / 60 + 1 / 30)
    for offset, leaves in ((-1e-9, [0, 1]), (1e-9, [])):
        policy = DriftPolicy(min_distance=surely + offset, confidence_level=0.9)
        assert label_shift(reference, moved, policy).tolist() == leaves
    assert label_shift(reference, np.empty(0, dtype=int), DriftPolicy()).size == 0


def test_only_labels_that_reach_a_leaf_are_shared_out_and_counted():
    assert leaf_shares(np.array([2]), 4).tolist() == [0.0, 0.0, 1.0, 0.0]
    assert leaf_shares(np.array([0, 4, 5]), 4).tolist() == [1.0, 0.0, 0.0, 0.0]
    reference = summarise(
        *constant([0.25] * 4, 3_600),
        subgroups=hm.Subgroups.whole(),
        labels=np.repeat(np.arange(4), 900),
    )
    few = np.repeat([0, 1, 2, 3], [6, 2, 2, 2])  # by 1/4, too few to tell
    stopped_at_the_root = np.full(5_000, 4)
    for labels in (few, np.append(few, stopped_at_the_root)):
        assert label_shift(reference, labels, DriftPolicy()).size == 0


def test_without_labels_in_the_reference_no_label_moved():
    reference = summarise(*constant([0.25] * 4, 900), subgroups=hm.Subgroups.whole())
    assert label_shift(reference, np.zeros(900, dtype=int), DriftPolicy()).size == 0
