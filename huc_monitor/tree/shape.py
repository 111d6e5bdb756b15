"""The shape of a label tree without its names: positions, slices, and arrays for kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from huc_monitor.errors import InvalidTreeError

MAX_PATH_ENTRIES = 2**26

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TreeArrays:
    """A label tree as read-only int64 arrays, nodes with a single child contracted.

    K leaves and M branches (nodes that choose among two or more children), both in depth-first
    order.

    Attributes
    ----------
    n_leaves, n_branches : int
        K and M.
    start, stop : array of shape (M,)
        The leaves under branch b are ``start[b]:stop[b]``.
    depth : array of shape (M,)
        Depth of the branch in the displayed tree; the root has 0.
    parent : array of shape (M,)
        Branch above, -1 for the topmost branch.
    child_ptr : array of shape (M + 1,)
        The children of branch b are ``child_code[child_ptr[b]:child_ptr[b + 1]]``.
    child_code : array of shape (child_ptr[-1],)
        A branch index when >= 0, otherwise ``-1 - leaf``.
    path_ptr : array of shape (K + M + 1,)
        The branches above leaf k are ``path_branch[path_ptr[k]:path_ptr[k + 1]]``, topmost first;
        those above branch b are at k = K + b, the code of a label that stops there.
    path_branch, path_child : array of shape (path_ptr[-1],)
        The branch, and the rank of the child that the path takes there.
    """

    n_leaves: int
    n_branches: int
    start: IntArray
    stop: IntArray
    depth: IntArray
    parent: IntArray
    child_ptr: IntArray
    child_code: IntArray
    path_ptr: IntArray
    path_branch: IntArray
    path_child: IntArray

    def __repr__(self) -> str:
        return f"TreeArrays(n_leaves={self.n_leaves}, n_branches={self.n_branches})"


class Shape:
    """Where each node of a tree lies; nodes are numbered by their position in preorder.

    Attributes
    ----------
    below : list of list of int
        Children of each node.
    depths : list of int
        Steps from the root.
    leaves, branches : list of int
        Nodes with no child, and with two or more.
    slices : list of (int, int)
        First leaf under each node and one past the last.
    """

    def __init__(self, parents: Sequence[int]) -> None:
        self._parents = parents
        self.below: list[list[int]] = [[] for _ in parents]
        self.depths = [0] * len(parents)
        for position in range(1, len(parents)):
            self.below[parents[position]].append(position)
            self.depths[position] = self.depths[parents[position]] + 1
        self.leaves = [position for position, below in enumerate(self.below) if not below]
        self.branches = [position for position, below in enumerate(self.below) if len(below) > 1]
        self.slices = self._leaf_slices()

    def _leaf_slices(self) -> list[tuple[int, int]]:
        size = [0 if below else 1 for below in self.below]
        for position in range(len(size) - 1, 0, -1):
            size[self._parents[position]] += size[position]
        slices: list[tuple[int, int]] = []
        start = 0
        for leaves, below in zip(size, self.below, strict=True):
            slices.append((start, start + leaves))
            start += not below
        return slices

    def level(self, depth: int) -> list[int]:
        """Return the nodes at `depth`, and the leaves above it, in order."""
        return [
            position
            for position, (here, below) in enumerate(zip(self.depths, self.below, strict=True))
            if here == depth or (here < depth and not below)
        ]

    @cached_property
    def arrays(self) -> TreeArrays:
        """The arrays that kernels read."""
        code = self.contracted_codes()
        parent, rank = self._branches_above(code)
        path_ptr = _offsets([rank[node] for node in (*self.leaves, *self.branches)])
        path_branch, path_child = self._paths(path_ptr, rank)
        arrays = {
            "start": [self.slices[branch][0] for branch in self.branches],
            "stop": [self.slices[branch][1] for branch in self.branches],
            "depth": [self.depths[branch] for branch in self.branches],
            "parent": [parent[branch] for branch in self.branches],
            "child_ptr": _offsets([len(self.below[branch]) for branch in self.branches]),
            "child_code": [code[child] for branch in self.branches for child in self.below[branch]],
            "path_ptr": path_ptr,
            "path_branch": path_branch,
            "path_child": path_child,
        }
        frozen = {name: np.asarray(values, dtype=np.int64) for name, values in arrays.items()}
        for values in frozen.values():
            values.flags.writeable = False
        return TreeArrays(n_leaves=len(self.leaves), n_branches=len(self.branches), **frozen)

    def contracted_codes(self) -> list[int]:
        """Return, per node, the branch or leaf where its chain of only children ends."""
        code = [0] * len(self.below)
        for index, branch in enumerate(self.branches):
            code[branch] = index
        for index, leaf in enumerate(self.leaves):
            code[leaf] = -1 - index
        for position in range(len(code) - 1, -1, -1):
            if len(self.below[position]) == 1:
                code[position] = code[position + 1]
        return code

    def _branches_above(self, code: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return, per node, the nearest branch above it (-1: none) and how many there are."""
        nearest = [-1] * len(self.below)
        count = [0] * len(self.below)
        for position in range(1, len(self.below)):
            above = self._parents[position]
            chooses = len(self.below[above]) > 1
            nearest[position] = code[above] if chooses else nearest[above]
            count[position] = count[above] + chooses
        return nearest, count

    def _paths(self, path_ptr: IntArray, rank: Sequence[int]) -> tuple[IntArray, IntArray]:
        if path_ptr[-1] > MAX_PATH_ENTRIES:
            msg = (
                f"The tree must have at most {MAX_PATH_ENTRIES:,} branches on all its paths "
                f"together; got {path_ptr[-1]:,}. Group the labels into a shallower tree."
            )
            raise InvalidTreeError(msg)
        path_branch = np.empty(path_ptr[-1], dtype=np.int64)
        path_child = np.empty(path_ptr[-1], dtype=np.int64)
        n_leaves = len(self.leaves)
        starts = np.array([self.slices[branch][0] for branch in self.branches], dtype=np.int64)
        for index, branch in enumerate(self.branches):
            start, stop = self.slices[branch]
            # In preorder, the branches below one follow it.
            last = index + int(np.searchsorted(starts[index:], stop))
            inner = np.arange(index + 1, last)
            first_leaf = np.concatenate([np.arange(start, stop), starts[inner]])
            labels = np.concatenate([np.arange(start, stop), n_leaves + inner])
            children = [self.slices[child][0] for child in self.below[branch]]
            here = path_ptr[labels] + rank[branch]
            path_branch[here] = index
            path_child[here] = np.searchsorted(children, first_leaf, side="right") - 1
        return path_branch, path_child


def _offsets(lengths: Sequence[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
