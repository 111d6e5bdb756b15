"""Replay of updates in numpy alone: what a recalibrated model needs to serve.

The state of a row is q[e], the conditional probability of every edge of the tree; p and pi are the
leaf probabilities and the reaches of branches that follow from it. Every sum runs in the order of
the compiled kernels, so the two agree to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .lanes import Many, One

TINY = 1e-300
FEW_ROWS = 8  # from here on arrays are faster than plain numbers
_CHUNK_CELLS = 1 << 16
# As in `utilities.program`.
PAYOFF, LEVEL, GREEDY, SELECTIVE, RANK, DENSE = range(6)
TIE = 1e-9


class Tree:
    """The label tree as plain lists: leaf slices, children by code, branches below a branch."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.start: list[int] = data["start"]
        self.stop: list[int] = data["stop"]
        self.child_ptr: list[int] = data["child_ptr"]
        self.child_code: list[int] = data["child_code"]
        self.n_leaves = len(data["leaves"])
        self.n_branches = len(self.start)
        ends = list(zip(self.child_ptr, self.child_ptr[1:], strict=False))
        self.children: list[list[int]] = [self.child_code[first:last] for first, last in ends]
        self.leaves: list[str] = data["leaves"]
        self.branches: list[str] = data["branches"]
        self.below = list(range(1, self.n_branches + 1))
        for v in range(self.n_branches - 1, -1, -1):
            for code in self.codes(v):
                if code >= 0:
                    self.below[v] = max(self.below[v], self.below[code])
        # Slices by code; negative codes (leaves) count from the end of the list.
        backwards = range(self.n_leaves - 1, -1, -1)
        self.first = [*self.start, *backwards]
        self.last = [*self.stop, *(k + 1 for k in backwards)]
        self.names = [*self.branches, *reversed(self.leaves)]

    def codes(self, v: int) -> list[int]:
        """Children of a branch: a branch index, or -1 - leaf."""
        return self.children[v]

    def reach(self, p: Any, ops: Any) -> list[Any]:  # noqa: ARG002
        """Probability of every branch, children added left to right."""
        pi: list[Any] = [None] * self.n_branches
        for v in range(self.n_branches - 1, -1, -1):
            total: Any = 0.0
            for code in self.codes(v):
                total = total + (pi[code] if code >= 0 else p[-1 - code])
            pi[v] = total
        return pi

    def split(self, p: Any, pi: Any, ops: Any) -> list[Any]:
        """Conditional probability of every edge."""
        return [
            ops.maximum((pi[code] if code >= 0 else p[-1 - code]) / pi[v], TINY)
            for v in range(self.n_branches)
            for code in self.codes(v)
        ]

    def descend(self, q: Any, first: int, last: int, p: Any, pi: Any, ops: Any) -> None:
        """Set the probability of everything below branches first..last-1, parents first."""
        for v in range(first, last):
            whole = pi[v]
            for e in range(self.child_ptr[v], self.child_ptr[v + 1]):
                code = self.child_code[e]
                part = ops.maximum(whole * q[e], TINY)
                if code >= 0:
                    pi[code] = part
                else:
                    p[-1 - code] = part


class Reported:
    """What rows report: leaves [lo, hi) around one named leaf, and three payoffs."""

    def __init__(self, utility: dict[str, Any], tree: Tree, p: Any, pi: Any, ops: Any) -> None:
        self.ops = ops
        self.truth = utility["kind"] != SELECTIVE
        pick = _greedy if utility["kind"] == GREEDY else _heaviest
        self.code, self.mass = pick(utility["ints"], tree, p, pi, ops)
        self.lo = ops.pick(tree.first, self.code)
        self.hi = ops.pick(tree.last, self.code)
        self.inner: Any = -1
        self.outside, self.between, self.inside, self.inner_mass = 0.0, 1.0, 0.0, 0.0
        if utility["kind"] == SELECTIVE:
            self._select(utility["floats"], p)
        level = utility["kind"] == LEVEL
        self.score = self.mass if level else self.mean(0, tree.n_leaves, pi[0])

    def _select(self, floats: list[float], p: Any) -> None:
        ops = self.ops
        leaf, best = self.lo, None
        for k in range(len(p)):
            mine = ops.both(k >= self.lo, k < self.hi)
            if best is None:
                best = ops.where(mine, p[k], -1.0)
                leaf = ops.where(mine, k, leaf)
                continue
            heavier = ops.both(mine, p[k] > best)
            best = ops.where(heavier, p[k], best)
            leaf = ops.where(heavier, k, leaf)
        abstains = self.mass < floats[0] - TIE
        group = best < floats[1] * self.mass - TIE
        self.inner = ops.where(ops.either(abstains, group), -1, leaf)
        self.inner_mass = ops.where(self.inner >= 0, best, 0.0)
        self.outside = _three(ops, abstains, group, floats[2], floats[4], floats[7])
        self.between = _three(ops, abstains, group, floats[2], floats[3], floats[6])
        self.inside = ops.where(self.inner >= 0, floats[5], 0.0)
        self.abstains = abstains

    def mean(self, start: int, stop: int, mass: Any) -> Any:
        """Mean payoff over leaves start..stop-1 of total probability `mass`."""
        ops = self.ops
        names = ops.both(self.inner >= start, self.inner < stop)
        covered = ops.where(ops.both(start <= self.lo, self.hi <= stop), self.mass, mass)
        named = ops.where(names, self.inner_mass, 0.0)
        total = (
            self.outside * (mass - covered) + self.between * (covered - named) + self.inside * named
        )
        mean = total / mass
        within = ops.both(self.lo <= start, stop <= self.hi)
        mean = ops.where(ops.both(within, ops.where(names, 0, 1)), self.between, mean)
        if stop - start == 1:
            mean = ops.where(names, self.inside, mean)
        return ops.where(ops.either(stop <= self.lo, self.hi <= start), self.outside, mean)

    def node_mean(self, code: int, tree: Tree, p: Any, pi: Any) -> Any:
        """Mean payoff below a branch (code >= 0) or of the leaf -1 - code."""
        mass = pi[code] if code >= 0 else p[-1 - code]
        start, stop = tree.first[code], tree.last[code]
        if not self.truth or self.ops is not One:
            return self.mean(start, stop, mass)
        if stop <= self.lo or self.hi <= start:
            return 0.0
        return 1.0 if self.lo <= start and stop <= self.hi else self.mass / mass

    def moves(self, node: int, tree: Tree) -> bool:
        """Say whether one row's children of a node can differ: else all pay the same."""
        if not self.truth or node < 0:
            return True
        start, stop = tree.start[node], tree.stop[node]
        inside: bool = start <= self.lo and self.hi <= stop
        return inside and (self.lo != start or self.hi != stop)


class Values:
    """Payoff of every leaf, and its sums over subtrees."""

    def __init__(self, utility: dict[str, Any], tree: Tree, p: Any, pi: Any, ops: Any) -> None:  # noqa: ARG002
        if utility["kind"] == RANK:
            self.values = ops.by_rank(p, utility["floats"])
        elif utility["kind"] == DENSE:  # a function of the user's; never in a saved model
            self.values = ops.by_function(p, utility["function"])
        else:
            self.chosen = _best_action(utility["payoff"], p, ops)
            self.values = [ops.pick(column, self.chosen) for column in utility["columns"]]
        self.sums: list[Any] = [None] * tree.n_branches
        for v in range(tree.n_branches - 1, -1, -1):
            total: Any = 0.0
            for code in tree.codes(v):
                if code >= 0:
                    total = total + self.sums[code]
                else:
                    total = total + p[-1 - code] * self.values[-1 - code]
            self.sums[v] = total
        self.score = self.sums[0]

    def moves(self, node: int, tree: Tree) -> bool:  # noqa: ARG002
        """Say whether one row's children of a node can differ."""
        return True

    def node_mean(self, code: int, tree: Tree, p: Any, pi: Any) -> Any:  # noqa: ARG002
        """Mean payoff below a branch (code >= 0) or of the leaf -1 - code."""
        return self.sums[code] / pi[code] if code >= 0 else self.values[-1 - code]


def assess(utility: dict[str, Any], tree: Tree, p: Any, pi: Any, ops: Any) -> Reported | Values:
    """Evaluate one utility: its score and the means that directions need."""
    kind = Reported if utility["kind"] in {LEVEL, GREEDY, SELECTIVE} else Values
    return kind(utility, tree, p, pi, ops)


def _three(ops: Any, first: Any, second: Any, one: float, two: float, three: float) -> Any:
    return ops.where(first, one, ops.where(second, two, three))


def _heaviest(codes: list[int], tree: Tree, p: Any, pi: Any, ops: Any) -> tuple[Any, Any]:  # noqa: ARG001
    """First group of largest mass."""
    chosen: Any = codes[0]
    mass = pi[chosen] if chosen >= 0 else p[-1 - chosen]
    for code in codes[1:]:
        part = pi[code] if code >= 0 else p[-1 - code]
        heavier = part > mass + TIE
        mass = ops.where(heavier, part, mass)
        chosen = ops.where(heavier, code, chosen)
    return chosen, mass


def _greedy(stops: list[int], tree: Tree, p: Any, pi: Any, ops: Any) -> tuple[Any, Any]:
    """Follow the heaviest child, the first on a tie, until an edge says stop."""
    at: Any = 0
    chosen: Any = 0
    mass: Any = 0.0
    for v in range(tree.n_branches):
        here = at == v
        if not np.any(here):
            continue
        best, stop = None, None
        best_mass: Any = None
        for e in range(tree.child_ptr[v], tree.child_ptr[v + 1]):
            code = tree.child_code[e]
            part = pi[code] if code >= 0 else p[-1 - code]
            if best is None:
                best, stop, best_mass = code, stops[e], part
                continue
            heavier = part > best_mass + TIE
            best = ops.where(heavier, code, best)
            stop = ops.where(heavier, stops[e], stop)
            best_mass = ops.where(heavier, part, best_mass)
        ends = ops.both(here, stop == 1)
        chosen = ops.where(ends, best, chosen)
        mass = ops.where(ends, best_mass, mass)
        at = ops.where(here, ops.where(ends, -1, best), at)
    return chosen, mass


def _best_action(payoff: list[list[float]], p: Any, ops: Any) -> Any:
    """First action of largest mean payoff."""
    chosen: Any = 0
    best: Any = None
    for action, row in enumerate(payoff if len(payoff) > 1 else ()):
        trial: Any = 0.0
        for part, amount in zip(p, row, strict=True):
            if amount:  # adding zero changes no bit
                trial = trial + part * amount
        if best is None:
            best = trial
            continue
        better = trial > best + TIE
        best = ops.where(better, trial, best)
        chosen = ops.where(better, action, chosen)
    return chosen if len(payoff) > 1 else ops.where(p[0] >= 0, 0, 0)


def _moves(h: list[Any], ops: Any) -> Any:
    """Say whether directions differ; if not, dividing by their sum would move bits for nothing."""
    moves: Any = False
    for part in h[1:]:
        moves = ops.either(moves, part != h[0])
    return moves


def tilt(parts: list[Any], h: list[Any], step: float, ops: Any) -> list[Any]:
    """Multiply parts by e^(step h) and normalise; of two, one keeps its value until then."""
    if len(parts) == 2:
        left, right = parts
        ahead = h[0] * step - h[1] * step
        behind = ahead < 0.0
        small = ops.exp(ops.where(behind, ahead, ahead * -1.0))
        left = ops.where(behind, left * small, left)
        right = ops.where(behind, right, right * small)
        share = 1.0 / (left + right)
        return [ops.maximum(left * share, TINY), ops.maximum(right * share, TINY)]
    moved = [x * step for x in h]
    top = moved[0]
    for x in moved[1:]:
        top = ops.maximum(top, x)
    total: Any = 0.0
    grown = []
    for part, x in zip(parts, moved, strict=True):
        new = ops.exp(x - top) * part
        total = total + new
        grown.append(new)
    return [ops.maximum(new / total, TINY) for new in grown]


class Replay:
    """An ordered list of updates on one tree.

    Parameters
    ----------
    tree : Tree
    utilities : list of dict
        Compiled: ``name``, ``kind``, ``ints``, ``floats``, ``payoff``.
    updates : list of dict
        In their JSON form.
    groups : list of str
        Subgroups that updates name, in the order of the weights.
    """

    def __init__(
        self,
        tree: Tree,
        utilities: list[dict[str, Any]],
        updates: list[dict[str, Any]],
        groups: list[str],
    ) -> None:
        self.tree = tree
        self.utilities = [
            {
                **utility,
                "columns": [list(column) for column in zip(*utility["payoff"], strict=True)],
            }
            for utility in utilities
        ]
        utility_at = {utility["name"]: place for place, utility in enumerate(utilities)}
        self.updates = [
            (
                utility_at[update["utility"]],
                groups.index(update["subgroup"]),
                update["interval_low"],
                update["interval_high"],
                -1 if update["node"] is None else tree.branches.index(update["node"]),
                update["step"],
            )
            for update in updates
        ]

    def apply(self, probabilities: Any, weights: Any) -> Any:
        """Return updated probabilities; `weights` (G, n) are the groups that updates name."""
        out = np.empty_like(probabilities)
        n = len(probabilities)
        if n <= FEW_ROWS:
            for i in range(n):
                out[i] = self._one(probabilities[i].tolist(), weights[:, i].tolist())
            return out
        size = max(FEW_ROWS + 1, _CHUNK_CELLS // self.tree.n_leaves)
        for lo in range(0, n, size):
            rows = slice(lo, lo + size)
            out[rows] = self._many(probabilities[rows].T.copy(), weights[:, rows]).T
        return out

    def _start(self, p: Any, ops: Any) -> tuple[Any, Any]:
        pi = self.tree.reach(p, ops)
        q = self.tree.split(p, pi, ops)
        pi[0] = pi[0] * 0.0 + 1.0
        self.tree.descend(q, 0, self.tree.n_branches, p, pi, ops)
        return pi, q

    def _one(self, p: list[float], weights: list[float]) -> list[float]:
        tree = self.tree
        pi, q = self._start(p, One)
        known: dict[int, Reported | Values] = {}
        for utility, group, low, high, node, step in self.updates:
            weight = weights[group]
            if weight == 0.0:
                continue
            seen = known.get(utility)
            if seen is None:
                seen = known[utility] = assess(self.utilities[utility], tree, p, pi, One)
            if low <= seen.score <= high and seen.moves(node, tree):
                self._update(seen, node, step, weight, p, pi, q, One)
                known.clear()
        return p

    def _many(self, p: Any, weights: Any) -> Any:
        tree = self.tree
        n = p.shape[1]
        pi, q = self._start(p, Many)
        pi, q = np.array(pi), np.array(q)
        scores = np.empty((len(self.utilities), n))
        stale = np.ones((len(self.utilities), n), dtype=bool)
        for utility, group, low, high, node, step in self.updates:
            old = np.flatnonzero(stale[utility])
            if old.size:
                seen = assess(self.utilities[utility], tree, p[:, old], pi[:, old], Many)
                scores[utility, old] = seen.score
                stale[utility] = False
            score = scores[utility]
            rows = np.flatnonzero((score >= low) & (score <= high) & (weights[group] != 0.0))
            if not rows.size:
                continue
            part_p, part_pi, part_q = p[:, rows], pi[:, rows], q[:, rows]
            seen = assess(self.utilities[utility], tree, part_p, part_pi, Many)
            self._update(seen, node, step, weights[group][rows], part_p, part_pi, part_q, Many)
            p[:, rows], pi[:, rows], q[:, rows] = part_p, part_pi, part_q
            stale[:, rows] = True
        return p

    def _update(
        self,
        seen: Reported | Values,
        node: int,
        step: float,
        weight: Any,
        p: Any,
        pi: Any,
        q: Any,
        ops: Any,
    ) -> None:
        tree = self.tree
        if node < 0:
            self._update_leaves(seen, step, weight, p, pi, q, ops)
            return
        h = [seen.node_mean(code, tree, p, pi) * weight for code in tree.codes(node)]
        first, last = tree.child_ptr[node], tree.child_ptr[node + 1]
        moves = _moves(h, ops)
        new = tilt(list(q[first:last]), h, step, ops)
        for e in range(first, last):
            q[e] = ops.where(moves, new[e - first], q[e])
        tree.descend(q, node, tree.below[node], p, pi, ops)

    def _update_leaves(
        self, seen: Reported | Values, step: float, weight: Any, p: Any, pi: Any, q: Any, ops: Any
    ) -> None:
        tree = self.tree
        h = [seen.node_mean(-1 - k, tree, p, pi) * weight for k in range(tree.n_leaves)]
        moves = _moves(h, ops)
        new = tilt(list(p), h, step, ops)
        reach = tree.reach(new, ops)
        for e, part in enumerate(tree.split(new, reach, ops)):
            q[e] = ops.where(moves, part, q[e])
        pi[0] = pi[0] * 0.0 + 1.0
        tree.descend(q, 0, tree.n_branches, p, pi, ops)
