"""Branches that changed, window by window, against what the reference showed."""

from __future__ import annotations

from collections.abc import Sequence

from huc_monitor.monitor.change import CandidateChange
from huc_monitor.monitor.findings import Finding
from huc_monitor.reporting import _words
from huc_monitor.reporting._drawing import (
    Group,
    Line,
    Mark,
    Path,
    Picture,
    Rect,
    Scale,
    Text,
    fitted,
    labels_along,
    points,
    scale,
    ticks,
)
from huc_monitor.reporting._model import Report, WindowView

_LEFT, _RIGHT, _HEAD, _PANEL, _GAP = 8.0, 900.0, 54.0, 176.0, 26.0
_NARROW = 300.0  # what a telephone shows of it
Point = tuple[int, float, float | None]


def tracks(report: Report, *, max_findings: int = 6) -> Picture | None:
    """Draw every changed branch over windows; None where nothing changed or was kept.

    Moments are those on the range of predicted utility that changed, with the bounds of every
    window's own audit, which hold on all ranges at once.
    """
    found = [(one, one.change) for one in report.changed if one.change and one.change.track]
    shown = found[:max_findings]
    if not shown:
        return None
    windows = report.windows
    x = scale(-0.5, len(windows) - 0.5, _LEFT, _RIGHT)
    marks: list[Mark] = []
    y = 4.0
    for one, change in shown:
        marks += _panel(one, change, report, x, y)
        y += _PANEL + _GAP
    y -= _GAP - 18
    marks += labels_along([window.tick for window in windows], x, y)
    return Picture(
        960,
        y + 12,
        tuple(marks),
        "Branches that changed, against the reference",
        " ".join(
            f"{one.node}, {_words.for_whom(one)}: {_words.change_line(change, report.zone)}"
            for one, change in shown
        ),
    )


def _panel(
    one: Finding, change: CandidateChange, report: Report, x: Scale, top: float
) -> list[Mark]:
    windows = report.windows
    series = _series(change, windows)
    bottom, radius = top + _PANEL, (not change.counted and change.before_radius) or 0.0
    ends = [change.before - radius, change.before + radius, 0.0]
    ends += [value + sign * (r or 0.0) for _, value, r in series for sign in (-1, 1)]
    room = 0.06 * (max(ends) - min(ends)) or 0.01
    y = scale(min(ends) - room, max(ends) + room, bottom, top + _HEAD)
    band = f"; reference {_words.signed(change.before)} ± {_words.plain(radius)}" if radius else ""
    name, about = f"{one.node}, {_words.for_whom(one)}", f"utility {change.utility}{band}"
    if change.counted and change.unforeseen is not None:
        about = f"share of rows that were {change.unforeseen.name}, unforeseen"
    began = _words.onset(change, report.zone)
    marks: list[Mark] = [
        # At the right end, which a narrow page shows first.
        Text(_RIGHT, top + 12, fitted(name, _NARROW, "name"), "name", "end"),
        Text(_RIGHT, top + 28, fitted(about, _NARROW, "note"), "note", "end"),
        Text(_RIGHT, top + 45, f"began {began}" if began else "", "alarm", "end"),
        *_onset(change, windows, x, top + _HEAD, bottom),
        Rect(
            x.start, y(ends[1]), x.stop - x.start, max(y(ends[0]) - y(ends[1]), 1.5), "quiet-band"
        ),
    ]
    for value in ticks(y.low, y.high, 3):
        look = "zero" if value == 0 else "grid"
        marks.append(Line(x.start, y(value), x.stop, y(value), look))
        marks.append(Text(x.stop + 6, y(value) + 4, _words.signed(value, 2), "note"))
    marks.append(Line(x.start, y(change.before), x.stop, y(change.before), "quiet"))
    return [*marks, *_moments(series, windows, x, y)]


def _series(change: CandidateChange, windows: Sequence[WindowView]) -> list[Point]:
    """Place, moment and radius of every window on the page that was kept."""
    place = {window.start: j for j, window in enumerate(windows)}
    found = []
    for start, value in change.track:
        j = place.get(start)
        if j is None:
            continue
        # The share of unforeseen labels has no bounds of its own.
        mine = None if change.counted else windows[j].find(*change.candidate[::-1])
        known = mine is not None and mine.lower is not None and mine.upper is not None
        found.append((j, value, 0.5 * (mine.upper - mine.lower) if known else None))  # type: ignore[union-attr,operator]
    return found


def _onset(
    change: CandidateChange, windows: Sequence[WindowView], x: Scale, top: float, bottom: float
) -> list[Mark]:
    """Shade the windows with which the change may have begun, and mark the likeliest."""
    first, last = change.onset_first, change.onset_last
    if first is None or last is None:
        return []
    mine = [j for j, one in enumerate(windows) if one.start and first <= one.start <= last]
    if not mine:
        return []
    left, right = x(mine[0] - 0.5), x(mine[-1] + 0.5)
    marks: list[Mark] = [Rect(left, top, right - left, bottom - top, "shaded")]
    at = [j for j in mine if windows[j].start == change.onset]
    return [*marks, *(Line(x(j - 0.5), top, x(j - 0.5), bottom, "limit") for j in at)]


def _moments(
    series: Sequence[Point], windows: Sequence[WindowView], x: Scale, y: Scale
) -> list[Mark]:
    marks: list[Mark] = [
        Line(x(j), y(value - radius), x(j), y(value + radius), "whisker")
        for j, value, radius in series
        if radius is not None
    ]
    if len(series) > 1:
        line = points([x(j) for j, _, _ in series], [y(value) for _, value, _ in series])
        marks.append(Path(line, "strong"))
    return marks + [
        Group(
            (Rect(x(j) - 3.5, y(value) - 3.5, 7, 7, "dot", 3.5),),
            title=f"{windows[j].name}: {_words.signed(value)}",
        )
        for j, value, _ in series
    ]
