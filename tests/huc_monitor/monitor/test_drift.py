from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import huc_monitor as hm
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.drift import DriftPolicy, DriftReference, compare, label_shift, summarise
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


def test_the_leaves_whose_labels_moved_are_named_only_if_they_surely_moved():
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
    assert (item.drifted, item.lower, item.note) == (False, 0.0, "no reference for this branch")
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
