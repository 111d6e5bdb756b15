"""The report as one HTML page: no request leaves it, and every name in it is text."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING

from huc_monitor.reporting import _sections, _words
from huc_monitor.reporting._drawing import escape
from huc_monitor.reporting._looks import DARK, LIGHT, SHADES, mark_rules, variables
from huc_monitor.reporting._payload import payload

if TYPE_CHECKING:
    from huc_monitor.reporting._model import Report


def render(report: Report) -> str:
    """Return the page."""
    style, script = _style(), _asset("report.js")
    # Only these very texts may style or run: whatever a name might smuggle in is refused as well.
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    sections = "".join(
        (
            _sections.verdict(report),
            _sections.tree(report),
            _sections.worst(report),
            _sections.history(report),
            _sections.subgroups(report),
            _sections.footer(report),
        )
    )
    window = report.latest
    rows = "" if window is None else f"{window.n:,.0f} labelled predictions"
    if window is not None and window.tick:
        rows = f"{window.name}, {rows}"
    return f"""<!DOCTYPE html>
<html lang="en" data-theme="auto">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(report.title)}: {escape(_words.verdict(report))}</title>
<style>{style}</style>
</head>
<body>
<div class="page">
<a class="skip" href="#main">Skip to the findings</a>
<header class="top">
<div><h1>{escape(report.title)}</h1><p>{escape(rows)}</p></div>
<button type="button" class="plain screen" id="theme">Theme: auto</button>
</header>
<main id="main">{sections}</main>
</div>
<dialog id="story" aria-labelledby="story-title">
<button type="button" class="plain close" id="story-close">Close</button>
<div id="story-body"></div>
</dialog>
<script type="application/json" id="data">{payload(report)}</script>
<script>{script}</script>
</body>
</html>
"""


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


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
