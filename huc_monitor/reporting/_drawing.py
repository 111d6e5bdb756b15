"""Pictures as lists of marks, written out as SVG.

Every text passes through :func:`escape`, so a name is a name whatever it holds.
"""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from huc_monitor._common.safe_text import visible
from huc_monitor.reporting._looks import DARK, FONT, LIGHT, LOOKS, MARK_CLASS, mark_rules

Anchor = Literal["start", "middle", "end"]
_WIDE: Final = set("mwMWGOQ%@—")
_NARROW: Final = set("ijltfrI.,:;'!|()[]{}/\\ -")


@dataclass(frozen=True, slots=True)
class Rect:
    """A box."""

    x: float
    y: float
    width: float
    height: float
    look: str
    radius: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    look: str


@dataclass(frozen=True, slots=True)
class Path:
    """A line through points; with `closed`, an area."""

    points: tuple[tuple[float, float], ...]
    look: str
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text, `y` at its baseline."""

    x: float
    y: float
    text: str
    look: str
    anchor: Anchor = "start"


@dataclass(frozen=True, slots=True)
class Group:
    """Marks that belong together, with what a page says about them."""

    marks: tuple[Mark, ...]
    title: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


Mark = Rect | Line | Path | Text | Group


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A drawing with a title and a description in words for who cannot see it.

    ``to_svg()`` is a complete file that follows the reader's light or dark setting;
    :func:`huc_monitor.reporting.save_picture` writes SVG or PNG.
    """

    width: float
    height: float
    marks: tuple[Mark, ...]
    title: str
    description: str

    def __repr__(self) -> str:
        """One line: what is drawn."""
        return f"Picture({self.title!r}, {self.width:.0f} x {self.height:.0f})"

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _repr_html_(self) -> str:
        """Follow the theme of the notebook, where an SVG could only follow that of the system."""
        from huc_monitor.reporting.notebook import show

        return show(self)

    def to_svg(self) -> str:
        """Return a self-contained SVG document."""
        style = (
            f"text{{font-family:{FONT};font-variant-numeric:tabular-nums}}"
            f"{mark_rules(LIGHT)}@media (prefers-color-scheme:dark){{{mark_rules(DARK)}}}"
        )
        names = f"<title>{escape(self.title)}</title><desc>{escape(self.description)}</desc>"
        paper = Rect(0, 0, self.width, self.height, "paper")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" role="img">{names}'
            f"<style>{style}</style>{_svg(paper)}{self.body()}</svg>\n"
        )

    def inline(self, *, role: str = "img") -> str:
        """Return the SVG element for a page that brings its own style."""
        label = escape(f"{self.title}. {self.description}")
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" '
            f'height="{self.height:g}" role="{role}" aria-label="{label}">{self.body()}</svg>'
        )

    def body(self) -> str:
        """Return the marks alone."""
        return "".join(map(_svg, self.marks))


class Pictures(dict[str, Picture]):
    """Pictures by name; a notebook shows all of them."""

    def _repr_html_(self) -> str:
        from huc_monitor.reporting.notebook import show

        return show(self)


def stack(pictures: Sequence[Picture], *, gap: float = 28.0, margin: float = 16.0) -> Picture:
    """Put pictures below one another, each under its title, as one picture."""
    marks: list[Mark] = []
    y = margin
    for picture in pictures:
        marks.append(Text(margin, y + 14, picture.title, "title"))
        y += 30
        marks += [_moved(mark, margin, y) for mark in picture.marks]
        y += picture.height + gap
    return Picture(
        width=max(picture.width for picture in pictures) + 2 * margin,
        height=y - gap + margin,
        marks=tuple(marks),
        title="; ".join(picture.title for picture in pictures),
        description=" ".join(picture.description for picture in pictures),
    )


def _moved(mark: Mark, dx: float, dy: float) -> Mark:
    match mark:
        case Group():
            # Roles and keyboard stops belong to a page.
            return Group(tuple(_moved(inner, dx, dy) for inner in mark.marks), mark.title)
        case Line():
            return Line(mark.x1 + dx, mark.y1 + dy, mark.x2 + dx, mark.y2 + dy, mark.look)
        case Path():
            return replace(mark, points=tuple((x + dx, y + dy) for x, y in mark.points))
        case _:
            return replace(mark, x=mark.x + dx, y=mark.y + dy)


def _svg(mark: Mark) -> str:
    match mark:
        case Group():
            given = "".join(f' {key}="{escape(v)}"' for key, v in mark.attributes.items())
            title = f"<title>{escape(mark.title)}</title>" if mark.title else ""
            tag = "a" if "href" in mark.attributes else "g"
            return f"<{tag}{given}>{title}{''.join(map(_svg, mark.marks))}</{tag}>"
        case Rect():
            corner = f' rx="{mark.radius:g}"' if mark.radius else ""
            return (
                f'<rect class="{MARK_CLASS}{mark.look}" x="{short(mark.x)}" y="{short(mark.y)}" '
                f'width="{short(mark.width)}" height="{short(mark.height)}"{corner}/>'
            )
        case Line():
            return (
                f'<line class="{MARK_CLASS}{mark.look}" x1="{short(mark.x1)}" '
                f'y1="{short(mark.y1)}" x2="{short(mark.x2)}" y2="{short(mark.y2)}"/>'
            )
        case Path():
            points = "L".join(f"{short(x)},{short(y)}" for x, y in mark.points)
            return f'<path class="{MARK_CLASS}{mark.look}" d="M{points}{"Z" * mark.closed}"/>'
        case Text():
            anchor = f' text-anchor="{mark.anchor}"' if mark.anchor != "start" else ""
            return (
                f'<text class="{MARK_CLASS}{mark.look}" x="{short(mark.x)}" '
                f'y="{short(mark.y)}"{anchor}>{escape(mark.text)}</text>'
            )


def escape(text: object) -> str:
    """Return text that is safe in HTML and XML, between tags and in quoted attributes."""
    return html.escape(visible(text))


def short(value: float) -> str:
    """Return a coordinate with at most two decimals.

    Examples
    --------
    >>> short(3.14159), short(2.0), short(-0.001)
    ('3.14', '2', '0')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def text_width(text: str, look: str) -> float:
    """Estimate the width of a line of sans-serif text, a little on the wide side."""
    return _em(look) * sum(map(_advance, text))


def _em(look: str) -> float:
    return LOOKS[look].size * (1.2 if LOOKS[look].bold else 1.0)


def _advance(character: str) -> float:
    if unicodedata.east_asian_width(character) in {"W", "F"}:
        return 1.0
    if character in _WIDE:
        return 0.9
    if character in _NARROW:
        return 0.34
    return 0.7 if character.isupper() else 0.6


def fitted(text: object, width: float, look: str) -> str:
    """Shorten a text to a width, keeping its beginning and end.

    Examples
    --------
    >>> fitted("a_very_long_name_of_a_node", 100, "label")
    'a_very_…a_node'
    """
    plain = " ".join(visible(text).split())
    if text_width(plain, look) <= width:
        return plain
    room = width - text_width("…", look)
    head, tail = 0, len(plain)
    used = 0.0
    while True:
        from_head = head <= len(plain) - tail
        step = _advance(plain[head] if from_head else plain[tail - 1]) * _em(look)
        if used + step > room or head + 1 >= tail:
            break
        used += step
        head, tail = (head + 1, tail) if from_head else (head, tail - 1)
    return f"{plain[:head]}…{plain[tail:]}" if head else ""


def label_step(labels: Sequence[str], width: float) -> int:
    """Say every how many places a label fits, if each place is so wide.

    Examples
    --------
    >>> label_step(["03-01", "03-02"], 40.0), label_step(["03-01"], 20.0)
    (1, 2)
    """
    longest = max(map(len, labels), default=1)
    return max(1, -(-int(longest * 7) // int(width)))


def labels_along(labels: Sequence[str], at: Callable[[float], float], y: float) -> list[Mark]:
    """Write axis labels, leaving out as many as would overlap their neighbours."""
    step = label_step(labels, max(1.0, at(1) - at(0)))
    return [Text(at(j), y, labels[j], "note", "middle") for j in range(0, len(labels), step)]


def bar(x: Scale, start: float, stop: float, y: float, height: float, tone: str) -> Mark:
    """Draw a bar from one value to another, in the tone of a moment."""
    left, right = sorted((x(start), x(stop)))
    return Rect(left, y, max(right - left, 1.0), height, f"bar-{tone}", 1.5)


def whisker(x: Scale, low: float, high: float, y: float) -> list[Mark]:
    """Draw the bounds of a bar."""
    ends = [Line(at, y - 4, at, y + 4, "whisker") for at in (x(low), x(high))]
    return [Line(x(low), y, x(high), y, "whisker"), *ends]


def band(above: Sequence[tuple[float, float]], below: Sequence[tuple[float, float]]) -> Mark:
    """Fill what lies between two lines, both from left to right."""
    return Path((*above, *reversed(below)), "band", closed=True)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers that divide a range.

    Examples
    --------
    >>> ticks(0, 1), ticks(-0.03, 0.05, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [-0.02, 0.0, 0.02, 0.04])
    """
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low] if math.isfinite(low) else []
    power = 10.0 ** math.floor(math.log10(span / about))
    step = min(
        (power * factor for factor in (1, 2, 5, 10)), key=lambda s: abs(math.log(span / s / about))
    )
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    decimals = max(0, -math.floor(math.log10(step)))
    return [round(k * step, decimals) + 0.0 for k in range(first, last + 1)]


def scale(low: float, high: float, start: float, stop: float) -> Scale:
    """Return the map from a range of data to a range of the picture."""
    return Scale(low, high if high > low else low + 1.0, start, stop)


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a number lies in the picture."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)


def points(xs: Sequence[float], ys: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Pair coordinates."""
    return tuple(zip(xs, ys, strict=True))
