"""Reading the next window in a thread while this one is audited.

The source is used by one thread at a time, though not always by the same one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, cast

from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor._rows import Decomposed, RowCache
from huc_monitor.monitor.windows import Window
from huc_monitor.sources import PredictionSource


class _OneAtATime:
    """A prediction source that two threads can use: one call at a time."""

    def __init__(self, source: PredictionSource) -> None:
        self._source, self._lock = source, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the source; its methods wait for each other."""
        found = getattr(self._source, name)
        if not callable(found):
            return found

        def alone(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                return found(*arguments, **options)

        return alone


def one_at_a_time(source: PredictionSource) -> PredictionSource:
    """Return a source that two threads can use: one call at a time."""
    if isinstance(source, _OneAtATime):
        return source
    if not isinstance(source, PredictionSource):
        msg = (
            f"`source` must be a PredictionSource; got {type(source).__name__}. Make one of a "
            "DataFrame with huc_monitor.sources: TableSource(FrameTable(frame), tree=tree, "
            "columns=Columns(time=..., label=...))."
        )
        raise InvalidInputError(msg)
    return cast(PredictionSource, _OneAtATime(source))


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

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
