"""The exact tie-preserving interval scan (alg:exact-interval-scan) for all branches at once.

Sums are 64-bit integers in units of 1/scale. Integer addition is associative, so a result depends
neither on the order of rows inside a tie block, nor on the number of threads, nor on how a large
window was cut into pieces; and the branches add up to the utility residual exactly.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from huc_monitor._kernels._compile import loop

# One row of state per branch. AT fields name a tie block by the position of its first row, -1 for
# the place before all rows.
SUM, PENDING, PENDING_AT, LOW, HIGH, SIZE, LOW_AT, HIGH_AT, SIGN, BEST_FROM, BEST_TO = range(11)
STATE_WIDTH = 12


@njit(nogil=True, cache=True, inline="always")
def _commit(state, j):
    """Close the pending tie block of branch j: lines 6-18 of alg:exact-interval-scan."""
    at = state[j, PENDING_AT]
    total = state[j, SUM] + state[j, PENDING]
    state[j, SUM] = total
    rise = total - state[j, LOW]
    fall = state[j, HIGH] - total
    if rise > state[j, SIZE]:
        state[j, SIZE] = rise
        state[j, SIGN] = 1
        state[j, BEST_FROM] = state[j, LOW_AT]
        state[j, BEST_TO] = at
    if fall > state[j, SIZE]:
        state[j, SIZE] = fall
        state[j, SIGN] = -1
        state[j, BEST_FROM] = state[j, HIGH_AT]
        state[j, BEST_TO] = at
    if rise < 0:
        state[j, LOW] = total
        state[j, LOW_AT] = at
    if fall < 0:
        state[j, HIGH] = total
        state[j, HIGH_AT] = at


@njit(nogil=True, cache=True, inline="always")
def _add(state, j, block, value):
    if state[j, PENDING_AT] == block:
        state[j, PENDING] += value
    else:
        _commit(state, j)
        state[j, PENDING_AT] = block
        state[j, PENDING] = value


@loop
def _block_end(scores, at):
    """First position after the tie block that starts at `at`, by galloping search."""
    n = scores.shape[0]
    step = 1
    lo = at
    while lo + step < n and scores[lo + step] == scores[at]:
        lo += step
        step *= 2
    hi = min(n, lo + step)
    while hi - lo > 1:
        mid = (lo + hi) // 2
        if scores[mid] == scores[at]:
            lo = mid
        else:
            hi = mid
    return hi


# Before the first block: an empty pending block just ahead of the rows.
_BEFORE_ALL = np.zeros(STATE_WIDTH, dtype=np.int64)
_BEFORE_ALL[[PENDING_AT, LOW_AT, HIGH_AT]] = -1


def scan_rows(scores, labels, values, positions, paths, n_slots):
    """Scan one subgroup's rows; return what is left of every branch, one row of state each.

    Slot j < S is the j-th relevant branch; slot S is the sum over branches, the utility residual.
    """
    state = np.empty((n_slots, STATE_WIDTH), dtype=np.int64)
    state[:] = _BEFORE_ALL
    _scan_rows(scores, labels, values, positions, paths, state)
    return state


@loop
def _scan_rows(scores, labels, values, positions, paths, state):
    last = np.uintp(state.shape[0] - 1)
    block = 0
    for m in range(positions.shape[0]):
        i = positions[m]
        if scores[i] != scores[block]:
            block = i
        y = labels[i]
        first = paths.ptr[y]
        residual = 0
        for d in range(paths.ptr[y + 1] - first):
            value = values[i, d]
            residual += value
            _add(state, np.uintp(paths.slot[first + d]), block, value)
        _add(state, last, block, residual)
    for j in range(state.shape[0]):
        _commit(state, np.uintp(j))


def scan_group(scores, labels, values, positions, paths, best, span):
    """Largest absolute interval sum of one subgroup, for every slot of `scan_rows`.

    best[j] is the signed sum, span[j] its half-open range of sorted rows.
    """
    state = scan_rows(scores, labels, values, positions, paths, best.shape[0])
    _write_best(scores, state, best, span)


@loop
def _write_best(scores, state, best, span):
    for j in range(best.shape[0]):
        best[j] = state[j, SIGN] * state[j, SIZE]
        if best[j] != 0:
            start = state[j, BEST_FROM]
            span[j, 0] = 0 if start < 0 else _block_end(scores, start)
            span[j, 1] = _block_end(scores, state[j, BEST_TO])


@loop
def interval_sums(labels, values, positions, paths, sums):
    """Add up every branch's contributions over some sorted rows."""
    for m in range(positions.shape[0]):
        i = positions[m]
        first = paths.ptr[labels[i]]
        for d in range(paths.ptr[labels[i] + 1] - first):
            sums[np.uintp(paths.slot[first + d])] += values[i, d]


@loop
def span_sums(labels, values, positions, paths, span, sums):
    """Add up every branch's contributions over its own half-open range of sorted rows."""
    for m in range(positions.shape[0]):
        i = positions[m]
        first = paths.ptr[labels[i]]
        for d in range(paths.ptr[labels[i] + 1] - first):
            j = np.uintp(paths.slot[first + d])
            if span[j, 0] <= i < span[j, 1]:
                sums[j] += values[i, d]


@loop
def square_sums(order, labels, values, positions, repeats, paths, scale, sums):
    """Add up every branch's squared contributions, in units of 1/scale.

    The values already carry a row's repeats once, so one factor is taken back.
    """
    for m in range(positions.shape[0]):
        i = positions[m]
        times = repeats[order[i]] if repeats.shape[0] > 0 else 1.0
        if times == 0.0:
            continue
        first = paths.ptr[labels[i]]
        for d in range(paths.ptr[labels[i] + 1] - first):
            value = values[i, d] / scale
            sums[np.uintp(paths.slot[first + d])] += np.int64(
                np.rint(value * value / times * (0.5 * scale))
            )
