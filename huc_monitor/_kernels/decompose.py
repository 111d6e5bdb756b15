"""Per-row work: utility values, subtree means and the contributions along the realised path.

Rows are handled sixteen at a time: a block of rows is turned so that one leaf's probabilities
of sixteen rows lie side by side, and every step over the tree is a step over vector registers.
"""

from __future__ import annotations

import numpy as np

from huc_monitor._kernels._compile import loop
from huc_monitor._kernels._lanes import LANES, add_row, heaviest
from huc_monitor._kernels.payoffs import fill_payoffs
from huc_monitor.utilities.program import DENSE, GREEDY, LEVEL, PAYOFF, RANK, SELECTIVE, TIE

SUM_TOLERANCE = 1e-6
_SHORT_PATH = 3


def first_bad_row(block):
    """Return (row, column, code, any_zero); code 0 fine, 1 not finite, 2 negative, 3 bad sum."""
    return _first_bad_row(block, np.empty(LANES), np.empty(LANES))


@loop
def _first_bad_row(block, totals, lows):
    n_leaves = block.shape[1]
    whole = n_leaves - n_leaves % LANES
    any_zero = False
    for i in range(block.shape[0]):
        row = block[i]
        total = 0.0
        low = 1.0
        if whole > 0:
            for b in range(LANES):
                totals[b] = 0.0
                lows[b] = 1.0
            for k in range(0, whole, LANES):
                for b in range(LANES):
                    value = row[k + b]
                    totals[b] += value
                    lows[b] = min(lows[b], value)
            total = totals[0]
            for b in range(LANES):
                low = min(low, lows[b])
        for k in range(whole, n_leaves):
            total += row[k]
            low = min(low, row[k])
        if whole > 0:
            for b in range(1, LANES):
                total += totals[b]
        any_zero |= low == 0.0
        # NaN and infinity spoil the sum, and the comparison is then false as well.
        if low >= 0.0 and abs(total - 1.0) <= SUM_TOLERANCE:
            continue
        for k in range(n_leaves):
            if not np.isfinite(row[k]):
                return i, k, 1, any_zero
            if row[k] < 0.0:
                return i, k, 2, any_zero
        return i, -1, 3, any_zero
    return -1, -1, 0, any_zero


@loop
def load_lanes(block, lo, mix, p):
    """Turn sixteen rows into lanes, mixed as eq:experimental-interiorization-v16 asks.

    A last, shorter group repeats its last row; the spare lanes are never read back.
    """
    n_leaves = block.shape[1]
    if lo + LANES <= block.shape[0]:
        # Eight numbers are one line of cache. A row's line is used up before the next row's is
        # read, because the lines of sixteen rows may well compete for one place.
        whole = n_leaves - n_leaves % 8
        for first in range(0, whole, 8):
            for b in range(LANES):
                for k in range(first, first + 8):
                    p[k, b] = block[lo + b, k]
        for k in range(whole, n_leaves):
            for b in range(LANES):
                p[k, b] = block[lo + b, k]
    else:
        last = block.shape[0] - 1
        for b in range(LANES):
            i = min(lo + b, last)
            for k in range(n_leaves):
                p[k, b] = block[i, k]
    if mix > 0.0:
        for k in range(n_leaves):
            for b in range(LANES):
                p[k, b] = (1.0 - mix) * p[k, b] + mix / n_leaves


@loop
def reach(p, tree, pi):
    """Reach probability of every branch, eq:subtree-probability, children left to right."""
    for v in range(tree.start.shape[0] - 1, -1, -1):
        for b in range(LANES):
            pi[v, b] = 0.0
        for e in range(tree.child_ptr[v], tree.child_ptr[v + 1]):
            code = tree.child_code[e]
            if code >= 0:
                add_row(pi, v, pi, code)
            else:
                add_row(pi, v, p, -1 - code)


@loop
def subtree_sums(p, values, tree, sums):
    """N_{u,v} of every branch, eq:subtree-utility-sum; the score is N at the root.

    The order of additions depends on the tree alone, never on the label, so that rows with the
    same prediction have bit-equal scores and stay tied.
    """
    for v in range(tree.start.shape[0] - 1, -1, -1):
        total = sums[v]
        for b in range(LANES):
            total[b] = 0.0
        for e in range(tree.child_ptr[v], tree.child_ptr[v + 1]):
            code = tree.child_code[e]
            if code >= 0:
                part = sums[code]
                for b in range(LANES):
                    total[b] += part[b]
            else:
                mass = p[-1 - code]
                value = values[-1 - code]
                for b in range(LANES):
                    total[b] += mass[b] * value[b]


@loop
def _mass(code, p, pi, b):
    return pi[code, b] if code >= 0 else p[-1 - code, b]


@loop
def _slice(code, tree):
    # Both are read, so that there is no jump: which it is depends on the row.
    start = tree.start[max(code, 0)]
    stop = tree.stop[max(code, 0)]
    return (-1 - code, -code) if code < 0 else (start, stop)


@loop
def _greedy(stops, tree, p, pi, chosen, mass):
    """Follow the heaviest child, the first on a tie, until an edge says stop."""
    for b in range(LANES):
        v = 0
        while True:
            best = tree.child_ptr[v]
            best_mass = _mass(tree.child_code[best], p, pi, b)
            for e in range(tree.child_ptr[v] + 1, tree.child_ptr[v + 1]):
                part = _mass(tree.child_code[e], p, pi, b)
                if part > best_mass + TIE:
                    best = e
                    best_mass = part
            if stops[best] == 1:
                chosen[b] = tree.child_code[best]
                mass[b] = best_mass
                break
            v = tree.child_code[best]


# A report is two nested slices of leaves, [lo, hi) around [inner, inner + 1), and three payoffs:
# outside, between, inside. `inner` is -1 where no leaf is named.
LO, HI, INNER = range(3)
OUTSIDE, BETWEEN, INSIDE, MASS, INNER_MASS = range(5)


@loop
def report(codes, stops, pays, tree, p, pi, places, amounts, chosen):
    """Decide what every lane reports, and what that pays.

    One of the groups `codes`, or where the greedy path `stops`; `pays` has thresholds and payoffs
    of a selective report. What a utility does not use is None, and is not even compiled.
    """
    if codes is not None:
        heaviest(codes, codes.shape[0], p, pi, amounts, chosen)
    if stops is not None:
        _greedy(stops, tree, p, pi, chosen, amounts[MASS])
    for b in range(LANES):
        lo, hi = _slice(chosen[b], tree)
        places[LO, b] = lo
        places[HI, b] = hi
        places[INNER, b] = -1
        amounts[OUTSIDE, b] = 0.0
        amounts[BETWEEN, b] = 1.0
        amounts[INSIDE, b] = 0.0
        amounts[INNER_MASS, b] = 0.0
    if pays is not None:
        for b in range(LANES):
            _select(pays, p, places, amounts, b)


@loop
def report_any(program, tree, p, pi, places, amounts, chosen):
    """Decide as `report` does for a utility whose kind is known at run time only."""
    if program.kind == GREEDY:
        report(None, program.ints, None, tree, p, pi, places, amounts, chosen)
    elif program.kind == SELECTIVE:
        report(program.ints, None, program.floats, tree, p, pi, places, amounts, chosen)
    else:
        report(program.ints, None, None, tree, p, pi, places, amounts, chosen)


@loop
def _select(floats, p, places, amounts, b):
    """MASSIVE's rule, eq:massive-action: abstain, report the group, or report the leaf."""
    if amounts[MASS, b] < floats[0] - TIE:
        amounts[OUTSIDE, b] = floats[2]
        amounts[BETWEEN, b] = floats[2]
        return
    leaf = places[LO, b]
    for k in range(leaf + 1, places[HI, b]):
        if p[k, b] > p[leaf, b]:
            leaf = k
    if p[leaf, b] < floats[1] * amounts[MASS, b] - TIE:
        amounts[OUTSIDE, b] = floats[4]
        amounts[BETWEEN, b] = floats[3]
    else:
        places[INNER, b] = leaf
        amounts[INNER_MASS, b] = p[leaf, b]
        amounts[OUTSIDE, b] = floats[7]
        amounts[BETWEEN, b] = floats[6]
        amounts[INSIDE, b] = floats[5]


@loop
def _truth_mean(start, stop, mass, places, amounts, b):
    """Do what `_report_mean` does for a report that pays 1 if true and 0 if not, without jumps."""
    lo = places[LO, b]
    hi = places[HI, b]
    mean = amounts[MASS, b] / mass
    mean = 1.0 if (lo <= start) & (stop <= hi) else mean
    return 0.0 if (stop <= lo) | (hi <= start) else mean


@loop
def _report_mean(start, stop, mass, places, amounts, b):
    """Mean payoff of a report over the leaves start..stop-1, whose total probability is mass."""
    lo = places[LO, b]
    hi = places[HI, b]
    inner = places[INNER, b]
    if stop <= lo or hi <= start:
        return amounts[OUTSIDE, b]
    if lo <= start and stop <= hi and (inner < start or inner >= stop):
        return amounts[BETWEEN, b]
    if inner == start and stop - start == 1:
        return amounts[INSIDE, b]
    covered = amounts[MASS, b] if start <= lo and hi <= stop else mass
    named = amounts[INNER_MASS, b] if start <= inner < stop else 0.0
    total = (
        amounts[OUTSIDE, b] * (mass - covered)
        + amounts[BETWEEN, b] * (covered - named)
        + amounts[INSIDE, b] * named
    )
    return total / mass


@loop
def fill_values(program, dense, lo, tree, p, pi, values, chosen, amounts, places):
    """Write u(p, y) of every leaf and lane, of a utility whose kind is known at run time only."""
    if program.kind == PAYOFF:
        fill_payoffs(program.payoff, None, None, lo, p, values, chosen, amounts)
    elif program.kind == RANK:
        fill_payoffs(None, program.floats, None, lo, p, values, chosen, amounts)
    elif program.kind == DENSE:
        fill_payoffs(None, None, dense, lo, p, values, chosen, amounts)
    else:
        report_any(program, tree, p, pi, places, amounts, chosen)
        for b in range(LANES):
            for k in range(p.shape[0]):
                values[k, b] = _report_mean(k, k + 1, p[k, b], places, amounts, b)


def make_room(tree, n_leaves):
    """Values and sums of a utility, and what it reports: the arrays that loops work in."""
    n_branches = max(1, tree.start.shape[0])
    return (
        np.empty((n_leaves, LANES)),
        np.empty((n_branches, LANES)),
        np.empty(max(LANES, n_leaves), dtype=np.int64),
        np.empty((5, LANES)),
        np.empty((3, LANES), dtype=np.int64),
    )


def utility_values(block, dense, tree, program, out):
    """Fill out[i, y] = u(p_i, y)."""
    n_leaves = block.shape[1]
    p = np.empty((n_leaves, LANES))
    pi = np.empty((max(1, tree.start.shape[0]), LANES))
    _utility_values(block, dense, tree, program, p, pi, make_room(tree, n_leaves), out)


@loop
def _utility_values(block, dense, tree, program, p, pi, room, out):
    values, _, chosen, amounts, places = room
    n_leaves = block.shape[1]
    for lo in range(0, block.shape[0], LANES):
        load_lanes(block, lo, 0.0, p)
        reach(p, tree, pi)
        fill_values(program, dense, lo, tree, p, pi, values, chosen, amounts, places)
        for b in range(min(LANES, block.shape[0] - lo)):
            for k in range(n_leaves):
                out[lo + b, k] = values[k, b]


@loop
def load_rows(block, tree, leaf_lanes, branch_lanes):
    """Turn a block of rows into lanes: 16 rows' probabilities, and reach probabilities."""
    for g in range(leaf_lanes.shape[0]):
        load_lanes(block, g * LANES, 0.0, leaf_lanes[g])
        reach(leaf_lanes[g], tree, branch_lanes[g])


def decompose_rows(
    leaf_lanes, branch_lanes, dense, labels, tree, program, paths, room, scores, contributions
):
    """Scores and path contributions of loaded rows, eq:tree-decomp-note.

    contributions[i, d] belongs to the d-th relevant branch on the path of labels[i]; the realised
    child's mean minus the branch's mean. A negative label is an unlabelled row. `room` is what
    `make_room` returned.
    """
    values, sums, chosen, amounts, places = room
    rows = (leaf_lanes, branch_lanes, labels, tree, paths, scores, contributions)
    kind, ints, floats = program.kind, program.ints, program.floats
    if kind in {LEVEL, GREEDY, SELECTIVE}:
        codes, stops = (None, ints) if kind == GREEDY else (ints, None)
        pays = floats if kind == SELECTIVE else None
        _decompose_reports(*rows, codes, stops, pays, chosen, amounts, places)
    else:
        payoff = program.payoff if kind == PAYOFF else None
        ranks = floats if kind == RANK else None
        given = dense if kind == DENSE else None
        _decompose_payoffs(*rows, payoff, ranks, given, values, sums, chosen, amounts)


# A branch between two relevant ones changes no mean, so each child's mean is the next branch's: one
# mean per step, and the steps telescope to the residual.


@loop
def _decompose_reports(
    leaf_lanes,
    branch_lanes,
    labels,
    tree,
    paths,
    scores,
    contributions,
    codes,
    stops,
    pays,
    chosen,
    amounts,
    places,
):
    n_rows = labels.shape[0]
    # Outside the report nothing below changes the mean; on short paths a jump costs more.
    deep = contributions.shape[1] > _SHORT_PATH
    for g in range(leaf_lanes.shape[0]):
        lo = g * LANES
        p = leaf_lanes[g]
        pi = branch_lanes[g]
        report(codes, stops, pays, tree, p, pi, places, amounts, chosen)
        for b in range(min(LANES, n_rows - lo)):
            i = lo + b
            if pays is None:
                parent = _truth_mean(0, p.shape[0], 1.0, places, amounts, b)
            else:
                parent = _report_mean(0, p.shape[0], 1.0, places, amounts, b)
            scores[i] = parent
            for d in range(contributions.shape[1]):
                contributions[i, d] = 0.0
            y = labels[i]
            if y < 0:
                continue
            first = paths.ptr[y]
            for t in range(first, paths.ptr[y + 1]):
                code = paths.child[t]
                start, stop = _slice(code, tree)
                mass = _mass(code, p, pi, b)
                if pays is None:
                    child = _truth_mean(start, stop, mass, places, amounts, b)
                else:
                    child = _report_mean(start, stop, mass, places, amounts, b)
                contributions[i, t - first] = child - parent
                parent = child
                if deep and (stop <= places[LO, b] or places[HI, b] <= start):
                    break


@loop
def _decompose_payoffs(
    leaf_lanes,
    branch_lanes,
    labels,
    tree,
    paths,
    scores,
    contributions,
    payoff,
    ranks,
    dense,
    values,
    sums,
    chosen,
    amounts,
):
    n_rows = labels.shape[0]
    for g in range(leaf_lanes.shape[0]):
        lo = g * LANES
        p = leaf_lanes[g]
        pi = branch_lanes[g]
        fill_payoffs(payoff, ranks, dense, lo, p, values, chosen, amounts)
        subtree_sums(p, values, tree, sums)
        for b in range(min(LANES, n_rows - lo)):
            i = lo + b
            parent = sums[0, b]
            scores[i] = parent
            for d in range(contributions.shape[1]):
                contributions[i, d] = 0.0
            y = labels[i]
            if y < 0:
                continue
            first = paths.ptr[y]
            for t in range(first, paths.ptr[y + 1]):
                code = paths.child[t]
                child = sums[code, b] / pi[code, b] if code >= 0 else values[-1 - code, b]
                contributions[i, t - first] = child - parent
                parent = child
