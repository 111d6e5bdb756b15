"""Detection: alarms that stay valid however long the monitor looks, and what changed since when."""

from __future__ import annotations

from huc_monitor.detection._detector import EDetector
from huc_monitor.detection.change import Change, ChangeStep, ChangeTest
from huc_monitor.detection.history import ChangeHistory
from huc_monitor.detection.onset import Onset, find_onset
from huc_monitor.detection.step import EDetectorStep

__all__ = [
    "Change",
    "ChangeHistory",
    "ChangeStep",
    "ChangeTest",
    "EDetector",
    "EDetectorStep",
    "Onset",
    "find_onset",
]
