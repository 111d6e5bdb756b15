"""Sorting by score: merge of sorted halves and one gather into sorted order."""

from __future__ import annotations

import numpy as np

from huc_monitor._kernels._compile import loop


@loop
def merge_orders(scores, left, right, out):
    """Merge two index arrays, each sorted by score, into `out`."""
    i = 0
    j = 0
    for k in range(out.shape[0]):
        if j == right.shape[0] or (i < left.shape[0] and scores[left[i]] <= scores[right[j]]):
            out[k] = left[i]
            i += 1
        else:
            out[k] = right[j]
            j += 1


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
def select_rows(order, weights, out):
    """Write the sorted positions of rows with a nonzero weight; return how many there are."""
    count = 0
    for i in range(order.shape[0]):
        out[count] = i
        count += weights[order[i]] != 0
    return count


@loop
def weigh_values(order, values, weights, repeats, out):
    """Multiply every row's integer contributions by its real-valued weight, rounding again."""
    for i in range(order.shape[0]):
        row = order[i]
        factor = weights[row] * (repeats[row] if repeats.shape[0] > 0 else 1.0)
        for d in range(values.shape[1]):
            out[i, d] = np.int64(np.rint(values[i, d] * factor))
