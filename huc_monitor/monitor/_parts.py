"""What a monitor is made of, checked once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta

    import pandas as pd

    from huc_monitor._common.times import Span
    from huc_monitor.monitor._ahead import OneAtATime
    from huc_monitor.monitor.alerts import AlertPolicy
    from huc_monitor.monitor.drift import DriftPolicy
    from huc_monitor.monitor.ports.attachment import Attachment
    from huc_monitor.monitor.ports.exporter import Exporter
    from huc_monitor.monitor.ports.notifier import Notifier
    from huc_monitor.monitor.records import WindowRecord
    from huc_monitor.monitor.retraining import Retrainer, RetrainingPolicy
    from huc_monitor.monitor.tolerance import Tolerance
    from huc_monitor.monitor.windows import WindowSpec
    from huc_monitor.subgroups import Subgroups
    from huc_monitor.tree import LabelTree
    from huc_monitor.utilities import Utility


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """How moments are bounded; the arguments of `audit` of the same names."""

    bounds: str | None = "bootstrap"
    confidence_level: float = 0.95
    n_draws: int = 1000
    rng: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """Everything a check needs besides the state and the time."""

    name: str
    identity: str
    model: str | None
    source: OneAtATime
    windows: WindowSpec
    tree: LabelTree
    utilities: tuple[Utility, ...]
    subgroups: Subgroups | Callable[[pd.DataFrame], Subgroups]
    reference: tuple[datetime, datetime] | None
    tolerance: Tolerance
    options: AuditOptions
    average_run_length: float | None
    detector_tolerance: float | None
    alerts: AlertPolicy
    drift: DriftPolicy | None
    retraining: RetrainingPolicy | None
    retrain: Retrainer | None
    notifiers: Mapping[str, Notifier]
    artifacts: Callable[[WindowRecord], Mapping[str, bytes]] | None
    attachments: Mapping[str, Attachment]
    exporters: Mapping[str, Exporter]
    revisit: Span
    read_ahead: bool

    @property
    def revisit_for(self) -> timedelta:
        """How long after its end a window is asked for late labels."""
        return self.revisit.nominal


def identity_of(**content: Any) -> str:
    """Hash what results depend on, for monitors that were not made from a file.

    Examples
    --------
    >>> identity_of(tree="5f", windows="1d") == identity_of(windows="1d", tree="5f")
    True
    """
    plain = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]
