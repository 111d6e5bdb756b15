"""What ``--json`` of check, watch and status prints, and its JSON Schema.

Fields are added, never renamed or removed: who reads them leaves out what it does not know.
"""

from __future__ import annotations

from typing import Any, Final, TypedDict

from huc_monitor._common.form_schema import SchemaMaker
from huc_monitor.audit.forecast import Forecast
from huc_monitor.monitor.people import Mute
from huc_monitor.monitor.ports.notifier import Message
from huc_monitor.monitor.records import AlertState, WindowRecord
from huc_monitor.monitor.windows import Window

# Forms in these annotations stand for what their `to_dict` writes.


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
