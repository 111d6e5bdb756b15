"""Sixteen rows at a time, stored as branch probabilities: what boosting and its replay share.

The state of a row is q[e], the conditional probability of every edge of the tree. An update at a
branch writes the edges of that branch and nothing else, so the reach of the branch, the
distributions inside its children and all leaves outside keep every bit. Fitting and replay call
the functions below on the same state, so they agree bit for bit; even the exponential is plain
arithmetic, the same on every machine.
"""

from __future__ import annotations

import numpy as np

from huc_monitor._kernels._compile import loop
from huc_monitor._kernels._lanes import TINY, heaviest, level_mean, step_down, tilt_part, tilt_two
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
    _slice,
    fill_values,
    report_any,
    subtree_sums,
)
from huc_monitor.utilities.program import GREEDY, LEVEL, SELECTIVE


@loop
def split(p, pi, tree, q):
    """Branch probabilities from leaf probabilities p and reaches pi (eq:branch-conditional)."""
    for v in range(tree.start.shape[0]):
        whole = pi[v]
        for e in range(tree.child_ptr[v], tree.child_ptr[v + 1]):
            code = tree.child_code[e]
            part = pi[code] if code >= 0 else p[-1 - code]
            for b in range(LANES):
                q[e, b] = max(part[b] / whole[b], TINY)


@loop
def descend(q, tree, branches, first, last, p, pi):
    """Reach of every child of branches[first..last-1], parents first (eq:softmax-leaf-product).

    Only these branches are read and only their children written; pi[0] is one. As below, rows of
    lanes are named by number: a slice held in a variable costs more than the work on it.
    """
    for t in range(first, last):
        v = branches[t]
        for e in range(tree.child_ptr[v], tree.child_ptr[v + 1]):
            code = tree.child_code[e]
            if code >= 0:
                step_down(pi, code, pi, v, q, e)
            else:
                step_down(p, -1 - code, pi, v, q, e)


@loop
def reports_node(kind):
    """Say whether a utility pays for a reported node; such payoffs need no values per leaf."""
    return kind in (LEVEL, GREEDY, SELECTIVE)


@loop
def report_means(start, stop, masses, r, places, amounts, out, o):
    """Mean payoff of every lane's report over leaves start..stop-1, into out[o].

    masses[r] is the probability of these leaves. Rows are named by number because handing over a
    slice would cost as much as the work.
    """
    for b in range(LANES):
        lo = places[LO, b]
        hi = places[HI, b]
        inner = places[INNER, b]
        mass = masses[r, b]
        # Bitwise, so that there is no jump and sixteen lanes stay side by side.
        apart = (stop <= lo) | (hi <= start)
        within = (lo <= start) & (stop <= hi)
        names = (start <= inner) & (inner < stop)
        covered = amounts[MASS, b] if (start <= lo) & (hi <= stop) else mass
        named = amounts[INNER_MASS, b] if names else 0.0
        total = (
            amounts[OUTSIDE, b] * (mass - covered)
            + amounts[BETWEEN, b] * (covered - named)
            + amounts[INSIDE, b] * named
        )
        mean = total / mass
        mean = amounts[BETWEEN, b] if within & (not names) else mean
        mean = amounts[INSIDE, b] if names & (stop - start == 1) else mean
        out[o, b] = amounts[OUTSIDE, b] if apart else mean


@loop
def pay_for_truth(amounts, places):
    """Set what a report of a level pays: 1 if true, 0 if not. `report_level` leaves it alone."""
    for b in range(LANES):
        places[INNER, b] = -1
        amounts[OUTSIDE, b] = 0.0
        amounts[BETWEEN, b] = 1.0
        amounts[INSIDE, b] = 0.0
        amounts[INNER_MASS, b] = 0.0


@loop
def report_level(codes, tree, p, pi, places, amounts, chosen):
    """Report the first group of largest mass; what `report` does for a level, in fewer steps."""
    heaviest(codes, codes.shape[0], p, pi, amounts, chosen)
    for b in range(LANES):
        code = chosen[b]
        v = max(code, 0)
        places[LO, b] = -1 - code if code < 0 else tree.start[v]
        places[HI, b] = -code if code < 0 else tree.stop[v]


@loop
def assess(program, dense, lo, tree, p, pi, values, sums, chosen, amounts, places, scores, u):
    """Scores of sixteen rows, into scores[u]; rows lo.. of `dense` are theirs.

    Levels ask that `pay_for_truth` was called.
    """
    if reports_node(program.kind):
        if program.kind == LEVEL:
            report_level(program.ints, tree, p, pi, places, amounts, chosen)
            for b in range(LANES):
                scores[u, b] = amounts[MASS, b]
        else:
            report_any(program, tree, p, pi, places, amounts, chosen)
            report_means(0, p.shape[0], pi, 0, places, amounts, scores, u)
    else:
        fill_values(program, dense, lo, tree, p, pi, values, chosen, amounts, places)
        subtree_sums(p, values, tree, sums)
        for b in range(LANES):
            scores[u, b] = sums[0, b]


@loop
def node_mean(kind, code, tree, p, pi, values, sums, amounts, places, out, o):
    """Mean utility below a branch (code >= 0) or of the leaf -1 - code, into out[o]."""
    if reports_node(kind):
        start, stop = _slice(code, tree)
        if code >= 0:
            report_means(start, stop, pi, code, places, amounts, out, o)
        else:
            report_means(start, stop, p, -1 - code, places, amounts, out, o)
    elif code >= 0:
        for b in range(LANES):
            out[o, b] = sums[code, b] / pi[code, b]
    else:
        for b in range(LANES):
            out[o, b] = values[-1 - code, b]


@loop
def branch_direction(kind, v, tree, p, pi, values, sums, amounts, places, weight, h):
    """Logit direction c(x) Delta_{u,v}(p) of every child of v (eq:huc-boost-frozen-direction).

    Up to what all children share, the branch's own mean: adding to all logits moves nothing.
    """
    first = tree.child_ptr[v]
    for j in range(tree.child_ptr[v + 1] - first):
        code = tree.child_code[first + j]
        if kind in (LEVEL, GREEDY):
            if code >= 0:
                level_mean(
                    h, j, pi, code, amounts, places, tree.start[code], tree.stop[code], weight
                )
            else:
                level_mean(h, j, p, -1 - code, amounts, places, -1 - code, -code, weight)
            continue
        node_mean(kind, code, tree, p, pi, values, sums, amounts, places, h, j)
        for b in range(LANES):
            h[j, b] *= weight[b]


@loop
def leaf_direction(kind, tree, p, pi, values, sums, amounts, places, weight, h):
    """Leaf-logit direction c(x) u(p, y), eq:toy8-empirical-uc-coefficients up to a shift."""
    for k in range(p.shape[0]):
        node_mean(kind, -1 - k, tree, p, pi, values, sums, amounts, places, h, k)
        for b in range(LANES):
            h[k, b] *= weight[b]


@loop
def drop_still(h, n_parts, active):
    """Deactivate lanes whose directions are all equal: dividing by their sum would move bits.

    Return whether any lane is left.
    """
    some = False
    for b in range(LANES):
        moves = False
        for j in range(1, n_parts):
            moves |= h[j, b] != h[0, b]
        active[b] &= moves
        some |= active[b]
    return some


@loop
def tilt(parts, first, h, n_parts, step, active, top, total):
    """Multiply parts[first..] by e^{step h} and normalise; `h` is used up.

    eq:one-node-multiplicative-branch-update. Lanes that are not active keep every bit.
    """
    if n_parts == 2:
        tilt_two(parts, first, h, step, active)
        return
    for b in range(LANES):
        top[b] = -np.inf
        total[b] = 0.0
    for j in range(n_parts):
        for b in range(LANES):
            h[j, b] *= step
            top[b] = max(top[b], h[j, b])
    for j in range(n_parts):
        tilt_part(h, j, top, parts, first + j, total)
    for j in range(n_parts):
        for b in range(LANES):
            new = max(h[j, b] / total[b], TINY)
            parts[first + j, b] = new if active[b] else parts[first + j, b]


@loop
def tilt_leaves(q, h, step, active, tree, p, pi, top, total):
    """Tilt all leaf logits at once, and split the result over the branches again.

    Leaves pi ready for `descend`.
    """
    tilt(p, 0, h, p.shape[0], step, active, top, total)
    for v in range(tree.start.shape[0] - 1, -1, -1):
        whole = pi[v]
        for b in range(LANES):
            whole[b] = 0.0
        for e in range(tree.child_ptr[v], tree.child_ptr[v + 1]):
            code = tree.child_code[e]
            part = pi[code] if code >= 0 else p[-1 - code]
            for b in range(LANES):
                whole[b] += part[b]
    for v in range(tree.start.shape[0]):
        whole = pi[v]
        for e in range(tree.child_ptr[v], tree.child_ptr[v + 1]):
            code = tree.child_code[e]
            part = pi[code] if code >= 0 else p[-1 - code]
            for b in range(LANES):
                new = max(part[b] / whole[b], TINY)
                q[e, b] = new if active[b] else q[e, b]
    for b in range(LANES):
        pi[0, b] = 1.0
