"""The monitor: audits windows as their labels mature, keeps state, raises alerts."""

from __future__ import annotations

from huc_monitor.monitor._lock import CheckInProgressError
from huc_monitor.monitor._monitor import CheckResult, Monitor
from huc_monitor.monitor._state import MonitorState

__all__ = ["CheckInProgressError", "CheckResult", "Monitor", "MonitorState"]
