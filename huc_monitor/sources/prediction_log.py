"""A log of predictions as they are served: Parquet files by day, written behind the request.

`PredictionLogger.log` puts a prediction into a queue and returns. A thread of the logger writes the
queue to a new file every few seconds, under a temporary name that it renames when the file is
whole. So a process that is killed leaves no broken file, and loses the rows that were not written
yet: those of the last ``flush_seconds`` and of the write under way, never more than ``max_rows``.
A full queue drops new rows and counts them; nothing here waits for the disk or raises in a request.

A saved model carries this file, so it uses the standard library, numpy and pyarrow alone.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

log = logging.getLogger(__name__)
_TELL_EVERY = 60.0
_CLOSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LoggerStats:
    """What became of the rows so far: written, still queued, dropped by a full queue, unusable."""

    n_written: int
    n_queued: int
    n_dropped: int
    n_unusable: int


class PredictionLogger:
    """Writes predictions to Parquet files by day, without keeping a request waiting.

    Safe for threads, for processes that share the folder, and across fork. The folder is what
    `huc-monitor init` and `check` read, with the labels in a table of their own, joined by ``id``.

    Parameters
    ----------
    folder : path
        Made when missing. Files are ``day=2026-03-01/<process>-<number>.parquet``.
    classes : sequence of str
        What the probabilities are of, in order: the leaves of the tree.
    top_k : int, optional
        Keep the k likeliest classes of each row, as the lists ``top_classes`` and ``top_scores``.
        All of them when left out, a column ``p_<class>`` each.
    features : mapping of str to {float, int, bool, str}, optional
        Columns to log with every prediction, with their types: what subgroups need. A value that
        is missing, or not of its type, is logged as missing.
    model_version : str, optional
        Logged with rows that bring none of their own.
    flush_seconds : float, default 5
        How often files are written; a killed process loses at most the rows since.
    flush_rows : int, default 20,000
        So many queued rows are written at once, before the time is over.
    max_rows : int, default 100,000
        Rows that may wait. Beyond, new rows are dropped and counted.

    Examples
    --------
    >>> import tempfile, pyarrow.parquet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with PredictionLogger(folder, classes=["cat", "dog"]) as logger:
    ...         key = logger.log([0.8, 0.2], id="a1")
    ...     pyarrow.parquet.read_table(folder)["p_cat"].to_pylist(), key
    ([0.8], 'a1')
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        classes: Sequence[str],
        top_k: int | None = None,
        features: Mapping[str, type] | None = None,
        model_version: str | None = None,
        flush_seconds: float = 5.0,
        flush_rows: int = 20_000,
        max_rows: int = 100_000,
    ) -> None:
        self.folder = Path(folder)
        self.classes = tuple(map(str, classes))
        self.top_k = top_k
        self.features = dict(features or {})
        self.model_version = model_version
        self.flush_seconds, self.flush_rows, self.max_rows = flush_seconds, flush_rows, max_rows
        self._check()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._start()
        atexit.register(self.close)

    def _check(self) -> None:
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
            msg = f"`classes` must be at least two distinct names; got {self.classes!r:.200}."
            raise ValueError(msg)
        if self.top_k is not None and not 1 <= self.top_k <= len(self.classes):
            msg = f"`top_k` must be from 1 to {len(self.classes)}; got {self.top_k!r}."
            raise ValueError(msg)
        odd = [name for name, kind in self.features.items() if kind not in _ARROW]
        if odd:
            msg = (
                f"`features` must be float, int, bool or str; got {self.features[odd[0]]!r} for "
                f"{odd[0]!r}."
            )
            raise ValueError(msg)
        taken = {"id", "time", "model_version", "day", "top_classes", "top_scores"}
        taken |= {f"p_{name}" for name in self.classes}
        clash = sorted(taken & set(self.features))
        if clash:
            msg = f"`features` must not be called {clash[0]!r}, a column of the log. Rename it."
            raise ValueError(msg)
        if min(self.flush_seconds, self.flush_rows, self.max_rows) <= 0:
            msg = "`flush_seconds`, `flush_rows` and `max_rows` must be positive."
            raise ValueError(msg)

    def _start(self) -> None:
        """Begin with an empty queue, in this process: what a parent queued, the parent writes."""
        self._pid = os.getpid()
        self._name = f"{self._pid}-{uuid.uuid4().hex[:12]}"
        self._queue: deque[tuple[Any, ...]] = deque()
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._wake, self._closed = threading.Event(), False
        self._n_files = self._n_queued = self._n_written = self._n_dropped = self._n_unusable = 0
        self._told = -_TELL_EVERY
        self._thread: threading.Thread | None = None

    def log(
        self,
        probabilities: Any,
        *,
        id: Any = None,  # noqa: A002 - the word of the log
        features: Mapping[str, Any] | None = None,
        time_ns: int | None = None,
        model_version: str | None = None,
    ) -> str:
        """Queue one prediction, and return the id by which its label is joined.

        Parameters
        ----------
        probabilities : (K,) numbers in the order of ``classes``
        id : optional
            A new one when left out.
        features : mapping of str to value, optional
        time_ns : int, optional
            When it was made, in nanoseconds since 1970; now when left out.
        model_version : str, optional
        """
        key = ""
        try:
            key = uuid.uuid4().hex if id is None else str(id)
            # A copy: the caller may use its array again.
            row = np.array(probabilities, dtype=np.float64)
            if row.shape != (len(self.classes),):
                msg = f"`probabilities` must be {len(self.classes)} numbers; got {row.shape}."
                raise ValueError(msg)  # noqa: TRY301 - told and counted like any other fault
            version = model_version or self.model_version
            given = None if features is None else dict(features)
            self._put((time_ns or time.time_ns(), key, version, row, given))
        except Exception as error:  # noqa: BLE001 - a log must never fail a request
            self._n_unusable += 1
            self._tell(error)
        return key

    def _put(self, entry: tuple[Any, ...]) -> None:
        if os.getpid() != self._pid:
            self._start()
        with self._lock:
            full = self._n_queued >= self.max_rows or self._closed
            if full:
                self._n_dropped += 1
            else:
                self._queue.append(entry)
                self._n_queued += 1
        if full:
            self._tell()
        elif self._thread is None:
            self._begin()
        elif self._n_queued >= self.flush_rows:
            self._wake.set()

    def log_batch(self, probabilities: Any, **columns: Any) -> list[str]:
        """Queue several predictions: (n, K) numbers, ``ids`` and ``features`` of n rows each."""
        ids, features = columns.pop("ids", None), columns.pop("features", None)
        try:
            n = len(probabilities)
            keys = [None] * n if ids is None else list(ids)
            rows: list[Any] = [None] * n
            if features:
                names = list(features)
                values = zip(*(features[name] for name in names), strict=True)
                rows = [dict(zip(names, row, strict=True)) for row in values]
            parts = list(zip(probabilities, keys, rows, strict=True))
        except Exception as error:  # noqa: BLE001 - a log must never fail a request
            self._n_unusable += 1
            self._tell(error)
            return []
        return [self.log(p, id=key, features=row, **columns) for p, key, row in parts]

    @property
    def stats(self) -> LoggerStats:
        """What became of the rows of this process so far."""
        return LoggerStats(self._n_written, self._n_queued, self._n_dropped, self._n_unusable)

    def flush(self) -> bool:
        """Write what is queued; False where that failed, and the rows still wait."""
        if os.getpid() != self._pid:
            self._start()
        return self._write()

    def close(self) -> None:
        """Write what is queued, and take no more."""
        if os.getpid() != self._pid:
            return
        self._closed = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_SECONDS)
        self._write()
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- behind the request

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep_writing, daemon=True)
                self._thread.start()

    def _keep_writing(self) -> None:
        """Write every few seconds, or when woken, until the logger is closed."""
        while not self._closed:
            self._wake.wait(self.flush_seconds)
            self._wake.clear()
            if not self._write():
                time.sleep(min(1.0, self.flush_seconds))

    def _write(self) -> bool:
        """Write the queue to one new file per day; on an error the rows go back."""
        with self._writing:
            with self._lock:
                entries, self._queue = self._queue, deque()
            by_day: dict[int, list[tuple[Any, ...]]] = {}
            for entry in entries:
                by_day.setdefault(entry[0] // 86_400_000_000_000, []).append(entry)
            for day in list(by_day):
                try:
                    self._write_file(day, by_day[day])
                except Exception as error:  # noqa: BLE001 - a full disk must not end the thread
                    with self._lock:
                        rest = [entry for kept in by_day.values() for entry in kept]
                        self._queue.extendleft(reversed(rest))
                    self._tell(error)
                    return False
                n = len(by_day.pop(day))
                with self._lock:
                    self._n_queued -= n
                    self._n_written += n
        return True

    def _write_file(self, day: int, entries: list[tuple[Any, ...]]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = self.folder / f"day={np.datetime64(day, 'D')}"
        folder.mkdir(parents=True, exist_ok=True)
        self._n_files += 1
        name = f"{self._name}-{self._n_files:06d}.parquet"
        hidden = folder / f".{name}.tmp"
        try:
            with hidden.open("xb") as file:
                pq.write_table(pa.table(self._columns(entries)), file)
                file.flush()
                os.fsync(file.fileno())
            hidden.rename(folder / name)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise

    def _columns(self, entries: list[tuple[Any, ...]]) -> dict[str, Any]:
        import pyarrow as pa

        times, ids, versions, rows, given = zip(*entries, strict=True)
        micro = np.array(times, dtype=np.int64) // 1000
        columns: dict[str, Any] = {
            "id": pa.array(ids, pa.string()),
            "time": pa.array(micro, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        }
        if any(version is not None for version in versions) or self.model_version is not None:
            columns["model_version"] = pa.array(versions, pa.string())
        matrix = np.stack(rows)
        if self.top_k is None:
            for k, name in enumerate(self.classes):
                columns[f"p_{name}"] = pa.array(matrix[:, k])
        else:
            top = np.argsort(-matrix, axis=1, kind="stable")[:, : self.top_k]
            ends = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * self.top_k)
            names = np.array(self.classes, dtype=object)[top.ravel()]
            scores = np.take_along_axis(matrix, top, axis=1).ravel()
            for name, values in (
                ("top_classes", pa.array(names)),
                ("top_scores", pa.array(scores)),
            ):
                columns[name] = pa.ListArray.from_arrays(ends, values)
        for name, kind in self.features.items():
            values = [_of_kind((row or {}).get(name), kind) for row in given]
            columns[name] = pa.array(values, _ARROW[kind])
        return columns

    def _tell(self, error: Exception | None = None) -> None:
        """Say what goes wrong, at most once a minute."""
        now = time.monotonic()
        if now - self._told < _TELL_EVERY:
            return
        self._told = now
        why = "" if error is None else f"; last error: {type(error).__name__}: {error}"
        log.warning(
            "prediction log %s: %d rows dropped by a full queue of %d, %d rows unusable%s",
            self.folder,
            self._n_dropped,
            self.max_rows,
            self._n_unusable,
            why,
        )


_ARROW: dict[type, str] = {float: "double", int: "int64", bool: "bool", str: "string"}


def _of_kind(value: Any, kind: type) -> Any:
    """Return a value as its column has it, None where it is missing or of another type."""
    if isinstance(value, np.generic):
        value = value.item()
    if kind is str:
        return None if value is None or value != value else str(value)  # noqa: PLR0124 - NaN
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, int | float):
        return None
    if kind is int:
        return int(value) if value == value // 1 and abs(value) < 2**63 else None
    return kind(value)
