"""The data of the page's script as JSON: names once, numbers rounded, a few megabytes at most.

An entry is ``[utility, subgroup, moment, lower, upper, scale, status]``; in the newest window it
goes on with ``interval_low, interval_high, rows``. Status is 0 within, 1 possible, 2 sure.
"""

from __future__ import annotations

import json
from typing import Any

from huc_monitor._common.safe_text import visible
from huc_monitor.reporting import _words
from huc_monitor.reporting._model import CandidateView, Report

_STATUS = {"within": 0, "possible": 1, "sure": 2}
_MAX_HISTORY = 40_000
_MAX_LATEST = 24_000
_MAX_CHILDREN = 24
_MAX_FINDINGS = 200


def payload(report: Report) -> str:
    """Return the data as JSON that cannot leave its script element."""
    text = json.dumps(_content(report), separators=(",", ":"), allow_nan=False)
    # json.dumps has written everything beyond ASCII as \uXXXX, U+2028 and lone surrogates too.
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _content(report: Report) -> dict[str, Any]:
    nodes = report.nodes
    index = {name: i for i, name in enumerate(nodes)}
    utilities, subgroups = _names(report, "utility"), _names(report, "subgroup")
    place = {"utility": utilities, "subgroup": subgroups}
    known = frozenset(report.tree.nodes if report.tree is not None else ())
    latest = report.latest
    frequencies = {} if latest is None else latest.frequencies
    return {
        "windows": [{"name": w.name, "tick": w.tick} for w in report.windows],
        "latestName": "" if latest is None else latest.name[:1].upper() + latest.name[1:],
        "tolerance": report.tolerance,
        "utilities": [visible(name) for name in utilities],
        "subgroups": [visible(name) for name in subgroups],
        "nodes": [_node(report, name, index, known) for name in nodes],
        "history": _history(report, index, place),
        "latest": _latest(report, index, place),
        "frequencies": {
            index[name]: _shares(found) for name, found in frequencies.items() if name in index
        },
        "changes": {
            index[found.node]: [visible(text) for text in _words.told(found, report.zone)]
            for found in report.findings[:_MAX_FINDINGS]
            if found.node in index
        },
    }


def _names(report: Report, column: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for window in report.windows:
        for name in window.names(column):
            found.setdefault(name, len(found))
    return found


def _node(
    report: Report, name: str, index: dict[str, int], known: frozenset[str]
) -> dict[str, Any]:
    tree = report.tree
    if tree is None or name not in known:
        return {"name": visible(name), "path": [], "children": [], "more": 0}
    children = tree.children(name)
    return {
        "name": visible(name),
        "path": [index[above] for above in tree.ancestors(name)],
        "children": [visible(child) for child in children[:_MAX_CHILDREN]],
        "more": max(0, len(children) - _MAX_CHILDREN),
    }


def _history(
    report: Report, index: dict[str, int], place: dict[str, dict[str, int]]
) -> dict[int, list[list[Any] | None]]:
    """Return the worst candidate of each branch in each window; of the worst branches if many."""
    cells = [window.worst_by("node") for window in report.windows]
    rank: dict[str, float] = {}
    for found in (f for of_window in cells for f in of_window.values()):
        rank[found.node] = max(rank.get(found.node, 0.0), abs(found.moment))
    most = max(1, _MAX_HISTORY // max(1, len(cells)))
    kept = sorted(rank, key=lambda name: -rank[name])[:most]
    return {
        index[name]: [
            _entry(of_window[name], place) if name in of_window else None for of_window in cells
        ]
        for name in sorted(kept, key=lambda name: index[name])
    }


def _latest(
    report: Report, index: dict[str, int], place: dict[str, dict[str, int]]
) -> dict[int, dict[str, Any]]:
    window = report.latest
    if window is None:
        return {}
    most = max(3, _MAX_LATEST // max(1, len(window.names("node"))))
    content: dict[int, dict[str, Any]] = {}
    for found in window.ranked():
        mine = content.setdefault(index[found.node], {"rows": [], "more": 0})
        if len(mine["rows"]) < most:
            mine["rows"].append(_long_entry(found, place))
        else:
            mine["more"] += 1
    return dict(sorted(content.items()))


def _entry(found: CandidateView, place: dict[str, dict[str, int]]) -> list[Any]:
    return [
        place["utility"][found.utility],
        place["subgroup"][found.subgroup],
        _round(found.moment),
        _round(found.lower),
        _round(found.upper),
        _round(found.scale),
        _STATUS[found.status],
    ]


def _long_entry(found: CandidateView, place: dict[str, dict[str, int]]) -> list[Any]:
    more = [_round(found.low), _round(found.high), round(found.n, 1)]
    return [*_entry(found, place), *(int(x) if x is not None and x == int(x) else x for x in more)]


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 5) + 0.0


def _shares(found: Any) -> dict[str, Any]:
    keys = [key for key in ("reference", "predicted", "observed") if found.get(key)]
    return {
        "children": [visible(child) for child in found["children"][:_MAX_CHILDREN]],
        **{key: [_round(share) for share in found[key][:_MAX_CHILDREN]] for key in keys},
    }
