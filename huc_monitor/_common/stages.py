"""Stages of long work, reported to a listener that callers set for the current context."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar

log = logging.getLogger("huc_monitor")

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("huc_stages", default=None)


@contextlib.contextmanager
def listening(listener: Callable[[str], None] | None) -> Iterator[None]:
    """Call `listener` with the name of every stage that begins inside the block.

    Examples
    --------
    >>> with listening(print):
    ...     begin_stage("reading rows")
    reading rows
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def begin_stage(name: str) -> None:
    """Say what long work comes next."""
    log.info("stage: %s", name, extra={"huc": {"event": "stage", "stage": name}})
    listener = _listener.get()
    if listener is not None:
        listener(name)
