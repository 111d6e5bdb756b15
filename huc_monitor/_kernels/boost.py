"""Fitting: branch probabilities of a window, kept with sorted scores and contributions.

The state is one flat array: the E edges of row i are one stretch of memory, because an update
usually changes few rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from huc_monitor._kernels._compile import loop
from huc_monitor._kernels.boost_scan import LABEL_MASK, VALUES, WHO
from huc_monitor._kernels.branches import (
    assess,
    branch_direction,
    descend,
    leaf_direction,
    pay_for_truth,
    reports_node,
    split,
    tilt,
    tilt_leaves,
)
from huc_monitor._kernels.decompose import (
    BETWEEN,
    HI,
    INNER,
    INNER_MASS,
    INSIDE,
    LANES,
    LO,
    MASS,
    OUTSIDE,
    _mass,
    _slice,
    load_lanes,
    reach,
)


class Room(NamedTuple):
    """Sixteen rows and what a utility says about them: the arrays that loops work in."""

    p: Any
    pi: Any
    q: Any
    at: Any
    values: Any
    sums: Any
    chosen: Any
    amounts: Any
    places: Any
    score: Any
    weight: Any
    h: Any
    active: Any
    top: Any
    total: Any


def make_room(tree, n_parts=1):
    """Make the arrays for a tree, and for directions of `n_parts` parts."""
    n_leaves, n_branches = tree.stop[0], tree.start.shape[0]
    room = Room(
        p=np.ones((n_leaves, LANES)),
        pi=np.ones((n_branches, LANES)),
        q=np.empty((tree.child_code.shape[0], LANES)),
        at=np.empty(LANES, dtype=np.uintp),
        values=np.empty((n_leaves, LANES)),
        sums=np.empty((n_branches, LANES)),
        chosen=np.empty(max(LANES, n_leaves), dtype=np.int64),
        amounts=np.empty((5, LANES)),
        places=np.empty((3, LANES), dtype=np.int64),
        score=np.empty((1, LANES)),
        weight=np.empty(LANES),
        h=np.empty((n_parts, LANES)),
        active=np.ones(LANES, dtype=np.bool_),
        top=np.empty(LANES),
        total=np.empty(LANES),
    )
    pay_for_truth(room.amounts, room.places)
    return room


@loop
def _place(i, n_edges):
    return np.uintp(i * n_edges)


def start_state(block, mix, tree, state, at):
    """Branch probabilities of a block of rows, written as rows at.. of the state."""
    _start_state(block, mix, tree, state, at, make_room(tree))


@loop
def _start_state(block, mix, tree, state, at, room):
    p, pi, q = room.p, room.pi, room.q
    n_edges = tree.child_code.shape[0]
    for lo in range(0, block.shape[0], LANES):
        load_lanes(block, lo, mix, p)
        reach(p, tree, pi)
        split(p, pi, tree, q)
        for b in range(min(LANES, block.shape[0] - lo)):
            place = _place(at + lo + b, n_edges)
            for e in range(n_edges):
                state[place + np.uintp(e)] = q[e, b]


@loop
def _gather(state, rows, lo, tree, branches, at, q):
    """Load the edges of some branches for rows lo..lo+15; a short group repeats its last row."""
    last = rows.shape[0] - 1
    n_edges = tree.child_code.shape[0]
    for b in range(LANES):
        at[b] = _place(rows[min(lo + b, last)], n_edges)
    for t in range(branches.shape[0]):
        v = branches[t]
        for e in range(tree.child_ptr[v], tree.child_ptr[v + 1]):
            shift = np.uintp(e)
            for b in range(LANES):
                q[e, b] = state[at[b] + shift]


def leaf_rows(state, rows, tree, branches, out):
    """Leaf probabilities of some rows, shape (len(rows), K)."""
    _leaf_rows(state, rows, tree, branches, out, make_room(tree))


@loop
def _leaf_rows(state, rows, tree, branches, out, room):
    p, pi, q, at = room.p, room.pi, room.q, room.at
    n_leaves = out.shape[1]
    for lo in range(0, rows.shape[0], LANES):
        _gather(state, rows, lo, tree, branches, at, q)
        descend(q, tree, branches, 0, branches.shape[0], p, pi)
        for b in range(min(LANES, rows.shape[0] - lo)):
            for k in range(n_leaves):
                out[lo + b, k] = p[k, b]


@loop
def _report_mean_at(start, stop, mass, places, amounts, b):
    """One lane of `report_means`, without branches that a processor would guess wrong."""
    lo = places[LO, b]
    hi = places[HI, b]
    inner = places[INNER, b]
    outside = amounts[OUTSIDE, b]
    between = amounts[BETWEEN, b]
    inside = amounts[INSIDE, b]
    apart = (stop <= lo) | (hi <= start)
    within = (lo <= start) & (stop <= hi)
    names = (start <= inner) & (inner < stop)
    covered = amounts[MASS, b] if (start <= lo) & (hi <= stop) else mass
    named = amounts[INNER_MASS, b] if names else 0.0
    mean = (outside * (mass - covered) + between * (covered - named) + inside * named) / mass
    mean = between if within & (not names) else mean
    mean = inside if names & (stop - start == 1) else mean
    return outside if apart else mean


def refresh_rows(
    state, rows, dense, tree, program, branches, paths, scale, who, scores, reported, records
):
    """Compute scores of some rows again, and their new records in the order of `rows`.

    `branches` are those that the utility can read. Entry VALUES + d of a record belongs to the
    d-th relevant branch on the path of the label, in units of 1/scale (eq:tree-decomp-note).
    """
    _refresh_rows(
        state,
        rows,
        dense,
        tree,
        program,
        branches,
        paths,
        scale,
        who,
        scores,
        reported,
        records,
        make_room(tree),
    )


@loop
def _refresh_rows(
    state, rows, dense, tree, program, branches, paths, scale, who, scores, reported, records, room
):
    p, pi, q, at, leaf_values, sums, chosen, amounts, places, score = room[:10]
    reports = reports_node(program.kind)
    for lo in range(0, rows.shape[0], LANES):
        _gather(state, rows, lo, tree, branches, at, q)
        descend(q, tree, branches, 0, branches.shape[0], p, pi)
        assess(
            program, dense, lo, tree, p, pi, leaf_values, sums, chosen, amounts, places, score, 0
        )
        for b in range(min(LANES, rows.shape[0] - lo)):
            i = rows[lo + b]
            # Adding zero turns -0.0 into 0.0, which would compare equal but sort by bits.
            scores[i] = score[0, b] + 0.0
            records[lo + b, WHO] = who[i]
            if reported.shape[0] > 0:
                reported[i, 0] = places[LO, b]
                reported[i, 1] = places[HI, b]
            y = np.uintp(who[i] & LABEL_MASK)
            first = paths.ptr[y]
            at_branch = 0
            parent = score[0, b]
            for t in range(first, paths.ptr[y + np.uintp(1)]):
                v = paths.branch[t]
                code = paths.child[t]
                if reports:
                    if v != at_branch:
                        parent = _report_mean_at(
                            tree.start[v], tree.stop[v], pi[v, b], places, amounts, b
                        )
                    start, stop = _slice(code, tree)
                    child = _report_mean_at(start, stop, _mass(code, p, pi, b), places, amounts, b)
                else:
                    if v != at_branch:
                        parent = sums[v, b] / pi[v, b]
                    child = sums[code, b] / pi[code, b] if code >= 0 else leaf_values[-1 - code, b]
                records[lo + b, VALUES + t - first] = np.int64(np.rint((child - parent) * scale))
                # The next branch on the path is usually this child.
                at_branch = code
                parent = child


@loop
def affected_rows(scores, reported, weights, low, high, start, stop, out):
    """Rows with a nonzero weight and a score in the closed interval; return how many.

    Where `reported` is given, rows that report leaves outside start..stop-1, or all of them, are
    left out: below that branch every leaf pays the same, so they would not move.
    """
    count = 0
    for i in range(scores.shape[0]):
        out[count] = i
        count += (scores[i] >= low) & (scores[i] <= high) & (weights[i] != 0.0)
    if reported.shape[0] == 0:
        return count
    kept = 0
    for m in range(count):
        i = out[m]
        out[kept] = i
        lo = reported[i, 0]
        hi = reported[i, 1]
        kept += (lo >= start) & (hi <= stop) & (hi - lo < stop - start)
    return kept


def directions(state, rows, dense, weights, tree, program, branches, node, out):
    """Logit directions of some rows at a branch, or of all leaves when node is -1.

    Rows whose directions are all equal would not move: they are left out of `rows` and `out`.
    Return how many remain.
    """
    return _directions(
        state,
        rows,
        dense,
        weights,
        tree,
        program,
        branches,
        node,
        out,
        make_room(tree, out.shape[1]),
    )


@loop
def _directions(state, rows, dense, weights, tree, program, branches, node, out, room):
    p, pi, q, at, leaf_values, sums, chosen, amounts, places, score, weight, h = room[:12]
    count = 0
    for lo in range(0, rows.shape[0], LANES):
        _gather(state, rows, lo, tree, branches, at, q)
        descend(q, tree, branches, 0, branches.shape[0], p, pi)
        assess(
            program, dense, lo, tree, p, pi, leaf_values, sums, chosen, amounts, places, score, 0
        )
        for b in range(LANES):
            weight[b] = weights[rows[min(lo + b, rows.shape[0] - 1)]]
        if node < 0:
            leaf_direction(program.kind, tree, p, pi, leaf_values, sums, amounts, places, weight, h)
        else:
            branch_direction(
                program.kind, node, tree, p, pi, leaf_values, sums, amounts, places, weight, h
            )
        for b in range(min(LANES, rows.shape[0] - lo)):
            # Rows before lo + b are read already, so the list can shrink in place.
            rows[count] = rows[lo + b]
            moves = False
            for j in range(out.shape[1]):
                out[count, j] = h[j, b]
                moves |= h[j, b] != h[0, b]
            count += moves
    return count


@loop
def passes(first, last, start, stop):
    """Say whether a label over the leaves first..last-1 lies below the branch start..stop-1."""
    return start <= first and last <= stop and last - first < stop - start


@loop
def curvature(h, rows, firsts, lasts, repeats, start, stop, scale):
    """Sum of J_v(Y) (max h - min h)^2 / 4 over rows, as an integer of 1/scale.

    eq:general-direction-lambda; whole numbers, so that the step does not depend on row order.
    """
    total = 0
    for m in range(rows.shape[0]):
        i = rows[m]
        if not passes(firsts[i], lasts[i], start, stop):
            continue
        high = h[m, 0]
        low = h[m, 0]
        for j in range(1, h.shape[1]):
            high = max(high, h[m, j])
            low = min(low, h[m, j])
        times = repeats[i] if repeats.shape[0] > 0 else 1.0
        total += np.int64(np.rint(0.25 * (high - low) * (high - low) * times * scale))
    return total


def apply_step(state, rows, h, tree, branches, node, step):
    """Tilt some rows by step times their directions, at a branch or (node -1) at all leaves."""
    _apply_step(state, rows, h, tree, branches, node, step, make_room(tree, h.shape[1]))


@loop
def _apply_step(state, rows, h, tree, branches, node, step, room):
    p, pi, q, at = room.p, room.pi, room.q, room.at
    x, active, top, total = room.h, room.active, room.top, room.total
    n_parts = h.shape[1]
    first = 0 if node < 0 else tree.child_ptr[node]
    n_edges = tree.child_code.shape[0]
    count = n_edges if node < 0 else n_parts
    for lo in range(0, rows.shape[0], LANES):
        here = min(LANES, rows.shape[0] - lo)
        for b in range(LANES):
            for j in range(n_parts):
                x[j, b] = h[min(lo + b, rows.shape[0] - 1), j]
        if node < 0:
            _gather(state, rows, lo, tree, branches, at, q)
            descend(q, tree, branches, 0, branches.shape[0], p, pi)
            tilt_leaves(q, x, step, active, tree, p, pi, top, total)
        else:
            for b in range(LANES):
                at[b] = _place(rows[min(lo + b, rows.shape[0] - 1)], n_edges)
            for j in range(n_parts):
                for b in range(LANES):
                    q[first + j, b] = state[at[b] + np.uintp(first + j)]
            tilt(q, first, x, n_parts, step, active, top, total)
        for e in range(first, first + count):
            for b in range(here):
                state[at[b] + np.uintp(e)] = q[e, b]


@loop
def label_edges_log(state, rows, labels, firsts, lasts, start, stop, n_edges, edge_ptr, edges, out):
    """Log probability of the label, where it lies below start..stop-1: the sum over its path."""
    for m in range(rows.shape[0]):
        i = rows[m]
        if not passes(firsts[i], lasts[i], start, stop):
            continue
        place = _place(i, n_edges)
        total = 0.0
        for t in range(edge_ptr[labels[i]], edge_ptr[labels[i] + 1]):
            total += np.log(state[place + np.uintp(edges[t])])
        out[i] = total
