"""Pictures and the HTML report of an audit, or of a monitor's records. Nothing is computed here."""

from __future__ import annotations

import os
from pathlib import Path

from huc_monitor._common.private_files import private_opener
from huc_monitor.audit.comparison import Comparison
from huc_monitor.audit.curves import ReliabilityCurve
from huc_monitor.audit.discovery.discover import Discovery
from huc_monitor.errors import InvalidInputError
from huc_monitor.reporting._charts import moment_bars, reliability, waterfall
from huc_monitor.reporting._compared import difference_grid, differences, segments
from huc_monitor.reporting._drawing import Picture, Pictures, stack
from huc_monitor.reporting._history import heat_map, timeline
from huc_monitor.reporting._icicle import icicle
from huc_monitor.reporting._reading import Source, read
from huc_monitor.reporting._tracks import tracks
from huc_monitor.tree import LabelTree

__all__ = ["Picture", "draw_pictures", "render_report", "save_picture", "stack", "write_report"]


def render_report(
    source: Source,
    *,
    tree: LabelTree | None = None,
    tolerance: float | None = None,
    title: str | None = None,
    curve: ReliabilityCurve | None = None,
) -> str:
    """Return the report as one self-contained HTML page; see :func:`write_report`."""
    from huc_monitor.reporting._page import render

    _check_tolerance(tolerance)
    return render(read(source, tree=tree, tolerance=tolerance, title=title, curve=curve))


def write_report(
    source: Source,
    path: str | os.PathLike[str],
    *,
    tree: LabelTree | None = None,
    tolerance: float | None = None,
    title: str | None = None,
    curve: ReliabilityCurve | None = None,
) -> Path:
    """Write one self-contained HTML page: what is wrong, where, for whom, and how certain that is.

    The page makes no request, works offline, follows the reader's light or dark setting, and can
    be read by keyboard and screen reader. The same input gives the same bytes.

    Parameters
    ----------
    source : AuditResult, its ``to_dict()``, a WindowRecord, or several in any order
        Of several revisions of a window the last one is shown.
    path : path
        Where to write; an existing file is replaced.
    tree : LabelTree, optional
        Needed for the picture of the tree, unless `source` is an AuditResult, which knows it.
    tolerance : float, optional
        Largest absolute moment that is accepted. Records bring their own tolerances.
    title : str, optional
    curve : ReliabilityCurve, optional
        Of the worst candidate (:func:`huc_monitor.audit.curves.reliability_curve`). Records bring
        theirs.

    Examples
    --------
    >>> import tempfile, huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
    >>> pay = hm.Payoff("pay", {"a": -1, "b": 1, "c": 1, "d": 1})
    >>> result = hm.audit([[0.25] * 4] * 8, list("aacccddd"), tree=tree, utilities=[pay])
    >>> path = write_report(result, tempfile.mkdtemp() + "/report.html", tolerance=0.02)
    >>> "2 branches are above tolerance, but it may be chance." in path.read_text("utf-8")
    True
    """
    page = render_report(source, tree=tree, tolerance=tolerance, title=title, curve=curve)
    target = Path(path)
    with open(target, "w", encoding="utf-8", newline="\n", opener=private_opener) as file:
        file.write(page)
    return target


def draw_pictures(
    source: Source | Comparison | Discovery,
    *,
    tree: LabelTree | None = None,
    tolerance: float | None = None,
    curve: ReliabilityCurve | None = None,
    tree_width: float = 960.0,
) -> Pictures:
    """Draw the report's pictures, for logs and artifact stores.

    Keys are ``moments``; ``icicle`` when the tree is known; ``waterfall`` when a moment is not
    zero; ``reliability`` when there is a curve; ``heat_map`` and ``timeline`` when there are
    several windows; ``changes`` when branches changed since the reference. Of a
    :class:`~huc_monitor.Comparison`: ``differences`` and ``by_subgroup``; of a
    :class:`~huc_monitor.Discovery`: ``segments``. `tree_width` is the least width of the icicle, in
    pixels; other parameters are those of :func:`write_report`.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
    >>> even, pay = [[0.25] * 4] * 400, hm.Payoff("pay", {"a": 1, "c": 1})
    >>> sides = (even, list("abcd") * 100), (even, list("aaaabcdcdc") * 40)
    >>> found = hm.compare(*sides, tree=tree, utilities=pay)
    >>> picture = draw_pictures(found)["differences"]
    >>> picture.description
    'left, everyone, pay +0.150; right, everyone, pay +0.050; root, everyone, pay 0.000.'
    """
    if isinstance(source, Comparison):
        if not len(source):
            return Pictures()
        return Pictures(differences=differences(source), by_subgroup=difference_grid(source))
    if isinstance(source, Discovery):
        return Pictures(segments=segments(source)) if source.segments else Pictures()
    _check_tolerance(tolerance)
    report = read(source, tree=tree, tolerance=tolerance, curve=curve)
    pictures = Pictures()
    window = report.latest
    worst = None if window is None else window.worst
    if window is not None and worst is not None:
        pictures["moments"] = moment_bars(window)
        if report.tree is not None:
            pictures["icicle"] = icicle(window, report.tree, width=tree_width)
        if worst.moment != 0:
            pictures["waterfall"] = waterfall(window, worst)
            curve = window.curve
            if curve is not None and curve.predicted:
                shown = window.find(curve.node, curve.subgroup, curve.utility) or worst
                pictures["reliability"] = reliability(curve, shown)
    if len(report.windows) > 1:
        pictures["heat_map"] = heat_map(report)
        pictures["timeline"] = timeline(report)
    changed = tracks(report)
    if changed is not None:
        pictures["changes"] = changed
    return pictures


def save_picture(picture: Picture, path: str | os.PathLike[str]) -> Path:
    """Write a picture as ``.svg``, or as ``.png`` (which needs matplotlib)."""
    target = check_picture_path(path)
    if target.suffix.lower() == ".svg":
        target.write_text(picture.to_svg(), "utf-8", newline="\n")
    else:
        from huc_monitor.reporting._png import to_png

        target.write_bytes(to_png(picture))
    return target


def check_picture_path(path: str | os.PathLike[str]) -> Path:
    """Refuse a file that a picture cannot be written to by its name, before anything is drawn."""
    target = Path(path)
    if target.suffix.lower() not in {".svg", ".png"}:
        msg = f"`path` must end in .svg or .png; got {target.suffix.lower()!r}."
        raise InvalidInputError(msg)
    return target


def _check_tolerance(tolerance: object) -> None:
    if tolerance is None:
        return
    if not isinstance(tolerance, int | float) or isinstance(tolerance, bool) or not tolerance >= 0:
        msg = f"`tolerance` must be a number of at least 0; got {tolerance!r}."
        raise InvalidInputError(msg)
