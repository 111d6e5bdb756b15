"""``huc-monitor prune``, ``backup``, ``restore`` and ``migrate``: records and state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from huc_monitor.cli import options
from huc_monitor.cli.reading import opened
from huc_monitor.cli.showing import say
from huc_monitor.errors import InvalidInputError

if TYPE_CHECKING:
    from huc_monitor.config import Config
    from huc_monitor.monitor.keeping import Keeper
    from huc_monitor.monitor.ports import Tracker

Replace = Annotated[bool, typer.Option("--replace", help="Give up the state that is there.")]
_DAYS_PER_YEAR = 365


def prune(
    *,
    keep: Annotated[str, typer.Option(help="Windows younger than this stay whole: 1y, 90d.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    config: options.ConfigFile = Path("huc.yaml"),
) -> None:
    """Keep of old windows only what trends and alerts need: no pages, curves and causes.

    Trends, open alerts, and all windows since the oldest open alert stay as they are.

    Example: huc-monitor prune --keep 1y
    """
    before = datetime.now(UTC) - _span(keep)
    with opened(config) as (given, tracker):
        done = _keeper_of(given, tracker).prune(before, dry_run=dry_run)
        before = before.astimezone(given.windows.zone)
    would = "would be " if dry_run else ""
    freed = "" if dry_run else f" Freed {done.n_bytes / 1e6:.1f} MB."
    held = f" {done.n_held:,} stay whole: an alert is open since then." if done.n_held else ""
    say(
        f"Windows that ended before {before:%Y-%m-%d}: {done.n_thinned:,} records {would}made "
        f"thinner, {done.n_removed:,} {would}removed.{held}{freed}"
    )


def backup(
    out: Annotated[Path, typer.Argument(help="The archive to write: backup.tar.gz.")],
    *,
    config: options.ConfigFile = Path("huc.yaml"),
) -> None:
    """Write state, records and their files to one archive, whichever tracker keeps them.

    Example: huc-monitor backup triage.tar.gz
    """
    with _keeper(config) as keeper:
        n = keeper.backup(out)
    say(f"Wrote {out} ({n:,} records, {out.stat().st_size / 1e6:.1f} MB).")


def restore(
    archive: Annotated[Path, typer.Argument(help="What `huc-monitor backup` wrote.")],
    *,
    replace: Replace = False,
    config: options.ConfigFile = Path("huc.yaml"),
) -> None:
    """Bring a backup back, into the tracker that the configuration names.

    Example: huc-monitor restore triage.tar.gz
    """
    with _keeper(config) as keeper:
        done = keeper.restore(archive, replace=replace)
    others = {"were removed": done.n_removed, "remain in the tracker": done.n_left}
    said = [f" {n:,} that the backup does not have {what}." for what, n in others.items() if n]
    say(
        f"Restored {done.n_records:,} records and the state.{''.join(said)} See: huc-monitor status"
    )


def migrate(
    *,
    to: Annotated[
        Path | None,
        typer.Option(help="Configuration with the other tracker; the same one if left out."),
    ] = None,
    replace: Replace = False,
    config: options.ConfigFile = Path("huc.yaml"),
) -> None:
    """Move records and state to another tracker, or rewrite them in the present format.

    What was there stays where it is. Nothing is recomputed.

    Example: huc-monitor migrate --config files.yaml --to mlflow.yaml
    """
    with _keeper(config) as keeper:
        if to is None:
            n = keeper.copy_to(keeper)
        else:
            with _keeper(to) as target:
                n = keeper.copy_to(target, replace=replace)
    say(f"Wrote {n:,} records and the state{'' if to is None else f' for {to}'}.")


@contextlib.contextmanager
def _keeper(config: Path) -> Iterator[Keeper]:
    with opened(config) as (given, tracker):
        yield _keeper_of(given, tracker)


def _keeper_of(given: Config, tracker: Tracker) -> Keeper:
    from huc_monitor.monitor.keeping import Keeper

    return Keeper(tracker=tracker, identity=given.identity, name=given.settings.model.name)


def _span(text: str) -> timedelta:
    from huc_monitor._common.times import Span

    years = text.strip().removesuffix("y")
    if text.strip().endswith("y") and years.isdigit():
        return Span(int(years) * _DAYS_PER_YEAR, "d").nominal
    try:
        return Span.parse(text, argument="keep").nominal
    except InvalidInputError:
        msg = f"`keep` must be a length of time; got {text!r:.40}. Write 1y, 90d or 26w."
        raise InvalidInputError(msg) from None
