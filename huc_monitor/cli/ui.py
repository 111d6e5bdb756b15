"""``huc-monitor ui``: look at any number of monitors in the browser, and act on their alerts."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from huc_monitor.cli.logs import start_logging
from huc_monitor.cli.showing import say
from huc_monitor.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from huc_monitor.reporting.ui import Fleet, Watched


def run(
    *,
    config: Annotated[
        list[str] | None,
        typer.Option(
            help="Configuration of a monitor, or a pattern such as 'fleet/*/huc.yaml'; repeatable.",
            show_default="huc.yaml",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1.")] = 8484,
    open_page: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Show monitors in the browser: fleet, model, branch. It can be reached from here alone.

    Example: huc-monitor ui --config 'fleet/*/huc.yaml' --open
    """
    start_logging(None)
    from huc_monitor.reporting.ui import Fleet

    fleet = Fleet(_find(config or ["huc.yaml"]), _open)
    try:
        _serve(fleet, port, open_page=open_page)
    finally:
        fleet.close()


def _serve(fleet: Fleet, port: int, *, open_page: bool) -> None:
    import uvicorn

    from huc_monitor.reporting.ui._server import make_app

    address = f"http://127.0.0.1:{port}/"
    say(f"{len(fleet.seats)} monitors at {address} (Ctrl+C ends it).")
    if open_page:
        import webbrowser

        webbrowser.open(address)
    uvicorn.run(
        make_app(fleet), host="127.0.0.1", port=port, log_level="warning", server_header=False
    )


def _find(patterns: Sequence[str]) -> list[Path]:
    """Return the files that patterns name, in order, each once."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        named = sorted(glob.glob(pattern, recursive=True)) or [pattern]  # noqa: PTH207 - absolute too
        for name in named:
            path = Path(name)
            if not path.is_file():
                msg = f"`config` must name a file, or match some; got {pattern!r}."
                raise InvalidInputError(msg)
            found[path] = None
    return list(found)


def _open(path: Path) -> Watched:
    from huc_monitor.config import load_config
    from huc_monitor.config.opening import open_monitor, open_recalibration_host, open_tracker
    from huc_monitor.reporting.ui import Watched

    config = load_config(path)
    tracker = open_tracker(config)
    return Watched(
        name=config.settings.model.name,
        identity=config.identity,
        tree=config.tree,
        utilities=config.utilities,
        tracker=tracker,
        monitor=lambda: open_monitor(config, tracker=tracker),
        host=lambda: open_recalibration_host(config, tracker),
    )
