"""What the bootstrap costs beside the plain audit. Prints one JSON line.

10,000 rows of the five-leaf tree like SUPPORT2's, nine utilities, ten subgroups, 1,000 draws, in
the same process and with the same number of threads; the best of interleaved runs.

Run: python tests/bench/bootstrap.py [--rows 10000] [--draws 1000] [--repeats 11]
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import pandas as pd

import huc_monitor as hm

TREE = hm.LabelTree.from_nested(
    {"survived": {"milder": ["y1", "y2"], "major": ["y3", "y4"]}, "y5": None}
)
DECISIONS = (
    (["y1", "y2", "y3", "y4", "y5"], ["y5"]),
    (["y1", "y2"], ["y2"]),
    (["y3", "y4"], ["y4"]),
)
UTILITIES = [
    hm.BinaryAction(f"d{j}_{tau}", active=active, favours=favours, threshold=tau)
    for j, (active, favours) in enumerate(DECISIONS, start=1)
    for tau in (0.25, 0.5, 0.75)
]


def window(n: int) -> dict[str, Any]:
    """One window, with the ten subgroups of SUPPORT2: all, three ages, two sexes, four classes."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet([2.0, 1.5, 1.0, 0.6, 2.0], n)
    labels = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, 4)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(30, 95, n),
            "sex": pd.Categorical(rng.choice(["f", "m"], n)),
            "disease": pd.Categorical(rng.choice(list("abcd"), n, p=[0.5, 0.25, 0.1, 0.15])),
        }
    )
    spec: dict[str, Any] = {"age": [65, 80], "sex": "each", "disease": "each"}
    return {
        "probabilities": p,
        "labels": labels,
        "features": frame,
        "subgroups": hm.Subgroups.from_reference(frame, spec),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--draws", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=11)
    settings = parser.parse_args()
    data = window(settings.rows)
    times: dict[str | None, list[float]] = {None: [], "sharp": [], "bootstrap": []}
    for _ in range(settings.repeats + 1):
        for method, found in times.items():
            started = time.perf_counter()
            result = hm.audit(
                **data, tree=TREE, utilities=UTILITIES, bounds=method, n_draws=settings.draws
            )
            found.append(time.perf_counter() - started)
    # The first round compiled.
    plain, sharp, bootstrap = (min(found[1:]) for found in times.values())
    line = {
        "rows": settings.rows,
        "subgroups": len(data["subgroups"]),
        "candidates": result.candidates.n,
        "draws": settings.draws,
        "plain_seconds": round(plain, 4),
        "sharp_seconds": round(sharp, 4),
        "bootstrap_seconds": round(bootstrap, 4),
        "bootstrap_over_plain": round(bootstrap / plain, 1),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
