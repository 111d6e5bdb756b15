"""The monitors that the pages show, and what is read of each: its state, and few of its records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from huc_monitor._common.safe_text import file_name
from huc_monitor.errors import HUCError
from huc_monitor.monitor import Monitor, MonitorState, TrendPoint, open_state
from huc_monitor.monitor.acting import AlertActions
from huc_monitor.monitor.forecasting import ForecastScore
from huc_monitor.monitor.ports import RecalibrationHost, Tracker
from huc_monitor.monitor.records import WindowRecord
from huc_monitor.reporting._model import Report
from huc_monitor.reporting._reading import read
from huc_monitor.tree import LabelTree

WINDOWS = 20  # on one page; older ones are reached by its links
_KEPT_REPORTS = 4
_RANK = {"critical": 0, "failed": 1, "warning": 2, "not checked": 3, "ok": 4}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Watched:
    """One monitor, opened for reading; what only some pages need is made when it is asked for.

    Attributes
    ----------
    name : str
    actions : AlertActions
        What people can do about its alerts; knows tracker, identity, tree and utilities.
    monitor : callable
        Makes the monitor itself, which reads the log.
    host : callable
        Opens what keeps the model's versions; None where nothing does.
    """

    name: str
    actions: AlertActions
    monitor: Callable[[], Monitor]
    host: Callable[[], RecalibrationHost | None]

    @property
    def tracker(self) -> Tracker:
        """Where records and state are."""
        return self.actions.tracker

    @property
    def tree(self) -> LabelTree:
        """The label tree."""
        return self.actions.tree


@dataclass(slots=True, eq=False)
class Seat:
    """A configuration file and its monitor, opened again when the file changes.

    Requests come from several threads, and trackers need not bear that: one at a time.
    """

    slug: str
    path: Path
    open: Callable[[Path], Watched]
    lock: threading.RLock = field(default_factory=threading.RLock)
    _opened: tuple[int, Watched] | None = None
    _newest: tuple[object, ...] = ()
    _scores: Mapping[str, ForecastScore] = field(default_factory=dict)
    _reports: dict[int | None, Report] = field(default_factory=dict)

    @property
    def watched(self) -> Watched:
        """The monitor."""
        stamp = self.path.stat().st_mtime_ns
        if self._opened is None or self._opened[0] != stamp:
            self.close()
            self._opened = stamp, self.open(self.path)
        return self._opened[1]

    def close(self) -> None:
        """Let go of the tracker."""
        if self._opened is not None:
            self._opened[1].tracker.close()
        self._opened, self._reports = None, {}

    def state(self) -> MonitorState:
        """Read the state; reports made from an earlier one are forgotten."""
        one = self.watched.actions
        state = open_state(one.tracker, one.identity, one.tree, one.utilities, one.file)
        newest = (state.newest, state.last, *state.forecasts, *state.early_drift)
        if newest != self._newest:
            self._newest, self._reports = newest, {}
        self._scores = state.forecast_scores
        return state

    def records(self, until: int | None = None, last: int = WINDOWS) -> Sequence[WindowRecord]:
        """Read the records of a few windows."""
        return self.watched.tracker.records(last, until)

    def report(self, until: int | None = None) -> Report:
        """Read the windows up to an ordinal as a report; asked again, nothing is read.

        How past forecasts did is known of all windows to the newest; of older ones it is not said.
        """
        if until not in self._reports:
            kept = dict(list(self._reports.items())[1 - _KEPT_REPORTS :])
            one, scores = self.watched, self._scores if until is None else {}
            made = read(self.records(until), tree=one.tree, title=one.name, forecast_scores=scores)
            self._reports = {**kept, until: made}
        return self._reports[until]


@dataclass(frozen=True, slots=True, eq=False)
class Overview:
    """One monitor in the fleet: its state, or why it cannot be read."""

    slug: str
    name: str
    where: str
    state: MonitorState | None = None
    trend: Sequence[TrendPoint] = ()
    error: str = ""
    zone: str = "UTC"

    @property
    def status(self) -> str:
        """As of the monitor; "unreadable" where there is an error, "not checked" before a check."""
        if self.state is None:
            return "unreadable"
        is_new = self.state.last is None and self.state.status == "ok"
        return "not checked" if is_new else self.state.status

    @property
    def branches(self) -> int:
        """Number of branches with an open alert."""
        return 0 if self.state is None else len({one.node for one in self.state.open_alerts})

    @property
    def rank(self) -> tuple[int, str]:
        """Place in a list: what cannot be read first, then the worst."""
        return _RANK.get(self.status, -1), self.name


class Fleet:
    """All monitors, by the slug that stands for each in an address."""

    def __init__(self, paths: Iterable[Path], open_one: Callable[[Path], Watched]) -> None:
        self.seats: dict[str, Seat] = {}
        for path in paths:
            full = path.resolve()
            name = full.parent.name if full.stem == "huc" else f"{full.parent.name}-{full.stem}"
            base = slug = file_name(name)
            number = 1
            while slug in self.seats:
                number += 1
                slug = f"{base}-{number}"
            self.seats[slug] = Seat(slug, path, open_one)

    def overview(self) -> list[Overview]:
        """Read the state of every monitor, the worst first."""
        return sorted((self.look(seat) for seat in self.seats.values()), key=lambda one: one.rank)

    def look(self, seat: Seat) -> Overview:
        """Read the state of one monitor; what goes wrong is told in its place."""
        where = str(seat.path)
        try:
            with seat.lock:
                watched, state = seat.watched, seat.state()
                trend: Sequence[TrendPoint] = state.trend
                if not trend and state.last is not None:  # written before states had a trend
                    audited = [r for r in seat.records() if r.status != "pending"]
                    trend = list({r.ordinal: TrendPoint.of(r) for r in audited}.values())
            zone = watched.actions.zone
            return Overview(seat.slug, watched.name, where, state, trend, zone=zone)
        except (HUCError, OSError) as error:
            return Overview(seat.slug, seat.slug, where, error=" ".join(str(error).split()))

    def close(self) -> None:
        """Let go of all trackers."""
        for seat in self.seats.values():
            seat.close()
