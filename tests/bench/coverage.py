"""Do the bounds hold as often as they say, and how wide are they? Prints one JSON line per answer.

Windows are drawn from a known population: 1,000 predictions on a five-leaf tree like SUPPORT2's,
nine decision utilities, four subgroups, 84 candidates. Its true moments come from an exact audit of
every prediction with every label, weighted by probability.

Run: python tests/bench/coverage.py [--windows 1000] [--draws 500] [--sizes 500,2000,10000]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import huc_monitor as hm
from huc_monitor.audit import audit_rows
from huc_monitor.audit.bounds.closed_forms import theorem_radius
from huc_monitor.audit.scan import Groups
from huc_monitor.subgroups import Memberships

if __name__ == "coverage":
    # numba asks for the package of that name, and a script of this folder would hand it this file.
    msg = "tests/bench/coverage.py is not the package `coverage`"
    raise ImportError(msg)

ATOMS = 1_000
METHODS = ("bootstrap", "sharp", "theorem")
TREE = hm.LabelTree.from_nested(
    {"survived": {"milder": ["y1", "y2"], "major": ["y3", "y4"]}, "y5": None}
)
# eq:support2-decision-sets-v20: leaves on which a decision is active, leaves that favour action 1.
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


@dataclass(frozen=True)
class Population:
    """Predictions with known label probabilities, every (prediction, label) pair decomposed."""

    truth: np.ndarray
    rows: list[hm.UtilityRows]
    weights: list[np.ndarray]
    subgroups: hm.Subgroups
    moments: np.ndarray

    @classmethod
    def of(cls, *, miscalibrated: bool, seed: int = 7) -> Population:
        """Build a population of which the predictions are right, or wrong in known ways."""
        rng = np.random.default_rng(seed)
        p = rng.dirichlet([2.0, 1.5, 1.0, 0.4, 2.0], ATOMS)
        age = rng.uniform(30, 95, ATOMS)
        truth = p.copy()
        if miscalibrated:
            # Death is likelier than predicted, and coma likelier among the oldest.
            truth[:, 4] *= 1.4
            truth[age >= 80, 3] *= 3.0
            truth /= truth.sum(axis=1, keepdims=True)
        features = pd.DataFrame({"age": age})
        subgroups = hm.Subgroups.from_reference(features, {"age": [65, 80]})
        leaves = TREE.n_leaves
        pairs = {
            "probabilities": np.repeat(p, leaves, axis=0),
            "labels": np.tile(np.arange(leaves), ATOMS),
        }
        whole = hm.audit(
            **pairs,
            tree=TREE,
            utilities=UTILITIES,
            subgroups=subgroups,
            features=features.loc[features.index.repeat(leaves)],
            weights=truth.ravel(),
            bounds=None,
        )
        return cls(
            truth=truth,
            rows=hm.decompose(**pairs, tree=TREE, utilities=UTILITIES),
            weights=[np.repeat(w, leaves) for w in subgroups.weights(features, ATOMS)],
            subgroups=subgroups,
            # A sum of rounded truths leaves 1e-16 where the moment is zero.
            moments=np.round(np.abs(whole.candidates.moment), 12),
        )

    def window(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw n independent rows, as numbers of (prediction, label) pairs."""
        atoms = rng.integers(0, len(self.truth), n)
        labels = (rng.random(n)[:, None] > self.truth[atoms].cumsum(axis=1)).sum(axis=1)
        return atoms * TREE.n_leaves + np.minimum(labels, TREE.n_leaves - 1)

    def audit(self, pairs: np.ndarray, **options: Any) -> hm.AuditResult:
        """Audit a window; nothing is decomposed again."""
        groups = Groups.of([w[pairs] for w in self.weights], None)
        rows = [rows.take(pairs) for rows in self.rows]
        return audit_rows(rows, groups, subgroups=self.subgroups, **options)

    def deviations(self, pairs: np.ndarray) -> np.ndarray:
        """Largest |empirical - true moment| of every candidate over all intervals, exactly.

        The window's rows and, with negative weight, the whole population are scanned as one.
        """
        n, everyone = pairs.size, np.arange(self.truth.size)
        minus = -n * self.truth.ravel() / len(self.truth)
        weights = [np.concatenate([w[pairs], w * minus]) for w in self.weights]
        # The sum of absolute weights is 2n; the integers of the scan are sized for it.
        groups = Groups(Memberships.of(weights), np.empty(0), 2.0 * n)
        rows = [rows.take(np.concatenate([pairs, everyone])) for rows in self.rows]
        result = audit_rows(rows, groups, subgroups=self.subgroups, bounds=None)
        return 2.0 * np.abs(result.candidates.moment)


def coverage(
    population: Population, n: int, *, windows: int, n_draws: int, seed: int, level: float = 0.95
) -> dict[str, dict[str, float]]:
    """Share of windows in which all candidates' bounds hold.

    ``coverage``: every true absolute moment lies between its lower and upper bound.
    ``uniform``: every interval's moment, not the largest alone, is within the radius of the truth.
    """
    rng = np.random.default_rng(seed)
    held = np.zeros((len(METHODS), 2, windows), dtype=bool)
    width = np.zeros((len(METHODS), windows))
    for k in range(windows):
        pairs = population.window(n, rng)
        results = [
            population.audit(pairs, bounds=method, confidence_level=level, n_draws=n_draws, rng=k)
            for method in ("bootstrap", "sharp")
        ]
        sizes = np.abs(results[0].candidates.moment)
        # Where predictions are right, every interval's true moment is zero.
        deviations = population.deviations(pairs) if population.moments.any() else sizes
        theorem = np.full(sizes.size, theorem_radius(n, sizes.size, level))
        for m, radii in enumerate((results[0].radii, results[1].radii, theorem)):
            held[m, 0, k] = (np.abs(sizes - population.moments) <= radii).all()
            held[m, 1, k] = (deviations <= radii).all()
            width[m, k] = np.median(radii)
    share = held.mean(axis=2)
    return {
        method: {
            "coverage": round(float(share[m, 0]), 5),
            "coverage_error": round(math.sqrt(share[m, 0] * (1 - share[m, 0]) / windows), 5),
            "uniform": round(float(share[m, 1]), 5),
            "uniform_error": round(math.sqrt(share[m, 1] * (1 - share[m, 1]) / windows), 5),
            "median_radius": round(float(width[m].mean()), 5),
        }
        for m, method in enumerate(METHODS)
    }


def report(population: Population, truth: str, n: int, settings: argparse.Namespace) -> None:
    """Print one size and truth."""
    started = time.perf_counter()
    found = coverage(
        population, n, windows=settings.windows, n_draws=settings.draws, seed=settings.seed + n
    )
    line: dict[str, Any] = {
        "truth": truth,
        "huc": round(float(population.moments.max()), 5),
        "n": n,
        "candidates": int(population.moments.size),
        "windows": settings.windows,
        "draws": settings.draws,
        **found,
        "theorem_over_bootstrap": round(
            found["theorem"]["median_radius"] / found["bootstrap"]["median_radius"], 1
        ),
        "theorem_over_sharp": round(
            found["theorem"]["median_radius"] / found["sharp"]["median_radius"], 1
        ),
        "seconds": round(time.perf_counter() - started, 1),
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=1_000)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--sizes", default="500,2000,10000")
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    for truth in ("calibrated", "miscalibrated"):
        population = Population.of(miscalibrated=truth == "miscalibrated")
        for n in map(int, settings.sizes.split(",")):
            report(population, truth, n, settings)


if __name__ == "__main__":
    main()
