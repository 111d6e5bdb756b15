"""What ``--json`` of every command prints, and its JSON Schema.

Fields are added, never renamed or removed: who reads them leaves out what it does not know.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NotRequired, TypedDict

from huc_monitor._common.form_schema import SchemaMaker
from huc_monitor.audit.comparison import Comparison
from huc_monitor.audit.discovery.discover import Discovery
from huc_monitor.audit.familiar import FamiliarNumbers
from huc_monitor.audit.forecast import Forecast
from huc_monitor.cli.doctor.findings import Diagnosis
from huc_monitor.monitor.forecasting import ForecastScore
from huc_monitor.monitor.people import Mute
from huc_monitor.monitor.ports.notifier import Message
from huc_monitor.monitor.ports.recalibration import Move, RecalibrationOutcome
from huc_monitor.monitor.records import AlertState, WindowRecord
from huc_monitor.monitor.windows import Window

# Forms in these annotations stand for what their `to_dict` writes.


class AuditForm(TypedDict):
    """An audit; ``candidates`` and ``totals`` have a row per candidate, as in `to_frame`."""

    schema_version: int
    n: float
    huc: float
    huc_lower: float | None
    huc_upper: float | None
    uc: float
    method: str | None
    confidence_level: float
    n_draws: int | None
    interiorized: bool
    tree: str
    unlogged: NotRequired[float]
    notes: NotRequired[list[str]]
    familiar: NotRequired[FamiliarNumbers]
    design: NotRequired[dict[str, Any]]
    candidates: list[dict[str, Any]]
    totals: list[dict[str, Any]]


class AuditDocument(TypedDict):
    """Of ``audit --json``."""

    status: Literal["ok", "alert"]
    tolerance: float | None
    n_unlabelled: int
    audit: AuditForm
    label_tree: dict[str, Any]


class CompareDocument(TypedDict):
    """Of ``compare --json``."""

    status: Literal["ok", "alert"]
    comparison: Comparison


class DiscoverDocument(TypedDict):
    """Of ``discover --json``."""

    status: Literal["found", "none"]
    discovery: Discovery


class WaitingWindow(TypedDict):
    """A window that waits for labels."""

    ordinal: int
    start: str
    end: str
    due_at: str
    forecasts: list[Forecast]


class ForecastDocument(TypedDict):
    """Of ``forecast --json``; ``scores`` has what became of earlier ones, by utility."""

    windows: list[WaitingWindow]
    scores: dict[str, ForecastScore]


class PlanDocument(TypedDict):
    """Of ``plan --json``: what so many labels detect, and how many labels a size takes."""

    candidate: list[str] | None
    settings: dict[str, Any]
    detectable: list[dict[str, float | None]]
    labels_needed: list[dict[str, float | None]]


class SampleDocument(TypedDict):
    """Of ``sample --json``."""

    path: str
    start: str
    end: str
    n_rows: int
    n_chosen: int
    saving: float
    worst: list[str]
    proxy_odds: float | None


class DoctorDocument(TypedDict):
    """Of ``doctor --json``."""

    status: Literal["ok", "wrong"]
    findings: list[Diagnosis]


class InitDocument(TypedDict):
    """Of ``init --json``."""

    status: Literal["ok"]
    path: str


class ReportDocument(TypedDict):
    """Of ``report --json``."""

    path: str
    bytes: int


class DemoPhase(TypedDict):
    """One part of the demo; money is per ticket."""

    served_by: str
    accuracy: float
    calibration_error: float
    log_loss: float
    uc_eur: float
    huc_eur: float
    status: str
    message: str | None


class DemoDocument(TypedDict):
    """Of ``demo --json``."""

    folder: str
    version: str | None
    calm: DemoPhase
    drifted: DemoPhase
    repaired: DemoPhase


class CheckDocument(TypedDict):
    """Of ``check --json`` and, line by line, of ``watch``."""

    status: str
    message: Message | None
    alerts: list[AlertState]
    records: list[WindowRecord]
    n_unsent: int
    failed: list[Window]
    preview: list[str]


class WindowRow(TypedDict):
    """One window in the status."""

    ordinal: int
    start: str
    end: str
    revision: int
    status: str
    reason: str | None
    n_predictions: int
    n_labelled: int
    n_quarantined: int
    coverage: float
    huc: float | None
    huc_lower: float | None
    uc: float | None
    detector: float | None
    level: str | None
    forecasts: list[Forecast]


class MonitorDocument(TypedDict):
    """Where one monitor stands."""

    status: str
    identity: str
    model_version: str | None
    last_window: Window | None
    notes: list[str]
    alerts: list[AlertState]
    mutes: list[Mute]
    windows: list[WindowRow]
    n_unsent: int
    failed: list[Window]


class StatusDocument(MonitorDocument):
    """Of ``status --json``; ``shadow`` is how a trial of a new version stands."""

    shadow: dict[str, Any] | None


class FleetMember(MonitorDocument):
    """One monitor of several."""

    config: str


class UnreadableMember(TypedDict):
    """One monitor of several that cannot be read."""

    config: str
    status: str
    error: str


class FleetDocument(TypedDict):
    """Of ``status --json`` with several configuration files."""

    monitors: list[FleetMember | UnreadableMember]


DOCUMENTS: Final = {
    "check": CheckDocument,
    "watch": CheckDocument,
    "status": StatusDocument,
    "fleet": FleetDocument,
    "audit": AuditDocument,
    "compare": CompareDocument,
    "discover": DiscoverDocument,
    "forecast": ForecastDocument,
    "plan": PlanDocument,
    "sample": SampleDocument,
    "doctor": DoctorDocument,
    "init": InitDocument,
    "report": ReportDocument,
    "demo": DemoDocument,
    "recalibrate": RecalibrationOutcome,
    "promote": Move,
    "rollback": Move,
}


def output_schema() -> dict[str, Any]:
    """Return the JSON Schema of every document, by command."""
    maker = SchemaMaker()
    found = {name: maker.of(kind) for name, kind in DOCUMENTS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What huc-monitor prints with --json",
        "properties": found,
        "$defs": maker.definitions,
    }
