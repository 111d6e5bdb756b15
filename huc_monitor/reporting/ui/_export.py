"""The same pages as files: a site that opens from a disk and makes no request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from huc_monitor._common.private_files import private_opener
from huc_monitor.errors import HUCError, InvalidInputError
from huc_monitor.reporting._history import heat_map_rows
from huc_monitor.reporting.ui._fleet import Fleet, Seat
from huc_monitor.reporting.ui._links import DiskLinks
from huc_monitor.reporting.ui._pages import Pages

_MOST_BRANCHES = 200
_FIRST = "index.html"


def export_site(fleet: Fleet, folder: Path) -> tuple[list[Path], dict[Path, str]]:
    """Write all pages into a folder that is new, empty, or such a site already.

    Of each monitor there are its newest windows, the branches that matter most, and its versions.
    Returns the files, and why which configurations' monitors could not be read.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / _FIRST).is_file():
        msg = f"`export` must be a new or empty folder, or an earlier site; got {str(folder)!r}."
        raise InvalidInputError(msg)
    windows: dict[str, list[int]] = {}
    branches: dict[str, list[int]] = {}
    unread: dict[Path, str] = {}
    for slug, seat in fleet.seats.items():
        try:
            windows[slug], branches[slug] = _pages_of(seat)
        except (HUCError, OSError) as error:
            unread[seat.path] = " ".join(str(error).split())
    links = DiskLinks(windows=windows, branches=branches)
    top = Pages(fleet, links)
    written = [
        _write(folder / _FIRST, top.overview()),
        _write(folder / "alerts.html", top.alerts()),
    ]
    below = Pages(fleet, replace(links, depth=1))
    for slug, ordinals in windows.items():
        place = folder / slug
        written.append(_write(place / _FIRST, below.model(slug)))
        written.append(_write(place / "versions.html", below.versions(slug)))
        written += [
            _write(place / f"window-{window}.html", below.model(slug, window))
            for window in ordinals
        ]
        written += [
            _write(place / f"branch-{index}.html", below.branch(slug, index))
            for index in branches[slug]
        ]
    return written, unread


def _pages_of(seat: Seat) -> tuple[list[int], list[int]]:
    """Say which windows and branches of a monitor get a page."""
    with seat.lock:
        seat.state()
        report = seat.report()
        place = {name: index for index, name in enumerate(seat.watched.tree.nodes)}
    windows = [one.ordinal for one in report.windows if one.ordinal is not None]
    told = [one.node for one in report.findings]
    nodes = dict.fromkeys([*told, *(node for node, _ in heat_map_rows(report, _MOST_BRANCHES))])
    return windows, [place[node] for node in nodes if node in place]


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n", opener=private_opener) as file:
        file.write(text)
    return path
