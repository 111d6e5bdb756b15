"""A log that was written by several versions of a tree, read as if the newest had always been."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from huc_monitor._common.times import to_utc
from huc_monitor.audit.comparison import Comparison
from huc_monitor.audit.inputs import Predictions
from huc_monitor.audit.result import AuditResult
from huc_monitor.sources._data import PredictionData, RowCounts, TimeRange, WindowData, concatenate
from huc_monitor.sources._source import TableSource
from huc_monitor.sources._spec import Columns, LabelTable
from huc_monitor.sources._table import ColumnKind, Table
from huc_monitor.tree.changes import TreeVersion


@dataclass(frozen=True, slots=True, eq=False)
class VersionedSource:
    """Reads each time by the tree it was written by, and hands over rows of the newest tree.

    Parameters
    ----------
    newest : TableSource
    earlier : sequence of (TreeVersion, TableSource), oldest first
        A version counts until its time; its source reads the log by its tree.
    """

    newest: TableSource
    earlier: Sequence[tuple[TreeVersion, TableSource]]

    def _parts(
        self, start: datetime, end: datetime
    ) -> list[tuple[datetime, datetime, TreeVersion | None, TableSource]]:
        """Cut a range where versions change."""
        parts: list[Any] = []
        first, last = to_utc(start, argument="start"), to_utc(end, argument="end")
        for version, source in self.earlier:
            if first < version.until and first < last:
                stop = min(version.until, last)
                parts.append((first, stop, version, source))
                first = stop
        if first < last or not parts:
            parts.append((first, last, None, self.newest))
        return parts

    @property
    def log(self) -> Table:
        """The table of the log, which is one."""
        return self.newest.log

    @property
    def columns(self) -> Columns:
        """Which columns mean what, in the newest version."""
        return self.newest.columns

    @property
    def labels(self) -> LabelTable | None:
        """The table of labels, if they have one."""
        return self.newest.labels

    def needed_columns(self, *, with_labels: bool) -> dict[str, ColumnKind]:
        """Return the columns of the log that reading a range by any version takes."""
        needed: dict[str, ColumnKind] = {}
        for source in (*(source for _, source in self.earlier), self.newest):
            needed |= source.needed_columns(with_labels=with_labels)
        return needed

    def time_range(self) -> TimeRange | None:
        """Return when the log begins and ends, or None if it has no rows."""
        return self.newest.time_range()

    def counts(self, start: datetime, end: datetime, *, as_of: datetime | None = None) -> RowCounts:
        """Count predictions and labels without reading probabilities."""
        return self.newest.counts(start, end, as_of=as_of)

    def labelled(
        self, start: datetime, end: datetime, *, as_of: datetime | None = None
    ) -> WindowData:
        """Read the labelled rows; an empty range gives empty arrays, not an error."""
        found = []
        for first, last, version, source in self._parts(start, end):
            data = source.labelled(first, last, as_of=as_of)
            if version is not None:
                codes = version.codes[data.labels]
                data = dataclasses.replace(data, probabilities=_spread(data, version), labels=codes)
            found.append(data)
        return found[0] if len(found) == 1 else concatenate([_dense(data) for data in found])

    def predictions(self, start: datetime, end: datetime) -> PredictionData:
        """Read all rows, labelled or not."""
        found = []
        for first, last, version, source in self._parts(start, end):
            data = source.predictions(first, last)
            if version is not None:
                data = dataclasses.replace(data, probabilities=_spread(data, version))
            found.append(data)
        return found[0] if len(found) == 1 else concatenate([_dense(data) for data in found])

    def advance(self, start: datetime, n_rows: int) -> datetime | None:
        """Find the smallest time of a row such that ``[start, time)`` holds at least `n_rows`."""
        return self.newest.advance(start, n_rows)

    @property
    def auditor(self) -> Callable[..., AuditResult] | None:
        """None: `labelled` returns all rows."""
        return None

    @property
    def comparer(self) -> Callable[..., list[Comparison] | None] | None:
        """None: rows are compared in memory."""
        return None


def _spread(data: PredictionData, version: TreeVersion) -> Any:
    """Return probabilities of the newest leaves; every row still sums to 1."""
    return np.ascontiguousarray(Predictions.of(data.probabilities).dense() @ version.spread)


def _dense(data: Any) -> Any:
    matrix = Predictions.of(data.probabilities).dense()
    return dataclasses.replace(data, probabilities=matrix)
