"""Scores and path contributions: the utility residual split over the tree, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from huc_monitor._common.row_order import check_row_order
from huc_monitor._common.threads import run_tasks
from huc_monitor.audit.inputs import (
    Predictions,
    check_labels,
    check_predictions,
    check_tree,
    check_utilities,
)
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats, Ints, PathTables, Program, TreeTables

_PARALLEL_ROWS = 100_000
# Rows are turned into vectors of 16; the scratch for them stays in a core's own cache.
_LANES = 16
_SCRATCH_CELLS = 1 << 16
# Contributions of every row that a pass over the probabilities may make, whatever their number.
_LEAST_ROOM = 8


@dataclass(frozen=True, slots=True, eq=False)
class UtilityRows:
    """Scores and contributions of one utility on a set of rows.

    Attributes
    ----------
    utility : Utility
    relevant : (S,) branch indices of the relevant branches; their positions are *slots*
    scores : (n,) predicted mean utility mu_u(p)
    contributions : (n, D) contribution of the d-th relevant branch on the path of the row's label
    labels : (n,) codes of leaves and, after them, of branches; -1 where there is no label yet
    paths : which branch each column of ``contributions`` belongs to, by label
    """

    tree: LabelTree
    utility: Utility
    relevant: Ints
    scores: Floats
    contributions: Floats
    labels: Ints
    paths: PathTables

    def __repr__(self) -> str:
        """Name the utility and the sizes."""
        return (
            f"UtilityRows({self.utility.name!r}, n={self.scores.size}, "
            f"branches={self.relevant.size})"
        )

    @property
    def path_slots(self) -> Ints:
        """Slot of every column of ``contributions`` by label; the number of slots where unused."""
        on_path = np.diff(self.paths.ptr)
        table = np.full((on_path.size, self.contributions.shape[1]), self.relevant.size)
        table[np.arange(table.shape[1]) < on_path[:, None]] = self.paths.slot
        return table

    def to_frame(self) -> pd.DataFrame:
        """Score, residual and one column per relevant branch; a row per prediction.

        Branches below a label that is no leaf have NaN: what would be there is not known.
        """
        n, n_slots = self.scores.size, self.relevant.size
        dense = np.zeros((n, n_slots + 1))
        dense[np.arange(n)[:, None], self.path_slots[self.labels]] = self.contributions
        dense = dense[:, :n_slots]
        residual = dense.sum(axis=1)
        start, stop = self.tree.label_slices(self.labels)
        arrays = self.tree.arrays
        for j, v in enumerate(self.relevant):
            dense[(start <= arrays.start[v]) & (arrays.stop[v] <= stop), j] = np.nan
        frame = pd.DataFrame(dense, columns=[self.tree.branches[v] for v in self.relevant])
        frame.insert(0, "residual", residual)
        frame.insert(0, "score", self.scores)
        return frame

    def by_branch(self) -> list[tuple[Ints, Floats]]:
        """Return, by slot, the rows whose label lies below a branch, and their contributions."""
        slots = self.path_slots[self.labels].ravel()
        order = np.argsort(slots, kind="stable")
        ends = np.searchsorted(slots[order], np.arange(self.relevant.size + 1))
        rows, values = order // self.contributions.shape[1], self.contributions.ravel()[order]
        return [(rows[lo:hi], values[lo:hi]) for lo, hi in pairwise(ends.tolist())]

    def take(self, rows: Ints) -> UtilityRows:
        """Return the same quantities for a subset of rows; nothing is computed again."""
        return UtilityRows(
            self.tree,
            self.utility,
            self.relevant,
            self.scores[rows],
            np.ascontiguousarray(self.contributions[rows]),
            self.labels[rows],
            self.paths,
        )


def join_rows(parts: Sequence[UtilityRows]) -> UtilityRows:
    """One utility's rows of several windows, one after the other."""
    first = parts[0]
    return UtilityRows(
        first.tree,
        first.utility,
        first.relevant,
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.contributions for part in parts]),
        np.concatenate([part.labels for part in parts]),
        first.paths,
    )


@dataclass(frozen=True, slots=True, eq=False)
class SortedRows:
    """One utility's rows in order of score; ``order`` leads back to the caller's rows.

    ``values`` are the contributions in whole numbers of 1 / ``scale``.
    """

    utility: Utility
    relevant: Ints
    order: Ints
    scores: Floats
    values: Ints
    labels: Ints
    paths: PathTables
    scale: float


def decompose(
    probabilities: Any,
    labels: Any,
    *,
    tree: LabelTree | str | Path,
    utilities: Sequence[Utility] | Utility | None = None,
) -> list[UtilityRows]:
    """Split every row's utility residual over the branches of the tree.

    By Theorem 3.1, realised minus predicted utility is exactly the sum of the
    contributions of the branches on the realised path.

    Parameters
    ----------
    probabilities : (n, K) array in the order of ``tree.leaves``, or DataFrame with leaf columns
    labels : (n,) names of nodes, or leaf codes
    tree : LabelTree, or the path of a tree file
    utilities : list of Utility
        Correctness at every level of the tree when left out.

    Returns
    -------
    list of UtilityRows, one per utility

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    >>> (rows,) = hm.decompose(
    ...     [[0.3, 0.3, 0.4]], ["lynx"], tree=tree, utilities=[hm.LevelCorrectness(level=2)]
    ... )
    >>> rows.to_frame()
       score  residual  root  cat
    0    0.4      -0.4  -0.4  0.0
    """
    tree = check_tree(tree)
    check_row_order(probabilities=probabilities, labels=labels)
    predictions = check_predictions(probabilities, tree=tree)
    codes = check_labels(labels, predictions.n, tree=tree)
    return list(iter_decomposed(check_utilities(utilities, tree), predictions, codes, tree=tree))


def iter_decomposed(
    utilities: Sequence[Utility], predictions: Predictions, labels: Ints, *, tree: LabelTree
) -> Iterator[UtilityRows]:
    """Decompose checked input, a few utilities per pass over the probabilities.

    A pass holds as many utilities as keep their contributions within half of the
    probabilities' own size, or eight columns, so that memory stays bounded and few passes are made.
    """
    room = max(_LEAST_ROOM, predictions.matrix.shape[1] // 2)
    batch: list[UtilityRows] = []
    for utility in utilities:
        rows = _empty_rows(utility, labels, tree)
        if batch and sum(r.contributions.shape[1] for r in (*batch, rows)) > room:
            yield from _fill(batch, predictions, tree)
            batch = []
        batch.append(rows)
    yield from _fill(batch, predictions, tree)


def decompose_utility(
    utility: Utility, predictions: Predictions, labels: Ints, *, tree: LabelTree
) -> UtilityRows:
    """Compute scores and contributions of one utility from checked input."""
    return next(iter_decomposed([utility], predictions, labels, tree=tree))


def _empty_rows(utility: Utility, labels: Ints, tree: LabelTree) -> UtilityRows:
    relevant, paths = relevant_paths(tree, utility)
    width = int(np.diff(paths.ptr).max(initial=0))
    scores, contributions = np.empty(labels.size), np.empty((labels.size, width))
    return UtilityRows(tree, utility, relevant, scores, contributions, labels, paths)


def _fill(
    batch: list[UtilityRows], predictions: Predictions, tree: LabelTree
) -> Iterator[UtilityRows]:
    from huc_monitor import _kernels

    tables = tree_tables(tree)
    programs = [rows.utility.compile(tree) for rows in batch]
    height = tree.n_leaves + tree.arrays.n_branches
    step = _LANES * max(1, _SCRATCH_CELLS // (height * _LANES))

    def work(first: int, last: int) -> None:
        room = -(-min(step, last - first) // _LANES)
        leaf_room = np.empty((room, tree.n_leaves, _LANES))
        branch_room = np.empty((room, tree.arrays.n_branches, _LANES))
        spare = _kernels.make_room(tables, tree.n_leaves)
        for lo in range(first, last, step):
            hi = min(lo + step, last)
            block = predictions.block(lo, hi)
            n_vectors = -(-(hi - lo) // _LANES)
            leaves, branches = leaf_room[:n_vectors], branch_room[:n_vectors]
            _kernels.load_rows(block, tables, leaves, branches)
            for rows, program in zip(batch, programs, strict=True):
                _kernels.decompose_rows(
                    leaves,
                    branches,
                    dense_block(rows.utility, block, tree),
                    rows.labels[lo:hi],
                    tables,
                    program,
                    rows.paths,
                    spare,
                    rows.scores[lo:hi],
                    rows.contributions[lo:hi],
                )

    list(run_tasks(work, predictions.spans()))
    while batch:
        yield batch.pop(0)


def dense_block(utility: Utility, block: Floats, tree: LabelTree) -> Floats:
    """Values of a utility no kernel knows, else one dummy row that the kernel ignores."""
    values = utility.dense_values(block, tree)
    return np.zeros((1, block.shape[1])) if values is None else values


def tree_tables(tree: LabelTree) -> TreeTables:
    """Return the arrays of a tree that kernels read."""
    arrays = tree.arrays
    return TreeTables(arrays.start, arrays.stop, arrays.child_ptr, arrays.child_code)


def relevant_paths(tree: LabelTree, utility: Utility) -> tuple[Ints, PathTables]:
    """Relevant branches of a utility, and where they lie on the path to every leaf."""
    arrays = tree.arrays
    relevant = utility.relevant_branches(tree)
    slot_of = np.full(arrays.n_branches, -1, dtype=np.int64)
    slot_of[relevant] = np.arange(relevant.size)
    slots = slot_of[arrays.path_branch]
    kept = slots >= 0
    children = arrays.child_code[arrays.child_ptr[arrays.path_branch] + arrays.path_child]
    kept_before = np.concatenate([[0], np.cumsum(kept)])
    return relevant, PathTables(
        np.ascontiguousarray(kept_before[arrays.path_ptr], dtype=np.int64),
        np.ascontiguousarray(arrays.path_branch[kept], dtype=np.int64),
        np.ascontiguousarray(children[kept], dtype=np.int64),
        np.ascontiguousarray(slots[kept], dtype=np.int64),
    )


def sort_rows(
    rows: UtilityRows, scale: float, like: tuple[Floats, Ints, Floats, Ints] | None = None
) -> SortedRows:
    """Sort labelled rows by score, once per utility, and gather what the scans stream through.

    ``like`` are scores of the same rows sorted before, their order, and scores and labels in that
    order: where scores are the same, as those of the likeliest leaf and of the deepest level, so is
    the order.
    """
    from huc_monitor import _kernels

    if like is not None and not np.array_equal(rows.scores.view(np.int64), like[0].view(np.int64)):
        like = None
    if like is not None:
        _, order, scores, labels = like
    else:
        order, scores = _kernels.sort_scores(rows.scores)
        labels = np.empty_like(rows.labels)
    values = np.empty(rows.contributions.shape, dtype=np.int64)

    def gather(lo: int, hi: int) -> None:
        if like is None:
            _kernels.gather(order[lo:hi], rows.labels, labels[lo:hi])
        _kernels.gather_values(order[lo:hi], rows.contributions, scale, values[lo:hi])

    n = order.size
    list(run_tasks(gather, [(0, n // 2), (n // 2, n)], parallel=n >= _PARALLEL_ROWS))
    return SortedRows(rows.utility, rows.relevant, order, scores, values, labels, rows.paths, scale)


def evaluate_utility(utility: Utility, probabilities: Any, *, tree: LabelTree) -> Floats:
    """Return the utility of every leaf for every prediction, shape (n, K)."""
    from huc_monitor import _kernels

    predictions = check_predictions(probabilities, tree=tree)
    program: Program = utility.compile(tree)
    out = np.empty((predictions.n, tree.n_leaves))
    for lo, hi in predictions.spans():
        block = predictions.block(lo, hi)
        dense = dense_block(utility, block, tree)
        _kernels.utility_values(block, dense, tree_tables(tree), program, out[lo:hi])
    return out
