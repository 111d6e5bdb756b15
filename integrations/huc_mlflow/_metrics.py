"""What of a window is shown in MLflow: few metrics with readable names, all else in one table.

A server draws about a hundred charts, and a tree of 1,000 nodes has tens of thousands of
candidates. So a run has at most so many metric keys: the summary, what is open, the worst. A key
that was logged once is logged in every window, so that its line has no holes; a part of the keys is
kept free for what opens later.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from huc_mlflow._card import alert_lines
from huc_monitor._common.safe_text import code, metric_keys, plain, table_cell
from huc_monitor.audit.result import AuditResult, CandidateTable
from huc_monitor.monitor.records import AlertState, WindowRecord

# Sections are shown sorted by name: what is wrong comes first, then the summary.
ALERTS, SUMMARY = "alerts/", "audit/"
SECTIONS = frozenset(
    {"alerts", "audit", "branches", "branches_bounds", "change", "change_bounds", "forecast"}
)
LINKED = ("huc", "huc_lower", "huc_upper", "uc", "n_labelled")
FEWEST_KEYS, MOST_KEYS = 30, 1_000
TABLE, WORST = "candidates.parquet", "worst.json"
_MOST_CHANGES = 10
_MOST_ROWS = 100
_SHOWN = (
    "node",
    "subgroup",
    "utility",
    "moment",
    "moment_lower",
    "moment_upper",
    "tolerance",
    "level",
)
_CHANGES = {"change": "difference", "change_lower": "lower", "change_upper": "upper"}
Figures = dict[str, float | None]
Triple = tuple[str, str, str]


@dataclass(frozen=True, eq=False)
class ShownWindow:
    """A window's figures in the order of their importance.

    Parameters
    ----------
    record : WindowRecord
    """

    record: WindowRecord

    @cached_property
    def result(self) -> AuditResult | None:
        """The audit, read once."""
        return self.record.result

    @cached_property
    def summary(self) -> dict[str, float]:
        """Figures of the whole window, by name.

        Values that are not finite are left out, and counted with those of all candidates in
        ``n_undefined``: on a logged model MLflow would store them as zero, which reads as perfect.
        """
        record, result = self.record, self.result
        found: Figures = {
            "n_labelled": float(record.n_labelled),
            "coverage": float(record.coverage),
            "n_quarantined": float(record.n_quarantined),
        }
        if result is None:
            return finite(found)
        found |= {name: getattr(result, name) for name in ("huc", "uc", "huc_lower", "huc_upper")}
        found["n_alerts"] = float(len(record.alerts))
        if record.detector is not None:
            found["e_detector"] = record.detector.get("value")
        found |= self._change
        table = result.candidates
        defined = sum(np.isfinite(part).sum() for part in (table.moment, table.lower, table.upper))
        kept = finite(found)
        undefined = 3 * table.n - int(defined) + len(found) - len(kept)
        return kept | {"n_undefined": float(undefined)}

    @property
    def _change(self) -> Figures:
        """How many branches changed or stand, and how far the most certain of them moved."""
        record = self.record
        if record.change is None and not record.findings:
            return {}
        changed = [one.change for one in record.findings if one.change is not None]
        found: Figures = {
            "n_changed": float(len(changed)),
            "n_standing": float(sum(one.kind == "standing" for one in record.findings)),
        }
        for first in changed[:1]:
            found |= {
                "change": first.difference,
                "change_lower": first.lower,
                "change_upper": first.upper,
            }
            if first.onset is not None:
                since = [start for start, _ in first.track if start >= first.onset]
                found["windows_since_onset"] = float(len(since))
        return found

    @property
    def changed(self) -> str:
        """The branches that changed, the most certain first; "none" if none did."""
        nodes = [one.node for one in self.record.findings if one.change is not None]
        return plain(", ".join(nodes[:_MOST_CHANGES]))[:500] or "none"

    @property
    def branches(self) -> str:
        """The branches with open alerts, the worst first; "none" without any."""
        nodes = dict.fromkeys(alert.node for alert in by_importance(self.record.alerts))
        return plain(", ".join(list(nodes)[:_MOST_CHANGES]))[:500] or "none"

    @cached_property
    def _labels(self) -> list[str]:
        return [] if self.result is None else candidate_labels(self.result.candidates)

    @cached_property
    def _rows(self) -> tuple[list[int], list[int]]:
        """Rows of candidates that are told of, and of all others, the worst first."""
        record, result = self.record, self.result
        if result is None:
            return [], []
        table = result.candidates
        names: Any = zip(table.utility, table.subgroup, table.node, strict=True)
        place = {name: row for row, name in enumerate(names)}
        told = [finding.candidate for finding in record.findings]
        told += [alert.candidate for alert in by_importance(record.alerts)]
        first = list(dict.fromkeys(place[name] for name in told if name in place))
        worst = np.argsort(-self._shares, kind="stable").tolist()
        # Of every branch its worst, then all others: a page of one branch would hide the rest.
        leads = {table.node[row]: row for row in reversed(worst)}.values()
        worst = [*sorted(leads, key=lambda row: -self._shares[row]), *worst]
        known = set(first)
        return first, [row for row in dict.fromkeys(worst) if row not in known]

    @cached_property
    def _shares(self) -> Any:
        """Moment of each candidate over its tolerance."""
        table: Any = None if self.result is None else self.result.candidates
        tolerance = np.asarray(self.record.tolerances or (1.0,) * table.n)
        return np.nan_to_num(np.abs(table.moment) / np.where(tolerance > 0, tolerance, np.inf))

    @cached_property
    def _excess(self) -> dict[str, float]:
        """The worst moment of each branch over its tolerance, those with open alerts first."""
        if self.result is None:
            return {}
        found = dict.fromkeys((one.node for one in by_importance(self.record.alerts)), 0.0)
        for node, share in zip(self.result.candidates.node, self._shares, strict=True):
            found[node] = max(found.get(node, 0.0), float(share))
        return found

    def groups(self) -> Iterator[tuple[bool | None, dict[str, float]]]:
        """Yield metrics that go together, the most important first, and whether one must be told.

        None is for those that go on only where they were told of before. The moment of a branch is
        ``branches/<branch> - <subgroup> - <utility>``, without what says nothing: the subgroup of
        all rows, the only utility.
        """
        yield True, {f"{SUMMARY}{name}": value for name, value in self.summary.items()}
        alerting = {one.node for one in self.record.alerts}
        branches = metric_keys(self._excess)
        excess = [
            (node in alerting, {f"{ALERTS}{branches[node]}": value})
            for node, value in self._excess.items()
        ]
        yield from (pair for pair in excess[:_MOST_CHANGES] if pair[0])
        changed = [one for one in self.record.findings if one.change is not None][:_MOST_CHANGES]
        names = metric_keys(one.node for one in changed)
        for one in changed:
            change: Any = one.change
            found: Figures = {
                f"change/{names[one.node]}": change.difference,
                f"change_bounds/{names[one.node]} lower": change.lower,
                f"change_bounds/{names[one.node]} upper": change.upper,
            }
            yield True, finite(found)
        told, others = self._rows
        yield from ((True, self._moment(row, told=True)) for row in told)
        yield from self._forecasts()
        yield from ((False, self._moment(row)) for row in others)
        yield from ((None, group) for _, group in excess)

    def _moment(self, row: int, *, told: bool = False) -> dict[str, float]:
        table: Any = None if self.result is None else self.result.candidates
        label = self._labels[row]
        found: Figures = {f"branches/{label}": table.moment[row]}
        if told:
            found[f"branches_bounds/{label} lower"] = table.moment_lower[row]
            found[f"branches_bounds/{label} upper"] = table.moment_upper[row]
        return finite(found)

    def _forecasts(self) -> Iterator[tuple[bool, dict[str, float]]]:
        names = metric_keys(item.utility for item in self.record.forecasts)
        for item in self.record.forecasts:
            figures = {"realised": item.realised}
            if item.audited_version is None:
                figures |= {"expected": item.value, "lower": item.lower, "upper": item.upper}
            place = f"forecast/{names[item.utility]}"
            yield True, finite({f"{place} {what}": value for what, value in figures.items()})

    def metrics(
        self, most: int, known: Collection[str] = (), *, told: bool = False
    ) -> dict[str, float]:
        """Choose metrics for a run that has some already, so that it never has too many keys.

        Parameters
        ----------
        most : int
            Keys that the run may have.
        known : collection of str
            Keys that it has.
        told : bool
            Leave out what need not be told.
        """
        keys = set(known)
        found: dict[str, float] = {}
        for urgent, group in self.groups():
            if told and not urgent:
                break
            allowed = {True: most, False: most // 2, None: 0}[urgent]
            if keys.issuperset(group) or len(keys.union(group)) <= allowed:
                found |= group
                keys |= group.keys()
        return found

    def tables(self) -> dict[str, bytes]:
        """Every candidate as Parquet, and the most important ones as a table that the UI shows."""
        frame, result = self.record.to_frame(all_columns=True), self.result
        if frame.empty or result is None:
            return {}
        frame["moment_lower"] = result.candidates.moment_lower
        frame["moment_upper"] = result.candidates.moment_upper
        if self.record.change is not None and self.record.change.changes:
            known = {one.candidate: one for one in self.record.change.changes}
            names = zip(frame["utility"], frame["subgroup"], frame["node"], strict=True)
            found = [known.get(name) for name in names]
            for column, figure in _CHANGES.items():
                frame[column] = [math.nan if one is None else getattr(one, figure) for one in found]
        told, others = self._rows
        return {
            TABLE: frame.to_parquet(index=False),
            WORST: _ui_table(frame.iloc[(told + others)[:_MOST_ROWS]]),
        }

    def note(self) -> str:
        """Say in Markdown what the window's page shows first."""
        record, found = self.record, self.summary
        lines = [f"**{record.level or record.status}**"]
        if "huc" in found:
            lines[0] += f": HUC {found['huc']:.4f}"
            if "huc_upper" in found:
                lines[0] += f" [{found.get('huc_lower', 0):.4f}, {found['huc_upper']:.4f}]"
        lines[0] += f"; {record.n_labelled:,} of {record.n_predictions:,} predictions have labels"
        served = record.model_version
        lines[0] += "." if served is None else f"; served by version {code(served)}."
        if record.reason:
            lines += ["", plain(record.reason)]
        if self.changed != "none":
            lines += ["", f"Changed since the reference: {code(self.changed)}."]
        return "\n".join(
            [*lines, "", *alert_lines(by_importance(record.alerts), record.time_zone)]
        ).strip()


def candidate_labels(table: CandidateTable) -> list[str]:
    """Name each candidate: its branch, and what else there is to tell: subgroup and utility."""
    nodes, groups, utilities = map(metric_keys, (table.node, table.subgroup, table.utility))
    return [
        nodes[node]
        + ("" if group == "all" else f" - {groups[group]}")
        + ("" if len(utilities) == 1 else f" - {utilities[utility]}")
        for node, group, utility in zip(table.node, table.subgroup, table.utility, strict=True)
    ]


def by_importance(alerts: Sequence[AlertState]) -> tuple[AlertState, ...]:
    """Sort alerts: of every branch its worst one, critical ones first, then all others."""
    worst = sorted(alerts, key=lambda one: (one.level != "critical", -one.excess))
    leads: dict[str, AlertState] = {}
    for alert in worst:
        leads.setdefault(alert.node, alert)
    return (*leads.values(), *(alert for alert in worst if alert is not leads[alert.node]))


def _ui_table(frame: pd.DataFrame) -> bytes:
    """Write a table as MLflow's `log_table` does, which would append to what a crash left."""
    shown = frame[[name for name in (*_SHOWN, "change") if name in frame]]
    rows = [[_cell(value) for value in row] for row in shown.itertuples(index=False)]
    return json.dumps({"columns": list(shown.columns), "data": rows}).encode()


def _cell(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return None if value is None else table_cell(value)


def finite(found: Mapping[str, float | None]) -> dict[str, float]:
    """Leave out what is no finite number."""
    return {
        key: float(value)
        for key, value in found.items()
        if value is not None and math.isfinite(value)
    }
