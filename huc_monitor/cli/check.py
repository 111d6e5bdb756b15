"""``huc-monitor check``: audit every window that is due, once."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from huc_monitor._common.safe_text import line
from huc_monitor.cli import options
from huc_monitor.cli.logs import start_logging
from huc_monitor.cli.showing import print_json, say, tell

if TYPE_CHECKING:
    from huc_monitor.config import Config
    from huc_monitor.monitor import CheckResult
    from huc_monitor.monitor.forecasting import ForecastScore
    from huc_monitor.monitor.records import AlertState, WindowRecord
    from huc_monitor.monitor.windows import Window

FINE, ALERT, ERROR = 0, 1, 2


def run(
    *,
    config: options.ConfigFile = Path("huc.yaml"),
    now: Annotated[
        str | None, typer.Option(help="Look as if it were this time: 2024-03-31T06:00.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Skip windows that start before, for good.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Leave windows that end later for the next time.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Save nothing; say what changed settings will do.")
    ] = False,
    fail_on: options.FailAt = "critical",
    wait: Annotated[
        str, typer.Option(help="How long to wait for another check to finish: 30s, 10m.")
    ] = "0s",
    as_json: options.Json = False,
    log_format: options.LogForm = None,
) -> None:
    """Audit the windows whose labels have matured, and say what changed.

    Without a terminal, as in cron, it prints only what there is to tell. Exit code 1: a critical
    alert is open; 2: something is wrong with the configuration or with the data of a window. What
    was wrong in the reference already is a note and a warning, where change.alerts is change.

    Example: huc-monitor check --config huc.yaml --fail-on warning
    """
    from huc_monitor._common.times import Span
    from huc_monitor.config import load_config
    from huc_monitor.config.opening import open_monitor

    start_logging(log_format)
    settings = load_config(config)
    times = {
        name: read_time(settings, name, text) for name, text in (("since", since), ("until", until))
    }
    monitor = open_monitor(settings)
    with contextlib.closing(monitor.tracker), progress_bar(quiet=as_json) as progress:
        result = monitor.check(
            read_time(settings, "now", now),
            dry_run=dry_run,
            wait=Span.parse(wait, argument="wait").nominal.total_seconds(),
            progress=progress,
            **times,
        )
    code = exit_code(result.alerts, result.failed, fail_on, result.silences)
    if as_json:
        print_json(as_document(result))
    else:
        show(result, always=dry_run)
    raise typer.Exit(code)


def read_time(config: Config, name: str, text: str | None) -> datetime | None:
    """Read a time that an option gives, in the zone of the windows; None where it is left out."""
    from huc_monitor._common.times import get_zone, to_utc

    if text is None:
        return None
    return to_utc(text, argument=name, zone=get_zone(config.settings.windows.time_zone))


def exit_code(
    alerts: Sequence[AlertState],
    failed: Sequence[Window],
    fail_on: options.FailOn,
    silences: Mapping[str, datetime],
) -> int:
    """1 for an open alert, 2 for a window that could not be audited, else 0.

    Rows or labels that do not come any more count as a warning.
    """
    failing = {"warning": {"warning", "critical"}, "critical": {"critical"}, "never": set[str]()}
    levels = {alert.level for alert in alerts if alert.muted is None}
    if failing[fail_on] & (levels | ({"warning"} if silences else set())):
        return ALERT
    return ERROR if failed and fail_on != "never" else FINE


def as_document(result: CheckResult) -> dict[str, Any]:
    """Everything a check found, as JSON-safe data."""
    return {
        "status": result.status,
        "message": None if result.message is None else result.message.to_dict(),
        "alerts": [alert.to_dict() for alert in result.alerts],
        "records": [record.to_dict() for record in result.records],
        "n_unsent": result.n_unsent,
        "failed": [window.to_dict() for window in result.failed],
        "preview": list(result.preview),
        "silences": {name: since.isoformat() for name, since in result.silences.items()},
    }


def show(result: CheckResult, *, always: bool = False) -> None:
    """Print the message; on a terminal, or `always`, also what was done without one."""
    for text in result.preview:
        say(text)
    if always or sys.stdout.isatty() or result.message is not None:
        typer.echo(f"Status {result.status}; {say_windows(result.records)}.")
    if result.message is not None:
        tell(f"\n{result.message.text}")
    elif result.waiting is not None and (always or sys.stdout.isatty()):
        say(result.waiting)
    if sys.stdout.isatty() or result.message is not None:
        for text in say_forecasts(result.records, result.forecast_scores, result.zone):
            tell(text)
        new = [record for record in result.records if not record.revision]
        aside = sum(record.n_quarantined for record in new)
        if aside:
            reasons = sorted({reason for record in new for reason in record.quarantine})
            n = f"{aside:,} row{'s' * (aside != 1)} of the new windows"
            say(
                f"{n} cannot be used and {'were' if aside != 1 else 'was'} set aside: "
                f"{'; '.join(reasons)}."
            )
    if result.failed:
        say(say_failed(result.failed, result.zone))
    if result.n_unsent:
        typer.echo(f"{result.n_unsent} messages could not be sent and are kept.", err=True)


def say_windows(records: Sequence[WindowRecord]) -> str:
    """Count the windows that a check dealt with; those audited again apart from the new ones."""
    counts = Counter(record.status for record in records if not record.revision)
    n, done = counts.total(), ", ".join(f"{n} {status}" for status, n in counts.items())
    new = f"{n} new window{'s' * (n != 1)}: {done}" if n else "no new window"
    revised = len({record.ordinal for record in records if record.revision})
    return f"{new}; {revised} revised" if revised else new


def say_forecasts(
    records: Sequence[WindowRecord],
    scores: Mapping[str, ForecastScore],
    zone: str = "UTC",
    audited: str | None = None,
) -> list[str]:
    """Say every forecast without labels, newest first, what it assumes, and how past ones did."""
    from huc_monitor.monitor.forecasting import (
        ASSUMPTION,
        say_forecast,
        say_score,
        say_versions,
        say_waiting_window,
        waiting,
    )

    found = []
    for record in waiting(records):
        for item in record.forecasts:
            found.append(f"{say_waiting_window(record, zone)}: {say_forecast(item)}")
            if (
                item.outside >= 0.001 and item.audited_version is None
            ):  # less would be told as 0.0 %
                found[-1] += f"; {item.outside:.1%} of its rows lie outside all audited ranges"
    if not found:
        return []
    level = next(item.confidence_level for r in waiting(records) for item in r.forecasts)
    head = f"Forecast of windows without labels ({level:.4g} confidence each, {ASSUMPTION}):"
    score, versions = say_score(scores), say_versions(records, audited)
    return [*([versions] if versions else []), head, *found, *([f"{score}."] if score else [])]


def say_failed(windows: Sequence[Window], zone: str) -> str:
    """Say which windows stand as failed, and what a person can do."""
    from huc_monitor._common.times import say_time

    shown = ", ".join(f"{one.ordinal} ({say_time(one.start, zone)})" for one in windows[:5])
    rest = f" and {len(windows) - 5} more" if len(windows) > 5 else ""
    return (
        f"Windows that could not be audited: {shown}{rest}. Correct their data, which the next "
        f"check reads again, or dismiss one: huc-monitor ack {windows[0].ordinal}"
    )


@contextlib.contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[int, int, str], None] | None]:
    """Show windows on standard error while they are audited, on a terminal only."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    with bar:
        task = bar.add_task("windows", total=None)

        def progress(done: int, total: int, text: str) -> None:
            # When all windows are done, the text is a stage of what follows from them.
            shown = text if done == total else f"window {text}"
            bar.update(task, completed=done, total=total, description=escape(line(shown)))

        yield progress
