"""What DuckDB touched to read one range of a log: its own account of a scan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from huc_monitor.sources import TableSource


@dataclass(frozen=True, slots=True)
class ScanProfile:
    """Files opened of those there are, rows that passed the filters, bytes and columns read."""

    n_files_read: int
    n_files: int
    n_rows_read: int
    bytes_read: int
    columns: tuple[str, ...]
    plan: str


def profile(source: TableSource, start: datetime, end: datetime) -> ScanProfile:
    """Run the scan of a range, throw its rows away, and read DuckDB's account of it."""
    columns, log = source.needed_columns(with_labels=True), source.log
    query, values = log._scan_query(columns, source.time, start, end)
    plan = log._sql(f"EXPLAIN (ANALYZE, FORMAT json) {query}", values).fetchall()[0][1]
    found = json.loads(plan)
    scan = next(_scans(found))
    info = scan["extra_info"]
    read = int(info.get("Total Files Read", 0))
    total = int(str(info.get("Scanning Files", f"{read}/{read}")).split("/")[-1])
    size = int(found.get("io", {}).get("total_bytes_read", 0)) if isinstance(found, Mapping) else 0
    return ScanProfile(read, total, int(scan["intermediate_rows"]), size, tuple(columns), plan)


def _scans(node: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(node, Mapping) and "Function" in (node.get("extra_info") or {}):
        yield node
    below = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    for child in below:
        yield from _scans(child)
