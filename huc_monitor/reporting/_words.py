"""Numbers and findings in words, the same everywhere in a report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from huc_monitor._common.times import say_time
from huc_monitor.monitor.change import CandidateChange
from huc_monitor.monitor.findings import Finding
from huc_monitor.reporting._model import CONFIDENCE, GLYPH, CandidateView, Report, WindowView

MINUS = "\u2212"
NONE = "\u2013"


def signed(value: float | None, digits: int = 3) -> str:
    """Return a number with its sign, and a real minus.

    Examples
    --------
    >>> signed(0.0432), signed(0.00001), signed(-0.5) == MINUS + "0.500"
    ('+0.043', '0.000', True)
    """
    if value is None:
        return NONE
    text = f"{value:+.{digits}f}"
    if not text.strip("+-0."):
        return text[1:]
    return text.replace("-", MINUS)


def whole(value: float) -> str:
    """Return a large number with its sign, in whole units.

    Examples
    --------
    >>> whole(1234567.8), whole(-3.2) == MINUS + "3"
    ('+1,234,568', True)
    """
    return f"{value:+,.0f}".replace("-", MINUS)


def compact(value: float) -> str:
    """Return a signed number for a narrow cell.

    Examples
    --------
    >>> compact(0.0432), compact(1.2), compact(0.0), compact(-0.5) == MINUS + ".500"
    ('+.043', '+1.20', '0', True)
    """
    text = signed(value)
    if not text.strip("0."):
        return "0"
    return signed(value, 2) if abs(value) >= 1 else text.replace("0.", ".", 1)


def plain(value: float | None, digits: int = 3) -> str:
    """Return a number without a plus."""
    return NONE if value is None else f"{value:.{digits}f}".replace("-", MINUS)


def bounds(found: CandidateView) -> str:
    """Return the bounds on the moment, on its own side of zero."""
    return signed_bounds(found.moment, found.lower, found.upper)


def signed_bounds(moment: float, lower: float | None, upper: float | None) -> str:
    """Give bounds on the size of a moment its sign.

    Examples
    --------
    >>> (
    ...     signed_bounds(0.03, 0.01, 0.05),
    ...     signed_bounds(-0.03, 0, 0.05) == f"[{MINUS}0.050, 0.000]",
    ... )
    ('[+0.010, +0.050]', True)
    """
    if lower is None or upper is None:
        return ""
    low, high = (lower, upper) if moment >= 0 else (-upper, -lower)
    return f"[{signed(low)}, {signed(high)}]"


def interval(found: CandidateView) -> str:
    """Return the range of predicted utility."""
    if found.low is None or found.high is None:
        return "no interval"
    low, high = plain(found.low), plain(found.high)
    return low if low == high else f"{low} to {high}"


def status(found: CandidateView) -> str:
    """Say how a moment compares with its tolerance."""
    if found.tolerance is None:
        return "more than chance" if found.status == "sure" else "may be zero"
    if found.why:
        return {
            "changed": "changed since the reference",
            "standing": "above tolerance, as in the reference",
        }[found.why]
    if by_evidence(found):
        sure = "off by more than chance" if found.status == "sure" else "suspected"
        return f"{sure} by the evidence of all windows"
    return {
        "sure": "above tolerance by more than chance",
        "possible": "above tolerance, may be chance",
        "within": "within tolerance",
    }[found.status]


def by_evidence(found: CandidateView) -> bool:
    """Whether the e-detector speaks against it, and the window's own bounds do not."""
    if found.tolerance is None or found.status == "within" or found.why:
        return False
    size = found.lower if found.status == "sure" else abs(found.moment)
    return size is not None and size <= found.tolerance


def glyph(found: CandidateView) -> str:
    """Return the sign of a status, with a space after it; empty when within tolerance."""
    sign = GLYPH[found.status]
    return f"{sign} " if sign else ""


def quoted(text: str) -> str:
    """Put names that a message marks by asterisks in quotation marks.

    Examples
    --------
    >>> quoted("Predictions moved at *attack*.")
    'Predictions moved at “attack”.'
    """
    return re.sub(r"\*([^*\n]+)\*", r"“\1”", text)


def whom(subgroup: str) -> str:
    """Name a subgroup inside a sentence."""
    return "everyone" if subgroup == "all" else f"subgroup {subgroup}"


def one_line(found: CandidateView) -> str:
    """Say everything about a finding in one line."""
    limits = bounds(found)
    return (
        f"{found.node}: {signed(found.moment)}{f' {limits}' if limits else ''}, {status(found)}; "
        f"{whom(found.subgroup)}, utility {found.utility}, predicted utility {interval(found)}"
    )


def verdict(report: Report) -> str:
    """Say in one line whether anything is wrong in the newest window."""
    window = report.latest
    if window is None:
        return "No window has been audited yet."
    if window.maintenance:
        return "Nothing is known: all audited windows were in maintenance."
    worst = window.worst
    if worst is None:
        return "There is nothing to audit: no branch of this tree can change any of the utilities."
    return _changed(report) if report.by_change else _exceeded(window, worst)


def _exceeded(window: WindowView, worst: CandidateView) -> str:
    """Say which branches exceed their tolerance, and how certain that is."""
    by_node = window.worst_by("node").values()
    told = [found for found in by_node if by_evidence(found)]
    sure = sum(found.status == "sure" for found in by_node if found not in told)
    possible = sum(found.status == "possible" for found in by_node if found not in told)
    if worst.tolerance is None:
        if not sure:
            return "No branch is off by more than chance."
        return f"{_branches(sure)} off by more than chance; no tolerance is set."
    if sure:
        return f"{_branches(sure)} above tolerance by more than chance."
    if told:
        return _told(told)
    if possible:
        return f"{_branches(possible)} above tolerance, but it may be chance."
    if worst.upper is None:
        return "Every branch is within tolerance."
    above = [f for f in window.worst_by("node").values() if (f.upper or 0.0) > (f.tolerance or 0.0)]
    if above:
        most = max(found.upper or 0.0 for found in above)
        return f"No branch exceeds its tolerance, but {plain(most)} cannot be ruled out."
    return "Every branch is shown to be within tolerance."


def _changed(report: Report) -> str:
    """Say what changed since the reference, or that nothing did, and what stands."""
    changed, stands = report.changed, len(report.standing)
    if changed:
        first = f"{changed[0].node}, {for_whom(changed[0])}"
        if len(changed) == 1:
            return f"One branch changed since the reference: {first}."
        return f"{len(changed)} branches changed since the reference, most clearly {first}."
    open_alerts = [alert.node for alert in report.alerts if alert.levels[-1] == "critical"]
    if open_alerts:
        return f"No change in the newest window; the alert on {open_alerts[0]} is still open."
    if not stands:
        return "Nothing changed by more than chance since the reference."
    those = f"{report.standing[0].node} stands" if stands == 1 else f"{stands} branches stand"
    return f"Nothing changed by more than chance since the reference; {those} above tolerance."


def for_whom(found: Finding) -> str:
    """Say for whom a branch changed."""
    subgroup = found.subgroups[0]
    return "everywhere" if subgroup == "all" else f"for {subgroup}"


def change_line(change: CandidateChange, zone: str = "UTC") -> str:
    """Say how far a moment moved since the reference, and since when."""
    low, high = signed(change.lower), signed(change.upper)
    text = (
        f"Changed by {signed(change.difference)} [{low}, {high}] per prediction since the "
        f"reference: realised minus predicted utility was {signed(change.before)} then and is "
        f"{signed(change.after)} now"
    )
    found = change.unforeseen
    if found is not None:
        clause = found.say(f"“{found.name}”")
        text = clause if change.counted else f"{text}; {clause}"
    text += f" (newest {change.n_windows} windows together)." if change.n_windows > 1 else "."
    began = onset(change, zone)
    return f"{text} It began {began} (90 % confidence)." if began else text


def change_in_short(change: CandidateChange, zone: str) -> str:
    """Say that a branch changed, by how much, and since when."""
    size = "" if change.counted else f" by {signed(change.difference)}"
    began = onset(change, zone)
    return f"Changed{size} since the reference{f', beginning {began}' if began else ''}."


def onset(change: CandidateChange, zone: str) -> str:
    """Say with which windows a change may have begun; empty if it was not dated."""
    if change.onset_first is None or change.onset_last is None:
        return ""
    return change.began(*(say_time(x, zone) for x in (change.onset_first, change.onset_last)))


def onset_span(change: CandidateChange, zone: str) -> str:
    """Say how sure the day on which a change began is, where the day itself is told."""
    span = onset(change, zone)
    exact = span.startswith("with") and not change.or_earlier
    return "90 % confidence" if exact else span


def part_of_it(found: Finding) -> str:
    """Name the other subgroups, utilities and branches that say the same."""
    names = [f"utility “{name}”" for name in found.utilities[1:]]
    names += [f"“{name}” above it" for name in found.above]
    names += [f"“{name}” below it" for name in found.below]
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    same = f"It shows in {', '.join(names[:6])}{more} as well." if names else ""
    return " ".join(filter(None, [same, found.sharing]))


def told(found: Finding, zone: str = "UTC") -> list[str]:
    """Say all that is known of one finding."""
    if found.change is None:
        return [stands([found])]
    head = f"{for_whom(found).capitalize()}, utility “{found.utilities[0]}”."
    both = "The reference was above the tolerance there already." if found.kind == "both" else ""
    texts = [head, change_line(found.change, zone), both, part_of_it(found)]
    return [*filter(None, texts), *(quoted(cause) for cause in found.causes)]


def stands(found: Sequence[Finding]) -> str:
    """Say what is above the tolerance as it was in the reference, in one line."""
    names = ", ".join(f"“{one.node}”" for one in found[:6])
    more = f" and {len(found) - 6} more" if len(found) > 6 else ""
    verb = "are" if len(found) > 1 else "is"
    return f"{names}{more} {verb} above the tolerance, about as far as in the reference."


def _told(found: Sequence[CandidateView]) -> str:
    """Say what the e-detector knows of branches whose bounds in this window do not tell."""
    sure = sum(one.status == "sure" for one in found)
    how = "off by more than chance" if sure else "suspected"
    return f"{_branches(sure or len(found))} {how}, by the evidence of all windows."


def _branches(count: int) -> str:
    return "One branch is" if count == 1 else f"{count} branches are"


def story(report: Report) -> list[str]:
    """Say where, for whom, how much and how certain that is, in a few sentences."""
    window = report.latest
    worst = None if window is None else window.worst
    if window is None or worst is None or window.maintenance:
        return []
    if report.by_change:
        return [_adds_up(window)] if (window.uc or 0.0) > 1.5 * (window.huc or 0.0) else []
    if worst.moment == 0:
        return ["Every moment is exactly zero."]
    return [_what(worst), _how_sure(worst, window.facts), _cancelled(window, worst)]


def _adds_up(window: WindowView) -> str:
    return (
        f"Errors of the branches add up: over the whole tree the gap is {plain(window.uc)} (UC), "
        f"where no branch by itself has more than {plain(window.huc)} (HUC)."
    )


def amount(found: CandidateView, value: float | None) -> str:
    """Return a number of a candidate in the units of its utility, where it has some."""
    if value is None or not found.in_units or not found.moment:
        return plain(value)
    return f"{plain(value * found.in_units / found.moment, 2)} {found.units}"


def _what(worst: CandidateView) -> str:
    size = plain(abs(worst.moment))
    where = interval(worst)
    if worst.in_units is not None:
        size = f"{abs(worst.in_units):,.4g} {worst.units} ({size})"
        low, high = (amount(worst, value) for value in (worst.low, worst.high))
        where = f"{low} to {high}"
    start = "The largest gap: at branch" if worst.status == "within" else "At branch"
    return (
        f"{start} “{worst.node}”, predictions {worst.direction} the utility “{worst.utility}” "
        f"for {whom(worst.subgroup)} by {size} per prediction of the "
        f"window, where the predicted utility is {where} ({worst.n:,.0f} rows)."
    )


def _how_sure(worst: CandidateView, facts: Mapping[str, str]) -> str:
    if worst.lower is None or worst.upper is None:
        return "The audit was run without bounds, so this says nothing about chance."
    level = facts.get(CONFIDENCE, "")
    sure = f" with confidence {level} for all branches, subgroups and intervals together"
    tolerance = amount(worst, worst.tolerance)
    against = "" if worst.tolerance is None else f"; the tolerance is {tolerance}"
    return (
        f"Its true size lies between {amount(worst, worst.lower)} and {amount(worst, worst.upper)}"
        f"{sure if level else ''}{against}."
    )


def _cancelled(window: WindowView, worst: CandidateView) -> str:
    here = window.beside(worst)
    left = abs(sum(moment for _, moment in here))
    if left >= 0.75 * abs(worst.moment):
        return (
            f"The branches' errors mostly add up: over the whole tree the largest gap (UC) is "
            f"{plain(window.uc)}, before summing over branches (HUC) {plain(window.huc)}."
        )
    others = [(node, moment) for node, moment in here if moment * worst.moment < 0]
    against = ""
    if others:
        node, moment = max(others, key=lambda one: abs(one[1]))
        against = f", mostly at “{node}” ({signed(moment)})"
    return (
        f"Other branches err the other way{against}, so a check of the whole tree sees only "
        f"{plain(left)} of {plain(abs(worst.moment))} in this range."
    )
