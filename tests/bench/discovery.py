"""Segments nobody named: found, certified, and how well their rule overlaps the planted one.

``python tests/bench/discovery.py [--first 0] [--seeds 50] [--calibrated 200]``. 20,000 rows with 12
features, half numbers. In a segment of two conditions with 5 % of the rows, one branch is off by 15
points. A decision tree on residuals, the least that a user would do, stands beside (mcgrad: in
``peers/``). Then calibrated rows, and the time of 1,000,000 rows against that of a plain audit.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeRegressor

import huc_monitor as hm

TREE = hm.LabelTree.from_nested(
    {"billing": ["refund", "charge"], "delivery": ["late", "lost"], "account": ["login", "close"]}
)


def make_rows(n: int, seed: int, *, off: float):
    """Draw predictions, labels, features, and the planted segment."""
    rng = np.random.default_rng(seed)
    numbers = {f"number{k}": rng.normal(size=n) for k in range(6)}
    texts = {f"text{k}": rng.choice(list("abcde"), n) for k in range(6)}
    frame = pd.DataFrame(numbers | texts)
    value = rng.choice(list("abcde"))
    cut = np.quantile(frame["number0"], 0.75)  # a quarter of a fifth: 5 %
    inside = ((frame["text0"] == value) & (frame["number0"] > cut)).to_numpy()
    p = rng.dirichlet(np.full(6, 1.0), n)
    truth = p.copy()
    # The root's choice: "billing" is 15 points likelier than predicted, at the others' expense.
    share = p[:, :2].sum(axis=1)
    moved = np.clip(share + off, 0, 1)
    truth[inside, :2] *= (moved / share)[inside, None]
    truth[inside, 2:] *= ((1 - moved) / (1 - share))[inside, None]
    y = (truth.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1).clip(0, 5)
    return p, y, frame, inside


def overlap(one, other) -> float:
    return float((one & other).sum() / max(1, (one | other).sum()))


def tree_on_residuals(p, y, frame, utility) -> np.ndarray:
    """Return the rows of the leaf with the largest mean residual of a small regression tree."""
    (rows,) = hm.decompose(p, y, tree=TREE, utilities=[utility])
    residual = rows.to_frame()["residual"]
    x = pd.get_dummies(frame).to_numpy(dtype=float)
    model = DecisionTreeRegressor(max_leaf_nodes=12, min_samples_leaf=200).fit(x, residual)
    leaf = model.apply(x)
    worst = max(np.unique(leaf), key=lambda one: abs(residual[leaf == one].mean()))
    return leaf == worst


def run(first: int, seeds: int, n: int, calibrated: int) -> None:
    utility = hm.Payoff("billing", {"refund": 1.0, "charge": 1.0})
    options = {"tree": TREE, "utilities": [utility]}
    found, jaccard, plain, false, again = [], [], [], [], 0
    for seed in range(first, first + seeds):
        p, y, frame, inside = make_rows(n, seed, off=0.15)
        result = hm.discover(p, y, features=frame, **options)
        groups = result.make_subgroups(frame).weights(frame, n)[1:]
        held = [overlap(group.astype(bool), inside) for group in groups]
        best = max(held, default=0.0)
        again += max(0, sum(one > 0.1 for one in held) - 1)
        found.append(best > 0.3)
        jaccard.append(best)
        plain.append(overlap(tree_on_residuals(p, y, frame, utility), inside))
    for seed in range(calibrated):
        p, y, frame, _ = make_rows(n, 10_000 + first + seed, off=0.0)
        false.append(bool(hm.discover(p, y, features=frame, **options).certified))
    error = np.sqrt(0.25 / seeds)
    print(f"{seeds} seeds, {n:,} rows (standard error of a share at most {error:.3f})")
    print(f"found and certified: {np.mean(found):.2f}; median overlap {np.median(jaccard):.2f}")
    print(f"decision tree on residuals: median overlap {np.median(plain):.2f}, no certificate")
    print(f"certified once more, overlapping by more than 0.1: {again}")
    few = sum(false[:50])
    print(f"certified on calibrated rows: {sum(false)} of {calibrated}, {few} of the first 50")


def cost(n: int) -> None:
    p, y, frame, _ = make_rows(n, 1, off=0.15)
    seconds = {}
    for name in ("audit", "discover", "audit", "discover"):
        started = time.perf_counter()
        if name == "audit":
            hm.audit(p, y, tree=TREE)
        else:
            print(hm.discover(p, y, tree=TREE, features=frame))
        seconds[name] = time.perf_counter() - started
    ratio = seconds["discover"] / seconds["audit"]
    print(f"{n:,} rows: audit {seconds['audit']:.1f} s, discover {ratio:.1f} times as long")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--calibrated", type=int, default=200)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    given = parser.parse_args()
    if given.seeds:
        run(given.first, given.seeds, given.rows, given.calibrated)
    if given.large:
        cost(given.large)
