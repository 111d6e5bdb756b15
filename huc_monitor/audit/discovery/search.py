"""A search for conjunctions of conditions under which a branch's contributions are not zero.

Under calibrated predictions every contribution has mean zero, for any rows chosen by features. The
search looks for rows where a branch's sum is large against its own noise, and pays for looking: a
conjunction must beat the largest of as many standard normal numbers as there are conjunctions like
it. Evidence (half a squared number) less the logarithm of how many they are is its gain.

Where predictions are nearly sure and nothing unlikely has happened yet, all contributions are tiny
and of one sign, and their own squares say nothing of the rare large one. So contributions are
measured in units of the largest that their branch can have, and three of these are added to their
squares: so many may be expected (at 95 %) where none was seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import numpy as np

from huc_monitor.audit.discovery.conditions import Condition, Feature, Mask, Ordered
from huc_monitor.utilities.program import Floats, Ints

_PER_COLUMN: Final = 4
_REFINED: Final = 8
_MOST_PAIRED: Final = 20_000_000  # rows times pairs of features; beyond, some rows rank the pairs
_SWEEPS: Final = 2
# Chance alone reaches this in many searches; certifying rows tell which is which.
_WORTH_A_LOOK: Final = -1.5
_UNSEEN: Final = 3.0
_LEAST_EVIDENCE: Final = 3.0  # half a squared standard normal number: 2.4 standard errors


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Conditions that together hold for rows where one column of contributions is off.

    ``sign`` is that of their sum, where what was found before is taken out of it.
    """

    conditions: tuple[Condition, ...]
    column: int
    gain: float
    sign: float = 0.0


def unexplained(values: Floats, groups: list[Mask]) -> Floats:
    """Return what the groups leave of values: fitted jointly, none of them has a mean then."""
    inside = np.array(groups, dtype=np.float64)
    return values - np.linalg.pinv(inside @ inside.T) @ (inside @ values) @ inside


@dataclass(eq=False)
class Search:
    """Columns of contributions (rows, values), the features to combine, and how many at most.

    Values are shares of the largest contribution that is possible.
    ``peers`` are, for each column, the columns of the same branch: what one finding explains of
    them is taken out before the next is looked for. ``designs`` are how many times larger the
    squared noise of each column's sums is than that of independent rows.
    """

    columns: list[tuple[Ints, Floats]]
    n_rows: int
    peers: list[Ints]
    features: list[Feature]
    max_conditions: int
    min_rows: int
    designs: Sequence[float]

    def __post_init__(self) -> None:
        self._entry = math.log(max(2, len(self.columns)))
        self._given = [values for _, values in self.columns]
        self._taken: list[list[Mask]] = [[] for _ in self.columns]
        self._clearest = [self._look(column) for column in range(len(self.columns))]

    def run(self, most: int) -> Iterator[Found]:
        """Yield findings, the clearest first; each is taken out of what the next is found in."""
        for _ in range(most):
            found = self._best()
            if found is None:
                return
            rows, values = self.columns[found.column]
            off = values[self._rows_of(found.conditions)[rows]].sum()
            yield replace(found, sign=float(np.sign(off)))
            self._take_out(found)

    def _best(self) -> Found | None:
        """Return the finding with the largest gain; None where no gain is worth certifying.

        The clearest are compared after their ends were moved: a coarse cut point that misses the
        best one hides more of a pair than of a single condition.
        """
        seen = [item for column in self._clearest for item in column]
        seen = sorted(seen, key=lambda item: -item.gain)[:_REFINED]
        refined = [self._refine(item) for item in seen]
        worth = [item for item in refined if self._is_worth_a_look(item)]
        return max(worth, key=lambda item: item.gain, default=None)

    def _is_worth_a_look(self, item: Found) -> bool:
        evidence = item.gain + self._paid(item.conditions)
        return item.gain > _WORTH_A_LOOK and evidence > _LEAST_EVIDENCE

    def _paid(self, conditions: tuple[Condition, ...], more: int = 0) -> float:
        """Return what looking at all conjunctions like this costs, but for the prices of more."""
        choices = math.comb(len(self.features), len(conditions) + more)
        return self._entry + math.log(max(1, choices)) + sum(c.price for c in conditions)

    def _look(self, column: int) -> list[Found]:
        """Return the conjunctions of largest gain in a column, for each number of conditions."""
        beam = [Found((), column, self._gain(column, ()))]
        seen = [*beam]
        for depth in range(1, self.max_conditions + 1):
            longer = [*self._extend(beam), *(self._pair_up(column) if depth == 2 else ())]
            distinct = {frozenset(c.name for c in item.conditions): item for item in longer}
            beam = sorted(distinct.values(), key=lambda item: -item.gain)[:_PER_COLUMN]
            seen += beam
        return seen

    def _extend(self, beam: list[Found]) -> list[Found]:
        """Add the best condition on each other feature to each."""
        longer = []
        for item in beam:
            rows, values = self.columns[item.column]
            inside = self._rows_of(item.conditions)[rows]
            rows, values = rows[inside], values[inside]
            used = {condition.column for condition in item.conditions}
            for feature in self.features:
                if feature.name in used:
                    continue
                tables = (
                    np.bincount(feature.of_row[rows], weights, feature.holds.shape[1])
                    for weights in (None, values, self.designs[item.column] * values**2)
                )
                count, total, square = (feature.holds @ table for table in tables)
                paid = self._paid(item.conditions, 1) + feature.prices
                gains = self._worth(count, total, square, paid)
                place = int(np.argmax(gains))
                if np.isfinite(gains[place]):
                    parts = (*item.conditions, feature.condition(place))
                    longer.append(Found(parts, item.column, float(gains[place])))
        return longer

    def _pair_up(self, column: int) -> list[Found]:
        """Return the clearest pairs of conditions of all, however dull each alone may look.

        Sums over the cells of two features give the sums of every pair of their conditions.
        """
        rows, values = self.columns[column]
        pairs = list(combinations(self.features, 2))
        step = max(1, math.ceil(len(pairs) * rows.size / _MOST_PAIRED))
        rows, values = rows[::step], values[::step]
        squares = self.designs[column] * values**2
        weights = np.full(rows.size, step), values * step, squares * step
        best = []
        for one, other in pairs:
            shape = one.holds.shape[1], other.holds.shape[1]
            cell = one.of_row[rows] * shape[1] + other.of_row[rows]
            tables = (np.bincount(cell, w, shape[0] * shape[1]).reshape(shape) for w in weights)
            count, total, square = (one.holds @ table @ other.holds.T for table in tables)
            paid = self._paid((), 2) + one.prices[:, None] + other.prices
            gains = self._worth(count, total, square, paid)
            at = np.unravel_index(int(np.argmax(gains)), gains.shape)
            best.append((float(gains[at]), one, int(at[0]), other, int(at[1])))
        best.sort(key=lambda item: -item[0])
        found = []
        for gain, one, first, other, second in best[:_PER_COLUMN]:
            if np.isfinite(gain):
                parts = (one.condition(first), other.condition(second))
                found.append(Found(parts, column, self._gain(column, parts)))
        return found

    def _refine(self, found: Found) -> Found:
        """Move the ends of conditions on numbers and times to where the finding is clearest."""
        ordered = {feature.name: feature.ordered for feature in self.features}
        for _ in range(_SWEEPS):
            for place, condition in enumerate(found.conditions):
                column = ordered[condition.column]
                if column is None or condition.rule.get("op") == "is missing":
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
        inside = (self._rows_of(others) & (column.bins >= 0))[rows]
        rows, values = rows[inside], values[inside]
        bins = column.bins[rows]
        n_bins = column.cuts.size + 1
        tables = [
            np.concatenate([[0.0], np.cumsum(np.bincount(bins, weights, n_bins))])
            for weights in (None, values, self.designs[found.column] * values**2)
        ]
        count, total, square = (table[None, :] - table[:, None] for table in tables)
        proper = np.triu(np.ones(count.shape, dtype=bool), 1)
        proper[0, -1] = False
        paid = np.full(count.shape, self._paid(others, 1) + column.price(2))
        paid[0] = paid[:, -1] = self._paid(others, 1) + column.price(1)
        gains = self._worth(count, total, square, paid)
        gains = np.where(proper, gains, -np.inf)
        low, after = np.unravel_index(int(np.argmax(gains)), gains.shape)
        if gains[low, after] <= found.gain:
            return None
        return column.between(int(low), int(after) - 1), float(gains[low, after])

    def _take_out(self, found: Found) -> None:
        inside = self._rows_of(found.conditions)
        for column in self.peers[found.column].tolist():
            rows, _ = self.columns[column]
            self._taken[column].append(inside[rows])
            self.columns[column] = rows, unexplained(self._given[column], self._taken[column])
            self._clearest[column] = self._look(column)

    def _rows_of(self, conditions: tuple[Condition, ...]) -> Mask:
        """Rows that all conditions hold for."""
        inside = np.ones(self.n_rows, dtype=bool)
        for condition in conditions:
            inside &= condition.mask
        return inside

    def _worth(self, count: Any, total: Any, square: Any, paid: Any) -> Floats:
        """Score sums of contributions: squared over their noise, less the price of looking."""
        gains = total**2 / (square + _UNSEEN) / 2 - paid
        return np.where((count >= self.min_rows) & (square > 0), gains, -np.inf)

    def _gain(self, column: int, conditions: tuple[Condition, ...]) -> float:
        rows, values = self.columns[column]
        values = values[self._rows_of(conditions)[rows]]
        total, square = values.sum(), self.designs[column] * (values**2).sum()
        return float(self._worth(values.size, total, square, self._paid(conditions)))
