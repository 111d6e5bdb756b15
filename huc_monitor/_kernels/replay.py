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
from huc_monitor._kernels.decompose import HI, LANES, LO, load_lanes, reach
from huc_monitor._program import GREEDY, LEVEL, Program


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
    at = np.empty(LANES, dtype=np.uintp)
    utilities = steps.utility
    groups = steps.subgroup
    lows = steps.low
    highs = steps.high
    nodes = steps.node
    shifted = np.empty(LANES)
    bits = shifted.view(np.int64)
    for lo in range(0, n, LANES):
        load_lanes(block, lo, mix, p)
        reach(p, tree, pi)
        split(p, pi, tree, q)
        for b in range(LANES):
            pi[0, b] = 1.0
        descend(q, tree, every, 0, n_branches, p, pi)
        fresh[:] = False
        for b in range(LANES):
            at[b] = min(lo + b, n - 1)
        for t in range(nodes.shape[0]):
            # Plain indices up to here: a slice costs as much as the test it would serve.
            u = utilities[t]
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
                    scores,
                    u,
                )
                fresh[u] = True
            low = lows[t]
            high = highs[t]
            some = False
            for b in range(LANES):
                active[b] = (scores[u, b] >= low) & (scores[u, b] <= high)
                some |= active[b]
            if not some:
                continue
            v = nodes[t]
            if v >= 0 and (pack.kind[u] == LEVEL or pack.kind[u] == GREEDY):
                # Unless the reported leaves are some of those below v, all of them pay the same.
                some = False
                start = tree.start[v]
                stop = tree.stop[v]
                for b in range(LANES):
                    begin = places[u, LO, b]
                    end = places[u, HI, b]
                    active[b] &= (begin >= start) & (end <= stop) & (end - begin < stop - start)
                    some |= active[b]
                if not some:
                    continue
            some = False
            group = groups[t]
            for b in range(LANES):
                weight[b] = weights[group, at[b]]
                active[b] &= weight[b] != 0.0
                some |= active[b]
            if not some:
                continue
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
                    scores,
                    u,
                    weight,
                    h,
                )
                if not drop_still(h, n_leaves, active):
                    continue
                tilt_leaves(q, h, steps.step[t], active, tree, p, pi, top, total, shifted, bits)
                descend(q, tree, every, 0, n_branches, p, pi)
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
                    scores,
                    u,
                    weight,
                    h,
                )
                if not drop_still(h, count, active):
                    continue
                tilt(q, first, h, count, steps.step[t], active, top, total, shifted, bits)
                descend(q, tree, every, v, below[v], p, pi)
            # A correctness utility does not look below its level, so some opinions stay valid.
            for u in range(n_utilities):
                fresh[u] &= not (v < 0 or pack.reads[u, v])
        for b in range(min(LANES, n - lo)):
            for k in range(n_leaves):
                out[lo + b, k] = p[k, b]
