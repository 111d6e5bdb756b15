"""What is said of one alert: where, for whom, by how much, since when, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from huc_monitor._common.safe_text import chat
from huc_monitor._common.times import say_end, say_time
from huc_monitor.audit.comparison import Comparison
from huc_monitor.monitor._amounts import (
    amount,
    bounds,
    interval,
    number,
    plain_amount,
    rounded,
    signed,
)
from huc_monitor.monitor.findings import Finding
from huc_monitor.monitor.people import say_people
from huc_monitor.monitor.records import AlertState, AlertTransition, TransitionKind
from huc_monitor.utilities import Utility

MOST_LISTED = 5
_DID = {"opened": "opened", "escalated": "escalated", "eased": "eased", "repeated": "was told"}


def describe(step: AlertTransition, alert: AlertState | None = None, zone: str = "UTC") -> str:
    """Say in a paragraph which branch is off, for whom, where, by how much, and since when.

    `alert` is the alert as it stands now: a later window than that of the step is told as well.
    """
    who = "whole population" if step.subgroup == "all" else f"subgroup {chat(step.subgroup)}"
    where = f"Branch *{chat(step.node)}* ({who}, utility *{chat(step.utility)}*)"
    size = amount(abs(step.moment), step)
    tolerance = plain_amount(step.tolerance, step)
    seen = f" First seen {say_time(step.first_seen, zone)}, open for {_windows(step.n_windows)}."
    if step.kind == "resolved":
        return f"{where}: {_calm(step, size, tolerance)}{seen}"
    direction = "understated" if step.moment > 0 else "overstated"
    text = (
        f"{where}: predicted utility {interval(step)} is {direction} by {size}{bounds(step)} per "
        f"prediction (tolerance {tolerance})"
    )
    if step.cancels_node is not None and step.cancels_moment is not None:
        text += (
            f". Branch *{chat(step.cancels_node)}* errs the other way "
            f"({signed(step.cancels_moment, step)}), so the sum over all branches (UC) shows only "
            f"{amount(step.uc, step)}"
        )
    return f"{text}.{seen}" + _because(step) + _newest(step, alert, zone)


def still_there(alert: AlertState, utility: Utility, window_id: str) -> AlertTransition:
    """Make the step of an alert whose mute is over, from what is remembered of it."""
    over = f"It was muted {alert.muted}, and is still there."
    step = _remembered("repeated", alert, utility)
    return replace(
        step,
        reasons=("estimate",) if abs(alert.moment) > alert.tolerance else alert.reasons,
        window_id=window_id,
        people=(*say_people(replace(alert, muted=None)), over),
    )


def gone(alert: AlertState, utility: Utility | None, why: str) -> AlertTransition:
    """Make the step of an alert that ends because what it is about is not tested any more."""
    return replace(_remembered("resolved", alert, utility), settings=(why,))


def _remembered(
    kind: TransitionKind, alert: AlertState, utility: Utility | None
) -> AlertTransition:
    assert alert.level is not None  # noqa: S101 - it is open
    units = None if utility is None else utility.units
    return AlertTransition(
        kind=kind,
        level=alert.level,
        utility=alert.utility,
        subgroup=alert.subgroup,
        node=alert.node,
        announced=True,
        moment=alert.moment,
        lower=alert.lower,
        tolerance=alert.tolerance,
        units=units,
        scale=1.0 if utility is None or units is None else utility.scale,
        reasons=alert.reasons,
        first_seen=alert.first_seen,
        n_windows=alert.n_windows,
        window_id="",
        window_end=alert.last_seen,
        people=tuple(say_people(alert)),
    )


def describe_change(finding: Finding, step: AlertTransition, zone: str = "UTC") -> str:
    """Say in a paragraph what changed since the reference, for whom, by how much, since when.

    `step` is that of the finding's most specific explanation.
    """
    change = finding.change
    assert change is not None  # noqa: S101 - a finding of a change has one
    who = "everywhere" if step.subgroup == "all" else chat(step.subgroup)
    low, high = (number((x or 0.0) * step.scale) for x in (change.lower, change.upper))
    ends = replace(step, interval_low=change.interval_low, interval_high=change.interval_high)
    found = change.unforeseen
    unforeseen = "" if found is None else found.say(f"*{chat(found.name)}*")
    text = f"Branch *{chat(finding.node)}*, {who}"
    if change.counted:
        text += f": {unforeseen}"
    else:
        text += (
            f" ({_utilities(finding)}): changed since the "
            f"reference by {signed(change.difference, step)} [{low}, {high}] per prediction. "
            f"Where the predicted utility is {interval(ends)}, realised minus predicted utility "
            f"was {rounded(change.before, step)} then and is {rounded(change.after, step)} now"
        )
    text += f" (newest {change.n_windows} windows together)." if change.n_windows > 1 else "."
    if change.onset_first is not None and change.onset_last is not None:
        first, last = (say_time(x, zone) for x in (change.onset_first, change.onset_last))
        text += f" It began {change.began(first, last)} (90 % confidence)."
    if unforeseen and not change.counted:
        text += f" And {unforeseen}."
    if finding.kind == "both":
        text += " The reference was beyond the tolerance there already."
    same = [f"*{chat(name)}* above it" for name in finding.above]
    same += [f"*{chat(name)}* below it" for name in finding.below]
    if same:
        shown = ", ".join(same[:MOST_LISTED])
        more = f" and {len(same) - MOST_LISTED} more" if len(same) > MOST_LISTED else ""
        text += f" It shows in {shown}{more} as well."
    return f"{text} {finding.sharing}".rstrip()


def _utilities(finding: Finding) -> str:
    names = [f"*{chat(name)}*" for name in finding.utilities[:MOST_LISTED]]
    if len(finding.utilities) == 1:
        return f"utility {names[0]}"
    more = len(finding.utilities) - len(names)
    listed = f"{', '.join(names[:-1])} and {names[-1]}" if not more else ", ".join(names)
    return f"utilities {listed}{f' and {more} more' if more else ''}"


def _newest(step: AlertTransition, alert: AlertState | None, zone: str) -> str:
    """Say how the newest window stands where the step was in an earlier one."""
    if alert is None or alert.last_seen <= step.window_end:
        return ""
    size = signed(alert.moment, step) if alert.moment else "0"
    then, now = (say_end(time, zone) for time in (step.window_end, alert.last_seen))
    return (
        f" That is the window to {then}, in which the alert {_DID[step.kind]}; in the newest one, "
        f"to {now}, it is {size}, after {_windows(alert.n_windows)} ({alert.level})."
    )


def _calm(step: AlertTransition, size: str, tolerance: str) -> str:
    """Say what is over: an estimate above the tolerance, an alarm of the e-detector, or both."""
    if step.settings:
        return (
            f"no longer tested as it was: {' and '.join(step.settings)}. The estimate is {size}"
            f"{bounds(step)} per prediction, tolerance {tolerance}."
        )
    reasons = set(step.reasons)
    if "changed" in reasons:
        return (
            f"no longer different from the reference by more than chance, now {size}"
            f"{bounds(step)} per prediction, tolerance {tolerance}."
        )
    quiet = "the e-detector's evidence against it no longer grows"
    if reasons and not reasons & {"estimate", "bound"}:
        # It never left the tolerance in a single window, so it cannot come back.
        return (
            f"{quiet}. The estimate, now {size}{bounds(step)} per prediction, was within the "
            f"tolerance of {tolerance} throughout."
        )
    text = f"back within the tolerance of {tolerance}, now {size}{bounds(step)} per prediction"
    if abs(step.moment) > step.tolerance:
        text = (
            f"no longer beyond the tolerance of {tolerance} by more than chance, now {size}"
            f"{bounds(step)} per prediction"
        )
    return f"{text}; {quiet}." if reasons & {"detector", "suspected"} else f"{text}."


def _because(step: AlertTransition) -> str:
    if step.kind == "eased":
        if step.settings:
            return f" Eased from critical to warning: {' and '.join(step.settings)}."
        if step.standing:
            return (
                " Eased from critical to warning: no change since the reference by more than "
                "chance."
            )
        return " It may be chance now: eased from critical to warning."
    if "detector" in step.reasons and "bound" not in step.reasons:
        return " This window alone could be chance; all windows so far together are not."
    if "suspected" in step.reasons:
        return " The e-detector raised an alarm and suspects this branch most."
    if step.kind == "repeated" and "bound" not in step.reasons and _is_kept(step):
        return " The e-detector raised an alarm earlier, and this window adds to its evidence."
    return ""


def _is_kept(step: AlertTransition) -> bool:
    """Tell whether the level is higher than what this window says by itself."""
    return not step.reasons or step.level == "critical"


def say_open(alert: AlertState, utility: Utility | None) -> tuple[str, str, str]:
    """Say an alert's moment at first and now, and its tolerance; in money if it has units."""
    first = alert.opened_moment
    if utility is None or utility.units is None:
        then = "" if first is None else f"{first:+.4f}"
        return then, f"{alert.moment:+.4f}", f"{alert.tolerance:.4g}"
    then = "" if first is None else signed(first, utility)
    return then, signed(alert.moment, utility), plain_amount(alert.tolerance, utility)


def say_gains(comparison: Comparison | None, utilities: Sequence[Utility]) -> str:
    """Say HUC before and after in money, of each utility that has units; empty if none has."""
    said: list[str] = []
    if comparison is None:
        return ""
    for utility in utilities:
        rows = [at for at, (name, *_) in enumerate(comparison.names) if name == utility.name]
        if utility.units is not None and rows:
            sizes = (float(x[rows].max()) for x in (comparison.before, comparison.after))
            before, after = (amount(size, utility) for size in sizes)
            said.append(f"HUC of utility {chat(utility.name)}: {before} before, {after} after")
    return "; ".join(said)


def _windows(n: int) -> str:
    return "1 window" if n == 1 else f"{n} windows"
