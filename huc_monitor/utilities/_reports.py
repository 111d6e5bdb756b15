"""Utilities of reporting a node: correctness at a level, along a greedy path, or selectively."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from huc_monitor.errors import InvalidInputError
from huc_monitor.tree import LabelTree
from huc_monitor.utilities._base import Utility
from huc_monitor.utilities.program import GREEDY, LEVEL, SELECTIVE, Floats, Ints, Program, program


def _level_codes(tree: LabelTree, level: int | str) -> Ints:
    """Code (branch or -1 - leaf) of every group at a level, in leaf order."""
    groups = tree.level_codes(level)
    firsts = np.flatnonzero(np.diff(groups, prepend=-1))
    stops = np.append(firsts[1:], tree.n_leaves)
    slices = {(s, t): v for v, (s, t) in enumerate(_slices(tree))}
    codes = [
        slices[(int(lo), int(hi))] if hi - lo > 1 else -1 - int(lo)
        for lo, hi in zip(firsts, stops, strict=True)
    ]
    return np.array(codes, dtype=np.int64)


def _slices(tree: LabelTree) -> list[tuple[int, int]]:
    return list(zip(tree.arrays.start.tolist(), tree.arrays.stop.tolist(), strict=True))


def _check_level(level: int | str, name: str) -> None:
    if isinstance(level, bool) or not isinstance(level, int | str):
        msg = f"`level` must be a depth or a level name; got {level!r} ({name})."
        raise InvalidInputError(msg)
    if isinstance(level, int) and level < 1:
        msg = f"`level` must be at least 1 (the root is level 0); got {level} ({name})."
        raise InvalidInputError(msg)


@dataclass(frozen=True, repr=False)
class _AtLevel(Utility):
    level: int | str

    def __post_init__(self) -> None:
        """Check the level."""
        _check_level(self.level, self.family)
        super().__post_init__()

    def spreads(self, tree: LabelTree) -> Floats:
        """One above the level, zero below it."""
        groups, arrays = tree.level_codes(self.level), tree.arrays
        return np.asarray(groups[arrays.start] != groups[arrays.stop - 1], dtype=np.float64)


@dataclass(frozen=True, repr=False)
class LevelCorrectness(_AtLevel):
    """Top-1 correctness at a level of the tree.

    The reported category is the most probable one at that depth, leaves above the depth counting
    as themselves; the utility is one when it contains the label.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": ["pug", "husky"]})
    >>> [tree.branches[v] for v in hm.LevelCorrectness(level=1).relevant_branches(tree)]
    ['root']
    """

    @property
    def default_name(self) -> str:
        """``level1``, or the level's own name."""
        return self.level if isinstance(self.level, str) else f"level{self.level}"

    def compile(self, tree: LabelTree) -> Program:
        """Compile to the codes of the level's groups."""
        return program(LEVEL, ints=_level_codes(tree, self.level))


def correct_at_every_level(tree: LabelTree) -> tuple[LevelCorrectness, ...]:
    """Return what is audited where nothing is asked for: correctness at every level."""
    return tuple(LevelCorrectness(level=depth) for depth in range(1, tree.height + 1))


@dataclass(frozen=True, repr=False)
class GreedyPathCorrectness(_AtLevel):
    """Correctness of the node reached by following the heaviest child down to a depth.

    The status and family decisions of NSL-KDD and N-BaIoT: unlike
    `LevelCorrectness`, a choice made at an upper branch is never revised below it. A tie selects
    the first child.
    """

    @property
    def default_name(self) -> str:
        """``path1``, or ``path_`` followed by the name of the level."""
        return f"path_{self.level}" if isinstance(self.level, str) else f"path{self.level}"

    def compile(self, tree: LabelTree) -> Program:
        """Compile to one flag per edge, set where the walk stops below it."""
        groups = tree.level_codes(self.level)
        if groups[-1] == 0:
            # One group holds every leaf: the walk ends before its first choice.
            return program(LEVEL, ints=_level_codes(tree, self.level))
        arrays = tree.arrays
        stops = [
            int(code < 0 or groups[arrays.start[code]] == groups[arrays.stop[code] - 1])
            for code in arrays.child_code.tolist()
        ]
        return program(GREEDY, ints=stops)


@dataclass(frozen=True, repr=False)
class SelectiveReport(Utility):
    """Payoff of abstaining, naming a group, or naming a leaf, by confidence thresholds.

    MASSIVE's rule and payoffs: take the heaviest
    group at ``level``; below ``group_threshold`` abstain; name its heaviest leaf when that leaf
    holds at least ``leaf_threshold`` of the group's probability, else name the group.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"music": ["play", "stop"], "alarm": ["set", "off"]})
    >>> report = hm.SelectiveReport(group_threshold=0.55, leaf_threshold=0.75)
    >>> report.values([[0.6, 0.1, 0.2, 0.1]], tree=tree)
    array([[ 1. , -0.5, -1. , -1. ]])
    """

    group_threshold: float
    leaf_threshold: float
    level: int | str = 1
    abstain: float = 0.0
    group_right: float = 0.25
    group_wrong: float = -1.0
    leaf_right: float = 1.0
    leaf_sibling: float = -0.5
    leaf_wrong: float = -1.0

    def __post_init__(self) -> None:
        """Check thresholds and payoffs."""
        super().__post_init__()
        _check_level(self.level, self.family)
        limits = dict.fromkeys(_THRESHOLDS, 0) | dict.fromkeys(_PAYOFFS, -1)
        for argument, least in limits.items():
            value = getattr(self, argument)
            if not least <= value <= 1:
                msg = f"`{argument}` must lie between {least} and 1; got {value!r}."
                raise InvalidInputError(msg)

    @property
    def default_name(self) -> str:
        """``report_`` and both thresholds."""
        return f"report_{self.group_threshold:g}_{self.leaf_threshold:g}"

    def compile(self, tree: LabelTree) -> Program:
        """Compile to group codes, thresholds and payoffs."""
        floats = [getattr(self, name) for name in (*_THRESHOLDS, *_PAYOFFS)]
        return program(SELECTIVE, ints=_level_codes(tree, self.level), floats=floats)

    def spreads(self, tree: LabelTree) -> Floats:
        """Range of the payoffs that one report can lay over the leaves below each branch.

        The heaviest leaf of a group of k holds at least 1/k of it.
        """
        arrays = tree.arrays
        groups = tree.level_codes(self.level)
        size = np.bincount(groups)
        names_group = self.leaf_threshold > 1 / size
        spreads = np.zeros(arrays.n_branches)
        for v in range(arrays.n_branches):
            first, last = groups[arrays.start[v]], groups[arrays.stop[v] - 1]
            inside = slice(first, last + 1)
            below = arrays.stop[v] - arrays.start[v]
            if first == last:
                # All leaves of the branch are in one group: only the leaf's name tells them apart.
                spreads[v] = abs(self.leaf_right - self.leaf_sibling)
                continue
            if names_group[inside].any():
                spreads[v] = abs(self.group_right - self.group_wrong)
            for g in range(first, last + 1):
                paid = [self.leaf_right]
                paid += [self.leaf_sibling] if size[g] > 1 else []
                paid += [self.leaf_wrong] if below > size[g] else []
                spreads[v] = max(spreads[v], max(paid) - min(paid))
        return spreads


_THRESHOLDS = ("group_threshold", "leaf_threshold")
_PAYOFFS = ("abstain", "group_right", "group_wrong", "leaf_right", "leaf_sibling", "leaf_wrong")
