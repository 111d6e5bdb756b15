"""Numbers of nodes, multiplied down the tree to probabilities of the leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from huc_monitor.tree import LabelTree
from huc_monitor.utilities.program import Floats, Ints

_EMPTY: Final = "a branch all of whose children have probability 0"


@dataclass(frozen=True, eq=False)
class Entries:
    """What has a number in every row, and how numbers become probabilities of the leaves.

    Attributes
    ----------
    names : tuple of str
        The leaves, or every node below the root, parents before children.
    group : (M,) entries of one group are one distribution, and one softmax
    siblings : (M,) entries with the same parent have the same number
    paths : list of int arrays
        The entries on the way to every leaf; empty where entries are the leaves.
    group_names : list of str
    """

    names: tuple[str, ...]
    group: Ints
    siblings: Ints
    paths: list[Ints]
    group_names: list[str]

    @classmethod
    def of(cls, tree: LabelTree, kind: str) -> Entries:
        """Lay out entries of `kind`: leaves, branches or levels."""
        if kind == "leaves":
            whole = np.zeros(tree.n_leaves, dtype=np.int64)
            return cls(tree.leaves, whole, whole, [], ["all leaves"])
        names = nodes_below_root(tree)
        parents = [str(tree.parent(name)) for name in names]
        siblings, _ = _numbered(parents)
        if kind == "branches":
            group, owners = _numbered(parents)
            called = [f"the children of {owner!r}" for owner in owners]
        else:
            group, owners = _numbered([tree.depth(name) for name in names])
            called = [f"level {depth}" for depth in owners]
        place = {name: i for i, name in enumerate(names)}
        paths = [
            np.array([place[name] for name in (*tree.ancestors(leaf), leaf) if name in place])
            for leaf in tree.leaves
        ]
        return cls(names, group, siblings, paths, called)

    def to_leaves(
        self, matrix: Floats, scale: str, tolerance: float
    ) -> tuple[Floats, np.ndarray[Any, np.dtype[np.bool_]]]:
        """Return probabilities of the leaves, and which rows had a distribution in each group."""
        known = np.asarray((np.isfinite(matrix) | (matrix == -np.inf)).all(axis=1))
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            if scale == "logits":
                values = matrix - self._over(np.maximum, matrix, self.group, -np.inf)
                values = np.exp(values)
                values /= self._over(np.add, values, self.group, 0.0)
            else:
                values = matrix if scale == "probabilities" else np.exp(matrix)
                off = np.abs(self._over(np.add, values, self.group, 0.0) - 1.0)
                known &= (values >= 0).all(axis=1) & (off <= tolerance).all(axis=1)
            if not self.paths:
                return values if values is not matrix else matrix.copy(), known
            values = values / self._over(np.add, values, self.siblings, 0.0)
            leaves = np.empty((len(matrix), len(self.paths)))
            for k, path in enumerate(self.paths):
                leaves[:, k] = values[:, path].prod(axis=1)
        return leaves, known

    def explain(self, row: Floats, scale: str, tolerance: float) -> str:
        """Say what is wrong with a row of numbers."""
        if scale == "logits":
            none = np.bincount(self.group, weights=np.isfinite(row)) == 0
            at = int(np.argmax(none))
            return f"no logit of {self.group_names[at]} is finite" if none[at] else _EMPTY
        values = row if scale == "probabilities" else np.exp(row)
        if (values < 0).any():
            at = int(np.argmax(values < 0))
            return f"{row[at]:g} for {self.names[at]!r}"
        sums = np.bincount(self.group, weights=values)
        worst = int(np.argmax(np.abs(sums - 1.0)))
        if abs(sums[worst] - 1.0) > tolerance:
            return f"{scale} of {self.group_names[worst]} sum to {sums[worst]:.6g}"
        return _EMPTY

    def _over(self, function: Any, values: Floats, group: Ints, start: float) -> Floats:
        """Reduce each group of a row, and write the result beside each of its entries."""
        if not group.any():
            whole: Floats = function.reduce(values, axis=1, keepdims=True)
            return whole
        out = np.full((len(values), int(group.max()) + 1), start)
        for k in range(out.shape[1]):
            out[:, k] = function.reduce(values[:, group == k], axis=1)
        return out[:, group]


def nodes_below_root(tree: LabelTree) -> tuple[str, ...]:
    """Return every node but the root, parents before their children.

    Examples
    --------
    >>> from huc_monitor.tree import LabelTree
    >>> nodes_below_root(LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None}))
    ('cat', 'lion', 'lynx', 'dog')
    """
    found: list[str] = []
    waiting = list(reversed(tree.children(tree.root)))
    while waiting:
        found.append(waiting.pop())
        waiting += reversed(tree.children(found[-1]))
    return tuple(found)


def _numbered(values: list[Any]) -> tuple[Ints, list[Any]]:
    places = {value: i for i, value in enumerate(dict.fromkeys(values))}
    return np.array([places[value] for value in values], dtype=np.int64), list(places)
