"""Do bounds and alarms hold for rows that depend on each other, and for labels that were chosen?

Windows are drawn from a known population: 1,000 predictions on a five-leaf tree with known label
probabilities, predictions right or overconfident. True moments come from an audit of every
prediction with every label, weighted by probability.

users       20 rows per user, one prediction each; a row takes the user's label with probability rho
retries     every row three times
giant       one user with a tenth of the rows, all others alone
blocks      labels from a latent AR(1) process of 0.7, clusters are blocks of 25 rows, or of 60
alone       independent rows that were given cluster ids, 20 rows each
confidence, branch, outcome
            labels chosen with known probability between 0.05 and 1

Prints one JSON line per answer. Calibrated predictions are the hardest: with others chance picks
the interval less often. Run: python tests/bench/dependence.py [--only coverage] [--trials 600]
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import huc_monitor as hm
from huc_monitor.audit.compare import make_sample
from huc_monitor.audit.inputs import check_predictions
from huc_monitor.detection import ChangeTest

ATOMS = 1_000
TREE = hm.LabelTree.from_nested(
    {"survived": {"milder": ["y1", "y2"], "major": ["y3", "y4"]}, "y5": None}
)
UTILITIES = [
    hm.Payoff("pay", {"y1": 1, "y2": 0.6, "y3": 0, "y4": -0.6, "y5": -1}),
    hm.LevelCorrectness(level=1),
    hm.BinaryAction("act", active=["y3", "y4"], favours=["y4"], threshold=0.5),
]
CLUSTERED = ("users 0.3", "users 0.7", "retries", "giant", "blocks")
CHOSEN = ("confidence", "branch", "outcome")


@dataclass(frozen=True)
class World:
    """Predictions, the truth behind them, and what an audit of infinitely many rows finds."""

    predicted: np.ndarray
    truth: np.ndarray
    moments: np.ndarray

    @classmethod
    def make(cls, sharpening: float) -> World:
        """Predictions are the truth to a power: 1 is calibrated, more is overconfident."""
        truth = np.random.default_rng(11).dirichlet([0.8, 0.6, 0.5, 0.4, 0.5], ATOMS)
        predicted = truth**sharpening
        predicted /= predicted.sum(axis=1, keepdims=True)
        every = hm.audit(
            np.repeat(predicted, 5, axis=0),
            np.tile(np.arange(5), ATOMS),
            tree=TREE,
            utilities=UTILITIES,
            weights=truth.ravel(),
            bounds=None,
        )
        return cls(predicted, truth, np.abs(every.candidates.moment))

    def labels(self, atoms: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Label of each row at the level of its distribution."""
        return (self.truth[atoms].cumsum(axis=1) < levels[:, None]).sum(axis=1).clip(0, 4)

    def draw(self, kind: str, n: int, rng: Any) -> dict[str, Any]:
        """One window: probabilities, labels, and clusters or label probabilities."""
        if kind in CHOSEN:
            return self._chosen(kind, n, rng)
        owner = np.arange(n)
        if kind.startswith("users"):
            owner //= 20
        elif kind == "retries":
            owner //= 3
        elif kind == "giant":
            owner = np.maximum(owner - n // 10, -1)
        _, owner = np.unique(owner, return_inverse=True)
        atoms = rng.integers(0, ATOMS, owner.max() + 1)[owner]
        copied = {"users 0.3": 0.3, "users 0.7": 0.7, "giant": 0.7, "retries": 1.0}.get(kind, 0.0)
        levels = rng.random(n)
        copies = rng.random(n) < copied
        levels[copies] = rng.random(owner.max() + 1)[owner][copies]
        clusters = owner
        if kind == "alone":
            clusters = np.arange(n) // 20
        if kind.startswith("blocks"):
            clusters = np.arange(n) // int(kind.removeprefix("blocks") or 25)
            levels = _autoregressive(n, 0.7, rng)
        return {
            "rows": (self.predicted[atoms], self.labels(atoms, levels)),
            "clusters": clusters,
        }

    def _chosen(self, kind: str, n: int, rng: Any) -> dict[str, Any]:
        atoms = rng.integers(0, ATOMS, 25 * n)
        p, y = self.predicted[atoms], self.labels(atoms, rng.random(atoms.size))
        probability = {
            "confidence": 0.05 + 0.95 * (1 - p.max(axis=1)) ** 2,
            "branch": np.where(p[:, :2].sum(axis=1) > 0.5, 0.05, 1.0),
            "outcome": np.where(p.argmax(axis=1) == y, 0.05, 1.0),
        }[kind]
        kept = np.flatnonzero(rng.random(atoms.size) < probability)[:n]
        return {"rows": (p[kept], y[kept]), "label_probability": probability[kept]}


def _autoregressive(n: int, correlation: float, rng: Any) -> np.ndarray:
    z = rng.normal(size=n)
    for i in range(1, n):
        z[i] = correlation * z[i - 1] + math.sqrt(1 - correlation**2) * z[i]
    return np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in z])


def coverage(
    world: World, kind: str, n: int, trials: int, seed: int, **more: Any
) -> dict[str, Any]:
    """Share of windows in which all bounds hold, and how wide they are."""
    held, radii, effective, ratio = 0, [], [], []
    for trial in range(trials):
        given = world.draw(kind, n, np.random.default_rng([trial, n, seed]))
        p, y = given.pop("rows")
        what = {"tree": TREE, "utilities": UTILITIES, "n_draws": 500, **more}
        found = hm.audit(p, y, **given, **what)
        gap = np.abs(np.abs(found.candidates.moment) - world.moments)
        held += bool((gap <= found.radii).all())
        radii.append(found.radii.mean())
        effective.append(found.design.n_effective)
        if kind == "alone":
            ratio.append((found.radii / hm.audit(p, y, **what).radii).mean())
    share = held / trials
    found = {"coverage": share, "error": round(math.sqrt(share * (1 - share) / trials), 4)}
    found |= {"radius": np.mean(radii), "n_effective": round(np.mean(effective))}
    return found | ({"radius over that of independent rows": np.mean(ratio)} if ratio else {})


def alarms(world: World, kind: str, n: int, batches: int, seed: int) -> dict[str, Any]:
    """False alarms of the e-detector, at the tolerance that the population just keeps."""
    detector = hm.EDetector(tree=TREE, utilities=UTILITIES, tolerance=world.moments.tolist())
    found = 0
    for batch in range(batches):
        given = world.draw(kind, n, np.random.default_rng([batch, n, seed + 1]))
        found += detector.update(*given.pop("rows"), **given).alarm
    return {"batches": batches, "alarms": found}


def changes(world: World, kind: str, n: int, looks: int, seed: int) -> dict[str, Any]:
    """False alarms of the change test: references of 1,500 rows, twenty windows each."""
    test = ChangeTest(tree=TREE, utilities=UTILITIES)

    def sample(seed: list[int], size: int) -> Any:
        given = world.draw(kind, size, np.random.default_rng(seed))
        p, y = given.pop("rows")
        if "clusters" in given:  # users of another window are others
            given["clusters"] = [f"{seed} {name}" for name in given["clusters"]]
        return make_sample(check_predictions(p, tree=TREE), y, test.plan, **given)

    found = 0
    for start in range(0, looks, 20):
        reference = sample([start, seed + 2], 1_500)
        windows: list[Any] = []
        for look in range(20):
            windows.append(sample([start, look, seed + 3], n))
            found += test.look(reference, windows[-16:]).alarm
    return {"looks": looks, "alarms": found}


def cost(n: int) -> dict[str, Any]:
    """Seconds of an audit with bootstrap bounds and the default number of draws, with and without
    clusters of 20 rows, in turn."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5), n)
    y = (p.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(0, 4)
    seconds: dict[str, list[float]] = {"plain": [], "clusters": []}
    for turn in range(3):
        for name, given in (("plain", {}), ("clusters", {"clusters": np.arange(n) // 20})):
            started = time.perf_counter()
            more = {} if turn else {"n_draws": 32}
            hm.audit(p, y, tree=TREE, utilities=UTILITIES, **more, **given)
            seconds[name] += [time.perf_counter() - started] if turn else []
    best = {name: min(times) for name, times in seconds.items()}
    return {**best, "ratio": best["clusters"] / best["plain"]}


def main() -> None:
    """Print every answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["coverage", "chosen", "alarms", "changes", "cost"])
    parser.add_argument("--kind", help="of windows, such as blocks")
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--looks", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--sharpening", type=float, default=1.0, help="1 is calibrated")
    given = parser.parse_args()
    warnings.simplefilter("ignore", hm.HUCWarning)
    world = World.make(given.sharpening)
    every = (*CLUSTERED, *CHOSEN)
    tasks = [
        ("coverage", kind, n, coverage) for kind in (*CLUSTERED, "alone") for n in (500, 2_000)
    ]
    tasks += [("chosen", kind, n, coverage) for kind in CHOSEN for n in (300, 1_000)]
    tasks += [("alarms", kind, 500, alarms) for kind in every]
    tasks += [("changes", kind, 300, changes) for kind in (*every, "blocks 60")]
    for what, kind, n, measure in tasks:
        if given.only in {None, what} and given.kind in {None, kind}:
            times = given.trials if measure is coverage else given.looks
            found = measure(world, kind, n, times, given.seed)
            about = {"sharpening": given.sharpening, "seed": given.seed}
            tell(what=what, kind=kind, n=n, **about, **found)
    if given.only in {None, "cost"}:
        tell(what="cost", n=1_000_000, **cost(1_000_000))


def tell(**found: Any) -> None:
    """Print one answer."""
    plain = {k: round(float(v), 4) if isinstance(v, float) else v for k, v in found.items()}
    print(json.dumps(plain), flush=True)


if __name__ == "__main__":
    main()
