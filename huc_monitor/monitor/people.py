"""What people say about alerts: seen, a note, not to be told until a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Final, Literal
from zoneinfo import ZoneInfo

from huc_monitor._common.forms import Form
from huc_monitor._common.safe_text import line
from huc_monitor._common.times import Span, from_wall, say_time, to_utc
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from huc_monitor.monitor.records import AlertState

_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DID: Final = {"ack": "Acknowledged", "note": "Note", "mute": "Muted", "unmute": "Unmuted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(Form):
    """What one person did about an alert, and when.

    ``level`` is the alert's level then: one that becomes worse has not been acknowledged.
    ``time_zone`` is that in which people are shown the times, which are in UTC.
    """

    kind: Literal["ack", "note", "mute", "unmute"]
    at: datetime
    by: str
    text: str = ""
    level: Literal["warning", "critical"] | None = None
    until: datetime | None = None
    time_zone: str = "UTC"

    sparse: ClassVar[tuple[str, ...]] = ("text", "level", "until", "time_zone")

    def __str__(self) -> str:
        at = say_time(self.at, self.time_zone, exact=True)
        when = f", {at}"
        if self.until is not None:
            when = f" until {say_time(self.until, self.time_zone, exact=True)} (since {at})"
        said = f": {self.text}" if self.text else ""
        return f"{_DID[self.kind]} by {self.by}{when}{said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mute(Form):
    """Alerts of which nobody is told for some time; a name left out stands for any.

    ``time_zone`` is that in which people are shown the times, which are in UTC.
    """

    until: datetime
    at: datetime
    by: str
    branch: str | None = None
    subgroup: str | None = None
    utility: str | None = None
    text: str = ""
    time_zone: str = "UTC"

    sparse: ClassVar[tuple[str, ...]] = ("time_zone",)

    @property
    def scope(self) -> tuple[str | None, str | None, str | None]:
        """Branch, subgroup and utility."""
        return self.branch, self.subgroup, self.utility

    @property
    def words(self) -> str:
        """Who muted it, and until when."""
        said = f" ({self.text})" if self.text else ""
        return f"by {self.by} until {say_time(self.until, self.time_zone, exact=True)}{said}"

    def __str__(self) -> str:
        return f"{say_scope(*self.scope)} {self.words}"


def say_scope(branch: str | None, subgroup: str | None, utility: str | None) -> str:
    """Name what an action is about.

    Examples
    --------
    >>> say_scope("billing", None, None), say_scope(None, None, None)
    ('branch billing', 'everything')
    """
    given = {"branch": branch, "subgroup": subgroup, "utility": utility}
    return ", ".join(f"{kind} {name}" for kind, name in given.items() if name) or "everything"


def covers(scope: tuple[str | None, ...], names: tuple[str | None, ...]) -> bool:
    """Whether every name that a scope gives is the one that something has.

    Examples
    --------
    >>> covers(("billing", None, None), ("billing", "all", "cost"))
    True
    >>> covers(("billing", "age<65", None), ("billing", None, None))  # a drift of the branch
    False
    """
    return all(given in {None, has} for given, has in zip(scope, names, strict=True))


def check_scope(
    scope: Sequence[str | None], known: Sequence[Sequence[str] | None], *, where: str = ""
) -> None:
    """Refuse a branch, subgroup or utility that the monitor does not have; None: not known yet."""
    for kind, name, names in zip(("branch", "subgroup", "utility"), scope, known, strict=True):
        if name is not None and names is not None and name not in names:
            near = did_you_mean(name, names)
            msg = f"`{where}{kind}` must be one of the monitor's; got {name!r:.80}. {near}"
            raise UnknownNameError(msg)


def say_people(alert: AlertState) -> list[str]:
    """Say in sentences what people did about an alert, oldest first.

    A mute that a person ended before its time is told without the time; what is said twice, once.
    """
    ends = max((k for k, one in enumerate(alert.actions) if one.kind == "unmute"), default=0)
    past = [replace(action, until=None) for action in alert.actions[:ends]]
    since = alert.actions[ends:]
    said = [f"{line(action)}." for action in (*past, *since)]
    if alert.muted is not None and not any(action.kind == "mute" for action in since):
        said.append(f"Muted {line(alert.muted)}.")
    return list(dict.fromkeys(said))


def say_people_of(alerts: Sequence[AlertState]) -> list[str]:
    """Say once what people did about alerts of one branch; where not of all, of how many."""
    said = Counter(text for alert in alerts for text in say_people(alert))
    n = len(alerts)
    return [
        text if count == n else f"{count} of {n} alerts: {text[0].lower()}{text[1:]}"
        for text, count in said.items()
    ]


def say_history(alert: AlertState, before: AlertState | None) -> tuple[str, ...]:
    """Say what people did about an alert, and that a mute is over."""
    said = say_people(alert)
    if before is not None and before.muted is not None and alert.muted is None:
        said.append(f"It was muted {line(before.muted)}, and is still there.")
    return tuple(said)


def parse_until(until: str | datetime, now: datetime, zone: ZoneInfo) -> datetime:
    """Read a date, a time, a weekday or a length of time; the result lies after `now`.

    A weekday or date means its first moment in the time zone; the same weekday as today means the
    one in a week.

    Examples
    --------
    >>> from datetime import UTC
    >>> from huc_monitor._common.times import get_zone
    >>> tuesday, utc = datetime(2026, 11, 17, 18, tzinfo=UTC), get_zone("UTC")
    >>> [parse_until(text, tuesday, utc).isoformat()[:16] for text in ("friday", "3d", "12h")]
    ['2026-11-20T00:00', '2026-11-20T18:00', '2026-11-18T06:00']
    """
    word = until.strip().lower() if isinstance(until, str) else ""
    if word in _WEEKDAYS or (len(word) == 3 and word in {day[:3] for day in _WEEKDAYS}):
        today = now.astimezone(zone).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
        wanted = next(i for i, day in enumerate(_WEEKDAYS) if day.startswith(word))
        days = (wanted - today.weekday() - 1) % 7 + 1
        return from_wall(today + timedelta(days=days), zone)
    if word and word[0].isdigit() and word[-1] in "smhdw":
        return Span.parse(word, argument="until").after(now, zone)
    try:
        moment = to_utc(until, argument="until", zone=zone)
    except InvalidInputError:
        msg = (
            f"`until` must be a date, a time, a weekday or a length of time; got {until!r:.60}. "
            "Write 2026-11-20, 2026-11-20T18:00, friday or 3d."
        )
        raise InvalidInputError(msg) from None
    if moment <= now:
        given, clock = (say_time(time, zone.key, exact=True) for time in (moment, now))
        msg = f"`until` must lie in the future; got {given}, and it is {clock}."
        raise InvalidInputError(msg)
    return moment
