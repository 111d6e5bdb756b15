"""From an audit, or the records of a monitor, to what a report shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from huc_monitor._common.times import get_zone, say_span, say_time
from huc_monitor.audit.curves import ReliabilityCurve
from huc_monitor.audit.result import AuditResult
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.forecasting import (
    ASSUMPTION,
    ForecastScore,
    say_forecast,
    say_score,
    say_waiting_window,
    score_forecasts,
)
from huc_monitor.monitor.forecasting import waiting as open_forecasts
from huc_monitor.monitor.people import say_people_of
from huc_monitor.monitor.records import AlertState, AlertTransition, WindowRecord
from huc_monitor.reporting import _words
from huc_monitor.reporting._model import (
    AlertView,
    Report,
    Tolerance,
    WindowView,
    headline,
    no_columns,
    view,
)
from huc_monitor.tree import LabelTree

_MOST_FORECASTS = 3
Triple: TypeAlias = tuple[str, str, str]
Source: TypeAlias = "AuditResult | Mapping[str, Any] | WindowRecord | Iterable[WindowRecord]"


def read(
    source: Source,
    *,
    tree: LabelTree | None = None,
    tolerance: Tolerance = None,
    title: str | None = None,
    curve: ReliabilityCurve | None = None,
    max_windows: int = 60,
    forecast_scores: Mapping[str, ForecastScore] | None = None,
) -> Report:
    """Make a report of an audit, its dict, one record, or several.

    `forecast_scores` say how past forecasts did, where these are not all records.
    """
    if isinstance(source, Mapping):
        source = AuditResult.from_dict(source)
    if isinstance(source, AuditResult):
        if tree is None and source.plan is not None:
            tree = source.tree
        window = view(source, tolerance=tolerance, curve=curve, familiar=source.familiar)
        return Report(title or "Utility audit", (window,), tree)
    records = list(source) if isinstance(source, Iterable) else [source]
    for record in records:
        if not isinstance(record, WindowRecord):
            msg = (
                "`source` must be an AuditResult, its to_dict(), or WindowRecords; got "
                f"{type(record).__name__!r}."
            )
            raise InvalidInputError(msg)
    scores = score_forecasts(records) if forecast_scores is None else forecast_scores
    return _of_records(records, tree, tolerance, title, curve, max_windows, scores)


def _of_records(
    records: Sequence[WindowRecord],
    tree: LabelTree | None,
    tolerance: Tolerance,
    title: str | None,
    curve: ReliabilityCurve | None,
    max_windows: int,
    scores: Mapping[str, ForecastScore],
) -> Report:
    kept = _renamed(_newest(records))
    shown = kept[-max_windows:]
    zone = max(records, key=lambda record: record.end).time_zone if records else "UTC"
    times = [_local(time, zone) for r in shown for time in (r.start, r.end)]
    by_day = all(f"{time:%H:%M:%S}" == "00:00:00" for time in times)
    windows = [_window(record, tolerance, zone, by_day=by_day) for record in shown]
    if curve is not None and windows:
        windows[-1] = dataclasses.replace(windows[-1], curve=curve)
    last = shown[-1] if shown else None
    place = headline(windows)
    audited = None if place is None else shown[place]
    evidence = None if audited is None or audited.maintenance else audited
    name = last.monitor if last else "monitor"
    return Report(
        title or f"Utility monitor: {name}",
        tuple(windows),
        tree,
        alerts=tuple(_alerts(shown, audited, zone)),
        notices=(
            *_notices(records, shown, len(kept) - len(shown), scores, zone),
            *_last_notices(shown, windows, evidence),
        ),
        facts={} if last is None else _facts(audited or last),
        findings=() if evidence is None else evidence.findings,
        change=None if evidence is None else evidence.change,
        zone=zone,
    )


def _newest(records: Sequence[WindowRecord]) -> list[WindowRecord]:
    """Keep the last revision of each window, and leave out those still waiting for labels."""
    newest: dict[str, WindowRecord] = {}
    for record in records:
        if record.status == "pending":
            continue
        known = newest.get(record.window_id)
        if known is None or record.revision >= known.revision:
            newest[record.window_id] = record
    return sorted(newest.values(), key=lambda record: (record.ordinal, record.start))


def _renamed(records: list[WindowRecord]) -> list[WindowRecord]:
    """Give nodes of earlier versions of the tree the names they have in the newest."""
    shown: list[WindowRecord] = []
    later: list[Mapping[str, str]] = []
    for record in reversed(records):
        shown.append(_with_names(record, later[::-1]) if later else record)
        if record.tree_change is not None:
            later.append(record.tree_change["renamed"])
    return shown[::-1]


def _with_names(record: WindowRecord, changes: Sequence[Mapping[str, str]]) -> WindowRecord:
    def newest(node: str) -> str:
        for change in changes:
            node = change.get(node, node)
        return node

    def moved(items: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(dataclasses.replace(item, node=newest(item.node)) for item in items)

    audit, curve, change = record.audit, record.curve, record.change
    if audit is not None:
        entries = [{**entry, "node": newest(entry["node"])} for entry in audit["candidates"]]
        audit = {**audit, "candidates": entries}
    return dataclasses.replace(
        record,
        audit=audit,
        curve=None if curve is None else {**curve, "node": newest(curve["node"])},
        frequencies={newest(node): shares for node, shares in record.frequencies.items()},
        alerts=moved(record.alerts),
        transitions=moved(record.transitions),
        findings=moved(record.findings),
        change=None
        if change is None
        else dataclasses.replace(
            change, changes=moved(change.changes), largest=moved(change.largest)
        ),
    )


def _window(record: WindowRecord, tolerance: Tolerance, zone: str, *, by_day: bool) -> WindowView:
    about: dict[str, Any] = {
        "name": _span(record, zone, by_day=by_day),
        "tick": f"{_local(record.start, zone):{'%m-%d' if by_day else '%m-%d %H:%M'}}",
        "start": record.start,
        "ordinal": record.ordinal,
        "maintenance": record.maintenance and record.maintenance.removeprefix("for "),
    }
    result = record.result
    if result is None:
        reason = record.reason or record.status
        return WindowView(n=0.0, columns=no_columns(), reason=reason, **about)
    limits = tolerance if tolerance is not None else (record.tolerances or None)
    curve = record.curve
    changes = () if record.change is None else record.change.changes
    return view(
        result,
        tolerance=limits,
        levels=record.levels if tolerance is None else (),
        changed={item.candidate for item in changes if not item.better},
        standing={found.node for found in record.findings if found.change is None},
        curve=ReliabilityCurve.from_dict(curve) if curve else None,
        frequencies=_shares(record),
        notes=record.notes,
        new_tree=record.tree_change is not None,
        familiar=record.familiar,
        **about,
    )


def _local(time: datetime, zone: str) -> datetime:
    return time.astimezone(get_zone(zone))


def _span(record: WindowRecord, zone: str, *, by_day: bool) -> str:
    first, last = (_local(time, zone).date() for time in (record.start, record.end))
    if by_day and (last - first).days == 1:
        return f"{first}"
    return say_span(record.start, record.end, zone, exact=not by_day)


def _shares(record: WindowRecord) -> dict[str, Any]:
    """Shares of each node's children: predicted in the reference, predicted now, and observed."""
    before = {found.name: found.before for found in record.drift if found.kind == "branch"}
    shares = {}
    for node, children in record.frequencies.items():
        known = before.get(node)
        shares[node] = {
            "children": list(children),
            "reference": [known.get(child) for child in children] if known else None,
            "predicted": [share["predicted"] for share in children.values()],
            "observed": [share["observed"] for share in children.values()],
        }
    return shares


def _alerts(
    records: Sequence[WindowRecord], newest: WindowRecord | None, zone: str
) -> list[AlertView]:
    """Return a lane for every branch that was ever alerted on: open ones first, then the newest.

    A lane is led by the branch's finding, or else by its most urgent candidate of last time.
    """
    by_change = any(step.standing or step.change for r in records for step in r.transitions)
    leads = {
        node: found.candidate
        for found in reversed(newest.findings if newest is not None and by_change else ())
        for node in (found.node, *found.above, *found.below)
    }
    lanes: dict[Triple, list[str | None]] = {}
    mine: dict[Triple, set[Triple]] = {}
    said: dict[Triple, AlertTransition] = {}
    last: dict[Triple, AlertState] = {}
    for record in reversed(records):  # the newest names the lead
        for alert in sorted(record.alerts, key=lambda one: (one.level != "critical", -one.excess)):
            leads.setdefault(alert.node, alert.candidate)
            last.setdefault(alert.candidate, alert)
        for step in record.transitions:
            leads.setdefault(step.node, step.candidate)
            said.setdefault(step.candidate, step)
    for j, record in enumerate(records):
        both: tuple[AlertState | AlertTransition, ...] = (*record.alerts, *record.transitions)
        for one in both:
            key = leads[one.node]
            mine.setdefault(key, set()).add(one.candidate)
            lane = lanes.setdefault(key, [None] * len(records))
            if isinstance(one, AlertState):
                lane[j] = "critical" if "critical" in (lane[j], one.level) else one.level
    now = {alert.candidate: alert for alert in records[-1].alerts if alert.level} if records else {}
    views = []
    for key, levels in lanes.items():
        still = [now[one] for one in sorted(mine[key]) if one in now]
        found = _alert(key, tuple(levels), said.get(key), last.get(key), still, zone)
        views.append(dataclasses.replace(found, n_alerts=len(still or mine[key])))

    def urgency(alert: AlertView) -> tuple[bool, bool, int]:
        at = max((j for j, level in enumerate(alert.levels) if level), default=-1)
        return (not alert.is_open, "critical" not in alert.levels[-1:], -at)

    return sorted(views, key=urgency)


def _alert(
    key: Triple,
    levels: tuple[str | None, ...],
    step: AlertTransition | None,
    state: AlertState | None,
    still: Sequence[AlertState],
    zone: str,
) -> AlertView:
    utility, subgroup, node = key
    level = levels[-1] if levels else None
    now = level or "resolved"
    people = "".join(f" {text}" for text in say_people_of(still))
    if step is None:
        return AlertView(node, subgroup, utility, levels, "", now, people.strip())
    now_open = state if state is not None and level else None
    newest = now_open or step
    limits = ""
    is_of_step = now_open is None or now_open.last_seen == step.window_end
    if step.lower is not None and step.upper is not None and is_of_step:
        limits = f" {_words.signed_bounds(step.moment, step.lower, step.upper)}"
    since = say_time(step.first_seen, zone)
    words = (
        f"{_words.signed(newest.moment)}{limits}, tolerance {_words.plain(newest.tolerance)}; "
        f"open for {newest.n_windows} window{'s' * (newest.n_windows != 1)}."
        f"{_since_reference(step, zone)}"
        + "".join(f" {_words.quoted(hint)}" for hint in step.hints if step.change is None)
        + people
    )
    return AlertView(node, subgroup, utility, levels, since, now, words)


def _since_reference(step: AlertTransition, zone: str) -> str:
    if step.standing:
        return " Standing: about as far off as in the reference."
    return "" if step.change is None else f" {_words.change_in_short(step.change, zone)}"


def _notices(
    records: Sequence[WindowRecord],
    shown: Sequence[WindowRecord],
    left_out: int,
    scores: Mapping[str, ForecastScore],
    zone: str,
) -> list[str]:
    audited = {record.window_id for record in shown}
    waiting = [r for r in records if r.status == "pending" and r.window_id not in audited]
    notices = []
    if left_out:
        notices.append(f"{left_out} older windows are left out.")
    if waiting:
        drifted = [found.name for record in waiting for found in record.drift if found.drifted]
        moved = f" Predictions moved at: {', '.join(dict.fromkeys(drifted))}." if drifted else ""
        few = len(waiting) == 1
        notices.append(
            f"{len(waiting)} window{'' if few else 's'} still wait{'s' if few else ''} for "
            f"labels.{moved}"
        )
    for record in open_forecasts(records)[:_MOST_FORECASTS]:
        told = "; ".join(say_forecast(item) for item in record.forecasts)
        when = say_waiting_window(record, zone)
        notices.append(_words.quoted(f"Forecast for {when}, {ASSUMPTION}: {told}."))
    score = say_score(scores)
    notices += [f"{score}."] if score else []
    skipped = [record for record in shown if record.audit is None]
    if skipped:
        reasons = dict.fromkeys(record.reason or record.status for record in skipped)
        were = "window was" if len(skipped) == 1 else "windows were"
        notices.append(f"{len(skipped)} {were} not audited ({', '.join(reasons)}).")
    for record in shown:
        if record.tree_change is not None:
            notices.append(_words.quoted(_tree_notice(record, zone)))
    return notices


def _last_notices(
    shown: Sequence[WindowRecord], windows: Sequence[WindowView], evidence: WindowRecord | None
) -> list[str]:
    """Repeat the notes of the newest window, or say that it was in maintenance."""
    if not shown:
        return []
    if not windows[-1].maintenance:
        return [_words.quoted(note) for note in shown[-1].notes]
    said = f"The newest window, {windows[-1].name}, is {windows[-1].no_evidence}."
    notes = () if evidence is None else evidence.notes
    return [said, *(_words.quoted(note) for note in notes)]


def _tree_notice(record: WindowRecord, zone: str) -> str:
    """Say since when a new tree counts, and what can be compared across the change."""
    change = record.tree_change or {}
    names = [f"{old} is now {new}" for old, new in change["renamed"].items()]
    parts = [f"A new version of the tree counts from {say_time(record.start, zone)}."]
    if names:
        parts.append(f"Renamed: {', '.join(names[:5])}; history is under the new names.")
    odd = change["not_comparable"]
    if odd:
        parts.append(
            f"These branches choose among other things than before, so that their moments cannot "
            f"be compared across the change: {', '.join(odd[:5])}."
        )
    return " ".join(parts)


def _least_coverage(record: WindowRecord) -> str:
    """Name the branch that sees the smallest share of its rows; empty if all labels are leaves."""
    found = [] if record.audit is None else record.audit["candidates"]
    seen = [
        (entry["label_coverage"], entry["node"]) for entry in found if "label_coverage" in entry
    ]
    return f"{min(seen)[0]:.1%} ({min(seen)[1]})" if seen else ""


def _facts(record: WindowRecord) -> dict[str, str]:
    found = {
        "Model": " ".join(filter(None, [record.model, record.model_version])),
        "Predictions": f"{record.n_predictions:,}",
        "Label coverage": f"{record.coverage:.1%}",
        "Least label coverage of a branch": _least_coverage(record),
        "Rows set aside": f"{record.n_quarantined:,}" if record.n_quarantined else "",
        "Window id": f"{record.window_id}, revision {record.revision}",
        "Configuration": record.identity,
    }
    return {key: value for key, value in found.items() if value}
