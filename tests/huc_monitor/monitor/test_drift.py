from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import huc_monitor as hm
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.drift import DriftPolicy, DriftReference, compare, label_shift, summarise

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
