"""What a report shows, in one shape whatever it came from: windows of candidates, and alerts.

Nothing statistical is computed here. Candidates are compared with their tolerance, and the worst
of a node, a subgroup or a window is looked up.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

import numpy as np

from huc_monitor.audit.curves import ReliabilityCurve
from huc_monitor.audit.familiar import FamiliarNumbers
from huc_monitor.audit.result import AuditResult, CandidateTable
from huc_monitor.monitor.change import WindowChange
from huc_monitor.monitor.findings import Finding
from huc_monitor.tree import LabelTree

Status = Literal["sure", "possible", "within"]
GLYPH: Final[dict[str, str]] = {"sure": "◆", "possible": "◇", "within": ""}
CONFIDENCE: Final = "Confidence, all bounds together"
_COLUMNS: Final = {
    **{name: name for name in ("node", "subgroup", "utility", "lower", "upper", "units")},
    **{name: name for name in ("moment", "n_in_subgroup", "on_worst_interval")},
    "low": "interval_low",
    "high": "interval_high",
    "n": "n_in_interval",
    "in_units": "moment_in_units",
}
_COUNTS: Final = ("moment", "n", "n_in_subgroup")  # numbers on every row
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
    def size(self) -> float:
        """How many times the scale its moment is; the moment itself where that is zero."""
        return abs(self.moment) / self.scale if self.scale > 0 else abs(self.moment)

    @property
    def direction(self) -> str:
        """What predictions do to utility, as a verb."""
        return "understate" if self.moment > 0 else "overstate"


@dataclass(frozen=True, slots=True, eq=False)
class WindowView:
    """One audited window; ``columns`` has a list for each property of its candidates.

    Lists, because a page reads few rows of many windows: frames took most of its time.
    """

    name: str
    n: float
    columns: Mapping[str, list[Any]]
    huc: float | None = None
    huc_lower: float | None = None
    huc_upper: float | None = None
    uc: float | None = None
    tick: str = ""
    start: datetime | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    curve: ReliabilityCurve | None = None
    frequencies: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    reason: str = ""
    new_tree: bool = False
    maintenance: str | None = None
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
    def title(self) -> str:
        """Its name, and that it is no evidence where it was in maintenance."""
        return f"{self.name}, {self.no_evidence}" if self.maintenance else self.name

    @property
    def no_evidence(self) -> str:
        """Why it is no evidence of anything, after its maintenance; empty where it is."""
        return f"no evidence: {self.maintenance}" if self.maintenance else ""

    @property
    def worst(self) -> CandidateView | None:
        """The candidate that exceeds its tolerance most, marked ones first; None without any."""
        return next(self.ranked(), None)

    @property
    def largest(self) -> CandidateView | None:
        """The candidate whose moment is HUC, marked or not; None without any."""
        sizes = [abs(moment) for moment in self.columns["moment"]]
        return self._candidate(sizes.index(max(sizes))) if sizes else None

    @property
    def tolerances(self) -> set[float]:
        """All tolerances that were set."""
        return {limit for limit in self.columns["tolerance"] if limit is not None}

    def names(self, column: str) -> list[str]:
        """Return the values of a column, each once."""
        return list(dict.fromkeys(self.columns[column]))

    def ranked(self, node: str | None = None) -> Iterator[CandidateView]:
        """Go through the candidates, or those of one branch, the worst first."""
        ranks, nodes = self.columns["rank"], self.columns["node"]
        mine = [i for i, name in enumerate(nodes) if node is None or name == node]
        yield from map(self._candidate, sorted(mine, key=lambda i: -ranks[i]))

    def find(self, node: str, subgroup: str, utility: str) -> CandidateView | None:
        """Return one candidate, None if it is not among them."""
        keys = zip(*(self.columns[key] for key in ("node", "subgroup", "utility")), strict=True)
        wanted = (node, subgroup, utility)
        return next((self._candidate(i) for i, key in enumerate(keys) if key == wanted), None)

    def beside(self, found: CandidateView) -> list[tuple[str, float]]:
        """Return all branches' moments on the worst interval of a candidate's subgroup."""
        names = ("node", "on_worst_interval", "subgroup", "utility")
        rows = zip(*(self.columns[name] for name in names), strict=True)
        wanted = (found.subgroup, found.utility)
        return [(node, moment or 0.0) for node, moment, *mine in rows if (*mine,) == wanted]

    def worst_by(self, column: str) -> dict[str, CandidateView]:
        """Return the worst candidate for each value of a column, in the column's order."""
        if column not in self._worst:
            ranks, best = self.columns["rank"], dict[str, int]()
            for row, name in enumerate(self.columns[column]):
                if name not in best or ranks[row] > ranks[best[name]]:
                    best[name] = row
            self._worst[column] = {name: self._candidate(row) for name, row in best.items()}
        return self._worst[column]

    def _candidate(self, row: int) -> CandidateView:
        return CandidateView(**{name: self.columns[name][row] for name in CandidateView.__slots__})


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
    n_alerts: int = 1  # of all its subgroups and utilities: those open, or all once resolved

    @property
    def is_open(self) -> bool:
        """Whether it is open after the last window."""
        return self.levels[-1] is not None

    @property
    def count(self) -> str:
        """How many alerts it stands for, in words; empty for one."""
        return f"{self.n_alerts}{' open' * self.is_open} alerts" if self.n_alerts > 1 else ""


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Everything on the page. Windows are in order of time; `latest` is the headline."""

    title: str
    windows: tuple[WindowView, ...]
    tree: LabelTree | None = None
    alerts: tuple[AlertView, ...] = ()
    notices: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    change: WindowChange | None = None
    zone: str = "UTC"

    @property
    def changed(self) -> list[Finding]:
        """Branches that changed since the reference, the most certain first."""
        return [found for found in self.findings if found.change is not None]

    @property
    def standing(self) -> list[Finding]:
        """Branches beyond the tolerance as in the reference, the worst first."""
        return [found for found in self.findings if found.change is None]

    @property
    def by_change(self) -> bool:
        """Whether alerts follow what changed, and not the tolerance alone."""
        return bool(self.standing) or (self.change is not None and self.change.alerts == "change")

    @property
    def latest(self) -> WindowView | None:
        """The newest audited window that is evidence, else the newest; None without any."""
        place = headline(self.windows)
        return None if place is None else self.windows[place]

    @property
    def tolerance(self) -> float | None:
        """The tolerance of all candidates; None where they have none or several."""
        found = {limit for window in self.windows for limit in window.tolerances}
        return found.pop() if len(found) == 1 else None

    @property
    def nodes(self) -> list[str]:
        """The tree's internal nodes, then names that only the windows know."""
        known = dict.fromkeys(self.tree.nodes if self.tree is not None else ())
        for window in reversed(self.windows):
            known.update(dict.fromkeys(window.names("node")))
        return list(known)


def headline(windows: Sequence[WindowView]) -> int | None:
    """Find the newest audited window; one in maintenance where there are no others."""
    audited = [place for place, window in enumerate(windows) if window.audited]
    evidence = [place for place in audited if not windows[place].maintenance]
    return max(evidence or audited, default=None)


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
    table = result.candidates
    columns = {name: _plain(getattr(table, stored)) for name, stored in _COLUMNS.items()}
    columns |= {name: getattr(table, _COLUMNS[name]).tolist() for name in _COUNTS}
    worth = zip(columns["in_units"], table.units, strict=True)
    columns["in_units"] = [value if units else None for value, units in worth]
    columns |= _compared(table, tolerance, result.huc / 4.5, levels)
    triples = zip(table.utility, table.subgroup, table.node, columns["status"], strict=True)
    columns["why"] = [_why(triple, status, changed, standing) for *triple, status in triples]
    return WindowView(
        name=name,
        n=result.n,
        columns=columns,
        huc=result.huc,
        huc_lower=_number(result.huc_lower),
        huc_upper=_number(result.huc_upper),
        uc=result.uc,
        facts=method_facts(result),
        **more,
    )


def no_columns() -> dict[str, list[Any]]:
    """Return the columns of a window without candidates."""
    return {name: [] for name in (*CandidateView.__slots__, *_COLUMNS, "rank")}


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


def _compared(
    table: CandidateTable, tolerance: Tolerance, scale: float, levels: Sequence[str | None]
) -> dict[str, list[Any]]:
    """Return ``tolerance``, ``scale``, ``status`` and ``rank`` of every candidate."""
    size = np.abs(table.moment)
    limit = np.full(len(size), np.nan) if tolerance is None else np.asarray(tolerance, dtype=float)
    limit = np.broadcast_to(limit, len(size))
    unset = np.isnan(limit)
    scales = np.where(unset, scale, limit)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(size / scales, nan=0.0, posinf=_ENDLESS)
    if len(levels) == len(size) and len(size):
        sure = np.array([level == "critical" for level in levels])
        possible = np.array([level == "warning" for level in levels])
    else:
        sure = table.lower > np.where(unset, 0.0, limit)
        possible = ~unset & (size > limit)
    # What is sure comes before what is large.
    rank = ratio + np.select([sure, possible], [4 * _ENDLESS, 2 * _ENDLESS], 0.0)
    return {
        "tolerance": _plain(limit),
        "scale": scales.tolist(),
        "status": np.select([sure, possible], ["sure", "possible"], "within").tolist(),
        "rank": rank.tolist(),
    }


def _why(
    candidate: list[str],
    status: str,
    changed: Collection[tuple[str, ...]],
    standing: Collection[str],
) -> str:
    if status == "sure" and tuple(candidate) in changed:
        return "changed"
    return "standing" if status == "possible" and candidate[-1] in standing else ""


def _plain(values: Any) -> list[Any]:
    """Return names as they are, and numbers with None for those that are not finite."""
    return values if isinstance(values, list) else list(map(_number, values.tolist()))


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
