from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import huc_monitor as hm
from huc_monitor.monitor import hints as hints_module
from huc_monitor.monitor.drift import DriftPolicy, summarise
from huc_monitor.monitor.hints import (
    Cancellation,
    branch_frequencies,
    cancellation,
    child_hints,
    interval_moments,
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
    for row in result.to_frame(all_columns=True).itertuples():
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
    assert hint.startswith(
        "Predictions, subgroups and the label mix did not move by more than chance"
    )
    (dated,) = shift_hints([], labels=labels, changed=True, when=" (March)", **settings)
    assert "since the reference (March): inputs look as before, and outcomes differ" in dated
    untested = {**settings, "policy": DriftPolicy(enabled=False)}
    assert shift_hints([], labels=labels, changed=True, **untested) == []
    (same,) = shift_hints([], labels=labels, changed=False, **settings)
    assert same.startswith("The reference shows about as much")
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


@pytest.mark.parametrize("size", [1.0, 0.25])
@pytest.mark.parametrize(
    ("moments", "node", "found"),
    [
        ([0.5, -1.0, 0.0], "left", Cancellation("root", 0.5)),  # both at their limits
        ([0.0, -1.0, 0.75], "left", Cancellation("right", 0.75)),
        ([0.4375, -1.0, 0.125], "left", Cancellation()),  # no single branch is large enough
        ([0.625, -1.25, 0.0], "left", Cancellation()),  # the sum still shows it
        ([0.75, -0.5, 0.0], "root", Cancellation()),  # nothing hides behind itself
        ([], "left", Cancellation()),
    ],
)
def test_a_branch_hides_another_from_half_of_its_moment_on(monkeypatch, moments, node, found, size):
    monkeypatch.setattr(hints_module, "interval_moments", lambda *_: size * np.array(moments))
    rows = SimpleNamespace(tree=TREE, relevant=np.arange(len(moments)))
    moment = None if found.moment is None else size * found.moment
    assert cancellation(rows, None, None, node, -size) == Cancellation(found.node, moment)


def test_the_two_children_that_differ_most_are_named_the_largest_gap_first():
    shares = {
        "a": {"predicted": 0.30, "observed": 0.35},
        "b": {"predicted": 0.50, "observed": 0.25},
        "c": {"predicted": 0.20, "observed": 0.40},
    }
    (hint,) = child_hints("left", shares)
    assert hint.index("*b*") < hint.index("*c*")
    assert "*a*" not in hint


def test_a_gap_of_one_in_a_hundred_is_told_and_a_smaller_one_is_not():
    assert child_hints("left", {"a": {"predicted": 0.0, "observed": 0.01}}) != []
    assert child_hints("left", {"a": {"predicted": 0.0, "observed": 0.0099}}) == []


def test_a_branch_without_predicted_mass_has_no_frequencies():
    assert branch_frequencies(TREE, 1, np.array([0.0, 0.0, 1.0, 1.0]), np.array([1, 1, 0, 0])) == {}


def a_move(kind, name, before, after):
    return DriftFinding(
        kind=kind, name=name, distance=0.3, lower=0.2, drifted=True, before=before, after=after
    )


def test_one_subgroup_and_one_other_movement_are_told_whatever_their_order():
    p, labels, rows = sample(100)
    whole = hm.Subgroups.whole()
    reference = summarise(p, [rows], whole.weights(None, 100), subgroups=whole, labels=labels)
    scores = a_move("scores", "pay", {"median": 0.1}, {"median": 0.25})
    branch = a_move("branch", "left", {"b": 0.5, "a": 0.5}, {"b": 0.75, "a": 0.25})
    old, new = (a_move("subgroup", n, {"share": 0.1}, {"share": 0.4}) for n in ("old", "new"))
    what = {"tree": TREE, "labels": labels, "reference": reference, "policy": DriftPolicy()}
    assert shift_hints([scores, branch, old, new], changed=True, **what) == [
        "The inputs moved since the reference: subgroup old from 10.0% to 40.0% of the rows.",
        "Predicted utility *pay* moved since the reference: median from 0.100 to 0.250.",
    ]
    assert shift_hints([branch], **what) == [
        "Predictions moved since the reference: under *left*, *b* from 50.0% to 75.0% of the mass."
    ]


def test_another_version_is_named_beside_a_change_though_its_predictions_did_not_move():
    p, labels, rows = sample(100)
    whole = hm.Subgroups.whole()
    parts = [rows], whole.weights(None, 100)
    reference = summarise(p, *parts, subgroups=whole, labels=labels, version="2")
    what = {"tree": TREE, "labels": labels, "reference": reference, "policy": DriftPolicy()}
    named = "Version 3 answers now, and the reference is of version 2."
    (same,) = shift_hints([], changed=True, version="2", **what)
    assert same.startswith("Predictions, subgroups and the label mix did not move")
    assert shift_hints([], changed=True, version="3", **what) == [named, same]
    assert named not in shift_hints([], changed=False, version="3", **what)
    moved = a_move("branch", "left", {"b": 0.5, "a": 0.5}, {"b": 0.75, "a": 0.25})
    (told,) = shift_hints([replace(moved, versions=("2", "3"))], changed=True, version="3", **what)
    assert told.endswith(named)
    assert told.count(named) == 1


def test_an_interval_includes_both_its_ends_and_leaves_out_rows_of_no_weight():
    rows = SimpleNamespace(scores=np.array([0.1, 0.2, 0.3, 0.4, 0.2]))
    weights = np.array([1, 1, 1, 1, 0])
    assert rows_inside(rows, weights, 0.2, 0.3).tolist() == [1, 2]


def test_an_empty_interval_has_a_moment_of_nothing_for_every_branch():
    _, _, rows = sample(10)
    ones = np.ones(10, dtype=np.uint8)
    found = interval_moments(rows, ones, np.empty(0, dtype=np.int64))
    assert found.tolist() == [0.0, 0.0]
