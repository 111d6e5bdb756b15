"""Reading the next window while this one is audited: one waits for data, the other for processors.

The source is used by one thread at a time, though not always by the same one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from huc_monitor.audit.comparison import Comparison
from huc_monitor.audit.result import AuditResult
from huc_monitor.monitor._rows import Decomposed, RowCache
from huc_monitor.monitor.windows import Window
from huc_monitor.sources import PredictionData, PredictionSource, RowCounts, TimeRange, WindowData
from huc_monitor.sources._data import Known


class OneAtATime:
    """A source whose calls wait for one another."""

    def __init__(self, source: PredictionSource) -> None:
        self._source, self._lock = source, threading.Lock()

    def time_range(self) -> TimeRange | None:
        """As the source."""
        with self._lock:
            return self._source.time_range()

    def counts(self, start: datetime, end: datetime, *, as_of: datetime | None = None) -> RowCounts:
        """As the source."""
        with self._lock:
            return self._source.counts(start, end, as_of=as_of)

    def labelled(
        self, start: datetime, end: datetime, *, as_of: datetime | None = None
    ) -> WindowData:
        """As the source."""
        with self._lock:
            return self._source.labelled(start, end, as_of=as_of)

    @property
    def auditor(self) -> Callable[..., AuditResult] | None:
        """As the source."""
        return None if self._source.auditor is None else self._audit

    def _audit(self, start: datetime, end: datetime, **options: Any) -> AuditResult:
        with self._lock:
            assert self._source.auditor is not None  # noqa: S101 - asked before
            return self._source.auditor(start, end, **options)

    @property
    def comparer(self) -> Callable[..., list[Comparison] | None] | None:
        """As the source."""
        return None if self._source.comparer is None else self._compare

    def _compare(self, ranges: Sequence[Known], **options: Any) -> list[Comparison] | None:
        with self._lock:
            assert self._source.comparer is not None  # noqa: S101 - asked before
            return self._source.comparer(ranges, **options)

    def predictions(self, start: datetime, end: datetime) -> PredictionData:
        """As the source."""
        with self._lock:
            return self._source.predictions(start, end)

    def advance(self, start: datetime, n_rows: int) -> datetime | None:
        """As the source."""
        with self._lock:
            return self._source.advance(start, n_rows)


class ReadAhead:
    """Rows of windows in their order, the next one being read while the last is in use.

    At most two windows are in memory, besides what windows share.
    """

    def __init__(self, cache: RowCache, windows: Sequence[Window], *, aside: bool) -> None:
        self._cache = cache
        self._windows = list(windows)
        self._pool = ThreadPoolExecutor(1) if aside and len(windows) > 1 else None
        self._next: Future[Decomposed] | None = None

    def take(self, window: Window) -> Decomposed:
        """Return the rows of a window, and start on those of the next."""
        if self._pool is None:
            return self._read(window)
        current = self._next or self._pool.submit(self._read, window)
        place = self._windows.index(window) + 1
        try:
            return current.result()
        finally:
            following = self._windows[place : place + 1]
            self._next = self._pool.submit(self._read, following[0]) if following else None

    def _read(self, window: Window) -> Decomposed:
        self._cache.forget(window.start)
        return self._cache.window(window.start, window.end, window.due_at)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
