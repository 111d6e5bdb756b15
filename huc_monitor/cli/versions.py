"""``huc-monitor recalibrate``, ``promote`` and ``rollback``: versions of the watched model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from huc_monitor._common.stages import listening
from huc_monitor.cli import options
from huc_monitor.cli.check import progress_bar, read_time
from huc_monitor.cli.logs import start_logging
from huc_monitor.cli.reading import opened
from huc_monitor.cli.showing import print_json, say

if TYPE_CHECKING:
    from huc_monitor.config import Config
    from huc_monitor.monitor.ports import Move, RecalibrationHost, RecalibrationOutcome

FINE, REFUSED = 0, 1


def recalibrate(
    *,
    config: options.ConfigFile = Path("huc.yaml"),
    reason: Annotated[
        str, typer.Option(help="Why; kept with the new version.")
    ] = "asked for by a person",
    since: Annotated[
        str | None,
        typer.Option(
            help="Use labelled rows from this time on; else those since the newest critical alert, "
            "or the change behind it, began, and older ones where these are fewer than 1,000."
        ),
    ] = None,
    as_json: options.Json = False,
    log_format: options.LogForm = None,
) -> None:
    """Fit a correction of the model's probabilities and register it as the next version.

    It is fitted on labelled rows of checked windows; the newest fifth of them is held back and
    decides, once, whether the correction helps (the gate). What passes becomes challenger, and
    then champion as `recalibration.promotion` says: manual, when you promote it; gate, at once;
    shadow, after a trial beside the champion.

    Exit code 1: the gate refused it, and the reasons are printed.

    Example: huc-monitor recalibrate --reason "new price list"
    """
    from huc_monitor.monitor.ports.recalibration import say_columns

    start_logging(log_format)
    with (
        _host(config) as (host, settings),
        progress_bar(quiet=as_json) as tell,
        listening(None if tell is None else lambda stage: tell(0, 0, stage)),
    ):
        outcome = host.recalibrate(reason, read_time(settings, "since", since))
    figures = f" {outcome.summary}." if outcome.summary else ""
    if as_json:
        print_json(outcome.to_dict())
    elif outcome.version is None:
        say(f"Refused: {'; '.join(outcome.reasons).rstrip('.')}.{figures}")
        _say_rows(outcome)
    else:
        role = "champion" if outcome.promoted else "challenger"
        n = outcome.shadow_windows
        more = f" It is audited beside the champion for {n} windows first." if n else ""
        say(f"Registered version {outcome.version} as {role}.{figures}{more}")
        _say_rows(outcome)
        if outcome.columns:
            say(say_columns(outcome.columns))
        if not outcome.promoted and not n:
            say(f"Look at its card: huc-monitor ui --config {config}, or in MLflow.")
            say(f"Make it champion: huc-monitor promote --config {config}")
    raise typer.Exit(FINE if outcome.version is not None else REFUSED)


def _say_rows(outcome: RecalibrationOutcome) -> None:
    if outcome.rows:
        say(f"Fitted and judged on {outcome.rows}. Other rows: --since TIME")


def promote(
    *,
    config: options.ConfigFile = Path("huc.yaml"),
    version: Annotated[
        str | None, typer.Option(help="Version to promote; the challenger when left out.")
    ] = None,
    as_json: options.Json = False,
    log_format: options.LogForm = None,
) -> None:
    """Make the challenger, or a version of your choice, champion.

    Example: huc-monitor promote --version 2
    """
    from huc_monitor.monitor.ports.recalibration import say_columns

    start_logging(log_format)
    with _host(config) as (host, settings):
        move = host.promote(version)
    if not _show(move, as_json):
        return
    if move.columns:
        say(say_columns(move.columns))
    n = settings.settings.alerts.renewed_after
    windows = "1 window" if n == 1 else f"{n} windows in a row"
    say(f"An open alert is resolved after {windows} of version {move.version} without it.")


def rollback(
    *,
    config: options.ConfigFile = Path("huc.yaml"),
    as_json: options.Json = False,
    log_format: options.LogForm = None,
) -> None:
    """Make the version champion again that the present champion replaced.

    Example: huc-monitor rollback --config huc.yaml
    """
    start_logging(log_format)
    with _host(config) as (host, _):
        move = host.rollback()
    if not _show(move, as_json):
        return
    say(f"Alerts of version {move.version} come back where what was wrong with it still is.")
    again = f"huc-monitor promote --version {move.previous} --config {config}"
    say(f"Version {move.previous} is no challenger any more; promote it again: {again}")


@contextlib.contextmanager
def _host(path: Path) -> Iterator[tuple[RecalibrationHost, Config]]:
    """Open what the tracker's package offers for versions."""
    from huc_monitor.config.opening import open_recalibration_host
    from huc_monitor.errors import InvalidInputError

    with opened(path) as (settings, tracker):
        host = open_recalibration_host(settings, tracker)
        if host is None:
            msg = (
                f"`tracker` must keep model versions; {settings.settings.tracker.name!r} does "
                "not. Write `tracker: mlflow` into the configuration, or into a copy that takes "
                f"the history along: huc-monitor migrate --config {path} --to copy.yaml"
            )
            raise InvalidInputError(msg)
        yield host, settings


def _show(move: Move, as_json: bool) -> bool:
    """Print a move; True where there is more to say of it."""
    if as_json:
        print_json(asdict(move))
        return False
    if not move.moved:
        say(f"{move.model}: nothing to do, version {move.version} is {move.alias} already.")
        return False
    before = "" if move.previous is None else f" instead of version {move.previous}"
    say(f"{move.model}: {move.alias} is version {move.version}{before}.")
    return True
