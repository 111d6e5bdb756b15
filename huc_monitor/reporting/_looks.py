"""Colours and line styles, once for the page, for SVG files and for PNG files.

Colour is never the only sign: what exceeds the tolerance has an outline, solid where it is sure
and dashed where it may be chance, and every number carries its sign. Orange and blue stay apart
in all common forms of colour blindness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

# Shades of a moment: `o` where predictions overstate utility, `u` where they understate it; from
# 1 (under half the tolerance is `z`) to 4 (more than four times the tolerance).
_PALETTE: Final = {  # name: on a light ground, on a dark one
    "paper": ("#ffffff", "#14171b"),
    "panel": ("#f6f7f9", "#1c2025"),
    "ink": ("#1b1f24", "#e8ebee"),
    "muted": ("#59636e", "#a3adb8"),
    "line": ("#d5dae0", "#3a414a"),
    "grid": ("#e8ebee", "#282d33"),
    "accent": ("#0b5fae", "#7db9f2"),
    "sure": ("#8f1d14", "#ff9c8f"),
    "shade": ("#fff3d6", "#3a3320"),
    "z": ("#edf0f2", "#262b31"),
    "on-z": ("#1b1f24", "#e8ebee"),
    "o1": ("#fbe7d6", "#3d2c20"),
    "on-o1": ("#1b1f24", "#f3e6dc"),
    "o2": ("#f5ba88", "#6b4223"),
    "on-o2": ("#1b1f24", "#fdefe3"),
    "o3": ("#e08a45", "#c9733a"),
    "on-o3": ("#1b1203", "#150c04"),
    "o4": ("#a3430a", "#ffb27a"),
    "on-o4": ("#ffffff", "#1a0f05"),
    "u1": ("#dfeaf7", "#1f2c3c"),
    "on-u1": ("#1b1f24", "#dfeaf5"),
    "u2": ("#a6c8ea", "#2b4d74"),
    "on-u2": ("#1b1f24", "#eaf3fc"),
    "u3": ("#629fd6", "#5593cf"),
    "on-u3": ("#061424", "#04101c"),
    "u4": ("#1b5690", "#9fd0ff"),
    "on-u4": ("#ffffff", "#051424"),
}
LIGHT: Final = {name: light for name, (light, _) in _PALETTE.items()}
DARK: Final = {name: dark for name, (_, dark) in _PALETTE.items()}
SHADES: Final = ("z", "o1", "o2", "o3", "o4", "u1", "u2", "u3", "u4")


@dataclass(frozen=True, slots=True)
class Look:
    """How a mark is painted; colours are names of the palette."""

    fill: str = "none"
    stroke: str = "none"
    width: float = 1.0
    dash: tuple[float, ...] = ()
    size: float = 12.0
    bold: bool = False
    opacity: float = 1.0
    halo: bool = False  # of the page's colour, for words that lines cross


LOOKS: Final[dict[str, Look]] = {
    "paper": Look(fill="paper"),
    "panel": Look(fill="panel"),
    "empty": Look(fill="panel", stroke="paper", width=1.5),
    "shaded": Look(fill="shade"),
    "grid": Look(stroke="grid"),
    "axis": Look(stroke="line"),
    "zero": Look(stroke="muted"),
    "edge": Look(stroke="muted", dash=(2, 3)),
    "limit": Look(stroke="sure", dash=(6, 4)),
    "ideal": Look(stroke="muted", dash=(1, 4), width=1.5),
    "strong": Look(stroke="accent", width=2.2),
    "quiet": Look(stroke="muted", width=1.6),
    "band": Look(fill="accent", opacity=0.16),
    "quiet-band": Look(fill="muted", opacity=0.16),
    "dot": Look(fill="accent", stroke="paper", width=1.2),
    "quiet-dot": Look(fill="paper", stroke="muted", width=1.4),
    "whisker": Look(stroke="ink", width=1.4),
    "sum": Look(fill="ink"),
    "critical": Look(fill="sure"),
    "warning": Look(fill="paper", stroke="sure", width=1.6, dash=(4, 3)),
    "title": Look(fill="ink", size=15, bold=True),
    "label": Look(fill="ink"),
    "name": Look(fill="ink", bold=True),
    "small": Look(fill="ink", size=11),
    "note": Look(fill="muted", size=11),
    "halo": Look(fill="muted", size=11, halo=True),
    "alarm": Look(fill="sure", size=12, bold=True),
    **{shade: Look(fill=shade, stroke="paper", width=1.5) for shade in SHADES},
    **{f"bar-{shade}": Look(fill=shade) for shade in SHADES},
    # At the edge, so that they stand out from the page, whatever colour they enclose.
    "sure": Look(stroke="ink", width=2.6),
    "possible": Look(stroke="ink", width=1.6, dash=(4, 3)),
    **{f"on-{shade}": Look(fill=f"on-{shade}") for shade in SHADES},
    **{f"name-{shade}": Look(fill=f"on-{shade}", bold=True) for shade in SHADES},
}
MARK_CLASS: Final = "m-"


def variables(palette: dict[str, str]) -> str:
    """Return a palette as CSS custom properties."""
    return "".join(f"--{name}:{value};" for name, value in palette.items())


def mark_rules(palette: dict[str, str] | None = None) -> str:
    """Return the CSS rules of all looks: with variables, or with one palette's own colours."""
    rules = []
    for name, look in LOOKS.items():
        parts = [f"fill:{_colour(look.fill, palette)}", f"stroke:{_colour(look.stroke, palette)}"]
        if look.stroke != "none":
            parts.append(f"stroke-width:{look.width:g}")
        if look.dash:
            parts.append(f"stroke-dasharray:{' '.join(f'{d:g}' for d in look.dash)}")
        if look.opacity < 1:
            parts.append(f"opacity:{look.opacity:g}")
        if look.stroke == "none" and look.opacity == 1:
            parts.append(f"font-size:{look.size:g}px")
            if look.bold:
                parts.append("font-weight:600")
            if look.halo:
                page = _colour("paper", palette)
                parts[1] = f"stroke:{page};stroke-width:4;stroke-linejoin:round;paint-order:stroke"
        rules.append(f".{MARK_CLASS}{name}{{{';'.join(parts)}}}")
    return "".join(rules)


def _colour(name: str, palette: dict[str, str] | None) -> str:
    if name == "none":
        return "none"
    return f"var(--{name})" if palette is None else palette[name]


def shade(moment: float, tolerance: float) -> str:
    """Return the shade of a signed moment measured against its tolerance.

    Examples
    --------
    >>> [shade(moment, 0.02) for moment in (0.009, -0.015, 0.03, -0.07, 0.1)]
    ['z', 'o1', 'u2', 'o3', 'u4']
    """
    ratio = abs(moment) / tolerance if tolerance > 0 else (4.5 if moment else 0.0)
    step = sum(ratio > limit for limit in (0.5, 1.0, 2.0, 4.0))
    return f"{'o' if moment < 0 else 'u'}{step}" if step else "z"


def bar_tone(moment: float, tolerance: float) -> str:
    """Return the shade of a bar, which is never that of zero: its side is to be seen."""
    tone = shade(moment, tolerance)
    return tone if tone != "z" else ("o1" if moment < 0 else "u1")
