"""Notes of a check besides its alerts; each is told once, or again after the cool-down."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

import pandas as pd

from huc_monitor._common.times import say_time
from huc_monitor.monitor.describing import still_there
from huc_monitor.monitor.findings import Finding
from huc_monitor.monitor.messages import (
    count_repeats,
    say_repeats,
    say_together,
    say_untimed,
)
from huc_monitor.monitor.muting import Quiet
from huc_monitor.monitor.newcomers import tell_newcomers
from huc_monitor.monitor.windows import Window
from huc_monitor.sources import WindowData
from huc_monitor.sources._rows import say_unknown
from huc_monitor.subgroups import Subgroups
from huc_monitor.utilities import Utility

if TYPE_CHECKING:
    from huc_monitor.monitor._monitor import Monitor
    from huc_monitor.monitor._state import MonitorState
    from huc_monitor.monitor.change import WindowChange

_REPEATS = "rows:repeated"
_TOGETHER = "together"
_UNKNOWN = "unknown labels"
_KNOWN = "unknown labels told"
_MOST_KNOWN = 50
_UNTIMED = "rows:untimed"
_REACH = "tolerance out of reach"


@dataclass(frozen=True, slots=True, eq=False)
class Telling:
    """Notes of one check; what was told is kept in the state."""

    monitor: Monitor
    state: MonitorState
    quiet: Quiet
    now: datetime
    _said: set[str] = field(default_factory=set)

    def is_due(self, window: Window, key: str, **about: str) -> bool:
        """Tell whether to speak of something odd in a window, and note that it is spoken of."""
        told = self.state.drift_told.get(key)
        pause = self.monitor.policy.alerts.pause
        if told is not None and window.end - pd.Timestamp(told) < pause:
            return False
        if about and self.quiet.why(window.start, window.end, **about) is not None:
            return False
        self.state.drift_told[key] = window.end.isoformat()
        return True

    def say(self, window: Window, said: Mapping[str, str | None]) -> None:
        """Say what is odd about a window's rows, and again after the cool-down while it is.

        Once in a check, of the first window that shows it, however many windows do.
        """
        for key, text in said.items():
            if text is not None and self.is_due(window, key) and key not in self._said:
                self._said.add(key)
                self.note(f"Window of {self.when(window)}: {text}")

    def when(self, window: Window) -> str:
        """Say when a window begins."""
        return say_time(window.start, self.monitor.windows.time_zone)

    def note(self, text: str) -> None:
        """Say something in the next message."""
        self.state.notes.append(text)

    def waiting(self, text: str | None) -> None:
        """Say once that nothing is audited before the reference is complete."""
        if text is not None and self.state.waiting is None:
            extent = self.monitor.source.time_range()
            self.state.until = self.state.until or (self.now if extent is None else extent.last)
            self.note(text)
        self.state.waiting = text

    def failed(self, window: Window, reason: str) -> None:
        """Say that a window was not audited, in place of what is not told yet of why."""
        self._take_back(window)
        self.note(f"{self._not_audited(window)}{reason}")

    def mended(self, window: Window) -> None:
        """Say that a window that failed can be read now, if anybody was told that it failed."""
        if not self._take_back(window):
            self.note(f"The window of {self.when(window)}, which had failed, can be read now.")

    def _take_back(self, window: Window) -> bool:
        notes = self.state.notes
        said = self._not_audited(window)
        self.state.notes = [text for text in notes if not text.startswith(said)]
        return len(self.state.notes) < len(notes)

    def _not_audited(self, window: Window) -> str:
        return f"The window of {self.when(window)} was not audited: "

    def rows(self, window: Window, data: WindowData) -> None:
        """Say which rows count once or not at all."""
        if self._repeats_more(data):
            self.note(f"Window of {self.when(window)}: {say_repeats(data)}")
        self._unknown(window, data.unknown_labels)

    def _unknown(self, window: Window, found: Mapping[str, int]) -> None:
        """Say which labels are no node of the tree, each name once; of many, all again."""
        told = self.state.drift_told
        known = json.loads(told.get(_KNOWN, "[]"))
        new = [name for name in found if name not in known]
        if new and len(known) < _MOST_KNOWN:
            told[_KNOWN] = json.dumps([*known, *new][:_MOST_KNOWN])
            text = say_unknown({name: found[name] for name in new}, self.monitor.tree)
            self.note(f"Window of {self.when(window)}: {text}")
        elif new:
            self.say(window, {_UNKNOWN: say_unknown(found, self.monitor.tree)})

    def newcomers(self, window: Window, subgroups: Subgroups, features: pd.DataFrame) -> list[str]:
        """Say which values no subgroup has, each once; return what was said."""
        text = tell_newcomers(self.state, subgroups, features)
        if text is None:
            return []
        self.note(f"Window of {self.when(window)}: {text}")
        return [text]

    def _repeats_more(self, data: WindowData) -> bool:
        """Tell whether the share of rows that come more than once is twice what was told of.

        Retries are usual where rows have ids, and what to do about them is settled: told once.
        """
        told = self.state.drift_told
        more = {}
        for what, n in count_repeats(data).items():
            key, share = f"{_REPEATS}:{what}", n / data.n_labelled
            if share >= 2 * float(told.get(key, 0)):
                more[key] = str(share)
        if not more or _REPEATS in self._said:
            return False
        self._said.add(_REPEATS)
        told.update(more)
        return True

    def untimed(self) -> None:
        """Say that rows are in no window for want of a time, and again when there are more."""
        extent, told = self.monitor.source.time_range(), self.state.drift_told
        n = 0 if extent is None else extent.n_untimed
        if n > int(told.get(_UNTIMED, 0)):
            told[_UNTIMED] = str(n)
            self.note(f"{say_untimed(n)}: repair their time (`columns.time`).")

    def out_of_reach(self) -> None:
        """Say once that no moment of some utilities can exceed the tolerance."""
        monitor, told = self.monitor, self.state.drift_told
        text = monitor.policy.tolerance.say_out_of_reach(monitor.tree, monitor.utilities)
        if text is None:
            told.pop(_REACH, None)
        elif told.get(_REACH) != text:
            told[_REACH] = text
            self.note(f"{text}.")

    def standing(self, findings: Sequence[Finding], change: WindowChange | None) -> None:
        """Say once what is beyond tolerance and did not change; again after it had been better.

        People hear of all of it at once, the first time; what joins it later is a warning in status
        and report, and as little a change as the rest.
        """
        better = {item.node for item in change.changes if item.better} if change else set()
        told = [node for node in self.state.standing if node not in better]
        nodes = [finding.node for finding in findings if finding.kind == "standing"]
        heard = {alert.node for alert in self.state.open_alerts if alert.muted is None}
        nodes = [node for node in nodes if node in heard]
        if nodes and not told:
            self.state.standing_untold = nodes
            # Who heard that it stands hears when it is over.
            self.state.alerts |= {
                alert.candidate: replace(alert, told=True)
                for alert in self.state.open_alerts
                if alert.node in nodes and alert.muted is None
            }
        self.state.standing = [*told, *(node for node in nodes if node not in told)]

    def together(self, gaps: Iterable[tuple[Utility, float, float, float]], *, alone: bool) -> None:
        """Say once that errors of branches add up to more than the tolerance.

        `alone` is whether no branch is told of by itself.
        """
        for utility, gap, radius, limit in gaps:
            key = f"{_TOGETHER}:{utility.name}"
            if abs(gap) + radius <= limit:
                self.state.drift_told.pop(key, None)
            elif alone and abs(gap) - radius > limit and key not in self.state.drift_told:
                self.state.drift_told[key] = self.now.isoformat()
                self.note(say_together(utility, gap, radius, limit))

    def unmuted(self) -> None:
        """Tell of alerts whose mute is over though no window was audited since."""
        state, last = self.state, self.state.last
        state.mutes = [mute for mute in state.mutes if mute.until > self.now]
        if last is None:
            return
        utilities = {utility.name: utility for utility in self.monitor.utilities}
        for alert in state.open_alerts:
            names = {"branch": alert.node, "subgroup": alert.subgroup, "utility": alert.utility}
            if alert.muted is None or self.quiet.why(last.start, last.end, **names) is not None:
                continue
            state.alerts[alert.candidate] = alert.heard(alert.last_seen)
            state.transitions.append(still_there(alert, utilities[alert.utility], last.id))
            state.until = state.until or last.end
