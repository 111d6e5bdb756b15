"""Pictures of a comparison, what differs most and where, and of segments that were discovered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from huc_monitor.audit.comparison import Comparison, Difference
from huc_monitor.audit.discovery.discover import Discovery
from huc_monitor.reporting import _words
from huc_monitor.reporting._drawing import (
    Group,
    Line,
    Mark,
    Picture,
    Rect,
    Text,
    bar,
    fitted,
    scale,
    text_width,
    ticks,
    whisker,
)
from huc_monitor.reporting._looks import bar_tone, shade

_WIDTH, _NAMES, _ROW = 720.0, 300.0, 26.0
_CELL, _GRID_ROW = 72.0, 26.0


@dataclass(frozen=True, slots=True)
class _Bar:
    name: str
    value: float
    lower: float
    upper: float
    sure: bool


def differences(found: Comparison, *, max_rows: int = 20) -> Picture:
    """Draw the candidates that differ most, with their bounds; what is sure is filled."""
    order = np.argsort(-np.abs(found.difference), kind="stable")[:max_rows]
    shown = [found[int(row)] for row in order]
    bars = [_Bar(_name(one), one.difference, one.lower, one.upper, one.sure) for one in shown]
    title = f"{_TITLES[found.kind]}, with bounds ({found.confidence_level:.4g} together)"
    return _bars(bars, title, len(found) - len(shown), sign=_sign(found))


def segments(found: Discovery, *, max_rows: int = 20) -> Picture:
    """Draw the moments of segments nobody named, with their bounds; ◆ where certified."""
    bars = [
        _Bar(f"{one.whom}, {one.node}", one.moment, one.lower, one.upper, one.certified)
        for one in found.segments[:max_rows]
    ]
    title = f"Moments of segments, with bounds ({found.confidence_level:.4g} together); ◆ certified"
    return _bars(bars, title, len(found.segments) - len(bars))


def _bars(shown: list[_Bar], title: str, left_out: int, *, sign: float = 1.0) -> Picture:
    ends = [x for one in shown for x in (one.lower, one.upper, one.value) if np.isfinite(x)]
    reach = max([abs(x) for x in ends] + [1e-6])
    x = scale(-reach, reach, _NAMES, _WIDTH - 76)
    height = _ROW * len(shown) + 34
    marks: list[Mark] = []
    for value in ticks(-reach, reach, 4):
        look = "zero" if value == 0 else "grid"
        marks.append(Line(x(value), 4, x(value), height - 28, look))
        marks.append(Text(x(value), height - 12, _words.signed(value, 2), "note", "middle"))
    for i, one in enumerate(shown):
        y = 6 + i * _ROW
        name = fitted(one.name, _NAMES - 16, "label")
        tone = bar_tone(sign * one.value, reach / 4.5)
        marks.append(Text(_NAMES - 12, y + 16, name, "label", "end"))
        marks.append(bar(x, 0.0, one.value, y + 3, _ROW - 8, tone))
        if np.isfinite(one.lower):
            marks += whisker(x, one.lower, one.upper, y + _ROW / 2 - 1)
        number = f"{'◆ ' if one.sure else ''}{_words.signed(one.value)}"
        marks.append(Text(_WIDTH - 2, y + 16, number, "small", "end"))
    said = "; ".join(f"{one.name} {_words.signed(one.value)}" for one in shown[:8])
    more = f"; {left_out} more" if left_out else "."
    return Picture(_WIDTH, height, tuple(marks), title, said + more)


def difference_grid(
    found: Comparison, *, max_branches: int = 40, max_subgroups: int = 12
) -> Picture:
    """Draw branches against subgroups: the largest difference over utilities, ◆ where sure."""
    best: dict[tuple[str, str], Difference] = {}
    for row in range(len(found)):
        one = found[row]
        known = best.get((one.node, one.subgroup))
        if known is None or abs(one.difference) > abs(known.difference):
            best[one.node, one.subgroup] = one
    size: dict[str, float] = {}
    for (node, _), one in best.items():
        size[node] = max(size.get(node, 0.0), abs(one.difference))
    kept = set(sorted(size, key=lambda node: -size[node])[:max_branches])
    nodes = [node for node in size if node in kept]
    subgroups = list(dict.fromkeys(subgroup for _, subgroup in best))[:max_subgroups]
    cell = max([_CELL, *(text_width(name, "note") + 10 for name in subgroups)])
    reach = max([*size.values(), 1e-6])
    marks: list[Mark] = [
        Text(190 + (j + 0.5) * cell, 12, name, "note", "middle") for j, name in enumerate(subgroups)
    ]
    for i, node in enumerate(nodes):
        y = 20 + i * _GRID_ROW
        marks.append(Text(180, y + 17, fitted(node, 174, "label"), "label", "end"))
        for j, subgroup in enumerate(subgroups):
            one = best[node, subgroup]
            tone = shade(_sign(found) * one.difference, reach / 4.5)
            x = 190 + j * cell
            parts: list[Mark] = [Rect(x, y, cell, _GRID_ROW, tone)]
            if one.sure:
                parts.append(Rect(x + 1.5, y + 1.5, cell - 3, _GRID_ROW - 3, "sure", 2))
            text = f"{'◆' if one.sure else ''}{_words.compact(one.difference)}"
            parts.append(Text(x + cell / 2, y + 17, text, f"on-{tone}", "middle"))
            marks.append(Group(tuple(parts), title=f"{_name(one)} {_words.signed(one.difference)}"))
    return Picture(
        192 + cell * len(subgroups),
        24 + _GRID_ROW * len(nodes),
        tuple(marks),
        "Largest difference by branch and subgroup; ◆ sure",
        f"{len(nodes)} branches in {len(subgroups)} subgroups.",
    )


_TITLES = {
    "samples": "Change of moments, after minus before",
    "predictors": "Change of absolute moments; negative is better",
    "audits": "Change of absolute moments; negative is better",
}


def _sign(found: Comparison) -> float:
    """Return 1 where colours show the way a moment moved, -1 where they show what is worse."""
    return 1.0 if found.kind == "samples" else -1.0


def _name(one: Difference) -> str:
    return f"{one.node}, {_words.whom(one.subgroup)}, {one.utility}"
