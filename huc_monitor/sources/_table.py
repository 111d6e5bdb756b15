"""The contract of a table: the few questions a source asks of files, databases and frames.

A table knows how to filter by time and by id where the data is. It knows nothing of trees and
labels; what rows mean is decided once, in `TableSource`, for every kind of table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
import pandas as pd

from huc_monitor._common.times import TimeUnit, get_zone, utc_column
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from numpy.typing import NDArray

    from huc_monitor.sources._data import TimeRange

# What a column is read as: "number" and "numbers" (a list of them) are probabilities.
ColumnKind: TypeAlias = Literal["number", "numbers", "label", "any"]


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """A column of times, and how to read it.

    Parameters
    ----------
    name : str
    time_zone : str, default "UTC"
        What times without a zone mean.
    unit : {"s", "ms", "us", "ns"}, optional
        For numbers: what they count since 1970-01-01 UTC.
    """

    name: str
    time_zone: str = "UTC"
    unit: TimeUnit | None = None
    zone: ZoneInfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "zone", get_zone(self.time_zone))
        if self.unit is not None and self.unit not in get_args(TimeUnit):
            choices = ", ".join(map(repr, get_args(TimeUnit)))
            msg = f"`time_unit` must be one of {choices}; got {self.unit!r}."
            raise InvalidInputError(msg)

    def read(self, values: Any) -> NDArray[Any]:
        """Return values of the column as datetime64[us] in UTC."""
        return utc_column(values, self.zone, self.unit)

    def no_unit(self, where: str) -> InvalidInputError:
        """Return the error for a column of numbers whose unit was not told."""
        return InvalidInputError(
            f"`time_unit` must be given for times that are numbers, as in the column "
            f"{self.name!r} of {where}; choose from 's', 'ms', 'us', 'ns' since 1970."
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a table: a frame, and apart from it probabilities that came as Arrow arrays."""

    frame: pd.DataFrame
    arrays: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frame)


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """Asks for columns of the rows whose `key` is among some values, up to a time, inclusive."""

    key: str
    among: NDArray[Any]
    columns: Mapping[str, ColumnKind]
    time: TimeColumn | None = None
    until: datetime | None = None


class Table(Protocol):
    """Rows that can be filtered by time or by id. Ranges of time are ``[start, end)``."""

    @property
    def name(self) -> str:
        """What to call it in messages; holds no secret."""
        ...

    def columns(self) -> Mapping[str, str]:
        """Names of the columns, with their types in the words of the backend."""
        ...

    def time_range(self, time: TimeColumn) -> TimeRange | None:
        """First and last time."""
        ...

    def count(
        self, time: TimeColumn, start: datetime, end: datetime, column: str | None = None
    ) -> tuple[int, int]:
        """Count the rows, and those with a value in `column`."""
        ...

    def advance(self, time: TimeColumn, start: datetime, n_rows: int) -> datetime | None:
        """Return the smallest time such that at least `n_rows` lie between `start` and it."""
        ...

    def scan(
        self, columns: Mapping[str, ColumnKind], time: TimeColumn, start: datetime, end: datetime
    ) -> Iterator[Chunk]:
        """Read columns of the rows in a range, some rows at a time."""
        ...

    def lookup(self, wanted: Lookup) -> pd.DataFrame:
        """Read columns of the rows that have one of some values."""
        ...


def require_columns(table: Table, needed: Mapping[str, str]) -> Mapping[str, str]:
    """Check that a table has the needed columns (name to what it is for); return all of them."""
    there = table.columns()
    for name, purpose in needed.items():
        if name not in there:
            msg = (
                f"{table.name} must have the column {name!r} ({purpose}). "
                f"{did_you_mean(name, list(there), limit=20)}"
            )
            raise UnknownNameError(msg)
    return there


def as_numbers(values: pd.Series[Any]) -> NDArray[np.float64]:
    """Return a column as float64, NaN where a value is missing or no number."""
    if pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(values.dtype):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    numbers = pd.to_numeric(values.astype(object), errors="coerce")
    return numbers.to_numpy(dtype=np.float64, na_value=np.nan)


def as_matrix(values: Any, width: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return lists of numbers as rows of a matrix, and the length that each list had.

    Rows of another length than `width` are NaN. A missing list has length -1. Lists may be Arrow
    arrays, sequences, or JSON text as databases without arrays store them.
    """
    if hasattr(values, "value_lengths"):  # an Arrow array of lists
        lengths = values.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
        flat = values.flatten().to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        lengths = lengths.astype(np.int64)
        return _unflatten(flat, lengths, width), lengths
    rows = [_as_row(value) for value in values]
    lengths = np.array([-1 if row is None else len(row) for row in rows], dtype=np.int64)
    matrix = np.full((len(rows), width), np.nan)
    for i, row in enumerate(rows):
        if row is not None and len(row) == width:
            matrix[i] = row
    return matrix, lengths


def _unflatten(
    flat: NDArray[np.float64], lengths: NDArray[np.int64], width: int
) -> NDArray[np.float64]:
    if (lengths == width).all():
        return flat.reshape(len(lengths), width)
    matrix = np.full((len(lengths), width), np.nan)
    fits = lengths == width
    matrix[fits] = flat[np.repeat(fits, np.maximum(lengths, 0))].reshape(-1, width)
    return matrix


def _as_row(value: Any) -> NDArray[np.float64] | None:
    import json

    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if value is None or np.ndim(value) != 1:
        return None
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return np.full(len(value), np.nan)


def chunk_rows(n_columns: int) -> int:
    """Rows to read at a time: some 16 MB of numbers."""
    return max(1_000, 2_000_000 // max(1, n_columns))
