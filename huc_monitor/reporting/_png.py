"""Pictures as PNG, for places that show no SVG; matplotlib draws the same marks."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from huc_monitor._common.safe_text import visible
from huc_monitor.errors import MissingExtraError
from huc_monitor.reporting._drawing import Group, Line, Mark, Path, Picture, Rect, Text
from huc_monitor.reporting._looks import LIGHT, LOOKS, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCH = 96.0
_POINTS = 72.0 / _INCH
_ANCHOR = {"start": "left", "middle": "center", "end": "right"}


def to_png(picture: Picture, *, zoom: float = 2.0) -> bytes:
    """Return the picture as a PNG file, on a light ground."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        missing = MissingExtraError.of("matplotlib")
        raise missing from error

    figure = Figure(figsize=(picture.width / _INCH, picture.height / _INCH), dpi=_INCH * zoom)
    FigureCanvasAgg(figure)
    figure.patch.set_facecolor(LIGHT["paper"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, picture.width)
    axes.set_ylim(picture.height, 0)
    axes.axis("off")
    for order, mark in enumerate(_flat(picture.marks)):
        _draw(axes, mark, order)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _flat(marks: Iterable[Mark]) -> Iterator[Rect | Line | Path | Text]:
    for mark in marks:
        if isinstance(mark, Group):
            yield from _flat(mark.marks)
        else:
            yield mark


def _draw(axes: Axes, mark: Rect | Line | Path | Text, order: int) -> None:
    from matplotlib import patches

    look = LOOKS[mark.look]
    match mark:
        case Rect() if mark.radius:
            corner = min(mark.radius, mark.width / 2, mark.height / 2)
            style = patches.BoxStyle.Round(pad=0, rounding_size=corner)
            place = (mark.x, mark.y)
            axes.add_patch(
                patches.FancyBboxPatch(
                    place, mark.width, mark.height, boxstyle=style, **_paint(look, order)
                )
            )
        case Rect():
            axes.add_patch(
                patches.Rectangle((mark.x, mark.y), mark.width, mark.height, **_paint(look, order))
            )
        case Line():
            _polyline(axes, ((mark.x1, mark.y1), (mark.x2, mark.y2)), look, order)
        case Path() if mark.closed:
            axes.add_patch(patches.Polygon(mark.points, closed=True, **_paint(look, order)))
        case Path():
            _polyline(axes, mark.points, look, order)
        case Text():
            axes.text(
                mark.x,
                mark.y,
                visible(mark.text),
                fontsize=look.size * _POINTS * 0.96,
                fontweight="bold" if look.bold else "normal",
                color=LIGHT[look.fill],
                ha=_ANCHOR[mark.anchor],
                va="baseline",
                parse_math=False,
                zorder=order,
            )


def _paint(look: Look, order: int) -> dict[str, Any]:
    return {
        "facecolor": "none" if look.fill == "none" else LIGHT[look.fill],
        "edgecolor": "none" if look.stroke == "none" else LIGHT[look.stroke],
        "linewidth": look.width * _POINTS if look.stroke != "none" else 0.0,
        "linestyle": _dash(look),
        "alpha": look.opacity,
        "zorder": order,
    }


def _polyline(axes: Axes, through: tuple[tuple[float, float], ...], look: Look, order: int) -> None:
    xs, ys = zip(*through, strict=True)
    axes.plot(
        xs,
        ys,
        color=LIGHT[look.stroke],
        linewidth=look.width * _POINTS,
        linestyle=_dash(look),
        solid_joinstyle="miter",
        zorder=order,
    )


def _dash(look: Look) -> Any:
    if not look.dash:
        return "solid"
    return (0, tuple(d / look.width for d in look.dash))
