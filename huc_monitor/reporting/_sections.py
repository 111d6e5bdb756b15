"""The parts of the page, from top to bottom: pictures with the same numbers in tables."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from huc_monitor.reporting import _charts, _history, _words
from huc_monitor.reporting import _html as html
from huc_monitor.reporting._drawing import escape
from huc_monitor.reporting._icicle import icicle
from huc_monitor.reporting._looks import shade

if TYPE_CHECKING:
    from huc_monitor.reporting._drawing import Picture
    from huc_monitor.reporting._model import Finding, Report, WindowView

_MAX_HEAT_NODES = 60
_MAX_SUBGROUPS = 200
_MAX_ALERTS = 50
_CURVE_COLUMNS = (
    "predicted",
    "realised",
    "if only this branch erred",
    "error of realised",
    "error of the branch",
    "rows",
)


def verdict(report: Report) -> str:
    """Say in words whether anything is wrong, where, for whom and how surely."""
    window = report.latest
    worst = None if window is None else window.worst
    sign = _words.glyph(worst) if worst else ""
    mark = f'<span class="sign" aria-hidden="true">{sign}</span>' if sign else ""
    said = "".join(f'<p class="say">{escape(text)}</p>' for text in _words.story(report))
    notices = "".join(f"<li>{escape(text)}</li>" for text in report.notices)
    return (
        f'<section class="verdict" aria-label="Verdict">'
        f'<p class="headline" role="heading" aria-level="2">{mark}'
        f"{escape(_words.verdict(report))}</p>{said}"
        f"{'' if window is None else _tiles(window, worst)}"
        f"{f'<ul class=notices>{notices}</ul>' if notices else ''}</section>"
    )


def _tiles(window: WindowView, worst: Finding | None) -> str:
    tiles = [("HUC, largest gap of a branch", _words.plain(window.huc), _span(window))]
    tiles.append(("UC, over the whole tree", _words.plain(window.uc), ""))
    if worst is not None:
        limit = "not set" if worst.tolerance is None else f"{worst.tolerance:.4g}"
        tiles += [
            ("Worst branch", worst.node, f"for {_words.whom(worst.subgroup)}"),
            ("Tolerance", limit, "of the worst branch"),
        ]
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd><bdi>{escape(value)}</bdi>"
        f"{f'<small>{escape(note)}</small>' if note else ''}</dd></div>"
        for name, value, note in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def _span(window: WindowView) -> str:
    if window.huc_lower is None or window.huc_upper is None:
        return "no bounds"
    return (
        f"between {_words.plain(max(0.0, window.huc_lower))} and {_words.plain(window.huc_upper)}"
    )


def tree(report: Report) -> str:
    """Show the tree as an icicle, or bars where the tree is not known."""
    window = report.latest
    if window is None:
        return ""
    if report.tree is None:
        picture = _charts.moment_bars(window)
        return html.section(
            "branches",
            "Branches",
            "The largest gap between realised and predicted utility that each branch causes.",
            f"{_legend(window)}{html.drawn(picture)}"
            f"{html.details('All numbers as a table', _branch_table(report, window))}",
        )
    picture = icicle(window, report.tree)
    names = "".join(f'<option value="{escape(name)}"></option>' for name in report.nodes)
    find = (
        '<label class="find screen">Find a branch <input type="text" id="find" list="names" '
        f'autocomplete="off" spellcheck="false"></label><datalist id="names">{names}</datalist>'
        '<span id="find-result" role="status" class="screen"></span>'
    )
    lead = (
        "Each box is a choice among the boxes to its right, coloured by the largest gap between "
        "realised and predicted utility that it causes. Choose a box to see its story."
    )
    return html.section(
        "tree",
        "Where in the tree",
        lead,
        f'<div class="tools">{_legend(window)}{find}</div>'
        f"{html.drawn(picture, role='tree')}"
        f"{html.details('All numbers as a table', _branch_table(report, window))}",
    )


def _legend(window: WindowView) -> str:
    limited = bool(window.candidates["tolerance"].notna().any())
    over = "".join(f'<span class="swatch s-o{k}"></span>' for k in (4, 3, 2, 1))
    under = "".join(f'<span class="swatch s-u{k}"></span>' for k in (1, 2, 3, 4))
    sure = "surely above tolerance" if limited else "surely not zero"
    if any(_words.by_evidence(found) for found in window.worst_by("node").values()):
        sure += ", or off by the evidence of all windows"
    items = [
        f'<span class="swatches">{over}</span>{_words.MINUS} utility overstated',
        f'<span class="swatches">{under}</span>+ understated',
        f'<span class="swatch sure"></span>◆ {sure}',
    ]
    if limited:
        items.append('<span class="swatch possible"></span>◇ above, may be chance')
    return f'<ul class="legend" aria-label="Legend">{"".join(f"<li>{i}</li>" for i in items)}</ul>'


def worst(report: Report) -> str:
    """Show the worst candidate: along the score axis, and against the other branches."""
    window = report.latest
    found = None if window is None else window.worst
    if window is None or found is None or found.moment == 0:
        return ""
    parts = []
    curve = window.curve
    if curve is not None and curve.predicted:
        shown = window.find(curve.node, curve.subgroup, curve.utility) or found
        picture = _charts.reliability(curve, shown)
        rows = zip(
            curve.predicted,
            curve.realised,
            curve.by_node,
            curve.realised_error,
            curve.by_node_error,
            curve.rows,
            strict=True,
        )
        table = html.table(
            "Means per bin of predicted utility",
            [(name, "num") for name in _CURVE_COLUMNS],
            [[*(_words.plain(v) for v in row[:-1]), f"{row[-1]:,.0f}"] for row in rows],
        )
        lead = (
            f"“{shown.node}” for {_words.whom(shown.subgroup)}. On the dotted line predictions "
            "would be right; the shaded range is where the gap is largest. Bands are two standard "
            "errors of each point, for the eye only; below, the sum over rows up to each score."
        )
        parts.append(_figure("curve", "In which range of predicted utility", lead, picture, table))
    picture = _charts.waterfall(window, found)
    lead = (
        f"Moments of all branches for {_words.whom(found.subgroup)}, utility “{found.utility}”, "
        f"where the predicted utility is {_words.interval(found)}. A check of the whole tree sees "
        "only their sum."
    )
    parts.append(
        _figure(
            "waterfall", "How the branches add up", lead, picture, _waterfall_table(window, found)
        )
    )
    return f'<div class="two">{"".join(parts)}</div>' if len(parts) > 1 else parts[0]


def _figure(name: str, title: str, lead: str, picture: Picture, table: str) -> str:
    return html.section(
        name, title, lead, f"{html.drawn(picture)}{html.details('Numbers as a table', table)}"
    )


def _waterfall_table(window: WindowView, found: Finding) -> str:
    frame = window.candidates
    frame = frame[(frame["subgroup"] == found.subgroup) & (frame["utility"] == found.utility)]
    frame = frame.loc[frame["on_worst_interval"].abs().sort_values(ascending=False).index]
    shares = frame["on_worst_interval"].to_numpy()
    rows = [[html.bdi(n), _words.signed(m)] for n, m in zip(frame["node"], shares, strict=True)][
        :200
    ]
    rows.append(["sum", _words.signed(float(shares.sum()))])
    return html.table("Moments on the worst interval", [("Branch", ""), ("Moment", "num")], rows)


def history(report: Report) -> str:
    """Show HUC, alerts and branches over windows; nothing where there is one window only."""
    if len(report.windows) < 2:
        return ""
    picture = _history.timeline(report)
    line = html.section(
        "windows",
        "Over time",
        "HUC and UC of every window, and the alerts that were open.",
        f"{html.drawn(picture)}{_alert_table(report)}"
        f"{html.details('Windows as a table', _window_table(report))}",
    )
    rows = _history.heat_map_rows(report, _MAX_HEAT_NODES)
    left = len(report.nodes) - len(rows)
    lead = "The worst moment of each branch in each window, over subgroups and utilities." + (
        f" The {left} branches with smaller moments are left out; find them above." if left else ""
    )
    return line + html.section("heat", "Branches by window", lead, _heat_table(report, rows))


def _alert_table(report: Report) -> str:
    if not report.alerts:
        return "<p>No alert was open in these windows.</p>"
    index = {name: i for i, name in enumerate(report.nodes)}
    rows = [
        [
            f'<span class="level {escape(alert.now)}">{escape(alert.now)}</span>',
            html.link(alert.node, index),
            html.bdi(_words.whom(alert.subgroup)),
            html.bdi(alert.utility),
            escape(alert.since),
            escape(alert.words),
        ]
        for alert in report.alerts[:_MAX_ALERTS]
    ]
    columns = ["Now", "Branch", "For whom", "Utility", "Since", "Last seen"]
    kinds = {"For whom": "name", "Since": "date", "Last seen": "words"}
    return html.table("Alerts", [(name, kinds.get(name, "")) for name in columns], rows)


def _window_table(report: Report) -> str:
    rows = []
    for window in reversed(report.windows):
        found = window.worst
        rows.append(
            [escape(window.name), "", "", "", "", escape(window.reason)]
            if not window.audited
            else [
                escape(window.name),
                f"{window.n:,.0f}",
                _words.plain(window.huc),
                escape(_span(window)),
                _words.plain(window.uc),
                html.bdi(found.node) if found else "",
            ]
        )
    columns = [("Window", ""), ("Rows", "num"), ("HUC", "num"), ("Bounds", ""), ("UC", "num")]
    return html.table("Windows, newest first", [*columns, ("Worst branch", "")], rows)


def _heat_table(report: Report, rows: list[tuple[str, list[Finding | None]]]) -> str:
    index = {name: i for i, name in enumerate(report.nodes)}
    head = "".join(
        f'<th scope="col" title="{escape(window.name)}">{escape(window.tick)}</th>'
        for window in report.windows
    )
    body = []
    for name, cells in rows:
        drawn = "".join(_heat_cell(found, report.windows[j]) for j, found in enumerate(cells))
        body.append(f'<tr class="path"><th scope="row">{html.link(name, index)}</th>{drawn}</tr>')
    table = (
        '<table class="heat"><caption>Marked as in the tree: ◆ sure, ◇ may be chance.</caption>'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )
    return html.scroll(table, "Branches by window")


def _heat_cell(found: Finding | None, window: WindowView) -> str:
    if found is None:
        why = window.reason or "no such branch"
        return f'<td class="none" title="{escape(why)}">{_words.NONE}</td>'
    tone = shade(found.moment, found.scale)
    status = "" if found.status == "within" else f" {found.status}"
    whom = f"{_words.whom(found.subgroup)}, {found.utility}"
    return (
        f'<td class="s-{tone}{status}" title="{escape(whom)}">'
        f"{_words.glyph(found).strip()}{_words.compact(found.moment)}</td>"
    )


def subgroups(report: Report) -> str:
    """List the worst branch of every subgroup in the newest window."""
    window = report.latest
    if window is None or window.candidates.empty:
        return ""
    index = {name: i for i, name in enumerate(report.nodes)}
    sizes = dict(
        zip(window.candidates["subgroup"], window.candidates["n_in_subgroup"], strict=True)
    )
    found = sorted(window.worst_by("subgroup").values(), key=lambda f: -_rank(f))
    rows = [
        [
            html.bdi(_words.whom(f.subgroup).removeprefix("subgroup ")),
            f"{sizes[f.subgroup]:,.0f}" if sizes[f.subgroup] == sizes[f.subgroup] else "",
            html.link(f.node, index),
            html.bdi(f.utility),
            html.chip(f),
            escape(_words.bounds(f)),
            escape(_words.interval(f)),
            escape(_words.status(f)),
        ]
        for f in found[:_MAX_SUBGROUPS]
    ]
    columns = [("Subgroup", ""), ("Rows", "num"), ("Worst branch", ""), ("Utility", "")]
    columns += [("Moment", "num"), ("Bounds on its size", "num"), ("Predicted utility", "num")]
    lead = (
        "The worst branch of every subgroup. Moments are per prediction of the whole window, so a "
        "small subgroup has small moments."
    )
    table = html.table("Subgroups, worst first", [*columns, ("Status", "")], rows)
    return html.section("subgroups", "For whom", lead, table)


def _rank(found: Finding) -> float:
    size = abs(found.moment) / found.scale if found.scale > 0 else abs(found.moment)
    return {"sure": 2e6, "possible": 1e6, "within": 0.0}[found.status] + size


def _branch_table(report: Report, window: WindowView) -> str:
    index = {name: i for i, name in enumerate(report.nodes)}
    found = sorted(window.worst_by("node").values(), key=lambda f: -_rank(f))
    rows = [
        [
            html.link(f.node, index),
            html.chip(f),
            escape(_words.bounds(f)),
            escape(_words.interval(f)),
            f"{f.n:,.0f}",
            html.bdi(_words.whom(f.subgroup)),
            html.bdi(f.utility),
            "" if f.in_units is None else escape(f"{_words.signed(f.in_units, 2)} {f.units}"),
        ]
        for f in found
    ]
    columns = [("Branch", ""), ("Moment", "num"), ("Bounds on its size", "num")]
    columns += [("Predicted utility", "num"), ("Rows", "num"), ("For whom", ""), ("Utility", "")]
    columns += [("In units", "num")]
    if not any(row[-1] for row in rows):
        rows, columns = [row[:-1] for row in rows], columns[:-1]
    return html.table("Branches, worst first", columns, rows)


def footer(report: Report) -> str:
    """Say what was measured, on what, and how."""
    window = report.latest
    facts = {} if window is None else {**window.facts, **report.facts}
    if report.tree is not None:
        facts.setdefault("Tree fingerprint", report.tree.fingerprint)
    listed = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    return (
        "<footer><h2>Data and method</h2><p>A moment is the mean gap between realised and "
        "predicted utility that one branch causes in one subgroup, over the range of predicted "
        "utility where that gap is largest. Bounds hold for all branches, subgroups, utilities and "
        "ranges of a window together. Small moments do not say that decisions are good, nor that "
        f'other utilities are well predicted.</p><dl class="facts">{listed}'
        f"<dt>Made with</dt><dd>huc-monitor {escape(version('huc-monitor'))}</dd></dl></footer>"
    )
