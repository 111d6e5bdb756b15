"""Normalising what users hand in, so that mathematics never meets raw input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from huc_monitor._common.frames import to_frame
from huc_monitor.audit.sparse_rows import Rows, SparseRows, as_dense
from huc_monitor.errors import InvalidInputError
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility, correct_at_every_level
from huc_monitor.utilities.program import Floats, Ints

INTERIOR_MIX = 1e-10
SUM_TOLERANCE = 1e-6
_ROUNDED = (np.dtype(np.float16), np.dtype(np.float32))
_BLOCK_CELLS = 1 << 21
# Where much is computed of every cell: new arrays of more would each be fetched from the system.
CACHE_CELLS = 1 << 15
# Weights that stand for more rows than that, for each one given, are hardly counts.
_MOST_REPEATED = 100
_PLAIN: Final = "probabilities"


@dataclass(frozen=True, slots=True)
class Predictions:
    """Checked probabilities, read in blocks so that no second matrix is ever made.

    A row with a zero is mixed with 1e-10 of the uniform distribution; the others stay as they are.
    So what a row contributes depends on that row alone, whatever it is audited with. Rows of short
    floats that miss 1 by rounding are divided by their sum (``divisor``) where they are read.
    """

    matrix: Rows
    any_zero: bool
    divisor: Floats | None = None

    @classmethod
    def of(cls, matrix: Rows) -> Predictions:
        """Take rows that were checked before, as a source does."""
        if isinstance(matrix, SparseRows):
            return cls(matrix, any_zero=matrix.any_zero)
        return cls(matrix, any_zero=not matrix.all())

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    def block(self, lo: int, hi: int) -> Floats:
        """Rows lo..hi-1 as contiguous float64, positive."""
        block = self._plain(lo, hi)
        if self.any_zero:
            zero = (block == 0).any(axis=1)
            if zero.any():
                # The caller's rows stay as they are.
                block = block.copy() if isinstance(self.matrix, np.ndarray) else block
                block[zero] = (1.0 - INTERIOR_MIX) * block[zero] + INTERIOR_MIX / block.shape[1]
        return block

    def _plain(self, lo: int, hi: int) -> Floats:
        if isinstance(self.matrix, SparseRows):
            return self.matrix.block(lo, hi)
        block = np.ascontiguousarray(self.matrix[lo:hi], dtype=np.float64)
        return block if self.divisor is None else block / self.divisor[lo:hi, None]

    def dense(self) -> np.ndarray[Any, Any]:
        """All rows as they were given, completed and rescaled where that is needed: not mixed."""
        if self.divisor is not None:
            return self._plain(0, self.n)
        return as_dense(self.matrix)

    def take(self, rows: Any) -> Predictions:
        """Return a subset of rows."""
        divisor = None if self.divisor is None else self.divisor[rows]
        return Predictions(self.matrix[rows], self.any_zero, divisor)

    def spans(self, n_cells: int = _BLOCK_CELLS) -> Iterator[tuple[int, int]]:
        """Row ranges of about as many cells."""
        return block_spans(self.n, int(self.matrix.shape[1]), n_cells)

    def likeliest(self) -> Ints:
        """Every row's likeliest leaf, the first of several."""
        found = [self.block(lo, hi).argmax(axis=1) for lo, hi in self.spans()]
        return np.concatenate([*found, np.empty(0, dtype=np.int64)])

    def positive(self) -> Floats:
        """All rows as float64, mixed where needed: a copy."""
        block = self.block(0, self.n)
        given = self.matrix
        shared = isinstance(given, np.ndarray) and np.may_share_memory(block, given)
        return block.copy() if shared else block


def block_spans(n: int, n_columns: int, n_cells: int = _BLOCK_CELLS) -> Iterator[tuple[int, int]]:
    """Cut n rows into ranges of about `n_cells` cells each, two million by default."""
    step = max(1, n_cells // max(1, n_columns))
    for lo in range(0, n, step):
        yield lo, min(n, lo + step)


def check_predictions(
    probabilities: Any, *, tree: LabelTree, argument: str = "probabilities", logits: bool = False
) -> Predictions:
    """Check shape, columns and every row of predictions, in any form that Python has them in."""
    from huc_monitor.audit.forms.given import TopKPredictions, read_given
    from huc_monitor.audit.forms.spec import PredictionColumns

    if isinstance(probabilities, Sequence) and probabilities and isinstance(probabilities[0], dict):
        maps = probabilities
        probabilities = TopKPredictions.from_maps(maps, scale="logits" if logits else _PLAIN)
    if isinstance(probabilities, TopKPredictions):
        return probabilities.read(tree, argument)
    if isinstance(probabilities, SparseRows):
        probabilities = Predictions.of(probabilities)
    if isinstance(probabilities, Predictions):
        return _of_this_tree(probabilities, tree, argument)
    if logits:
        given = PredictionColumns(list=argument, scale="logits")
        matrix = _as_matrix(probabilities, tree, argument)
        return read_given(tree, given, {argument: matrix}, argument)
    matrix = _as_matrix(probabilities, tree, argument)
    divisor = _divisor(matrix)
    zeros = _check_rows(matrix, divisor, tree, argument)
    return Predictions(matrix, zeros, divisor)


def _of_this_tree(predictions: Predictions, tree: LabelTree, argument: str) -> Predictions:
    if predictions.matrix.shape[1] != tree.n_leaves or not predictions.n:
        msg = (
            f"`{argument}` must be predictions of {tree.n_leaves} leaves, at least one row; got "
            f"shape {predictions.matrix.shape}. Read them with the same tree."
        )
        raise InvalidInputError(msg)
    return predictions


def _as_matrix(probabilities: Any, tree: LabelTree, argument: str) -> np.ndarray[Any, Any]:
    probabilities = to_frame(probabilities, argument)
    if isinstance(probabilities, pd.DataFrame):
        probabilities = _leaf_columns(probabilities, tree, argument)
    if np.ma.is_masked(probabilities):
        row = int(np.argwhere(np.ma.getmaskarray(probabilities))[0][0])
        msg = f"`{argument}` must not be masked; row {row} is. Drop masked rows before the audit."
        raise InvalidInputError(msg)
    matrix = np.asarray(probabilities)
    if matrix.dtype.kind not in "fiu":
        msg = (
            f"`{argument}` must be numbers; got dtype {matrix.dtype}. "
            "Convert the columns to float before the audit."
        )
        raise InvalidInputError(msg)
    if matrix.ndim != 2:
        msg = (
            f"`{argument}` must have two dimensions (rows, leaves); got shape {matrix.shape}. "
            "Reshape a single prediction to (1, n_leaves)."
        )
        raise InvalidInputError(msg)
    if matrix.shape[1] != tree.n_leaves:
        msg = (
            f"`{argument}` must have one column per leaf ({tree.n_leaves}: "
            f"{_some(tree.leaves)}); got {matrix.shape[1]} columns. "
            "Pass a DataFrame with leaf names as columns to be safe from their order."
        )
        raise InvalidInputError(msg)
    if matrix.shape[0] == 0:
        msg = f"`{argument}` must have at least one row; got an empty window."
        raise InvalidInputError(msg)
    return matrix


def _leaf_columns(frame: pd.DataFrame, tree: LabelTree, argument: str) -> np.ndarray[Any, Any]:
    """Take the leaves' columns by name, in the order of the tree; others are left alone."""
    columns = [str(column) for column in frame.columns]
    places = {name: place for place, name in enumerate(columns)}
    missing = [leaf for leaf in tree.leaves if leaf not in places]
    if missing:
        msg = (
            f"`{argument}` must have a column for every leaf; {missing[0]!r} is missing "
            f"({len(missing)} in all). Columns: {_some(columns)}."
        )
        raise InvalidInputError(msg)
    known = set(tree.leaves)
    twice = {name for place, name in enumerate(columns) if name in known and places[name] != place}
    if twice:
        msg = f"`{argument}` must have distinct columns; got {min(twice)!r} more than once."
        raise InvalidInputError(msg)
    chosen = frame.iloc[:, [places[leaf] for leaf in tree.leaves]]
    kinds = set()
    for column, dtype in zip(tree.leaves, chosen.dtypes, strict=True):
        if not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype):
            msg = (
                f"`{argument}` must be numbers; got dtype {dtype} (column {column!r}). "
                "Convert it to float before the audit."
            )
            raise InvalidInputError(msg)
        kinds.add(np.dtype(getattr(dtype, "numpy_dtype", dtype)))
    # The columns' own type where it is a short one: it says how far sums may be rounded.
    kind = np.result_type(*kinds) if kinds <= set(_ROUNDED) else np.dtype(np.float64)
    return chosen.to_numpy(dtype=kind, na_value=np.nan)


def rounding_slack(dtype: np.dtype[Any], n_leaves: int) -> float:
    """Return how far a row of so many short floats may miss 1 by rounding alone."""
    return min(0.02, n_leaves * float(np.finfo(dtype).eps))


def _divisor(matrix: np.ndarray[Any, Any]) -> Floats | None:
    """Return what rows are divided by where float16 or float32 explains that they miss 1.

    Sums may miss 1 by the type's precision times the number of leaves, at most by 0.02; rows
    within 1e-6 stay as they are, like those of float64.
    """
    if matrix.dtype not in _ROUNDED:
        return None
    slack = rounding_slack(matrix.dtype, matrix.shape[1])
    total = matrix.sum(axis=1, dtype=np.float64)
    off = np.abs(total - 1.0)
    rounded = (off > 0.99 * SUM_TOLERANCE) & (off <= slack)
    return np.where(rounded, total, 1.0) if rounded.any() else None


def _check_rows(
    matrix: np.ndarray[Any, Any], divisor: Floats | None, tree: LabelTree, argument: str
) -> bool:
    from huc_monitor._common.threads import run_tasks
    from huc_monitor._kernels import first_bad_row

    def check(lo: int, hi: int) -> tuple[int, int, int, bool]:
        block = np.ascontiguousarray(matrix[lo:hi], dtype=np.float64)
        if divisor is not None:
            block = block / divisor[lo:hi, None]
        row, column, code, any_zero = first_bad_row(block)
        return int(row) + lo, int(column), int(code), bool(any_zero)

    zeros = False
    for row, column, code, any_zero in run_tasks(check, block_spans(*matrix.shape)):
        zeros = zeros or any_zero
        if code == 0:
            continue
        if code == 3:
            total = float(np.asarray(matrix[row], dtype=np.float64).sum())
            msg = (
                f"`{argument}` must have rows that sum to 1 within 1e-6; got {total:.9g} "
                f"(row {row}). Apply softmax, or divide each row by its sum."
            )
            raise InvalidInputError(msg)
        rule = "finite" if code == 1 else "at least 0"
        remedy = "Drop or repair the row." if code == 1 else "Pass probabilities, not logits."
        msg = (
            f"`{argument}` must be {rule}; got {matrix[row, column]} "
            f"(row {row}, column {tree.leaves[column]!r}). {remedy}"
        )
        raise InvalidInputError(msg)
    return zeros


def check_tree(tree: Any) -> LabelTree:
    """Return a tree with a choice to make, read from a file where a path is given."""
    found = LabelTree.from_file(tree) if isinstance(tree, str | Path) else tree
    if not isinstance(found, LabelTree):
        msg = (
            "`tree` must be a LabelTree or the path of a tree file; got "
            f"{type(tree).__name__}. Make one with LabelTree.from_nested, or from_file."
        )
        raise InvalidInputError(msg)
    if found.arrays.n_branches == 0:
        msg = (
            "`tree` must have a node with at least two children; a single class leaves "
            "nothing to audit."
        )
        raise InvalidInputError(msg)
    return found


def check_subgroups(subgroups: Any) -> Subgroups:
    """Return the subgroups to audit by; None is the whole population alone."""
    if subgroups is None:
        return Subgroups.whole()
    if not isinstance(subgroups, Subgroups):
        msg = (
            f"`subgroups` must be Subgroups; got {type(subgroups).__name__}. Make them with "
            "Subgroups.from_reference(features, {'column': 'each'})."
        )
        raise InvalidInputError(msg)
    return subgroups


def check_labels(labels: Any, n: int, *, tree: LabelTree, any_depth: bool = True) -> Ints:
    """Codes of every row's label; those of inner nodes follow the leaves'."""
    codes = tree.encode(labels, any_depth=any_depth)
    if codes.shape[0] != n:
        msg = f"`labels` must have one entry per row ({n}); got {codes.shape[0]}."
        raise InvalidInputError(msg)
    return codes


def check_weights(weights: Any, n: int) -> Floats | None:
    """Row weights: finite, non-negative, with a positive sum."""
    if weights is None:
        return None
    array = np.asarray(weights)
    if array.dtype.kind not in "fiu" or array.ndim != 1 or array.shape[0] != n:
        msg = (
            f"`weights` must be one number per row ({n}); got shape {array.shape}, "
            f"dtype {array.dtype}."
        )
        raise InvalidInputError(msg)
    array = array.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if bad.size:
        msg = (
            f"`weights` must be finite and at least 0; got {array[bad[0]]} (row {bad[0]}). "
            "Drop the row, or give it weight 0."
        )
        raise InvalidInputError(msg)
    if not array.any():
        msg = "`weights` must have a positive sum; all rows weigh 0."
        raise InvalidInputError(msg)
    if array.max() > np.finfo(np.float64).max / n:
        msg = "`weights` must have a finite sum; got numbers too large. Divide them all by one."
        raise InvalidInputError(msg)
    return array


def note_weights(weights: Any) -> tuple[str, ...]:
    """Say how weights that are no counts, or unlikely ones, were read."""
    if weights is None:
        return ()
    notes, array = [], np.asarray(weights, dtype=np.float64)
    if (np.rint(array) != array).any():
        notes.append(
            "`weights` are not whole numbers and were read as repetitions of independent rows. For "
            "labels that were chosen with known probability pass `label_probability` instead."
        )
    if array.sum() > _MOST_REPEATED * array.size:
        notes.append(
            f"`weights` were read as repetitions: the {array.size:,} rows count as "
            f"{array.sum():,.0f} independent ones, and bounds are that narrow. Where they do not "
            "count rows, divide them by their mean."
        )
    return tuple(notes)


def check_utilities(utilities: Any, tree: LabelTree | None = None) -> tuple[Utility, ...]:
    """Utilities with distinct names, in order; None is correctness at every level of `tree`."""
    if utilities is None and tree is not None:
        utilities = correct_at_every_level(tree)
    if isinstance(utilities, Utility):
        utilities = [utilities]
    if not isinstance(utilities, Sequence) or isinstance(utilities, str) or not utilities:
        msg = f"`utilities` must be a non-empty list of utilities; got {utilities!r}."
        raise InvalidInputError(msg)
    for position, utility in enumerate(utilities):
        if not isinstance(utility, Utility):
            msg = (
                f"`utilities` must hold Utility objects; got {utility!r} (position {position}). "
                "Use Utility.from_dict for a JSON form."
            )
            raise InvalidInputError(msg)
    names = [utility.name for utility in utilities]
    twice = [name for position, name in enumerate(names) if name in names[:position]]
    if twice:
        msg = f"`utilities` must have distinct names; got {twice[0]!r} twice. Pass `name=`."
        raise InvalidInputError(msg)
    return tuple(utilities)


def _some(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (", ..." if len(names) > most else "")
