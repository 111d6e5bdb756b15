"""``huc-monitor ack``, ``note`` and ``mute``: what a person does about alerts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from huc_monitor.cli import options
from huc_monitor.cli.showing import say
from huc_monitor.errors import InvalidInputError

if TYPE_CHECKING:
    from huc_monitor.monitor.acting import AlertActions
    from huc_monitor.monitor.records import AlertState

Branch = Annotated[str | None, typer.Option(help="The branch; any if left out.")]
Subgroup = Annotated[str | None, typer.Option(help="The subgroup; any if left out.")]
Utility = Annotated[str | None, typer.Option(help="The utility; any if left out.")]
Everything = Annotated[bool, typer.Option("--all", help="All of them, without naming any.")]
By = Annotated[str | None, typer.Option(help="Who acts; your user name if left out.")]
Said = Annotated[str, typer.Option(help="What to keep with the alerts.")]
Wait = Annotated[str, typer.Option(help="How long to wait for a running check: 30s, 10m.")]
Now = Annotated[str | None, typer.Option(help="Act as if it were this time.")]


def ack(
    window: Annotated[
        str | None, typer.Argument(help="Instead of alerts: number or id of a failed window.")
    ] = None,
    *,
    branch: Branch = None,
    subgroup: Subgroup = None,
    utility: Utility = None,
    everything: Everything = False,
    text: Said = "",
    by: By = None,
    wait: Wait = "10s",
    now: Now = None,
    config: options.ConfigFile = Path("huc.yaml"),
) -> None:
    """Say that you have seen open alerts: they are not repeated unless they become worse.

    With a number, dismiss a window that could not be audited: it is not tried again.

    Example: huc-monitor ack --branch billing --text "looking into it"
    """
    if window is not None:
        from huc_monitor._common.times import say_time

        _only(window, branch, subgroup, utility, everything=everything)
        with _open(config, wait, now) as (actions, given):
            found = actions.dismiss(window, wait=given["wait"])
            when = say_time(found.start, actions.zone)
            _tell(f"Window {found.ordinal} ({when}) stays without an audit.", actions)
        return
    names = _named(branch, subgroup, utility, everything=everything)
    with _open(config, wait, now) as (actions, given):
        alerts = actions.ack(**names, by=by, text=text, **given)
        _tell(f"Acknowledged: {_count(alerts)}", actions)


def note(
    text: Annotated[str, typer.Argument(help="What to keep with the alerts.")],
    *,
    branch: Branch = None,
    subgroup: Subgroup = None,
    utility: Utility = None,
    everything: Everything = False,
    by: By = None,
    wait: Wait = "10s",
    now: Now = None,
    config: options.ConfigFile = Path("huc.yaml"),
) -> None:
    """Keep a sentence with open alerts: messages, status, report and MLflow show it.

    Example: huc-monitor note "new fee codes since Monday" --branch billing
    """
    names = _named(branch, subgroup, utility, everything=everything)
    with _open(config, wait, now) as (actions, given):
        alerts = actions.note(**names, by=by, text=text, **given)
        _tell(f"Noted: {_count(alerts)}", actions)


def mute(
    *,
    until: Annotated[
        str,
        typer.Option(help="A date, a time, a weekday (friday), a length (3d), or now to end it."),
    ],
    branch: Branch = None,
    subgroup: Subgroup = None,
    utility: Utility = None,
    everything: Everything = False,
    text: Said = "",
    by: By = None,
    wait: Wait = "10s",
    now: Now = None,
    config: options.ConfigFile = Path("huc.yaml"),
) -> None:
    """Tell nobody of some alerts until a time; then tell of those that are still there.

    Muted alerts are recorded and counted, and do not fail a check. Other branches are told as ever.

    Example: huc-monitor mute --branch billing --until friday --text "fix is on its way"
    """
    names = _named(branch, subgroup, utility, everything=everything)
    with _open(config, wait, now) as (actions, given):
        if until.strip().lower() == "now":
            ended = actions.unmute(**names, by=by, **given)
            _tell(f"Not muted any more: {'; '.join(map(str, ended))}.", actions)
            return
        done = actions.mute(**names, until=until, by=by, text=text, **given)
        _tell(f"Muted {done}.", actions)


@contextlib.contextmanager
def _open(
    config: Path, wait: str, now: str | None
) -> Iterator[tuple[AlertActions, dict[str, Any]]]:
    from huc_monitor._common.times import Span, get_zone, to_utc
    from huc_monitor.config.opening import open_actions

    actions = open_actions(config)
    given: dict[str, Any] = {"wait": Span.parse(wait, argument="wait").nominal.total_seconds()}
    if now is not None:
        given["now"] = to_utc(now, argument="now", zone=get_zone(actions.zone))
    with contextlib.closing(actions.tracker):
        yield actions, given


def _named(
    branch: str | None, subgroup: str | None, utility: str | None, *, everything: bool
) -> dict[str, Any]:
    names = {"branch": branch, "subgroup": subgroup, "utility": utility}
    if (not any(names.values())) != everything:
        msg = "Name a --branch, --subgroup or --utility, or pass --all by itself."
        raise InvalidInputError(msg)
    return names


def _only(window: str, *names: str | None, everything: bool) -> None:
    if any(names) or everything:
        msg = f"Name either a failed window ({window!r}) or alerts, not both."
        raise InvalidInputError(msg)


def _count(alerts: tuple[AlertState, ...]) -> str:
    nodes = ", ".join(dict.fromkeys(alert.node for alert in alerts))
    return f"{len(alerts)} open alert{'s' * (len(alerts) > 1)} on {nodes}."


def _tell(done: str, actions: AlertActions) -> None:
    say(f"{done} Status {actions.status}.")
