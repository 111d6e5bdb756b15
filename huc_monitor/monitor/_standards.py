"""What windows are compared with: subgroups and a reference, frozen once and kept in the state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import pandas as pd

from huc_monitor._common.times import say_span, say_time, to_utc, within
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor._examine import Examination
from huc_monitor.monitor._reference import Reference
from huc_monitor.monitor._rows import Asked, Decomposed, RowCache
from huc_monitor.monitor.muting import check_maintenance, odd_times
from huc_monitor.monitor.newcomers import columns_by_value
from huc_monitor.monitor.windows import TimeWindows, Window, WindowSpec, readiness
from huc_monitor.sources import PredictionSource, TooManyBadRowsError, WindowData
from huc_monitor.subgroups import Subgroups
from huc_monitor.subgroups._outcome import doubt_outcome

if TYPE_CHECKING:
    from huc_monitor.monitor._monitor import Monitor
    from huc_monitor.monitor._state import MonitorState


@dataclass(slots=True, eq=False)
class Standards:
    """Freezes subgroups and the reference, from the time that is set or the first window."""

    monitor: Monitor
    state: MonitorState
    subgroups: Subgroups = field(default_factory=Subgroups.whole)
    cache: RowCache = field(init=False)
    frozen: Decomposed | None = None  # rows of a reference that was frozen in this check

    def prepare(self, due: list[Window], again: list[tuple[Window, datetime]]) -> None:
        """Freeze what can be, before the first of these windows is read.

        `again` are windows that may be read once more, with the time of asking.
        """
        read = self._freeze_subgroups([*((window, window.due_at) for window in due), *again])
        monitor = self.monitor
        if self.state.subgroups is not None:
            given = monitor.policy.maintenance
            check_maintenance(given, monitor.tree, monitor.utilities, self.subgroups)
        self.cache = RowCache(
            monitor.source,
            tree=monitor.tree,
            utilities=monitor.utilities,
            subgroups=self.subgroups,
            read=read,
        )
        self.cache.plan(due)
        if self.state.reference is not None:
            return
        if monitor.reference is not None:
            self._freeze_reference(*monitor.reference)
        elif self.state.reference_span:
            start, end = map(datetime.fromisoformat, self.state.reference_span)
            try:
                self._freeze_reference(start, end)
            except InvalidInputError as error:
                self.state.notes.append(f"The reference cannot be read by the new tree: {error}")
        self.state.reference_span = ()

    @property
    def reference(self) -> Reference | None:
        """What later windows are compared with, once there is one."""
        return None if self.state.reference is None else Reference.from_dict(self.state.reference)

    def freeze(self, examined: Examination) -> None:
        """Keep a window as what later ones are compared with."""
        self.state.reference = examined.as_reference().to_dict()
        self.frozen = examined.found

    def _freeze_subgroups(self, windows: list[tuple[Window, datetime]]) -> dict[Asked, WindowData]:
        """Freeze subgroups; return what was read for it."""
        monitor, state = self.monitor, self.state
        read: dict[Asked, WindowData] = {}
        if state.subgroups is not None:
            self.subgroups = Subgroups.from_dict(state.subgroups)
            return read
        if isinstance(monitor.subgroups, Subgroups):
            self.subgroups = monitor.subgroups
        else:
            read = first_rows(monitor.source, monitor.windows, monitor.reference, windows)
            if not read:
                return read
            (data,) = read.values()
            if monitor.reference is not None:
                require_labels(data.n, *monitor.reference)
            self.subgroups = monitor.subgroups(data.features)
            state.by_value = columns_by_value(self.subgroups, data.features)
            state.notes += doubt_outcome(
                data.features, data.features.columns, data.labels, monitor.tree
            )
        state.freeze(self.subgroups, monitor.utilities)
        return read

    def _freeze_reference(self, start: datetime, end: datetime) -> None:
        due_at = self.monitor.windows.due_at(end)
        found = self.cache.window(start, end, due_at)
        require_labels(found.data.n, start, end)
        window = Window(0, start, end, due_at, "reference")
        said = _say_short(self.monitor.windows, start, end, found.data)
        self.state.notes += [] if said is None else [said]
        given, zone = self.monitor.policy.maintenance, self.monitor.windows.zone
        n_odd = int(within(found.data.times, odd_times(given, start, end, zone)).sum())
        if n_odd:
            self.state.notes.append(
                f"The reference holds {n_odd:,} labelled rows of maintenance among {found.data.n:,}"
                ": later windows are compared with these too. If they are odd, choose another time "
                "for the reference."
            )
        examined = Examination(self.monitor, self.subgroups, window, found, None)
        self.freeze(examined)


def require_labels(n_labelled: int, start: datetime, end: datetime) -> None:
    """Refuse a reference without a labelled row."""
    if n_labelled == 0:
        msg = (
            f"`reference` must hold labelled rows; between {start.isoformat()} and "
            f"{end.isoformat()} there are none. Choose a time the log covers."
        )
        raise InvalidInputError(msg)


def say_waiting(
    reference: tuple[datetime, datetime] | None, spec: WindowSpec, now: datetime
) -> str | None:
    """Say when the reference will be complete; None where it is, or where no time is set.

    What is frozen of a part of it would stand for the whole for good.

    Examples
    --------
    >>> from datetime import UTC
    >>> days = datetime(2024, 3, 1, tzinfo=UTC), datetime(2024, 3, 4, tzinfo=UTC)
    >>> said = say_waiting(days, TimeWindows(length="1d", label_lag="2d"), days[1])
    >>> print(said.partition(":")[0])
    The reference ends 2024-03-04 and its labels are due 2024-03-06
    """
    if reference is None:
        return None
    end = to_utc(reference[1], argument="reference")
    due_at, zone = spec.due_at(end), spec.time_zone
    if now >= due_at:
        return None
    labels = f" and its labels are due {say_time(due_at, zone)}" if due_at > end else ""
    return (
        f"The reference ends {say_time(end, zone)}{labels}: windows are audited from then on, none "
        "is lost. To begin earlier, give the reference an earlier end."
    )


def _say_short(spec: WindowSpec, start: datetime, end: datetime, data: WindowData) -> str | None:
    """Say that windows at an end of the reference have no labelled row; None if they have."""
    times = (data.times.min(), data.times.max())
    oldest, newest = (pd.Timestamp(time, tz="UTC").to_pydatetime() for time in times)
    zone = spec.time_zone
    grid = spec if isinstance(spec, TimeWindows) else TimeWindows(length="1d", time_zone=zone)
    ends = []
    if grid.start_at(oldest) > start:
        ends.append(f"the oldest of {say_time(oldest, zone)}")
    if grid.end_of(grid.start_at(newest)) < end:
        ends.append(f"the newest of {say_time(newest, zone)}")
    if not ends:
        return None
    return (
        f"The reference ({say_span(start, end, zone)}) is frozen with {data.n_usable:,} labelled "
        f"rows, {' and '.join(ends)}: later windows are compared with these. If more were to "
        "come, or were deleted, choose another time for the reference."
    )


def first_rows(
    source: PredictionSource,
    spec: WindowSpec,
    reference: tuple[datetime, datetime] | None,
    windows: Iterable[tuple[Window, datetime]],
) -> dict[Asked, WindowData]:
    """Rows that subgroups are frozen on: of the reference, or of the first window to be audited.

    Each of `windows` comes with the time of asking.
    """
    if reference is not None:
        start, end = reference
        due_at = spec.due_at(end)
        return {(start, end, due_at): source.labelled(start, end, as_of=due_at)}
    for window, as_of in windows:
        try:
            data = source.labelled(window.start, window.end, as_of=as_of)
        except TooManyBadRowsError:
            continue  # the window is recorded as failed when its turn comes
        if readiness(spec, data.counts) == "ready" and data.n:
            return {(window.start, window.end, as_of): data}
    return {}
