"""What a plugin is told about the monitor that uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huc_monitor.tree import LabelTree

if TYPE_CHECKING:
    from huc_monitor.monitor.ports.tracker import Tracker


@dataclass(frozen=True, slots=True)
class MonitorInfo:
    """The monitor that a plugin is made for: the first argument of every factory.

    Attributes
    ----------
    name : str
        The monitor's name, chosen by the user.
    identity : str
        Hash of what its results depend on; a changed tree or utility is another monitor.
    model : str or None
        Name of the (registered) model.
    settings : dict or None
        The configuration as JSON-safe data without secrets, to show and to log.
    tree : LabelTree or None
    folder : Path
        That of the configuration file: relative paths in options start there.
    config : Config or None
        What the monitor is made from, for plugins that read its log; None without a file.
    tracker : Tracker or None
        Given to recalibration hosts only.
    file : str or None
        Name of the configuration file; None without one. Others of the same monitor name may
        lie beside it.
    """

    name: str
    identity: str
    model: str | None = None
    settings: Mapping[str, Any] | None = None
    tree: LabelTree | None = None
    folder: Path = Path()
    config: Any = None
    tracker: Tracker | None = None
    file: str | None = None

    @property
    def time_zone(self) -> str:
        """The time zone in which people are shown times."""
        return "UTC" if self.config is None else str(self.config.windows.time_zone)
