"""What chosen labels save against labels taken evenly, on real data; and what a plan costs.

``python tests/bench/label_plans.py DATA_FOLDER [--seeds 20] [--first 0]`` prints, for MASSIVE and
NSL-KDD with real models and windows of 5,000 rows: the saving that `plan_labels` calculates, the
one that audits show (labels taken evenly that give the same largest radius, between two audits of
even samples), and in how many windows all true moments lie within the bounds. Without a folder: the
time of a plan for a million rows and 32 leaves over that of their audit, in one run.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from time import perf_counter

import numpy as np

import huc_monitor as hm
from huc_monitor.tree.labels import LeafCodes

N_WINDOW, N_DRAWS = 5_000, 300


def audit(stream, rows, codes, chance=None, bounds="bootstrap"):
    return hm.audit(
        stream.probabilities[rows],
        LeafCodes(codes[rows]),
        tree=stream.tree,
        utilities=stream.utilities,
        label_probability=chance,
        bounds=bounds,
        n_draws=N_DRAWS,
    )


def trial(stream, codes, budget, seed, proxy):
    """Return the calculated saving, three largest radii, and whether all moments are covered."""
    rng = np.random.default_rng([5, seed])
    window = np.sort(rng.permutation(len(codes))[:N_WINDOW])
    past = rng.permutation(len(codes))[:1_000]
    pair = stream.labels[past], stream.proxy[past]
    odds = hm.fit_proxy_odds(stream.probabilities[past], *pair, tree=stream.tree)
    plan = hm.plan_labels(
        stream.probabilities[window],
        tree=stream.tree,
        utilities=stream.utilities,
        budget=budget,
        proxy=stream.proxy[window] if proxy else None,
        proxy_odds=odds if proxy else 1.0,
        rng=seed,
    )
    found = audit(stream, window[plan.chosen], codes, plan.probability[plan.chosen])
    order = rng.permutation(window)
    sizes = np.array([budget, 2 * budget])
    even = [audit(stream, order[:n], codes).radii.max() for n in sizes]
    true = np.abs(audit(stream, window, codes, bounds=None).candidates.moment)
    table = found.to_frame(all_columns=True)
    inside = (table["lower"] <= true + 1e-12) & (true <= table["upper"] + 1e-12)
    return plan.saving, *even, found.radii.max(), bool(inside.all())


def _saving(radii, seeds):
    """Share of labels that a plan saves at the same mean largest radius."""
    one, two, planned = (radius[seeds].mean() for radius in radii)
    slope = math.log(two / one) / math.log(2)
    return 1 - (planned / one) ** (-1 / slope)


def savings(stream, n_seeds, budget, *, proxy, first=0):
    codes = stream.tree.encode(stream.labels)
    found = [trial(stream, codes, budget, seed, proxy) for seed in range(first, first + n_seeds)]
    calculated, *radii, covered = np.array(found, dtype=float).T
    rng = np.random.default_rng(0)
    drawn = [_saving(radii, rng.integers(0, n_seeds, n_seeds)) for _ in range(200)]
    kind = "with proxy" if proxy else "alone"
    print(
        f"{stream.name:>8} {kind:>10} budget {budget:5}: calculated {calculated.mean():.3f}, "
        f"measured {_saving(radii, np.arange(n_seeds)):.3f} (se {np.std(drawn):.3f}), "
        f"covered {covered.sum():.0f} of {n_seeds}",
        flush=True,
    )


def cost(n=1_000_000):
    leaves = [f"l{i}" for i in range(32)]
    tree = hm.LabelTree.from_nested(
        {f"g{i}": {f"h{i}{j}": leaves[8 * i + 4 * j :][:4] for j in range(2)} for i in range(4)}
    )
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(32, 0.5), n)
    y = LeafCodes((p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=31))
    utilities = [hm.LevelCorrectness(level=level) for level in (1, 2, 3)]
    small = slice(0, 2_000)
    hm.plan_labels(p[small], tree=tree, utilities=utilities, budget=100)
    hm.audit(p[small], LeafCodes(y.codes[small]), tree=tree, utilities=utilities, n_draws=100)
    started = perf_counter()
    hm.plan_labels(p, tree=tree, utilities=utilities, budget=5_000)
    planned = perf_counter()
    hm.audit(p, y, tree=tree, utilities=utilities)
    done = perf_counter()
    print(f"{n:,} rows x 32 leaves: plan {planned - started:.1f} s, audit {done - planned:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first of the seeds")
    parser.add_argument("--budgets", type=int, nargs="+", default=[500, 1_000])
    parser.add_argument("--alone", action="store_true", help="without a proxy only")
    given = parser.parse_args()
    if given.folder is None:
        cost()
        return
    from real_streams import load

    for stream in load(given.folder, n_train=11_500):
        for budget in given.budgets:
            for proxy in (False,) if given.alone else (False, True):
                savings(stream, given.seeds, budget, proxy=proxy, first=given.first)


if __name__ == "__main__":
    main()
