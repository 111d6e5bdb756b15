"""``huc-monitor ack``: say that a person has seen a finding and accepts it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from huc_monitor.cli import options
from huc_monitor.cli.showing import say


def run(
    window: Annotated[str, typer.Argument(help="Number or id of a failed window, from status.")],
    *,
    config: options.ConfigFile = Path("huc.yaml"),
) -> None:
    """Dismiss a window that could not be audited: it is not tried again.

    Example: huc-monitor ack 12
    """
    from huc_monitor.config.opening import open_monitor

    monitor = open_monitor(config)
    try:
        found = monitor.ack(window)
        status = monitor.status
    finally:
        monitor.tracker.close()
    say(
        f"Window {found.ordinal} ({found.start:%Y-%m-%d %H:%M} UTC) stays without an audit. "
        f"Status {status}."
    )
