"""From when on rows are fitted on, and why: since the fault began, or since the version answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from huc_monitor.monitor.change import CandidateChange
from huc_monitor.monitor.records import AlertState, RecalibrationTrigger

_ONE_FAULT = 1  # windows between alerts that one fault raises


def began_under(
    start: datetime | None, changes: Sequence[CandidateChange]
) -> list[CandidateChange]:
    """Keep changes that began while a recalibrated version served, since `start`.

    What began before it is the fault that it was made for, and would hide a later one.
    """
    return [one for one in changes if start and one.onset and one.onset >= start]


def calm_since(
    replaced_at: datetime | None, reference: tuple[datetime, datetime] | None, first: datetime
) -> tuple[datetime, str]:
    """Say from when on rows are used where nothing went wrong of late, and why."""
    when, what = first, "all of the log"
    if replaced_at is not None:
        when, what = replaced_at, "since the version that serves first answered"
    elif reference is not None:
        when, what = max(first, reference[0]), "since the reference began"
    return when, f"{what}; no critical alert is open"


def fit_since(
    trigger: RecalibrationTrigger,
    alerts: Sequence[AlertState],
    changes: Sequence[CandidateChange] = (),
    served: datetime | None = None,
    *,
    calm: tuple[datetime, str],
) -> tuple[datetime, str]:
    """Say from when on rows are used, and why; without a critical alert, as when all is `calm`.

    An alert begins with the first of its branch. Of a fault that several branches show, some are
    told a window later than others, and all may be told later than the fault likeliest began. Of a
    fault from before the model itself was replaced, rows count from when the new one `served`:
    it may have been trained on those before.
    """
    if trigger.since is not None:
        return trigger.since, "since the time you gave"
    began: dict[str, AlertState] = {}
    for alert in sorted(alerts, key=lambda alert: alert.first_ordinal):
        if alert.level == "critical":
            began.setdefault(alert.node, alert)
    if not began:
        return min(calm[0], trigger.window_end), calm[1]
    first, *older = reversed(began.values())
    fault = {first.node}
    while older and first.first_ordinal - older[0].first_ordinal <= _ONE_FAULT:
        first, *older = older
        fault.add(first.node)
    opened = min(first.first_seen, trigger.window_end)
    onsets = [one.onset for one in changes if one.node in fault and one.onset is not None]
    start = min([opened, *onsets])
    newest = f", the newest of {len(began)} branches" if older else ""
    what = f"alert on branch {first.node}"
    if served is not None and start < served:
        why = f"since the version that serves first answered; the fault behind the {what}{newest} "
        return served, why + "is older"
    if start < opened:
        what = f"change behind the {what} likeliest"
    return start, f"since the {what} began{newest}"
