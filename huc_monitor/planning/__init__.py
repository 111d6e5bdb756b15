"""Planning: how many labels it takes to see a fault, before any are collected."""

from __future__ import annotations

from huc_monitor.planning._alarm_simulation import AlarmDelay, largest_moment, simulate_alarm
from huc_monitor.planning._planning import detectable_size, labels_needed, pilot_candidates

__all__ = [
    "AlarmDelay",
    "detectable_size",
    "labels_needed",
    "largest_moment",
    "pilot_candidates",
    "simulate_alarm",
]
