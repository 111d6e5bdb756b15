"""Pictures over windows: the heat map of branches, and the time line of HUC and alerts."""

from __future__ import annotations

from collections.abc import Sequence

from huc_monitor.monitor import TrendPoint
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
    band,
    fitted,
    labels_along,
    points,
    scale,
    ticks,
)
from huc_monitor.reporting._looks import shade
from huc_monitor.reporting._model import AlertView, CandidateView, Report, WindowView

_NAMES = 190.0


def heat_map_rows(report: Report, max_nodes: int) -> list[tuple[str, list[CandidateView | None]]]:
    """Return the worst finding of each branch in each window, for the branches that matter most."""
    by_window = [window.worst_by("node") for window in report.windows]
    rank: dict[str, float] = {}
    for found in (f for cells in by_window for f in cells.values()):
        rank[found.node] = max(rank.get(found.node, 0.0), found.size)
    kept = set(sorted(rank, key=lambda name: -rank[name])[:max_nodes])
    return [(n, [cells.get(n) for cells in by_window]) for n in report.nodes if n in kept]


def heat_map(report: Report, *, max_nodes: int = 40) -> Picture:
    """Draw branches against windows."""
    rows = heat_map_rows(report, max_nodes)
    windows = report.windows
    cell = min(64.0, max(22.0, 760.0 / max(1, len(windows))))
    high = 24.0
    marks = labels_along([w.tick for w in windows], lambda j: _NAMES + (j + 0.5) * cell, 12)
    for i, (name, cells) in enumerate(rows):
        y = 20 + i * high
        marks.append(Text(_NAMES - 10, y + 16, fitted(name, 174, "label"), "label", "end"))
        for j, found in enumerate(cells):
            marks.append(_cell(found, windows[j], _NAMES + j * cell, y, cell, high))
    for j, window in enumerate(windows):
        if window.new_tree:
            marks.append(_new_tree(_NAMES + j * cell, 16, 20 + high * len(rows), 14))
    room = 16 if any(window.new_tree or window.maintenance for window in windows) else 0
    if any(window.maintenance for window in windows):
        below = 28 + high * len(rows)
        marks.append(Text(10, below, "Grey with a stroke: in maintenance", "note"))
    return Picture(
        _NAMES + cell * len(windows) + 2,
        24 + high * len(rows) + room,
        tuple(marks),
        "Worst moment of each branch in each window",
        f"{len(rows)} branches in {len(windows)} windows.",
    )


def _cell(
    found: CandidateView | None, window: WindowView, x: float, y: float, width: float, height: float
) -> Mark:
    if found is None:
        return Rect(x, y, width, height, "empty")
    tone = "empty" if window.maintenance else shade(found.moment, found.scale)
    marks: list[Mark] = [Rect(x, y, width, height, tone)]
    if window.maintenance:
        marks.append(Line(x, y + height, x + width, y, "axis"))
    elif found.status != "within":
        marks.append(Rect(x + 1.5, y + 1.5, width - 3, height - 3, found.status, 2))
    if width >= 44:
        number = _words.compact(found.moment)
        ink = "note" if window.maintenance else f"on-{tone}"
        marks.append(Text(x + width / 2, y + 16, number, ink, "middle"))
    return Group(tuple(marks), title=f"{window.title}: {_words.one_line(found)}")


def timeline(report: Report, *, max_alerts: int = 12) -> Picture:
    """Draw HUC with its bounds and UC over windows, and below it the alerts that were open."""
    windows = report.windows
    left, right, top, bottom = 16.0, 908.0, 24.0, 184.0
    x = scale(-0.5, len(windows) - 0.5, left, right)
    high = max([max(w.huc_upper or w.huc or 0.0, w.uc or 0.0) for w in windows] + [1e-6])
    y = scale(0.0, high * 1.05, bottom, top)
    marks = _levels(y, left, right)
    limit = report.tolerance
    if limit is not None and limit <= y.high:
        marks.append(Line(left, y(limit), right, y(limit), "limit"))
    marks += _tracks(windows, x, y)
    if limit is not None and limit <= y.high:
        marks.append(Text(right, y(limit) - 5, f"tolerance {limit:g}", "halo", "end"))
    marks += labels_along([window.tick for window in windows], x, bottom + 18)
    for j, window in enumerate(windows):
        if window.new_tree:
            marks.append(_new_tree(x(j - 0.5), top, bottom, -6))
    marks += [
        Line(right - 308, 10, right - 286, 10, "strong"),
        Text(right - 280, 14, "HUC with bounds", "note"),
        Line(right - 162, 10, right - 140, 10, "quiet"),
        Text(right - 134, 14, "UC, over the whole tree", "note"),
    ]
    shown = report.alerts[:max_alerts]
    for i, alert in enumerate(shown):
        marks += _lane(alert, x, bottom + 34 + 30 * i)
    return Picture(
        960,
        bottom + 28 + 30 * len(shown),
        tuple(marks),
        "HUC, UC and alerts over windows",
        _describe(report),
    )


def _new_tree(x: float, top: float, bottom: float, below: float) -> Mark:
    """Draw where a new version of the tree begins to count."""
    marks = (Line(x, top, x, bottom, "limit"), Text(x + 4, bottom + below, "new tree", "note"))
    return Group(marks, title="A new version of the tree counts from here")


def _describe(report: Report) -> str:
    audited = [window for window in report.windows if window.huc is not None]
    said = [f"{w.name}: HUC {_words.plain(w.huc)}, UC {_words.plain(w.uc)}" for w in audited[-3:]]
    count = sum(alert.is_open for alert in report.alerts)
    return f"{len(audited)} audited windows; the last: {'; '.join(said)}. {count} alerts are open."


def _levels(y: Scale, left: float, right: float) -> list[Mark]:
    """Draw the grid; its numbers are by the newest window, which narrow screens show first."""
    marks: list[Mark] = []
    for value in ticks(y.low, y.high, 4):
        marks.append(Line(left, y(value), right, y(value), "zero" if value == 0 else "grid"))
        text = f"{value:g}".replace("-", _words.MINUS)
        marks.append(Text(right + 8, y(value) + 4, text, "note"))
    return marks


def _tracks(windows: Sequence[WindowView], x: Scale, y: Scale) -> list[Mark]:
    marks: list[Mark] = []
    known = [(j, window) for j, window in enumerate(windows) if window.huc is not None]
    bounded = [(j, w.huc_lower, w.huc_upper) for j, w in known if w.huc_lower is not None]
    if len(bounded) > 1:
        above = [(x(j), y(up or 0.0)) for j, _, up in bounded]
        marks.append(band(above, [(x(j), y(max(0.0, low or 0.0))) for j, low, _ in bounded]))
    elif bounded:
        (j, low, up) = bounded[0]
        marks.append(Line(x(j), y(max(0.0, low or 0.0)), x(j), y(up or 0.0), "whisker"))
    for key, look, dot in (("uc", "quiet", "quiet-dot"), ("huc", "strong", "dot")):
        xs = [x(j) for j, _ in known]
        ys = [y(getattr(window, key)) for _, window in known]
        if len(xs) > 1:
            marks.append(Path(points(xs, ys), look))
        marks += [
            Group(
                (Rect(px - 3, py - 3, 6, 6, dot, 3),),
                title=f"{w.name}: {key.upper()} {_words.plain(getattr(w, key))}",
            )
            for px, py, (_, w) in zip(xs, ys, known, strict=True)
        ]
    return marks


def _lane(alert: AlertView, x: Scale, y: float) -> list[Mark]:
    """Draw one alert: a solid bar where it was critical, a dashed one where it was a warning."""
    count = f" ({alert.count})" if alert.count else ""
    name = f"{alert.node}, {_words.whom(alert.subgroup)}, {alert.utility}{count}"
    marks: list[Mark] = [Rect(x.start, y + 14, x.stop - x.start, 9, "panel", 3)]
    start = 0
    for stop in range(1, len(alert.levels) + 1):
        if stop < len(alert.levels) and alert.levels[stop] == alert.levels[start]:
            continue
        level = alert.levels[start]
        if level is not None:
            left, right = x(start - 0.5) + 1, x(stop - 0.5) - 1
            marks.append(Rect(left, y + 14, right - left, 9, level, 3))
        start = stop
    # Short and by the newest window, which narrow screens show first.
    whom = "" if alert.subgroup == "all" else f", {alert.subgroup}"
    text = fitted(f"{alert.node}{whom}: {alert.now}", 300, "note")
    marks.append(Text(x.stop, y + 9, text, "note", "end"))
    return [Group(tuple(marks), title=f"{name}: {alert.words}")]


def sparkline(trend: Sequence[TrendPoint]) -> Picture:
    """Draw HUC with its bounds over windows, small; critical windows are marked."""
    known = [(j, point) for j, point in enumerate(trend) if point.huc is not None]
    tops = [point.upper or point.huc or 0.0 for _, point in known]
    limits = {point.tolerance for _, point in known if point.tolerance is not None}
    limit = limits.pop() if len(limits) == 1 else None
    x = scale(0.0, max(1.0, len(trend) - 1.0), 5, 175)
    y = scale(0.0, max([*tops, limit or 0.0, 1e-6]) * 1.05, 40, 4)
    marks: list[Mark] = [Line(0, 40, 180, 40, "axis")]
    if limit is not None:
        marks.append(Line(0, y(limit), 180, y(limit), "limit"))
    bounded = [(j, p) for j, p in known if p.lower is not None and p.upper is not None]
    if len(bounded) > 1:
        above = [(x(j), y(p.upper or 0.0)) for j, p in bounded]
        marks.append(band(above, [(x(j), y(max(0.0, p.lower or 0.0))) for j, p in bounded]))
    if len(known) > 1:
        xs, ys = [x(j) for j, _ in known], [y(p.huc or 0.0) for _, p in known]
        marks.append(Path(points(xs, ys), "strong"))
    for j, point in known:
        if point.level == "critical":
            marks.append(Rect(x(j) - 3, y(point.huc or 0.0) - 3, 6, 6, point.level, 1))
    last = known[-1][1].huc if known else None
    said = f"{len(known)} audited windows, the last {_words.plain(last)}."
    return Picture(180, 44, tuple(marks), "HUC over windows", said)


def branch_moments(report: Report, node: str) -> Picture:
    """Draw the worst moment of one branch in each window, with its bounds and tolerance."""
    found = [window.worst_by("node").get(node) for window in report.windows]
    known = [(j, one) for j, one in enumerate(found) if one is not None]
    left, right, top, bottom = 16.0, 908.0, 10.0, 190.0
    reach = max([max(one.upper or abs(one.moment), one.tolerance or 0.0) for _, one in known])
    x = scale(-0.5, len(found) - 0.5, left, right)
    y = scale(-max(reach, 1e-6) * 1.05, max(reach, 1e-6) * 1.05, bottom, top)
    marks = _levels(y, left, right)
    for limit in {one.tolerance for _, one in known if one.tolerance is not None}:
        marks += [Line(left, y(s * limit), right, y(s * limit), "limit") for s in (-1, 1)]
    for j, one in known:
        sign = -1 if one.moment < 0 else 1
        inner: list[Mark] = []
        if one.lower is not None and one.upper is not None:
            inner.append(Line(x(j), y(sign * one.lower), x(j), y(sign * one.upper), "whisker"))
        window = report.windows[j]
        is_sure = one.status == "sure" and not window.maintenance
        size, look = (5.0, "critical") if is_sure else (3.5, "quiet-dot")
        inner.append(Rect(x(j) - size, y(one.moment) - size, 2 * size, 2 * size, look, size / 2))
        title = f"{window.title}: {_words.one_line(one)}"
        marks.append(Group(tuple(inner), title=title))
    marks += labels_along([window.tick for window in report.windows], x, bottom + 18)
    said = f"{len(known)} windows, the last {_words.signed(known[-1][1].moment)}."
    return Picture(960, bottom + 28, tuple(marks), "Worst moment in each window", said)
