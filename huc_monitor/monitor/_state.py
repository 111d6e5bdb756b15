"""What a monitor remembers between windows, and how it is written."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.monitor.records import AlertState, AlertTransition, DriftFinding, RetrainingTrigger
from huc_monitor.monitor.windows import Window
from huc_monitor.sources import RowCounts

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA_VERSION = 1
Triple = tuple[str, str, str]


@dataclass(slots=True)
class Visited:
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

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form."""
        latest = self.counts.latest_label
        return {
            "window": self.window.to_dict(),
            "revision": self.revision,
            "as_of": self.as_of.isoformat(),
            "n_predictions": self.counts.n_predictions,
            "n_labelled": self.counts.n_labelled,
            "latest_label": None if latest is None else latest.isoformat(),
            "fed_from": self.fed_from.isoformat(),
            "fed_until": None if self.fed_until is None else self.fed_until.isoformat(),
            **({} if self.failed is None else {"failed": self.failed}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Visited:
        """Read what `to_dict` wrote."""
        counts = RowCounts(data["n_predictions"], data["n_labelled"], _time(data["latest_label"]))
        return cls(
            Window.from_dict(data["window"]),
            int(data["revision"]),
            datetime.fromisoformat(data["as_of"]),
            counts,
            datetime.fromisoformat(data["fed_from"]),
            _time(data["fed_until"]),
            data.get("failed"),
        )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


@dataclass(slots=True)
class MonitorState:
    """Everything the next window depends on besides the data. Plain data throughout.

    From `transitions` on it is an outbox: what was decided, and must still reach a tracker, a
    person or a retrainer. It is saved together with the decision, and emptied once delivered, so
    that nothing is lost or decided twice whenever the process dies.
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
    last_trigger: RetrainingTrigger | None = None
    published: str | None = None
    transitions: list[AlertTransition] = field(default_factory=list)
    drift: list[DriftFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    until: datetime | None = None
    record: dict[str, Any] | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    trigger: RetrainingTrigger | None = None
    newest: str | None = None
    exported: dict[str, str | None] = field(default_factory=dict)

    @property
    def open_alerts(self) -> tuple[AlertState, ...]:
        """Alerts that are open, in the order of their candidates."""
        return tuple(alert for alert in self.alerts.values() if alert.level is not None)

    @property
    def failed(self) -> tuple[Window, ...]:
        """Windows that could not be audited and that nobody dismissed, oldest first."""
        return tuple(item.window for item in self.visited if item.failed is not None)

    @property
    def status(self) -> str:
        """Where the monitor stands: "critical", "failed", "warning" or "ok", the first that holds.

        Failed: a window could not be audited, so nobody knows how the model did in it.
        """
        levels = {alert.level for alert in self.open_alerts}
        if "critical" in levels:
            return "critical"
        return "failed" if self.failed else "warning" if levels else "ok"

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
        """JSON-safe form."""
        return {
            "schema_version": SCHEMA_VERSION,
            "identity": self.identity,
            "last": None if self.last is None else self.last.to_dict(),
            "last_judged": self.last_judged,
            "model_version": self.model_version,
            "subgroups": self.subgroups,
            "reference": self.reference,
            # The version that serves most rows stands apart, as older states have it.
            "detector": self.detectors.get(self.model_version or ""),
            "detectors": self._other_detectors(),
            "alerts": [alert.to_dict() for alert in self.alerts.values()],
            "visited": [item.to_dict() for item in self.visited],
            "early_drift": self.early_drift,
            "drift_told": self.drift_told,
            "last_trigger": None if self.last_trigger is None else self.last_trigger.to_dict(),
            "published": self.published,
            "transitions": [step.to_dict() for step in self.transitions],
            "drift": [item.to_dict() for item in self.drift],
            "notes": list(self.notes),
            "until": None if self.until is None else self.until.isoformat(),
            "record": self.record,
            "messages": self.messages,
            "trigger": None if self.trigger is None else self.trigger.to_dict(),
            "newest": self.newest,
            "exported": dict(self.exported),
        }

    def _other_detectors(self) -> dict[str, dict[str, Any]]:
        current = self.model_version or ""
        return {name: kept for name, kept in self.detectors.items() if name != current}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MonitorState:
        """Read what `to_dict` wrote."""
        if data.get("schema_version") != SCHEMA_VERSION:
            msg = (
                f"`state` must have schema_version {SCHEMA_VERSION}; got "
                f"{data.get('schema_version')!r}. Use the version of huc-monitor that wrote it, or "
                "newer."
            )
            raise InvalidInputError(msg)
        alerts = [AlertState.from_dict(item) for item in data["alerts"]]
        trigger, last_trigger = data["trigger"], data["last_trigger"]
        detectors = dict(data.get("detectors", {}))
        if data["detector"] is not None:
            detectors[data["model_version"] or ""] = data["detector"]
        return cls(
            identity=data["identity"],
            last=None if data["last"] is None else Window.from_dict(data["last"]),
            last_judged=data["last_judged"],
            model_version=data["model_version"],
            subgroups=data["subgroups"],
            reference=data["reference"],
            detectors=detectors,
            alerts={alert.candidate: alert for alert in alerts},
            visited=[Visited.from_dict(item) for item in data["visited"]],
            early_drift=dict(data["early_drift"]),
            drift_told=dict(data["drift_told"]),
            last_trigger=None
            if last_trigger is None
            else RetrainingTrigger.from_dict(last_trigger),
            published=data["published"],
            transitions=[AlertTransition.from_dict(item) for item in data["transitions"]],
            drift=[DriftFinding.from_dict(item) for item in data["drift"]],
            notes=list(data["notes"]),
            until=_time(data["until"]),
            record=data["record"],
            messages=list(data["messages"]),
            trigger=None if trigger is None else RetrainingTrigger.from_dict(trigger),
            newest=data.get("newest"),
            exported=dict(data.get("exported", {})),
        )

    def to_json(self) -> str:
        """One text, equal for equal states."""
        return json.dumps(self.to_dict(), allow_nan=False)
