"""Carry out what a form on a page asks for, with the actions that the commands use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from huc_monitor.errors import UnknownNameError
from huc_monitor.monitor import MonitorState
from huc_monitor.monitor.ports import RecalibrationHost
from huc_monitor.reporting.ui._fleet import Seat
from huc_monitor.reporting.ui._pages import name_key


def act(seat: Seat, verb: str, form: Mapping[str, str], by: str) -> None:
    """Do what a form asks for.

    Raises
    ------
    UnknownNameError
        If it names nothing that is there (any more).
    """
    if verb not in _VERBS:
        msg = f"`action` must be one of {', '.join(_VERBS)}."
        raise UnknownNameError(msg)
    with seat.lock:
        _VERBS[verb](seat, form, by)


def _ack(seat: Seat, form: Mapping[str, str], by: str) -> None:
    seat.watched.actions.ack(by=by, text=form.get("text", ""), **_which(seat, form))


def _note(seat: Seat, form: Mapping[str, str], by: str) -> None:
    seat.watched.actions.note(by=by, text=form.get("text", ""), **_which(seat, form))


def _mute(seat: Seat, form: Mapping[str, str], by: str) -> None:
    until, text = form.get("until", ""), form.get("text", "")
    seat.watched.actions.mute(by=by, until=until, text=text, **_which(seat, form))


def _unmute(seat: Seat, form: Mapping[str, str], by: str) -> None:
    mutes = {str(one): one for one in seat.state().mutes}
    one = mutes[_named("mute", form.get("mute", ""), mutes)]
    actions = seat.watched.actions
    actions.unmute(by=by, branch=one.branch, subgroup=one.subgroup, utility=one.utility)


def _dismiss(seat: Seat, form: Mapping[str, str], by: str) -> None:  # noqa: ARG001 - no name is kept
    seat.watched.actions.dismiss(form.get("window", ""))


def _promote(seat: Seat, form: Mapping[str, str], by: str) -> None:  # noqa: ARG001 - the registry knows no names
    _host(seat).promote(form.get("version") or None)


def _rollback(seat: Seat, form: Mapping[str, str], by: str) -> None:  # noqa: ARG001
    _host(seat).rollback()


_VERBS: dict[str, Callable[[Seat, Mapping[str, str], str], None]] = {
    "ack": _ack,
    "note": _note,
    "mute": _mute,
    "unmute": _unmute,
    "dismiss": _dismiss,
    "promote": _promote,
    "rollback": _rollback,
}


def _host(seat: Seat) -> RecalibrationHost:
    host = seat.watched.host()
    if host is None:
        msg = "The tracker of this monitor keeps no versions; `tracker: mlflow` does."
        raise UnknownNameError(msg)
    return host


def _which(seat: Seat, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the alerts that a form means: a branch, and maybe one of its subgroups."""
    state: MonitorState = seat.state()
    branch = _named("branch", form.get("branch", ""), seat.watched.tree.branches)
    subgroup = None
    if form.get("subgroup"):
        open_for = [alert.subgroup for alert in state.open_alerts if alert.node == branch]
        subgroup = _named("subgroup", form["subgroup"], open_for)
    return {"branch": branch, "subgroup": subgroup}


def _named(kind: str, key: str, names: Iterable[str]) -> str:
    found = next((name for name in names if name_key(name) == key), None)
    if found is None:
        msg = f"`{kind}` is not there any more. Load the page again."
        raise UnknownNameError(msg)
    return found
