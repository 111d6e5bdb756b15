"""Acting on alerts: acknowledge, annotate, mute, dismiss; each is one change of the state.

The state is read, changed and saved under the lock that a check holds, so that neither loses what
the other wrote.
"""

from __future__ import annotations

import dataclasses
import getpass
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from huc_monitor._common.safe_text import line
from huc_monitor._common.times import get_zone, to_utc
from huc_monitor.errors import InvalidInputError, UnknownNameError, nearest
from huc_monitor.monitor._lock import default_path, hold
from huc_monitor.monitor._state import MonitorState, open_state
from huc_monitor.monitor.muting import Maintenance, Quiet
from huc_monitor.monitor.people import Action, Mute, check_scope, covers, parse_until, say_scope
from huc_monitor.monitor.windows import Window
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility

if TYPE_CHECKING:
    from huc_monitor.monitor.ports.tracker import Tracker
    from huc_monitor.monitor.records import AlertState

WAIT: Final = 10.0
_MOST_ACTIONS = 50
_MOST_NAMES = 8
_LONGEST_NAME, _LONGEST_TEXT = 100, 1_000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertActions:
    """What people do about the alerts of one monitor.

    ``branch``, ``subgroup`` and ``utility`` say which alerts; a name left out stands for any. `by`
    is who acts, the user's name when left out; `wait` is how many seconds a running check is waited
    for.

    Parameters
    ----------
    tracker : Tracker
    identity : str
    tree : LabelTree
    utilities : sequence of Utility
    zone : str, default "UTC"
        In which dates and weekdays are read, and times are told.
    file : str, optional
        Name of the configuration file.
    maintenance : sequence of Maintenance, optional
        That of the configuration.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> from huc_monitor.monitor.ports import MemoryTracker
    >>> tree = hm.LabelTree.from_nested({"billing": ["refund", "charge"], "other": None})
    >>> given = {"tree": tree, "utilities": [hm.TopK(1)]}
    >>> actions = AlertActions(tracker=MemoryTracker(), identity="5f", **given)
    >>> print(actions.mute(until="3d", branch="billing", by="ann", now="2026-11-17T18:00Z"))
    branch billing by ann until 2026-11-20 18:00 UTC
    >>> len(actions.mutes(now="2026-11-18T00:00Z")), len(actions.mutes(now="2026-11-21T00:00Z"))
    (1, 0)
    """

    tracker: Tracker
    identity: str
    tree: LabelTree
    utilities: Sequence[Utility]
    zone: str = "UTC"
    file: str | None = None
    maintenance: Sequence[Maintenance] = ()

    def ack(
        self, *, by: str | None = None, text: str = "", wait: float = WAIT, **which: Any
    ) -> tuple[AlertState, ...]:
        """Say that a person has seen open alerts: they are not repeated unless they become worse.

        Parameters
        ----------
        by, text : str, optional
            Who acts, and what the person says.
        wait : float, default 10
            Seconds to wait for a running check.
        **which
            ``branch``, ``subgroup``, ``utility``; and ``now``, the time of acting.

        Returns
        -------
        tuple of AlertState
            Those that were open and are meant, with the action.
        """
        return self._annotate("ack", by, text, wait, **which)

    def note(
        self, *, text: str, by: str | None = None, wait: float = WAIT, **which: Any
    ) -> tuple[AlertState, ...]:
        """Keep a sentence with open alerts; arguments as of `ack`."""
        if not text.strip():
            msg = "`text` must say something; got an empty text."
            raise InvalidInputError(msg)
        return self._annotate("note", by, text, wait, **which)

    def mute(
        self,
        *,
        until: str | datetime,
        branch: str | None = None,
        subgroup: str | None = None,
        utility: str | None = None,
        by: str | None = None,
        text: str = "",
        now: datetime | str | None = None,
        wait: float = WAIT,
    ) -> Mute:
        """Tell nobody of some alerts until a time; then tell of those that are still there.

        Parameters
        ----------
        until : str or datetime
            A date, a time, a weekday ("friday", its first moment) or a length of time ("3d").
        """
        moment, scope = _now(now), (branch, subgroup, utility)
        self._check_names(*scope)
        end = parse_until(until, moment, get_zone(self.zone))
        who, said = _who(by), _bounded(text, _LONGEST_TEXT)
        told: dict[str, Any] = {"by": who, "text": said, "time_zone": self.zone}
        names = {"branch": branch, "subgroup": subgroup, "utility": utility}
        mute = Mute(until=end, at=moment, **told | names)
        action = Action(kind="mute", at=moment, until=end, **told)

        def change(state: MonitorState) -> Mute:
            others = [one for one in state.mutes if one.scope != scope and one.until > moment]
            state.mutes = [*others, mute]
            _apply(state, scope, action, muted=mute.words)
            return mute

        return self._edit(change, wait)

    def unmute(
        self,
        *,
        branch: str | None = None,
        subgroup: str | None = None,
        utility: str | None = None,
        by: str | None = None,
        now: datetime | str | None = None,
        wait: float = WAIT,
    ) -> tuple[Mute, ...]:
        """End mutes before their time; without a name, all of them.

        What another mute or maintenance covers as well stays muted.
        """
        moment, scope = _now(now), (branch, subgroup, utility)
        action = Action(kind="unmute", at=moment, by=_who(by), time_zone=self.zone)

        def change(state: MonitorState) -> tuple[Mute, ...]:
            ended = tuple(one for one in state.mutes if covers(scope, one.scope))
            if not ended:
                known = "; ".join(str(one) for one in state.mutes) or "none"
                msg = f"No mute is about {say_scope(*scope)}. In force: {known}."
                raise UnknownNameError(msg)
            state.mutes = [one for one in state.mutes if one not in ended]
            quiet = Quiet(state.mutes, self.maintenance, get_zone(self.zone), moment)
            last = state.last
            newest = (moment, moment) if last is None else (last.start, last.end)
            for one in ended:
                for alert in _apply(state, one.scope, action):
                    node, subgroup, utility = alert.node, alert.subgroup, alert.utility
                    words = quiet.why(*newest, branch=node, subgroup=subgroup, utility=utility)
                    state.alerts[alert.candidate] = dataclasses.replace(alert, muted=words)
            return ended

        return self._edit(change, wait)

    def mutes(self, now: datetime | str | None = None) -> tuple[Mute, ...]:
        """Return the mutes that are in force."""
        moment = _now(now)
        return tuple(one for one in self._load().mutes if one.until > moment)

    @property
    def status(self) -> str:
        """Where the monitor stands: "critical", "failed", "warning" or "ok"."""
        return self._load().status

    def dismiss(self, window: str | int, *, wait: float = WAIT) -> Window:
        """Accept that a failed window, given by its number or id, stays without an audit."""
        return self._edit(lambda state: state.dismiss(str(window)), wait)

    def _annotate(
        self,
        kind: Any,
        by: str | None,
        text: str,
        wait: float,
        *,
        branch: str | None = None,
        subgroup: str | None = None,
        utility: str | None = None,
        now: datetime | str | None = None,
    ) -> tuple[AlertState, ...]:
        scope = (branch, subgroup, utility)
        said = _bounded(text, _LONGEST_TEXT)
        action = Action(kind=kind, at=_now(now), by=_who(by), text=said, time_zone=self.zone)

        def change(state: MonitorState) -> tuple[AlertState, ...]:
            found = _apply(state, scope, action)
            if not found:
                raise UnknownNameError(_say_no_alert(state.open_alerts, scope))
            return found

        return self._edit(change, wait)

    def _check_names(self, branch: str | None, subgroup: str | None, utility: str | None) -> None:
        known = self._load().subgroups
        groups = None if known is None else ["all", *(item["name"] for item in known["subgroups"])]
        utilities = [item.name for item in self.utilities]
        check_scope((branch, subgroup, utility), (self.tree.branches, groups, utilities))

    def _load(self) -> MonitorState:
        return open_state(self.tracker, self.identity, self.tree, self.utilities, self.file)

    def _edit(self, change: Callable[[MonitorState], _T], wait: float) -> _T:
        lock = self.tracker.lock_path or default_path(self.identity)
        with hold(lock, wait=wait):
            state = self._load()
            done = change(state)
            self.tracker.save_state(state.to_dict())
            if state.published is not None:
                self.tracker.set_alert_status(state.status, state.open_alerts)
            if state.published not in {None, state.status}:
                state.published = state.status
                self.tracker.save_state(state.to_dict())
        return done


def _apply(
    state: MonitorState, scope: tuple[str | None, ...], action: Action, **changes: Any
) -> tuple[AlertState, ...]:
    """Keep an action with every open alert that is meant."""
    found = []
    for alert in state.open_alerts:
        if covers(scope, (alert.node, alert.subgroup, alert.utility)):
            done = dataclasses.replace(action, level=alert.level)
            actions = (*alert.actions, done)[-_MOST_ACTIONS:]
            state.alerts[alert.candidate] = dataclasses.replace(alert, actions=actions, **changes)
            found.append(state.alerts[alert.candidate])
    return tuple(found)


def _say_no_alert(
    alerts: Sequence[AlertState], scope: tuple[str | None, str | None, str | None]
) -> str:
    """Say that no open alert has a given branch, subgroup or utility, and which ones there are."""
    said = [f"No open alert is about {say_scope(*scope)}."]
    left = [(alert.node, alert.subgroup, alert.utility) for alert in alerts]
    for place, kind in enumerate(("branches", "subgroups", "utilities")):
        wanted, known = scope[place], list(dict.fromkeys(names[place] for names in left))
        left = [names for names in left if wanted in {None, names[place]}]
        if not left:
            more = [f"{len(known) - _MOST_NAMES} more"] if len(known) > _MOST_NAMES else []
            said.append(
                f"Open alerts on {kind}: {', '.join([*known[:_MOST_NAMES], *more]) or 'none'}."
            )
            said += filter(None, [nearest(str(wanted), known)])
            break
    return " ".join(said)


def _now(now: datetime | str | None) -> datetime:
    return datetime.now(UTC) if now is None else to_utc(now, argument="now")


def _who(by: str | None) -> str:
    if by is None:
        try:
            by = getpass.getuser()
        except (OSError, KeyError, ImportError):  # a container may know no names
            by = "unknown"
    return _bounded(by, _LONGEST_NAME) or "unknown"


def _bounded(text: str, longest: int) -> str:
    shown = line(text)
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."
