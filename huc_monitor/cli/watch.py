"""``huc-monitor watch``: check every so often until it is stopped."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from huc_monitor.cli import options
from huc_monitor.cli.check import as_document, show
from huc_monitor.cli.logs import start_logging
from huc_monitor.cli.showing import print_json

if TYPE_CHECKING:
    from huc_monitor.monitor import CheckResult


def run(
    *,
    config: options.ConfigFile = Path("huc.yaml"),
    every: Annotated[str, typer.Option(help="From one check to the next: 15m, 1h.")] = "15m",
    jitter: Annotated[
        float, typer.Option(min=0, max=1, help="Vary each pause by up to this share.")
    ] = 0.1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document per check.")
    ] = False,
    log_format: options.LogForm = None,
    checks: Annotated[int | None, typer.Option(min=1, help="Stop after this many.")] = None,
) -> None:
    """Check every so often; stop cleanly, between two windows, on SIGTERM or Ctrl-C.

    After an error it tries again in half a minute, then less and less often. The configuration is
    read anew for every check, except for exporters, which answer requests all the while. Only one
    watch runs per configuration file.

    Example: huc-monitor watch --config huc.yaml --every 1h
    """
    from huc_monitor._common.times import Span
    from huc_monitor.config import load_config
    from huc_monitor.config.opening import open_exporters, open_monitor
    from huc_monitor.monitor import Watch, watch_lock
    from huc_monitor.monitor.ports.exporter import serve

    start_logging(log_format)
    length = Span.parse(every, argument="every").nominal
    # A bad file is an error now; one that turns bad later is waited out.
    exporters = open_exporters(load_config(config))

    def check(progress: Callable[[int, int, str], None]) -> CheckResult:
        monitor = open_monitor(config, exporters=exporters)
        with closing(monitor.tracker):
            return monitor.check(progress=progress)

    def tell(result: CheckResult) -> None:
        if as_json:
            print_json(as_document(result))
        else:
            show(result)
        sys.stdout.flush()

    watch = Watch(check, length, jitter=jitter, tell=tell, stop=_stop_on_signals())
    with watch_lock(config):
        serve(exporters)
        try:
            watch.run(checks)
        finally:
            for exporter in exporters.values():
                exporter.close()


def _stop_on_signals() -> Event:
    stop = Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    return stop
