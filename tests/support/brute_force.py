"""Moments straight from the definitions: recursion over names, loops over leaves, all intervals.

Shares no code with the library beyond the public description of trees, utilities and subgroups.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np


class PlainTree:
    """A tree as a dictionary of children; every internal node is kept, unary ones included."""

    def __init__(self, tree):
        data = tree.to_dict()
        self.root = data["root"]
        self.children = data["children"]
        self._below, self._columns = {}, {}
        self.leaves = self.below(self.root)
        self.nodes = [name for name in self._preorder(self.root) if self.children.get(name)]

    def _preorder(self, name):
        yield name
        for child in self.children.get(name, []):
            yield from self._preorder(child)

    def below(self, name):
        if name not in self._below:
            kids = self.children.get(name, [])
            leaves = [leaf for kid in kids for leaf in self.below(kid)] if kids else [name]
            self._below[name] = leaves
        return self._below[name]

    def columns(self, name):
        if name not in self._columns:
            self._columns[name] = [self.leaves.index(leaf) for leaf in self.below(name)]
        return self._columns[name]

    def level(self, depth):
        found = [self.root]
        for _ in range(depth):
            found = [kid for name in found for kid in (self.children.get(name) or [name])]
        return found


def utility_values(utility, p, tree):
    """u(p, y) of every leaf for one prediction."""
    spec = utility.to_dict()
    return _FAMILIES[spec["type"]](spec, p, tree, utility)


def _named(spec, tree, key):
    return {leaf for name in spec[key] for leaf in tree.below(name)}


def _payoff_row(payoffs, default, scale, tree):
    row = dict.fromkeys(tree.leaves, default)
    for name in tree._preorder(tree.root):
        if name in payoffs:
            row.update(dict.fromkeys(tree.below(name), payoffs[name]))
    return np.array([row[leaf] for leaf in tree.leaves]) / scale


TIE = 1e-9


def _first_largest(numbers):
    """Place of the largest; what is not larger by more than `TIE` does not replace one before."""
    best = 0
    for k, number in enumerate(numbers):
        if number > numbers[best] + TIE:
            best = k
    return best


def _first_best(rows, p):
    return rows[_first_largest([float(np.dot(row, p)) for row in rows])]


def _payoff(spec, _p, tree, _):
    return _payoff_row(spec["payoffs"], spec["default"], spec["scale"], tree)


def _subtree(spec, _p, tree, _):
    return np.array([float(leaf in tree.below(spec["node"])) for leaf in tree.leaves])


def _action(spec, p, tree, _):
    rows = [
        _payoff_row(payoffs, spec["default"], spec["scale"], tree)
        for payoffs in spec["actions"].values()
    ]
    return _first_best(rows, p)


def _binary(spec, p, tree, _):
    active, favours = _named(spec, tree, "active"), _named(spec, tree, "favours")
    d = np.array([(leaf in favours) - spec["threshold"] * (leaf in active) for leaf in tree.leaves])
    return _first_best([d, -d], p)


def _mass(p, tree, name):
    return sum(p[k] for k in tree.columns(name))


def _heaviest(p, tree, names):
    return names[_first_largest([_mass(p, tree, name) for name in names])]


def _inside(tree, name):
    below = set(tree.below(name))
    return np.array([float(leaf in below) for leaf in tree.leaves])


def _level(spec, p, tree, _):
    return _inside(tree, _heaviest(p, tree, tree.level(spec["level"])))


def _greedy(spec, p, tree, _):
    name = tree.root
    for _ in range(spec["level"]):
        kids = tree.children.get(name)
        if not kids:
            break
        name = _heaviest(p, tree, kids)
    return _inside(tree, name)


def _selective(spec, p, tree, _):
    group = _heaviest(p, tree, tree.level(spec["level"]))
    mass = _mass(p, tree, group)
    if mass < spec["group_threshold"] - TIE:
        return np.full(len(tree.leaves), spec["abstain"])
    leaf = max(tree.below(group), key=lambda name: p[tree.leaves.index(name)])
    inside = _inside(tree, group)
    if p[tree.leaves.index(leaf)] < spec["leaf_threshold"] * mass - TIE:
        return np.where(inside == 1, spec["group_right"], spec["group_wrong"])
    values = np.where(inside == 1, spec["leaf_sibling"], spec["leaf_wrong"])
    values[tree.leaves.index(leaf)] = spec["leaf_right"]
    return values


def _rank(spec, p, _tree, _):
    order = sorted(range(len(p)), key=lambda k: (-p[k], k))
    payoffs = spec["payoffs"] + [spec["payoffs"][-1]] * len(p)
    values = np.empty(len(p))
    for rank, k in enumerate(order):
        values[k] = payoffs[rank]
    return values


def _top_k(spec, p, tree, _):
    return _rank({"payoffs": [1.0] * spec["k"] + [0.0]}, p, tree, None)


def _custom(_spec, p, _tree, utility):
    return np.asarray(utility.function(p[None, :]))[0]


_FAMILIES = {
    "Payoff": _payoff,
    "SubtreeIndicator": _subtree,
    "ActionPayoff": _action,
    "BinaryAction": _binary,
    "LevelCorrectness": _level,
    "GreedyPathCorrectness": _greedy,
    "SelectiveReport": _selective,
    "RankPayoff": _rank,
    "TopK": _top_k,
    "CustomUtility": _custom,
}


def subtree_mean(p, values, tree, name):
    columns = tree.columns(name)
    return sum(p[k] * values[k] for k in columns) / sum(p[k] for k in columns)


def contribution(p, values, tree, node, label):
    """<Delta_{u,v}(p), R_v(p, y)> over the children, eq:local-residual-component."""
    reach = _mass(p, tree, node)
    mean = subtree_mean(p, values, tree, node)
    below = label in tree.below(node)
    total = 0.0
    for child in tree.children[node]:
        residual = float(label in tree.below(child)) - below * _mass(p, tree, child) / reach
        total += (subtree_mean(p, values, tree, child) - mean) * residual
    return total


@dataclass
class Best:
    moment: float
    size: float
    intervals: list


_pairs = functools.cache(np.triu_indices)


def best_interval(scores, terms):
    """Largest absolute sum over every closed interval between two observed scores."""
    distinct, block = np.unique(scores, return_inverse=True)
    prefix = np.append(0.0, np.cumsum(np.bincount(block, terms)))
    first, last = _pairs(len(distinct))
    sums = prefix[last + 1] - prefix[first]
    best = int(np.argmax(np.abs(sums)))
    size = abs(sums[best])
    near = np.flatnonzero(np.abs(sums) > size - 1e-13)
    intervals = [(distinct[first[k]], distinct[last[k]], sums[k]) for k in near]
    return Best(sums[best], size, intervals)


def row_terms(p, labels, utility, tree):
    """Score of every row, its contribution at every node, and its utility residual."""
    scores, residual = np.empty(len(p)), np.empty(len(p))
    by_node = {node: np.empty(len(p)) for node in tree.nodes}
    known = {}
    for i, (row, label) in enumerate(zip(p, labels, strict=True)):
        key = (row.tobytes(), label)
        if key not in known:
            values = utility_values(utility, row, tree)
            score = float(np.dot(row, values))
            parts = [contribution(row, values, tree, node, label) for node in tree.nodes]
            known[key] = score, values[tree.leaves.index(label)] - score, parts
        scores[i], residual[i], parts = known[key]
        for node, part in zip(tree.nodes, parts, strict=True):
            by_node[node][i] = part
    return scores, by_node, residual
