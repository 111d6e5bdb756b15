"""What a run of rows in order of score says about every interval, small enough to merge.

The scan of `_kernels.scan` over a part of the rows, kept open at both ends: besides the largest
interval it leaves the total and the lowest and highest prefix, so that runs which follow one
another can be joined (`huc_monitor._summaries`). Sums are the same exact integers.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from huc_monitor._kernels.multiplier import _GAMMA, _WORDS, LANES, UNIT, _mix

__all__ = [
    "LANES",
    "UNIT",
    "add_multipliers",
    "centre_by_means",
    "draw_by_id",
    "draw_extremes",
    "sum_within",
    "summarise_group",
]

# What is left of one branch. AT fields name a tie block by the position of its first row, -1 for
# the place before all rows.
TOTAL, LOW, HIGH, BEST, LOW_AT, HIGH_AT, BEST_FROM, BEST_TO, _PENDING, _PENDING_AT = range(10)
WIDTH = 10


@njit(nogil=True, cache=True, inline="always")
def _close(state, j):
    """Close the pending tie block of branch j, with the preferences of `scan._commit`."""
    at = state[j, _PENDING_AT]
    total = state[j, TOTAL] + state[j, _PENDING]
    state[j, TOTAL] = total
    size = abs(state[j, BEST])
    rise = total - state[j, LOW]
    fall = state[j, HIGH] - total
    if rise > size:
        size = rise
        state[j, BEST] = rise
        state[j, BEST_FROM] = state[j, LOW_AT]
        state[j, BEST_TO] = at
    if fall > size:
        state[j, BEST] = -fall
        state[j, BEST_FROM] = state[j, HIGH_AT]
        state[j, BEST_TO] = at
    if rise < 0:
        state[j, LOW] = total
        state[j, LOW_AT] = at
    if fall < 0:
        state[j, HIGH] = total
        state[j, HIGH_AT] = at


@njit(nogil=True, cache=True, inline="always")
def _put(state, j, block, value):
    if state[j, _PENDING_AT] == block:
        state[j, _PENDING] += value
    else:
        _close(state, j)
        state[j, _PENDING_AT] = block
        state[j, _PENDING] = value


@njit(nogil=True, cache=True)
def summarise_group(scores, labels, values, positions, paths, state):
    """Scan one subgroup's rows; slot S of the state is the sum over branches."""
    state[:] = 0
    state[:, LOW_AT:] = -1
    state[:, _PENDING] = 0
    last = np.uintp(state.shape[0] - 1)
    block = 0
    for m in range(positions.shape[0]):
        i = positions[m]
        if scores[i] != scores[block]:
            block = i
        first = paths.ptr[labels[i]]
        residual = 0
        for d in range(paths.ptr[labels[i] + 1] - first):
            value = values[i, d]
            residual += value
            _put(state, np.uintp(paths.slot[first + d]), block, value)
        _put(state, last, block, residual)
    for j in range(state.shape[0]):
        _close(state, np.uintp(j))


@njit(nogil=True, cache=True)
def sum_within(scores, labels, values, positions, paths, low, high, sums):
    """Add up every branch's contributions over rows with low <= score <= high, in any order."""
    for m in range(positions.shape[0]):
        i = positions[m]
        if low <= scores[i] <= high:
            first = paths.ptr[labels[i]]
            for d in range(paths.ptr[labels[i] + 1] - first):
                sums[np.uintp(paths.slot[first + d])] += values[i, d]


@njit(nogil=True, cache=True)
def draw_by_id(seed, block, quantiles, ids, out):
    """Fill out[i, lane] with the multiplier of the row called ids[i]; see `draw_multipliers`."""
    key = _mix(np.uint64(seed) + _mix((np.uint64(block) + np.uint64(1)) * _GAMMA))
    low = np.uint64(0xFFFF)
    for i in range(out.shape[0]):
        row = out[i]
        counter = key + np.uint64(ids[i]) * np.uint64(_WORDS) * _GAMMA
        for w in range(_WORDS):
            counter += _GAMMA
            bits = _mix(counter)
            row[4 * w] = quantiles[bits & low]
            row[4 * w + 1] = quantiles[(bits >> np.uint64(16)) & low]
            row[4 * w + 2] = quantiles[(bits >> np.uint64(32)) & low]
            row[4 * w + 3] = quantiles[bits >> np.uint64(48)]


@njit(nogil=True, cache=True)
def add_multipliers(repeats, xi, sums):
    """Add every draw's multipliers, as `centre_multipliers` counts them, to sums."""
    for i in range(xi.shape[0]):
        root = np.float32(np.sqrt(repeats[i])) if repeats.shape[0] > 0 else np.float32(1.0)
        for b in range(LANES):
            sums[b] += np.float32(xi[i, b] * root)


@njit(nogil=True, cache=True)
def centre_by_means(repeats, means, xi):
    """Turn plain multipliers into centred ones, given every draw's mean over all rows."""
    for i in range(xi.shape[0]):
        if repeats.shape[0] > 0:
            root = np.float32(np.sqrt(repeats[i]))
            times = np.float32(repeats[i])
            for b in range(LANES):
                xi[i, b] = np.float32(xi[i, b] * root) - np.float32(times * means[b])
        else:
            for b in range(LANES):
                xi[i, b] -= means[b]


@njit(nogil=True, cache=True)
def draw_extremes(ptr, rows, terms, closes, xi, out):
    """Write every branch's total, lowest and highest prefix sum, lane by lane: out[j, 0..2].

    The same whole numbers as in `multiplier.raise_to_ranges`.
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
