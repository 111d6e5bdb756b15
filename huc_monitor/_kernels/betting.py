"""What a batch of rows earns for every bet, and the runs of score bins to bet on next.

Candidates of one utility are numbered subgroup first, then slot of the branch. The arms of a
candidate are laid out as [side, place, bet]: sides are a moment above and below zero, places the
whole line and the chosen run of bins.
"""

from __future__ import annotations

import numpy as np

from huc_monitor._kernels._compile import entry, loop

# A factor lies in [1/2, 3/2], so this many of them neither overflow nor vanish.
FOLD = 512


@loop
def bin_of(edges, score):
    """Count the edges that are not above the score; equal scores share a bin."""
    lo = 0
    hi = edges.shape[0]
    while lo < hi:
        mid = (lo + hi) // 2
        if edges[mid] <= score:
            lo = mid + 1
        else:
            hi = mid
    return lo


@entry
def log_growth(scores, labels, contributions, weights, paths, edges, runs, stakes, out):
    """Add to out[j, side, place, k] the sum over rows of log(1 +- stakes[j, k] * c * contribution).

    runs[j, side] is the half-open range of bins of the second place. Rows off the candidate's
    path, or outside the run, leave the product alone.
    """
    n_groups = weights.shape[0]
    n_slots = runs.shape[0] // n_groups
    n_bets = stakes.shape[1]
    product = np.ones(out.shape)
    for begin in range(0, scores.shape[0], FOLD):
        for i in range(begin, min(begin + FOLD, scores.shape[0])):
            y = labels[i]
            first = paths.ptr[y]
            at = bin_of(edges, scores[i])
            for d in range(paths.ptr[y + 1] - first):
                value = contributions[i, d]
                if value == 0.0:
                    continue
                slot = paths.slot[first + d]
                for c in range(n_groups):
                    x = weights[c, i] * value
                    if x == 0.0:
                        continue
                    j = c * n_slots + slot
                    for side in range(2):
                        signed = x if side == 0 else -x
                        inside = runs[j, side, 0] <= at < runs[j, side, 1]
                        for k in range(n_bets):
                            factor = 1.0 + stakes[j, k] * signed
                            product[j, side, 0, k] *= factor
                            if inside:
                                product[j, side, 1, k] *= factor
        for j in range(out.shape[0]):
            for side in range(2):
                for place in range(2):
                    for k in range(n_bets):
                        out[j, side, place, k] += np.log(product[j, side, place, k])
                        product[j, side, place, k] = 1.0


@entry
def log_growth_of_clusters(
    order,
    ptr,
    portions,
    shares,
    scores,
    labels,
    contributions,
    weights,
    paths,
    edges,
    runs,
    stakes,
    tolerance,
    out,
):
    """Do what `log_growth` does with one bet per cluster, on the sum of its rows' portions.

    order[ptr[u] : ptr[u + 1]] are the rows of cluster u. A row counts portions[row] times, and
    shares[u] is their sum, so that the cluster's factor is
    1 + stake * (+- sum of portion * c * contribution - share * tolerance). What it is where no row
    contributes, 1 - stake * share * tolerance, is left to the caller.
    """
    n_groups = weights.shape[0]
    n_slots = runs.shape[0] // n_groups
    n_bets = stakes.shape[1]
    product = np.ones(out.shape)
    sums = np.zeros((out.shape[0], 3))
    touched = np.empty(out.shape[0], dtype=np.int64)
    known = np.zeros(out.shape[0], dtype=np.uint8)
    for begin in range(0, ptr.shape[0] - 1, FOLD):
        for u in range(begin, min(begin + FOLD, ptr.shape[0] - 1)):
            n_touched = 0
            for r in range(ptr[u], ptr[u + 1]):
                i = order[r]
                first = paths.ptr[labels[i]]
                at = bin_of(edges, scores[i])
                for d in range(paths.ptr[labels[i] + 1] - first):
                    for c in range(n_groups):
                        x = weights[c, i] * contributions[i, d] * portions[i]
                        if x == 0.0:
                            continue
                        j = c * n_slots + paths.slot[first + d]
                        if not known[j]:
                            known[j] = 1
                            touched[n_touched] = j
                            n_touched += 1
                        sums[j, 0] += x
                        for side in range(2):
                            if runs[j, side, 0] <= at < runs[j, side, 1]:
                                sums[j, 1 + side] += x
            for t in range(n_touched):
                j = touched[t]
                for side in range(2):
                    sign = 1.0 if side == 0 else -1.0
                    for k in range(n_bets):
                        stake = stakes[j, k] / (1.0 - stakes[j, k] * shares[u] * tolerance[j])
                        product[j, side, 0, k] *= 1.0 + stake * sign * sums[j, 0]
                        product[j, side, 1, k] *= 1.0 + stake * sign * sums[j, 1 + side]
                sums[j] = 0.0
                known[j] = 0
        for j in range(out.shape[0]):
            for side in range(2):
                for place in range(2):
                    for k in range(n_bets):
                        out[j, side, place, k] += np.log(product[j, side, place, k])
                        product[j, side, place, k] = 1.0


@loop
def add_to_bins(scores, labels, contributions, weights, paths, edges, sums):
    """Add every row's contribution, times its weight, to sums[j, bin]."""
    n_groups = weights.shape[0]
    n_slots = sums.shape[0] // n_groups
    for i in range(scores.shape[0]):
        y = labels[i]
        first = paths.ptr[y]
        at = bin_of(edges, scores[i])
        for d in range(paths.ptr[y + 1] - first):
            slot = paths.slot[first + d]
            for c in range(n_groups):
                sums[c * n_slots + slot, at] += weights[c, i] * contributions[i, d]


@loop
def best_runs(sums, n_bins, runs):
    """Run of bins with the largest sum, and with the smallest; all bins where there is none."""
    for j in range(sums.shape[0]):
        for side in range(2):
            sign = 1.0 if side == 0 else -1.0
            best = 0.0
            runs[j, side, 0] = 0
            runs[j, side, 1] = n_bins
            total = 0.0
            begin = 0
            for k in range(n_bins):
                if total <= 0.0:
                    total = 0.0
                    begin = k
                total += sign * sums[j, k]
                if total > best:
                    best = total
                    runs[j, side, 0] = begin
                    runs[j, side, 1] = k + 1
