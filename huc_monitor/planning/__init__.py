"""Planning: how many labels it takes to see a fault, and which ones to buy."""

from __future__ import annotations

from huc_monitor.planning._alarm_simulation import AlarmDelay, largest_moment, simulate_alarm
from huc_monitor.planning._label_plan import LabelPlan, fit_proxy_odds, plan_labels
from huc_monitor.planning._planning import detectable_size, labels_needed, pilot_candidates

__all__ = [
    "AlarmDelay",
    "LabelPlan",
    "detectable_size",
    "fit_proxy_odds",
    "labels_needed",
    "largest_moment",
    "pilot_candidates",
    "plan_labels",
    "simulate_alarm",
]
