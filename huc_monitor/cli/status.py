"""``huc-monitor status``: what the monitor has found so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from huc_monitor._common.safe_text import chat, chat_line
from huc_monitor.cli import options
from huc_monitor.cli.check import ALERT, ERROR, exit_code, say_failed, say_forecasts
from huc_monitor.cli.reading import opened
from huc_monitor.cli.showing import STYLES, make_console, print_json, print_table, say, tell
from huc_monitor.errors import HUCError

if TYPE_CHECKING:
    from rich.console import Console

    from huc_monitor.config import Config
    from huc_monitor.monitor import MonitorState
    from huc_monitor.monitor.ports import Tracker
    from huc_monitor.monitor.records import AlertState, WindowRecord
    from huc_monitor.recalibration.shadow import ShadowTrial
    from huc_monitor.utilities import Utility

_MOST_SHOWN = 5
_ORDER = ("error", "critical", "failed", "warning", "ok")


def run(
    *,
    config: Annotated[
        list[str], typer.Option(help="The configuration file, or a pattern; repeatable.")
    ] = ["huc.yaml"],  # noqa: B006 - typer reads it
    last: Annotated[int, typer.Option(min=1, help="Number of records in the table.")] = 10,
    fail_on: options.FailAt = "critical",
    as_json: options.Json = False,
) -> None:
    """Show the newest windows and all open alerts; reads no predictions.

    Of several configuration files it shows a line each. Exit code, as of check: 1 an alert is open
    that is not muted, 2 a window could not be audited.

    Example: huc-monitor status --config 'fleet/*/huc.yaml'
    """
    configs = options.find_configs(config)
    if len(configs) > 1:
        raise typer.Exit(_show_fleet(configs, last, fail_on, as_json=as_json))
    state, records, trial, settings = _read(configs[0], last, as_json=as_json, alone=True)
    if as_json:
        shadow = None if trial is None else trial.to_dict()
        print_json({**_document(state, records), "shadow": shadow})
    else:
        zone = settings.windows.time_zone
        _show(state, records, settings.utilities, zone)
        for text in say_forecasts(records, state.forecast_scores, zone, state.model_version):
            tell(text)
        if trial is not None:
            say(f"On trial: {trial}.")
    raise typer.Exit(_exit_code(state, fail_on))


def _exit_code(state: MonitorState, fail_on: options.FailOn) -> int:
    return exit_code(state.open_alerts, state.failed, fail_on, state.silences)


def _read(
    config: Path, last: int, *, as_json: bool = False, alone: bool = False
) -> tuple[MonitorState, list[WindowRecord], ShadowTrial | None, Config]:
    """Read where one monitor stands; alone, also how a trial does, and windows in any case."""
    from huc_monitor.monitor import open_state
    from huc_monitor.monitor.ports.stored import DamagedError

    with opened(config) as (settings, tracker):
        records = _without_superseded(tracker.records(last))[-last:]
        try:
            given = settings.identity, settings.tree, settings.utilities, settings.document.name
            state = open_state(tracker, *given)
        except DamagedError:
            if alone:
                _show_records(records, settings.windows.time_zone, as_json=as_json)
            raise
        trial = _trial(settings, tracker) if alone else None
        return state, records, trial, settings


def _show_records(records: Sequence[WindowRecord], zone: str, *, as_json: bool) -> None:
    """Show windows where the state cannot be read; the error itself comes after them."""
    if as_json:
        print_json({"status": "damaged", "windows": [_row(record) for record in records]})
    else:
        _print_windows(make_console(), records, zone)


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


def _document(state: MonitorState, records: Sequence[WindowRecord]) -> dict[str, Any]:
    return {
        "status": state.status,
        "identity": state.identity,
        "model_version": state.model_version,
        "last_window": None if state.last is None else state.last.to_dict(),
        "notes": list(state.notes),
        "alerts": [alert.to_dict() for alert in state.open_alerts],
        "mutes": [mute.to_dict() for mute in state.mutes],
        "windows": [_row(record) for record in records],
        "n_unsent": len(state.messages),
        "failed": [window.to_dict() for window in state.failed],
        "silences": {name: since.isoformat() for name, since in state.silences.items()},
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
        "n_usable": record.n_usable,
        "coverage": record.coverage,
        "huc": audit.get("huc"),
        "huc_lower": audit.get("huc_lower"),
        "uc": audit.get("uc"),
        "detector": None if record.detector is None else record.detector["value"],
        "level": record.level,
        "forecasts": [item.to_dict() for item in record.forecasts],
    }


def _show(
    state: MonitorState, records: Sequence[WindowRecord], utilities: Sequence[Utility], zone: str
) -> None:
    from rich.text import Text

    from huc_monitor.monitor.silence import say_silences

    console, alerts = make_console(), state.open_alerts
    muted = sum(alert.muted is not None for alert in alerts)
    counted = " (muted alerts do not count)" if muted else ""
    parts = [f"Status {state.status}{counted}; {_count(alerts)}"]
    parts += [f"{muted} of them muted"] * bool(muted)
    parts += [f"{len(state.failed)} failed windows"] * bool(state.failed)
    if not records:
        for note in state.notes:
            say(note)
        say(state.waiting or "No window was checked yet. Run: huc-monitor check")
    if records or alerts:
        console.print(Text(", ".join(parts) + ".", style=STYLES[state.status]))
    if records:
        _print_windows(console, records, zone)
    for text in _say_alerts(alerts, utilities, zone):
        tell(text)
    if state.silences:
        tell("\n".join(["WARNING", *say_silences(state.silences, zone)]))
    for mute in state.mutes:
        if not any(alert.muted == mute.words for alert in alerts):
            say(f"Muted: {mute}.")
    if records and state.failed:
        say(say_failed(state.failed, zone))


def _print_windows(console: Console, records: Sequence[WindowRecord], zone: str) -> None:
    from huc_monitor._common.times import say_time

    names = ("window", "from", "status")
    numbers = ("labels", "coverage", "HUC", "UC", "alert")
    rows = []
    for record in records:
        row = _row(record)
        revision = f" r{record.revision}" if record.revision else ""
        counted = record.status != "pending"  # labels are counted when they are due
        cells = (
            f"{record.ordinal}{revision}",
            say_time(record.start, zone),
            record.status,
            f"{record.n_usable:,}" if counted else "",
            f"{record.coverage:.0%}" if counted else "",
            _number(row["huc"]),
            _number(row["uc"]),
            record.level or "",
        )
        rows.append((cells, STYLES.get(record.level or "", "")))
    print_table(console, names, numbers, rows)


def _say_alerts(
    alerts: Sequence[AlertState], utilities: Sequence[Utility] = (), zone: str = "UTC"
) -> list[str]:
    """Say branch by branch what is open, the worst first, muted ones last."""
    from huc_monitor._common.times import say_time
    from huc_monitor.monitor.describing import say_open
    from huc_monitor.monitor.people import say_people_of

    known = {utility.name: utility for utility in utilities}
    branches: dict[str, list[AlertState]] = {}
    for alert in sorted(
        alerts, key=lambda one: (one.muted is not None, one.level != "critical", -abs(one.moment))
    ):
        branches.setdefault(alert.node, []).append(alert)
    out = []
    for node, found in branches.items():
        level = str(found[0].level)
        first = min(found, key=lambda alert: alert.first_ordinal)
        since = f"since window {first.first_ordinal} ({say_time(first.first_seen, zone)})"
        head = level.upper() if found[0].muted is None else f"MUTED ({level})"
        lines = [head, f"Branch *{chat(node)}*, {since}:"]
        for alert in found[:_MOST_SHOWN]:
            first_moment, moment, tolerance = say_open(alert, known.get(alert.utility))
            then = f", {first_moment} at first" if first_moment else ""
            n = "1 window" if alert.n_windows == 1 else f"{alert.n_windows} windows"
            why = f"tolerance {tolerance}"
            if "changed" in alert.reasons and abs(alert.moment) <= alert.tolerance:
                why = "changed since the reference"
            eased = "" if alert.level == level else f" ({alert.level})"
            lines.append(
                f"  - {chat(alert.subgroup)}, utility {chat(alert.utility)}{eased}: "
                f"{moment} in window {alert.last_ordinal}{then}; {why}, "
                f"{n}"
            )
        if len(found) > _MOST_SHOWN:
            lines.append(f"  - and {len(found) - _MOST_SHOWN} more")
        lines += [f"  - {chat_line(text)}" for text in say_people_of(found)]
        out.append("\n".join(lines))
    return out


def _count(alerts: Sequence[AlertState]) -> str:
    n, branches = len(alerts), len({alert.node for alert in alerts})
    where = f" on {branches} branch{'es' * (branches != 1)}" if n > 1 else ""
    return f"{n} open alert{'s' * (n != 1)}{where}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


# Several monitors.


def _show_fleet(
    configs: Sequence[Path], last: int, fail_on: options.FailOn, *, as_json: bool
) -> int:
    """Show a line for every monitor; one that cannot be read does not hide the others."""
    from huc_monitor._common.times import say_time

    documents, codes, newest = [], [], {}
    for config in configs:
        try:
            state, records, _, settings = _read(config, last if as_json else 1)
        except HUCError as error:
            documents.append({"config": str(config), "status": "error", "error": str(error)})
            codes.append(ERROR)
            continue
        documents.append({"config": str(config), **_document(state, records)})
        codes.append(_exit_code(state, fail_on))
        for record in records[-1:]:
            newest[str(config)] = say_time(record.start, settings.windows.time_zone)
    if as_json:
        print_json({"monitors": documents})
    else:
        _print_fleet(documents, newest)
    return ALERT if ALERT in codes else max(codes)


def _print_fleet(documents: Sequence[Mapping[str, Any]], starts: Mapping[str, str]) -> None:
    rows, wrong = [], []
    for item in sorted(documents, key=lambda item: _ORDER.index(item["status"])):
        name = item["config"]
        if "error" in item:
            wrong.append(f"{name}: {item['error']}")
            rows.append(((name, "error", *[""] * 5), STYLES["failed"]))
            continue
        newest = item["windows"][-1] if item["windows"] else {}
        muted = sum("muted" in alert for alert in item["alerts"])
        new = item["last_window"] is None and item["status"] == "ok"  # nothing was found fine yet
        cells = (
            name,
            "not checked" if new else item["status"],
            str(len(item["alerts"])),
            str(muted),
            starts.get(name, "never")[:10],
            "" if newest.get("status") == "pending" else f"{newest.get('n_usable', 0):,}",
            _number(newest.get("huc")),
        )
        rows.append((cells, STYLES[item["status"]]))
    titles = ("status", "alerts", "muted", "newest", "labels", "HUC")
    print_table(make_console(), ("monitor",), titles, rows)
    for text in wrong:
        say(text)
