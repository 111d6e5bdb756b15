"""Silence: a log that has no new rows, or rows whose labels do not come any more.

Windows after the last row are never made, and a window without labels is merely thin, so neither
shows in records that something has stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from huc_monitor._common.forms import Form
from huc_monitor._common.times import say_time
from huc_monitor.monitor.windows import TimeWindows, Window

if TYPE_CHECKING:
    from huc_monitor.monitor._monitor import Monitor
    from huc_monitor.monitor._state import MonitorState
    from huc_monitor.monitor.muting import Quiet
    from huc_monitor.sources import RowCounts

# This many windows without anything new are worth a word.
LATE: Final = 3
_MOST_GAPS = 20
_AGAIN = {"rows": "The log has rows again.", "labels": "Labels come again."}


@dataclass(slots=True)
class Arrivals(Form):
    """How long rows, or labels, have not come, and how long that took before.

    `n_missing` windows in a row are without them, from `since` on. `gaps` are earlier such runs of
    at least `LATE` windows, such as weekends. `told` is the time from which on they were missing
    when people were last told, None once they came again. `ended` is the newest row of a log that
    had ended before the first check, as one of last year: that is no news.
    """

    n_missing: int = 0
    since: datetime | None = None
    gaps: list[int] = field(default_factory=list)
    told: datetime | None = None
    ended: datetime | None = None

    def miss(self, start: datetime) -> None:
        """Count a window without them."""
        self.since = self.since or start
        self.n_missing += 1

    def come(self, n_missing: int | None = None) -> None:
        """Note that they came, after so many windows without them."""
        gap = self.n_missing if n_missing is None else n_missing
        if gap >= LATE:
            self.gaps = [*self.gaps, gap][-_MOST_GAPS:]
        self.n_missing, self.since = 0, None

    def is_late(self, n: int) -> bool:
        """Tell whether `n` windows without them are more than there were before."""
        return n >= LATE and n > max(self.gaps, default=0)


@dataclass(frozen=True, slots=True, eq=False)
class Silence:
    """Counts windows without rows or labels during a check, and tells once that they stopped."""

    monitor: Monitor
    state: MonitorState
    quiet: Quiet
    now: datetime
    is_first: bool

    def visit(self, window: Window, counts: RowCounts) -> None:
        """Count what a window has; one that maintenance leaves out counts for nothing."""
        if self.quiet.left_out(window.start, window.end) is not None:
            return
        rows, labels = self._of("rows"), self._of("labels")
        if counts.n_predictions == 0:
            rows.miss(window.start)
            return
        by_time = isinstance(self.monitor.windows, TimeWindows)
        rows.come(None if by_time else (window.end - window.start).days)
        if counts.n_labelled:
            labels.come()
        else:
            labels.miss(window.start)

    def late_labels(self) -> None:
        """Note that labels came for an earlier window."""
        self._of("labels").come()

    def tell(self) -> datetime | None:
        """Say what stopped and what came again; return the time of the newest row."""
        extent = self.monitor.source.time_range()
        if extent is None:
            return None
        last, rows, labels = extent.last, self._of("rows"), self._of("labels")
        n = 0 if last in {rows.told, rows.ended} else self._n_due_after(last)
        if self.is_first and rows.is_late(n):
            rows.ended, n = last, 0
        zone = self.monitor.windows.time_zone
        unit = "windows" if isinstance(self.monitor.windows, TimeWindows) else "days"
        n_notes = len(self.state.notes)
        warned = [
            self._follow("rows", last, n)
            and f"The log has no rows since {say_time(last, zone)}: the {n:,} {unit} that are due "
            "since then are empty. Is this the log that is written to? See: huc-monitor doctor",
            self._follow("labels", labels.since, labels.n_missing)
            and f"No labels have come for the newest {labels.n_missing:,} windows that are due and "
            f"have rows, since that of {say_time(labels.since or last, zone)}. Did they stop, or "
            "do they take longer than windows.label_lag? See: huc-monitor doctor",
        ]
        self.state.warnings += [text for text in warned if text]
        if self.state.warnings or len(self.state.notes) > n_notes:
            newest = self.state.last
            self.state.until = self.state.until or (last if newest is None else newest.end)
        kept = self.state.arrivals.items()
        self.state.arrivals = {name: item for name, item in kept if item != Arrivals()}
        return last

    def _follow(self, name: str, since: datetime | None, n: int) -> bool:
        """Tell whether to warn now; note that they came again where people had been warned."""
        arrivals = self._of(name)
        if arrivals.told == since:
            return False
        late = arrivals.is_late(n)
        if arrivals.told is not None and not late:
            self.state.notes.append(_AGAIN[name])
        arrivals.told = since if late else None
        return late

    def _of(self, name: str) -> Arrivals:
        return self.state.arrivals.setdefault(name, Arrivals())

    def _n_due_after(self, last: datetime) -> int:
        """Count the windows after the newest row that are due; days where windows count rows."""
        grid = self.monitor.windows
        if not isinstance(grid, TimeWindows):
            grid = TimeWindows(length="1d", label_lag=grid.label_lag, time_zone=grid.time_zone)
        n, start = 0, grid.next_start(grid.start_at(last))
        while grid.due_at(end := grid.end_of(start)) <= self.now:
            n += self.quiet.left_out(start, end) is None
            start = grid.next_start(start)
        return n


def say_silences(silences: Mapping[str, datetime], zone: str = "UTC") -> list[str]:
    """Say what has stopped, and since when.

    Examples
    --------
    >>> from datetime import UTC
    >>> say_silences({"rows": datetime(2024, 3, 5, 22, 59, tzinfo=UTC)}, "Europe/Berlin")
    ['The log has no rows since 2024-03-05 23:59 CET.']
    """
    words = {
        "rows": "The log has no rows since {}.",
        "labels": "No labels have come for windows from {} on.",
    }
    return [words[name].format(say_time(since, zone)) for name, since in silences.items()]
