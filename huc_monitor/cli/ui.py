"""``huc-monitor ui``: look at any number of monitors in the browser, and act on their alerts."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from huc_monitor.cli import options
from huc_monitor.cli.logs import start_logging
from huc_monitor.cli.showing import say
from huc_monitor.errors import HUCError, InvalidInputError

if TYPE_CHECKING:
    from huc_monitor.reporting.ui import Access, Fleet, Watched


def run(
    *,
    config: Annotated[
        list[str] | None,
        typer.Option(
            help="Configuration of a monitor, or a pattern such as 'fleet/*/huc.yaml'; repeatable.",
            show_default="huc.yaml",
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(help="Write the pages into this folder instead: a site without a server."),
    ] = None,
    allow_actions: Annotated[
        bool,
        typer.Option(help="Let who has the token acknowledge, annotate, mute, promote, roll back."),
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(help="Private file with the token; a new one is printed when left out."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1.")] = 8484,
    open_page: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Show monitors in the browser: fleet, models, branches, versions, alerts.

    The server can be reached from this machine alone.

    Example: huc-monitor ui --config 'fleet/*/huc.yaml' --open
    """
    start_logging(None)
    from huc_monitor.reporting.ui import Fleet

    fleet = Fleet(options.find_configs(config or ["huc.yaml"]), _open)
    try:
        if export is not None:
            _export(fleet, export, open_page=open_page)
        else:
            _serve(fleet, _access(token_file, allowed=allow_actions), port, open_page=open_page)
    finally:
        fleet.close()


def _export(fleet: Fleet, folder: Path, *, open_page: bool) -> None:
    from huc_monitor.reporting.ui._export import export_site

    written, unread = export_site(fleet, folder)
    say(f"Wrote {len(written)} pages; the first is {written[0]}.")
    if open_page:
        _show(written[0].resolve().as_uri())
    if unread:
        told = "; ".join(f"{path}: {why}" for path, why in unread.items())
        msg = f"{len(unread)} of {len(fleet.seats)} monitors could not be read: {told}"
        raise HUCError(msg)


def _access(token_file: Path | None, *, allowed: bool) -> Access:
    """Choose who may act; a token that is made here is told once, on standard error."""
    from huc_monitor.reporting.ui import Access, read_token

    if not allowed:
        if token_file is not None:
            msg = "`token_file` needs --allow-actions."
            raise InvalidInputError(msg)
        return Access()
    if token_file is not None:
        return Access(read_token(token_file))
    token = secrets.token_urlsafe(24)
    typer.echo(f"Token to log in with: {token}", err=True)
    return Access(token)


def _serve(fleet: Fleet, access: Access, port: int, *, open_page: bool) -> None:
    import uvicorn

    from huc_monitor.reporting.ui._server import make_app

    app = make_app(fleet, access)
    with socket.create_server(("127.0.0.1", port)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        many = "1 monitor" if len(fleet.seats) == 1 else f"{len(fleet.seats)} monitors"
        say(f"{many} at {address} (Ctrl+C ends it).")
        if open_page:
            _show(address)
        config = uvicorn.Config(app, log_level="warning", server_header=False)
        uvicorn.Server(config).run(sockets=[listener])


def _show(address: str) -> None:
    import webbrowser

    webbrowser.open(address)


def _open(path: Path) -> Watched:
    from huc_monitor.config import load_config
    from huc_monitor.config.opening import open_actions, open_monitor, open_recalibration_host
    from huc_monitor.reporting.ui import Watched

    config = load_config(path)
    actions = open_actions(config)
    return Watched(
        name=config.settings.model.name,
        actions=actions,
        monitor=lambda: open_monitor(config, tracker=actions.tracker),
        host=lambda: open_recalibration_host(config, actions.tracker),
    )
