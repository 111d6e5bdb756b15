"""Run kernels in parallel; they release the interpreter lock, so threads are enough."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Result = TypeVar("Result")

# Kept between calls: starting a thread costs as much as scanning a few thousand rows.
_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # threads do not survive a fork


_kept = threading.local()
_MOST_KEPT = 1 << 20


def scratch(n: int) -> NDArray[np.uint64]:
    """Return room for n numbers of 64 bits; the next call in the same thread uses it anew.

    A thread keeps up to 8 MB: the system hands out new memory page by page, which takes as long
    as sorting in it.
    """
    if n > _MOST_KEPT:
        return np.empty(n, dtype=np.uint64)
    room: NDArray[np.uint64] = getattr(_kept, "room", np.empty(0, dtype=np.uint64))
    if room.size < n:
        room = _kept.room = np.empty(n, dtype=np.uint64)
    return room[:n]


def n_threads() -> int:
    """Threads to use: ``HUC_NUM_THREADS``, else the cores this process may run on."""
    asked = os.environ.get("HUC_NUM_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_tasks(
    function: Callable[..., Result],
    arguments: Iterable[tuple[object, ...]],
    *,
    parallel: bool = True,
) -> Iterator[Result]:
    """Yield ``function(*arguments)`` for every tuple, in order, computed in parallel.

    The caller's thread takes tasks as the others do, so that nothing waits for a thread that is
    busy elsewhere, and a task may run tasks of its own. The first error in order is raised, after
    the tasks under way have ended. Pass ``parallel=False`` for small work.
    """
    tasks = list(arguments)
    workers = min(n_threads(), len(tasks)) if parallel and len(tasks) > 1 else 1
    if workers <= 1:
        for task in tasks:
            yield function(*task)
        return
    yield from _shared(function, tasks, workers)


def _shared(
    function: Callable[..., Result], tasks: list[tuple[object, ...]], workers: int
) -> Iterator[Result]:
    results: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}
    turns = itertools.count()

    def work() -> None:
        for turn in turns:
            if turn >= len(tasks) or errors:
                return
            try:
                results[turn] = function(*tasks[turn])
            except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
                errors[turn] = error

    others = [_pool(workers).submit(work) for _ in range(workers - 1)]
    work()
    for other in others:
        if not other.cancel():
            other.result()
    if errors:
        raise errors[min(errors)]
    for turn in range(len(tasks)):
        yield results.pop(turn)


def _pool(workers: int) -> ThreadPoolExecutor:
    with _pools_lock:
        if workers not in _pools:
            _pools[workers] = ThreadPoolExecutor(workers, thread_name_prefix="huc")
        return _pools[workers]
