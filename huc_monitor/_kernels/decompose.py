"""Per-row work: utility values, subtree means and the contributions along the realised path."""

from __future__ import annotations

import numpy as np
from numba import njit

from huc_monitor._program import DENSE, GREEDY, LEVEL, PAYOFF, RANK, SELECTIVE

SUM_TOLERANCE = 1e-6


@njit(nogil=True, cache=True)
def first_bad_row(block):
    """Return (row, column, code, any_zero); code 0 fine, 1 not finite, 2 negative, 3 bad sum."""
    any_zero = False
    for i in range(block.shape[0]):
        total = 0.0
        for k in range(block.shape[1]):
            p = block[i, k]
            if not np.isfinite(p):
                return i, k, 1, any_zero
            if p < 0.0:
                return i, k, 2, any_zero
            any_zero |= p == 0.0
            total += p
        if abs(total - 1.0) > SUM_TOLERANCE:
            return i, -1, 3, any_zero
    return -1, -1, 0, any_zero


@njit(nogil=True, cache=True)
def reach(p, tree, pi):
    """Reach probability of every branch, eq:subtree-probability, children left to right."""
    for v in range(tree.start.shape[0] - 1, -1, -1):
        total = 0.0
        for e in range(tree.child_ptr[v], tree.child_ptr[v + 1]):
            code = tree.child_code[e]
            total += pi[code] if code >= 0 else p[-1 - code]
        pi[v] = total


@njit(nogil=True, cache=True)
def subtree_sums(p, values, tree, sums):
    """N_{u,v} of every branch, eq:subtree-utility-sum; returns the score, N at the root.

    The order of additions depends on the tree alone, never on the label, so that rows with the
    same prediction have bit-equal scores and stay tied.
    """
    n_branches = tree.start.shape[0]
    for v in range(n_branches - 1, -1, -1):
        total = 0.0
        for e in range(tree.child_ptr[v], tree.child_ptr[v + 1]):
            code = tree.child_code[e]
            total += sums[code] if code >= 0 else p[-1 - code] * values[-1 - code]
        sums[v] = total
    return sums[0] if n_branches > 0 else p[0] * values[0]


@njit(nogil=True, cache=True)
def _mass(code, p, pi):
    return pi[code] if code >= 0 else p[-1 - code]


@njit(nogil=True, cache=True)
def _set_slice(code, tree, values, value):
    if code < 0:
        values[-1 - code] = value
    else:
        for k in range(tree.start[code], tree.stop[code]):
            values[k] = value


@njit(nogil=True, cache=True)
def _heaviest(codes, p, pi):
    best = 0
    best_mass = _mass(codes[0], p, pi)
    for g in range(1, codes.shape[0]):
        mass = _mass(codes[g], p, pi)
        if mass > best_mass:
            best = g
            best_mass = mass
    return codes[best], best_mass


@njit(nogil=True, cache=True)
def _fill_payoff(payoff, p, values):
    n_actions = payoff.shape[0]
    chosen = 0
    if n_actions > 1:
        best = -np.inf
        for a in range(n_actions):
            total = 0.0
            for k in range(p.shape[0]):
                total += p[k] * payoff[a, k]
            if total > best:
                best = total
                chosen = a
    for k in range(p.shape[0]):
        values[k] = payoff[chosen, k]


@njit(nogil=True, cache=True)
def _fill_greedy(stops, tree, p, pi, values):
    values[:] = 0.0
    v = 0
    while True:
        first = tree.child_ptr[v]
        best = first
        best_mass = _mass(tree.child_code[first], p, pi)
        for e in range(first + 1, tree.child_ptr[v + 1]):
            mass = _mass(tree.child_code[e], p, pi)
            if mass > best_mass:
                best = e
                best_mass = mass
        if stops[best] == 1:
            _set_slice(tree.child_code[best], tree, values, 1.0)
            return
        v = tree.child_code[best]


@njit(nogil=True, cache=True)
def _fill_selective(codes, floats, tree, p, pi, values):
    """MASSIVE's rule, eq:massive-action: abstain, report the group, or report the leaf."""
    code, mass = _heaviest(codes, p, pi)
    if mass < floats[0]:
        values[:] = floats[2]
        return
    lo = -1 - code if code < 0 else tree.start[code]
    hi = lo + 1 if code < 0 else tree.stop[code]
    leaf = lo
    for k in range(lo + 1, hi):
        if p[k] > p[leaf]:
            leaf = k
    if p[leaf] / mass < floats[1]:
        values[:] = floats[4]
        values[lo:hi] = floats[3]
    else:
        values[:] = floats[7]
        values[lo:hi] = floats[6]
        values[leaf] = floats[5]


@njit(nogil=True, cache=True)
def fill_values(program, dense_row, tree, p, pi, values):
    """Write u(p, y) for every leaf y into `values`; first in order wins every tie."""
    kind = program.kind
    if kind == PAYOFF:
        _fill_payoff(program.payoff, p, values)
    elif kind == LEVEL:
        values[:] = 0.0
        code, _ = _heaviest(program.ints, p, pi)
        _set_slice(code, tree, values, 1.0)
    elif kind == GREEDY:
        _fill_greedy(program.ints, tree, p, pi, values)
    elif kind == SELECTIVE:
        _fill_selective(program.ints, program.floats, tree, p, pi, values)
    elif kind == RANK:
        ranks = np.argsort(-p, kind="mergesort")
        for r in range(p.shape[0]):
            values[ranks[r]] = program.floats[r]
    elif kind == DENSE:
        values[:] = dense_row


@njit(nogil=True, cache=True)
def load_row(block, i, mix, p):
    """Copy a row, mixed with `mix` uniform where asked (eq:experimental-interiorization-v16)."""
    n_leaves = block.shape[1]
    if mix > 0.0:
        for k in range(n_leaves):
            p[k] = (1.0 - mix) * block[i, k] + mix / n_leaves
    else:
        for k in range(n_leaves):
            p[k] = block[i, k]


@njit(nogil=True, cache=True)
def utility_values(block, dense, tree, program, mix, out):
    """Fill out[i, y] = u(p_i, y)."""
    p = np.empty(block.shape[1])
    pi = np.empty(tree.start.shape[0])
    for i in range(block.shape[0]):
        load_row(block, i, mix, p)
        reach(p, tree, pi)
        fill_values(program, dense[i % dense.shape[0]], tree, p, pi, out[i])


@njit(nogil=True, cache=True)
def decompose_rows(block, dense, labels, tree, program, mix, paths, scores, contributions):
    """Scores and path contributions of a block of rows, eq:tree-decomp-note.

    contributions[i, d] belongs to the d-th relevant branch on the path of labels[i]; the realised
    child's mean minus the branch's mean. A negative label is an unlabelled row.
    """
    p = np.empty(block.shape[1])
    values = np.empty(block.shape[1])
    pi = np.empty(tree.start.shape[0])
    sums = np.empty(tree.start.shape[0])
    for i in range(block.shape[0]):
        load_row(block, i, mix, p)
        reach(p, tree, pi)
        fill_values(program, dense[i % dense.shape[0]], tree, p, pi, values)
        score = subtree_sums(p, values, tree, sums)
        scores[i] = score
        contributions[i, :] = 0.0
        y = labels[i]
        if y < 0:
            continue
        first = paths.ptr[y]
        for t in range(first, paths.ptr[y + 1]):
            v = paths.branch[t]
            code = paths.child[t]
            child_mean = sums[code] / pi[code] if code >= 0 else values[-1 - code]
            branch_mean = sums[v] / pi[v] if v > 0 else score
            contributions[i, t - first] = child_mean - branch_mean
