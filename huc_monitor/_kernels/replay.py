"""Replay of an ordered list of updates on new rows: one pass over rows, state kept per row."""

from __future__ import annotations

import numpy as np
from numba import njit

from huc_monitor._kernels.branches import (
    assess,
    branch_direction,
    descend,
    drop_still,
    leaf_direction,
    reports_node,
    split,
    tilt,
    tilt_leaves,
)
from huc_monitor._kernels.decompose import LANES, load_lanes, reach
from huc_monitor._program import Program


@njit(nogil=True, cache=True, error_model="numpy")
def _program_of(pack, u):
    return Program(
        pack.kind[u],
        pack.ints[pack.int_ptr[u] : pack.int_ptr[u + 1]],
        pack.floats[pack.float_ptr[u] : pack.float_ptr[u + 1]],
        pack.payoff[pack.payoff_ptr[u] : pack.payoff_ptr[u + 1]],
    )


@njit(nogil=True, cache=True, error_model="numpy")
def replay_rows(block, mix, dense, weights, tree, below, pack, steps, out):
    """Write the recalibrated probabilities of a block of rows.

    `below[v]` is one past the last branch under v (branches are numbered parents first, so a
    subtree is a range). `weights` (G, n) holds the subgroups that the steps name. What a utility
    says about a row is kept until an update changes that row's group of lanes.
    """
    n, n_leaves = block.shape
    n_branches = tree.start.shape[0]
    n_utilities = pack.kind.shape[0]
    every = np.arange(n_branches)
    p = np.empty((n_leaves, LANES))
    pi = np.empty((n_branches, LANES))
    q = np.empty((tree.child_code.shape[0], LANES))
    plain = 0
    for u in range(n_utilities):
        plain = max(plain, 0 if reports_node(pack.kind[u]) else 1)
    values = np.empty((n_utilities, n_leaves if plain else 1, LANES))
    sums = np.empty((n_utilities, n_branches if plain else 1, LANES))
    chosen = np.empty(LANES, dtype=np.int64)
    amounts = np.empty((n_utilities, 5, LANES))
    places = np.empty((n_utilities, 3, LANES), dtype=np.int64)
    scores = np.empty((n_utilities, LANES))
    fresh = np.zeros(n_utilities, dtype=np.bool_)
    h = np.empty((steps.width + 1, LANES))
    active = np.empty(LANES, dtype=np.bool_)
    weight = np.empty(LANES)
    top = np.empty(LANES)
    total = np.empty(LANES)
    shifted = np.empty(LANES)
    bits = shifted.view(np.int64)
    for lo in range(0, n, LANES):
        load_lanes(block, lo, mix, p)
        reach(p, tree, pi)
        split(p, pi, tree, q)
        for b in range(LANES):
            pi[0, b] = 1.0
        descend(q, tree, every, p, pi)
        fresh[:] = False
        for t in range(steps.node.shape[0]):
            u = steps.utility[t]
            score = scores[u]
            if not fresh[u]:
                assess(
                    _program_of(pack, u),
                    dense,
                    lo,
                    tree,
                    p,
                    pi,
                    values[u],
                    sums[u],
                    chosen,
                    amounts[u],
                    places[u],
                    score,
                )
                fresh[u] = True
            low = steps.low[t]
            high = steps.high[t]
            some = False
            mine = weights[steps.subgroup[t]]
            for b in range(LANES):
                active[b] = (score[b] >= low) & (score[b] <= high)
                some |= active[b]
            if not some:
                continue
            some = False
            for b in range(LANES):
                weight[b] = mine[min(lo + b, n - 1)]
                active[b] &= weight[b] != 0.0
                some |= active[b]
            if not some:
                continue
            v = steps.node[t]
            if v < 0:
                leaf_direction(
                    pack.kind[u],
                    tree,
                    p,
                    pi,
                    values[u],
                    sums[u],
                    amounts[u],
                    places[u],
                    score,
                    weight,
                    h,
                )
                drop_still(h, n_leaves, active)
                tilt_leaves(q, h, steps.step[t], active, tree, p, pi, top, total, shifted, bits)
                descend(q, tree, every, p, pi)
            else:
                first = tree.child_ptr[v]
                count = tree.child_ptr[v + 1] - first
                branch_direction(
                    pack.kind[u],
                    v,
                    tree,
                    p,
                    pi,
                    values[u],
                    sums[u],
                    amounts[u],
                    places[u],
                    score,
                    weight,
                    h[: count + 1],
                )
                drop_still(h, count, active)
                edges = q[first : first + count]
                tilt(edges, h, count, steps.step[t], active, top, total, shifted, bits)
                descend(q, tree, every[v : below[v]], p, pi)
            fresh[:] = False
        for b in range(min(LANES, n - lo)):
            for k in range(n_leaves):
                out[lo + b, k] = p[k, b]
