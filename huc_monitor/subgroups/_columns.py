"""Reading feature columns, and saying which one is missing or has the wrong length."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean
from huc_monitor.recalibration.runtime.columns import Column, to_column

Features: TypeAlias = "pd.DataFrame | Mapping[str, Any]"
_OTHER = None  # equals no text
_FEW = 16  # up to so many values, comparing with each is faster than looking up in a table


def read_columns(
    features: Features,
    needed: Mapping[str, str],
    n: int,
    *,
    argument: str,
    named: Mapping[str, Sequence[Any]] | None = None,
) -> dict[str, Column]:
    """Read the needed columns, each once.

    Parameters
    ----------
    features : DataFrame or mapping of column name to array
        The data. Never modified.
    needed : mapping of str to str
        Column name to what needs it ("the subgroup 'age<65'"), for messages.
    n : int
        The number of rows each column must have.
    argument : str
        What the caller's parameter is called, for messages.
    named : mapping of str to list, optional
        All values, each once, that a column is compared with: others need not be told apart.
    """
    named = named or {}
    found = {}
    for name, user in needed.items():
        series = _read(features, name, user, n, argument)
        column = _named_text(name, series, named[name]) if named.get(name) else None
        found[name] = to_column(name, series) if column is None else column
    return found


def n_rows(features: Features | None, *, argument: str) -> int:
    """Count the rows of a frame, or of the first array of a mapping."""
    if isinstance(features, pd.DataFrame):
        return len(features)
    if isinstance(features, Mapping):
        return len(next(iter(features.values()), ()))
    msg = (
        f"`{argument}` must be a DataFrame or a mapping of column names to arrays; "
        f"got {type(features).__name__}. Convert it, for example with pd.DataFrame(...)."
    )
    raise InvalidInputError(msg)


def _named_text(name: str, series: pd.Series[Any], values: Sequence[Any]) -> Column | None:
    """Read text that Arrow keeps, telling nothing apart but the given values; None if it is not."""
    dtype = series.dtype
    if not isinstance(dtype, pd.StringDtype) or dtype.storage != "pyarrow":
        return None
    kept = pa.chunked_array(series.array.__arrow_array__())
    if kept.null_count == len(kept) or not all(isinstance(value, str) for value in values):
        return None
    missing = np.zeros(len(kept), dtype=bool)
    if kept.null_count:
        missing = series.isna().to_numpy(dtype=bool)
    rows = np.empty(len(kept), dtype=np.intp)
    done = 0
    try:
        for chunk in kept.chunks:
            _match(chunk, values, rows[done : done + len(chunk)])
            done += len(chunk)
    except UnicodeEncodeError:  # half of a pair of surrogates
        return None
    if kept.null_count:
        rows[missing] = -1
    data = np.array([*values, _OTHER], dtype=object)
    return Column(name, "text", data, rows, missing, series)


def _match(texts: Any, values: Sequence[str], rows: NDArray[np.intp]) -> None:
    """Write the place of every text among the values, or their number where it is none."""
    from huc_monitor import _kernels

    few = len(values) <= _FEW and len(texts) > 0
    if few and (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        _, offsets, data = texts.buffers()
        kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
        ends = np.frombuffer(offsets, kind)[texts.offset :][: len(texts) + 1]
        ends = ends.astype(np.int64, copy=False)
        ends.flags.writeable = False
        bytes_ = np.frombuffer(b"" if data is None else memoryview(data).toreadonly(), np.uint8)
        if _kernels.match_texts(ends, bytes_, [value.encode() for value in values], rows):
            return
    codes = pc.index_in(texts, value_set=pa.array(values, type=texts.type))
    rows[:] = codes.fill_null(len(values))


def _read(features: Features, name: str, user: str, n: int, argument: str) -> pd.Series[Any]:
    if name not in features:
        known = {str(column): column for column in features}
        remedy = did_you_mean(name, known)
        if name in known:
            remedy = (
                f"It is named {known[name]!r}, which is no text: rename it with "
                f"{argument}.columns = {argument}.columns.astype(str)."
            )
        msg = (
            f"`{argument}` must have the column {name!r}, which {user} needs; got {len(known)} "
            f"columns without it. {remedy}"
        )
        raise UnknownNameError(msg)
    given = features[name]
    if getattr(given, "ndim", 1) != 1:
        msg = (
            f"`{argument}` must have one column {name!r} ({user}); got an object of "
            f"shape {given.shape}. Remove repeated column names and use 1-D arrays."
        )
        raise InvalidInputError(msg)
    series = given if isinstance(given, pd.Series) else pd.Series(given)
    if len(series) != n:
        msg = (
            f"`{argument}` must have {n} rows; got {len(series)} in the column {name!r} "
            f"({user}). Pass one feature row per prediction, in the same order."
        )
        raise InvalidInputError(msg)
    return series


def count_values(column: Column) -> list[tuple[Any, int]]:
    """Distinct present values in ascending order, each with its number of rows."""
    if column.kind is None:
        return []
    if column.codes is not None:
        tally = np.bincount(column.codes[~column.missing], minlength=len(column.data))
        pairs = zip(column.data.tolist(), tally.tolist(), strict=True)
        return sorted((pair for pair in pairs if pair[1]), key=operator.itemgetter(0))
    present = pd.Series(column.data[~column.missing]).value_counts().sort_index()
    return list(zip(present.index.tolist(), present.tolist(), strict=True))
