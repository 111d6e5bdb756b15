r"""By how much realised utility differs from the score, by range of score and predicted leaf.

The gap of a row, realised minus predicted utility, is taken as

    gap = a[range] + b[leaf] + c[leaf] place + noise,

`place` being the score in standard deviations from its mean. Ranges are fitted freely, so that what
is left adds up to zero in each of them. Leaves are shrunken towards zero, b and c by one penalty
(ridge regression): a leaf that was predicted often and errs by itself is corrected by itself, one
of which little is known as its range. Generalised cross-validation chooses the penalty, which may
be infinite: then predicted leaves do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from huc_monitor.utilities.program import Floats, Ints

# Ranges of score that are corrected by themselves, and audited rows that one takes.
_MOST_RANGES = 10
_ROWS_PER_RANGE = 50
# The same for predicted leaves; all others are one group.
_MOST_LEAVES = 100
_ROWS_PER_LEAF = 20
# In rows: what a penalty counts like, were they added with a gap of zero.
_PENALTIES = np.append(10.0 ** np.arange(-1.0, 4.5, 0.5), np.inf)
# Two come near; many diverge where a range lacks a leaf that the window has there.
_RAKING_ROUNDS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where rows lie: range of score, group of predicted leaves, place among the scores."""

    ranges: Ints
    groups: Ints
    place: Floats
    shape: tuple[int, int]

    def table(self, values: Floats) -> Floats:
        """Add up values of rows by range and group."""
        cells = self.ranges * self.shape[1] + self.groups
        found = np.bincount(cells, values, self.shape[0] * self.shape[1])
        return found.reshape(self.shape).astype(np.float64)

    def sums(self, values: Floats) -> Floats:
        """Add up values by range and group, and beside them values times place."""
        return np.hstack([self.table(values), self.table(values * self.place)])

    def at(self, by_range: Floats, by_leaf: Floats) -> Floats:
        """Return what every row gets by its range, and by its leaf in the order of `sums`."""
        base, slope = by_leaf.reshape(2, -1)[:, self.groups]
        found: Floats = by_range[self.ranges] + base + slope * self.place
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The ranges of score and groups of predicted leaves of some audited rows.

    ``group_of`` is the group of every leaf; leaves that were seldom or never predicted are the last
    one, ``rest``.
    """

    edges: Floats
    group_of: Ints
    rest: int
    centre: float
    unit: float
    low: float
    high: float

    @classmethod
    def of(cls, scores: Floats, leaves: Ints, weights: Floats, n: float) -> Grid:
        """Lay a grid over audited rows, in order of score, that are as good as n."""
        counts = np.bincount(leaves, weights) * n
        often = np.argsort(-counts, kind="stable")[:_MOST_LEAVES]
        often = often[counts[often] >= _ROWS_PER_LEAF]
        group_of = np.full(counts.size, often.size)
        group_of[often] = np.arange(often.size)
        centre = float(weights @ scores)
        unit = float(np.sqrt(weights @ (scores - centre) ** 2))
        edges = _equal_ranges(scores, weights, n)
        ends = float(scores[0]), float(scores[-1])
        return cls(edges, group_of, often.size, centre, unit or 1.0, *ends)

    def places(self, scores: Floats, leaves: Ints) -> Places:
        """Find rows on the grid; scores beyond it count as its ends."""
        known = leaves < self.group_of.size
        groups = np.where(known, self.group_of[np.where(known, leaves, 0)], self.rest)
        place = (np.clip(scores, self.low, self.high) - self.centre) / self.unit
        ranges = np.searchsorted(self.edges, scores, side="right")
        return Places(ranges, groups, place, (self.edges.size + 1, self.rest + 1))


def _equal_ranges(scores: Floats, weights: Floats, n: float) -> Floats:
    """Scores at which a new range begins: ranges of equal mass, ties kept whole."""
    n_ranges = int(np.clip(n // _ROWS_PER_RANGE, 1, _MOST_RANGES))
    wanted = np.searchsorted(np.cumsum(weights), np.arange(1, n_ranges) / n_ranges)
    found = np.unique(scores[np.minimum(wanted, scores.size - 1)])
    inner: Floats = found[found > scores[0]]
    return inner


def fit_gaps(
    places: Places, gaps: Floats, weights: Floats, n: float
) -> tuple[Floats, Floats, float]:
    """Fit what a row's gap is by its range and by its leaf, as `Places.at` takes them.

    ``weights`` add up to 1, and the rows are as good as ``n`` independent ones of equal weight. The
    last is how many numbers were fitted, those that are shrunken counting in part.
    """
    share = np.bincount(places.ranges, weights)
    gap = np.bincount(places.ranges, weights * gaps) / share
    left = gaps - gap[places.ranges]
    sums = places.sums(weights)
    means = sums / share[:, None]
    # Products of the leaves' columns among each other, ranges taken out.
    count, first = sums.sum(axis=0).reshape(2, -1)
    second = places.table(weights * places.place**2).sum(axis=0)
    corners = [[np.diag(count), np.diag(first)], [np.diag(first), np.diag(second)]]
    sizes, axes = np.linalg.eigh(np.block(corners) - sums.T @ means)
    sizes = np.maximum(sizes, 0.0)
    along = axes.T @ places.sums(weights * left).sum(axis=0)
    tried = along / (sizes + _PENALTIES[:, None] / n)
    error = weights @ left**2 - 2.0 * tried @ along + tried**2 @ sizes
    free = share.size + (sizes / (sizes + _PENALTIES[:, None] / n)).sum(axis=1)
    chosen = np.argmin(error / np.maximum(1.0 - free / n, 1e-9) ** 2)
    by_leaf = axes @ tried[chosen]
    return gap - means @ by_leaf, by_leaf, float(free[chosen])


def rake(audited: Floats, wanted: Floats) -> tuple[Floats, Floats]:
    """Find the density by range, times one by group, that moves audited rows to a window.

    Both tables have shares of rows by range and group. Iterative proportional fitting: the window's
    shares of ranges are met, those of groups nearly. A range is 0 where no group is in both.
    """
    by_range, by_group = wanted.sum(axis=1), wanted.sum(axis=0)
    along, across = _ratio(by_range, audited.sum(axis=1)), np.ones(by_group.size)
    for _ in range(_RAKING_ROUNDS):
        across = _ratio(by_group, along @ audited)
        along = _ratio(by_range, audited @ across)
    return along, across


def _ratio(wanted: Floats, found: Floats) -> Floats:
    return np.divide(wanted, found, out=np.zeros(wanted.size), where=found > 0)
