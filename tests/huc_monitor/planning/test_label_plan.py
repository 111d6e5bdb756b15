"""Which labels to buy: variances by brute force, probabilities, and radii that become smaller."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.planning import _label_plan
from huc_monitor.tree.labels import LeafCodes

TREE = hm.LabelTree.from_nested({"a": ["a1", "a2", "a3"], "b": {"c": ["c1", "c2"], "d": None}})
UTILITIES = [
    hm.TopK(2),
    hm.LevelCorrectness(level=1),
    hm.Payoff("pay", {"a1": 1, "a2": -1, "a3": 0.5, "c1": 0.2, "c2": -0.4, "d": 0}),
]


def dense_squares(p, tree, utilities, expected):
    """Mean of squared contributions over all labels, one decomposition per label."""
    columns = []
    for utility in utilities:
        total = 0.0
        for leaf in range(tree.n_leaves):
            labels = LeafCodes(np.full(len(p), leaf))
            (rows,) = hm.decompose(p, labels, tree=tree, utilities=[utility])
            squares = rows.to_frame().iloc[:, 2:].to_numpy() ** 2
            total = total + expected[:, [leaf]] * squares
        columns.append(total)
    return np.concatenate(columns, axis=1)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_variances_are_those_of_all_labels_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(TREE.n_leaves, rng.uniform(0.3, 3)), 7)
    found = _label_plan._Variances(TREE, UTILITIES, None).of(p, np.arange(7))
    assert found == pytest.approx(dense_squares(p, TREE, UTILITIES, p), abs=1e-9)


def test_a_second_opinion_moves_variances_to_where_it_disagrees():
    p = np.random.default_rng(0).dirichlet(np.ones(6), 9)
    opinion = np.arange(9) % 6
    likelihood = _label_plan._likelihood(LeafCodes(opinion), 20.0, 9, TREE)
    expected = p.copy()
    expected[np.arange(9), opinion] *= 20.0
    expected /= expected.sum(axis=1, keepdims=True)
    found = _label_plan._Variances(TREE, UTILITIES, likelihood).of(p, np.arange(9))
    assert found == pytest.approx(dense_squares(p, TREE, UTILITIES, expected), abs=1e-9)
    assert _label_plan._likelihood(LeafCodes(opinion), 1.0, 9, TREE) is None


def test_an_opinion_that_repeats_the_prediction_has_no_odds_and_an_own_one_has():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(6), 4000)
    y = (p.cumsum(axis=1) < rng.random(4000)[:, None]).sum(axis=1).clip(max=5)
    same = LeafCodes(p.argmax(axis=1))
    assert hm.fit_proxy_odds(p, LeafCodes(y), same, tree=TREE) == pytest.approx(1.0, abs=0.15)
    own = np.where(rng.random(4000) < 0.8, y, rng.integers(0, 6, 4000))
    # Right with 0.8 + 0.2 / 6, each other leaf with 0.2 / 6.
    found = hm.fit_proxy_odds(p, LeafCodes(y), LeafCodes(own), tree=TREE)
    assert found == pytest.approx((0.8 + 0.2 / 6) / (0.2 / 6), rel=0.2)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.floats(0.05, 1.0))
@example(4358, 0.6182695501477172)  # all rows are labelled, and a sum is rounded up
def test_probabilities_add_up_to_the_budget_and_stay_within_their_limits(seed, uniform):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 400))
    budget = int(rng.integers(1, n + 1))
    sizes = rng.gamma(0.3, size=n) * (rng.random(n) < 0.8)
    pi = _label_plan._mixed(sizes, float(budget), uniform)
    assert pi.max() <= 1 + 1e-12
    assert pi.min() >= uniform * budget / n - 1e-12
    assert pi.sum() == pytest.approx(budget)


def test_rows_that_differ_in_nothing_have_the_same_probability():
    assert _label_plan._mixed(np.zeros(4), 3.0, 0.3) == pytest.approx(0.75)


def test_every_row_is_drawn_as_often_as_its_probability_says():
    pi = np.array([1.0, 0.5, 0.25, 0.75, 0.1, 0.4])
    rng = np.random.default_rng(0)
    counts = np.zeros(6)
    for _ in range(4000):
        chosen = _label_plan._systematic(pi, rng)
        assert chosen.size == 3
        counts[chosen] += 1
    assert counts / 4000 == pytest.approx(pi, abs=4 * 0.5 / np.sqrt(4000))


def test_the_plan_is_near_the_best_possible_for_one_candidate():
    """With one candidate the best probabilities are known but for how much the floor counts."""
    p = np.random.default_rng(1).beta(0.4, 0.4, 3000).clip(1e-6, 1 - 1e-6)
    plan = hm.plan_labels(
        np.stack([p, 1 - p], axis=1),
        tree=hm.LabelTree.flat(["a", "b"]),
        utilities=hm.SubtreeIndicator(node="a"),
        budget=300,
        uniform_share=0.01,
    )
    floor = np.log(1 / 0.05)

    def squared_radius(pi):
        n_effective = 3000**2 / np.sum(1 / pi)
        return np.sum(p * (1 - p) / pi) / 3000**2 + floor / n_effective**2

    tried = [np.sqrt(p * (1 - p) + added) for added in np.geomspace(1e-4, 1, 200)]
    best = min(squared_radius(300 * sizes / sizes.sum()) for sizes in tried)
    assert squared_radius(plan.probability) < 1.005 * best
    # As many labels taken evenly have the radius of the plan.
    evenly = 300 / (1 - plan.saving)
    wanted = np.mean(p * (1 - p)) / evenly + floor / evenly**2
    assert squared_radius(plan.probability) == pytest.approx(wanted, rel=1e-6)


def test_of_two_equally_important_candidates_none_is_left_behind():
    """A group of 5 % with its own tight tolerance gets more than its share of labels."""
    rng = np.random.default_rng(2)
    p = rng.dirichlet([1, 1, 1, 1, 1, 1], 2000)
    frame = pd.DataFrame({"who": np.where(np.arange(2000) < 100, "few", "many")})
    groups = hm.Subgroups.from_reference(frame, {"who": "each"})
    shared = {
        "tree": TREE,
        "utilities": [hm.LevelCorrectness(level=1)],
        "subgroups": groups,
        "features": frame,
        "budget": 200,
    }
    names = hm.audit(
        p,
        LeafCodes(np.zeros(2000, dtype=np.int64)),
        tree=TREE,
        utilities=shared["utilities"],
        subgroups=groups,
        features=frame,
        bounds=None,
    ).to_frame(all_columns=True)
    tight = np.where(names["subgroup"] == "who=few", 0.002, 0.05)
    even = hm.plan_labels(p, **shared)
    plan = hm.plan_labels(p, tolerance=tight, **shared)
    few = frame["who"] == "few"
    assert plan.probability[few].mean() > 2 * even.probability[few].mean()
    assert plan.worst[1] == "who=few"
    y = (p.cumsum(axis=1) < rng.random(2000)[:, None]).sum(axis=1).clip(max=5)

    def width(rows, chance=None):
        found = hm.audit(
            p[rows],
            LeafCodes(y[rows]),
            tree=TREE,
            utilities=shared["utilities"],
            subgroups=groups,
            features=frame.iloc[rows].reset_index(drop=True),
            label_probability=chance,
            n_draws=200,
        )
        return (found.radii / tight).max()

    # Much of this bound is the floor, which labels of a small group do not lower.
    planned = width(plan.chosen, plan.probability[plan.chosen])
    uniform = [width(np.sort(rng.permutation(2000)[:200])) for _ in range(5)]
    assert 0 < plan.saving < 0.2
    assert planned < 1.1 * np.mean(uniform)


def test_labels_needed_are_fewer_by_what_a_plan_saves():
    p = np.random.default_rng(1).beta(0.4, 0.4, 3000).clip(1e-6, 1 - 1e-6)
    matrix = np.stack([p, 1 - p], axis=1)
    plan = hm.plan_labels(matrix, tree=hm.LabelTree.flat(["a", "b"]), budget=1000)
    needed = {
        effect: hm.labels_needed(0.05, bounds="bootstrap", n_candidates=2, design_effect=effect)
        for effect in (1.0, plan.design_effect)
    }
    assert plan.saving > 0.1
    wanted = needed[1.0] * (1 - plan.saving)
    assert needed[plan.design_effect] == pytest.approx(wanted, abs=2)


def test_a_plan_lists_ids_with_their_probabilities():
    p = np.random.default_rng(0).dirichlet(np.ones(6), 50)
    plan = hm.plan_labels(p, tree=TREE, budget=10)
    frame = plan.to_frame([f"r{i}" for i in range(50)])
    assert list(frame["id"]) == [f"r{i}" for i in plan.chosen]
    assert (frame["label_probability"] == plan.probability[plan.chosen]).all()
    assert plan.chosen.size == 10
    for count in (10, 49, 60):
        with pytest.raises(hm.InvalidInputError, match=rf"\(50\); got shape \({count},\)"):
            plan.to_frame(range(count))
    assert hm.plan_labels(p, tree=TREE, budget=50).probability == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"budget": 0}, "budget"),
        ({"budget": 51}, "budget"),
        ({"budget": 2.5}, "budget"),
        ({"uniform_share": 0.0}, "uniform_share"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": [0.1, 0.2]}, "candidates"),
        ({"proxy": ["a1"] * 50, "proxy_odds": 0.5}, "proxy_odds"),
    ],
)
def test_a_plan_that_cannot_be_made_says_why(given, match):
    p = np.random.default_rng(0).dirichlet(np.ones(6), 50)
    with pytest.raises(hm.InvalidInputError, match=match):
        hm.plan_labels(p, **{"tree": TREE, "budget": 10, **given})
