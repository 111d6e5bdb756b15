"""``huc-monitor report``: what was found, as one HTML page for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from huc_monitor.cli import options
from huc_monitor.cli.reading import opened
from huc_monitor.cli.showing import print_json, say
from huc_monitor.errors import InvalidInputError


def run(
    audit: Annotated[
        Path | None,
        typer.Argument(help="What `huc-monitor audit --json` printed; the monitor if left out."),
    ] = None,
    *,
    config: Annotated[
        Path, typer.Option(help="Configuration of the monitor whose records are shown.")
    ] = Path("huc.yaml"),
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("report.html"),
    tree: Annotated[
        Path | None, typer.Option(help="Label tree, if the audit's file does not hold it.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(min=0, help="Compare moments with this instead.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    as_json: options.Json = False,
) -> None:
    """Write one HTML page that says what is wrong, where, for whom, and how certain that is.

    The page needs no network and no other file.

    Example: huc-monitor report --config huc.yaml --out report.html --open
    """
    from huc_monitor.reporting import write_report
    from huc_monitor.tree import LabelTree

    given = None if tree is None else LabelTree.from_file(tree)
    source, found_tree, found_tolerance = _from_config(config) if audit is None else _read(audit)
    path = write_report(
        source,
        out,
        tree=given or found_tree,
        tolerance=found_tolerance if tolerance is None else tolerance,
    )
    if as_json:
        print_json({"path": str(path.resolve()), "bytes": path.stat().st_size})
    else:
        say(f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB).")
    if open_page:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


def _from_config(config: Path) -> tuple[Any, Any, float | None]:
    from huc_monitor.monitor import read_state

    with opened(config) as (settings, tracker):
        records = list(tracker.records())
        state = tracker.load_state()
        if records and state is not None:
            # With what people did about the alerts since the newest window.
            alerts = read_state(state, tracker).open_alerts
            records[-1] = replace(records[-1], alerts=alerts)
    if not records:
        msg = (
            f"`config` must be of a monitor that has checked a window; {str(config)!r} has no "
            "records. Run: huc-monitor check"
        )
        raise InvalidInputError(msg)
    return records, settings.tree, None


def _read(path: Path) -> tuple[Any, Any, float | None]:
    """Read the output of `audit --json`, an AuditResult's dict, or one record."""
    from huc_monitor.monitor.records import WindowRecord
    from huc_monitor.tree import LabelTree

    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        msg = f"`audit` must be a JSON file; {str(path)!r} is not ({error})."
        raise InvalidInputError(msg) from error
    if not isinstance(content, Mapping) or not {"audit", "candidates"} & set(content):
        msg = (
            f"`audit` must hold what `huc-monitor audit --json` prints; {str(path)!r} does not. "
            "For the records of a monitor, use --config."
        )
        raise InvalidInputError(msg)
    if "window_id" in content:
        return WindowRecord.from_dict(content), None, None
    tree = content.get("label_tree")
    return (
        content.get("audit", content),
        None if tree is None else LabelTree.from_dict(tree),
        content.get("tolerance"),
    )
