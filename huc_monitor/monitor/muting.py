"""Alerts that nobody is told of: muted by a person, or in maintenance by the configuration.

A mute is about telling, and goes by the clock: until it ends, nobody is told of the alerts it
covers. Maintenance is about data: windows that have rows of that time are audited and recorded,
and nobody is told of what they show. Maintenance that names no branch, subgroup or utility also
keeps its windows out of the e-detector's evidence and of the change test, which would otherwise
speak of them later; they are no reference, and neither open, keep nor end an alert. Their rows are
no part of a recalibration. A `reference` that the configuration sets keeps its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from pydantic import model_validator

from huc_monitor._common.settings import Name, Section, SpanText, TimeText
from huc_monitor._common.times import Span, get_zone, to_utc
from huc_monitor.monitor.people import Mute, check_scope, covers, say_scope
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility


class Maintenance(Section):
    """A time of which the data is known to be odd: its windows are recorded, and nobody is told.

    Parameters
    ----------
    start : str
        First moment; a date means its midnight.

        Without a zone, start and end are in `windows.time_zone`.
    end : str
        First moment after it.
    repeat_every : str, optional
        How often it comes again.
    branch : str, optional
        The branch it is about; any if left out.
    subgroup : str, optional
        The subgroup; any if left out.
    utility : str, optional
        The utility; any if left out.
    purpose : str, optional
        Shown with the alerts that it mutes.
    """

    start: TimeText
    end: TimeText
    repeat_every: SpanText | None = None
    branch: Name | None = None
    subgroup: Name | None = None
    utility: Name | None = None
    purpose: str = ""

    @model_validator(mode="after")
    def _in_order(self) -> Maintenance:
        first, last = self._times(get_zone("UTC"))
        if first >= last:
            msg = f"must end after its start; got {self.start} to {self.end}"
            raise ValueError(msg)
        if self.repeat_every is not None and Span.parse(self.repeat_every).nominal < last - first:
            times = f"{self.start} to {self.end}"
            msg = f"must be shorter than `repeat_every` ({self.repeat_every}); got {times}"
            raise ValueError(msg)
        return self

    def _times(self, zone: ZoneInfo) -> tuple[datetime, datetime]:
        first, last = (to_utc(x, argument="start", zone=zone) for x in (self.start, self.end))
        return first, last

    @property
    def scope(self) -> tuple[str | None, str | None, str | None]:
        """Branch, subgroup and utility."""
        return self.branch, self.subgroup, self.utility

    @property
    def is_whole(self) -> bool:
        """Whether it is about everything, so that its windows are no evidence."""
        return say_scope(*self.scope) == "everything"

    @property
    def words(self) -> str:
        """When it is, and why."""
        again = "" if self.repeat_every is None else f", every {self.repeat_every}"
        said = f" ({self.purpose})" if self.purpose else ""
        return f"for maintenance from {self.start} to {self.end}{again}{said}"

    def meets(self, start: datetime, end: datetime, zone: ZoneInfo) -> bool:
        """Whether a window has a moment of it.

        Examples
        --------
        >>> from datetime import UTC, datetime
        >>> nights = Maintenance(
        ...     start="2024-03-03T02:00", end="2024-03-03T04:00", repeat_every="7d"
        ... )
        >>> days = [datetime(2024, 3, day, tzinfo=UTC) for day in (2, 3, 4, 10, 11)]
        >>> [nights.meets(a, b, get_zone("UTC")) for a, b in zip(days, days[1:])]
        [False, True, False, True]
        """
        return next(self.spans(start, end, zone), None) is not None

    def spans(
        self, start: datetime, end: datetime, zone: ZoneInfo
    ) -> Iterator[tuple[datetime, datetime]]:
        """Yield the times, start and end, that have a moment between two."""
        first, last = self._times(zone)
        if self.repeat_every is None:
            if first < end and start < last:
                yield first, last
            return
        span = Span.parse(self.repeat_every)
        n = max(0, (start - last) // span.nominal)  # clocks that change move it by less than one
        while (shift := Span(span.amount * n, span.unit)).after(first, zone) < end:
            if shift.after(last, zone) > start:
                yield shift.after(first, zone), shift.after(last, zone)
            n += 1


def odd_times(
    items: Sequence[Maintenance], start: datetime, end: datetime, zone: ZoneInfo
) -> list[tuple[datetime, datetime]]:
    """Return when, between two times, everything was in maintenance: merged, in order."""
    spans = [span for item in items if item.is_whole for span in item.spans(start, end, zone)]
    found: list[tuple[datetime, datetime]] = []
    for first, last in sorted(spans):
        low, high = max(first, found[-1][1] if found else start), min(last, end)
        found += [(low, high)] if low < high else []
    return found


def check_maintenance(
    items: Sequence[Maintenance],
    tree: LabelTree,
    utilities: Sequence[Utility],
    subgroups: Subgroups | None = None,
) -> None:
    """Refuse names that the monitor does not have; of subgroups once they are known."""
    groups = None if subgroups is None else subgroups.names
    known = tree.branches, groups, [utility.name for utility in utilities]
    for place, item in enumerate(items):
        check_scope(item.scope, known, where=f"maintenance[{place}].")


@dataclass(frozen=True, slots=True)
class Quiet:
    """What is in force at one time."""

    mutes: Sequence[Mute]
    maintenance: Sequence[Maintenance]
    zone: ZoneInfo
    now: datetime

    def why(
        self,
        start: datetime,
        end: datetime,
        *,
        branch: str | None = None,
        subgroup: str | None = None,
        utility: str | None = None,
    ) -> str | None:
        """Say why nobody is told of something in a window; None if people are."""
        names = (branch, subgroup, utility)
        for mute in self.mutes:
            if mute.until > self.now and covers(mute.scope, names):
                return mute.words
        for item in self.maintenance:
            if covers(item.scope, names) and item.meets(start, end, self.zone):
                return item.words
        return None

    def left_out(self, start: datetime, end: datetime) -> str | None:
        """Say why a window is no evidence of anything; None if it is."""
        whole = (item for item in self.maintenance if item.is_whole)
        return next((item.words for item in whole if item.meets(start, end, self.zone)), None)
