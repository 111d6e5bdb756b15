"""Predictions that people hand in from Python in another form than a matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from huc_monitor._common.frames import as_numbers, to_frame
from huc_monitor.audit.forms.reader import PredictionReader
from huc_monitor.audit.forms.spec import LEAF, SCALE, PredictionColumns, Scale
from huc_monitor.audit.inputs import Predictions, check_predictions, check_tree, rounding_slack
from huc_monitor.audit.sparse_rows import SparseRows, join
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean
from huc_monitor.tree import LabelTree

_ROWS_AT_A_TIME: Final = 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class TopKPredictions:
    """Predictions that name their own classes: the k best, or all of them, in any order.

    Parameters
    ----------
    classes : (n, k) array or n lists
        Leaf names, or codes.
    scores : (n, k) array or n lists
        A number for each class.
    rest : {"uniform"}, {"leaf": name} or mapping of leaf to share, optional
        Where the mass goes that was not logged. Rows that do not log all of their mass are refused
        when left out.
    scale : {"probabilities", "log_probabilities", "logits"}, default "probabilities"

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": ["pug", "husky"]})
    >>> best = hm.TopKPredictions([["pug", "lynx"]] * 9, [[0.7, 0.1]] * 9, rest="uniform")
    >>> round(hm.audit(best, ["pug"] * 9, tree=tree).unlogged, 9)
    0.2
    """

    classes: Any
    scores: Any
    rest: Any = None
    scale: Scale = SCALE

    @classmethod
    def from_maps(
        cls,
        maps: Sequence[Mapping[Any, float]],
        *,
        rest: Any = None,
        scale: Scale = SCALE,
    ) -> TopKPredictions:
        """Take one mapping of class to number per row."""
        return cls([list(one) for one in maps], [list(one.values()) for one in maps], rest, scale)

    def read(self, tree: LabelTree, argument: str) -> Predictions:
        """Check every row."""
        columns = {"scores": _rows_of(self.scores), "classes": _rows_of(self.classes)}
        if len(columns["scores"]) != len(columns["classes"]):
            msg = (
                f"`classes` and `scores` must have as many rows; got {len(columns['classes'])} and "
                f"{len(columns['scores'])}."
            )
            raise InvalidInputError(msg)
        given = PredictionColumns(
            list="scores", class_column="classes", rest=self.rest, scale=self.scale
        )
        return read_given(tree, given, columns, argument)


def read_predictions(
    data: Any, *, tree: LabelTree | str | Path, shares: Any = None, **columns: Any
) -> Predictions:
    """Read predictions of any form out of a DataFrame: what every audit takes.

    Parameters
    ----------
    data : DataFrame, or (n, K) array
        An array is in the order of ``tree.leaves``.
    tree : LabelTree, or the path of a tree file
    shares : (K,) numbers, optional
        Leaf shares of ``rest="reference"``, such as `leaf_shares` of earlier predictions.
    **columns
        The words of ``columns.probabilities`` in ``huc.yaml``: `pattern`, `columns`, `list`,
        `classes`, `class_column`, `pairs`, `map`, `scale`, `of`, `rest`.

    Returns
    -------
    Predictions

    Examples
    --------
    >>> import pandas as pd, huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["a", "b", "c"])
    >>> log = pd.DataFrame({"answer": ['{"a": 0.7, "b": 0.2}', '{"c": 0.9}']})
    >>> rows = hm.read_predictions(log, tree=tree, map="answer", rest="uniform")
    >>> rows.block(0, 2).round(2)
    array([[0.7 , 0.2 , 0.1 ],
           [0.05, 0.05, 0.9 ]])
    """
    known = check_tree(tree)
    frame = to_frame(data, "data")
    if not isinstance(frame, pd.DataFrame):
        matrix = np.asarray(frame)
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
            msg = (
                "`data` must be a DataFrame or a matrix of numbers; got "
                f"{type(data).__name__} of shape {matrix.shape}."
            )
            raise InvalidInputError(msg)
        if "of" not in columns and columns.get("scale", "probabilities") == "probabilities":
            return check_predictions(matrix, tree=known, argument="data")
        given = PredictionColumns(list="data", **columns)
        return read_given(known, given, {"data": matrix}, "data")
    if not set(columns) & {"pattern", "columns", "list", "pairs", "map"}:
        columns["pattern"] = LEAF
    given = PredictionColumns(**columns)
    found = {str(name): frame[name] for name in frame.columns}
    return read_given(known, given, found, "data", shares)


def leaf_shares(predictions: Predictions) -> Any:
    """Return the mean probability of every leaf, of what rows logged alone.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["a", "b"])
    >>> leaf_shares(hm.read_predictions([[0.75, 0.25], [0.5, 0.5]], tree=tree))
    array([0.625, 0.375])
    """
    rows = predictions.matrix
    if not isinstance(rows, SparseRows):
        return rows.mean(axis=0, dtype=np.float64)
    return rows.logged() / max(1, len(rows))


def read_given(
    tree: LabelTree,
    given: PredictionColumns,
    columns: Mapping[str, Any],
    argument: str,
    shares: Any = None,
) -> Predictions:
    """Read columns as they were described, or refuse the first row that cannot be used."""
    reader = PredictionReader.of(tree, given, shares)
    for name in reader.names:
        if name not in columns:
            msg = f"`{argument}` must have the column {name!r}. {did_you_mean(name, columns)}"
            raise UnknownNameError(msg)
    n = len(columns[reader.names[0]]) if reader.names else 0
    if not n:
        msg = f"`{argument}` must have at least one row; got an empty window."
        raise InvalidInputError(msg)
    slack = [_slack(columns[name], tree.n_leaves) for name in reader.names]
    reader = reader.allowing(max(slack))
    parts = []
    step = n if reader.is_wide else _ROWS_AT_A_TIME
    for lo in range(0, n, step):
        some = {name: columns[name][lo : lo + step] for name in reader.names}
        read = reader.read(
            lambda name, some=some: as_numbers(some[name]) if reader.is_wide else some[name],  # type: ignore[misc]
            min(step, n - lo),
        )
        if not read.good.all():
            row = int(np.argmin(read.good))
            msg = f"`{argument}` must be usable in every row; got {read.why(row)} (row {lo + row})."
            raise InvalidInputError(msg)
        parts.append(read.rows)
    return Predictions.of(parts[0] if len(parts) == 1 else join(parts))


def _slack(values: Any, n_leaves: int) -> float:
    """Return how far sums may be rounded: by the type of the numbers, or of those in lists."""
    first = values.iloc[0] if isinstance(values, pd.Series) else values[0]
    kinds = [str(getattr(one, "dtype", None)) for one in (values, first)]
    short = [np.dtype(kind) for kind in kinds if kind in {"float16", "float32"}]
    return max((rounding_slack(kind, n_leaves) for kind in short), default=0.0)


def _rows_of(values: Any) -> Any:
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return values
    return values if isinstance(values, pd.Series) else list(values)
