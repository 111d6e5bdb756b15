"""What a monitor remembers between windows, and how it is written."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from huc_monitor._common.forms import Form, read_form, write_form
from huc_monitor.audit.forecast import Forecast
from huc_monitor.errors import HUCError, UnknownNameError
from huc_monitor.monitor.describing import gone
from huc_monitor.monitor.forecasting import ForecastScore
from huc_monitor.monitor.people import Mute
from huc_monitor.monitor.ports.stored import RESTORE_STATE, read_stored
from huc_monitor.monitor.records import (
    AlertState,
    AlertTransition,
    DriftFinding,
    RecalibrationTrigger,
    WindowRecord,
)
from huc_monitor.monitor.silence import Arrivals
from huc_monitor.monitor.windows import Window
from huc_monitor.sources import RowCounts
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.tree.changes import TreeVersion
from huc_monitor.utilities import Utility

if TYPE_CHECKING:
    from huc_monitor.monitor.ports.tracker import Tracker

SCHEMA_VERSION = 1
TREND_LENGTH = 30
Triple = tuple[str, str, str]


@dataclass(slots=True)
class Visited(Form):
    """A window that was dealt with and may be asked for late labels.

    ``counts`` is what was there, and ``as_of`` when. ``fed_from`` and ``fed_until``: the e-detector
    was given the window's rows from this time on whose labels were known by that time; None: none
    of them yet. ``failed`` says why the window could not be audited; None: it could, or a person
    dismissed it.
    """

    window: Window
    revision: int
    as_of: datetime
    counts: RowCounts
    fed_from: datetime
    fed_until: datetime | None
    failed: str | None = None

    sparse: ClassVar[tuple[str, ...]] = ("failed",)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form; the counts stand among the other fields."""
        plain = write_form(self)
        counts: dict[str, Any] = plain.pop("counts")
        last = ("fed_from", "fed_until", "failed")
        after = {name: plain.pop(name) for name in last if name in plain}
        return plain | counts | after

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Visited:
        """Read what `to_dict` wrote."""
        return read_form(cls, {**data, "counts": data})


@dataclass(frozen=True, slots=True)
class KeptWindow(Form):
    """A window whose rows the change test may pool, and the hash they are kept by."""

    id: str
    ordinal: int
    start: datetime
    end: datetime
    as_of: datetime
    digest: str
    sampled: bool = False  # of all its rows, these are a sample
    version: str | None = None  # of most of its predictions

    sparse: ClassVar[tuple[str, ...]] = ("version",)


def of_one_version(windows: Sequence[KeptWindow]) -> list[KeptWindow]:
    """Return the newest windows, since the model version that serves took over."""
    serving = windows[-1].version if windows else None
    n = 0
    for item in reversed(windows):
        if None not in {item.version, serving} and item.version != serving:
            break
        n += 1
    return list(windows[len(windows) - n :])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint(Form):
    """What an overview shows of one window, so that it need not read the record.

    ``n_labelled`` counts rows that can be audited, as reports do.
    """

    ordinal: int
    start: datetime
    end: datetime
    status: str
    level: str | None = None
    n_labelled: int = 0
    coverage: float = 0.0
    huc: float | None = None
    lower: float | None = None
    upper: float | None = None
    tolerance: float | None = None

    @classmethod
    def of(cls, record: WindowRecord) -> TrendPoint:
        """Take it from a record."""
        audit = record.audit or {}
        return cls(
            ordinal=record.ordinal,
            start=record.start,
            end=record.end,
            status=record.status,
            level=record.level,
            n_labelled=record.n_usable,
            coverage=record.coverage,
            huc=audit.get("huc"),
            lower=audit.get("huc_lower"),
            upper=audit.get("huc_upper"),
            tolerance=min(record.tolerances, default=None),
        )


@dataclass(slots=True)
class MonitorState(Form):
    """Everything the next window depends on besides the data. Plain data throughout.

    From `transitions` on it is an outbox: what was decided, and must still reach a tracker, a
    person or a recalibration host. It is saved together with the decision, and emptied once
    delivered, so that nothing is lost or decided twice whenever the process dies.
    """

    identity: str
    last: Window | None = None
    last_judged: int = 0
    model_version: str | None = None
    subgroups: dict[str, Any] | None = None
    reference: dict[str, Any] | None = None
    detectors: dict[str, dict[str, Any]] = field(default_factory=dict)
    alerts: dict[Triple, AlertState] = field(default_factory=dict)
    visited: list[Visited] = field(default_factory=list)
    early_drift: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    drift_told: dict[str, str] = field(default_factory=dict)
    last_trigger: RecalibrationTrigger | None = None
    published: str | None = None
    transitions: list[AlertTransition] = field(default_factory=list)
    drift: list[DriftFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    standing_untold: list[str] = field(default_factory=list)
    until: datetime | None = None
    record: dict[str, Any] | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    trigger: RecalibrationTrigger | None = None
    newest: str | None = None
    tree: str | None = None
    exported: dict[str, str | None] = field(default_factory=dict)
    remark: str | None = None
    reference_rows: str | None = None
    standing: list[str] = field(default_factory=list)
    compared: list[KeptWindow] = field(default_factory=list)
    reference_sampled: bool = False
    changed_since: datetime | None = None
    reference_span: tuple[str, ...] = ()
    tree_change: dict[str, Any] | None = None
    forecasts: dict[str, list[Forecast]] = field(default_factory=dict)
    forecast_scores: dict[str, ForecastScore] = field(default_factory=dict)
    mutes: list[Mute] = field(default_factory=list)
    trend: list[TrendPoint] = field(default_factory=list)
    discovered: list[str] = field(default_factory=list)
    searched_until: datetime | None = None
    unsearched: int = 0
    unsearchable: list[tuple[datetime, datetime]] = field(default_factory=list)
    arrivals: dict[str, Arrivals] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    by_value: list[str] = field(default_factory=list)
    file: str | None = None  # the configuration file's name
    forecast_starts: dict[str, datetime] = field(default_factory=dict)
    waiting: str | None = None  # what was told of a reference that is not complete
    # Of branches with critical alerts: since when they changed (first, last, likeliest window).
    onsets: dict[str, tuple[datetime, datetime, datetime]] = field(default_factory=dict)
    replaced: datetime | None = None  # `replaced_at`, where kept windows no longer say

    schema: ClassVar[int | None] = SCHEMA_VERSION
    sparse: ClassVar[tuple[str, ...]] = (
        "standing_untold",
        "mutes",
        "discovered",
        "searched_until",
        "unsearched",
        "unsearchable",
        "arrivals",
        "warnings",
        "by_value",
        "file",
        "forecast_starts",
        "waiting",
        "onsets",
        "replaced",
    )

    @property
    def reference_times(self) -> tuple[datetime, datetime] | None:
        """Start and end of the reference; None without one, and in older states, which say none."""
        if self.reference is None or "start" not in self.reference:
            return None
        start, end = (datetime.fromisoformat(self.reference[name]) for name in ("start", "end"))
        return start, end

    @property
    def open_alerts(self) -> tuple[AlertState, ...]:
        """Alerts that are open, in the order of their candidates."""
        return tuple(alert for alert in self.alerts.values() if alert.level is not None)

    @property
    def serving_since(self) -> datetime | None:
        """Start of the first kept window of the model version that serves; None without one."""
        found = of_one_version(self.compared)
        return found[0].start if found else None

    @property
    def replaced_at(self) -> datetime | None:
        """Start of the first window of the version that serves; None if none was of another."""
        since = self.serving_since
        return since if since is not None and since > self.compared[0].start else self.replaced

    @property
    def failed(self) -> tuple[Window, ...]:
        """Windows that could not be audited and that nobody dismissed, oldest first."""
        return tuple(item.window for item in self.visited if item.failed is not None)

    @property
    def silences(self) -> dict[str, datetime]:
        """What does not come any more, "rows" or "labels", and since when."""
        return {name: x.told for name, x in sorted(self.arrivals.items()) if x.told is not None}

    @property
    def status(self) -> str:
        """Where the monitor stands: "critical", "failed", "warning" or "ok", the first that holds.

        Failed: a window could not be audited, so nobody knows how the model did in it. Warning: an
        alert, or rows or labels do not come any more. Alerts that are muted do not count.
        """
        levels = {alert.level for alert in self.open_alerts if alert.muted is None}
        if "critical" in levels:
            return "critical"
        return "failed" if self.failed else "warning" if levels or self.silences else "ok"

    def follow_trend(self, record: WindowRecord) -> None:
        """Add a window to the trend; a later revision takes the place of an earlier one."""
        others = [point for point in self.trend if point.ordinal != record.ordinal]
        points = sorted([*others, TrendPoint.of(record)], key=lambda point: point.ordinal)
        self.trend = points[-TREND_LENGTH:]

    def dismiss(self, window: str) -> Window:
        """Accept that a failed window stays without an audit; `window` is its number or id."""
        failed = [item for item in self.visited if item.failed is not None]
        for item in failed:
            if window in {str(item.window.ordinal), item.window.id}:
                item.failed = None
                return item.window
        known = ", ".join(str(item.window.ordinal) for item in failed) or "none"
        msg = f"`window` must be the number of a failed window; got {window!r}. Failed: {known}."
        raise UnknownNameError(msg)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form; alerts know their candidates, so that a list of them is enough."""
        plain = write_form(self)
        detectors: dict[str, Any] = plain.pop("detectors")
        # The version that serves most rows stands apart, as older states have it.
        plain["detector"] = detectors.pop(self.model_version or "", None)
        return plain | {"detectors": detectors, "alerts": list(plain["alerts"].values())}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MonitorState:
        """Read what `to_dict` wrote."""
        state = read_form(cls, {**data, "alerts": {}})
        alerts = [AlertState.from_dict(item) for item in data["alerts"]]
        state.alerts = {alert.candidate: alert for alert in alerts}
        if data["detector"] is not None:
            state.detectors[state.model_version or ""] = data["detector"]
        return state

    @classmethod
    def after(
        cls,
        previous: Mapping[str, Any] | None,
        identity: str,
        tree: LabelTree,
        utilities: Sequence[Utility],
        file: str | None = None,
    ) -> MonitorState:
        """Begin anew, with the open alerts of the monitor before that still have a candidate.

        The monitor of another file goes on beside this one, and keeps its own.
        """
        state = cls(identity, tree=tree.fingerprint, file=file)
        if previous is None:
            return state
        old = cls.from_dict(previous)
        if old.is_of_another(file):
            state.notes.append(
                f"Another file, {old.file}, has a monitor of the same model name here. Its "
                f"{len(old.open_alerts)} open alerts and its mutes are not taken over: this is a "
                "monitor of its own."
            )
            return state
        nodes = {u.name: {tree.branches[b] for b in u.relevant_branches(tree)} for u in utilities}
        kept = [item for item in old.open_alerts if item.node in nodes.get(item.utility, ())]
        lost = [item for item in old.open_alerts if item not in kept]
        state.alerts = {item.candidate: item for item in kept}
        state.mutes = [
            one
            for one in old.mutes
            if one.branch in {None, *tree.branches} and one.utility in {None, *nodes}
        ]
        state._resolve(lost, utilities, "its branch or utility is gone")
        changed = old.tree is not None and old.tree != tree.fingerprint
        why = "`tree`" if changed else "a setting that results depend on"
        state.notes.append(
            f"The configuration's identity changed from {old.identity[:12]} to {identity[:12]} "
            f"because {why} changed: this is a new monitor, and all windows are audited again. "
            f"Open alerts of the previous monitor: {len(kept)} carried over as far as their "
            f"subgroup is still watched, {len(lost)} ended (their branch or utility is gone)."
        )
        return state

    def is_of_another(self, file: str | None) -> bool:
        """Whether another configuration file than this one is known to have left it."""
        return None not in {self.file, file} and self.file != file

    def freeze(self, subgroups: Subgroups, utilities: Sequence[Utility]) -> None:
        """Watch these subgroups; end alerts and mutes that were carried over from others."""
        self.subgroups, names = subgroups.to_dict(), {None, *subgroups.names}
        lost = [alert for alert in self.open_alerts if alert.subgroup not in names]
        self.alerts = {key: one for key, one in self.alerts.items() if one.subgroup in names}
        self.mutes = [one for one in self.mutes if one.subgroup in names]
        self._resolve(lost, utilities, "its subgroup is not watched any more")
        if lost:
            names_lost = ", ".join(dict.fromkeys(alert.subgroup for alert in lost))
            self.notes.append(
                f"Of the open alerts of the previous monitor, {len(lost)} ended because nothing "
                f"watches their subgroup any more: {names_lost}."
            )

    def _resolve(
        self, alerts: Sequence[AlertState], utilities: Sequence[Utility], why: str
    ) -> None:
        """Tell those who heard of alerts that they ended without an audit."""
        known = {utility.name: utility for utility in utilities}
        told = [alert for alert in alerts if alert.told]
        self.transitions += [gone(alert, known.get(alert.utility), why) for alert in told]

    def move(self, version: TreeVersion, utilities: Sequence[Utility]) -> None:
        """Go on with the newest tree: under its names, with a reference read again by it."""
        tree = version.newest
        nodes = {u.name: {tree.branches[b] for b in u.relevant_branches(tree)} for u in utilities}
        kept: dict[Triple, AlertState] = {}
        for alert in self.alerts.values():
            node = version.names.get(alert.node)
            if node in nodes.get(alert.utility, ()):
                moved = dataclasses.replace(alert, node=str(node))
                kept[moved.candidate] = moved
        lost = [alert for alert in self.open_alerts if version.names.get(alert.node) is None]
        n_open, self.alerts = len(self.open_alerts), kept
        self.mutes = [
            dataclasses.replace(
                one, branch=one.branch and version.names.get(one.branch, one.branch)
            )
            for one in self.mutes
        ]
        self.standing = [version.names[name] for name in self.standing if name in version.names]
        self.onsets = {
            version.names[name]: when for name, when in self.onsets.items() if name in version.names
        }
        self._read_reference_again()
        self.compared = [dataclasses.replace(item, digest="") for item in self.compared]
        self.tree, self.tree_change = tree.fingerprint, version.to_dict()
        changed = self.tree_change["not_comparable"]
        said = f" Not comparable with before: {', '.join(changed[:5])}." if changed else ""
        gone = f" Gone with their branch: {', '.join(a.node for a in lost[:5])}." if lost else ""
        self.notes.append(
            f"The tree changed: history and {len(self.open_alerts)} of {n_open} open alerts go on "
            f"under the names of the new tree; the e-detector begins anew.{gone}{said}"
        )

    def begin_again(self, subgroups: Subgroups) -> None:
        """Watch other subgroups from the next window on; rows that chose them are not pooled."""
        self._read_reference_again()
        self.subgroups, self.compared = subgroups.to_dict(), []

    def _read_reference_again(self) -> None:
        if self.reference is not None and "start" in self.reference:
            self.reference_span = (self.reference["start"], self.reference["end"])
        self.reference, self.reference_rows, self.detectors = None, None, {}

    def to_json(self) -> str:
        """One text, equal for equal states."""
        return json.dumps(self.to_dict(), allow_nan=False)


def open_state(
    tracker: Tracker,
    identity: str,
    tree: LabelTree,
    utilities: Sequence[Utility],
    file: str | None = None,
) -> MonitorState:
    """Go on from the state a tracker keeps, or begin after that of the monitor before.

    `file` is the name of the configuration file, where there is one.
    """
    data = tracker.load_state()
    if data is not None:
        state = read_state(data, tracker)
        state.file = file or state.file
        return state
    previous = tracker.previous_state()
    if previous is not None:
        read_state(previous, tracker)  # to say what is wrong with it, if anything is
    return MonitorState.after(previous, identity, tree, utilities, file)


def read_state(data: Mapping[str, Any], tracker: Tracker) -> MonitorState:
    """Read what a tracker returned; an error says where the tracker keeps it."""

    def where() -> str:
        try:
            return f"The state of the monitor ({tracker.ping()})"
        except HUCError as error:  # it can be read and not written
            return f"The state of the monitor ({error})"

    return read_stored(data, MonitorState.from_dict, where=where, remedy=RESTORE_STATE)
