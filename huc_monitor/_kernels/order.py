"""Sorting by score: merge of sorted halves and one gather into sorted order."""

from __future__ import annotations

from numba import njit


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def gather_rows(order, scores, labels, contributions, out_scores, out_labels, out_contributions):
    """Copy rows into sorted order, so that every later scan streams through memory."""
    for i in range(order.shape[0]):
        r = order[i]
        out_scores[i] = scores[r]
        out_labels[i] = labels[r]
        for d in range(contributions.shape[1]):
            out_contributions[i, d] = contributions[r, d]
