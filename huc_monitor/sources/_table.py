"""The contract of a table: the few questions a source asks of files, databases and frames.

A table knows how to filter by time and by id where the data is. It knows nothing of trees and
labels; what rows mean is decided once, in `TableSource`, for every kind of table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor._common.safe_text import quoted
from huc_monitor._common.times import (
    EPOCH,
    PER_SECOND,
    TimeUnit,
    epoch_bound,
    from_column,
    get_zone,
    utc_column,
)
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean
from huc_monitor.sources._data import TimeRange

# What a column is read as. Predictions: "number", "numbers" (a list of them), or "nested", which
# stays as it is: lists of classes, pairs, maps.
ColumnKind: TypeAlias = Literal["number", "numbers", "nested", "label", "any"]
PREDICTIONS: Final = ("number", "numbers", "nested")
_WRITE_TIMES: Final = "Write times such as 2024-03-31T06:00:00Z"
# A column that `lookup` may add: texts in place of times, where it read the others itself.
UNREADABLE: Final = "huc-monitor: a text that is no time"
_ANY_ORDER: Final = re.compile(r"\s*\d{1,2}[./-]\d{1,2}[./-]\d\d")


class Needed(dict[str, ColumnKind]):
    """Columns to read, and how many numbers a row of them holds."""

    def __init__(self, columns: Mapping[str, ColumnKind], width: int) -> None:
        super().__init__(columns)
        self.width = width


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

    def first(self, values: Any) -> datetime | None:
        """Return the first time of a column; None where it has none, or none that can be read."""
        found = self.read(values)
        return None if not len(found) or np.isnat(found[0]) else from_column(found[0])

    def number(self, moment: datetime, where: str, *, whole: bool = True) -> float:
        """Return a moment as a column of numbers would have it, whole ones rounded up."""
        if self.unit is None:
            raise self.no_unit(where)
        if whole:
            return epoch_bound(moment, self.unit)
        return (moment - EPOCH) / timedelta(seconds=1) * PER_SECOND[self.unit]

    def extent(
        self,
        where: str,
        first: datetime | None,
        last: datetime | None,
        n_untimed: int,
        example: Any = None,
    ) -> TimeRange | None:
        """Return the range of a table's times; None for one without rows."""
        if first is not None and last is not None:
            return TimeRange(first, last, n_untimed)
        if not n_untimed:
            return None
        shown = f", such as {quoted(example)}{_why(example)}" if isinstance(example, str) else ""
        msg = (
            f"`time` must be a column of times; none of the {n_untimed:,} rows of {where} has one "
            f"that can be read in {self.name!r}{shown}. {_WRITE_TIMES}, or name another column."
        )
        raise InvalidInputError(msg)

    def refuse_texts(self, where: str, texts: Iterable[Any], remedy: str = "") -> None:
        """Refuse texts that are no times, where there are any, and show the first.

        `remedy` is what may be done besides writing them otherwise.
        """
        first = next((text for text in texts if isinstance(text, str)), None)
        if first is not None:
            raise InvalidInputError(self.say_unreadable(where, first, remedy))

    def say_unreadable(self, where: str, text: str, remedy: str = "") -> str:
        """Say which text is no time, and how to write it."""
        return (
            f"`time` must be a column of times; {self.name!r} of {where} holds {quoted(text)}, "
            f"which cannot be read{_why(text)}. {_WRITE_TIMES}{remedy}."
        )

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
    """Asks for columns of the rows whose `key` is among some values, up to a time, inclusive.

    A row without a time is as old as can be.
    """

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

    def columns(self) -> Mapping[str, str]:
        """Names of the columns, with their types in the words of the backend."""

    def time_range(self, time: TimeColumn) -> TimeRange | None:
        """First and last time, and how many rows have none (`TimeColumn.extent`)."""

    def count(
        self, time: TimeColumn, start: datetime, end: datetime, column: str | None = None
    ) -> tuple[int, int]:
        """Count the rows, and those with a value in `column`."""

    def advance(self, time: TimeColumn, start: datetime, n_rows: int) -> datetime | None:
        """Return the smallest time such that at least `n_rows` lie between `start` and it."""

    def scan(
        self, columns: Mapping[str, ColumnKind], time: TimeColumn, start: datetime, end: datetime
    ) -> Iterator[Chunk]:
        """Read columns of the rows in a range, some rows at a time."""

    def lookup(self, wanted: Lookup) -> pd.DataFrame:
        """Read columns of the rows that have one of some values."""


def _why(text: str) -> str:
    """Say why dates such as 01/02/2026 are no times."""
    return " (is the day first, or the month?)" if _ANY_ORDER.match(text) else ""


def as_chunk(batch: Any, columns: Mapping[str, ColumnKind]) -> Chunk:
    """Read a record batch; probabilities stay out of pandas, which takes long over many columns."""
    import pyarrow as pa

    arrays = {
        name: batch.column(name)
        for name, kind in columns.items()
        if kind in PREDICTIONS and not pa.types.is_string(batch.schema.field(name).type)
    }
    others = [name for name in batch.schema.names if name not in arrays]
    return Chunk(batch.select(others).to_pandas(integer_object_nulls=True), arrays)


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


def chunk_rows(columns: Mapping[str, ColumnKind]) -> int:
    """Rows to read at a time: some 16 MB of numbers."""
    width = columns.width if isinstance(columns, Needed) else 1
    return max(1_000, 2_000_000 // max(1, len(columns), width))
