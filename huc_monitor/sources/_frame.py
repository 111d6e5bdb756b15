"""A table that is a DataFrame in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import infer_dtype, is_numeric_dtype, is_object_dtype

from huc_monitor._common.frames import to_frame
from huc_monitor._common.times import from_column, to_column
from huc_monitor.errors import InvalidInputError
from huc_monitor.sources._data import TimeRange
from huc_monitor.sources._table import Chunk, ColumnKind, Lookup, TimeColumn, chunk_rows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FrameTable:
    """Rows of a DataFrame, which is never modified and must not be while in use.

    Parameters
    ----------
    frame : DataFrame
    name : str, default "the frame"
        What to call it in messages.
    """

    frame: pd.DataFrame
    name: str = "the frame"
    _times: dict[TimeColumn, NDArray[Any]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame", to_frame(self.frame, "frame"))
        if not isinstance(self.frame, pd.DataFrame):
            msg = f"`frame` must be a DataFrame; got {type(self.frame).__name__}."
            raise InvalidInputError(msg)
        repeated = self.frame.columns[self.frame.columns.duplicated()]
        if len(repeated):
            msg = f"`frame` must have distinct columns; got {repeated[0]!r} more than once."
            raise InvalidInputError(msg)

    def columns(self) -> Mapping[str, str]:
        """Names of the columns, with their dtypes, or what columns of objects hold."""
        return {
            str(name): infer_dtype(self.frame[name]) if is_object_dtype(dtype) else str(dtype)
            for name, dtype in self.frame.dtypes.items()
        }

    def time_range(self, time: TimeColumn) -> TimeRange | None:
        """First and last time; rows without a time belong to no window."""
        times = self._read(time)
        known = times[~np.isnat(times)]
        n_untimed = len(times) - len(known)
        if not len(known):
            return time.extent(self.name, None, None, n_untimed)
        return time.extent(self.name, from_column(known.min()), from_column(known.max()), n_untimed)

    def count(
        self, time: TimeColumn, start: datetime, end: datetime, column: str | None = None
    ) -> tuple[int, int]:
        """Count the rows, and those with a value in `column`."""
        rows = self._between(time, start, end)
        present = len(rows) if column is None else self.frame[column].iloc[rows].notna().sum()
        return len(rows), int(present)

    def advance(self, time: TimeColumn, start: datetime, n_rows: int) -> datetime | None:
        """Return the smallest time such that at least `n_rows` lie between `start` and it."""
        times = self._read(time)
        times = np.sort(times[times >= to_column(start)])
        if len(times) < n_rows:
            return None
        later = times[times > times[n_rows - 1]]
        return from_column(later[0]) if len(later) else None

    def scan(
        self, columns: Mapping[str, ColumnKind], time: TimeColumn, start: datetime, end: datetime
    ) -> Iterator[Chunk]:
        """Read columns of the rows in a range, some rows at a time."""
        rows = self._between(time, start, end)
        step = chunk_rows(columns)
        for lo in range(0, len(rows), step):
            yield Chunk(self.frame.iloc[rows[lo : lo + step]][list(columns)])

    def lookup(self, wanted: Lookup) -> pd.DataFrame:
        """Read columns of the rows that have one of some values."""
        rows = self.frame[wanted.key].isin(pd.Index(wanted.among)).to_numpy()
        if wanted.time is not None and wanted.until is not None:
            rows = rows & ~(self._read(wanted.time) > to_column(wanted.until))
        return self.frame.loc[rows, list(wanted.columns)]

    def _between(self, time: TimeColumn, start: datetime, end: datetime) -> NDArray[np.intp]:
        times = self._read(time)
        return np.flatnonzero((times >= to_column(start)) & (times < to_column(end)))

    def _read(self, time: TimeColumn) -> NDArray[Any]:
        if time not in self._times:
            series = self.frame[time.name]
            if time.unit is None and is_numeric_dtype(series.dtype):
                raise time.no_unit(self.name)
            self._times[time] = time.read(series)
        return self._times[time]
