"""The exact tie-preserving interval scan (alg:exact-interval-scan) for all branches at once.

Sums are 64-bit integers in units of 1/scale. Integer addition is associative, so a result depends
neither on the order of rows inside a tie block, nor on the number of threads, nor on how a large
window was cut into pieces; and the branches add up to the utility residual exactly.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# One row of state per branch. AT fields name a tie block by the position of its first row.
SUM, PENDING, PENDING_AT, LOW, LOW_AT, HIGH, HIGH_AT, BEST, BEST_FROM, BEST_TO = range(10)
STATE_WIDTH = 10
CHUNK = 1024


@njit(nogil=True, cache=True)
def _commit(state, j):
    """Close the pending tie block of branch j: lines 6-18 of alg:exact-interval-scan."""
    at = state[j, PENDING_AT]
    if at < 0:
        return
    total = state[j, SUM] + state[j, PENDING]
    state[j, SUM] = total
    best = state[j, BEST]
    size = best if best >= 0 else -best
    rise = total - state[j, LOW]
    if rise > size:
        size = rise
        state[j, BEST] = rise
        state[j, BEST_FROM] = state[j, LOW_AT]
        state[j, BEST_TO] = at
    fall = state[j, HIGH] - total
    if fall > size:
        state[j, BEST] = -fall
        state[j, BEST_FROM] = state[j, HIGH_AT]
        state[j, BEST_TO] = at
    if total < state[j, LOW]:
        state[j, LOW] = total
        state[j, LOW_AT] = at
    if total > state[j, HIGH]:
        state[j, HIGH] = total
        state[j, HIGH_AT] = at


@njit(nogil=True, cache=True)
def _add(state, j, block, value):
    if state[j, PENDING_AT] == block:
        state[j, PENDING] += value
    else:
        _commit(state, j)
        state[j, PENDING_AT] = block
        state[j, PENDING] = value


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def _times(repeats, row):
    return repeats[row] if repeats.shape[0] > 0 else 1.0


@njit(nogil=True, cache=True)
def _count(counts, weights, repeats, order, position):
    """Rows of the subgroup among the first `position` sorted rows."""
    chunk = position // CHUNK
    total = counts[chunk]
    for i in range(chunk * CHUNK, position):
        if weights[order[i]] != 0:
            total += _times(repeats, order[i])
    return total


@njit(nogil=True, cache=True)
def scan_group(
    scores, order, labels, contributions, weights, repeats, paths, scale, best, span, n_inside
):
    """Largest absolute interval sum of one subgroup, for every relevant branch and for UC.

    Slot j < S is the j-th relevant branch; slot S is the sum over branches, the utility residual.
    best[j] is the signed sum, span[j] its half-open range of sorted rows, n_inside[j] the
    subgroup's rows in it. Returns the subgroup's size.
    """
    n = scores.shape[0]
    n_slots = best.shape[0]
    state = np.zeros((n_slots, STATE_WIDTH), dtype=np.int64)
    state[:, PENDING_AT] = -1
    state[:, LOW_AT] = -1
    state[:, HIGH_AT] = -1
    counts = np.empty(n // CHUNK + 1)
    size = 0.0
    block = 0
    for i in range(n):
        if i % CHUNK == 0:
            counts[i // CHUNK] = size
        if scores[i] != scores[block]:
            block = i
        row = order[i]
        weight = weights[row]
        if weight == 0:
            continue
        times = _times(repeats, row)
        size += times
        factor = weight * times * scale
        y = labels[i]
        first = paths.ptr[y]
        residual = 0
        for t in range(first, paths.ptr[y + 1]):
            value = np.int64(np.rint(contributions[i, t - first] * factor))
            residual += value
            _add(state, paths.slot[t], block, value)
        _add(state, n_slots - 1, block, residual)
    if n % CHUNK == 0:
        counts[n // CHUNK] = size
    for j in range(n_slots):
        _commit(state, j)
        best[j] = state[j, BEST]
        if state[j, BEST] == 0:
            span[j, 0] = 0
            span[j, 1] = 0
            n_inside[j] = 0
            continue
        start = state[j, BEST_FROM]
        span[j, 0] = 0 if start < 0 else _block_end(scores, start)
        span[j, 1] = _block_end(scores, state[j, BEST_TO])
        n_inside[j] = _count(counts, weights, repeats, order, span[j, 1]) - _count(
            counts, weights, repeats, order, span[j, 0]
        )
    return size


@njit(nogil=True, cache=True)
def interval_sums(order, labels, contributions, weights, repeats, paths, scale, lo, hi, sums):
    """Add up every branch's contributions over the sorted rows lo..hi-1 of one subgroup."""
    for i in range(lo, hi):
        weight = weights[order[i]]
        if weight == 0:
            continue
        factor = weight * _times(repeats, order[i]) * scale
        y = labels[i]
        first = paths.ptr[y]
        for t in range(first, paths.ptr[y + 1]):
            sums[paths.slot[t]] += np.int64(np.rint(contributions[i, t - first] * factor))


@njit(nogil=True, cache=True)
def second_moments(order, labels, contributions, weights, repeats, paths, scale, sums):
    """Sum of squared contributions of every branch over one subgroup."""
    for i in range(labels.shape[0]):
        weight = weights[order[i]]
        if weight == 0:
            continue
        factor = scale * _times(repeats, order[i])
        y = labels[i]
        first = paths.ptr[y]
        for t in range(first, paths.ptr[y + 1]):
            value = contributions[i, t - first] * weight
            sums[paths.slot[t]] += np.int64(np.rint(value * value * factor))
