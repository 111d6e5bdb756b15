"""Do the bounds on changes hold, how wide are they, and what does the gate decide? JSON lines.

Rows are drawn from known populations: 300 predictions on a seven-leaf tree, two utilities, three
subgroups, 18 candidates, every (prediction, label) pair decomposed once. Predictions are right,
overconfident, or wrong in opposite directions by range of score; samples come from the same truth,
or the second from one in which a branch's split has changed for one subgroup. For coverage, equal
rows are one row that counts as many times: the bootstrap's law is the same (a multiplier of
variance w for w rows), so that 100,000 rows cost what 2,100 do (--apart keeps them apart).

Run: python tests/bench/change.py [efficiency coverage paired gate onset alarms] [--quick]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

import huc_monitor as hm
from huc_monitor.audit import audit_rows
from huc_monitor.audit.paired import compare_predictors
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.scan import Groups
from huc_monitor.audit.two_samples import Sample, compare_samples
from huc_monitor.detection import ChangeTest, find_onset
from huc_monitor.recalibration.choosing import find_recalibration
from huc_monitor.recalibration.gate import Gate, shown_better
from huc_monitor.subgroups import Memberships

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


def predictions(seed: int = 7, spread: float = 0.5, plant: float = 1.0) -> np.ndarray:
    """What the model says of every atom; the less spread, the surer it is.

    ``plant`` below 1 makes the branch *plant* rare.
    """
    rng = np.random.default_rng(seed)
    sizes = spread * np.where(np.isin(TREE.leaves, ["oak", "fern"]), plant, 1.0)
    return softened(rng.dirichlet(sizes, ATOMS) + 1e-3, 1.0)


def truth_of(p: np.ndarray, kind: str) -> np.ndarray:
    """Label probabilities of every atom."""
    if kind == "overconfident":
        return softened(p, 0.7)
    if kind == "opposite":
        # Too low where the model is sure, too high where it is not.
        return softened(p, np.where(p.max(axis=1) > 0.6, 0.75, 1.4)[:, None])
    return p


def with_fault(truth: np.ndarray, leaves: tuple[int, int] = (0, 1)) -> np.ndarray:
    """Two leaves, by default lion and lynx, trade places in the app."""
    changed = truth.copy()
    app = (FEATURES["channel"] == "app").to_numpy()[: len(truth)]
    changed[np.ix_(app, list(leaves))] = truth[np.ix_(app, list(leaves[::-1]))]
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
        features = FEATURES.iloc[: len(p)]
        weights = [np.repeat(w, leaves) for w in SUBGROUPS.weights(features, len(p))]
        return cls(rows, weights)

    def sample(self, pairs: np.ndarray, counts: np.ndarray | None = None) -> Sample:
        """Rows that were drawn, as a comparison takes them."""
        groups = Groups.of([w[pairs] for w in self.weights], counts)
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
        shares = [np.bincount(pairs, minlength=truths[0].size) for pairs in (before, after)]
        factor = shares[1] / after.size - shares[0] / before.size
        factor = factor - (truths[1] - truths[0]).ravel() / len(truths[0])
        groups = Groups(Memberships.of([w * factor for w in self.weights]), np.empty(0), 4.0)
        found = audit_rows(self.rows, groups, subgroups=SUBGROUPS, bounds=None)
        return 4.0 * np.abs(found.candidates.moment)


def plan(**options: Any) -> AuditPlan:
    """What every comparison asks."""
    return AuditPlan.of(tree=TREE, utilities=UTILITIES, subgroups=SUBGROUPS, **options)


def draw(truth: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n independent rows, as numbers of (prediction, label) pairs."""
    atoms = rng.integers(0, len(truth), n)
    labels = (rng.random(n)[:, None] > truth[atoms].cumsum(axis=1)).sum(axis=1)
    return atoms * truth.shape[1] + np.minimum(labels, truth.shape[1] - 1)


def counted(pairs: np.ndarray, *, apart: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Equal rows once, with how often each was drawn; or as they are."""
    if apart:
        return pairs, None
    found, counts = np.unique(pairs, return_counts=True)
    return found, counts.astype(float)


def share(hits: list[bool]) -> dict[str, float]:
    """A share with its Monte Carlo error."""
    value = float(np.mean(hits))
    error = math.sqrt(max(value * (1 - value), 1e-9) / len(hits))
    return {"share": round(value, 4), "error": round(error, 4), "trials": len(hits)}


def coverage(settings: argparse.Namespace) -> None:
    """Share of trials in which every interval of every candidate is within its radius."""
    p = predictions(settings.population, settings.spread, settings.plant)[: settings.atoms]
    population = Population.of(p)
    for kind in settings.truths:
        for fault in settings.faults:
            truth = truth_of(p, kind)
            truths = (truth, with_fault(truth) if fault else truth)
            for n, ratio in settings.sizes:
                started, held, sure = time.perf_counter(), [], []
                rng = np.random.default_rng([settings.seed, n, int(10 * ratio), fault])
                for k in range(settings.trials):
                    before, after = draw(truths[0], int(n * ratio), rng), draw(truths[1], n, rng)
                    sides = [
                        population.sample(*counted(pairs, apart=settings.apart))
                        for pairs in (before, after)
                    ]
                    found = compare_samples(*sides, plan(n_draws=settings.draws, rng=k))
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


def pairs_of_predictors(p: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Named (before, after, truth): better, worse, equally good, and nearly calibrated."""
    over, opposite = truth_of(p, "overconfident"), truth_of(p, "opposite")
    return {
        "overconfident to calibrated": (p, over, over),
        "overconfident to half": (p, softened(p, 0.85), over),
        "calibrated to overconfident": (p, softened(p, 1.3), p),
        "slightly off to calibrated": (p, softened(p, 0.93), softened(p, 0.93)),
        "opposite to calibrated": (p, opposite, opposite),
        "opposite to overconfident": (p, over, opposite),
        "one branch off to another": (with_fault(p), with_fault(p, (4, 5)), p),
        "one subgroup mended": (p, 0.5 * (p + with_fault(p)), with_fault(p)),
    }


def paired(settings: argparse.Namespace) -> None:
    """Share of trials in which the bounds on all differences hold, and those of HUC."""
    p = predictions(settings.population, settings.spread, settings.plant)[: settings.atoms]
    for name, (before, after, truth) in pairs_of_predictors(p).items():
        if not any(word in name for word in settings.pairs):
            continue
        sides = [Population.of(q) for q in (before, after)]
        sizes = [side.sizes(truth) for side in sides]
        wanted, huc = sizes[1] - sizes[0], sizes[1].max() - sizes[0].max()
        for n in settings.paired_sizes:
            started, held, held_huc, better = time.perf_counter(), [], [], []
            rng = np.random.default_rng([settings.seed, n])
            for k in range(settings.trials):
                pairs = counted(draw(truth, n, rng), apart=settings.apart)
                samples = [side.sample(*pairs) for side in sides]
                found = compare_predictors(*samples, plan(n_draws=settings.draws, rng=k))
                inside = (found.lower <= wanted + 1e-12) & (wanted - 1e-12 <= found.upper)
                held.append(bool(inside.all()))
                held_huc.append(found.huc.lower - 1e-12 <= huc <= found.huc.upper + 1e-12)
                better.append(found.huc.upper < 0)
            show(
                "paired",
                pair=name,
                n=n,
                huc=[round(float(size.max()), 4) for size in sizes],
                held=share(held),
                held_huc=share(held_huc),
                shown_better=share(better),
                seconds=round(time.perf_counter() - started, 1),
            )


def gate(settings: argparse.Namespace) -> None:
    """Whole searches for a repair: of a calibrated model, and the gate on HUC 0.08 to 0.04."""
    p = predictions()
    for power, name in ((1.0, "calibrated"), (0.55, "overconfident")):
        if name not in settings.truths:
            continue
        passed, points = [], []
        for k in range(settings.gate_trials):
            rng = np.random.default_rng([settings.seed, k])
            pairs = draw(softened(p, power), 4_000, rng)
            atoms, labels = np.divmod(pairs, TREE.n_leaves)
            found = find_recalibration(
                p[atoms],
                labels,
                tree=TREE,
                utilities=UTILITIES,
                subgroups=SUBGROUPS,
                features=FEATURES.iloc[atoms].reset_index(drop=True),
                candidates=("nothing", "temperature", "huc_boost"),
                rng=k,
            )
            passed.append(found.passed)
            points.append(found.name != "nothing" and not Gate().reasons(found.before, found.after))
        show("gate", model=name, passed=share(passed), passed_by_point_estimate=share(points))
    truth, after = softened(p, 0.5223), softened(p, 0.7728)
    sides = [Population.of(q) for q in (p, after)]
    rng, passed = np.random.default_rng(settings.seed), []
    for k in range(settings.gate_trials):
        pairs = draw(truth, 2_000, rng)
        samples = [side.sample(pairs) for side in sides]
        passed.append(shown_better(compare_predictors(*samples, plan(rng=k)).huc))
    huc = [round(float(side.sizes(truth).max()), 4) for side in sides]
    show("gate", model="improved", huc=huc, n=2_000, passed=share(passed))


def change_test(settings: argparse.Namespace) -> ChangeTest:
    """The test of a monitor, at the run length that was asked for."""
    length = settings.run_length
    return ChangeTest(
        tree=TREE, utilities=UTILITIES, subgroups=SUBGROUPS, average_run_length=length
    )


def onset(settings: argparse.Namespace) -> None:
    """A fault from day 6 on: when it is found, whom it names, and the set of its first days."""
    p = predictions()
    population, truth = Population.of(p), truth_of(p, "overconfident")
    cases = [(6_000, 0.5), (6_000, 0.15), (1_000, 0.5)]
    for n, size in (case for case in cases if case[0] in settings.onset_rows):
        bad = size * with_fault(truth) + (1 - size) * truth
        test = change_test(settings)
        inside, width, delay, named = [], [], [], []
        for k in range(settings.onset_trials):
            rng = np.random.default_rng([settings.seed, k, n])
            reference = population.sample(draw(truth, 3 * n, rng))
            windows = [population.sample(draw(truth, n, rng)) for _ in range(6)]
            for day in range(6):
                windows.append(population.sample(draw(bad, n, rng)))
                changes = test.look(reference, windows).changes
                if changes:
                    found = find_onset(reference, windows, test.plan, changes[0].candidate)
                    inside.append(6 in found.windows)
                    width.append(len(found.windows))
                    delay.append(day)
                    named.append(changes[0].candidate.node == "cat")
                    break
        if inside:
            show(
                "onset",
                n=n,
                fault=size,
                found=f"{len(inside)} of {settings.onset_trials}",
                inside=share(inside),
                median_width=float(np.median(width)),
                mean_delay=round(float(np.mean(delay)), 2),
                named=share(named),
            )


def alarms(settings: argparse.Namespace) -> None:
    """False alarms of stationary streams, each with its own reference, at init's run length.

    ``opened`` counts alarms that the window before did not have: what is told as a finding.
    """
    p = predictions(settings.population, settings.spread)
    population = Population.of(p)
    for kind in settings.truths:
        truth = truth_of(p, kind)
        test = change_test(settings)
        false, opened, streams = [], [], []
        for k in range(settings.streams):
            rng = np.random.default_rng([settings.seed, k])
            reference, windows = population.sample(draw(truth, 3_000, rng)), []
            mine: list[bool] = []
            for _ in range(settings.windows):
                windows = [*windows[-15:], population.sample(draw(truth, 1_000, rng))]
                mine.append(test.look(reference, windows).alarm)
            false += mine
            opened.append(sum(now and not before for before, now in pairwise([False, *mine])))
            streams.append(any(mine))
        n = settings.streams * settings.windows
        show(
            "alarms",
            truth=kind,
            run_length=settings.run_length,
            false=share(false),
            opened=opened,
            opened_per_100=round(100 * sum(opened) / n, 3),
            error=round(100 * float(np.std(opened)) / math.sqrt(len(opened)) / settings.windows, 3),
            streams_with_any=share(streams),
        )


def show(what: str, **answer: Any) -> None:
    """Print one answer."""
    print(json.dumps({"what": what, **answer}), flush=True)


PARTS = {
    "efficiency": efficiency,
    "coverage": coverage,
    "paired": paired,
    "gate": gate,
    "onset": onset,
    "alarms": alarms,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--trials", type=int, default=1_000)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--data-sets", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gate-trials", type=int, default=200)
    parser.add_argument("--onset-trials", type=int, default=100)
    parser.add_argument("--onset-rows", nargs="*", type=int, default=[6_000, 1_000])
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--windows", type=int, default=300)
    parser.add_argument("--run-length", type=float, default=1_000, help="as init writes")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--apart", action="store_true", help="do not merge equal rows")
    parser.add_argument("--atoms", type=int, default=ATOMS, help="fewer predictions: faster")
    parser.add_argument("--population", type=int, default=7)
    parser.add_argument("--spread", type=float, default=0.5)
    parser.add_argument("--plant", type=float, default=1.0, help="below 1: a rare branch")
    parser.add_argument("--truths", nargs="*", default=list(TRUTHS), choices=TRUTHS)
    parser.add_argument("--faults", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--pairs", nargs="*", default=[""], help="words in names of pairs")
    parser.add_argument("--rows", nargs="*", type=int, default=[500, 2_000, 10_000])
    parser.add_argument("--ratios", nargs="*", type=float, default=[1.0, 10.0, 0.1])
    settings = parser.parse_args()
    settings.sizes = [(n, ratio) for n in settings.rows for ratio in settings.ratios]
    settings.paired_sizes = tuple(settings.rows)
    if settings.quick:
        settings.gate_trials = settings.onset_trials = 10
        settings.streams, settings.windows, settings.paired_sizes = 2, 30, (500,)
        settings.trials, settings.sizes = min(settings.trials, 60), [(500, 1.0), (500, 0.1)]
    for part in settings.parts:
        PARTS[part](settings)


if __name__ == "__main__":
    main()
