"""Time zones and spans of time: what a day is where the clocks change.

Inside the library a time is an aware `datetime` in UTC, and a column of times is
``datetime64[us]`` in UTC. Local time is met at three edges only: logs that write it without a zone,
windows that follow a calendar, and what people read, which `say_time` and `say_span` word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor.errors import InvalidInputError

TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]
YEAR_FIRST: Final = re.compile(r"\s*\d{4}")
PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_SPAN: Final = re.compile(r"\s*([0-9]{1,6})\s*(s|m|h|d|w)\s*")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_DAYS: Final = {"d": 1, "w": 7}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The Monday after the epoch: weeks begin on Mondays, and single days do not care.
MONDAY: Final = datetime(1970, 1, 5)  # noqa: DTZ001 - wall time, given its zone where it is used


@dataclass(frozen=True, slots=True)
class Span:
    """A length of time such as 6h or 1d: days and weeks follow the calendar, the rest the clock.

    Examples
    --------
    >>> day = Span.parse("1d")
    >>> zone = get_zone("Europe/Berlin")
    >>> noon = datetime(2024, 3, 30, 11, tzinfo=UTC)
    >>> day.after(noon, zone) - noon  # the clocks go forward that night
    datetime.timedelta(seconds=82800)
    """

    amount: int
    unit: str

    @classmethod
    def parse(cls, text: object, *, argument: str = "length") -> Span:
        """Read "15m", "6h", "1d" or "2w"; a Span is returned as it is."""
        if isinstance(text, Span):
            return text
        found = _SPAN.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            msg = (
                f"`{argument}` must be a whole number and one of the units s, m, h, d, w; "
                f"got {text!r}. Write '15m', '6h', '1d' or '2w'."
            )
            raise InvalidInputError(msg)
        return cls(int(found[1]), found[2])

    @property
    def by_calendar(self) -> bool:
        """Whether the span counts days, which are 23 or 25 hours long where the clocks change."""
        return self.unit in _DAYS

    @property
    def days(self) -> int:
        """Number of calendar days; 0 for a span that follows the clock."""
        return self.amount * _DAYS.get(self.unit, 0)

    @property
    def nominal(self) -> timedelta:
        """Length where no clock changes."""
        return timedelta(seconds=self.amount * _SECONDS.get(self.unit, 0), days=self.days)

    def after(self, time: datetime, zone: ZoneInfo) -> datetime:
        """Return the moment one span after `time`, in UTC."""
        if not self.by_calendar:
            return time.astimezone(UTC) + self.nominal
        wall = time.astimezone(zone).replace(tzinfo=None, fold=0)
        return from_wall(wall + self.nominal, zone)

    def __str__(self) -> str:
        return f"{self.amount}{self.unit}"


def get_zone(name: object, *, argument: str = "time_zone") -> ZoneInfo:
    """Return the zone of an IANA name such as "Europe/Berlin"."""
    try:
        return ZoneInfo(name)  # type: ignore[arg-type]  # anything else is refused below
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        msg = (
            f"`{argument}` must be an IANA time zone; got {name!r}. "
            "Write for example 'UTC' or 'Europe/Berlin'."
        )
        raise InvalidInputError(msg) from None


def to_utc(time: object, *, argument: str, zone: ZoneInfo | None = None) -> datetime:
    """Return an aware datetime in UTC; a naive one is refused unless a zone says what it means."""
    given, remedy = time, "Add one, for example tzinfo=datetime.UTC."
    if isinstance(time, str):
        remedy = "Write it as 2024-03-31T06:00:00+02:00."
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            if zone is not None:
                remedy = f"Write it as 2024-03-31 or {remedy.split()[-1]}"
            msg = f"`{argument}` must be a date or time; got {given!r}. {remedy}"
            raise InvalidInputError(msg) from None
    if isinstance(time, datetime):
        time = time.to_pydatetime(warn=False) if isinstance(time, pd.Timestamp) else time
        if time.tzinfo is not None:
            return time.astimezone(UTC)
        if zone is not None:
            return from_wall(time, zone)
    msg = f"`{argument}` must be a datetime with a time zone; got {given!r}. {remedy}"
    raise InvalidInputError(msg)


def say_time(time: datetime, zone: str = "UTC", *, exact: bool = False) -> str:
    """Say a time as clocks in a zone show it: the date alone where it is midnight there.

    With `exact`, midnight is told as a time as well.

    Examples
    --------
    >>> midnight = datetime(2024, 3, 1, 23, tzinfo=UTC)
    >>> say_time(midnight), say_time(midnight, "Europe/Berlin")
    ('2024-03-01 23:00 UTC', '2024-03-02')
    >>> say_time(midnight, "Europe/Berlin", exact=True)
    '2024-03-02 00:00 CET'
    """
    local = time.astimezone(get_zone(zone))
    is_day = (local.hour, local.minute) == (0, 0) and not exact
    return f"{local:%Y-%m-%d}" if is_day else f"{local:%Y-%m-%d %H:%M %Z}"


def say_end(end: datetime, zone: str = "UTC") -> str:
    """Say the end of a range as people do: its last day where it ends at midnight.

    Examples
    --------
    >>> say_end(datetime(2024, 3, 2, tzinfo=UTC)), say_end(datetime(2024, 3, 2, 6, tzinfo=UTC))
    ('2024-03-01', '2024-03-02 06:00 UTC')
    """
    said = say_time(end, zone)
    return said if " " in said else say_time(end - timedelta(hours=1), zone)[:10]


def say_span(start: datetime, end: datetime, zone: str = "UTC", *, exact: bool = False) -> str:
    """Say from when to when, in dates where both are midnights; `exact` as of `say_time`.

    Examples
    --------
    >>> night = [datetime(2024, 3, 30, hour, tzinfo=UTC) for hour in (0, 23)]
    >>> say_span(*night), say_span(*night, "Europe/Berlin")
    ('2024-03-30 00:00 to 2024-03-30 23:00 UTC', '2024-03-30 01:00 to 2024-03-31 00:00 CET')
    """
    first, last = (say_time(time, zone, exact=exact) for time in (start, end))
    if (" " in first) != (" " in last):
        return say_span(start, end, zone, exact=True)
    name = last.partition(":")[2][2:]
    return f"{first.removesuffix(name)} to {last}"


def from_wall(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment at which clocks in `zone` show `wall`.

    A wall time that comes twice means its first occurrence; one that the clocks jump over means
    the moment of the jump. So later wall times never come earlier, which lets a filter on a
    column of wall times be pushed down to where the data is.

    Examples
    --------
    >>> berlin = get_zone("Europe/Berlin")
    >>> from_wall(datetime(2024, 10, 27, 2, 30), berlin).isoformat()  # comes twice
    '2024-10-27T00:30:00+00:00'
    >>> from_wall(datetime(2024, 3, 31, 2, 30), berlin).isoformat()  # never comes
    '2024-03-31T01:00:00+00:00'
    """
    aware = wall.replace(tzinfo=zone, fold=0)
    moment = aware.astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return moment
    # In a gap: the old offset (fold=0) lands after the jump, the new one (fold=1) before it.
    low, high = aware.replace(fold=1).astimezone(UTC), moment
    before = low.astimezone(zone).utcoffset()
    return _first(low, high, lambda time: time.astimezone(zone).utcoffset() != before)


def wall_bound(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return the earliest wall time whose moment is not before `moment`.

    A row with wall time w lies at or after `moment` exactly when w is at or after this bound.
    """
    wall = moment.astimezone(zone).replace(tzinfo=None, fold=0)
    away = timedelta(days=1, hours=1)
    return _first(wall - away, wall + away, lambda time: from_wall(time, zone) >= moment)


def _first(low: datetime, high: datetime, holds: Callable[[datetime], bool]) -> datetime:
    """Return the first time, to the microsecond, at which something holds; at `high` it does."""
    while high - low > timedelta(microseconds=1):
        middle = low + (high - low) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def epoch_bound(moment: datetime, unit: TimeUnit) -> int:
    """Return the smallest count of `unit` since 1970 that is not before `moment`."""
    microseconds = (moment - EPOCH) // timedelta(microseconds=1)
    return -(-microseconds * PER_SECOND[unit] // 10**6)


def utc_column(values: Any, zone: ZoneInfo, unit: TimeUnit | None = None) -> NDArray[Any]:
    """Read a column of times as datetime64[us] in UTC, NaT where a value is no time.

    Times without a zone are wall times in `zone`, read as `from_wall` does. Numbers are counts of
    `unit` since 1970.
    """
    series = values if isinstance(values, pd.Series) else pd.Series(values)
    if unit is not None and not pd.api.types.is_datetime64_any_dtype(series.dtype):
        per_second = PER_SECOND[unit]
        counts = pd.to_numeric(series, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        if unit == "ns" and pd.api.types.is_integer_dtype(series.dtype) and not series.isna().any():
            return (series.to_numpy(np.int64) // 1000).astype("datetime64[us]")
        known = np.isfinite(counts)
        micro = np.floor(np.where(known, counts, 0.0) * (10**6 / per_second)).astype(np.int64)
        return np.where(known, micro, np.iinfo(np.int64).min).astype("datetime64[us]")
    if not pd.api.types.is_datetime64_any_dtype(series.dtype):
        return _from_objects(series, zone)
    index = pd.DatetimeIndex(series)
    if index.tz is None:
        index = _localize(index.as_unit("us"), zone)
    return np.asarray(index.tz_convert("UTC").tz_localize(None).as_unit("us"))


def _localize(index: pd.DatetimeIndex, zone: ZoneInfo) -> pd.DatetimeIndex:
    first = np.ones(len(index), dtype=bool)
    moments = index.tz_localize(zone, ambiguous=first, nonexistent="NaT")
    skipped = np.flatnonzero(np.asarray(moments.isna()) & np.asarray(index.notna()))
    if not len(skipped):
        return moments
    # Not "shift_forward", which errs where a zone skips a whole day.
    columns = np.asarray(moments.tz_convert("UTC").tz_localize(None)).copy()
    for row in skipped:
        columns[row] = to_column(from_wall(index[int(row)].to_pydatetime(warn=False), zone))
    return pd.DatetimeIndex(columns).tz_localize("UTC")


def _from_objects(series: pd.Series[Any], zone: ZoneInfo) -> NDArray[Any]:
    """Read dates, datetimes and texts, with or without zones, one distinct value at a time."""
    codes, distinct = pd.factorize(series.astype(object))
    moments = [_moment(value, zone) for value in distinct]
    found = np.array([*moments, np.datetime64("NaT", "us")], dtype="datetime64[us]")
    return found[codes]


def _moment(value: Any, zone: ZoneInfo) -> np.datetime64:
    if isinstance(value, str) and not YEAR_FIRST.match(value):
        return np.datetime64("NaT", "us")  # 02.01. or 01/02: the second of January, or the first?
    try:
        time = pd.Timestamp(value)
    except (ValueError, TypeError):
        return np.datetime64("NaT", "us")
    if pd.isna(time):
        return np.datetime64("NaT", "us")
    moment = to_utc(time.to_pydatetime(warn=False), argument="time", zone=zone)
    return np.datetime64(moment.replace(tzinfo=None), "us")


def from_column(value: np.datetime64) -> datetime:
    """Return one entry of a column of times as an aware datetime."""
    moment = value.astype("datetime64[us]").item()
    if not isinstance(moment, datetime):
        msg = (
            f"`time` must lie in the years 1 to 9999; got {str(value).removesuffix('T00:00:00')}. "
            "Check `time_unit`: 's', 'ms', 'us' or 'ns' since 1970."
        )
        raise InvalidInputError(msg)
    return moment.replace(tzinfo=UTC)


def within(times: NDArray[Any], spans: Iterable[tuple[datetime, datetime]]) -> NDArray[np.bool_]:
    """Say which entries of a column of times lie in one of some ``[start, end)``."""
    inside = np.zeros(len(times), dtype=bool)
    for low, high in spans:
        inside |= (times >= to_column(low)) & (times < to_column(high))
    return inside


def to_column(moment: datetime) -> np.datetime64:
    """Return an aware datetime as an entry of a column of times."""
    return np.datetime64(moment.astimezone(UTC).replace(tzinfo=None), "us")
