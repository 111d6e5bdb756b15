"""``huc-monitor status``: what the monitor has found so far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from huc_monitor.cli import options
from huc_monitor.cli.check import exit_code, say_failed, say_forecasts
from huc_monitor.cli.logs import start_logging
from huc_monitor.cli.showing import make_console, make_table, print_json, say, tell

if TYPE_CHECKING:
    from huc_monitor.config import Config
    from huc_monitor.monitor.ports import Tracker
    from huc_monitor.monitor.records import AlertState, WindowRecord
    from huc_monitor.recalibration.shadow import ShadowTrial


def run(
    *,
    config: options.ConfigFile = Path("huc.yaml"),
    last: Annotated[int, typer.Option(min=1, help="Number of records in the table.")] = 10,
    fail_on: options.FailAt = "critical",
    as_json: options.Json = False,
) -> None:
    """Show the newest windows and all open alerts; reads no predictions.

    Exit code, as of check: 1 an alert is open, 2 a window could not be audited.

    Example: huc-monitor status --config huc.yaml --last 5
    """
    from huc_monitor.config import load_config
    from huc_monitor.config.opening import open_tracker
    from huc_monitor.monitor import open_state
    from huc_monitor.monitor.ports.stored import DamagedError

    start_logging(None)
    settings = load_config(config)
    tracker = open_tracker(settings)
    try:
        records = _without_superseded(tracker.records())[-last:]
        try:
            state = open_state(tracker, settings.identity, settings.tree, settings.utilities)
        except DamagedError:
            _show_records(records, as_json=as_json)
            raise
        trial = _trial(settings, tracker)
    finally:
        tracker.close()
    if as_json:
        shadow = None if trial is None else trial.to_dict()
        print_json({**_document(state, records), "shadow": shadow})
    else:
        _show(state, records)
        for text in say_forecasts(records, state.forecast_scores):
            tell(text)
        if trial is not None:
            say(f"On trial: {trial}.")
    raise typer.Exit(exit_code(state.open_alerts, state.failed, fail_on))


def _show_records(records: Sequence[WindowRecord], *, as_json: bool) -> None:
    """Show windows where the state cannot be read; the error itself comes after them."""
    if as_json:
        print_json({"status": "damaged", "windows": [_row(record) for record in records]})
    else:
        make_console().print(_windows(records))


def _trial(settings: Config, tracker: Tracker) -> ShadowTrial | None:
    """How a challenger's trial stands, where promotion waits for one."""
    from huc_monitor.config.opening import open_recalibration_host

    if settings.settings.recalibration.promotion != "shadow":
        return None
    host = open_recalibration_host(settings, tracker)
    return None if host is None else host.trial()


def _without_superseded(records: Sequence[WindowRecord]) -> list[WindowRecord]:
    """Leave out what was only pending where the window has been audited since."""
    done = {record.ordinal for record in records if record.status != "pending"}
    return [r for r in records if r.status != "pending" or r.ordinal not in done]


def _document(state: Any, records: Sequence[WindowRecord]) -> dict[str, Any]:
    return {
        "status": state.status,
        "identity": state.identity,
        "model_version": state.model_version,
        "last_window": None if state.last is None else state.last.to_dict(),
        "notes": list(state.notes),
        "alerts": [alert.to_dict() for alert in state.open_alerts],
        "windows": [_row(record) for record in records],
        "n_unsent": len(state.messages),
        "failed": [window.to_dict() for window in state.failed],
    }


def _row(record: WindowRecord) -> dict[str, Any]:
    audit = record.audit or {}
    return {
        "ordinal": record.ordinal,
        "start": record.start.isoformat(),
        "end": record.end.isoformat(),
        "revision": record.revision,
        "status": record.status,
        "reason": record.reason,
        "n_predictions": record.n_predictions,
        "n_labelled": record.n_labelled,
        "n_quarantined": record.n_quarantined,
        "coverage": record.coverage,
        "huc": audit.get("huc"),
        "huc_lower": audit.get("huc_lower"),
        "uc": audit.get("uc"),
        "detector": None if record.detector is None else record.detector["value"],
        "level": record.level,
        "forecasts": [item.to_dict() for item in record.forecasts],
    }


def _show(state: Any, records: Sequence[WindowRecord]) -> None:
    console = make_console()
    if not records:
        for note in state.notes:
            typer.echo(note)
        console.print("No window was checked yet. Run: huc-monitor check")
        if state.open_alerts:
            console.print(f"Status {state.status}; {len(state.open_alerts)} open alerts.")
            console.print(_alerts(state.open_alerts))
        return
    failed = f", {len(state.failed)} failed windows" if state.failed else ""
    console.print(f"Status {state.status}; {len(state.open_alerts)} open alerts{failed}.")
    console.print(_windows(records))
    if state.open_alerts:
        console.print(_alerts(state.open_alerts))
    if state.failed:
        say(say_failed(state.failed))


def _windows(records: Sequence[WindowRecord]) -> Any:
    titles = ("window", "from", "to (UTC)", "status", "labels", "coverage", "HUC", "UC", "alert")
    rows = []
    for record in records:
        row = _row(record)
        revision = f" r{record.revision}" if record.revision else ""
        rows.append(
            (
                f"{record.ordinal}{revision}",
                f"{record.start:%Y-%m-%d %H:%M}",
                f"{record.end:%Y-%m-%d %H:%M}",
                record.status,
                f"{record.n_labelled:,}",
                f"{record.coverage:.0%}",
                _number(row["huc"]),
                _number(row["uc"]),
                record.level or "",
            )
        )
    return make_table(titles, (), [(row, False) for row in rows])


def _alerts(alerts: Sequence[AlertState]) -> Any:
    who = ("level", "branch", "subgroup", "utility")
    titles = (*who, "opened in", "moment then", "newest", "moment now", "tolerance", "windows")
    rows = [
        (
            str(alert.level),
            alert.node,
            alert.subgroup,
            alert.utility,
            f"{alert.first_ordinal} ({alert.first_seen:%Y-%m-%d %H:%M})",
            "" if alert.opened_moment is None else f"{alert.opened_moment:+.4f}",
            str(alert.last_ordinal),
            f"{alert.moment:+.4f}",
            f"{alert.tolerance:.4g}",
            str(alert.n_windows),
        )
        for alert in alerts
    ]
    return make_table(titles, (), [(row, False) for row in rows])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
