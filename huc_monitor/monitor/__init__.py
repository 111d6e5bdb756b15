"""The monitor: audits windows as their labels mature, keeps state, raises alerts."""

from __future__ import annotations

from huc_monitor.monitor._lock import CheckInProgressError, watch_lock
from huc_monitor.monitor._monitor import CheckResult, Monitor
from huc_monitor.monitor._state import MonitorState
from huc_monitor.monitor._watch import Watch

__all__ = [
    "CheckInProgressError",
    "CheckResult",
    "Monitor",
    "MonitorState",
    "Watch",
    "watch_lock",
]
