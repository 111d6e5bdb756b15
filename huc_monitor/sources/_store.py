"""Scored rows on disk, to be read in order of score: DuckDB sorts them within a memory limit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from huc_monitor._common.threads import n_threads
from huc_monitor.audit.runs.packing import Packing, Records
from huc_monitor.audit.runs.pieces import PiecePlan, ScoredRows
from huc_monitor.errors import InvalidInputError

if TYPE_CHECKING:
    import duckdb

# Of the limit: for DuckDB, and for a run of rows with what is made of it. The rest is slack.
_DUCKDB_SHARE = 0.5
_RUN_SHARE = 0.15
_LEAST_DUCKDB = 32 * 10**6
_ROOM_FOR_THREADS = 256 * 10**6


class RowStore:
    """Rows of all utilities in a DuckDB file, to be read in order of score."""

    def __init__(self, audit: PiecePlan, folder: Path, limit: int, *, sampled: bool) -> None:
        self._audit, self._limit, self._sampled = audit, limit, sampled
        self._packings: list[Packing] = []
        self._given = (False, False)  # whether rows have weights, and label probabilities
        self._database = _open(folder, max(_LEAST_DUCKDB, int(limit * _DUCKDB_SHARE)))

    @classmethod
    @contextmanager
    def open(
        cls, audit: PiecePlan, limit: int, folder: str | Path | None, *, sampled: bool = False
    ) -> Iterator[RowStore]:
        """Keep rows in a folder that is removed in the end."""
        with tempfile.TemporaryDirectory(prefix="huc-", dir=folder) as place:
            store = cls(audit, Path(place), limit, sampled=sampled)
            try:
                yield store
            finally:
                store._database.close()

    def add(self, scored: Iterable[ScoredRows]) -> None:
        """Write a piece's rows, utility by utility."""
        import pyarrow as pa

        for u, rows in enumerate(scored):
            given = (rows.repeats.size > 0, rows.times.size > 0)
            if len(self._packings) <= u:
                packing = Packing.of(
                    self._audit,
                    u,
                    weighted=given[0],
                    sampled=self._sampled,
                    chosen=given[1],
                )
                self._packings.append(packing)
                self._given = given
                self._database.execute(f"CREATE TABLE rows_{u} (score DOUBLE, record BLOB)")
            if given != self._given:
                msg = "`weights` and `label_probability` must be given for all pieces, or for none."
                raise InvalidInputError(msg)
            records = self._packings[u].pack(rows)
            width = pa.binary(records.dtype.itemsize)
            packed = pa.FixedSizeBinaryArray.from_buffers(
                width, len(records), [None, pa.py_buffer(records.tobytes())]
            )
            batch = pa.table({"score": rows.scores, "record": packed})
            self._database.register("batch", batch)
            self._database.execute(f"INSERT INTO rows_{u} SELECT score, record FROM batch")  # noqa: S608
            self._database.unregister("batch")

    def runs(self, u: int) -> Iterator[ScoredRows]:
        """Yield a utility's rows in order of score, none cut between equal scores."""
        for records in _whole_ties(self._records(u, "ORDER BY score"), self._rows_at_a_time(u)):
            yield self._packings[u].unpack(records)

    def rows(self, u: int) -> Iterator[ScoredRows]:
        """Yield a utility's rows in any order."""
        for records in self._records(u, ""):
            yield self._packings[u].unpack(records)

    def _records(self, u: int, order: str) -> Iterator[Records]:
        query = f"SELECT record FROM rows_{u} {order}"  # noqa: S608 - numbers and constants
        dtype = self._packings[u].dtype
        reader = self._database.sql(query).arrow(min(100_000, self._rows_at_a_time(u)))
        for batch in reader:
            column = batch.column(0)
            data = np.frombuffer(column.buffers()[2], dtype=np.uint8)
            start = int(np.frombuffer(column.buffers()[1], dtype=np.int32)[column.offset])
            yield data[start : start + len(column) * dtype.itemsize].view(dtype)

    def _rows_at_a_time(self, u: int) -> int:
        """Rows of a run: records, their sorted copies, weights, and multipliers of a block."""
        n_groups = len(self._audit.subgroups)
        per_row = 4 * self._packings[u].bytes_per_row + 10 * n_groups + 64
        per_row += (128 + 16 * n_groups) if self._audit.n_draws else 0
        return max(1_000, int(self._limit * _RUN_SHARE) // per_row)


def _whole_ties(batches: Iterable[Records], at_least: int) -> Iterator[Records]:
    """Put ordered records together into runs, none of which ends between equal scores."""
    kept: list[Records] = []
    n = 0
    for batch in batches:
        kept.append(batch.copy())
        n += len(batch)
        if n < at_least or batch["score"][-1] == kept[0]["score"][0]:
            continue
        records = np.concatenate(kept)
        end = int(np.searchsorted(records["score"], records["score"][-1]))
        yield records[:end]
        kept, n = [records[end:].copy()], len(records) - end
    if kept:
        yield np.concatenate(kept)


def _open(folder: Path, limit: int) -> duckdb.DuckDBPyConnection:
    import duckdb

    settings: dict[str, Any] = {
        "memory_limit": f"{limit}B",
        "temp_directory": str(folder / "spill"),
        "preserve_insertion_order": "false",
        # Every thread asks for buffers of its own, and a small limit has no room for two.
        "threads": 1 if limit < _ROOM_FOR_THREADS else n_threads(),
    }
    connection = duckdb.connect(str(folder / "rows.duckdb"), config=settings)
    connection.execute("SET enable_progress_bar = false")
    return connection
