"""Charts of one window: bars of moments, the cancellation waterfall, the reliability curve."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from huc_monitor.audit.curves import ReliabilityCurve
from huc_monitor.reporting import _words
from huc_monitor.reporting._drawing import (
    Line,
    Mark,
    Path,
    Picture,
    Rect,
    Scale,
    Text,
    bar,
    fitted,
    points,
    scale,
    ticks,
    whisker,
)
from huc_monitor.reporting._looks import bar_tone
from huc_monitor.reporting._model import CandidateView, WindowView

_WIDTH = 460.0  # narrow, so that its words can be read on a phone
_NAMES = 158.0
_ROW = 26.0
_LEFT = 46.0


def moment_bars(window: WindowView, *, max_nodes: int = 20) -> Picture:
    """Draw each branch's worst moment with its bounds, the largest first."""
    found = sorted(window.worst_by("node").values(), key=lambda f: -abs(f.moment))
    shown = found[:max_nodes]
    reach = max([f.upper or abs(f.moment) for f in shown] + [f.scale for f in shown] + [1e-6])
    x = scale(-reach, reach, _NAMES, _WIDTH - 60)
    height = _ROW * len(shown) + 34
    marks: list[Mark] = [*_columns(x, 4, height - 28, reach)]
    tolerances = {f.tolerance for f in shown} - {None}
    if len(tolerances) == 1:
        limit = float(tolerances.pop() or 0.0)
        marks += [Line(x(s * limit), 4, x(s * limit), height - 28, "limit") for s in (-1, 1)]
    for i, item in enumerate(shown):
        y = 6 + i * _ROW
        marks.append(
            Text(_NAMES - 12, y + 16, fitted(item.node, _NAMES - 20, "label"), "label", "end")
        )
        tone = bar_tone(item.moment, item.scale)
        marks.append(bar(x, 0.0, item.moment, y + 3, _ROW - 8, tone))
        if item.lower is not None and item.upper is not None:
            sign = -1 if item.moment < 0 else 1
            marks += whisker(x, sign * item.lower, sign * item.upper, y + _ROW / 2 - 1)
        number = f"{_words.glyph(item)}{_words.signed(item.moment)}"
        marks.append(Text(_WIDTH - 2, y + 16, number, "small", "end"))
    left = len(found) - len(shown)
    return Picture(
        _WIDTH,
        height,
        tuple(marks),
        "Worst moment of each branch, with bounds",
        "; ".join(map(_words.one_line, shown[:8])) + (f"; {left} more" if left else ""),
    )


def _columns(x: Scale, top: float, bottom: float, reach: float) -> list[Mark]:
    """Draw vertical grid lines with signed labels below."""
    marks: list[Mark] = []
    values = ticks(max(x.low, -reach), min(x.high, reach), 4)
    digits = _digits(values)
    for value in values:
        marks.append(Line(x(value), top, x(value), bottom, "zero" if value == 0 else "grid"))
        text = "0" if value == 0 else _words.signed(value, digits)
        marks.append(Text(x(value), bottom + 16, text, "note", "middle"))
    return marks


def _digits(values: Sequence[float]) -> int:
    step = min((b - a for a, b in pairwise(values)), default=1.0)
    return next(
        (d for d in range(6) if round(step, d) > 0 and abs(round(step, d) - step) < 1e-9), 6
    )


def waterfall(window: WindowView, found: CandidateView, *, max_nodes: int = 8) -> Picture:
    """Draw how the branches' moments on the finding's interval add up to what UC sees there."""
    parts = window.beside(found)
    parts = [part for part in parts if part[1] != 0] or parts[:1]
    ranked = sorted(parts, key=lambda part: -abs(part[1]))
    kept = {name for name, _ in ranked[:max_nodes]}
    steps = [part for part in ranked if part[0] in kept]
    rest = [moment for name, moment in ranked if name not in kept]
    if rest:
        steps.append((f"{len(rest)} other branches", sum(rest)))
    total = sum(moment for _, moment in steps)
    levels = [0.0]
    for _, moment in steps:
        levels.append(levels[-1] + moment)
    return Picture(
        _WIDTH,
        _ROW * (len(steps) + 1) + 42,
        tuple(_steps(steps, levels, total, found)),
        f"How the branches add up for {_words.whom(found.subgroup)}, utility {found.utility}",
        f"Where predicted utility is {_words.interval(found)}: "
        + ", ".join(f"{name} {_words.signed(moment)}" for name, moment in steps)
        + f"; sum {_words.signed(total)}.",
    )


def _steps(
    steps: list[tuple[str, float]], levels: list[float], total: float, found: CandidateView
) -> list[Mark]:
    low, high = min([*levels, 0.0]), max([*levels, 0.0])
    room = 0.08 * max(high - low, 1e-9)
    x = scale(low - room, high + room, _NAMES, _WIDTH - 74)
    bottom = _ROW * (len(steps) + 1) + 12
    marks = _columns(x, 2, bottom, max(-x.low, x.high))
    for i, (name, moment) in enumerate(steps):
        y = 4 + i * _ROW
        marks.append(Text(_NAMES - 12, y + 16, fitted(name, _NAMES - 20, "label"), "label", "end"))
        tone = bar_tone(moment, found.scale)
        marks.append(bar(x, levels[i], levels[i + 1], y + 3, _ROW - 8, tone))
        at = x(levels[i + 1])
        marks.append(Line(at, y + 3, at, y + _ROW + 3, "edge"))
        marks.append(Text(_WIDTH - 2, y + 16, _words.signed(moment), "small", "end"))
    y = 4 + len(steps) * _ROW + 4
    left, right = sorted((x(0.0), x(total)))
    marks += [
        Text(_NAMES - 12, y + 16, "sum: what UC sees", "name", "end"),
        Rect(left, y + 3, max(right - left, 2.0), _ROW - 8, "sum", 1.5),
        Text(_WIDTH - 2, y + 16, _words.signed(total), "name", "end"),
    ]
    return marks


def reliability(curve: ReliabilityCurve, found: CandidateView) -> Picture:
    """Draw realised against predicted utility, the finding's interval shaded."""
    xs = _range([*curve.predicted, *curve.score, found.low, found.high])
    ys = _range([*curve.realised, *curve.by_node, xs[0], xs[1]])
    x, y = scale(*xs, _LEFT, _WIDTH - 8), scale(*ys, 292, 48)
    marks = [*_interval(x, found, 48, 292), *_axes(x, y, xs, ys)]
    marks.append(Line(x(xs[0]), y(xs[0]), x(xs[1]), y(xs[1]), "ideal"))
    marks += _line(x, y, curve.predicted, curve.realised, curve.realised_error, "quiet")
    marks += _line(x, y, curve.predicted, curve.by_node, curve.by_node_error, "strong")
    legend = f"if only {fitted(curve.node, 190, 'note')} erred"
    marks += [
        Line(_LEFT, 10, _LEFT + 22, 10, "quiet"),
        Text(_LEFT + 28, 14, "realised", "note"),
        Line(_LEFT + 100, 10, _LEFT + 122, 10, "strong"),
        Text(_LEFT + 128, 14, legend, "note"),
        Text(0, 36, "mean realised utility", "note"),
        *([] if not curve.running else _running(curve, found, x)),
    ]
    tall = 470.0 if curve.running else 330.0
    marks.append(Text((_LEFT + _WIDTH) / 2, tall - 4, "predicted utility", "note", "middle"))
    return Picture(
        _WIDTH,
        tall,
        tuple(marks),
        f"Realised against predicted utility {found.utility}, {_words.whom(found.subgroup)}",
        f"{_words.one_line(found)}. The interval is shaded; bands are two standard errors.",
    )


def _range(values: Sequence[float | None]) -> tuple[float, float]:
    known = [value for value in values if value is not None]
    low, high = min(known), max(known)
    room = 0.04 * (high - low) or 0.05
    return low - room, high + room


def _interval(x: Scale, found: CandidateView, top: float, bottom: float) -> list[Mark]:
    if found.low is None or found.high is None:
        return []
    left, right = x(found.low), x(found.high)
    width = max(right - left, 2.0)
    return [Rect((left + right - width) / 2, top, width, bottom - top, "shaded")]


def _axes(x: Scale, y: Scale, xs: tuple[float, float], ys: tuple[float, float]) -> list[Mark]:
    marks: list[Mark] = []
    for axis, (low, high) in ((x, xs), (y, ys)):
        values = ticks(low, high, 6)
        digits = _digits(values)
        for value in values:
            text = _words.plain(value, digits)
            if axis is x:
                marks.append(Line(x(value), y.start, x(value), y.start + 4, "axis"))
                marks.append(Text(x(value), y.start + 18, text, "note", "middle"))
            else:
                marks.append(Line(x.start, y(value), x.stop, y(value), "grid"))
                marks.append(Text(x.start - 8, y(value) + 4, text, "note", "end"))
    return [*marks, Line(x.start, y.start, x.stop, y.start, "axis")]


def _line(
    x: Scale,
    y: Scale,
    at: Sequence[float],
    mean: Sequence[float],
    error: Sequence[float],
    look: str,
) -> list[Mark]:
    band, dot = ("band", "dot") if look == "strong" else ("quiet-band", "quiet-dot")
    places = [x(value) for value in at]
    marks: list[Mark] = []
    if len(places) > 1:
        above = [y(_inside(y, m + 2 * e)) for m, e in zip(mean, error, strict=True)]
        below = [y(_inside(y, m - 2 * e)) for m, e in zip(mean, error, strict=True)]
        outline = points([*places, *reversed(places)], [*above, *reversed(below)])
        marks += [
            Path(outline, band, closed=True),
            Path(points(places, [y(m) for m in mean]), look),
        ]
    marks += [
        Rect(place - 3, y(m) - 3, 6, 6, dot, 3) for place, m in zip(places, mean, strict=True)
    ]
    return marks


def _inside(axis: Scale, value: float) -> float:
    return min(max(value, axis.low), axis.high)


def _running(curve: ReliabilityCurve, found: CandidateView, x: Scale) -> list[Mark]:
    """Draw the running sum below: over the interval it moves by the moment."""
    top, bottom = 352.0, 440.0
    low, high = _range([0.0, *curve.running])
    y = scale(low, high, bottom, top)
    corners = [(x(curve.score[0]), y(0.0))]
    for score, total in zip(curve.score, curve.running, strict=True):
        corners += [(x(score), corners[-1][1]), (x(score), y(total))]
    zero = Line(x.start, y(0.0), x.stop, y(0.0), "zero")
    numbers = [
        Text(
            x.start - 8,
            y(value) + 4,
            _words.plain(value, _digits(ticks(low, high, 3))),
            "note",
            "end",
        )
        for value in ticks(low, high, 3)
    ]
    said = f"in the range {_words.signed(found.moment)} {_words.bounds(found)}".strip()
    return [
        *_interval(x, found, top, bottom),
        zero,
        *numbers,
        Path(tuple(corners), "strong"),
        Text(0, top - 8, "running sum of the branch's share", "note"),
        Text(x.stop, top - 8, said, "alarm" if found.status == "sure" else "name", "end"),
    ]
