"""Payoffs of every leaf by the best action, by the rank of the leaf, or handed in."""

from __future__ import annotations

import numpy as np

from huc_monitor._kernels._compile import loop
from huc_monitor._kernels._lanes import LANES
from huc_monitor.utilities.program import TIE

# Up to so many likeliest leaves are found one after the other sooner than by sorting all.
_FEW = 4


@loop
def _best_action(payoff, p, chosen, mass, trial):
    """First action of largest mean payoff, up to `TIE`, in every lane."""
    for b in range(LANES):
        chosen[b] = 0
    if payoff.shape[0] == 1:
        return
    for a in range(payoff.shape[0]):
        for b in range(LANES):
            trial[b] = 0.0
        for k in range(payoff.shape[1]):
            part = p[k]
            amount = payoff[a, k]
            for b in range(LANES):
                trial[b] += part[b] * amount
        for b in range(LANES):
            better = a == 0 or trial[b] > mass[b] + TIE
            mass[b] = trial[b] if better else mass[b]
            chosen[b] = a if better else chosen[b]


@loop
def _comes_later(p, b, first, second):
    """Say whether leaf `first` ranks below `second`: less likely, or as likely and later."""
    return p[first, b] < p[second, b] or (p[first, b] == p[second, b] and first > second)


@loop
def _rank_leaves(p, b, order):
    """Write the leaves of one lane into `order`, likeliest first, by a sort in place (heapsort)."""
    n = p.shape[0]
    for k in range(n):
        order[k] = k
    for step in range(n // 2 + n):
        # First every parent is sunk, from the last up; then the root goes to the end, repeatedly.
        root = n // 2 - 1 - step
        stop = n
        if root < 0:
            stop = n - 1 - (step - n // 2)
            root = 0
            order[0], order[stop] = order[stop], order[0]
        while 2 * root + 1 < stop:
            child = 2 * root + 1
            if child + 1 < stop and _comes_later(p, b, order[child + 1], order[child]):
                child += 1
            if not _comes_later(p, b, order[child], order[root]):
                break
            order[root], order[child] = order[child], order[root]
            root = child


@loop
def _fill_top(ranks, n_top, p, values, chosen, mass, mass_before, leaf_before):
    """Write payoffs by rank where all ranks from the `n_top`-th on pay the same.

    The likeliest leaves are found one after the other, in all lanes at once: no sorting.
    """
    n_leaves = p.shape[0]
    for b in range(LANES):
        mass_before[b] = np.inf
        leaf_before[b] = -1.0
    for k in range(n_leaves):
        for b in range(LANES):
            values[k, b] = ranks[n_leaves - 1]
    for r in range(n_top):
        for b in range(LANES):
            mass[b] = -1.0
        for k in range(n_leaves):
            part = p[k]
            for b in range(LANES):
                tied = part[b] == mass_before[b] and k > leaf_before[b]
                better = (part[b] < mass_before[b] or tied) and part[b] > mass[b]
                mass[b] = part[b] if better else mass[b]
                chosen[b] = k if better else chosen[b]
        for b in range(LANES):
            values[chosen[b], b] = ranks[r]
            mass_before[b] = mass[b]
            leaf_before[b] = chosen[b]


@loop
def fill_payoffs(payoff, ranks, dense, lo, p, values, chosen, amounts):
    """Write u(p, y) of every leaf and lane for payoffs by action, by rank, or handed in.

    What a utility does not use is None. `chosen` has room for every lane and every leaf; first in
    order wins every tie.
    """
    n_leaves = p.shape[0]
    if payoff is not None:
        _best_action(payoff, p, chosen, amounts[0], amounts[1])
        for k in range(n_leaves):
            for b in range(LANES):
                values[k, b] = payoff[chosen[b], k]
    if ranks is not None:
        n_top = n_leaves - 1
        while n_top > 0 and ranks[n_top - 1] == ranks[n_leaves - 1]:
            n_top -= 1
        if n_top <= _FEW:
            _fill_top(ranks, n_top, p, values, chosen, amounts[0], amounts[1], amounts[2])
        else:
            for b in range(LANES):
                _rank_leaves(p, b, chosen)
                for r in range(n_leaves):
                    values[chosen[r], b] = ranks[r]
    if dense is not None:
        for b in range(LANES):
            i = min(lo + b, dense.shape[0] - 1)
            for k in range(n_leaves):
                values[k, b] = dense[i, k]
