"""The text of messages: one per check, with its alerts grouped by level."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from huc_monitor._common.safe_text import chat, chat_line
from huc_monitor._common.times import get_zone, say_end, say_time
from huc_monitor.monitor._amounts import (
    amount,
    interval,
    plain_amount,
)
from huc_monitor.monitor.describing import MOST_LISTED, describe, describe_change
from huc_monitor.monitor.findings import (
    Finding,
    branches_above,
    certainty,
    find_changed,
    say_standing,
)
from huc_monitor.monitor.ports.notifier import Message, message_key
from huc_monitor.monitor.records import (
    AlertState,
    AlertTransition,
    DriftFinding,
)
from huc_monitor.sources import REPEAT_REASONS, WindowData
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility

_HEADS = {"critical": "CRITICAL", "warning": "WARNING", "resolved": "RESOLVED"}


@dataclass(frozen=True, slots=True)
class NextSteps:
    """Where people go on from a message.

    Attributes
    ----------
    config : str or None
        The configuration file, as commands name it; None without one.
    page : str or None
        Address of a page that shows the monitor.
    recalibrates : bool
        Whether a recalibration can be asked for.
    """

    config: str | None = None
    page: str | None = None
    recalibrates: bool = False


def compose(
    transitions: Sequence[AlertTransition],
    *,
    drift: Sequence[DriftFinding] = (),
    warnings: Sequence[str] = (),
    notes: Sequence[str] = (),
    standing: Sequence[str] = (),
    limits: Mapping[str, float] | None = None,
    alerts: Sequence[AlertState] = (),
    monitor: str,
    identity: str,
    until: datetime,
    early: datetime | None = None,
    status: str | None = None,
    tree: LabelTree | None = None,
    place: NextSteps = NextSteps(),
    zone: str = "UTC",
) -> Message | None:
    """Group what a check has to tell into one message; None if there is nothing.

    `until` is the end of the newest window of which the message speaks, `early` that of the newest
    one that waits for its labels, which the title of a message of drift alone names.

    `status` is where the monitor stands after the check: a message may speak of resolved alerts
    alone while others stay open. `alerts` are those open then: after a check of several windows,
    the newest one is told beside the one that changed an alert.

    Of several steps of one alert the last one is told, if any of them is to be announced. Changes
    since the reference are told branch by branch; `tree` says which branch lies above which. The
    largest findings come first, and after five of a kind the rest is counted. `standing` are
    branches beyond one of `limits`, to be told unless the same message tells that they changed.
    `warnings` say what does not come any more. `place` is where to go on, which ends the message
    of an alert. Times are told in the time zone `zone`.
    """
    announced = {step.candidate for step in transitions if step.announced}
    latest = {step.candidate: step for step in transitions if step.candidate in announced}
    groups: dict[str, list[AlertTransition]] = {"critical": [], "warning": [], "resolved": []}
    for step in latest.values():
        groups["resolved" if step.kind == "resolved" else step.level].append(step)
    newest: dict[str, datetime] = {}
    for step in latest.values():
        if step.change is not None:
            newest[step.node] = max(step.window_end, newest.get(step.node, step.window_end))
    # What one window says of a branch is told, the newest's: changes of several are not comparable.
    changed = [
        step.change
        for step in latest.values()
        if step.change is not None and step.window_end == newest[step.node]
    ]
    accepted = {step.candidate: step.tolerance for step in latest.values()}
    findings = [
        replace(finding, causes=latest[finding.candidate].hints)
        for finding in find_changed(changed, accepted, branches_above(tree))
    ]
    moved = {node for one in findings for node in (one.node, *one.above, *one.below)}
    stand = [node for node in standing if node not in moved]
    largest = [max(abs(x.moment), abs(x.opened_moment or 0)) for x in alerts if x.node in stand]
    size = max(largest, default=0.0)
    notes = [*notes, *([say_standing(stand, limits or {}, size)] if stand else [])]
    if not latest and not drift and not warnings and not notes:
        return None
    over = groups["resolved"]
    groups = {kind: _by_branch(steps, findings) for kind, steps in groups.items()}
    elsewhere = {step.candidate: _elsewhere(step, over, alerts) for step in groups["resolved"]}
    now = {alert.candidate: alert for alert in alerts}
    told = {finding.candidate: finding for finding in findings}
    blocks = [
        _block(kind, steps, now, told, elsewhere, zone) for kind, steps in groups.items() if steps
    ]
    if warnings:
        blocks.append("\n".join(["NO NEW DATA", *map(chat_line, warnings)]))
    if drift:
        blocks.append(_drift_block(drift))
    muted = [alert for alert in alerts if alert.muted is not None]
    if muted:
        blocks.append(_muted_block(muted))
    if notes:
        blocks.append("\n".join(["NOTE", *map(chat_line, notes)]))
    open_now = groups["critical"] or groups["warning"]
    if open_now and (place.config is not None or place.page is not None):
        blocks.append(_next_block(_ranked(open_now)[0], place, zone))
    sizes = {kind: len(steps) for kind, steps in groups.items()}
    sizes["warning"] += len(warnings)
    counts = [f"{n} {kind}" for kind, n in sizes.items() if n]
    counts += ["drift"] if drift else []
    level = next((kind for kind, n in sizes.items() if n), "drift" if drift else "note")
    seen, end = ("predictions", early) if level == "drift" and early else ("data", until)
    when = f"{seen} to {say_time(end, zone, exact=True)}"
    title = f"{chat(monitor)}: {', '.join(counts) or 'note'} ({when})"
    parts = [f"{step.kind} {step.window_id} {'/'.join(step.candidate)}" for step in latest.values()]
    parts += [f"drift {item.kind} {item.name}" for item in drift] + [
        say_time(until, exact=True),
        *warnings,
        *notes,
    ]
    data: Mapping[str, Any] = {
        "monitor": monitor,
        "identity": identity,
        "until": until.isoformat(),
        "status": status,
        "transitions": [step.to_dict() for step in latest.values()],
        **({"findings": [finding.to_dict() for finding in findings]} if findings else {}),
        "drift": [item.to_dict() for item in drift],
        **({"warnings": list(warnings)} if warnings else {}),
        "notes": list(notes),
    }
    return Message(message_key(identity, parts), level, title, "\n\n".join(blocks), data)


def say_repeats(data: WindowData) -> str | None:
    """Say what came more than once in a window, and what was done about it; None if nothing did."""
    parts = [f"{n:,} {what}" for what, n in count_repeats(data).items()]
    return f"{'; '.join(parts)}, of {data.n_labelled:,} labelled rows." if parts else None


def say_together(utility: Utility, gap: float, radius: float, limit: float) -> str:
    """Say that small errors of branches point the same way, as an overconfident model's do."""
    way = "understated" if gap > 0 else "overstated"
    return (
        f"Over the whole tree, predicted utility *{chat(utility.name)}* is {way} by "
        f"{amount(abs(gap), utility)} per prediction (give or take {amount(radius, utility)}; "
        f"tolerance {plain_amount(limit, utility)}), though no branch by itself exceeds the "
        "tolerance: their errors point the same way, as those of an overconfident model do. This "
        "is told once. To end it, recalibrate (huc-monitor recalibrate)."
    )


def count_repeats(data: WindowData) -> dict[str, int]:
    """Count what came more than once in a window, by what was done about it."""
    found = {"repeated rows left out": data.n_duplicate_ids}
    aside = {name: n for name, n in data.bad_reasons.items() if name in REPEAT_REASONS}
    found |= {f"rows set aside ({name})": n for name, n in aside.items()}
    found["labels replaced by later, different ones"] = data.n_changed_labels
    return {what: n for what, n in found.items() if n}


def say_untimed(n: int) -> str:
    """Say how many rows of a log are in no window for want of a time."""
    return f"{n:,} rows of the log have no time that can be read and are in no window"


def _by_branch(steps: list[AlertTransition], findings: list[Finding]) -> list[AlertTransition]:
    """Keep one step of every branch that changed, or that ends, and all others."""
    leads = {finding.candidate for finding in findings}
    led: dict[tuple[str, str], AlertTransition] = {}
    for step in steps:
        if step.change is None and _is_of_branch(step):
            # The candidate that people heard of last, or else the first.
            known = led.setdefault((step.node, step.kind), step)
            if step.led_at is not None and (known.led_at is None or step.led_at > known.led_at):
                led[step.node, step.kind] = step
    return [
        step
        for step in steps
        if (
            step.candidate in leads
            if step.change is not None
            else not _is_of_branch(step) or led[step.node, step.kind] is step
        )
    ]


def _is_of_branch(step: AlertTransition) -> bool:
    """Whether people heard of a step's branch as one, not candidate by candidate."""
    return "changed" in step.reasons or (step.kind == "resolved" and step.standing)


def _elsewhere(
    step: AlertTransition, over: Sequence[AlertTransition], alerts: Sequence[AlertState]
) -> str:
    """Say where else a branch's alerts ended, and where they have not."""
    if not _is_of_branch(step):
        return ""
    ended = {one.subgroup for one in over if one.node == step.node and _is_of_branch(one)}
    n, text = len(ended - {step.subgroup}), ""
    if n:
        text = f" It ended in {n} more subgroup{'s' * (n > 1)} too."
    still = [
        f"{'whole population' if alert.subgroup == 'all' else chat(alert.subgroup)} "
        f"({chat(alert.utility)}, {alert.level})"
        for alert in alerts
        if alert.node == step.node
    ]
    if still:
        more = f" and {len(still) - MOST_LISTED} more" if len(still) > MOST_LISTED else ""
        text += f" Still open of this branch: {', '.join(still[:MOST_LISTED])}{more}."
    return text


def _block(
    kind: str,
    steps: list[AlertTransition],
    standing: Mapping[tuple[str, str, str], AlertState],
    findings: Mapping[tuple[str, str, str], Finding],
    elsewhere: Mapping[tuple[str, str, str], str],
    zone: str,
) -> str:
    ranked = _ranked(steps)
    shown = ranked[:MOST_LISTED]
    times = Counter(hint for step in shown for hint in step.hints)
    lines = [_HEADS[kind]]
    for step in shown:
        finding = findings.get(step.candidate)
        lines.append(
            describe(step, standing.get(step.candidate), zone) + elsewhere.get(step.candidate, "")
            if finding is None
            else describe_change(finding, step, zone)
        )
        lines += [f"  - {hint}" for hint in step.hints if times[hint] == 1]
        lines += [f"  - {chat_line(said)}" for said in step.people]
    for hint, n in times.items():
        if n > 1:
            lines.append(f"For {'all' if n == len(shown) else n} of these: {hint}")
    if len(ranked) > MOST_LISTED:
        lines.append(f"And {len(ranked) - MOST_LISTED} more.")
    return "\n".join(lines)


def _ranked(steps: list[AlertTransition]) -> list[AlertTransition]:
    """Sort by certainty of the change, then by how far the tolerance is exceeded."""
    return sorted(
        steps, key=lambda step: (-certainty(step.change), -abs(step.moment) + step.tolerance)
    )


def _next_block(worst: AlertTransition, place: NextSteps, zone: str) -> str:
    """Say what to do about the worst alert: which rows, which commands, which page."""
    at = worst.change or worst
    ends = replace(worst, interval_low=at.interval_low, interval_high=at.interval_high)
    who = "all rows" if worst.subgroup == "all" else f"rows of {chat(worst.subgroup)}"
    rows = f"{who} in the window to {say_end(worst.window_end, zone)}"
    range_ = f"a predicted utility *{chat(worst.utility)}* of {interval(ends)}"
    which = f"with {range_}"
    if worst.change is not None and worst.change.counted and worst.change.unforeseen is not None:
        which = f"that were *{chat(worst.change.unforeseen.name)}*"
    lines = ["NEXT", f"Look at {rows} {which}."]
    if place.page is not None:
        lines.append(f"Page: {chat(place.page)}")
    if place.config is None:
        return "\n".join(lines)
    same = chat(worst.node) == worst.node
    about = f" --branch {shlex.quote(worst.node)}" if same else " --all"
    given = "" if place.config == "huc.yaml" else f" --config {shlex.quote(place.config)}"
    verbs = {"Look at it": f"report{given} --open"}
    began = None if worst.change is None else worst.change.onset_first
    if began is not None:
        since = say_time(began, zone).removesuffix(f" {began.astimezone(get_zone(zone)):%Z}")
        verbs["Find for whom"] = f"discover{given} --since {since.replace(' ', 'T')}"
    verbs |= {
        "Acknowledge it": f"ack{given}{about}",
        "Mute it": f"mute{given}{about} --until friday",
    }
    verbs |= {"Correct the model": f"recalibrate{given}"} if place.recalibrates else {}
    lines += [f"  - {why}: huc-monitor {command}" for why, command in verbs.items()]
    return "\n".join(lines)


def _muted_block(alerts: Sequence[AlertState]) -> str:
    """Count the open alerts of which nobody is told, branch by branch."""
    told: dict[tuple[str, str], int] = {}
    for alert in alerts:
        key = alert.node, str(alert.muted)
        told[key] = told.get(key, 0) + 1
    lines = [f"MUTED ({len(alerts)} open)"]
    lines += [
        f"  - *{chat(node)}* {chat_line(why)}{f' ({n} alerts)' if n > 1 else ''}."
        for (node, why), n in list(told.items())[:MOST_LISTED]
    ]
    if len(told) > MOST_LISTED:
        lines.append(f"And {len(told) - MOST_LISTED} more.")
    return "\n".join(lines)


def _drift_block(drift: Sequence[DriftFinding]) -> str:
    why = "Labels are not there yet, so no error is known. What moved since the reference:"
    lines = ["DRIFT", why]
    whose = next((item.whose for item in drift if item.whose), "")
    if whose:
        why = "Another version predicts otherwise without any fault: each of these is told once."
        lines.append(f"{whose} {why}")
    lines += [f"  - {_drifted(item)}" for item in drift[:MOST_LISTED]]
    if len(drift) > MOST_LISTED:
        lines.append(f"And {len(drift) - MOST_LISTED} more.")
    return "\n".join(lines)


def _drifted(item: DriftFinding) -> str:
    how_far = f"distance {item.distance:.3f}, at least {item.lower:.3f}"
    if item.kind == "branch":
        told = ", ".join(
            f"*{chat(name)}* {share:.1%} to {item.after[name]:.1%}"
            for name, share in item.before.items()
        )
        return f"predicted split under *{chat(item.name)}*: {told} ({how_far})."
    if item.kind == "scores":
        old, new = item.before["median"], item.after["median"]
        return f"predicted utility *{chat(item.name)}*: median {old:.3f} to {new:.3f} ({how_far})."
    old, new = item.before["share"], item.after["share"]
    return f"subgroup {chat(item.name)}: {old:.1%} to {new:.1%} of the rows ({how_far})."
