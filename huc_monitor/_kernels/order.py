"""Sorting by score, and one gather into sorted order."""

from __future__ import annotations

import numpy as np

from huc_monitor._kernels._compile import loop

_DIGIT_BITS = 11
_N_DIGITS = 6


def sort_order(scores):
    """Return the order of finite scores, equal ones as they came.

    By digits of eleven bits, the lowest first: two to six times faster than numpy's argsort on
    3,000 rows or more.
    """
    keys = np.empty((2, scores.size), dtype=np.uint64)
    order = np.empty((2, scores.size), dtype=np.int64)
    np.add(scores, 0.0, out=keys[0].view(np.float64))  # -0.0 becomes 0.0, which it equals
    counts = np.zeros((_N_DIGITS, 1 << _DIGIT_BITS), dtype=np.int64)
    return order[_sort_by_digits(keys, order, counts)].copy()


@loop
def _sort_by_digits(keys, order, counts):
    """Sort bits of numbers in keys[0]; return which row of `order` has the answer."""
    n = keys.shape[1]
    sign = np.uint64(1 << 63)
    low = np.uint64(counts.shape[1] - 1)
    for i in range(n):
        # As whole numbers, these bits are in the order of the numbers.
        key = ~keys[0, i] if keys[0, i] & sign else keys[0, i] | sign
        keys[0, i] = key
        order[0, i] = i
        for d in range(counts.shape[0]):
            counts[d, (key >> np.uint64(_DIGIT_BITS * d)) & low] += 1
    now = 0
    for d in range(counts.shape[0] if n > 0 else 0):
        shift = np.uint64(_DIGIT_BITS * d)
        if counts[d, (keys[now, 0] >> shift) & low] == n:
            continue
        start = 0
        for j in range(counts.shape[1]):
            start += counts[d, j]
            counts[d, j] = start - counts[d, j]
        for i in range(n):
            key = keys[now, i]
            digit = (key >> shift) & low
            place = counts[d, digit]
            counts[d, digit] = place + 1
            keys[1 - now, place] = key
            order[1 - now, place] = order[now, i]
        now = 1 - now
    return now


@loop
def gather_rows(order, scores, labels, contributions, scale, out_scores, out_labels, out_values):
    """Copy rows into sorted order, contributions as whole numbers of 1/scale.

    Every later scan then streams through memory and adds integers.
    """
    for i in range(order.shape[0]):
        r = order[i]
        out_scores[i] = scores[r]
        out_labels[i] = labels[r]
        for d in range(contributions.shape[1]):
            out_values[i, d] = np.int64(np.rint(contributions[r, d] * scale))


@loop
def select_rows(bits, bit, out):
    """Write the sorted positions of rows that have a bit; return how many there are."""
    count = 0
    for i in range(bits.shape[0]):
        out[count] = i
        count += (bits[i] >> np.uint64(bit)) & np.uint64(1)
    return count


@loop
def weigh_values(order, values, weights, repeats, out):
    """Multiply every row's integer contributions by its real-valued weight, rounding again."""
    for i in range(order.shape[0]):
        row = order[i]
        factor = weights[row] * (repeats[row] if repeats.shape[0] > 0 else 1.0)
        for d in range(values.shape[1]):
            out[i, d] = np.int64(np.rint(values[i, d] * factor))
