"""A log that was written by several versions of a tree, read as if the newest had always been."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from huc_monitor._common.times import to_utc
from huc_monitor.audit.inputs import Predictions
from huc_monitor.sources._data import PredictionData, WindowData, concatenate
from huc_monitor.sources._source import TableSource
from huc_monitor.tree.changes import TreeVersion


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VersionedSource(TableSource):
    """Reads each time by the tree it was written by, and hands over rows of the newest tree.

    The other parameters are those of the newest version.

    Parameters
    ----------
    earlier : sequence of (TreeVersion, TableSource), oldest first
        A version counts until its time; its source reads the log by its tree.
    """

    earlier: Sequence[tuple[TreeVersion, TableSource]] = field(kw_only=True)

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
            newest = super(VersionedSource, self)  # this one, read by a single tree
            parts.append((first, last, None, newest))
        return parts

    def used_columns(self) -> set[str]:
        """Name the columns of the log that reading a range by any version takes."""
        earlier = [source.used_columns() for _, source in self.earlier]
        return TableSource.used_columns(self).union(*earlier)

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


def _spread(data: PredictionData, version: TreeVersion) -> Any:
    """Return probabilities of the newest leaves; every row still sums to 1."""
    return np.ascontiguousarray(Predictions.of(data.probabilities).dense() @ version.spread)


def _dense(data: Any) -> Any:
    matrix = Predictions.of(data.probabilities).dense()
    return dataclasses.replace(data, probabilities=matrix)
