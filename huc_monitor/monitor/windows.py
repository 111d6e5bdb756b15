"""Windows: which predictions are audited together, and from when on.

A *time window* is a range ``[start, end)`` on a fixed grid; a *count window* holds a number of
predictions, in order of time. Both are *due* once their end plus the label lag has passed: by then
labels have matured. What happens in the cases that go wrong elsewhere:

* **Clock changes.** Spans of days and weeks follow the calendar of the time zone: "1d" in
  Europe/Berlin is 23 or 25 hours long when the clocks change, and always begins at local midnight.
  Spans of hours, minutes and seconds are exact, and their grid is that of UTC.
* **Label lag** is added to the end of the window in the same way.
* **Empty days** are windows like others; `readiness` calls them "empty", and they are recorded as
  such. Windows that would begin after the last prediction are not listed: a log that ended is not
  followed by empty windows for ever.
* **Late or deleted rows** leave the windows there are as they were: the next window of a number of
  rows starts at the end of the one before, or earlier where windows roll.
* **Late labels** never change a window that was audited. `next_revision` says when the counts of a
  window differ from those audited, and what number the new revision has.
* **A changed configuration** (a changed tree as well) has another identity, so its windows have
  other ids: results of different questions are never mixed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from huc_monitor._common.forms import Form
from huc_monitor._common.settings import Section, Share, SpanText, Whole, Zone, renamed
from huc_monitor._common.times import EPOCH, MONDAY, Span, from_wall, get_zone, to_utc
from huc_monitor.errors import InvalidInputError
from huc_monitor.sources import RowCounts, TimeRange

Readiness: TypeAlias = Literal["ready", "empty", "few labels", "low coverage"]


@dataclass(frozen=True, slots=True)
class Window(Form):
    """One range of predictions audited together.

    Attributes
    ----------
    ordinal : int
        1 for the first window that is monitored, then counting up.
    start, end : datetime
        The range ``[start, end)`` in UTC.
    due_at : datetime
        When its labels count as matured: the end plus the label lag. Auditing with the labels as
        of this time gives the same result whenever it is done.
    id : str
        Stable name: a hash of what identifies the configuration, and of the range.
    """

    ordinal: int
    start: datetime
    end: datetime
    due_at: datetime
    id: str

    schema: ClassVar[int | None] = 1


class _RowTimes(Protocol):
    """The part of a prediction source that cutting windows needs."""

    def time_range(self) -> TimeRange | None: ...
    def advance(self, start: datetime, n_rows: int) -> datetime | None: ...


def _to_begin(value: Any, info: ValidationInfo) -> datetime | None:
    zone = get_zone(info.data.get("time_zone", "UTC"))
    return None if value is None else to_utc(value, argument="begin", zone=zone)


class _Requirements(Section):
    """What both kinds of windows ask of their labels.

    Parameters
    ----------
    label_lag : str, default "0s"
        How long labels take after a window's end.
    time_zone : str, default "UTC"
        Where days begin at midnight, and weeks on Monday; times that people read are shown in it.
    min_labelled : int, default 1
        Fewer labelled rows than this are not audited.
    min_coverage : float, default 0.0
        A smaller share of labels is not audited.
    min_branch_coverage : float, default 0.0
        A window is not audited while a branch under the root that is predicted has a smaller share
        of labels: for outcomes of which some take longer than others.
    begin : datetime, optional
        No window starts earlier.
    revisit : str, default "0s"
        How long after its end a window is asked for late labels again.
    """

    label_lag: SpanText = "0s"
    time_zone: Zone = "UTC"
    min_labelled: Annotated[Whole, Field(ge=0)] = 1
    min_coverage: Share = 0.0
    min_branch_coverage: Share = 0.0
    begin: Annotated[datetime | None, BeforeValidator(_to_begin)] = Field(
        default=None, examples=["2024-03-31"]
    )
    revisit: SpanText = "0s"

    @property
    def zone(self) -> ZoneInfo:
        """The time zone."""
        return get_zone(self.time_zone)

    def _fingerprint(self, **own: Any) -> str:
        """Write what results depend on as earlier versions did: identities are hashes of it."""
        shown: dict[str, Any] = {"label_lag": Span.parse(self.label_lag)}
        for name in ("time_zone", "min_labelled", "min_coverage", "begin"):
            shown[name] = getattr(self, name)
        text = ", ".join(f"{name}={value!r}" for name, value in {**shown, **own}.items())
        return f"{type(self).__name__}({text})"

    @property
    def revisit_for(self) -> timedelta:
        """How long after its end a window is asked for late labels."""
        return Span.parse(self.revisit).nominal

    def due_at(self, end: datetime) -> datetime:
        """When a window with this end is due."""
        return Span.parse(self.label_lag).after(end, self.zone)


class TimeWindows(_Requirements):
    """Windows of a fixed length of time.

    Parameters
    ----------
    length : str
        Length of time.

        Such as "6h", "1d" or "1w".
    stride : str, optional
        From one start to the next; shorter than the window makes it rolling.

        The length when left out, so that windows touch (tumbling).
    label_lag : str, default "0s"
        How long after the end of a window its labels take to arrive.
    time_zone : str, default "UTC"
        Where days begin at midnight, and weeks on Monday; times that people read are shown in it.
    min_labelled : int, default 1
        With fewer labelled rows a window is not audited.
    min_coverage : float, default 0
        With a smaller share of labelled rows a window is not audited.
    min_branch_coverage : float, default 0
        The same for every child of the root, counted by where the likeliest leaf lies.
    begin : datetime or str, optional
        No window starts earlier: for logs with older rows than one wants to look at.
    revisit : str, default "0s"
        How long after its end a window is asked for late labels; each change is a new revision.

    Examples
    --------
    >>> days = TimeWindows(length="1d", time_zone="Europe/Berlin", label_lag="2d")
    >>> start = days.start_at(datetime(2024, 3, 31, 15, tzinfo=UTC))
    >>> end = days.end_of(start)
    >>> start.isoformat(), str(end - start), days.due_at(end).isoformat()
    ('2024-03-30T23:00:00+00:00', '23:00:00', '2024-04-02T22:00:00+00:00')
    """

    length: SpanText
    stride: SpanText | None = None

    @model_validator(mode="after")
    def _check_spans(self) -> TimeWindows:
        length, step = Span.parse(self.length), self.step
        for name, span in (("length", length), ("stride", step)):
            if span.amount == 0:
                msg = f"`{name}` must be longer than nothing; got '{span}'."
                raise InvalidInputError(msg)
        if step.nominal > length.nominal:
            msg = (
                f"`stride` must not exceed the length '{length}', or the rows between windows "
                f"would never be audited; got '{step}'."
            )
            raise InvalidInputError(msg)
        return self

    @property
    def fingerprint(self) -> str:
        """What results depend on."""
        return self._fingerprint(length=Span.parse(self.length), stride=self.step)

    @property
    def step(self) -> Span:
        """The stride; the length where none is set."""
        return Span.parse(self.stride or self.length)

    def start_at(self, moment: datetime) -> datetime:
        """Return the latest start on the grid that is not after `moment`."""
        stride = self.step
        if not stride.by_calendar:
            return EPOCH + (moment - EPOCH) // stride.nominal * stride.nominal
        return self._grid(self._place(moment))

    def next_start(self, start: datetime) -> datetime:
        """Return the start on the grid that follows `start`."""
        stride = self.step
        if not stride.by_calendar:
            return start + stride.nominal
        return self._grid(self._place(start) + 1)

    def end_of(self, start: datetime) -> datetime:
        """Return the end of the window that starts at `start`."""
        length, stride = Span.parse(self.length), self.step
        if not (length.by_calendar and stride.by_calendar):
            return length.after(start, self.zone)
        # Where clocks jump at midnight a day starts at one: count from the midnight it stands for.
        place = self._place(start)
        if self._grid(place) == start:
            return from_wall(MONDAY + place * stride.nominal + length.nominal, self.zone)
        wall = start.astimezone(self.zone).replace(tzinfo=None, fold=0)
        return from_wall(wall + length.nominal, self.zone)

    def _grid(self, place: int) -> datetime:
        """Return a start on the calendar's grid by its number."""
        return from_wall(MONDAY + place * self.step.nominal, self.zone)

    def _place(self, moment: datetime) -> int:
        """Return the number of the latest start on the calendar's grid not after `moment`."""
        wall = moment.astimezone(self.zone).replace(tzinfo=None)
        place = math.floor((wall - MONDAY) / self.step.nominal)
        # Where midnight comes twice or never, and where a whole day is left out, as on Samoa at
        # the end of 2011, the wall clock alone can be off.
        while self._grid(place) > moment:
            place -= 1
        while self._grid(place + 1) <= moment:
            place += 1
        return place

    def ranges(self, rows: _RowTimes, last: Window | None) -> Iterator[tuple[datetime, datetime]]:
        """Yield the windows that follow `last`, up to the one of the last prediction."""
        extent = rows.time_range()
        if extent is None:
            return
        if last is None:
            first = extent.first if self.begin is None else max(self.begin, extent.first)
            start = self.start_at(first)
            if self.begin is not None and start < self.begin:
                start = self.next_start(start)
        else:
            start = self.next_start(last.start)
        while start <= extent.last:
            yield start, self.end_of(start)
            start = self.next_start(start)


class CountWindows(_Requirements):
    """Windows of a fixed number of predictions, in order of time.

    Predictions are counted, not labels: labels that arrive late must not move windows. Rows of
    equal time stay together, so that a window may hold a few more than `n_rows`. A window is
    complete when a later row is there.

    Parameters
    ----------
    n_rows : int
        Number of predictions.

        Rows of equal time may make them a few more.
    stride : int, optional
        Predictions from one start to the next; fewer than in a window makes it rolling.

        `n_rows` when left out.
    label_lag, time_zone, min_labelled, min_coverage, begin, revisit
        As in `TimeWindows`.
    """

    n_rows: Annotated[Whole, Field(ge=1)] = Field(validation_alias=renamed("n_rows", "rows"))
    stride: Annotated[Whole, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _check_stride(self) -> CountWindows:
        if self.step > self.n_rows:
            msg = (
                f"`stride` must not exceed `n_rows`, {self.n_rows}, or the rows between windows "
                f"would never be audited; got {self.stride}."
            )
            raise InvalidInputError(msg)
        return self

    @property
    def fingerprint(self) -> str:
        """What results depend on."""
        return self._fingerprint(n_rows=self.n_rows, stride=self.step)

    @property
    def step(self) -> int:
        """The stride; the number of rows where none is set."""
        return self.n_rows if self.stride is None else self.stride

    def ranges(self, rows: _RowTimes, last: Window | None) -> Iterator[tuple[datetime, datetime]]:
        """Yield the complete windows that follow `last`, and leave no row between two out.

        Rows may have come late or gone since `last` was cut: where windows touch, the next one
        starts at its end, and a rolling one no later.
        """
        start: datetime | None
        if last is None:
            extent = rows.time_range()
            start = None if extent is None else extent.first
            if start is not None and self.begin is not None:
                start = max(start, self.begin)
        else:
            start = self._next_start(rows, last.start, last.end)
        while start is not None:
            end = rows.advance(start, self.n_rows)
            if end is None:
                return
            yield start, end
            start = self._next_start(rows, start, end)

    def _next_start(self, rows: _RowTimes, start: datetime, end: datetime) -> datetime | None:
        """Return the start that follows a window; None where too few rows are there."""
        if self.step == self.n_rows:
            return end
        found = rows.advance(start, self.step)
        return None if found is None else min(found, end)

    def has_moved(self, rows: _RowTimes, window: Window) -> bool:
        """Whether rows came late, or went, so that a window would be cut elsewhere now."""
        return rows.advance(window.start, self.n_rows) != window.end


WindowSpec: TypeAlias = TimeWindows | CountWindows


def due_windows(
    spec: WindowSpec,
    rows: _RowTimes,
    *,
    now: datetime,
    identity: str,
    last: Window | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Window]:
    """List the windows whose labels have matured, oldest first.

    Parameters
    ----------
    spec : TimeWindows or CountWindows
    rows : PredictionSource
        Only its `time_range` and `advance` are used.
    now : datetime
        With a time zone.
    identity : str
        What the results depend on besides the range, such as `Config.identity`.
    last : Window, optional
        The last window that was dealt with; the list begins after it.
    since, until : datetime, optional
        Leave out windows that start before, or end after. Ordinals are those of the full list.

    Examples
    --------
    >>> from huc_monitor.sources import TimeRange
    >>> class Log:
    ...     def time_range(self):
    ...         return TimeRange(
    ...             datetime(2024, 1, 1, 8, tzinfo=UTC), datetime(2024, 1, 3, 9, tzinfo=UTC)
    ...         )
    >>> spec, now = TimeWindows(length="1d"), datetime(2024, 1, 3, 10, tzinfo=UTC)
    >>> windows = due_windows(spec, Log(), now=now, identity="triage")
    >>> [(window.ordinal, window.start.day, window.id) for window in windows]
    [(1, 1, 'f90fd8a0a0d92d66'), (2, 2, 'b26189e4976da0ef')]
    """
    found = iter_due_windows(spec, rows, now=now, identity=identity, last=last)
    return [window for window in found if _inside(window, since, until)]


def iter_due_windows(
    spec: WindowSpec,
    rows: _RowTimes,
    *,
    now: datetime,
    identity: str,
    last: Window | None = None,
) -> Iterator[Window]:
    """Yield the windows whose labels have matured, oldest first, each cut when it is asked for.

    Windows of a number of rows take a query each.
    """
    moment = to_utc(now, argument="now")
    for window in _windows(spec, rows, identity, last, moment):
        if window.due_at <= moment:
            yield window


def pending_windows(
    spec: WindowSpec,
    rows: _RowTimes,
    *,
    now: datetime,
    identity: str,
    last: Window | None = None,
) -> list[Window]:
    """List the windows that have ended but still wait for labels, oldest first.

    For drift while labels are missing. Their ids and ordinals are those they will be audited by.
    """
    moment = to_utc(now, argument="now")
    return [
        window
        for window in _windows(spec, rows, identity, last, moment)
        if window.end <= moment < window.due_at
    ]


def readiness(spec: WindowSpec, counts: RowCounts) -> Readiness:
    """Say whether a due window can be audited, and if not, why.

    Examples
    --------
    >>> from huc_monitor.sources import RowCounts
    >>> spec = TimeWindows(length="1d", min_labelled=100, min_coverage=0.5)
    >>> [
    ...     readiness(spec, RowCounts(n, m))
    ...     for n, m in [(0, 0), (900, 99), (900, 300), (300, 200)]
    ... ]
    ['empty', 'few labels', 'low coverage', 'ready']
    """
    if counts.n_predictions == 0:
        return "empty"
    if counts.n_labelled < max(1, spec.min_labelled):
        return "few labels"
    return "low coverage" if counts.coverage < spec.min_coverage else "ready"


def next_revision(revision: int, audited: RowCounts, found: RowCounts) -> int | None:
    """Return the number of the revision that late rows or labels call for, None if there are none.

    Parameters
    ----------
    revision : int
        The number of the revision that was audited; the first is 0.
    audited : RowCounts
        What was there then (`WindowData.counts`).
    found : RowCounts
        What is there now: ``source.counts(window.start, window.end)``, without `as_of`, or with
        the time of asking.

    Notes
    -----
    A label that is replaced in place, with no label time, changes no count and is not noticed.
    """
    return None if found == audited else revision + 1


def _windows(
    spec: WindowSpec, rows: _RowTimes, identity: str, last: Window | None, now: datetime
) -> Iterator[Window]:
    """Yield every window that has ended by now, numbered and named."""
    ordinal = 0 if last is None else last.ordinal
    for start, end in spec.ranges(rows, last):
        if end > now:
            return
        ordinal += 1
        yield Window(ordinal, start, end, spec.due_at(end), window_id(identity, start, end))


def window_id(identity: str, start: datetime, end: datetime) -> str:
    """Return the stable name of a range under a configuration."""
    plain = json.dumps([1, identity, *(time.astimezone(UTC).isoformat() for time in (start, end))])
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def _inside(window: Window, since: datetime | None, until: datetime | None) -> bool:
    return not (
        (since is not None and window.start < to_utc(since, argument="since"))
        or (until is not None and window.end > to_utc(until, argument="until"))
    )
