from __future__ import annotations

import numpy as np
import pytest

import huc_monitor as hm
from huc_monitor.monitor.drift import DriftPolicy, summarise
from huc_monitor.monitor.hints import (
    Cancellation,
    branch_frequencies,
    cancellation,
    child_hints,
    interval_moments,
    preferred_hints,
    rows_inside,
    shift_hints,
)
from huc_monitor.monitor.records import DriftFinding

TREE = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
PAY = hm.Payoff("pay", {"a": -1, "b": 1, "c": 1, "d": 1})


def sample(n=300, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(4), size=n)
    labels = rng.integers(0, 4, size=n)
    (rows,) = hm.decompose(p, labels, tree=TREE, utilities=[PAY])
    return p, labels, rows


def test_moments_on_an_interval_are_sums_of_the_decomposition():
    _, _, rows = sample()
    weights = (np.arange(300) % 3 > 0).astype(np.uint8)
    inside = rows_inside(rows, weights, 0.1, 0.6)
    frame = rows.to_frame()
    chosen = frame["score"].between(0.1, 0.6) & (weights > 0)
    expected = frame[chosen][["root", "left"]].sum() / 300
    np.testing.assert_allclose(interval_moments(rows, weights, inside), expected)


def test_moments_agree_with_the_audit_on_the_interval_it_found():
    p, labels, rows = sample()
    result = hm.audit(p, labels, tree=TREE, utilities=[PAY], bounds=None)
    weights = np.ones(300, dtype=np.uint8)
    for row in result.to_frame().itertuples():
        inside = rows_inside(rows, weights, row.interval_low, row.interval_high)
        slot = list(rows.relevant).index(TREE.branch_index(row.node))
        assert interval_moments(rows, weights, inside)[slot] == pytest.approx(row.moment)


def test_a_branch_that_hides_another_is_named_with_its_moment():
    labels = [0, 0, 2, 2, 2, 3, 3, 3]
    (rows,) = hm.decompose([[0.25] * 4] * 8, labels, tree=TREE, utilities=[PAY])
    ones = np.ones(8, dtype=np.uint8)
    assert cancellation(rows, ones, np.arange(8), "left", -0.25) == Cancellation("root", 0.25)


def test_nothing_is_hidden_where_branches_agree():
    (rows,) = hm.decompose([[0.25] * 4] * 8, [0] * 8, tree=TREE, utilities=[PAY])
    ones = np.ones(8, dtype=np.uint8)
    moments = interval_moments(rows, ones, np.arange(8))
    assert cancellation(rows, ones, np.arange(8), "left", moments[1]) == Cancellation()


def test_frequencies_are_shares_among_the_cases_under_the_branch():
    mass, counts = np.array([3.0, 1.0, 5.0, 1.0]), np.array([1, 3, 0, 6])
    found = branch_frequencies(TREE, TREE.branch_index("left"), mass, counts)
    assert found == {
        "a": {"predicted": 0.75, "observed": 0.25},
        "b": {"predicted": 0.25, "observed": 0.75},
    }
    assert branch_frequencies(TREE, TREE.branch_index("left"), mass, np.array([0, 0, 1, 1])) == {}


def test_children_are_named_only_where_they_differ():
    shares = {
        "a": {"predicted": 0.5, "observed": 0.3},
        "b": {"predicted": 0.3, "observed": 0.5},
        "c": {"predicted": 0.2, "observed": 0.2},
    }
    (hint,) = child_hints("left", shares)
    assert "*a* was predicted in 50.0% and seen in 30.0%" in hint
    assert "*c*" not in hint
    assert child_hints("left", {"c": shares["c"]}) == []


def test_where_nothing_moved_the_model_is_what_changed():
    p, labels, rows = sample(4000)
    whole = hm.Subgroups.whole()
    reference = summarise(p, [rows], whole.weights(None, 4000), subgroups=whole, labels=labels)
    settings = {"tree": TREE, "reference": reference, "policy": DriftPolicy()}
    (hint,) = shift_hints([], labels=labels, changed=True, **settings)
    assert hint.startswith("Predictions, subgroups and the label mix are where they were")
    (same,) = shift_hints([], labels=labels, changed=False, **settings)
    assert same.startswith("The reference shows as much")
    assert shift_hints([], labels=labels, changed=None, **settings) == []
    moved = DriftFinding(
        kind="subgroup",
        name="age<5",
        distance=0.3,
        lower=0.2,
        drifted=True,
        before={"share": 0.1},
        after={"share": 0.4},
    )
    hints = shift_hints([moved], labels=np.zeros(4000, int), **settings)
    assert "subgroup age<5 from 10.0% to 40.0%" in hints[0]
    assert "The label mix moved since the reference: *a* from" in hints[1]


def test_without_a_reference_nothing_is_said_about_movement():
    shifted = shift_hints([], tree=TREE, labels=np.array([0]), reference=None, policy=DriftPolicy())
    assert shifted == []


def test_children_mistaken_for_each_other_are_told_apart_though_their_shares_agree():
    tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    p = np.repeat([[0.72, 0.08, 0.2], [0.08, 0.72, 0.2]], 500, axis=0)
    labels = np.concatenate([np.arange(500) % 10 < 6, np.arange(500) % 10 >= 6]).astype(int)
    shares = branch_frequencies(tree, 1, p.sum(axis=0), np.bincount(labels, minlength=3))
    assert child_hints("cat", shares) == []
    (hint,) = preferred_hints(tree, 1, p, labels)
    assert hint == (
        "Where *lion* was the likeliest under *cat*, it was predicted in 90.0% and seen in 40.0%."
    )


def test_nothing_is_said_where_the_likeliest_child_is_seen_as_predicted_or_nobody_came():
    tree = hm.LabelTree.flat(["a", "b"])
    p = np.full((10, 2), 0.5)
    assert preferred_hints(tree, 0, p, np.arange(10) % 2) == []
    nested = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    assert preferred_hints(nested, 1, np.full((4, 3), 1 / 3), np.full(4, 2)) == []
