"""Radii: how far an empirical moment may lie from the population's, for all candidates at once."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from huc_monitor.errors import UnknownNameError

if TYPE_CHECKING:
    from huc_monitor._program import Floats
    from huc_monitor.decomposition import SortedRows
    from huc_monitor.intervals import Groups, UtilityScan

METHODS = ("theorem",)


class Bound(ABC):
    """A way to bound moments; it sees each utility's sorted rows once, then gives the radii."""

    n_draws: int | None = None

    def visit(self, rows: SortedRows, groups: Groups, scan: UtilityScan) -> None:
        """Collect what is needed from one utility."""

    @abstractmethod
    def radii(self, n: float, n_candidates: int, confidence_level: float) -> Floats:
        """Radius of every candidate, in the order of visits: utility, subgroup, branch."""


class TheoremBound(Bound):
    """Theorem thm:finite-sample-main: finite-sample, distribution-free, one radius for all."""

    def radii(self, n: float, n_candidates: int, confidence_level: float) -> Floats:
        """Return the theorem's radius for every candidate."""
        return np.full(n_candidates, theorem_radius(n, n_candidates, confidence_level))


def theorem_radius(n: float, n_candidates: int, confidence_level: float) -> float:
    """Radius of eq:finite-sample-main.

    It holds for any distribution and any sample size, and is wide: about 0.5 at 2,000 rows.

    Examples
    --------
    >>> round(theorem_radius(2_000, 84, 0.95), 3)
    0.53
    """
    delta = 1.0 - confidence_level
    return 16.0 / math.sqrt(n) + 4.0 * math.sqrt(
        math.log(max(1, n_candidates) / delta) / (2.0 * n)
    )


def make_bound(method: str) -> Bound:
    """Return the bound of that name."""
    if method == "theorem":
        return TheoremBound()
    msg = f"`bounds` must be one of {', '.join(map(repr, METHODS))}; got {method!r}."
    raise UnknownNameError(msg)
