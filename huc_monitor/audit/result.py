"""What an audit found: frozen, small, and readable as a line, a frame or JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from huc_monitor.errors import InvalidInputError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from huc_monitor.audit.scan import UtilityScan
    from huc_monitor.subgroups import Subgroups
    from huc_monitor.tree import LabelTree
    from huc_monitor.utilities import Utility
    from huc_monitor.utilities.program import Floats, Ints

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class MomentTable:
    """Columns of equal length, a row per (utility, subgroup, branch) or (utility, subgroup)."""

    utility: Ints
    subgroup: Ints
    branch: Ints
    moment: Floats
    low: Floats
    high: Floats
    n_inside: Floats
    on_uc: Floats
    on_worst: Floats

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.moment.size)

    @classmethod
    def of_branches(cls, scans: Sequence[UtilityScan], relevant: Sequence[Ints]) -> MomentTable:
        """One row per candidate, in the order utility, subgroup, branch."""
        n_groups = scans[0].moment.shape[0]
        sizes = [n_groups * branches.size for branches in relevant]
        return cls(
            utility=np.repeat(np.arange(len(scans)), sizes),
            subgroup=_join(np.repeat(np.arange(n_groups), b.size) for b in relevant),
            branch=_join(np.tile(b, n_groups) for b in relevant),
            moment=_join(scan.moment[:, :-1].ravel() for scan in scans),
            low=_join(scan.low[:, :-1].ravel() for scan in scans),
            high=_join(scan.high[:, :-1].ravel() for scan in scans),
            n_inside=_join(scan.n_inside[:, :-1].ravel() for scan in scans),
            on_uc=_join(scan.on_uc.ravel() for scan in scans),
            on_worst=_join(scan.on_worst.ravel() for scan in scans),
        )

    @classmethod
    def of_totals(cls, scans: Sequence[UtilityScan]) -> MomentTable:
        """One row per (utility, subgroup): the moments summed over branches."""
        n_groups = scans[0].moment.shape[0]
        moment = _join(scan.moment[:, -1] for scan in scans)
        return cls(
            utility=np.repeat(np.arange(len(scans)), n_groups),
            subgroup=np.tile(np.arange(n_groups), len(scans)),
            branch=np.full(moment.size, -1),
            moment=moment,
            low=_join(scan.low[:, -1] for scan in scans),
            high=_join(scan.high[:, -1] for scan in scans),
            n_inside=_join(scan.n_inside[:, -1] for scan in scans),
            on_uc=moment,
            on_worst=_join(scan.on_worst.sum(axis=1) for scan in scans),
        )


def _join(parts: Any) -> Any:
    return np.concatenate(list(parts))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One branch, subgroup and utility, with the interval on which its moment is largest.

    ``moment`` is negative where predictions overstate utility. ``lower`` and ``upper`` bound the
    absolute moment. The interval is closed, in predicted utility; NaN when the moment is zero.
    """

    utility: str
    subgroup: str
    node: str
    moment: float
    lower: float
    upper: float
    interval_low: float
    interval_high: float
    n_in_interval: float

    def __repr__(self) -> str:
        """One line: where, how much, how sure."""
        return (
            f"Candidate({self.node!r}, subgroup={self.subgroup!r}, utility={self.utility!r}: "
            f"{self.moment:+.4f} [{self.lower:.4f}, {self.upper:.4f}] on "
            f"[{self.interval_low:.4g}, {self.interval_high:.4g}], n={self.n_in_interval:g})"
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AuditResult:
    """Moments of all candidates of one window, with simultaneous bounds.

    Attributes
    ----------
    huc, uc : float
        Largest absolute moment over branches, before and after summing over them.
    huc_lower, huc_upper : float
        Bounds on the population's HUC at ``confidence_level``.
    n : float
        Rows of the window (sum of row weights).
    worst : Candidate
        The candidate that attains HUC.
    method, confidence_level, n_draws
        How the bounds were made. ``method`` is None when none were asked for; every bound is then
        NaN. ``n_draws`` is None unless the method draws.
    interiorized : bool
        True when the input had zero probabilities and was mixed with 1e-10 uniform.
    """

    n: float
    tree: LabelTree
    utilities: tuple[Utility, ...]
    subgroups: Subgroups
    candidates: MomentTable
    totals: MomentTable
    radii: Floats
    subgroup_share: Floats
    subgroup_size: Floats
    method: str | None
    confidence_level: float
    n_draws: int | None
    interiorized: bool

    @property
    def huc(self) -> float:
        """Hierarchical utility calibration error, eq:huc-note."""
        return float(np.abs(self.candidates.moment).max(initial=0.0))

    @property
    def uc(self) -> float:
        """Utility calibration error, eq:uc-note."""
        return float(np.abs(self.totals.moment).max(initial=0.0))

    @property
    def huc_lower(self) -> float:
        """Largest lower bound of any candidate."""
        sizes = np.abs(self.candidates.moment) - self.radii
        return float(sizes.max(initial=0.0))

    @property
    def huc_upper(self) -> float:
        """Largest upper bound of any candidate."""
        sizes = np.abs(self.candidates.moment) + self.radii
        return float(sizes.max(initial=0.0))

    @property
    def worst(self) -> Candidate:
        """The candidate of largest absolute moment; the first in order on a tie."""
        if self.candidates.n == 0:
            msg = "`worst` needs a candidate; no utility has a relevant branch in this tree."
            raise InvalidInputError(msg)
        return self._candidate(int(np.argmax(np.abs(self.candidates.moment))))

    def _candidate(self, row: int) -> Candidate:
        table = self.candidates
        size, radius = abs(float(table.moment[row])), float(self.radii[row])
        return Candidate(
            utility=self.utilities[table.utility[row]].name,
            subgroup=self.subgroups.names[table.subgroup[row]],
            node=self.tree.branches[table.branch[row]],
            moment=float(table.moment[row]),
            lower=float(np.maximum(0.0, size - radius)),
            upper=size + radius,
            interval_low=float(table.low[row]),
            interval_high=float(table.high[row]),
            n_in_interval=float(table.n_inside[row]),
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a row per candidate, in the order utility, subgroup, branch.

        ``lower`` and ``upper``, the absolute moment minus and plus ``radius``, hold for all rows
        together. ``detectable`` is twice the radius: had the population's absolute moment been
        larger than that, ``lower`` would have come out above zero with probability of at least the
        confidence level, so a smaller moment may have gone unseen in this window.
        ``moment`` is averaged over the window, ``moment_in_subgroup`` over the subgroup's rows;
        ``on_uc_interval`` and ``on_worst_interval`` are the branch's moments on the interval that
        maximises UC, and on that of the worst branch, of the same subgroup and utility: there
        cancellation shows. ``moment_in_units`` is the moment in the utility's own units.
        """
        table = self.candidates
        size = np.abs(table.moment)
        share = self.subgroup_share[table.subgroup]
        scales = np.array([utility.scale for utility in self.utilities])
        units = [utility.units for utility in self.utilities]
        within = np.divide(table.moment, share, out=np.zeros(table.n), where=share > 0)
        return pd.DataFrame(
            {
                "utility": [self.utilities[u].name for u in table.utility],
                "subgroup": [self.subgroups.names[c] for c in table.subgroup],
                "node": [self.tree.branches[v] for v in table.branch],
                "moment": table.moment,
                "lower": np.maximum(0.0, size - self.radii),
                "upper": size + self.radii,
                "radius": self.radii,
                "detectable": 2.0 * self.radii,
                "interval_low": table.low,
                "interval_high": table.high,
                "n_in_interval": table.n_inside,
                "n_in_subgroup": self.subgroup_size[table.subgroup],
                "moment_in_subgroup": within,
                "on_uc_interval": table.on_uc,
                "on_worst_interval": table.on_worst,
                "moment_in_units": table.moment * scales[table.utility],
                "units": [units[u] for u in table.utility],
            }
        )

    def uc_frame(self) -> pd.DataFrame:
        """Return a row per (utility, subgroup): the moment after summing over branches."""
        table = self.totals
        return pd.DataFrame(
            {
                "utility": [self.utilities[u].name for u in table.utility],
                "subgroup": [self.subgroups.names[c] for c in table.subgroup],
                "moment": table.moment,
                "interval_low": table.low,
                "interval_high": table.high,
                "n_in_interval": table.n_inside,
            }
        )

    def violations(self, tolerance: float) -> pd.DataFrame:
        """Candidates whose absolute moment exceeds ``tolerance``, largest first.

        The column ``confident`` is true where the lower bound exceeds it as well.
        """
        if not (isinstance(tolerance, int | float | np.number) and 0 <= tolerance < math.inf):
            msg = f"`tolerance` must be a number of at least 0; got {tolerance!r}."
            raise InvalidInputError(msg)
        frame = self.to_frame()
        size = frame["moment"].abs()
        frame["confident"] = frame["lower"] > tolerance
        kept = frame[size > tolerance]
        return kept.loc[size[kept.index].sort_values(ascending=False, kind="stable").index]

    def guarantee(self, utility: str, nodes: Sequence[str] | None = None) -> float:
        """Bound on the risk that monotone post-processing could still save.

        Theorem thm:decision-guarantee: when branching continues at ``nodes`` (each with all its
        ancestors; every node when left out) and utility is averaged below, no non-decreasing
        transformation of predicted utility lowers the threshold risk by more than
        ``2 * (relevant branches among nodes) * HUC`` of the whole population. This evaluates the
        bound at the window's own HUC.
        """
        names = [item.name for item in self.utilities]
        if utility not in names:
            msg = f"`utility` must be one of {', '.join(names)}; got {utility!r}."
            raise UnknownNameError(msg)
        kept = set(self.tree.nodes) if nodes is None else set(nodes)
        for node in kept:
            self.tree.depth(node)
            missing = [above for above in self.tree.ancestors(node) if above not in kept]
            if missing:
                msg = (
                    f"`nodes` must hold all ancestors of its nodes; {node!r} is there without "
                    f"{missing[0]!r}. Add it."
                )
                raise InvalidInputError(msg)
        table = self.candidates
        mine = (table.utility == names.index(utility)) & (table.subgroup == 0)
        huc = float(np.abs(table.moment[mine]).max(initial=0.0))
        count = sum(self.tree.branches[v] in kept for v in table.branch[mine])
        return 2.0 * count * huc

    def p_value_calibrated(
        self,
        probabilities: Any,
        *,
        features: Any = None,
        weights: Any = None,
        n_draws: int = 199,
        rng: Any = 0,
    ) -> float:
        """Exact p-value of full calibration: how often labels drawn from predictions do this.

        A result keeps no rows, so the window's predictions (with the features and weights given to
        the audit) must be handed in again. See
        `huc_monitor.audit.full_calibration.calibration_p_value`: it tests full calibration,
        not whether an error exceeds a tolerance.
        """
        from huc_monitor.audit.full_calibration import check_groups, p_value_of
        from huc_monitor.audit.inputs import check_predictions

        predictions = check_predictions(probabilities, tree=self.tree)
        groups = check_groups(self.subgroups, features, weights, predictions.n)
        if groups.total != self.n:
            msg = (
                f"`probabilities` must be the {self.n:g} rows of the audited window; "
                f"got {groups.total:g}. Pass the same rows and weights."
            )
            raise InvalidInputError(msg)
        return p_value_of(
            self.huc,
            predictions,
            groups,
            tree=self.tree,
            utilities=self.utilities,
            n_draws=n_draws,
            rng=rng,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form with a schema version; undefined numbers are None."""
        return {
            "schema_version": SCHEMA_VERSION,
            "n": self.n,
            "huc": self.huc,
            "huc_lower": _json_safe(self.huc_lower),
            "huc_upper": _json_safe(self.huc_upper),
            "uc": self.uc,
            "method": self.method,
            "confidence_level": self.confidence_level,
            "n_draws": self.n_draws,
            "interiorized": self.interiorized,
            "tree": self.tree.fingerprint,
            "candidates": _records(self.to_frame()),
            "totals": _records(self.uc_frame()),
        }

    def __repr__(self) -> str:
        """One line."""
        at = f", worst={self.worst.node!r}" if self.candidates.n else ""
        return (
            f"AuditResult(n={self.n:g}, huc={self.huc:.4g} "
            f"[{self.huc_lower:.4g}, {self.huc_upper:.4g}], uc={self.uc:.4g}{at}, "
            f"candidates={self.candidates.n})"
        )


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {str(key): _json_safe(value) for key, value in record.items()}
        for record in frame.to_dict(orient="records")
    ]


def _json_safe(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
