"""Summaries of runs of rows that merge: an audit of rows that are never in one place.

Rows in order of score are cut into runs, nowhere between equal scores. A run is summarised for
every subgroup and branch by its total, its lowest and highest prefix sum, and its largest absolute
interval sum, each with the place where it is attained. Two runs that follow one another merge into
the summary of both, exactly: sums are whole numbers, and of several intervals that attain the
maximum the one is kept that `intervals.scan_utility` reports. So neither the cuts nor the order of
merging shows in a result. The summary of a run has the size of the candidates, not of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from huc_monitor.audit.decomposition import SortedRows
from huc_monitor.audit.packs import Pack, each_pack
from huc_monitor.audit.scan import (
    Groups,
    PackScan,
    UtilityScan,
    add_squares,
    mean_squares,
)
from huc_monitor.utilities.program import Floats, Ints

# Columns of `sums` and of `places`.
_TOTAL, _LOW, _HIGH, _BEST = range(4)
_LOW_AT, _LOW_NEXT, _LOW_N, _HIGH_AT, _HIGH_NEXT, _HIGH_N, _FROM_NEXT, _FROM_N, _TO_AT, _TO_N = (
    range(10)
)


@dataclass(frozen=True, slots=True, eq=False)
class ScanSummary:
    """What rows between two scores say about every interval of one utility.

    Attributes
    ----------
    first, last : lowest and highest score of the run
    n_rows : rows of the run, whatever their subgroup
    size : (C,) rows of every subgroup, counted with their repeats
    sums : (C, S + 1, 4) total, lowest and highest prefix, signed largest interval sum
    places : (C, S + 1, 10) where these are attained: score, next higher score, rows up to there
    squares : (C, S) sums of squared contributions, in units of 2 / scale
    """

    first: float
    last: float
    n_rows: int
    size: Floats
    sums: Ints
    places: Floats
    squares: Ints

    @classmethod
    def of(cls, rows: SortedRows, groups: Groups) -> ScanSummary:
        """Summarise rows in order of score that hold all rows of their scores."""
        n_groups, n_slots = len(groups.weights), rows.relevant.size
        sums = np.zeros((n_groups, n_slots + 1, 4), dtype=np.int64)
        places = np.zeros((n_groups, n_slots + 1, 10))
        squares = np.zeros((n_groups, n_slots), dtype=np.int64)
        size = np.zeros(n_groups)

        def work(pack: Pack) -> None:
            mine, scan = pack.groups, PackScan.of(rows, groups, pack)
            sums[mine] = np.stack([*scan.prefixes, scan.best], axis=-1)
            places[mine], size[mine] = _places(rows.scores, scan), scan.size
            add_squares(rows, groups, pack, squares)

        each_pack(rows, groups, work)
        first, last = float(rows.scores[0]), float(rows.scores[-1])
        return cls(first, last, rows.order.size, size, sums, places, squares)

    def merge(self, other: ScanSummary) -> ScanSummary:
        """Join with the summary of rows of higher score."""
        a, b = self.sums, other.sums
        mine, theirs = self.places.copy(), other.places.copy()
        for column in (_LOW_NEXT, _HIGH_NEXT):
            at_end = np.isnan(mine[..., column])
            mine[..., column][at_end] = other.first
        for column in (_LOW_N, _HIGH_N, _FROM_N, _TO_N):
            theirs[..., column] += self.size[:, None]
        low, high = a[..., _TOTAL] + b[..., _LOW], a[..., _TOTAL] + b[..., _HIGH]
        sums = np.stack([a[..., _TOTAL] + b[..., _TOTAL], a[..., _LOW], a[..., _HIGH]], axis=-1)
        sums = np.concatenate([sums, a[..., _BEST:]], axis=-1)
        places = mine.copy()
        _take(low < a[..., _LOW], sums, places, (_LOW, low), theirs, slice(_LOW_AT, _LOW_N + 1))
        _take(
            high > a[..., _HIGH], sums, places, (_HIGH, high), theirs, slice(_HIGH_AT, _HIGH_N + 1)
        )
        _join_best(
            a, b, mine, theirs, sums, places, rise=high - a[..., _LOW], fall=a[..., _HIGH] - low
        )
        return ScanSummary(
            self.first,
            other.last,
            self.n_rows + other.n_rows,
            self.size + other.size,
            sums,
            places,
            self.squares + other.squares,
        )

    @property
    def intervals(self) -> Floats:
        """Closed score intervals of all candidates and of UC, shape (C, S + 1, 2)."""
        ends = self.places[..., [_FROM_NEXT, _TO_AT]]
        return np.where((self.sums[..., _BEST] == 0)[..., None], np.nan, ends)

    @property
    def shown(self) -> Floats:
        """Intervals of UC and of every subgroup's worst branch, shape (C, 2, 2)."""
        found, n_slots = self.intervals, self.squares.shape[1]
        if not n_slots:
            return np.repeat(found, 2, axis=1)
        worst = np.argmax(np.abs(self.sums[:, :n_slots, _BEST]), axis=1)
        return np.stack([found[:, n_slots], found[np.arange(len(found)), worst]], axis=1)

    def scan(self, within: Ints, *, scale: float, total: float, unit: float = 1.0) -> UtilityScan:
        """Return moments as `intervals.scan_utility` does.

        ``within``, of shape (C, 2, S), are all branches' sums on the intervals of `shown`; rows
        are counted in numbers of `unit`.
        """
        share = 1.0 / (scale * total)
        best, interval = self.sums[..., _BEST], self.intervals
        inside = self.places[..., _TO_N] - self.places[..., _FROM_N]
        return UtilityScan(
            moment=best.astype(np.float64) * share,
            low=interval[..., 0],
            high=interval[..., 1],
            span=np.zeros((*best.shape, 2), dtype=np.int64),
            n_inside=np.where(best == 0, 0.0, inside * unit),
            size=self.size * unit,
            on_uc=within[:, 0].astype(np.float64) * share,
            on_worst=within[:, 1].astype(np.float64) * share,
        )

    def mean_squares(self, *, scale: float, total: float) -> Floats:
        """Mean squared contribution, as `intervals.second_moments`."""
        return mean_squares(self.squares, scale, total)


def merge_summaries(summaries: Sequence[ScanSummary]) -> ScanSummary:
    """Merge summaries of runs that may come in any order; runs must not share scores."""
    ordered = sorted(summaries, key=lambda item: item.first)
    while len(ordered) > 1:
        pairs = [ordered[i : i + 2] for i in range(0, len(ordered), 2)]
        ordered = [pair[0].merge(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    return ordered[0]


def sums_within(rows: SortedRows, groups: Groups, shown: Floats) -> Ints:
    """All branches' sums on the intervals of `ScanSummary.shown`; rows may be in any order."""
    from huc_monitor._kernels.summary import sum_within

    sums = np.zeros((len(groups.weights), 2, rows.relevant.size), dtype=np.int64)

    def work(pack: Pack) -> None:
        for bit, c in enumerate(pack.groups):
            positions = pack.positions(bit)
            for k in range(2):
                low, high = shown[c, k]
                given = (rows.scores, rows.labels, pack.values, positions, rows.paths)
                sum_within(*given, low, high, sums[c, k])

    each_pack(rows, groups, work)
    return sums


def _places(scores: Floats, scan: PackScan) -> Floats:
    """Where the sums of some subgroups are attained."""
    # Those of the lowest and the highest prefix, and of the first and the last of the two.
    ends = np.concatenate([scan.ends, scan.in_order(scan.ends)], axis=-1)
    counts = np.concatenate([scan.reached, scan.in_order(scan.reached)], axis=-1)
    reached = np.where(ends > 0, scores[np.maximum(ends, 1) - 1], -np.inf)
    following = np.where(ends < scores.size, scores[np.minimum(ends, scores.size - 1)], np.nan)
    columns = (
        (reached, following, counts, 0),
        (reached, following, counts, 1),
        (following, counts, 2),
        (reached, counts, 3),
    )
    return np.stack([found[..., k] for *all_, k in columns for found in all_], axis=-1)


def _take(
    chosen: Any, sums: Ints, places: Floats, value: tuple[int, Ints], theirs: Floats, columns: slice
) -> None:
    """Take a prefix of the second run where it goes beyond all prefixes of the first."""
    column, found = value
    sums[..., column][chosen] = found[chosen]
    places[..., columns][chosen] = theirs[..., columns][chosen]


def _join_best(
    a: Ints,
    b: Ints,
    mine: Floats,
    theirs: Floats,
    sums: Ints,
    places: Floats,
    *,
    rise: Ints,
    fall: Ints,
) -> None:
    """Find the largest interval of two runs, with the preferences of the scan.

    Of equally large ones it keeps that which ends first; of two with one end the rise; of two
    rises the one that begins first, which is the one from the first run.
    """
    best = b[..., _BEST]
    inner = np.abs(best)
    never = np.full(inner.shape, -1, dtype=np.int64)
    # (size, sign, end, columns of the place it begins at), in order of preference.
    options = (
        (rise, 1, theirs[..., [_HIGH_AT, _HIGH_N]], mine[..., [_LOW_NEXT, _LOW_N]]),
        (np.where(best > 0, inner, never), 1, *_own(theirs)),
        (fall, -1, theirs[..., [_LOW_AT, _LOW_N]], mine[..., [_HIGH_NEXT, _HIGH_N]]),
        (np.where(best < 0, inner, never), -1, *_own(theirs)),
    )
    largest = np.abs(a[..., _BEST])
    bar = np.maximum.reduce([largest, *(option[0] for option in options)])
    ends = np.full(bar.shape, np.inf)
    for size, sign, to, since in options:
        better = (bar > largest) & (size == bar) & (to[..., 0] < ends)
        ends[better] = to[..., 0][better]
        sums[..., _BEST][better] = sign * bar[better]
        places[..., [_TO_AT, _TO_N]] = np.where(better[..., None], to, places[..., [_TO_AT, _TO_N]])
        begin = places[..., [_FROM_NEXT, _FROM_N]]
        places[..., [_FROM_NEXT, _FROM_N]] = np.where(better[..., None], since, begin)


def _own(places: Floats) -> tuple[Floats, Floats]:
    return places[..., [_TO_AT, _TO_N]], places[..., [_FROM_NEXT, _FROM_N]]
