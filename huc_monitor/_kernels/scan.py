"""The exact tie-preserving interval scan (alg:exact-interval-scan), all branches and subgroups.

Sums are 64-bit integers in units of 1/scale. Integer addition is associative, so a result depends
neither on the order of rows inside a tie block, nor on the number of threads, nor on how a large
window was cut into pieces; and the branches add up to the utility residual exactly.

The largest absolute interval sum is the highest prefix sum minus the lowest, the empty prefix
included, and lies between the two: so a scan keeps where each was first reached. One pass over the
rows serves up to 64 subgroups, which are the bits of a number per row.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from huc_monitor._kernels._bits import lowest_bit
from huc_monitor._kernels._compile import loop

# State of a branch in a subgroup. Ends count the sorted rows of a prefix; 0 is the empty prefix.
SUM, LOW, HIGH, LOW_END, HIGH_END = range(5)
STATE_WIDTH = 5
_ONE = np.uint64(1)


@njit(nogil=True, cache=True, inline="always")
def _close(state, reached, seen, g, j, end):
    """Compare a prefix sum with the lowest and the highest before it: no tie goes on behind it."""
    total = state[g, j, SUM]
    if total < state[g, j, LOW]:
        state[g, j, LOW] = total
        state[g, j, LOW_END] = end
        reached[g, j, 0] = seen[g]
    elif total > state[g, j, HIGH]:
        state[g, j, HIGH] = total
        state[g, j, HIGH_END] = end
        reached[g, j, 1] = seen[g]


@loop
def scan_rows(scores, labels, values, bits, counts, paths, step, state, reached, seen, marks):
    """Scan sorted rows for every subgroup g, whose rows have bit g, and every slot.

    Slot j < S is the j-th relevant branch; slot S is the sum over branches, the utility residual.
    All arrays that are written start with zeros: state (G, S + 1, STATE_WIDTH); reached (G, S + 1,
    2), how many rows, in `counts` (empty: each is one), a subgroup has up to its lowest and
    highest prefix; seen (G,), how many it has in all; marks (n // step + 1, G, S), sums before
    every step-th row.
    """
    n = scores.shape[0]
    last = np.uintp(state.shape[1] - 1)
    start = 0
    to_mark = 0
    while start < n:
        end = start + 1
        while end < n and scores[end] == scores[start]:
            end += 1
        for i in range(start, end):
            if i == to_mark:
                _mark(state, marks[i // step])
                to_mark += step
            count = counts[i] if counts.shape[0] > 0 else 1.0
            first = np.uintp(paths.ptr[labels[i]])
            depth = np.uintp(paths.ptr[labels[i] + 1]) - first
            residual = 0
            for d in range(depth):
                residual += values[i, d]
            left = bits[i]
            while left != 0:
                g = lowest_bit(left)
                left &= left - _ONE
                seen[g] += count
                for d in range(depth):
                    j = np.uintp(paths.slot[first + d])
                    state[g, j, SUM] += values[i, d]
                    if end - start == 1:
                        _close(state, reached, seen, g, j, end)
                state[g, last, SUM] += residual
                if end - start == 1:
                    _close(state, reached, seen, g, last, end)
        if end - start > 1:
            for i in range(start, end):
                first = np.uintp(paths.ptr[labels[i]])
                depth = np.uintp(paths.ptr[labels[i] + 1]) - first
                left = bits[i]
                while left != 0:
                    g = lowest_bit(left)
                    left &= left - _ONE
                    for d in range(depth):
                        _close(state, reached, seen, g, np.uintp(paths.slot[first + d]), end)
                    _close(state, reached, seen, g, last, end)
        start = end
    if n == to_mark:
        _mark(state, marks[n // step])


@njit(nogil=True, cache=True, inline="always")
def _mark(state, mark):
    for g in range(mark.shape[0]):
        for j in range(mark.shape[1]):
            mark[g, j] = state[g, j, SUM]


@loop
def interval_sums(labels, values, bits, paths, step, marks, spans, sums):
    """Add up every branch's contributions over spans[g, k], half-open ranges of sorted rows.

    sums[g, k, j] starts with zeros. Of the rows before an end, those since the last of the `marks`
    that `scan_rows` left are read.
    """
    for g in range(spans.shape[0]):
        for k in range(spans.shape[1]):
            for side in range(2):
                sign = 2 * side - 1
                end = spans[g, k, side]
                for j in range(sums.shape[2]):
                    sums[g, k, j] += sign * marks[end // step, g, j]
                for i in range(end // step * step, end):
                    if (bits[i] >> np.uint64(g)) & _ONE:
                        first = paths.ptr[labels[i]]
                        for d in range(paths.ptr[labels[i] + 1] - first):
                            sums[g, k, paths.slot[first + d]] += sign * values[i, d]


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
def square_sums(order, labels, values, bits, repeats, paths, scale, sums):
    """Add up every subgroup's and branch's squared contributions, in units of 1/scale.

    The values already carry a row's repeats once, so one factor is taken back.
    """
    for i in range(order.shape[0]):
        times = repeats[order[i]] if repeats.shape[0] > 0 else 1.0
        if times == 0.0:
            continue
        first = paths.ptr[labels[i]]
        for d in range(paths.ptr[labels[i] + 1] - first):
            value = values[i, d] / scale
            square = np.int64(np.rint(value * value / times * (0.5 * scale)))
            j = np.uintp(paths.slot[first + d])
            left = bits[i]
            while left != 0:
                sums[lowest_bit(left), j] += square
                left &= left - _ONE
