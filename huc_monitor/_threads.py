"""Running kernels side by side: they release the interpreter lock, so plain threads do."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Result = TypeVar("Result")


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

    Starting threads costs about as much as scanning a few thousand rows: pass ``parallel=False``
    for small work.
    """
    tasks = list(arguments)
    workers = min(n_threads(), len(tasks)) if parallel else 1
    if workers <= 1:
        for task in tasks:
            yield function(*task)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda task: function(*task), tasks)
