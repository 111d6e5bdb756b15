"""Sums over a part of the rows, to be joined with those of other parts.

What `_kernels.scan` and `_kernels.multiplier` do with a whole window, for runs of rows that are
merged afterwards (`huc_monitor.audit.runs`): the same exact integers.
"""

from __future__ import annotations

import numpy as np

from huc_monitor._kernels._compile import entry, loop
from huc_monitor._kernels.multiplier import LANES, draw_row, open_stream

__all__ = [
    "LANES",
    "add_multipliers",
    "centre_by_means",
    "draw_by_id",
    "draw_extremes",
    "sum_within",
]


@loop
def sum_within(scores, labels, values, positions, paths, low, high, sums):
    """Add up every branch's contributions over rows with low <= score <= high, in any order."""
    for m in range(positions.shape[0]):
        i = positions[m]
        if low <= scores[i] <= high:
            first = paths.ptr[labels[i]]
            for d in range(paths.ptr[labels[i] + 1] - first):
                sums[np.uintp(paths.slot[first + d])] += values[i, d]


@loop
def draw_by_id(seed, block, quantiles, ids, out):
    """Fill out[i, lane] with the multiplier of the row called ids[i]; see `draw_multipliers`."""
    key = open_stream(seed, block)
    for i in range(out.shape[0]):
        draw_row(key, np.uint64(ids[i]), quantiles, out[i])


@loop
def add_multipliers(roots, xi, sums):
    """Add every draw's multipliers, as `centre_multipliers` counts them, to sums."""
    for i in range(xi.shape[0]):
        root = roots[i] if roots.shape[0] > 0 else np.float32(1.0)
        for b in range(LANES):
            sums[b] += np.float32(xi[i, b] * root)


@loop
def centre_by_means(roots, repeats, sample, factors, means, xi):
    """Do what `centre_multipliers` does, given every draw's mean over all rows of a sample."""
    for i in range(xi.shape[0]):
        s = np.uintp(sample[i]) if sample.shape[0] > 0 else np.uintp(0)
        root = roots[i] if roots.shape[0] > 0 else np.float32(1.0)
        times = np.float32(repeats[i]) if repeats.shape[0] > 0 else np.float32(1.0)
        factor = np.float32(factors[s])
        for b in range(LANES):
            xi[i, b] = factor * (np.float32(xi[i, b] * root) - np.float32(times * means[s, b]))


@entry
def draw_extremes(ptr, rows, terms, closes, xi, out):
    """Write every branch's total, lowest and highest prefix sum, lane by lane: out[j, 0..2].

    The same whole numbers as in `multiplier.draw_ranges`.
    """
    total = np.empty(LANES, dtype=np.int64)
    low = np.empty(LANES, dtype=np.int64)
    high = np.empty(LANES, dtype=np.int64)
    for j in range(ptr.shape[0] - 1):
        total[:] = 0
        low[:] = 0
        high[:] = 0
        for e in range(ptr[j], ptr[j + 1]):
            term = terms[e]
            row = xi[rows[e]]
            for b in range(LANES):
                total[b] += np.int64(np.rint(np.float32(term * row[b])))
            if closes[e]:
                for b in range(LANES):
                    low[b] = min(low[b], total[b])
                    high[b] = max(high[b], total[b])
        out[j, 0] = total
        out[j, 1] = low
        out[j, 2] = high
