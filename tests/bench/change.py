"""Do the bounds on changes hold, how wide are they, and what does the gate decide? JSON lines.

Rows are drawn from known populations: 300 predictions on a seven-leaf tree, two utilities, three
subgroups, 18 candidates, every (prediction, label) pair decomposed once. Predictions are right,
overconfident, or wrong in opposite directions by range of score; samples come from the same truth,
or the second from one in which a branch's split has changed for one subgroup.

Run: python tests/bench/change.py [coverage] [paired] [efficiency] [gate] [onset] [--quick]
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
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.scan import Groups
from huc_monitor.audit.two_samples import Sample, compare_samples

ATOMS = 300
TREE = hm.LabelTree.from_nested(
    {
        "animal": {"cat": ["lion", "lynx"], "dog": ["wolf", "fox"]},
        "plant": ["oak", "fern"],
        "x": None,
    }
)
UTILITIES = [hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=3)]
TRUTHS = ("calibrated", "overconfident", "opposite")
FEATURES = pd.DataFrame({"channel": np.random.default_rng(3).choice(["app", "web"], ATOMS)})
SUBGROUPS = hm.Subgroups.from_reference(FEATURES, {"channel": "each"})


def softened(p: np.ndarray, power: Any) -> np.ndarray:
    """Probabilities raised to a power, and brought back to sum 1."""
    q = p**power
    return q / q.sum(axis=1, keepdims=True)


def predictions(seed: int = 7) -> np.ndarray:
    """What the model says of every atom."""
    rng = np.random.default_rng(seed)
    return softened(rng.dirichlet(np.full(TREE.n_leaves, 0.5), ATOMS) + 1e-3, 1.0)


def truth_of(p: np.ndarray, kind: str) -> np.ndarray:
    """Label probabilities of every atom."""
    if kind == "overconfident":
        return softened(p, 0.7)
    if kind == "opposite":
        # Too low where the model is sure, too high where it is not.
        return softened(p, np.where(p.max(axis=1) > 0.6, 0.75, 1.4)[:, None])
    return p


def with_fault(truth: np.ndarray) -> np.ndarray:
    """Lion and lynx trade places in the app."""
    changed = truth.copy()
    app = (FEATURES["channel"] == "app").to_numpy()
    changed[np.ix_(app, [0, 1])] = truth[np.ix_(app, [1, 0])]
    return changed


@dataclass(frozen=True)
class Population:
    """Every (prediction, label) pair of one predictor, decomposed."""

    rows: list[hm.UtilityRows]
    weights: list[np.ndarray]

    @classmethod
    def of(cls, p: np.ndarray) -> Population:
        """Decompose all pairs."""
        leaves = TREE.n_leaves
        labels = np.tile(np.arange(leaves), len(p))
        rows = hm.decompose(np.repeat(p, leaves, axis=0), labels, tree=TREE, utilities=UTILITIES)
        weights = [np.repeat(w, leaves) for w in SUBGROUPS.weights(FEATURES, len(p))]
        return cls(rows, weights)

    def sample(self, pairs: np.ndarray) -> Sample:
        """Rows that were drawn, as a comparison takes them."""
        groups = Groups.of([w[pairs] for w in self.weights], None)
        return Sample(tuple(row.take(pairs) for row in self.rows), groups)

    def audit(self, pairs: np.ndarray, **options: Any) -> hm.AuditResult:
        """Audit rows that were drawn."""
        sample = self.sample(pairs)
        return audit_rows(sample.rows, sample.groups, subgroups=SUBGROUPS, **options)

    def sizes(self, truth: np.ndarray) -> np.ndarray:
        """True absolute moment of every candidate."""
        groups = Groups.of(self.weights, truth.ravel() + 0.0)
        found = audit_rows(self.rows, groups, subgroups=SUBGROUPS, bounds=None)
        return np.round(np.abs(found.candidates.moment), 12)

    def deviations(
        self, before: np.ndarray, after: np.ndarray, truths: tuple[np.ndarray, np.ndarray]
    ) -> np.ndarray:
        """Largest |estimated - true change| over all intervals of every candidate, exactly."""
        everyone = np.arange(truths[0].size)
        factor = np.concatenate(
            [
                np.full(after.size, 1.0 / after.size),
                np.full(before.size, -1.0 / before.size),
                -truths[1].ravel() / len(truths[1]),
                truths[0].ravel() / len(truths[0]),
            ]
        )
        chosen = np.concatenate([after, before, everyone, everyone])
        groups = Groups([w[chosen] * factor for w in self.weights], np.empty(0), 4.0)
        rows = [row.take(chosen) for row in self.rows]
        found = audit_rows(rows, groups, subgroups=SUBGROUPS, bounds=None)
        return 4.0 * np.abs(found.candidates.moment)


def plan(**options: Any) -> AuditPlan:
    """What every comparison asks."""
    return AuditPlan.of(tree=TREE, utilities=UTILITIES, subgroups=SUBGROUPS, **options)


def draw(truth: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n independent rows, as numbers of (prediction, label) pairs."""
    atoms = rng.integers(0, len(truth), n)
    labels = (rng.random(n)[:, None] > truth[atoms].cumsum(axis=1)).sum(axis=1)
    return atoms * truth.shape[1] + np.minimum(labels, truth.shape[1] - 1)


def share(hits: list[bool]) -> dict[str, float]:
    """A share with its Monte Carlo error."""
    value = float(np.mean(hits))
    error = math.sqrt(max(value * (1 - value), 1e-9) / len(hits))
    return {"share": round(value, 4), "error": round(error, 4), "trials": len(hits)}


def coverage(settings: argparse.Namespace) -> None:
    """Share of trials in which every interval of every candidate is within its radius."""
    p = predictions()
    population = Population.of(p)
    for kind in TRUTHS:
        for fault in (False, True):
            truth = truth_of(p, kind)
            truths = (truth, with_fault(truth) if fault else truth)
            for n, ratio in settings.sizes:
                started, held, sure = time.perf_counter(), [], []
                rng = np.random.default_rng([settings.seed, n, int(10 * ratio), fault])
                for k in range(settings.trials):
                    before, after = draw(truths[0], int(n * ratio), rng), draw(truths[1], n, rng)
                    found = compare_samples(
                        population.sample(before),
                        population.sample(after),
                        plan(n_draws=settings.draws, rng=k),
                    )
                    radii = (found.upper - found.lower) / 2
                    off = population.deviations(before, after, truths)
                    held.append(bool((off <= radii).all()))
                    sure.append(bool(found.sure))
                answer = {"truth": kind, "fault": fault, "n": n, "reference": int(n * ratio)}
                seconds = round(time.perf_counter() - started, 1)
                show("coverage", **answer, held=share(held), sure=share(sure), seconds=seconds)


def efficiency(settings: argparse.Namespace) -> None:
    """Radius of the change over the root of the sum of both audits' squared radii."""
    p = predictions()
    population = Population.of(p)
    rng = np.random.default_rng(settings.seed)
    found = []
    for k in range(settings.data_sets):
        truth = truth_of(p, TRUTHS[k % 3])
        n = [500, 1000, 2000, 6000][k % 4]
        before, after = draw(truth, n * (1 + k % 3), rng), draw(truth, n, rng)
        change = compare_samples(population.sample(before), population.sample(after), plan(rng=k))
        alone = [population.audit(pairs, rng=k + 1000).radii for pairs in (before, after)]
        found.append((change.upper - change.lower) / 2 / np.hypot(*alone))
    ratio = np.array(found)
    figures = {"median": np.median(ratio), "largest": ratio.max(), "smallest": ratio.min()}
    figures = {name: round(float(value), 4) for name, value in figures.items()}
    show("efficiency", data_sets=len(ratio), candidates=ratio.shape[1], **figures)


def show(what: str, **answer: Any) -> None:
    """Print one answer."""
    print(json.dumps({"what": what, **answer}), flush=True)


PARTS = {"coverage": coverage, "efficiency": efficiency}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--trials", type=int, default=1_000)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--data-sets", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    settings = parser.parse_args()
    ratios = {500: (1.0, 10.0, 0.1), 2_000: (1.0, 10.0, 0.1), 10_000: (1.0, 10.0, 0.1)}
    settings.sizes = [(n, ratio) for n, some in ratios.items() for ratio in some]
    if settings.quick:
        settings.trials, settings.sizes = min(settings.trials, 60), [(500, 1.0), (500, 0.1)]
    for part in settings.parts:
        PARTS[part](settings)


if __name__ == "__main__":
    main()
