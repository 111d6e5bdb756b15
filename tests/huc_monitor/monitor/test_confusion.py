"""Which children of a branch are mistaken for each other, against a count by hand."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.monitor.confusion import (
    Confusion,
    count_pairs,
    find_confusion,
    keep_pairs,
    kept_pairs,
    n_pairs,
)
from huc_monitor.monitor.drift import children

TREE = hm.LabelTree.from_nested(
    {"billing": {"refund": None, "charge": ["card", "bank"]}, "help": ["login", "crash", "other"]}
)


def rows(seed, n=200):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(TREE.n_leaves, 0.6), size=n)
    return p, rng.integers(0, TREE.n_leaves, n)


def count_by_hand(branch, p, labels):
    """Go through the rows one by one, and the leaves under every child by their names."""
    names, _ = children(TREE, branch)
    below = [
        {name} if name in TREE.leaves else {x for x in TREE.leaves if name in TREE.ancestors(x)}
        for name in names
    ]
    counts, mass = np.zeros((len(names),) * 2), np.zeros((len(names),) * 2)
    for row, label in zip(p, labels, strict=True):
        happened = [k for k, leaves in enumerate(below) if TREE.leaves[label] in leaves]
        if happened:
            share = [sum(row[TREE.leaves.index(x)] for x in leaves) for leaves in below]
            j = int(np.argmax(share))
            counts[j, happened[0]] += 1
            mass[j] += np.array(share) / sum(share)
    return counts, mass


def find_by_hand(counts, mass, reference):
    """Try every pair of children."""
    best = None
    for j in range(len(counts)):
        n = counts[j].sum()
        for k in range(len(counts)):
            if not n:
                continue
            usual = mass[j, k] / n
            if reference is not None and reference[j].sum() >= 10:
                usual = reference[j, k] / reference[j].sum()
            excess = counts[j, k] - n * usual
            if best is None or excess > best[0] + 1e-9:
                best = excess, j, k
    return best


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), branch=st.integers(0, 3), known=st.booleans())
def test_the_pair_is_the_one_that_a_search_by_hand_finds(seed, branch, known):
    p, labels = rows(seed)
    pairs = count_pairs(TREE, branch, p, labels)
    counts, mass = count_by_hand(branch, p, labels)
    np.testing.assert_array_equal(pairs.counts, counts)
    np.testing.assert_allclose(pairs.mass, mass, atol=1e-9)
    reference = count_by_hand(branch, *rows(seed + 1, 400))[0] if known else None
    found = find_confusion(TREE, branch, pairs, reference=reference, changed=known)
    excess, j, k = find_by_hand(counts, mass, reference)
    names, _ = children(TREE, branch)
    assert (found is None) == (excess < 0.01 * counts.sum())
    if found is not None:
        assert (found.likeliest, found.instead) == (names[j], names[k])
        assert found.n == counts[j].sum()
        assert found.instead_seen == pytest.approx(counts[j, k] / found.n)
        assert found.seen == pytest.approx(counts[j, j] / found.n)
        assert found.instead_predicted == pytest.approx(mass[j, k] / found.n)


def fisher_by_hand(now, n_now, before, n_before):
    total, hits = n_now + n_before, now + before
    ways = sum(
        comb(hits, x) * comb(total - hits, n_now - x) for x in range(now, min(n_now, hits) + 1)
    )
    return float(Fraction(ways, comb(total, n_now)))


@pytest.mark.parametrize("factor", [0.999, 1.001])
def test_a_pair_is_new_where_fishers_test_says_so(factor):
    tree = hm.LabelTree.flat(["a", "b"])
    p = np.tile([0.8, 0.2], (50, 1))
    pairs = count_pairs(tree, 0, p, (np.arange(50) < 25).astype(int))
    reference = np.array([[64.0, 16.0], [0.0, 0.0]])
    least = factor * fisher_by_hand(25, 50, 16, 80)
    found = find_confusion(tree, 0, pairs, reference=reference, changed=True, least_p=least)
    assert found.reference_seen == 0.2
    assert found.is_new == (factor > 1)
    assert ("so it is new" in str(found)) == (factor > 1)


def test_it_is_told_with_its_rows_and_the_figure_of_the_reference():
    found = Confusion(
        node="billing",
        likeliest="refund",
        instead="charge",
        n=1180,
        predicted=0.61,
        seen=0.38,
        instead_predicted=0.09,
        instead_seen=0.47,
        reference_seen=0.08,
        is_new=True,
    )
    assert str(found) == (
        "Of 1,180 rows of any predicted utility in which *refund* was the likeliest under "
        "*billing*, it was predicted in 61.0% and seen in 38.0%; *charge* happened in 47.0% "
        "(predicted 9.0%; in the reference 8.0%, so it is new by more than chance)."
    )


def test_children_swapped_for_each_other_are_told_apart_though_their_shares_agree():
    tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    p = np.repeat([[0.72, 0.08, 0.2], [0.08, 0.72, 0.2]], 500, axis=0)
    labels = np.concatenate([np.arange(500) % 10 < 6, np.arange(500) % 10 >= 6]).astype(int)
    found = find_confusion(tree, 1, count_pairs(tree, 1, p, labels))
    assert (found.likeliest, found.instead, found.n) == ("lion", "lynx", 500)
    figures = found.predicted, found.seen, found.instead_predicted, found.instead_seen
    assert figures == pytest.approx((0.9, 0.4, 0.1, 0.6))
    assert "reference" not in str(found)


def test_a_child_that_happens_too_often_where_it_is_the_likeliest_is_told_by_itself():
    tree = hm.LabelTree.flat(["a", "b"])
    p = np.tile([0.6, 0.4], (50, 1))
    found = find_confusion(tree, 0, count_pairs(tree, 0, p, np.zeros(50, int)))
    assert str(found) == (
        "Of 50 rows of any predicted utility in which *a* was the likeliest under *root*, it was "
        "seen in 100.0% (predicted 60.0%)."
    )


def test_what_was_as_frequent_in_the_reference_is_not_what_changed():
    tree = hm.LabelTree.flat(["a", "b", "c"])
    p = np.repeat([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], 100, axis=0)
    labels = np.concatenate([np.arange(100) % 2, np.where(np.arange(100) < 20, 2, 1)])
    pairs = count_pairs(tree, 0, p, labels)
    reference = np.array([[50, 50, 0], [0, 100, 0], [0, 0, 0]], dtype=float)
    stood = find_confusion(tree, 0, pairs, reference=reference)
    moved = find_confusion(tree, 0, pairs, reference=reference, changed=True)
    assert (stood.likeliest, stood.instead, stood.reference_seen) == ("a", "b", 0.5)
    assert (moved.likeliest, moved.instead, moved.reference_seen) == ("b", "c", 0.0)


def test_nothing_is_said_of_a_hundredth_of_the_rows_or_where_nobody_came():
    tree = hm.LabelTree.flat(["a", "b", "c"])
    p = np.tile([1.0, 0.0, 0.0], (1000, 1))
    for n_wrong, told in ((9, False), (11, True)):
        pairs = count_pairs(tree, 0, p, (np.arange(1000) < n_wrong).astype(int))
        assert (find_confusion(tree, 0, pairs) is not None) == told
    nobody = count_pairs(
        TREE, TREE.branch_index("charge"), p[:4] @ np.ones((3, 6)) / 6, np.zeros(4, int)
    )
    assert find_confusion(TREE, TREE.branch_index("charge"), nobody) is None


def test_what_is_kept_of_a_reference_gives_its_counts_back():
    p, labels = rows(3)
    app = np.arange(200) % 3 == 0
    kept = keep_pairs(TREE, p, labels, {"all": np.ones(200, bool), "app": app})
    for branch in range(len(TREE.branches)):
        expected = count_pairs(TREE, branch, p[app], labels[app]).counts
        np.testing.assert_array_equal(kept_pairs(TREE, branch, kept["app"]), expected)
    assert kept_pairs(TREE, 0, None) is None
    assert n_pairs(TREE, 2) == 2 * (2 + 2 + 2 + 6)


def test_of_a_large_tree_the_subgroups_that_come_first_are_kept(monkeypatch):
    p, labels = rows(3)
    whole = np.ones(200, bool)
    sizes = {
        name: cells.size for name, (cells, _) in keep_pairs(TREE, p, labels, {"all": whole}).items()
    }
    monkeypatch.setattr("huc_monitor.monitor.confusion._MOST_CELLS", sizes["all"])
    assert set(keep_pairs(TREE, p, labels, {"a": whole, "all": whole})) == {"all"}
    monkeypatch.setattr("huc_monitor.monitor.confusion._MOST_CELLS", sizes["all"] - 1)
    assert keep_pairs(TREE, p, labels, {"a": whole, "all": whole}) == {}
