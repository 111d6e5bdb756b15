"""Sixteen rows at a time, stored as branch probabilities: what boosting and its replay share.

The state of a row is q[e], the conditional probability of every edge of the tree. An update at a
branch writes the edges of that branch and nothing else, so the reach of the branch, the
distributions inside its children and all leaves outside keep every bit. Fitting and replay call
the functions below on the same state, so they agree bit for bit; even the exponential is plain
arithmetic, the same on every machine.
"""

from __future__ import annotations

import numpy as np
from numba import njit

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
    _fill_values,
    _report,
    _slice,
    subtree_sums,
)
from huc_monitor._program import GREEDY, LEVEL, SELECTIVE

# Far below any probability that matters, far above the smallest normal number.
TINY = 1e-300

_SHIFTER = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to a whole number
_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.6931471803691238
_LN2_LOW = 1.9082149292705877e-10


@njit(nogil=True, cache=True, error_model="numpy")
def exp_below(x, j, top, shifted, bits):
    """Replace x[j] by e^{x[j] - top}, top being at least x[j]; `bits` views `shifted`.

    2**k times a Taylor polynomial on |r| <= ln(2) / 2, within two units in the last place. No call
    into a maths library: those differ between machines and between vector and scalar loops.
    """
    for b in range(LANES):
        x[j, b] = max(x[j, b] - top[b], -700.0)
        shifted[b] = x[j, b] * _LOG2_E + _SHIFTER
    for b in range(LANES):
        k = shifted[b] - _SHIFTER
        r = (x[j, b] - k * _LN2_HIGH) - k * _LN2_LOW
        s = 1.0 / 6227020800.0
        s = s * r + 1.0 / 479001600.0
        s = s * r + 1.0 / 39916800.0
        s = s * r + 1.0 / 3628800.0
        s = s * r + 1.0 / 362880.0
        s = s * r + 1.0 / 40320.0
        s = s * r + 1.0 / 5040.0
        s = s * r + 1.0 / 720.0
        s = s * r + 1.0 / 120.0
        s = s * r + 1.0 / 24.0
        s = s * r + 1.0 / 6.0
        s = s * r + 0.5
        s = s * r + 1.0
        x[j, b] = s * r + 1.0
    for b in range(LANES):
        bits[b] = (bits[b] + 1023) << 52
    for b in range(LANES):
        x[j, b] *= shifted[b]


@njit(nogil=True, cache=True, error_model="numpy")
def split(p, pi, tree, q):
    """Branch probabilities from leaf probabilities p and reaches pi (eq:branch-conditional)."""
    for v in range(tree.start.shape[0]):
        whole = pi[v]
        for e in range(tree.child_ptr[v], tree.child_ptr[v + 1]):
            code = tree.child_code[e]
            part = pi[code] if code >= 0 else p[-1 - code]
            for b in range(LANES):
                q[e, b] = max(part[b] / whole[b], TINY)


@njit(nogil=True, cache=True, error_model="numpy")
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
                for b in range(LANES):
                    pi[code, b] = max(pi[v, b] * q[e, b], TINY)
            else:
                for b in range(LANES):
                    p[-1 - code, b] = max(pi[v, b] * q[e, b], TINY)


@njit(nogil=True, cache=True, error_model="numpy")
def reports_node(kind):
    """Say whether a utility pays for a reported node; such payoffs need no values per leaf."""
    return kind in (LEVEL, GREEDY, SELECTIVE)


@njit(nogil=True, cache=True, error_model="numpy")
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


@njit(nogil=True, cache=True, error_model="numpy")
def report_level(codes, tree, p, pi, places, amounts, chosen):
    """Report the first group of largest mass; what `_report` does for a level, in fewer steps."""
    for b in range(LANES):
        chosen[b] = codes[0]
        amounts[MASS, b] = pi[codes[0], b] if codes[0] >= 0 else p[-1 - codes[0], b]
    for g in range(1, codes.shape[0]):
        code = codes[g]
        if code >= 0:
            for b in range(LANES):
                heavier = pi[code, b] > amounts[MASS, b]
                amounts[MASS, b] = pi[code, b] if heavier else amounts[MASS, b]
                chosen[b] = code if heavier else chosen[b]
        else:
            for b in range(LANES):
                heavier = p[-1 - code, b] > amounts[MASS, b]
                amounts[MASS, b] = p[-1 - code, b] if heavier else amounts[MASS, b]
                chosen[b] = code if heavier else chosen[b]
    for b in range(LANES):
        leaf = chosen[b] < 0
        v = max(chosen[b], 0)
        places[LO, b] = -1 - chosen[b] if leaf else tree.start[v]
        places[HI, b] = -chosen[b] if leaf else tree.stop[v]
        places[INNER, b] = -1
        amounts[OUTSIDE, b] = 0.0
        amounts[BETWEEN, b] = 1.0
        amounts[INSIDE, b] = 0.0
        amounts[INNER_MASS, b] = 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def assess(program, dense, lo, tree, p, pi, values, sums, chosen, amounts, places, scores, u):
    """Scores of sixteen rows, into scores[u]; rows lo.. of `dense` are theirs."""
    if reports_node(program.kind):
        if program.kind == LEVEL:
            report_level(program.ints, tree, p, pi, places, amounts, chosen)
        else:
            _report(program, tree, p, pi, places, amounts, chosen)
        report_means(0, p.shape[0], pi, 0, places, amounts, scores, u)
    else:
        _fill_values(program, dense, lo, tree, p, pi, values, chosen, amounts, places)
        subtree_sums(p, values, tree, sums)
        for b in range(LANES):
            scores[u, b] = sums[0, b]


@njit(nogil=True, cache=True, error_model="numpy")
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


@njit(nogil=True, cache=True, error_model="numpy")
def branch_direction(kind, v, tree, p, pi, values, sums, amounts, places, scores, u, weight, h):
    """Logit direction c(x) Delta_{u,v}(p) of every child of v (eq:huc-boost-frozen-direction).

    The row of h after the children's holds the branch's own mean.
    """
    first = tree.child_ptr[v]
    own = tree.child_ptr[v + 1] - first
    if v == 0:
        for b in range(LANES):
            h[own, b] = scores[u, b]
    else:
        node_mean(kind, v, tree, p, pi, values, sums, amounts, places, h, own)
    for j in range(own):
        code = tree.child_code[first + j]
        node_mean(kind, code, tree, p, pi, values, sums, amounts, places, h, j)
        for b in range(LANES):
            h[j, b] = weight[b] * (h[j, b] - h[own, b])


@njit(nogil=True, cache=True, error_model="numpy")
def leaf_direction(kind, tree, p, pi, values, sums, amounts, places, scores, u, weight, h):
    """Leaf-logit direction c(x) (u(p, y) - mu_u(p)) (eq:toy8-empirical-uc-coefficients)."""
    for k in range(p.shape[0]):
        node_mean(kind, -1 - k, tree, p, pi, values, sums, amounts, places, h, k)
        for b in range(LANES):
            h[k, b] = weight[b] * (h[k, b] - scores[u, b])


@njit(nogil=True, cache=True, error_model="numpy")
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


@njit(nogil=True, cache=True, error_model="numpy")
def tilt(parts, first, h, n_parts, step, active, top, total, shifted, bits):
    """Multiply parts[first..] by e^{step h} and normalise; `h` is used up.

    eq:one-node-multiplicative-branch-update. Lanes that are not active keep every bit.
    """
    for b in range(LANES):
        top[b] = -np.inf
        total[b] = 0.0
    if n_parts == 2:
        # One of the two powers is e^0, so a single exponential serves both, with the same bits.
        for b in range(LANES):
            top[b] = step * h[0, b] - step * h[1, b]
            h[1, b] = -abs(top[b])
        exp_below(h, 1, total, shifted, bits)
        for b in range(LANES):
            h[0, b] = 1.0 if top[b] >= 0.0 else h[1, b]
            h[1, b] = h[1, b] if top[b] >= 0.0 else 1.0
    else:
        for j in range(n_parts):
            for b in range(LANES):
                h[j, b] *= step
                top[b] = max(top[b], h[j, b])
        for j in range(n_parts):
            exp_below(h, j, top, shifted, bits)
    for j in range(n_parts):
        for b in range(LANES):
            h[j, b] *= parts[first + j, b]
            total[b] += h[j, b]
    for j in range(n_parts):
        for b in range(LANES):
            new = max(h[j, b] / total[b], TINY)
            parts[first + j, b] = new if active[b] else parts[first + j, b]


@njit(nogil=True, cache=True, error_model="numpy")
def tilt_leaves(q, h, step, active, tree, p, pi, top, total, shifted, bits):
    """Tilt all leaf logits at once, and split the result over the branches again.

    Leaves pi ready for `descend`.
    """
    tilt(p, 0, h, p.shape[0], step, active, top, total, shifted, bits)
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
