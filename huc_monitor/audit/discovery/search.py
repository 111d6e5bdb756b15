"""A search for conjunctions of conditions under which a branch's contributions are not zero.

Under calibrated predictions every contribution has mean zero, for any rows chosen by features. The
search looks for rows where a branch's sum is large against its own noise, and pays for looking: a
conjunction of k of A conditions must beat the largest of about A^k standard normal numbers.

Where predictions are nearly sure and nothing unlikely has happened yet, all contributions are tiny
and of one sign, and their own squares say nothing of the rare large one. So contributions are
measured in units of the largest that their branch can have, and three of these are added to their
squares: so many may be expected (at 95 %) where none was seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np

from huc_monitor.audit.discovery.conditions import Condition, Mask, Ordered
from huc_monitor.utilities.program import Floats, Ints

Masks: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.bool_]]"

_BEAM: Final = 30
_PER_COLUMN: Final = 4
_CHUNK: Final = 64
_MOST_PAIRED: Final = 10_000_000  # rows times pairs of features; beyond, some rows rank the pairs
_SWEEPS: Final = 2
# Chance alone reaches this in about half of all searches; certifying rows tell which is which.
_WORTH_A_LOOK: Final = -1.5
_UNSEEN: Final = 3.0
_LEAST_EVIDENCE: Final = 3.0  # half a squared standard normal number: 2.4 standard errors


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Conditions that together hold for rows where one column of contributions is off."""

    conditions: tuple[Condition, ...]
    column: int
    gain: float


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """A feature's conditions, by their places, and the cells of rows that none of them divides."""

    places: Ints
    of_row: Ints
    holds: Floats  # (conditions, cells): 1 where a condition holds

    @classmethod
    def of(cls, places: Ints, masks: Masks) -> _Cells:
        """Rows for which the same conditions hold are one cell."""
        packed = np.packbits(masks, axis=0)
        _, first, cell = np.unique(packed, axis=1, return_index=True, return_inverse=True)
        return cls(places, cell.ravel(), masks[:, first].astype(np.float64))


@dataclass(eq=False)
class Search:
    """Columns of contributions (rows, values), the conditions to combine, and how many at most.

    Values are shares of the largest contribution that is possible.
    ``peers`` are, for each column, the columns of the same branch: what one finding explains of
    them is taken out before the next is looked for.
    """

    columns: list[tuple[Ints, Floats]]
    n_rows: int
    peers: list[Ints]
    conditions: list[Condition]
    ordered: dict[str, Ordered]
    max_conditions: int
    min_rows: int

    def __post_init__(self) -> None:
        shape = (len(self.conditions), self.n_rows)
        self._masks = np.array([c.mask for c in self.conditions], dtype=bool).reshape(shape)
        n_columns = len(self.columns)
        self._price = math.log(max(2, len(self.conditions)))
        self._entry = math.log(max(2, n_columns))
        self._first = np.full((len(self.conditions), n_columns), -np.inf)
        features = np.array([c.column for c in self.conditions])
        found = [np.flatnonzero(features == name) for name in dict.fromkeys(features.tolist())]
        self._features = [_Cells.of(places, self._masks[places]) for places in found]
        self._pairs: list[list[Found]] = [[] for _ in self.columns]
        self._update(np.arange(n_columns))

    def run(self, most: int) -> Iterator[Found]:
        """Yield findings, the clearest first; each is taken out of what the next is found in."""
        for _ in range(most):
            found = self._best()
            if found is None:
                return
            found = self._refine(found)
            yield found
            self._take_out(found)

    def _best(self) -> Found | None:
        """Return what beats chance by most; None where nothing comes near."""
        beam = self._start()
        seen = [*beam]
        for depth in range(2, self.max_conditions + 1):
            beam = self._extend([item for item in beam if len(item.conditions) == depth - 1])
            if depth == 2:
                beam += [pair for pairs in self._pairs for pair in pairs]
            seen += beam
        worth = [item for item in seen if self._is_worth_a_look(item)]
        return max(worth, key=lambda item: item.gain, default=None)

    def _is_worth_a_look(self, item: Found) -> bool:
        evidence = item.gain + self._paid(len(item.conditions))
        return item.gain > _WORTH_A_LOOK and evidence > _LEAST_EVIDENCE

    def _paid(self, depth: int) -> float:
        """Return what looking at all conjunctions of so many conditions costs."""
        return depth * self._price + self._entry

    def _start(self) -> list[Found]:
        whole = [
            Found((), column, self._gain(self.columns[column][1], 0))
            for column in range(len(self.columns))
        ]
        singles = [
            Found((self.conditions[a],), column, float(self._first[a, column]))
            for column in range(len(self.columns))
            for a in np.argsort(-self._first[:, column])[:_PER_COLUMN].tolist()
            if np.isfinite(self._first[a, column])
        ]
        singles.sort(key=lambda item: -item.gain)
        return [*whole, *singles[:_BEAM]]

    def _extend(self, beam: list[Found]) -> list[Found]:
        """Add one condition on another column to each."""
        longer: dict[tuple[int, frozenset[str]], Found] = {}
        for item in beam:
            rows, values = self.columns[item.column]
            inside = self._rows_of(item.conditions)[rows]
            rows, values = rows[inside], values[inside]
            masks = self._masks[:, rows]
            gains = self._gains(masks, values, len(item.conditions) + 1)
            used = {condition.column for condition in item.conditions}
            for a in np.argsort(-gains)[: 2 * _PER_COLUMN].tolist():
                condition = self.conditions[a]
                if condition.column in used or not np.isfinite(gains[a]):
                    continue
                parts = (*item.conditions, condition)
                key = (item.column, frozenset(part.name for part in parts))
                longer[key] = Found(parts, item.column, float(gains[a]))
        return sorted(longer.values(), key=lambda item: -item.gain)[:_BEAM]

    def _pair_up(self, column: int) -> list[Found]:
        """Return the clearest pairs of conditions of all, however dull each alone may look.

        Sums over the cells of two features give the sums of every pair of their conditions.
        """
        rows, values = self.columns[column]
        pairs = list(combinations(self._features, 2))
        step = max(1, math.ceil(len(pairs) * rows.size / _MOST_PAIRED))
        rows, values = rows[::step], values[::step]
        weights = np.ones(rows.size), values, values**2
        best = []
        for one, other in pairs:
            shape = one.holds.shape[1], other.holds.shape[1]
            cell = one.of_row[rows] * shape[1] + other.of_row[rows]
            tables = (np.bincount(cell, w, shape[0] * shape[1]).reshape(shape) for w in weights)
            count, total, square = (one.holds @ table @ other.holds.T for table in tables)
            gains = self._worth(count, total, square, 2, self.min_rows / step)
            at = np.unravel_index(int(np.argmax(gains)), gains.shape)
            best.append((float(gains[at]), int(one.places[at[0]]), int(other.places[at[1]])))
        found = []
        for gain, *places in sorted(best, reverse=True)[:_PER_COLUMN]:
            if not np.isfinite(gain):
                continue
            parts = tuple(self.conditions[place] for place in places)
            rows, values = self.columns[column]
            exact = self._gain(values[self._rows_of(parts)[rows]], 2)
            found.append(Found(parts, column, exact))
        return found

    def _refine(self, found: Found) -> Found:
        """Move the ends of conditions on numbers and times to where the finding is clearest."""
        for _ in range(_SWEEPS):
            for place, condition in enumerate(found.conditions):
                column = self.ordered.get(condition.column)
                if column is None or "is missing" in condition.name:
                    continue
                others = found.conditions[:place] + found.conditions[place + 1 :]
                better = self._best_range(column, others, found)
                if better is not None:
                    parts = (*others[:place], better[0], *others[place:])
                    found = Found(parts, found.column, better[1])
        return found

    def _best_range(
        self, column: Ordered, others: tuple[Condition, ...], found: Found
    ) -> tuple[Condition, float] | None:
        rows, values = self.columns[found.column]
        inside = self._rows_of(others)[rows] & ~np.isnan(column.values[rows])
        rows, values = rows[inside], values[inside]
        bins = column.bins()[rows]
        n_bins = column.cuts.size + 1
        tables = [
            np.concatenate([[0.0], np.cumsum(np.bincount(bins, weights, n_bins))])
            for weights in (np.ones(rows.size), values, values**2)
        ]
        count, total, square = (table[None, :] - table[:, None] for table in tables)
        enough = np.triu(np.ones(count.shape, dtype=bool), 1)
        gains = self._worth(count, total, square, len(found.conditions))
        gains = np.where(enough, gains, -np.inf)
        low, after = np.unravel_index(int(np.argmax(gains)), gains.shape)
        if gains[low, after] <= found.gain:
            return None
        condition = column.between(int(low), int(after) - 1)
        return None if condition is None else (condition, float(gains[low, after]))

    def _take_out(self, found: Found) -> None:
        inside = self._rows_of(found.conditions)
        for column in self.peers[found.column].tolist():
            rows, values = self.columns[column]
            hit = inside[rows]
            if hit.any():
                values = np.where(hit, values - values[hit].mean(), values)
                self.columns[column] = rows, values
        self._update(self.peers[found.column])

    def _update(self, columns: Ints) -> None:
        """Score every single condition, for some columns."""
        for column in columns.tolist():
            rows, values = self.columns[column]
            for lo in range(0, len(self.conditions), _CHUNK):
                part = self._masks[lo : lo + _CHUNK][:, rows]
                self._first[lo : lo + _CHUNK, column] = self._gains(part, values, 1)
            if self.max_conditions > 1:
                self._pairs[column] = self._pair_up(column)

    def _rows_of(self, conditions: tuple[Condition, ...]) -> Mask:
        """Rows that all conditions hold for."""
        inside = np.ones(self.n_rows, dtype=bool)
        for condition in conditions:
            inside &= condition.mask
        return inside

    def _gains(self, masks: Masks, values: Floats, depth: int) -> Floats:
        """Score each mask: squared sum over its noise, less the price of looking."""
        weights = masks.astype(np.float64)
        count, total, square = (weights @ v for v in (np.ones(values.size), values, values**2))
        return self._worth(count, total, square, depth)

    def _worth(
        self,
        count: Floats,
        total: Floats,
        square: Floats,
        depth: int,
        min_rows: float | None = None,
    ) -> Floats:
        gains = total**2 / (square + _UNSEEN) / 2 - self._paid(depth)
        least = self.min_rows if min_rows is None else min_rows
        return np.where((count >= least) & (square > 0), gains, -np.inf)

    def _gain(self, values: Floats, depth: int) -> float:
        everyone = np.ones((1, values.size), dtype=bool)
        return float(self._gains(everyone, values, depth)[0])
