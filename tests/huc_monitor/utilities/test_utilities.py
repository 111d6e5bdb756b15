from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute_force import PlainTree, subtree_mean, utility_values
from support.random_cases import random_tree, random_utilities

import huc_monitor as hm
from huc_monitor.utilities.program import value_range

TREE = hm.LabelTree.from_nested({"a": ["x", "y"], "b": ["z", "w"], "v": None})


def sampled_relevance(tree, utility, rng, tries=400):
    """Branches whose child means differ for some sampled positive prediction."""
    plain = PlainTree(tree)
    found = set()
    for _ in range(tries):
        p = rng.dirichlet(np.full(tree.n_leaves, rng.choice([0.05, 0.3, 1.0, 5.0])))
        p = (p + 1e-6) / (p + 1e-6).sum()
        values = utility_values(utility, p, plain)
        for node in set(tree.branches) - found:
            means = [subtree_mean(p, values, plain, child) for child in plain.children[node]]
            if np.ptp(means) > 1e-9:
                found.add(node)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_relevant_branches_are_exactly_those_that_some_prediction_can_reveal(seed):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng)
    for utility in random_utilities(rng, tree):
        if utility.family == "CustomUtility":
            continue
        relevant = {tree.branches[v] for v in utility.relevant_branches(tree)}
        assert sampled_relevance(tree, utility, rng) == relevant, utility


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_values_equal_plain_loops_and_stay_in_range(seed):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng)
    plain = PlainTree(tree)
    p = rng.dirichlet(np.ones(tree.n_leaves), 20) * (1 - 1e-6) + 1e-6 / tree.n_leaves
    for utility in random_utilities(rng, tree):
        values = utility.values(p, tree=tree)
        least, most = value_range(utility.compile(tree))
        assert least <= values.min() <= values.max() <= most, utility
        expected = np.array([utility_values(utility, row, plain) for row in p])
        assert np.abs(values - expected).max() < 1e-12
        assert np.abs(values).max() <= 1


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_the_json_form_gives_the_same_utility_back(seed):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng)
    for utility in random_utilities(rng, tree):
        again = hm.Utility.from_dict(json.loads(json.dumps(utility.to_dict())))
        assert again.to_dict() == utility.to_dict()
        assert again == utility or utility.family == "CustomUtility"
        p = rng.dirichlet(np.ones(tree.n_leaves), 5)
        assert np.array_equal(again.values(p, tree=tree), utility.values(p, tree=tree))


def test_an_action_that_is_never_chosen_makes_no_branch_relevant():
    actions = {
        "good": {"a": 0.5, "b": -0.5},
        "other": {"a": -0.5, "b": 0.5},
        "never": {"x": -1.0, "y": -0.9, "z": -1.0, "w": -0.9, "v": -1.0},
    }
    utility = hm.ActionPayoff("act", actions)
    assert [TREE.branches[v] for v in utility.relevant_branches(TREE)] == ["root"]


def test_an_action_equal_to_an_earlier_one_adds_nothing():
    actions = {"one": {"x": 1.0}, "again": {"x": 1.0}}
    assert hm.ActionPayoff("act", actions).spreads(TREE).tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("nothing", [{}, None])  # None is what YAML makes of `wait:`
def test_an_action_without_payoffs_pays_the_default(nothing):
    utility = hm.ActionPayoff("act", {"go": {"x": 1.0, "b": -1.0}, "wait": nothing}, default=-0.5)
    assert utility.rows(TREE).tolist() == [[1, -0.5, -1, -1, -0.5], [-0.5] * 5]
    assert hm.Utility.from_dict(json.loads(json.dumps(utility.to_dict()))) == utility
    with pytest.raises(hm.InvalidInputError, match="`payoffs` must name at least one leaf or node"):
        hm.Payoff("pay", {})


def test_a_level_below_the_tree_is_refused_with_the_levels_that_utilities_have():
    with pytest.raises(hm.InvalidInputError, match="must be a depth from 1 to 2; got 9"):
        hm.LevelCorrectness(level=9).compile(TREE)
    with pytest.raises(hm.InvalidInputError, match="must be at least 1"):
        hm.LevelCorrectness(level=0)


def test_the_first_action_wins_a_tie():
    utility = hm.ActionPayoff("act", {"first": {"x": 1.0}, "second": {"y": 1.0}})
    assert utility.values([[0.25, 0.25, 0.25, 0.125, 0.125]], tree=TREE)[0].tolist() == [
        1,
        0,
        0,
        0,
        0,
    ]


def test_the_deepest_name_decides_a_payoff():
    pay = hm.Payoff("pay", {"x": 1.0, "a": -0.5, "root": 0.25})
    assert pay.values([[0.2] * 5], tree=TREE).tolist() == [[1, -0.5, 0.25, 0.25, 0.25]]


def test_a_level_may_be_named():
    tree = hm.LabelTree.from_nested(
        {"music": ["play", "stop"], "alarm": ["set", "off"]}, level_names=["scenario", "intent"]
    )
    named = hm.LevelCorrectness(level="scenario")
    assert named.name == "scenario"
    assert named.relevant_branches(tree).tolist() == [0]
    assert hm.GreedyPathCorrectness(level="intent").name == "path_intent"


@pytest.mark.parametrize("n_above", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_every_utility_equals_plain_loops_below_nodes_with_a_single_child(n_above, seed):
    rng = np.random.default_rng(seed)
    nested = {"left": ["a", "b"], "right": {"only": ["c", "d"]}}
    for k in range(n_above):
        nested = {f"above{k}": nested}
    tree = hm.LabelTree.from_nested(nested)
    plain = PlainTree(tree)
    p = rng.dirichlet(np.ones(4), 40)
    levels = [
        family(level=level)
        for level in range(1, tree.height + 1)
        for family in (hm.GreedyPathCorrectness, hm.LevelCorrectness)
    ]
    for utility in [*levels, *random_utilities(rng, tree)]:
        expected = np.array([utility_values(utility, row, plain) for row in p])
        assert np.abs(utility.values(p, tree=tree) - expected).max() < 1e-12, utility


def test_a_walk_that_has_no_choice_yet_is_always_right():
    tree = hm.LabelTree.from_nested({"only": {"left": ["a", "b"], "right": ["c", "d"]}})
    first = hm.GreedyPathCorrectness(level=1)
    assert first.values([[0.4, 0.3, 0.2, 0.1]], tree=tree).tolist() == [[1, 1, 1, 1]]
    assert first.relevant_branches(tree).size == 0


def test_massive_payoffs_average_to_the_papers_closed_form():
    tree = hm.LabelTree.from_nested({"s1": ["i1", "i2", "i3"], "s2": ["j1", "j2"]})
    report = hm.SelectiveReport(0.55, 0.65)
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(5, 0.4), 500)
    score = (p * report.values(p, tree=tree)).sum(axis=1)
    for row, value in zip(p, score, strict=True):
        groups = row[:3].sum(), row[3:].sum()
        s = max(groups)
        t = max(row[:3]) if groups[0] >= groups[1] else max(row[3:])
        expected = 0.0 if s < 0.55 else 5 / 4 * s - 1 if t / s < 0.65 else 1.5 * t + 0.5 * s - 1
        assert value == pytest.approx(expected, abs=1e-12)


def test_a_threshold_of_one_is_met_by_a_certain_prediction_only():
    report = hm.SelectiveReport(1.0, 1.0)
    assert report.values([[1, 0, 0, 0, 0]], tree=TREE).tolist() == [[1, -0.5, -1, -1, -1]]
    assert report.values([[0.5, 0.5, 0, 0, 0]], tree=TREE)[0].tolist() == [0.25, 0.25, -1, -1, -1]
    assert not report.values([[0.5, 0.49, 0.01, 0, 0]], tree=TREE).any()
    assert report.relevant_branches(TREE).size == 3


@settings(deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([3, 5, 10, 20, 100]))
def test_shares_of_votes_are_decided_on_as_exact_arithmetic_does(seed, n_votes):
    """Predictions of forests and neighbours: zeros and ties are common, sums are rounded."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng)
    plain = PlainTree(tree)
    votes = rng.multinomial(n_votes, rng.dirichlet(np.full(tree.n_leaves, 0.5)), size=5)
    for utility in random_utilities(rng, tree):
        if utility.family == "CustomUtility":
            continue
        found = utility.values(votes / n_votes, tree=tree)
        for row, values in zip(votes.tolist(), found, strict=True):
            exact = np.array([Fraction(count, n_votes) for count in row])
            assert values == pytest.approx(utility_values(utility, exact, plain), abs=1e-12)


def test_a_tie_acts_and_the_first_group_wins_it():
    tree = hm.LabelTree.from_nested({"u": ["a"], "v": ["b", "c", "d"]})
    tied = [[0.5, 0.5, 0, 0]]
    for family in (hm.LevelCorrectness, hm.GreedyPathCorrectness):
        assert family(level=1).values(tied, tree=tree).tolist() == [[1, 0, 0, 0]]
    numbers = hm.familiar_numbers(tied * 100, ["a"] * 100, tree=tree).to_frame()
    assert set(numbers.loc[numbers["name"].str.startswith("accuracy"), "value"]) == {1.0}
    act = hm.BinaryAction("act", active=tree.leaves, favours=["b"], threshold=0.5)
    assert act.values([[0.4, 0.5, 0.1, 0]], tree=tree)[0, 1] == 0.5


def test_reprs_show_what_was_chosen():
    assert repr(hm.TopK(3)) == "TopK(k=3)"
    assert repr(hm.LevelCorrectness(level=2, units="EUR", scale=5)) == (
        "LevelCorrectness(units='EUR', scale=5, level=2)"
    )


@pytest.mark.parametrize("k", range(1, 8))
def test_the_k_likeliest_leaves_are_the_first_of_a_stable_sort(k):
    # Few distinct numbers, so that most rows have ties, at the k-th place too.
    p = np.random.default_rng(k).integers(1, 4, (200, 8)).astype(float)
    p /= p.sum(axis=1, keepdims=True)
    tree = hm.LabelTree.flat([f"leaf {place}" for place in range(8)])
    expected = np.zeros_like(p)
    np.put_along_axis(expected, np.argsort(-p, axis=1, kind="stable")[:, :k], 1.0, axis=1)
    np.testing.assert_array_equal(hm.TopK(k).values(p, tree=tree), expected)
