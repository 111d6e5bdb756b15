"""The report as one HTML page, which makes no request and in which every name is escaped."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from huc_monitor.monitor.findings import Finding
from huc_monitor.reporting import _charts, _history, _tracks, _words
from huc_monitor.reporting._drawing import Picture, escape
from huc_monitor.reporting._icicle import as_list, icicle, rank_of
from huc_monitor.reporting._looks import DARK, LIGHT, SHADES, mark_rules, shade, variables
from huc_monitor.reporting._model import Report, WindowView
from huc_monitor.reporting._payload import payload

NONE, SELF = "'none'", "'self'"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SHORT_NAME = 16  # characters, which fit every cell
_SEPARATOR = re.compile(r"([_/.:=-])(?=[^_/.:=-])")


def render(report: Report) -> str:
    """Return the report."""
    return render_page(
        "report.html.jinja", content(report), script=_asset("report.js"), data=payload(report)
    )


def render_page(
    template: str,
    shown: Mapping[str, Any],
    *,
    script: str = "",
    data: str = "",
    forms: bool = False,
) -> str:
    """Fill in a template of the folder `assets`; with `forms`, they may be sent to its server."""
    style = _style()
    # Only these very texts may style or run: whatever a name might smuggle in is refused as well.
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; "
        f"script-src {_hash(script) if script else NONE}; img-src data:; base-uri 'none'; "
        f"form-action {SELF if forms else NONE}"
    )
    trusted = {"policy": policy, "style": style, "script": script, "data": data}
    marked = {key: Markup(text) for key, text in trusted.items()}  # noqa: S704 - made here
    return _templates().get_template(template).render(shown, **marked)


@cache
def _templates() -> Environment:
    """Make the environment of the templates; values that are not markup are escaped."""
    environment = Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        finalize=_escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(
        version=version("huc-monitor"),
        words=_words,
        charts=_charts,
        history=_history,
        tracks=_tracks.tracks,
        icicle=icicle,
        as_list=as_list,
        parted=_parted,
        dated=_dated,
        count=lambda n: "" if math.isnan(n) else f"{n:,.0f}",
        span=_span,
        svg=_svg,
        tone=lambda found: shade(found.moment, found.scale),
        marked=lambda found: "" if found.status == "within" else f" {found.status}",
    )
    return environment


def _parted(text: object) -> Markup:
    """Escape a name, and let a line end after each separator of a long one."""
    if len(str(text)) <= _SHORT_NAME:
        return Markup(escape(text))  # noqa: S704 - escaped
    return Markup(_SEPARATOR.sub(r"\1<wbr>", escape(text)))  # noqa: S704 - escaped


def _dated(text: object) -> Markup:
    """Escape a sentence, and let no line end inside of a date."""
    return Markup(_DATE.sub(r'<span class="date">\g<0></span>', escape(text)))  # noqa: S704 - escaped


def _escaped(value: Any) -> Markup:
    return value if isinstance(value, Markup) else Markup(escape(value))  # noqa: S704


def _svg(picture: Picture, role: str) -> Markup:
    return Markup(picture.inline(role=role))  # noqa: S704 - its marks escape their texts


def content(report: Report) -> dict[str, Any]:
    """Look up what the page shows of the newest window."""
    window = report.latest
    found: dict[str, Any] = {
        "report": report,
        "window": window,
        "worst": None,
        "curve": None,
        "index": {name: i for i, name in enumerate(report.nodes)},
        "facts": {} if window is None else {**window.facts, **report.facts},
        "branch_page": None,
        "window_page": None,
        "units_of": lambda found: None if window is None else _in_units(window, found),
        "worth": lambda found: None if window is None else _in_units(window, found, window.n),
    }
    if report.tree is not None:
        found["facts"].setdefault("Tree fingerprint", report.tree.fingerprint)
    if window is None or (worst := window.worst) is None:
        return found | {"limited": False, "evidence": False, "ranked": lambda _: []}
    if report.by_change and report.changed:
        utility, subgroup, node = report.changed[0].candidate
        worst = window.find(node, subgroup, utility) or worst
    curve, columns = window.curve, window.columns
    if curve is not None and curve.predicted:
        shown = window.find(curve.node, curve.subgroup, curve.utility)
        found |= {"curve": curve, "shown": shown or worst}
    return found | {
        "worst": worst,
        "limited": bool(window.tolerances),
        "evidence": any(map(_words.by_evidence, window.worst_by("node").values())),
        "ranked": lambda column: sorted(
            window.worst_by(column).values(), key=rank_of, reverse=True
        ),
        "sizes": dict(zip(columns["subgroup"], columns["n_in_subgroup"], strict=True)),
        "beside_worst": lambda: sorted(window.beside(worst), key=lambda one: -abs(one[1])),
    }


def _in_units(window: WindowView, found: Finding, times: float | None = None) -> str | None:
    """Return a change in the units of its utility, such as EUR; so many times, in whole ones."""
    utility, subgroup, node = found.candidate
    mine = window.find(node, subgroup, utility)
    if (
        mine is None
        or mine.in_units is None
        or not mine.moment
        or found.change is None
        or found.change.counted
    ):
        return None
    value = found.change.difference * mine.in_units / mine.moment
    text = _words.signed(value, 2) if times is None else _words.whole(value * times)
    return f"{text} {mine.units}"


def _span(window: WindowView) -> str:
    if window.huc_lower is None or window.huc_upper is None:
        return "no bounds"
    lower = _words.plain(max(0.0, window.huc_lower))
    return f"between {lower} and {_words.plain(window.huc_upper)}"


@cache
def _style() -> str:
    shades = "".join(f".s-{s}{{background:var(--{s});color:var(--on-{s})}}" for s in SHADES)
    light, dark = variables(LIGHT), variables(DARK)
    themes = (
        f":root{{{light}color-scheme:light}}"
        f'@media (prefers-color-scheme:dark){{:root[data-theme="auto"]'
        f"{{{dark}color-scheme:dark}}}}"
        f':root[data-theme="dark"]{{{dark}color-scheme:dark}}'
        f"@media print{{:root[data-theme]{{{light}color-scheme:light}}}}"
    )
    return f"{themes}{mark_rules()}{shades}\n{_asset('report.css')}"


def _asset(name: str) -> str:
    return files("huc_monitor.reporting").joinpath("assets", name).read_text("utf-8")


@cache
def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
