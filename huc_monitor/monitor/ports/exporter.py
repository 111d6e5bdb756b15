"""Exporters: how other systems read where a monitor stands. They come from entry points.

Hosts register a factory in the group ``huc_monitor.exporters``; it is called as
``factory(info, **options)``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from huc_monitor.errors import UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from huc_monitor.monitor.ports.tracker import MonitorInfo
    from huc_monitor.monitor.records import AlertState, WindowRecord

__all__ = ["Exporter", "Standing", "make_exporter", "serve"]

GROUP = "huc_monitor.exporters"

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
    """

    status: str
    alerts: tuple[AlertState, ...]
    n_unsent: int
    records: tuple[WindowRecord, ...]
    history: Callable[[], Sequence[WindowRecord]]


@runtime_checkable
class Exporter(Protocol):
    """Shows where a monitor stands. Raising means "not exported": it gets the same records again.

    A failure never fails a check.
    """

    def export(self, standing: Standing) -> None:
        """Take what a check found, also when that is nothing new."""
        ...

    def serve(self) -> None:
        """Answer requests from now on, if it can: the process will live. Only `watch` asks."""
        ...

    def close(self) -> None:
        """Stop answering."""
        ...


def make_exporter(
    name: str, info: MonitorInfo, options: Mapping[str, Any] | None = None
) -> Exporter:
    """Make the exporter that a package registered under `name`, with its own options."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        msg = f"`exporter` must be an installed exporter; got {name!r}. "
        raise UnknownNameError(msg + did_you_mean(name, sorted(found)))
    exporter: Exporter = found[name].load()(info, **(options or {}))
    return exporter


def serve(exporters: Mapping[str, Exporter]) -> None:
    """Let exporters answer requests; one that cannot yet is only complained about."""
    for name, exporter in exporters.items():
        try:
            exporter.serve()
        except Exception as error:  # noqa: BLE001 - checks go on without it
            log.warning("exporter %s does not answer requests: %s", name, error)
