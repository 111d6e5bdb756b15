"""The exact tie-preserving interval scan (alg:exact-interval-scan), all branches and subgroups.

Sums are 64-bit integers in units of 1/scale. Integer addition is associative, so a result depends
neither on the order of rows inside a tie block, nor on the number of threads, nor on how a large
window was cut into pieces; and the branches add up to the utility residual exactly.

The largest absolute interval sum is the highest prefix sum minus the lowest, the empty prefix
included, and lies between the two: so a scan keeps where each was first reached. One pass over the
rows serves up to 64 subgroups: every row has a cell, and `table[cell]` a bit for each subgroup.
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
_MOST_HELD = 1 << 18


def scan_rows(
    scores, labels, values, cells, table, counts, paths, step, state, reached, seen, marks
):
    """Scan sorted rows for every slot and every subgroup g, whose rows' cells have bit g.

    Slot j < S is the j-th relevant branch; slot S is the sum over branches, the utility residual.
    All arrays that are written start with zeros: state (G, S + 1, STATE_WIDTH); reached (G, S + 1,
    2), how many rows, in `counts` (empty: each is one), a subgroup has up to its lowest and
    highest prefix; seen (G,), how many it has in all; marks (n // step + 1, G, S), sums before
    every step-th row.
    """
    rows = (scores, labels, values, cells, table, counts, paths)
    above, range_ = np.zeros((2, state.shape[1], state.shape[0]), dtype=np.uint64)
    _scan_rows(*rows, step, above, range_, state, reached, seen, marks)
    if state.shape[1] == 2:
        # The only branch is the residual.
        for found in (above, range_, state.swapaxes(0, 1), reached.swapaxes(0, 1)):
            found[1] = found[0]
    state[..., SUM] = state[..., LOW] + above.T.view(np.int64)
    state[..., HIGH] = state[..., LOW] + range_.T.view(np.int64)


# While rows are read, above[j, g] is how far a prefix sum lies above the lowest before it, and
# range_[j, g] how far the highest does: one comparison of numbers without sign tells whether it is
# a new lowest or highest.


@loop
def _scan_rows(
    scores,
    labels,
    values,
    cells,
    table,
    counts,
    paths,
    step,
    above,
    range_,
    state,
    reached,
    seen,
    marks,
):
    n = scores.shape[0]
    n_slots = marks.shape[2]
    start = 0
    to_mark = 0
    while start < n:
        end = start + 1
        while end < n and scores[end] == scores[start]:
            end += 1
        alone = end - start == 1
        for i in range(start, end):
            if i == to_mark:
                _mark(above, state, marks[i // step])
                to_mark += step
            bits = table[cells[i]]
            count = counts[i] if counts.shape[0] > 0 else 1.0
            first = np.uintp(paths.ptr[labels[i]])
            depth = np.uintp(paths.ptr[labels[i] + 1]) - first
            residual = 0
            for d in range(depth):
                residual += values[i, d]
            # Rows are counted while the first slot is written, which each has.
            j = np.uintp(n_slots if n_slots > 1 else 0)
            _add(above, range_, state, reached, seen, bits, j, residual, count, end, alone)
            if n_slots > 1:
                for d in range(depth):
                    j = np.uintp(paths.slot[first + d])
                    value = values[i, d]
                    _add(above, range_, state, reached, seen, bits, j, value, None, end, alone)
        if not alone:
            for i in range(start, end):
                bits = table[cells[i]]
                first = np.uintp(paths.ptr[labels[i]])
                for d in range(np.uintp(paths.ptr[labels[i] + 1]) - first):
                    j = np.uintp(paths.slot[first + d])
                    _add(above, range_, state, reached, seen, bits, j, 0, None, end, not alone)
                if n_slots > 1:
                    j = np.uintp(n_slots)
                    _add(above, range_, state, reached, seen, bits, j, 0, None, end, not alone)
        start = end
    if n == to_mark:
        _mark(above, state, marks[n // step])


@njit(nogil=True, cache=True, inline="always")
def _add(above, range_, state, reached, seen, bits, j, value, count, end, closes):
    """Add a contribution to a slot of a row's subgroups, and the row to their sizes.

    `count` is how many rows it is, None where it was counted. Where it `closes`, no tie goes on
    behind it: compare the prefix sum with those before.
    """
    left = bits
    while left != 0:
        g = lowest_bit(left)
        left &= left - _ONE
        if count is not None:
            seen[g] += count
        total = above[j, g] + np.uint64(value)
        above[j, g] = total
        if total > range_[j, g] and closes:
            if np.int64(total) < 0:
                state[g, j, LOW] += np.int64(total)
                state[g, j, LOW_END] = end
                reached[g, j, 0] = seen[g]
                range_[j, g] -= total
                above[j, g] = 0
            else:
                state[g, j, HIGH_END] = end
                reached[g, j, 1] = seen[g]
                range_[j, g] = total


@njit(nogil=True, cache=True, inline="always")
def _mark(above, state, mark):
    for g in range(mark.shape[0]):
        for j in range(mark.shape[1]):
            mark[g, j] = state[g, j, LOW] + np.int64(above[j, g])


@loop
def interval_sums(labels, values, cells, table, paths, step, marks, spans, sums):
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
                    if (table[cells[i]] >> np.uint64(g)) & _ONE:
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


def square_sums(order, labels, values, cells, table, repeats, paths, scale, sums):
    """Add up every subgroup's and branch's squared contributions, in units of 1/scale.

    The values already carry a row's repeats once, so one factor is taken back. sums[g, j] starts
    with zeros.
    """
    n_held = table.shape[0] * sums.shape[1]
    held = np.zeros((table.shape[0] if n_held <= _MOST_HELD else 0, sums.shape[1]), dtype=np.int64)
    _square_sums(order, labels, values, cells, table, repeats, paths, scale, held, sums)


@loop
def _square_sums(order, labels, values, cells, table, repeats, paths, scale, held, sums):
    # Where cells are few, their rows are added up first, and then to each of a cell's subgroups.
    unit = 1.0 / scale  # a power of two, so that this is exact
    for i in range(order.shape[0]):
        times = repeats[order[i]] if repeats.shape[0] > 0 else 1.0
        if times == 0.0:
            continue
        cell = np.uintp(cells[i])
        first = np.uintp(paths.ptr[labels[i]])
        for d in range(np.uintp(paths.ptr[labels[i] + 1]) - first):
            value = values[i, d] * unit
            term = value * value / times if repeats.shape[0] > 0 else value * value
            square = np.int64(np.rint(term * (0.5 * scale)))
            slot = np.uintp(paths.slot[first + d])
            if held.shape[0] > 0:
                held[cell, slot] += square
            else:
                _share(table[cell], slot, square, sums)
    for cell in range(held.shape[0]):
        for slot in range(held.shape[1]):
            _share(table[cell], slot, held[cell, slot], sums)


@njit(nogil=True, cache=True, inline="always")
def _share(bits, slot, amount, sums):
    left = bits
    while left != 0:
        sums[lowest_bit(left), slot] += amount
        left &= left - _ONE
