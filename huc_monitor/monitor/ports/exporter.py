"""Exporters: how other systems read where a monitor stands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from huc_monitor.monitor.records import AlertState, WindowRecord


log = logging.getLogger("huc_monitor")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a monitor stands after a check.

    Attributes
    ----------
    status : {"ok", "warning", "failed", "critical"}
        Of all open alerts; failed: some window could not be audited.
    alerts : tuple of AlertState
        These alerts.
    n_unsent : int
        Messages that could not be delivered yet.
    records : tuple of WindowRecord
        In order: those this exporter has not taken yet. Empty if there was no window to check; all
        of them if it failed the last time.
    history : callable
        Reads all records from the tracker: for an exporter that has nothing to go on. Slow.
    newest_row : datetime or None
        Time of the newest row of the log.
    """

    status: str
    alerts: tuple[AlertState, ...]
    n_unsent: int
    records: tuple[WindowRecord, ...]
    history: Callable[[], Sequence[WindowRecord]]
    newest_row: datetime | None = None


@runtime_checkable
class Exporter(Protocol):
    """Shows where a monitor stands. Raising means "not exported": it gets the same records again.

    A failure never fails a check.
    """

    def export(self, standing: Standing) -> None:
        """Take what a check found, also when that is nothing new."""

    def serve(self) -> None:
        """Answer requests from now on, if it can: the process will live. Only `watch` asks."""

    def close(self) -> None:
        """Stop answering."""

    def ping(self) -> str:
        """Say in a few words where it shows things, or raise why it cannot; change nothing."""


def serve(exporters: Mapping[str, Exporter]) -> None:
    """Let exporters answer requests; one that cannot yet is only complained about."""
    for name, exporter in exporters.items():
        try:
            exporter.serve()
        except Exception as error:  # noqa: BLE001 - checks go on without it
            log.warning("exporter %s does not answer requests: %s", name, error)
