"""From records to series: which there are, and which are left out when there are too many.

A label costs: Prometheus keeps every combination of values as a series of its own. A tree of 500
nodes with 10 subgroups and 5 utilities has 25,000 candidates, so only the worst have series of
their own, and the others are summed up in a few.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from prometheus_client.core import GaugeMetricFamily

from huc_monitor._common.checks import check_whole
from huc_monitor._common.safe_text import distinct
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.monitor.ports.exporter import Standing
from huc_monitor.monitor.records import WindowRecord

KINDS = ("changed", "both", "standing")
MOST_CHANGES = 10
MOST_BRANCHES = 10
LEVELS = {None: 0, "ok": 0, "warning": 1, "failed": 1, "critical": 2}
STATUSES = ("audited", "empty", "thin", "failed")
DRIFT = ("branch", "scores", "subgroup")
_OF_CANDIDATE = ("utility", "subgroup", "node")

# Name to help text and labels besides `monitor`.
CHECK: dict[str, tuple[str, tuple[str, ...]]] = {
    "huc_last_check_timestamp_seconds": ("When the last check ended.", ()),
    "huc_status": ("0 ok, 1 warning or a window that failed, 2 critical.", ()),
    "huc_alerts": ("Open alerts.", ("level",)),
    "huc_newest_row_timestamp_seconds": ("Time of the newest row of the log.", ()),
    "huc_unsent_messages": ("Messages that could not be delivered yet.", ()),
}
WINDOW: dict[str, tuple[str, tuple[str, ...]]] = {
    "huc_window_info": ("The newest window.", ("model", "model_version", "identity")),
    "huc_window_ordinal": ("Number of the newest window, from 1.", ()),
    "huc_window_end_timestamp_seconds": ("End of the newest window.", ()),
    "huc_window_status": ("1 for what became of the newest window.", ("status",)),
    "huc_window_predictions": ("Predictions in it.", ()),
    "huc_window_labelled": ("Predictions in it that have a label.", ()),
    "huc_window_coverage_ratio": ("Share of its predictions that have a label.", ()),
    "huc_window_quarantined": ("Rows of it that were set aside as unusable.", ()),
    "huc_window_drifted": ("What moved away from the reference.", ("kind",)),
    "huc_largest_moment": ("HUC: largest absolute moment of any branch.", ()),
    "huc_largest_moment_lower": ("Lower confidence bound of HUC.", ()),
    "huc_largest_moment_upper": ("Upper confidence bound of HUC.", ()),
    "huc_summed_moment": ("UC: largest absolute moment after summing over branches.", ()),
    "huc_findings": ("Branches that changed since the reference, or stand.", ("kind",)),
    "huc_largest_change": ("Change since the reference that is surest.", ()),
    "huc_detector_evidence_ratio": ("Evidence of the e-detector; 1 is an alarm.", ()),
    "huc_candidates": ("Candidates (utility, subgroup, branch) of the newest audit.", ()),
    "huc_rest_candidates": ("Candidates without series of their own.", ()),
    "huc_rest_largest_moment": ("Largest absolute moment among them.", ()),
    "huc_rest_largest_moment_lower": ("Largest lower bound among them.", ()),
    "huc_rest_largest_ratio": ("Largest absolute moment over tolerance among them.", ()),
}
CANDIDATE: dict[str, tuple[str, tuple[str, ...]]] = {
    "huc_moment": ("Moment in utility; negative: predictions overstate.", _OF_CANDIDATE),
    "huc_moment_lower": ("Lower confidence bound of the absolute moment.", _OF_CANDIDATE),
    "huc_moment_upper": ("Upper confidence bound of the absolute moment.", _OF_CANDIDATE),
    "huc_moment_tolerance": ("What is accepted of it.", _OF_CANDIDATE),
    "huc_moment_alert": ("Its alert: 0 none, 1 warning, 2 critical.", _OF_CANDIDATE),
}
# Of the branches that changed by more than chance, the surest ones only.
CHANGE: dict[str, tuple[str, tuple[str, ...]]] = {
    "huc_change": ("Change of the moment since the reference.", _OF_CANDIDATE),
    "huc_change_lower": ("Lower confidence bound of the change.", _OF_CANDIDATE),
    "huc_change_upper": ("Upper confidence bound of the change.", _OF_CANDIDATE),
    "huc_change_onset_timestamp_seconds": ("When it likeliest began.", _OF_CANDIDATE),
}
# Of the branches that lack labels, those that lack most.
BRANCH: dict[str, tuple[str, tuple[str, ...]]] = {
    "huc_predicted_coverage_ratio": ("Share of labels by predicted branch.", ("node",)),
    "huc_label_depth_ratio": ("Share of a branch's labels that go on below it.", ("node",)),
}
# How many series the others make, at most: one each, or one per value of a label.
N_FIXED = len(CHECK) + 1 + len(WINDOW) + len(STATUSES) - 1 + len(DRIFT) - 1 + len(KINDS) - 1


def check_limit(max_series: Any) -> int:
    """Return a limit that leaves room for at least one candidate."""
    return check_whole("max_series", max_series, least=N_FIXED + len(CANDIDATE))


def check_families(info: MonitorInfo, standing: Standing) -> list[GaugeMetricFamily]:
    """Return the series that every check renews."""
    families = _Families(CHECK, info.name)
    families.add("huc_last_check_timestamp_seconds", time.time())
    families.add("huc_status", LEVELS[standing.status])
    for level in ("warning", "critical"):
        heard = [alert for alert in standing.alerts if alert.muted is None]
        families.add("huc_alerts", sum(alert.level == level for alert in heard), level)
    newest = standing.newest_row
    families.add("huc_newest_row_timestamp_seconds", None if newest is None else newest.timestamp())
    families.add("huc_unsent_messages", standing.n_unsent)
    return families.made


def window_families(
    info: MonitorInfo, records: Sequence[WindowRecord], standing: Standing, *, max_series: int
) -> list[GaugeMetricFamily] | None:
    """Return the series of the newest window and the newest audit; None without a window."""
    records = [record for record in records if record.status != "pending"]
    if not records:
        return None
    newest = max(records, key=lambda record: (record.ordinal, record.revision))
    families = _Families(WINDOW | CHANGE | BRANCH | CANDIDATE, info.name)
    _add_window(families, info, newest)
    audited = [record for record in records if record.audit is not None]
    if audited:
        record = max(audited, key=lambda record: (record.ordinal, record.revision))
        room = max_series - N_FIXED
        room -= _add_findings(families, record, room - len(CANDIDATE))
        room -= _add_coverage(families, record, room - len(CANDIDATE))
        _add_audit(families, record, standing, room // len(CANDIDATE))
    return families.made


class _Families:
    """Collects samples of described metrics."""

    def __init__(self, described: Mapping[str, tuple[str, tuple[str, ...]]], monitor: str) -> None:
        self._monitor = distinct(monitor)
        self._by_name = {
            name: GaugeMetricFamily(name, text, labels=("monitor", *labels))
            for name, (text, labels) in described.items()
        }

    @property
    def made(self) -> list[GaugeMetricFamily]:
        return [family for family in self._by_name.values() if family.samples]

    def add(self, name: str, value: float | None, *labels: str | None) -> None:
        """Add a sample, unless its value is not known."""
        if value is not None and not math.isnan(value):
            names = (self._monitor, *(distinct(label or "") for label in labels))
            self._by_name[name].add_metric(names, float(value))


def _add_window(families: _Families, info: MonitorInfo, record: WindowRecord) -> None:
    families.add("huc_window_info", 1, info.model, record.model_version, info.identity)
    families.add("huc_window_ordinal", record.ordinal)
    families.add("huc_window_end_timestamp_seconds", record.end.timestamp())
    for status in STATUSES:
        families.add("huc_window_status", record.status == status, status)
    families.add("huc_window_predictions", record.n_predictions)
    families.add("huc_window_labelled", record.n_labelled)
    families.add("huc_window_coverage_ratio", record.coverage)
    families.add("huc_window_quarantined", record.n_quarantined)
    for kind in DRIFT:
        moved = sum(item.drifted and item.kind == kind for item in record.drift)
        families.add("huc_window_drifted", moved, kind)
    if record.detector is not None:
        value, threshold = record.detector["value"], record.detector["threshold"]
        # A value too large for a number is kept as none at all.
        ratio = math.inf if value is None else value / threshold
        families.add("huc_detector_evidence_ratio", ratio)


def _add_findings(families: _Families, record: WindowRecord, room: int) -> int:
    """Add what changed and what stands; return how many series the changes took."""
    for kind in KINDS:
        families.add("huc_findings", sum(one.kind == kind for one in record.findings), kind)
    found = [one for one in record.findings if one.change is not None]
    shown = found[: min(MOST_CHANGES, max(0, room) // len(CHANGE))]
    for one in found[:1]:
        families.add("huc_largest_change", None if one.change is None else one.change.difference)
    for one in shown:
        change: Any = one.change
        families.add("huc_change", change.difference, *one.candidate)
        families.add("huc_change_lower", change.lower, *one.candidate)
        families.add("huc_change_upper", change.upper, *one.candidate)
        if change.onset is not None:
            name = "huc_change_onset_timestamp_seconds"
            families.add(name, change.onset.timestamp(), *one.candidate)
    return len(shown) * len(CHANGE)


def _add_coverage(families: _Families, record: WindowRecord, room: int) -> int:
    """Add the branches that lack labels, lowest share first; return how many series they took."""
    result: Any = record.result
    table = result.candidates
    everyone = [k for k, group in enumerate(table.subgroup) if group == table.subgroup[0]]
    deep = {table.node[k]: float(table.label_coverage[k]) for k in everyone}
    taken = 0
    for name, shares in zip(BRANCH, (record.branch_coverage, deep), strict=True):
        lacking = sorted((share, node) for node, share in shares.items() if share < 1.0)
        for share, node in lacking[: min(MOST_BRANCHES, max(0, room - taken))]:
            families.add(name, share, node)
            taken += 1
    return taken


def _add_audit(families: _Families, record: WindowRecord, standing: Standing, room: int) -> None:
    result: Any = record.result
    families.add("huc_largest_moment", result.huc)
    families.add("huc_largest_moment_lower", result.huc_lower)
    families.add("huc_largest_moment_upper", result.huc_upper)
    families.add("huc_summed_moment", result.uc)
    heard = [alert for alert in standing.alerts if alert.muted is None]
    alerts = {alert.candidate: LEVELS[alert.level] for alert in heard}
    table = result.candidates
    names = list(zip(table.utility, table.subgroup, table.node, strict=True))
    size, tolerance = np.abs(table.moment), np.array(record.tolerances, dtype=np.float64)
    level = np.array([alerts.get(one, 0) for one in names], dtype=np.int64)
    # Where nothing is tolerated, any moment is beyond all measure.
    beyond = np.where(size == 0, 0.0, np.inf)
    ratio = np.divide(size, tolerance, out=beyond, where=tolerance > 0)
    families.add("huc_candidates", table.n)
    # Open alerts first, then by how far they exceed their tolerance.
    order = np.lexsort((-size, -ratio, -level))
    columns = {"": table.moment, "_lower": table.lower, "_upper": table.upper}
    columns |= {"_tolerance": tolerance, "_alert": level}
    for row in order[:room]:
        for suffix, values in columns.items():
            families.add(f"huc_moment{suffix}", values[row], *names[row])
    rest = order[room:]
    families.add("huc_rest_candidates", rest.size)
    families.add("huc_rest_largest_moment", size[rest].max(initial=0.0))
    families.add("huc_rest_largest_moment_lower", np.nan_to_num(table.lower[rest]).max(initial=0.0))
    families.add("huc_rest_largest_ratio", ratio[rest].max(initial=0.0))
