"""Random trees, utilities and windows, small enough for brute force."""

from __future__ import annotations

import numpy as np
import pandas as pd

import huc_monitor as hm


def random_nested(rng, depth, counter, *, top=True):
    """Nested dictionary of up to `depth` levels, with unary and multiway nodes."""
    size = int(rng.integers(2, 4)) if top else int(rng.choice([1, 2, 2, 3]))
    nested = {}
    for _ in range(size):
        counter[0] += 1
        name = f"n{counter[0]}"
        deeper = depth > 1 and counter[0] < 14 and rng.random() < 0.6
        nested[name] = random_nested(rng, depth - 1, counter, top=False) if deeper else None
    return nested


def random_tree(rng):
    return hm.LabelTree.from_nested(random_nested(rng, int(rng.integers(1, 7)), [0]))


def some(rng, names, at_least=1):
    size = int(rng.integers(at_least, len(names) + 1))
    return [str(name) for name in rng.choice(list(names), size, replace=False)]


def eighths(rng, size):
    return rng.integers(-8, 9, size) / 8


def random_utilities(rng, tree):
    """Three utilities of different families."""
    anywhere = (*tree.leaves, *tree.nodes)
    level = int(rng.integers(1, tree.height + 1))
    favours = some(rng, tree.leaves)
    active = sorted({*favours, *some(rng, tree.leaves)})
    payoffs = dict(zip(tree.leaves, eighths(rng, tree.n_leaves).tolist(), strict=True))
    actions = {
        f"a{j}": dict(zip(tree.leaves, eighths(rng, tree.n_leaves).tolist(), strict=True))
        for j in range(int(rng.integers(1, 4)))
    }
    thresholds = rng.choice([0.25, 0.5, 0.625, 0.75], 2)
    families = [
        hm.Payoff("payoff", payoffs),
        hm.SubtreeIndicator(node=str(rng.choice(anywhere))),
        hm.RankPayoff("rank", eighths(rng, int(rng.integers(1, tree.n_leaves + 1))).tolist()),
        hm.TopK(int(rng.integers(1, tree.n_leaves + 1))),
        hm.ActionPayoff("action", actions),
        hm.BinaryAction(
            "binary", active=active, favours=favours, threshold=float(rng.choice([0.25, 0.5, 0.75]))
        ),
        hm.LevelCorrectness(level=level),
        hm.GreedyPathCorrectness(level=level),
        hm.SelectiveReport(float(thresholds[0]), float(thresholds[1]), level=level),
        hm.CustomUtility("custom", lambda p: 2 * p**2 - 1),
    ]
    return [families[k] for k in rng.choice(len(families), 3, replace=False)]


def random_rows(rng, tree):
    """Predictions with heavy ties: a few distinct vectors, of dyadic or of free probabilities."""
    n, k = int(rng.integers(1, 30)), tree.n_leaves
    pool = int(rng.integers(1, 9))
    if rng.random() < 0.5:
        # Multiples of 1/256: every sum is exact, so that equal scores are equal in any order.
        cuts = np.sort(rng.integers(0, 257 - k, (pool, k - 1)), axis=1)
        edges = np.hstack([np.zeros((pool, 1)), cuts, np.full((pool, 1), 256 - k)])
        vectors = (np.diff(edges, axis=1) + 1) / 256
    else:
        vectors = rng.dirichlet(np.full(k, 0.7), pool)
        vectors = (vectors + 1e-3) / (vectors + 1e-3).sum(axis=1, keepdims=True)
    p = vectors[rng.integers(0, pool, n)]
    labels = np.array(tree.leaves)[rng.integers(0, k, n)]
    frame = pd.DataFrame({"g": rng.choice(["x", "y"], n), "w": rng.uniform(-1, 1, n)})
    return p, labels, frame
