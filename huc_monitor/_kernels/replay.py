"""Replay of an ordered list of updates on new rows: one pass over rows, state kept per row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from huc_monitor._kernels._compile import loop
from huc_monitor._kernels._lanes import keep_moved, keep_weighed, mark_inside
from huc_monitor._kernels.branches import (
    assess,
    branch_direction,
    descend,
    drop_still,
    leaf_direction,
    pay_for_truth,
    reports_node,
    split,
    tilt,
    tilt_leaves,
)
from huc_monitor._kernels.decompose import LANES, load_lanes, reach
from huc_monitor.utilities.program import GREEDY, LEVEL, Program


class State(NamedTuple):
    """Sixteen rows: leaf probabilities, reaches of branches, and branch probabilities.

    stale[v] says that the children of v have not been reached again since q changed.
    """

    p: Any
    pi: Any
    q: Any
    stale: Any


class UtilityCache(NamedTuple):
    """What every utility says about the sixteen rows.

    ``fresh`` is whether that still holds, after the updates since.
    """

    fresh: Any
    scores: Any
    amounts: Any
    places: Any
    values: Any
    sums: Any
    chosen: Any


class LaneRoom(NamedTuple):
    """Scratch space of one group of lanes.

    Made once per call, so that the loops allocate nothing.
    """

    every: Any
    weights: Any
    active: Any
    h: Any
    top: Any
    total: Any


@loop
def _program_of(pack, u):
    return Program(
        pack.kind[u],
        pack.ints[pack.int_ptr[u] : pack.int_ptr[u + 1]],
        pack.floats[pack.float_ptr[u] : pack.float_ptr[u + 1]],
        pack.payoff[pack.payoff_ptr[u] : pack.payoff_ptr[u + 1]],
    )


@loop
def _step_down(v, q, tree, every, p, pi, stale):
    """Reach the children of v again; theirs are then out of date."""
    descend(q, tree, every, v, v + 1, p, pi)
    stale[v] = False
    for e in range(tree.child_ptr[v], tree.child_ptr[v + 1]):
        if tree.child_code[e] >= 0:
            stale[tree.child_code[e]] = True


def replay_rows(block, mix, dense, weights, tree, pack, steps, out):
    """Write the recalibrated probabilities of a block of rows.

    `weights` (G, n) holds the subgroups that the steps name. What a utility
    says about a row is kept until an update changes that row's group of lanes.
    """
    n_leaves = block.shape[1]
    n_branches = tree.start.shape[0]
    n_utilities = pack.kind.shape[0]
    plain = not all(reports_node.py_func(kind) for kind in pack.kind)
    state = State(
        np.empty((n_leaves, LANES)),
        np.empty((n_branches, LANES)),
        np.empty((tree.child_code.shape[0], LANES)),
        np.zeros(n_branches, dtype=np.bool_),
    )
    cache = UtilityCache(
        np.zeros(n_utilities, dtype=np.bool_),
        np.empty((n_utilities, LANES)),
        np.empty((n_utilities, 5, LANES)),
        np.empty((n_utilities, 3, LANES), dtype=np.int64),
        np.empty((n_utilities, n_leaves if plain else 1, LANES)),
        np.empty((n_utilities, n_branches if plain else 1, LANES)),
        np.empty(max(LANES, n_leaves), dtype=np.int64),
    )
    room = LaneRoom(
        np.arange(n_branches),
        np.empty((weights.shape[0], LANES)),
        np.empty(LANES, dtype=np.bool_),
        np.empty((steps.width, LANES)),
        np.empty(LANES),
        np.empty(LANES),
    )
    for u in range(n_utilities):
        pay_for_truth(cache.amounts[u], cache.places[u])
    _replay_rows(block, mix, dense, weights, tree, pack, steps, state, cache, room, out)


@loop
def _replay_rows(block, mix, dense, weights, tree, pack, steps, state, cache, room, out):
    n, n_leaves = block.shape
    n_branches = tree.start.shape[0]
    n_utilities = pack.kind.shape[0]
    p, pi, q, stale = state
    fresh, scores, amounts, places, values, sums, chosen = cache
    every, lane_weights, active, h, top, total = room
    utilities = steps.utility
    groups = steps.subgroup
    lows = steps.low
    highs = steps.high
    nodes = steps.node
    for lo in range(0, n, LANES):
        load_lanes(block, lo, mix, p)
        reach(p, tree, pi)
        split(p, pi, tree, q)
        for b in range(LANES):
            pi[0, b] = 1.0
        descend(q, tree, every, 0, n_branches, p, pi)
        for u in range(n_utilities):
            fresh[u] = False
        for g in range(weights.shape[0]):
            for b in range(LANES):
                lane_weights[g, b] = weights[g, min(lo + b, n - 1)]
        for t in range(nodes.shape[0]):
            # Plain indices up to here: a slice costs as much as the test it would serve.
            u = utilities[t]
            if not fresh[u]:
                for v in range(n_branches):
                    if stale[v] & pack.reads[u, v]:
                        _step_down(v, q, tree, every, p, pi, stale)
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
            if not mark_inside(scores, u, lows[t], highs[t], active):
                continue
            v = nodes[t]
            # Unless the reported leaves are some of those below v, all of them pay the same.
            truth = pack.kind[u] == LEVEL or pack.kind[u] == GREEDY
            moves = not truth or v < 0
            if not moves and not keep_moved(places[u], tree.start[v], tree.stop[v], active):
                continue
            group = groups[t]
            if not keep_weighed(lane_weights, group, active):
                continue
            if v < 0:
                for w in range(n_branches):
                    if stale[w]:
                        _step_down(w, q, tree, every, p, pi, stale)
                leaf_direction(
                    pack.kind[u],
                    tree,
                    p,
                    pi,
                    values[u],
                    sums[u],
                    amounts[u],
                    places[u],
                    lane_weights[group],
                    h,
                )
                if not drop_still(h, n_leaves, active):
                    continue
                tilt_leaves(q, h, steps.step[t], active, tree, p, pi, top, total)
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
                    lane_weights[group],
                    h,
                )
                if not drop_still(h, count, active):
                    continue
                tilt(q, first, h, count, steps.step[t], active, top, total)
                stale[v] = True
            # A correctness utility does not look below its level, so some of it stays valid.
            for u in range(n_utilities):
                fresh[u] &= not (v < 0 or pack.reads[u, v])
        for v in range(n_branches):
            if stale[v]:
                _step_down(v, q, tree, every, p, pi, stale)
        for b in range(min(LANES, n - lo)):
            for k in range(n_leaves):
                out[lo + b, k] = p[k, b]
