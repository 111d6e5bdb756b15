"""The two halves of the rows: one is searched, the other certifies what was found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import pandas as pd

from huc_monitor.audit.decomposition import UtilityRows
from huc_monitor.audit.discovery.conditions import Mask
from huc_monitor.audit.expected_squares import expected_squares
from huc_monitor.audit.inputs import Predictions
from huc_monitor.errors import InvalidInputError
from huc_monitor.utilities.program import Floats, Ints

Place: TypeAlias = tuple[int, int, str]  # utility, slot of its branch, range of scores
_RANGES: Final = ("any", "low", "high")
_MOST_SEARCHED: Final = 200_000


def divide(n: int, keys: Ints | None, seed: int) -> tuple[Ints, Ints]:
    """Draw the rows to search and those to certify by; clusters stay whole."""
    rng, middle = np.random.default_rng(seed), n // 2
    if keys is None:
        order = rng.permutation(n)
    else:
        _, codes = np.unique(keys, return_inverse=True)
        places = rng.permutation(codes.max() + 1)[codes]
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], places[order[middle]] + np.arange(2))
        borders = [end for end in ends.tolist() if 0 < end < n]
        if not borders:
            msg = (
                "`clusters` must have at least two different values, since a cluster is searched "
                "or certifies as a whole; all rows are in one."
            )
            raise InvalidInputError(msg)
        middle = min(borders, key=lambda end: abs(end - n // 2))
    return order[:middle][:_MOST_SEARCHED], order[middle:]


def amounts_of(chance: Floats) -> Floats:
    """How often rows count whose labels were chosen with these chances: once on average."""
    return np.asarray(chance.size / chance / math.fsum(1.0 / chance))


@dataclass(frozen=True, eq=False)
class Half:
    """Features and contributions of some rows; ``middles`` divide predicted utilities in two.

    ``amounts`` are how often rows count and ``clusters`` number the clusters from 0; None where
    every row counts once, and where all rows are independent.
    """

    frame: pd.DataFrame
    predictions: Predictions
    rows: list[UtilityRows]
    middles: list[float]
    amounts: Floats | None
    clusters: Ints | None

    def columns(self) -> list[Place]:
        """List (utility, slot of its branch, range of scores) of every column."""
        return [
            (u, slot, part)
            for u, rows in enumerate(self.rows)
            for slot in range(rows.relevant.size)
            for part in _RANGES
        ]

    def entries(self, utility: int, slot: int, part: str) -> tuple[Ints, Floats]:
        """Return the rows that reach a branch in a range of scores, and what they contribute."""
        rows, values = self._by_branch[utility][slot]
        kept = self.in_range(utility, part)[rows]
        rows, values = rows[kept], values[kept]
        return rows, values if self.amounts is None else self.amounts[rows] * values

    def square(self, rows: Ints, values: Floats) -> float:
        """Return the sum of squared contributions of rows; those of a cluster are one."""
        if self.clusters is not None:
            values = np.bincount(self.clusters[rows], values).astype(np.float64)
        return float((values**2).sum())

    def n_apart(self, rows: Ints) -> int:
        """Count independent rows or clusters."""
        return rows.size if self.clusters is None else np.unique(self.clusters[rows]).size

    def largest(self, inside: Mask) -> float:
        """Return how often what happens once may count among some rows."""
        amounts = np.ones(inside.size) if self.amounts is None else self.amounts
        if self.clusters is not None:
            amounts = np.bincount(self.clusters, amounts * inside).astype(np.float64)
            # As large as the cluster of an average row, where any is inside.
            return max(1.0, float((amounts**2).sum() / max(amounts.sum(), 1e-300)))
        return float(amounts[inside].max(initial=1.0))

    def in_range(self, utility: int, part: str) -> Mask:
        """Return which rows have a predicted utility in the range."""
        scores = self.rows[utility].scores
        if part == "any":
            return np.ones(scores.size, dtype=bool)
        low: Mask = scores <= self.middles[utility]
        return low if part == "low" else ~low

    def expected_square(self, utility: int, slot: int, inside: Mask) -> float:
        """Return the sum of the squared contributions that some rows are expected to have."""
        rows, chosen = self.rows[utility], np.flatnonzero(inside)
        times = np.ones(1) if self.amounts is None else self.amounts[chosen] ** 2
        mine = self.predictions.take(chosen)
        branch = rows.relevant[slot : slot + 1]
        total = 0.0
        for lo, hi in mine.spans():
            squares = expected_squares(rows.utility, mine.block(lo, hi), branch, rows.tree)[:, 0]
            total += float((squares * (times if times.size == 1 else times[lo:hi])).sum())
        return total

    @cached_property
    def _by_branch(self) -> list[list[tuple[Ints, Floats]]]:
        return [rows.by_branch() for rows in self.rows]

    @cached_property
    def spreads(self) -> list[Floats]:
        """Return the largest contribution of each branch, by utility and slot."""
        return [rows.utility.spreads(rows.tree)[rows.relevant] for rows in self.rows]

    def node(self, utility: int, slot: int) -> str:
        """Name the branch of a slot."""
        rows = self.rows[utility]
        return rows.tree.branches[int(rows.relevant[slot])]
