"""Detection: alarms that stay valid however long the monitor looks."""

from __future__ import annotations

from huc_monitor.detection._detector import EDetector
from huc_monitor.detection.step import EDetectorStep

__all__ = ["EDetector", "EDetectorStep"]
