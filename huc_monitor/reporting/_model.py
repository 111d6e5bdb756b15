"""What a report shows, in one shape whatever it came from: windows of candidates, and alerts.

Nothing statistical is computed here. Candidates are compared with their tolerance, and the worst
of a node, a subgroup or a window is looked up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from huc_monitor.audit.curves import ReliabilityCurve
    from huc_monitor.audit.familiar import FamiliarNumbers
    from huc_monitor.audit.result import AuditResult
    from huc_monitor.monitor.change import WindowChange
    from huc_monitor.monitor.findings import Finding
    from huc_monitor.tree import LabelTree

Status = Literal["sure", "possible", "within"]
GLYPH: Final[dict[str, str]] = {"sure": "◆", "possible": "◇", "within": ""}
CONFIDENCE: Final = "Confidence, all bounds together"
_COLUMNS: Final = (
    "node",
    "subgroup",
    "utility",
    "moment",
    "lower",
    "upper",
    "interval_low",
    "interval_high",
    "n_in_interval",
    "on_uc_interval",
    "on_worst_interval",
    "moment_in_units",
    "n_in_subgroup",
    "units",
)
Tolerance = float | Sequence[float] | None
_ENDLESS: Final = 1e6  # a moment against a tolerance of zero


@dataclass(frozen=True, slots=True)
class CandidateView:
    """One candidate of one window next to its tolerance; ``tolerance`` is None if none was set.

    ``why`` says "changed" or "standing" where alerts follow what changed since the reference.
    """

    node: str
    subgroup: str
    utility: str
    moment: float
    lower: float | None
    upper: float | None
    low: float | None
    high: float | None
    n: float
    tolerance: float | None
    scale: float
    in_units: float | None
    units: str | None
    status: Status
    why: str = ""

    @property
    def direction(self) -> str:
        """What predictions do to utility, as a verb."""
        return "understate" if self.moment > 0 else "overstate"


@dataclass(frozen=True, slots=True, eq=False)
class WindowView:
    """One audited window: a frame of candidates, with ``tolerance``, ``ratio`` and ``status``."""

    name: str
    n: float
    candidates: pd.DataFrame
    huc: float | None
    huc_lower: float | None
    huc_upper: float | None
    uc: float | None
    tick: str = ""
    start: datetime | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    curve: ReliabilityCurve | None = None
    frequencies: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    reason: str = ""
    new_tree: bool = False
    ordinal: int | None = None
    familiar: FamiliarNumbers | None = None
    _worst: dict[str, dict[str, CandidateView]] = field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def audited(self) -> bool:
        """False for a window that is there but was not audited; ``reason`` says why."""
        return self.huc is not None

    @property
    def worst(self) -> CandidateView | None:
        """The candidate that exceeds its tolerance most; None where there is no candidate."""
        if self.candidates.empty:
            return None
        return finding(self.candidates.iloc[int(self.candidates["rank"].argmax())])

    def find(self, node: str, subgroup: str, utility: str) -> CandidateView | None:
        """Return one candidate, None if it is not among them."""
        frame = self.candidates
        mine = (frame["node"] == node) & (frame["subgroup"] == subgroup)
        rows = frame[mine & (frame["utility"] == utility)]
        return None if rows.empty else finding(rows.iloc[0])

    def of_node(self, node: str) -> list[CandidateView]:
        """Return all candidates of a branch, the worst first."""
        mine = self.candidates[self.candidates["node"] == node]
        ordered = mine.sort_values("rank", ascending=False, kind="stable")
        return [finding(record) for record in ordered.to_dict(orient="records")]

    def worst_by(self, column: str) -> dict[str, CandidateView]:
        """Return the worst candidate for each value of a column, in the column's order."""
        if column not in self._worst:
            best: dict[Any, tuple[float, int]] = {}
            names, ranks = self.candidates[column].tolist(), self.candidates["rank"].tolist()
            for row, (name, rank) in enumerate(zip(names, ranks, strict=True)):
                if name not in best or rank > best[name][0]:
                    best[name] = rank, row
            rows = self.candidates.iloc[[row for _, row in best.values()]]
            records = rows.to_dict(orient="records")
            self._worst[column] = {str(record[column]): finding(record) for record in records}
        return self._worst[column]


@dataclass(frozen=True, slots=True)
class AlertView:
    """The life of one alert: its level in every window of the report, and what was said last."""

    node: str
    subgroup: str
    utility: str
    levels: tuple[str | None, ...]
    since: str
    now: str
    words: str
    n_more: int = 0  # other subgroups and utilities of the same branch

    @property
    def is_open(self) -> bool:
        """Whether it is open after the last window."""
        return self.levels[-1] is not None


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Everything on the page. Windows are in order of time; the last audited is the headline."""

    title: str
    windows: tuple[WindowView, ...]
    tree: LabelTree | None = None
    alerts: tuple[AlertView, ...] = ()
    notices: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    change: WindowChange | None = None

    @property
    def changed(self) -> list[Finding]:
        """Branches that changed since the reference, the most certain first."""
        return [found for found in self.findings if found.change is not None]

    @property
    def standing(self) -> list[Finding]:
        """Branches beyond the tolerance without a sure change, the worst first."""
        return [found for found in self.findings if found.change is None]

    @property
    def by_change(self) -> bool:
        """Whether alerts follow what changed, and not the tolerance alone."""
        return bool(self.standing) or (self.change is not None and self.change.alerts == "change")

    @property
    def latest(self) -> WindowView | None:
        """The newest audited window, None when there is none."""
        return next((window for window in reversed(self.windows) if window.audited), None)

    @property
    def nodes(self) -> list[str]:
        """The tree's internal nodes, then names that only the windows know."""
        known = dict.fromkeys(self.tree.nodes if self.tree is not None else ())
        for window in reversed(self.windows):
            known.update(dict.fromkeys(map(str, window.candidates["node"].unique())))
        return list(known)


def view(
    result: AuditResult,
    *,
    name: str = "this audit",
    tolerance: Tolerance = None,
    levels: Sequence[str | None] = (),
    changed: Collection[tuple[str, str, str]] = (),
    standing: Collection[str] = (),
    **more: Any,
) -> WindowView:
    """Bring an audit into the report's shape.

    `tolerance` is one number, or one for each row of the audit's candidates. `levels`, if there
    are any, are what a monitor said of each candidate; `changed` are the candidates that changed
    by more than chance, and `standing` the branches that stand beyond the tolerance.
    """
    columns = {name: getattr(result.candidates, name) for name in _COLUMNS}
    # Names as they are: pandas' own strings cannot hold all of them.
    frame = pd.DataFrame(
        {
            name: pd.Series(values, dtype=object if isinstance(values, list) else np.float64)
            for name, values in columns.items()
        }
    )
    _compare(frame, tolerance, result.huc / 4.5, levels)
    triples = zip(frame["utility"], frame["subgroup"], frame["node"], strict=True)
    moved = np.array([triple in changed for triple in triples], dtype=bool)
    stands = frame["node"].isin(list(standing)).to_numpy()
    frame["why"] = np.select(
        [moved & (frame["status"] == "sure"), stands & (frame["status"] == "possible")],
        ["changed", "standing"],
        "",
    )
    return WindowView(
        name=name,
        n=result.n,
        candidates=frame,
        huc=result.huc,
        huc_lower=_number(result.huc_lower),
        huc_upper=_number(result.huc_upper),
        uc=result.uc,
        facts=method_facts(result),
        familiar=result.familiar,
        **more,
    )


def method_facts(result: AuditResult) -> dict[str, str]:
    """Return how the bounds were made, in words."""
    found = {
        "Labelled rows": f"{result.n:,.0f}",
        "Bounds": result.method or "none",
        CONFIDENCE: f"{result.confidence_level:.4g}",
        "Bootstrap draws": f"{result.n_draws:,}" if result.n_draws else "",
        "Zero probabilities": "mixed with 1e-10 uniform" if result.interiorized else "",
        "Tree fingerprint": result.fingerprint,
    }
    return {key: value for key, value in found.items() if value}


def _compare(
    frame: pd.DataFrame, tolerance: Tolerance, scale: float, levels: Sequence[str | None]
) -> None:
    """Add ``tolerance``, ``scale``, ``ratio``, ``status`` and ``rank`` in place."""
    size = frame["moment"].abs().to_numpy()
    limit = np.full(len(frame), np.nan) if tolerance is None else np.asarray(tolerance, dtype=float)
    limit = np.broadcast_to(limit, len(frame))
    unset = np.isnan(limit)
    frame["tolerance"] = limit
    frame["scale"] = np.where(unset, scale, limit)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = size / frame["scale"].to_numpy()
    frame["ratio"] = np.nan_to_num(ratio, nan=0.0, posinf=_ENDLESS)
    if len(levels) == len(frame) and len(frame):
        sure = np.array([level == "critical" for level in levels])
        possible = np.array([level == "warning" for level in levels])
    else:
        sure = frame["lower"].to_numpy() > np.where(unset, 0.0, limit)
        possible = ~unset & (size > limit)
    frame["status"] = np.select([sure, possible], ["sure", "possible"], "within")
    # What is sure comes before what is large.
    frame["rank"] = frame["ratio"] + np.select([sure, possible], [4 * _ENDLESS, 2 * _ENDLESS], 0.0)


def finding(row: Any) -> CandidateView:
    """Read one row of a candidates frame."""
    units = row["units"]
    named = isinstance(units, str) and units != ""
    return CandidateView(
        node=str(row["node"]),
        subgroup=str(row["subgroup"]),
        utility=str(row["utility"]),
        moment=float(row["moment"]),
        lower=_number(row["lower"]),
        upper=_number(row["upper"]),
        low=_number(row["interval_low"]),
        high=_number(row["interval_high"]),
        n=float(row["n_in_interval"]),
        tolerance=_number(row["tolerance"]),
        scale=float(row["scale"]),
        in_units=_number(row["moment_in_units"]) if named else None,
        units=units if named else None,
        status=row["status"],
        why=row["why"],
    )


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
