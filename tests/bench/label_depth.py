"""Do bounds hold when labels stop at random depths? Prints one JSON line per answer.

Windows are drawn from a known population of 600 predictions on a tree of eight leaves and three
levels, with correctness at every level, a payoff and three subgroups. In every window, each branch
has a share of labels that stop there, drawn from 0 to 80 %; the old stop more often. The truth is
the audit of every prediction with every leaf, weighted by its probability.

Run: python tests/bench/label_depth.py [--windows 600] [--draws 500] [--sizes 500,2000] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import pandas as pd

import huc_monitor as hm
from huc_monitor.tree.labels import LeafCodes

ATOMS = 600
TREE = hm.LabelTree.from_nested(
    {"a": {"a1": ["p", "q", "r"], "a2": ["s", "t"]}, "b": ["u", "v"], "c": None}
)
UTILITIES = [
    *(hm.LevelCorrectness(level=k) for k in (1, 2, 3)),
    hm.Payoff("pay", {"p": 1, "q": -0.5, "s": 0.4, "u": -1, "c": 0.2}),
]


def stop_labels(leaves: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Cut labels where ``stops`` says so: one row per label, one column per branch."""
    arrays, codes = TREE.arrays, leaves.copy()
    for branch in range(arrays.n_branches - 1, -1, -1):
        under = (leaves >= arrays.start[branch]) & (leaves < arrays.stop[branch])
        codes[under & stops[:, branch]] = TREE.n_leaves + branch
    return codes


def population(*, miscalibrated: bool) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """Predictions, the probabilities that are true, and features."""
    rng = np.random.default_rng(11)
    p = rng.dirichlet([2.0, 1.0, 0.7, 1.2, 0.5, 1.5, 0.6, 1.0], ATOMS)
    features = pd.DataFrame({"age": rng.uniform(20, 90, ATOMS)})
    truth = p.copy()
    if miscalibrated:
        truth[:, 1] *= 1.8
        truth[features["age"] >= 60, 4] *= 3.0
        truth /= truth.sum(axis=1, keepdims=True)
    return p, truth, features


def coverage(
    n: int, *, miscalibrated: bool, windows: int, n_draws: int, seed: int
) -> dict[str, float]:
    """Share of windows in which every candidate's bounds hold the true absolute moment."""
    p, truth, features = population(miscalibrated=miscalibrated)
    groups = hm.Subgroups.from_reference(features, {"age": [60]})
    what = {"tree": TREE, "utilities": UTILITIES, "subgroups": groups}
    k = TREE.n_leaves
    whole = hm.audit(
        np.repeat(p, k, axis=0),
        np.tile(np.arange(k), ATOMS),
        features=features.loc[features.index.repeat(k)],
        weights=truth.ravel(),
        bounds=None,
        **what,
    )
    moments = np.round(np.abs(whole.candidates.moment), 12)
    rng = np.random.default_rng([n, seed] if seed else n)
    held, alarms, widths = np.zeros(windows, dtype=bool), 0, []
    for window in range(windows):
        atoms = rng.integers(0, ATOMS, n)
        leaves = (rng.random(n)[:, None] > truth[atoms].cumsum(axis=1)).sum(axis=1)
        chances = rng.uniform(0, 0.8, TREE.arrays.n_branches)
        old = (features["age"].to_numpy()[atoms] >= 60)[:, None]
        stops = rng.random((n, chances.size)) < np.where(old, chances, 0.7 * chances)
        result = hm.audit(
            p[atoms],
            LeafCodes(stop_labels(np.minimum(leaves, k - 1), stops)),
            features=features.iloc[atoms],
            n_draws=n_draws,
            rng=window,
            **what,
        )
        table = result.candidates
        held[window] = ((table.lower <= moments) & (moments <= table.upper)).all()
        alarms += int((table.lower > moments + 1e-12).any())
        widths.append(float(table.radius.mean()))
    share = float(held.mean())
    return {
        "n": n,
        "miscalibrated": miscalibrated,
        "windows": windows,
        "coverage": round(share, 4),
        "monte_carlo_error": round(float(np.sqrt(share * (1 - share) / windows)), 4),
        "false_alarms": round(alarms / windows, 4),
        "mean_radius": round(float(np.mean(widths)), 4),
    }


def main() -> None:
    """Print coverage of every population and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=600)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--sizes", default="500,2000")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for n in map(int, given.sizes.split(",")):
        for miscalibrated in (False, True):
            start = time.perf_counter()
            found = coverage(
                n,
                miscalibrated=miscalibrated,
                windows=given.windows,
                n_draws=given.draws,
                seed=given.seed,
            )
            found |= {"seed": given.seed, "seconds": round(time.perf_counter() - start, 1)}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
