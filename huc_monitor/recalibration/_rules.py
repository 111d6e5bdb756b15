"""Which violation to correct next, and how far: the paper's rule and the one that weighs evidence.

The paper updates whatever exceeds the tolerance by the full step Gamma / Lambda. A moment is the
largest over all intervals, so on a small sample it exceeds 0.001 by noise alone: with 1,000 rows
noise is about 0.03. The evidence rule compares every moment with a radius that holds for all
candidates at once, and shortens the step by what noise may have contributed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from huc_monitor.audit.bounds.bootstrap import BootstrapBound
from huc_monitor.audit.bounds.bound import log_share
from huc_monitor.audit.scan import second_moments
from huc_monitor.recalibration._window import BoostCandidate, BoostWindow
from huc_monitor.utilities.program import Floats

# The bootstrap's quantile hardly depends on n, so a part of a large window is enough for it: rows
# that are worth as many as these, where labels were chosen.
_GATE_ROWS = 4_000


@dataclass(frozen=True, slots=True)
class Pick:
    """A violation to correct: the candidate, its radius, and the share of the full step."""

    found: BoostCandidate
    radius: float
    share: float


class Rule(ABC):
    """Choose among candidates; ``node`` None looks at all branches, -1 at UC."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance

    @abstractmethod
    def pick(self, window: BoostWindow, node: int | None) -> Pick | None:
        """Return the violation to correct, or None when there is none."""


class PlainRule(Rule):
    """The paper's: the largest moment, if above the tolerance, by the full step."""

    def pick(self, window: BoostWindow, node: int | None) -> Pick | None:
        """Return the largest moment above the tolerance; the first in order on a tie."""
        utility, subgroup, v = _largest(window.sizes, node)
        if not window.sizes[utility, subgroup, v] > self.tolerance:
            return None
        return Pick(window.found(utility, subgroup, v), 0.0, 1.0)


class EvidenceRule(Rule):
    """The largest lower bound, if above the tolerance, by a step shortened for noise.

    ``shrinkage`` "james_stein" multiplies the step by 1 - (radius / moment)^2, "lower" by
    lower / moment; "none" keeps the full step.
    """

    def __init__(self, tolerance: float, quantile: float, floors: Floats, shrinkage: str) -> None:
        super().__init__(tolerance)
        self.quantile = quantile
        self._floors = floors
        self._shrinkage = shrinkage

    def pick(self, window: BoostWindow, node: int | None) -> Pick | None:
        """Return the candidate whose lower bound is largest."""
        radii = self.quantile * np.sqrt((window.second + self._floors) / window.sized.n)
        lower = window.sizes - radii
        utility, subgroup, v = _largest(lower, node)
        if not lower[utility, subgroup, v] > self.tolerance:
            return None
        found = window.found(utility, subgroup, v)
        radius = float(radii[utility, subgroup, v])
        ratio = radius / abs(found.moment)
        share = {"james_stein": 1 - ratio**2, "lower": 1 - ratio, "none": 1.0}[self._shrinkage]
        return Pick(found, radius, share)


def _largest(table: Floats, node: int | None) -> tuple[int, int, int]:
    """Index of the largest entry in the order utility, subgroup, branch; UC is the last column."""
    part = table[:, :, :-1] if node is None else table[:, :, node, None]
    utility, subgroup, v = np.unravel_index(int(part.argmax()), part.shape)
    return int(utility), int(subgroup), int(v) if node is None else node


def evidence_rule(
    window: BoostWindow,
    *,
    tolerance: float,
    confidence_level: float,
    shrinkage: str,
    n_draws: int,
    seed: int,
) -> EvidenceRule:
    """Calibrate the evidence rule on the window as it is before the first update.

    Radii are q * sqrt((mean square + floor) / n) as in the audit's bootstrap bound, with q found
    once: it is a quantile of standardised suprema, which updates hardly change, while the mean
    squares follow the updates. Chosen labels count there as in that bound.
    """
    counted = np.arange(window.n)
    if window.groups.repeats.size:
        counted = np.flatnonzero(window.groups.repeats)
    worth = max(1.0, counted.size / window.sized.n)
    wanted = math.ceil(min(_GATE_ROWS * worth, counted.size))
    rows = np.sort(np.random.default_rng(seed).permutation(counted)[:wanted])
    groups = window.groups.take(rows)
    spreads = [item.compiled.utility.spreads(window.tree.tree) for item in window.utilities]
    n_candidates = sum(
        len(groups.weights) * item.compiled.relevant.size for item in window.utilities
    )
    share = log_share(n_candidates, confidence_level)
    sized = groups.sizes()
    bound = BootstrapBound(n_draws, seed)
    bound.start(sized, n_candidates, confidence_level)
    scales = []
    for u, item in enumerate(window.utilities):
        relevant = item.compiled.relevant
        part = window.sorted_rows(u, rows)
        squares = second_moments(part, groups)
        bound.visit(part, groups, spreads[u][relevant], squares)
        floor = spreads[u][relevant] ** 2 * (share / sized.n_rare)
        scales.append(np.sqrt(squares + floor).ravel())
    radii = bound.radii()
    quantile = float(np.median(radii / np.concatenate(scales))) * math.sqrt(sized.n)
    floors = np.zeros(window.sizes.shape)
    for u, spread in enumerate(spreads):
        floors[u, :, :-1] = spread**2 * (share / window.sized.n_rare)
    return EvidenceRule(tolerance, quantile, floors, shrinkage)


def by_passes(window: BoostWindow, rule: Rule, max_passes: int) -> Iterator[tuple[int, Pick]]:
    """Visit the branches top down, at most one update each, until a pass finds no violation.

    The protocol of the experiments; the caller applies each update before asking for the next.
    """
    for number in range(1, max_passes + 1):
        clean = True
        for v in range(window.tree.branches.size):
            pick = rule.pick(window, v)
            if pick is not None:
                clean = False
                yield number, pick
        if clean:
            return


def by_size(window: BoostWindow, rule: Rule, node: int | None) -> Iterator[tuple[int, Pick]]:
    """Correct the largest violation of all, again and again."""
    while (pick := rule.pick(window, node)) is not None:
        yield 1, pick
