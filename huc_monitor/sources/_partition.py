"""Which files of a partitioned log a window needs, and which were in fact read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from huc_monitor._common.settings import Section, Zone
from huc_monitor._common.times import get_zone


class Partition(Section):
    """How the folders of a hive-partitioned log follow the time column.

    Parameters
    ----------
    columns : mapping of str to str
        Partition column to the strftime format of its values.

        ``{"day": "%Y-%m-%d"}`` or ``{"year": "%Y", "month": "%m"}``, for example.
    time_zone : str, default "UTC"
        The zone in which the folders' dates are meant.

    Notes
    -----
    With it, a window opens the files of its own folders only. It is a promise: rows whose folder
    does not belong to their time would not be found. Without it, DuckDB still skips the parts of
    each file whose times are outside, but has to look into every file.
    """

    columns: dict[str, str] = Field(
        min_length=1, examples=[{"day": "%Y-%m-%d"}, {"year": "%Y", "month": "%m"}]
    )
    time_zone: Zone = "UTC"

    def values(self, start: datetime, end: datetime) -> dict[str, list[str]]:
        """Return the values that a partition column can have between two times.

        Examples
        --------
        >>> from datetime import UTC
        >>> days = Partition(columns={"day": "%d"}, time_zone="Europe/Berlin")
        >>> days.values(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
        {'day': ['01', '02']}
        """
        zone = get_zone(self.time_zone)
        moments = [start]
        while moments[-1] + timedelta(minutes=30) < end:
            moments.append(moments[-1] + timedelta(minutes=30))
        moments.append(max(start, end - timedelta(microseconds=1)))
        local = [moment.astimezone(zone) for moment in moments]
        return {
            column: list(dict.fromkeys(time.strftime(form) for time in local))
            for column, form in self.columns.items()
        }


@dataclass(frozen=True, slots=True)
class ScanProfile:
    """What DuckDB touched to read one range of a log.

    Attributes
    ----------
    n_files_read, n_files : int
        Files opened, and files there are. Equal where nothing could be left out.
    n_rows_read : int
        Rows that passed the filters of the scan.
    bytes_read : int
        Bytes read from the files.
    columns : tuple of str
        Columns read.
    plan : str
        DuckDB's own account, as JSON.
    """

    n_files_read: int
    n_files: int
    n_rows_read: int
    bytes_read: int
    columns: tuple[str, ...]
    plan: str = field(repr=False)


def read_profile(plan: str, columns: Mapping[str, Any]) -> ScanProfile:
    found = json.loads(plan)
    scans: list[Mapping[str, Any]] = []
    _collect_scans(found, scans)
    if not scans:
        return ScanProfile(0, 0, 0, 0, tuple(columns), plan)
    scan = scans[0]
    info = scan.get("extra_info", {})
    read = int(info.get("Total Files Read", 0))
    total = int(str(info.get("Scanning Files", f"{read}/{read}")).split("/")[-1])
    n_rows = int(scan.get("intermediate_rows", 0))
    size = int(found.get("io", {}).get("total_bytes_read", 0)) if isinstance(found, Mapping) else 0
    return ScanProfile(read, total, n_rows, size, tuple(columns), plan)


def _collect_scans(node: Any, scans: list[Mapping[str, Any]]) -> None:
    if isinstance(node, Mapping):
        if "Function" in (node.get("extra_info") or {}):
            scans.append(node)
        for child in node.values():
            _collect_scans(child, scans)
    elif isinstance(node, list):
        for child in node:
            _collect_scans(child, scans)
