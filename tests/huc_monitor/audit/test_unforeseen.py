"""Labels where the model put almost no mass: counted by hand, bounded, and told from chance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

import huc_monitor as hm
from huc_monitor.audit.scan import Groups
from huc_monitor.audit.sparse_rows import Rest, SparseRows
from huc_monitor.audit.unforeseen import LEAST_MASS, count_unforeseen, find_rises

TREE = hm.LabelTree.from_nested(
    {"dos": ["neptune", "smurf"], "probe": ["satan", "nmap"], "x": None}
)
NODES = [*TREE.leaves, *TREE.branches]
N_ROWS = 400


def groups(n, *, clusters=None, seed=0):
    app = np.random.default_rng(seed).random(n) < 0.3
    weights = [np.ones(n, dtype=np.uint8), app.astype(np.uint8), np.linspace(-1, 1, n)]
    return Groups.of(weights, None, None, clusters)


def make_rows(n, *, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(TREE.n_leaves, 0.15), n)
    labels = rng.integers(0, len(NODES), n)
    return p, np.where(labels == TREE.n_leaves, 0, labels)


def leaves_of(node):
    return {k for k, leaf in enumerate(TREE.leaves) if node in (leaf, *TREE.ancestors(leaf))}


def test_counts_are_those_of_a_loop_over_rows():
    p, labels = make_rows(N_ROWS, seed=1)
    how = groups(N_ROWS)
    wanted = np.zeros((3, 3, len(NODES)))
    for i, row in enumerate(p):
        mine = leaves_of(NODES[labels[i]])
        for v, node in enumerate(NODES):
            below = leaves_of(node)
            mass = sum(row[k] for k in below)
            if mass >= LEAST_MASS or mine > below:
                continue
            for c in (0, 1):
                one = float(how.weights[c][i])
                wanted[:, c, v] += one, one * mass, one * (mine <= below)
    found = count_unforeseen(TREE, p, labels, how)
    np.testing.assert_allclose(found, wanted, atol=1e-9)
    assert found[2].sum() > 50
    sparse = SparseRows.of_dense(p, Rest.uniform(TREE.n_leaves))
    np.testing.assert_allclose(count_unforeseen(TREE, sparse, labels, how), wanted, atol=1e-9)


def test_a_cluster_counts_once_for_every_node():
    p = np.tile([1.0, 0.0, 0.0, 0.0, 0.0], (6, 1))
    labels = np.array([1, 1, 1, 1, 2, 2])
    found = count_unforeseen(TREE, p, labels, groups(6, clusters=np.array([7, 7, 7, 8, 8, 8])))
    seen = dict(zip(NODES, found[2, 0].tolist(), strict=True))
    assert (seen["smurf"], seen["satan"], seen["probe"], seen["dos"]) == (2, 1, 1, 0)


def test_rows_with_chosen_labels_are_not_counted():
    p, labels = make_rows(20, seed=2)
    chosen = Groups.of([np.ones(20, dtype=np.uint8)], None, np.linspace(0.2, 0.9, 20))
    assert count_unforeseen(TREE, p, labels, chosen).size == 0


def table(n, seen, *, mass=0.0):
    """Counts of everyone, of n rows that gave every node next to nothing."""
    found = np.zeros((3, 1, len(NODES)))
    found[0], found[1] = n, mass
    for name, k in seen.items():
        found[2, 0, NODES.index(name)] = k
    return found


def rises(before, after, error=1e-3, **more):
    old = table(3000, before, mass=more.get("old", 0.0))
    new = table(1000, after, mass=more.get("new", 0.0))
    return find_rises(TREE, (old, 3000), (new, 1000), error)


def test_a_leaf_that_was_never_seen_is_told_and_not_the_branch_above_it():
    (found,) = rises({}, {"smurf": 20, "dos": 20})
    assert (found.counts.name, found.counts.n_seen, found.counts.n_reference) == ("smurf", 20, 0)
    assert 0 < found.lower < found.after - found.before < found.upper
    assert found.counts.say("S") == (
        "20 of 1,000 rows in which S had a probability below 1 % turned out to be S (0 expected); "
        "in the reference 0 of 3,000"
    )


def test_leaves_that_each_explain_little_are_told_as_their_branch():
    (found,) = rises({}, {"smurf": 5, "neptune": 5, "dos": 30})
    assert found.counts.name == "dos"


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [
        ({"smurf": 60}, {"smurf": 20}, {}),  # it stands
        ({}, {"smurf": 4}, {}),  # too few to tell from chance
        ({}, {"smurf": 20}, {"old": 0.1, "new": 25.0}),  # more of them were predicted
        ({"smurf": 2}, {"smurf": 20}, {"old": 2.0, "new": 20.0}),  # and came as predicted
    ],
)
def test_what_stands_what_is_chance_and_what_was_predicted_is_no_rise(before, after, more):
    assert rises(before, after, **more) == []


def test_false_rises_are_rarer_than_the_error_and_true_ones_are_bounded():
    rng = np.random.default_rng(5)
    rates = rng.uniform(0.001, 0.02, TREE.n_leaves)
    false, missed, told = 0, 0, 0
    for _ in range(600):
        old, new = (
            table(n, dict(zip(TREE.leaves, rng.binomial(n, rate), strict=True)))
            for n, rate in ((3000, rates), (1000, rates))
        )
        false += bool(find_rises(TREE, (old, 3000), (new, 1000), 0.3))
        new = table(1000, dict(zip(TREE.leaves, rng.binomial(1000, 4 * rates), strict=True)))
        for found in find_rises(TREE, (old, 3000), (new, 1000), 0.3):
            true = 3 * rates[NODES.index(found.counts.name)]
            missed += not found.lower <= true <= found.upper
            told += 1
    assert told > 600
    assert missed / 600 <= 0.3
    # The promise is 0.3 for eight nodes; the test is exact, so not far above chance.
    assert binomtest(false, 600, 0.3, alternative="greater").pvalue > 0.01
