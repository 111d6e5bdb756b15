"""Results as a notebook shows them: headline, tree, five worst. Every name is escaped.

`huc_monitor._common.views` loads this module when a notebook first asks for a view.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import singledispatch
from itertools import islice
from typing import Any

from huc_monitor._common.times import say_time
from huc_monitor.audit.comparison import Comparison, Difference
from huc_monitor.audit.discovery.discover import Discovery
from huc_monitor.audit.familiar import FamiliarNumbers
from huc_monitor.audit.result import AuditResult
from huc_monitor.detection.change import ChangeStep
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean
from huc_monitor.monitor import CheckResult, Monitor
from huc_monitor.monitor.change import CandidateChange, WindowChange
from huc_monitor.monitor.findings import Finding
from huc_monitor.monitor.records import WindowRecord
from huc_monitor.recalibration._base import Boost
from huc_monitor.recalibration._scalings import Scaling, TemperatureScaling
from huc_monitor.reporting import _words, draw_pictures
from huc_monitor.reporting._compared import differences
from huc_monitor.reporting._drawing import Picture, Pictures, escape
from huc_monitor.reporting._fitted import fit_history
from huc_monitor.reporting._history import timeline
from huc_monitor.reporting._icicle import icicle
from huc_monitor.reporting._looks import DARK, FONT, LIGHT, mark_rules, variables
from huc_monitor.reporting._model import Report, WindowView
from huc_monitor.reporting._reading import read

_WORST = 5
_TREE_WIDTH = 720.0
# Notebooks have themes of their own, which win over the system's.
_DARK_THEMES = '[data-jp-theme-light="false"] .huc,.vscode-dark .huc,[data-theme="dark"] .huc'
_LIGHT_THEMES = '[data-jp-theme-light="true"] .huc,.vscode-light .huc,[data-theme="light"] .huc'
_STYLE = f"""
.huc{{background:var(--paper);color:var(--ink);font:14px/1.5 {FONT};padding:12px 16px;
font-variant-numeric:tabular-nums;border:1px solid var(--line);border-radius:6px;max-width:960px;
h4{{font-size:17px;font-weight:600;line-height:1.3;margin:0 0 6px;color:inherit}}
p,ul{{margin:0 0 8px;max-width:84ch;color:inherit;overflow-wrap:anywhere}}
details{{margin:8px 0}} small,figcaption{{color:var(--muted);font-size:12px}}
.wide{{overflow-x:auto;margin:8px 0}} figure{{margin:8px 0}} svg{{display:block;height:auto;
max-width:100%;min-width:400px}} svg[width="720"]{{min-width:560px}}
svg[width="960"]{{min-width:720px}}
table{{border-collapse:collapse;margin:0;border:0;color:inherit;font-size:13px;background:none}}
th,td{{padding:3px 10px 3px 0;text-align:right;border:0;border-bottom:1px solid var(--grid);
white-space:nowrap;color:inherit;background:none;vertical-align:top}}
th{{color:var(--muted);font-weight:600}} tr{{background:none}}
th.t,td.t{{text-align:left;white-space:normal;overflow-wrap:break-word;min-width:4em;max-width:26em}}
svg text{{font-family:inherit}} {mark_rules()} }}
"""


def show(shown: Any) -> str:
    """Return one result as HTML that makes no request and follows the notebook's theme."""
    light = f"{variables(LIGHT)}color-scheme:light"
    dark = f"{variables(DARK)}color-scheme:dark"
    themes = (
        f".huc{{{light}}}@media (prefers-color-scheme:dark){{.huc{{{dark}}}}}"
        f"{_LIGHT_THEMES}{{{light}}}{_DARK_THEMES}{{{dark}}}"
    )
    return f'<div class="huc"><style>{themes}{_STYLE}</style>{"".join(_parts(shown))}</div>'


def plot(shown: Any, kind: str | None = None, **options: Any) -> Picture:
    """Return one picture; without `kind` the one that says most."""
    pictures = _pictures(shown, **options)
    if not pictures:
        kind_of = type(shown).__name__
        msg = f"`plot` has nothing to draw of this {kind_of}: it holds no candidate or update."
        raise InvalidInputError(msg)
    if kind is None:
        kind = next(
            (name for name in ("changes", "icicle") if name in pictures), next(iter(pictures))
        )
    if kind not in pictures:
        hint = did_you_mean(kind, list(pictures)) or "The tree, or a curve, may be needed for it."
        msg = f"`kind` must be one of {', '.join(pictures)}; got {kind!r}. {hint}"
        raise UnknownNameError(msg)
    return pictures[kind]


@singledispatch
def _pictures(shown: Any, **options: Any) -> Pictures:
    return draw_pictures(shown, **options)


@_pictures.register
def _(shown: Monitor, **options: Any) -> Pictures:
    return draw_pictures(shown.records(), **{"tree": shown.tree, **options})


@_pictures.register
def _(shown: CheckResult, **options: Any) -> Pictures:
    return draw_pictures(shown.records, **options)


@_pictures.register
def _(shown: Boost) -> Pictures:
    drawn = fit_history(shown)
    return Pictures() if drawn is None else Pictures(history=drawn)


@_pictures.register
def _(shown: ChangeStep) -> Pictures:
    return draw_pictures(_most_changed(shown))


@singledispatch
def _parts(shown: Any) -> list[str]:
    msg = f"`shown` must be a result of huc_monitor; got {type(shown).__name__!r}."
    raise InvalidInputError(msg)


@_parts.register
def _(shown: AuditResult) -> list[str]:
    return [*_report(read(shown)), *_notes(shown.notes)]


@_parts.register
def _(shown: Picture) -> list[str]:
    return [_figure(shown)]


@_parts.register
def _(shown: FamiliarNumbers) -> list[str]:
    said = f"Familiar numbers, each with its {shown.confidence_level:.4g} interval"
    return [_heading(said), _familiar(shown)]


@_parts.register
def _(shown: WindowRecord) -> list[str]:
    return _report(read(shown))


@_parts.register
def _(shown: CheckResult) -> list[str]:
    status = f"{_count(len(shown), 'new record')}; status: {shown.status}."
    return [_paragraph(status), *(_report(read(shown.records)) if shown.records else ())]


@_parts.register
def _(shown: Monitor) -> list[str]:
    report = read(shown.records(), tree=shown.tree)
    zone = shown.windows.time_zone
    alerts = [
        (one.level, one.node, one.subgroup, one.utility, say_time(one.first_seen, zone))
        for one in shown.alerts
    ]
    heads = ("level", "branch", "subgroup", "utility", "since")
    told = [_table(heads, alerts, names=5)] if alerts else []
    status = f"Status: {shown.status}; {_count(len(alerts), 'open alert')}."
    return [*_report(report), _paragraph(status), *told, *_over_time(report)]


@_parts.register
def _(shown: Comparison) -> list[str]:
    found = f"{len(shown.sure)} of {len(shown)} candidates differ by more than chance"
    sizes = (
        f"{shown.n_before:,.0f} rows before, {shown.n_after:,.0f} after; "
        f"{shown.confidence_level:.4g} confidence for all together."
    )
    parts = [_heading(found), _paragraph(sizes)]
    if not math.isnan(shown.huc.difference):
        huc = shown.huc
        change = f"{_words.signed(huc.difference)} {_bounds(huc.lower, huc.upper)}"
        before, after = _words.plain(huc.before), _words.plain(huc.after)
        parts.append(_paragraph(f"HUC {before} before, {after} after: {change}."))
    if len(shown):
        every = [shown[row] for row in range(len(shown))]
        every.sort(key=lambda one: (not one.sure, -abs(one.difference)))
        parts.append(_differences(every[:_WORST]))
        parts.append(_figure(differences(shown, max_rows=12)))
    return parts


@_parts.register
def _(shown: ChangeStep) -> list[str]:
    found = _count(len(shown.changes), "candidate")
    pools = ", ".join(str(n) for n, _ in shown.pools)
    every = f"{shown.average_run_length:g}"
    said = f"Newest windows, pooled: {pools}; at most one false alarm in {every} windows."
    return [
        _heading(f"{found} changed by more than chance since the reference"),
        _paragraph(said),
        _differences([one.candidate for one in shown.changes[:_WORST]]),
    ]


@_parts.register
def _(shown: WindowChange) -> list[str]:
    found = f"{_count(len(shown.changes), 'candidate')} changed by more than chance"
    rows = shown.changes or shown.largest
    return [_heading(f"{found} since the reference"), _differences(rows[:_WORST])]


@_parts.register
def _(shown: CandidateChange) -> list[str]:
    who = f"{shown.node}, {_words.whom(shown.subgroup)}, utility {shown.utility}"
    return [_heading(who), _paragraph(_words.change_line(shown))]


@_parts.register
def _(shown: Finding) -> list[str]:
    return [_heading(shown.node), *map(_paragraph, _words.told(shown))]


@_parts.register
def _(shown: Discovery) -> list[str]:
    found = f"{len(shown.certified)} of {_count(len(shown.segments), 'segment')} certified"
    rows = [
        (
            one.whom,
            one.node,
            one.utility,
            _words.signed(one.moment),
            _bounds(one.lower, one.upper),
            f"{one.n:,}",
            "yes" if one.certified else "",
        )
        for one in shown.segments[:_WORST]
    ]
    heads = ("segment", "branch", "utility", "moment", "bounds", "rows", "certified")
    said = (
        f"Searched on {shown.n_searched:,} rows, certified on {shown.n_certifying:,} others; "
        f"{shown.confidence_level:.4g} confidence for all together."
    )
    drawn = [_figure(picture) for picture in draw_pictures(shown).values()]
    return [_heading(found), _paragraph(said), _table(heads, rows), *drawn, *_notes(shown.notes)]


@_parts.register
def _(shown: Boost) -> list[str]:
    if not hasattr(shown, "updates_"):
        return [_heading(f"{type(shown).__name__}, not fitted"), _paragraph(repr(shown))]
    start = "" if shown.initial_ is None else f" after {shown.initial_.kind} scaling"
    parts = [_heading(f"{_count(len(shown.updates_), 'update')}{start}")]
    drawn = fit_history(shown)
    if drawn is not None:
        parts += [_paragraph(drawn.description), _figure(drawn)]
    largest = sorted(shown.updates_, key=lambda update: -abs(update.step))[:_WORST]
    rows = [
        (
            update.node or "all leaves",
            update.subgroup,
            update.utility,
            _words.signed(update.step),
            f"{_words.plain(update.interval_low)} to {_words.plain(update.interval_high)}",
        )
        for update in largest
    ]
    heads = ("branch", "subgroup", "utility", "step", "predicted utility")
    return [*parts, *([_table(heads, rows, names=3)] if rows else [])]


@_parts.register
def _(shown: Scaling) -> list[str]:
    name = type(shown).__name__
    if not hasattr(shown, "theta_"):
        return [_heading(f"{name}, not fitted"), _paragraph(repr(shown))]
    plain = shown.to_dict()
    facts = [("leaves", f"{len(plain['leaves']):,}"), ("parameters", len(plain["parameters"]))]
    facts.append(("regularization", f"{plain['regularization']:.4g}"))
    if isinstance(shown, TemperatureScaling):
        facts.append(("inverse temperature", f"{shown.inverse_temperature_:.4f}"))
    loss = shown.held_out_log_loss_
    facts += [] if loss is None else [("held-out log loss", f"{loss:.4f}")]
    return [_heading(name), _table(("", ""), facts, names=1)]


@_parts.register
def _(shown: Pictures) -> list[str]:
    return [f"{_heading(key)}{_figure(picture)}" for key, picture in shown.items()]


def _report(report: Report) -> list[str]:
    """Show the newest window as the page does, in short."""
    window, parts = report.latest, [_heading(_words.verdict(report))]
    if window is None or window.worst is None:
        return parts
    huc, uc = _words.plain(window.huc), _words.plain(window.uc)
    if window.huc_lower is not None:
        huc = f"{huc} {_between(max(0.0, window.huc_lower), window.huc_upper)}"
    parts.append(_paragraph(f"HUC {huc}, UC {uc}, {window.n:,.0f} labelled rows."))
    parts += map(_paragraph, _words.story(report)[:1])
    for found in report.changed[:_WORST]:
        parts += [
            f"<p><b>{escape(found.node)}</b></p>",
            *map(_paragraph, _words.told(found, report.zone)),
        ]
    if report.standing:
        parts.append(_paragraph(_words.stands(report.standing)))
    if report.tree is not None:
        parts.append(_figure(icicle(window, report.tree, width=_TREE_WIDTH, max_rows=20)))
    parts.append(_worst(window))
    if window.familiar is not None:
        table = _familiar(window.familiar)
        parts.append(f"<details><summary>Familiar numbers</summary>{table}</details>")
    return parts


def _familiar(known: FamiliarNumbers) -> str:
    rows = [
        (one.name, f"{one.measures}; {one.hides}", _words.plain(one.value), interval)
        for one in known.numbers
        for interval in [_between(one.lower, one.upper)]
    ]
    return _table(("number", "what it is; what it hides", "value", "interval"), rows, names=2)


def _over_time(report: Report) -> list[str]:
    if len(report.windows) < 2:
        return []
    return [_figure(timeline(report))]


def _worst(window: WindowView) -> str:
    """List the worst candidates: signed moments, and bounds on them where they are largest."""
    worst = list(islice(window.ranked(), _WORST))
    units = any(one.in_units is not None for one in worst)
    rows = []
    for one in worst:
        radius = math.nan if one.upper is None else one.upper - abs(one.moment)
        money = (f"{_words.signed(one.in_units, 2)} {one.units or ''}",) if units else ()
        bounds = _bounds(one.moment - radius, one.moment + radius)
        cells = (_words.signed(one.moment), bounds, *money, _words.interval(one))
        rows.append((one.node, one.subgroup, one.utility, *cells, f"{one.n:,.0f}"))
    money_head = ("in units",) if units else ()
    heads = ("branch", "subgroup", "utility", "moment", "bounds", *money_head)
    return _table((*heads, "predicted utility", "rows"), rows)


def _most_changed(step: ChangeStep) -> Comparison:
    """Return the pool in which most candidates changed; the newest window where none did."""
    return max(step.pools, key=lambda pool: len(pool[1].sure))[1]


def _differences(found: Iterable[Difference | CandidateChange]) -> str:
    rows = [
        (
            *(one.node, one.subgroup, one.utility),
            *map(_words.signed, (one.before, one.after, one.difference)),
            _bounds(one.lower, one.upper),
        )
        for one in found
    ]
    heads = ("branch", "subgroup", "utility", "before", "after", "difference", "bounds")
    return _table(heads, rows) if rows else ""


def _bounds(lower: float | None, upper: float | None) -> str:
    if lower is None or upper is None or math.isnan(lower):
        return ""
    return f"[{_words.signed(lower)}, {_words.signed(upper)}]"


def _between(lower: float, upper: float | None) -> str:
    return f"[{_words.plain(lower)}, {_words.plain(upper)}]"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]], names: int = 3) -> str:
    """Lay out rows whose first cells are names."""

    def line(tag: str, cells: Sequence[object]) -> str:
        kinds = ["t" if i < names else "n" for i in range(len(cells))]
        pairs = zip(kinds, map(escape, cells), strict=True)
        return "".join(f"<{tag} class={kind}>{cell}</{tag}>" for kind, cell in pairs)

    head = f"<thead><tr>{line('th', heads)}</tr></thead>" if any(heads) else ""
    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table>{head}<tbody>{body}</tbody></table></div>'


def _figure(picture: Picture) -> str:
    said = f"<figcaption>{escape(picture.title)}</figcaption>"
    return f'<figure><div class="wide">{picture.inline()}</div>{said}</figure>'


def _heading(text: str) -> str:
    return f"<h4>{escape(text)}</h4>"


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _notes(notes: Sequence[str]) -> list[str]:
    return [f"<p><small>{escape(_words.quoted(note))}</small></p>" for note in notes]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
