"""The pages: each method reads what a page shows and fills in its template."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from huc_monitor._common.safe_text import quoted
from huc_monitor._common.times import EPOCH, say_time
from huc_monitor.errors import HUCError, UnknownNameError
from huc_monitor.monitor import MonitorState
from huc_monitor.monitor.forecasting import say_forecast
from huc_monitor.monitor.people import say_people_of
from huc_monitor.monitor.records import AlertState
from huc_monitor.reporting import _words
from huc_monitor.reporting._history import branch_moments, sparkline
from huc_monitor.reporting._model import Report
from huc_monitor.reporting._page import content, render_page
from huc_monitor.reporting.ui._fleet import Fleet, Overview, Seat
from huc_monitor.reporting.ui._links import Links

_MOST_FOUND = 50
_MOST_CHILDREN = 60


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """Makes pages of a fleet; `links` says where they will be."""

    fleet: Fleet
    links: Links = Links()  # noqa: RUF009 - frozen

    def overview(self) -> str:
        """All monitors, the worst first."""
        found = self.fleet.overview()
        counts = {one.status: 0 for one in found}
        for one in found:
            counts[one.status] += 1
        return self._render(
            "fleet.html.jinja",
            monitors=found,
            counts=counts,
            forecast_of=_forecast,
            sparkline=sparkline,
        )

    def model(self, slug: str, window: int | None = None, find: str = "") -> str:
        """One monitor as it stood after a window."""
        seat = self.seat(slug)
        with seat.lock:
            state = seat.state()
            report = seat.report(self._chosen(state, window))
        return self._render(
            "model.html.jinja",
            **self._about(seat, state, report, window),
            hits=self._hits(slug, report, window, find) if find else None,
            wanted=find[:200],
            find_page="" if self.links.on_disk else self.links.model(slug),
        )

    def branch(
        self, slug: str, index: int, window: int | None = None, *, rows: bool = False
    ) -> str:
        """One branch: its moments over windows, for whom, in which range, and what is confused."""
        seat = self.seat(slug)
        with seat.lock:
            state = seat.state()
            report = seat.report(self._chosen(state, window))
            nodes = seat.watched.tree.nodes
            if not 0 <= index < len(nodes):
                msg = f"`branch` must be below {len(nodes)}; got {index}."
                raise UnknownNameError(msg)
            node = nodes[index]
            looked = None
            if rows:
                from huc_monitor.reporting.ui._rows import look_at_rows

                looked = look_at_rows(seat, state, report, node)
        found = [] if report.latest is None else [*report.latest.ranked(node)]
        return self._render(
            "branch.html.jinja",
            **self._about(seat, state, report, window),
            node=node,
            node_index=index,
            above=report.tree.ancestors(node) if report.tree else [],
            children=[] if report.tree is None else report.tree.children(node)[:_MOST_CHILDREN],
            told=[_words.told(one, report.zone) for one in report.findings if one.node == node],
            found=found,
            shares=None if report.latest is None else report.latest.frequencies.get(node),
            moments=branch_moments(report, node) if found and len(report.windows) > 1 else None,
            looked=looked,
        )

    def alerts(self, who: str = "") -> str:
        """Open alerts of all monitors, by branch, with what can be done about each."""
        shown = [(one, self._groups(one)) for one in self.fleet.overview()]
        return self._render(
            "alerts.html.jinja", monitors=[*filter(_matters, shown)], who=who, keyed=name_key
        )

    def _groups(self, one: Overview) -> list[AlertGroup]:
        """Gather the open alerts of each branch, the worst first."""
        by_node: dict[str, list[AlertState]] = {}
        for alert in () if one.state is None else one.state.open_alerts:
            by_node.setdefault(alert.node, []).append(alert)
        groups = []
        for node, found in by_node.items():
            nodes = self.fleet.seats[one.slug].watched.tree.nodes
            page = self.links.branch(one.slug, nodes.index(node)) if node in nodes else None
            groups.append(AlertGroup(node, tuple(sorted(found, key=_urgency)), page))
        return sorted(groups, key=lambda group: _urgency(group.lead))

    def versions(self, slug: str) -> str:
        """Versions of a model, who is champion, and how the challenger does."""
        seat = self.seat(slug)
        found, trial, trouble = None, None, ""
        with seat.lock:
            try:
                host = seat.watched.host()
                trouble = "The tracker of this monitor keeps no versions; `tracker: mlflow` does."
                if host is not None:
                    found, trial = host.versions(), host.trial()
            except HUCError as error:
                trouble = str(error)
        return self._render(
            "versions.html.jinja",
            slug=slug,
            name=seat.watched.name,
            zone=seat.watched.actions.zone,
            versions=found,
            trial=trial,
            trouble=trouble,
            card=_card,
        )

    def login(self, trouble: str = "") -> str:
        """Ask for the token."""
        return self._render("login.html.jinja", trouble=trouble)

    def trouble(self, title: str, text: str) -> str:
        """Say what went wrong."""
        return self._render("trouble.html.jinja", title=title, text=text)

    def seat(self, slug: str) -> Seat:
        """Return a monitor by its slug."""
        if slug not in self.fleet.seats:
            msg = f"`monitor` must be one of those shown; got {quoted(slug)}."
            raise UnknownNameError(msg)
        return self.fleet.seats[slug]

    def _chosen(self, state: MonitorState, window: int | None) -> int | None:
        newest = 0 if state.last is None else state.last.ordinal
        if window is not None and not 1 <= window <= newest:
            msg = f"`window` must be from 1 to {newest}; got {window}."
            raise UnknownNameError(msg)
        return window

    def _about(
        self, seat: Seat, state: MonitorState, report: Report, window: int | None
    ) -> dict[str, Any]:
        """Return what every page of a monitor shows."""
        slug = seat.slug
        place = {name: index for index, name in enumerate(seat.watched.tree.nodes)}
        newest = report.windows[-1].ordinal if report.windows else None
        before = after = None
        if newest is not None:
            before = self.links.model(slug, newest - 1) if newest > 1 else None
            last = 0 if state.last is None else state.last.ordinal
            after = self.links.model(slug, newest + 1) if newest < last else None

        def branch_page(name: str) -> str | None:
            return self.links.branch(slug, place[name], window) if name in place else None

        return {
            **content(report),
            "slug": slug,
            "name": seat.watched.name,
            "state": state,
            "shown_window": newest,
            "travelled": window is not None,
            "before": before,
            "after": after,
            "branch_page": branch_page,
            "window_page": partial(self.links.model, slug),
        }

    def _hits(
        self, slug: str, report: Report, window: int | None, find: str
    ) -> list[tuple[str, str | None]]:
        """Find branches by a part of their name, of any case."""
        part = find.casefold()
        nodes = () if report.tree is None else report.tree.nodes
        found = [(i, name) for i, name in enumerate(nodes) if part in name.casefold()]
        found.sort(key=lambda item: (item[1].casefold() != part, item[0]))
        return [(name, self.links.branch(slug, i, window)) for i, name in found[:_MOST_FOUND]]

    def _render(self, template: str, **shown: Any) -> str:
        return render_page(template, {"links": self.links, **shown}, forms=not self.links.on_disk)


@dataclass(frozen=True, slots=True, eq=False)
class AlertGroup:
    """The open alerts of one branch, the most urgent first."""

    node: str
    alerts: tuple[AlertState, ...]
    page: str | None

    @property
    def lead(self) -> AlertState:
        """The most urgent."""
        return self.alerts[0]

    @property
    def level(self) -> str:
        """Its level."""
        return str(self.lead.level)

    @property
    def subgroups(self) -> list[str]:
        """Those it is open for."""
        return sorted({alert.subgroup for alert in self.alerts})

    @property
    def people(self) -> list[str]:
        """Say once what people did, and about how many of these alerts."""
        return say_people_of(self.alerts)


def name_key(name: object) -> str:
    """Return what stands for a name in a form: a page shows names, but not every character."""
    return hashlib.sha256(str(name).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _card(text: str) -> list[tuple[str, list[Any]]]:
    r"""Part a model card, which is Markdown, into paragraphs, lists and tables of plain text.

    Examples
    --------
    >>> _card("**Gate.** passed\n- branch `a`\n| | now |\n|---|---|\n| HUC | 0.1 |")
    [('text', ['Gate. passed']), ('list', ['branch a']), ('table', [['', 'now'], ['HUC', '0.1']])]
    """
    blocks: list[tuple[str, list[Any]]] = []
    for line in text.splitlines():
        said = line.strip().replace("**", "").replace("`", "")
        kind = {"|": "table", "-": "list"}.get(said[:1], "text")
        if not said.strip("|- "):
            continue
        if not blocks or blocks[-1][0] != kind:
            blocks.append((kind, []))
        cells = [cell.strip() for cell in said.strip("|").split("|")]
        blocks[-1][1].append(cells if kind == "table" else said.removeprefix("- "))
    return blocks


def _urgency(alert: AlertState) -> tuple[bool, bool, float]:
    return alert.muted is not None, alert.level != "critical", -alert.excess


def _matters(shown: tuple[Overview, list[AlertGroup]]) -> bool:
    one, groups = shown
    return bool(groups or one.error or (one.state and (one.state.mutes or one.state.failed)))


def _forecast(one: Overview) -> Sequence[str]:
    """Say what is expected of the newest window without labels, unless a newer one was audited."""
    state = one.state
    if state is None:
        return []
    kept = [(state.forecast_starts.get(key), items) for key, items in state.forecasts.items()]
    audited = [point.start for point in one.trend if point.status == "audited"]
    newer = [(at, items) for at, items in kept if at and items and at > max(audited, default=EPOCH)]
    if not newer:
        return []
    start, newest = max(newer, key=lambda found: found[0])
    said = (_words.quoted(say_forecast(item)) for item in newest[:3])
    return [f"{say_time(start, one.zone)}:", *said]
