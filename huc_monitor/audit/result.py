"""What an audit found: frozen, small, and readable as a line, a frame or JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from huc_monitor._common.checks import check_number
from huc_monitor._common.views import Plotted
from huc_monitor.audit.clusters import Design
from huc_monitor.audit.familiar import FamiliarNumbers
from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats

if TYPE_CHECKING:
    from huc_monitor.audit.plan import AuditPlan
    from huc_monitor.audit.truncation import Truncation

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class TotalTable:
    """Columns of equal length, a row per (utility, subgroup): moments summed over branches."""

    utility: list[str]
    subgroup: list[str]
    moment: Floats
    interval_low: Floats
    interval_high: Floats
    n_in_interval: Floats


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTable:
    """Columns of equal length, a row per candidate, named as in `AuditResult.to_frame`."""

    utility: list[str]
    subgroup: list[str]
    node: list[str]
    moment: Floats
    radius: Floats
    interval_low: Floats
    interval_high: Floats
    n_in_interval: Floats
    n_in_subgroup: Floats
    moment_in_subgroup: Floats
    on_uc_interval: Floats
    on_worst_interval: Floats
    moment_in_units: Floats
    units: list[str | None]
    label_coverage: Floats

    @property
    def n(self) -> int:
        """Number of candidates."""
        return int(self.moment.size)

    @property
    def moment_lower(self) -> Floats:
        """Lower bounds of the moments, with their sign."""
        return self.moment - self.radius

    @property
    def moment_upper(self) -> Floats:
        """Upper bounds of the moments, with their sign."""
        return self.moment + self.radius

    @property
    def lower(self) -> Floats:
        """Lower bounds of the absolute moments."""
        return np.maximum(0.0, np.abs(self.moment) - self.radius)

    @property
    def upper(self) -> Floats:
        """Upper bounds of the absolute moments."""
        return np.abs(self.moment) + self.radius

    @property
    def detectable(self) -> Floats:
        """Twice the radius."""
        return 2.0 * self.radius


_COLUMNS = (
    "utility",
    "subgroup",
    "node",
    "moment",
    "lower",
    "upper",
    "radius",
    "detectable",
    *(item.name for item in fields(CandidateTable)[5:]),
)
_FIRST = (
    "utility",
    "subgroup",
    "node",
    "moment",
    "moment_lower",
    "moment_upper",
    "interval_low",
    "interval_high",
    "n_in_interval",
)
_TOTALS = tuple(item.name for item in fields(TotalTable))


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
class AuditResult(Plotted):
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
    fingerprint : str
        Of the label tree.
    candidates, totals : CandidateTable, TotalTable
        The columns of `to_frame(all_columns=True)` and `uc_frame`.
    notes : tuple of str
        What a reader should know before the numbers, such as accuracy at chance.
    unlogged : float
        Mean share of the predicted mass that was not logged, and was spread by a rule.
    familiar : FamiliarNumbers or None
        Accuracy, log loss and other numbers people know, where they were asked for.
    plan : AuditPlan or None
        What was asked: tree, utilities, subgroups. None where the result was read back.
    design : Design or None
        How dependent rows and chosen labels were counted; None where there are neither.
    weighted : bool
        Whether rows counted differently. Not kept by `to_dict`.
    """

    n: float
    method: str | None
    confidence_level: float
    n_draws: int | None
    interiorized: bool
    fingerprint: str
    candidates: CandidateTable
    totals: TotalTable
    notes: tuple[str, ...] = ()
    plan: AuditPlan | None = None
    design: Design | None = None
    unlogged: float = 0.0
    familiar: FamiliarNumbers | None = None
    weighted: bool = False

    @property
    def tree(self) -> LabelTree:
        """The label tree; a result that was read back knows its ``fingerprint`` only."""
        return self._asked("tree").tree

    @property
    def utilities(self) -> tuple[Utility, ...]:
        """The audited utilities; not known to a result that was read back."""
        return self._asked("utilities").utilities

    @property
    def subgroups(self) -> Subgroups:
        """The audited subgroups; not known to a result that was read back."""
        return self._asked("subgroups").subgroups

    def with_truncation(self, lost: Truncation, n: float, notes: Sequence[str] = ()) -> AuditResult:
        """Return the same result, with what its predictions did not log, and with notes."""
        told = lost.notes(n, self.utilities, self.tree)
        return replace(self, unlogged=lost.mass / max(1.0, n), notes=(*notes, *self.notes, *told))

    def _asked(self, what: str) -> AuditPlan:
        if self.plan is None:
            msg = (
                f"`{what}` must be known for this; a result that was read from a dict has names "
                "and numbers only. Audit the rows again, or use the configuration's."
            )
            raise InvalidInputError(msg)
        return self.plan

    @property
    def radii(self) -> Floats:
        """Radius of every candidate's moment."""
        return self.candidates.radius

    @property
    def huc(self) -> float:
        """Hierarchical utility calibration error (Definition 3.2)."""
        return float(np.abs(self.candidates.moment).max(initial=0.0))

    @property
    def uc(self) -> float:
        """Utility calibration error (Definition 2.2)."""
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
        numbers = (getattr(table, name)[row] for name in Candidate.__slots__[3:])
        place = table.utility[row], table.subgroup[row], table.node[row]
        return Candidate(*place, *map(float, numbers))

    def to_frame(self, *, all_columns: bool = False) -> pd.DataFrame:
        """Return a row per candidate, in the order utility, subgroup, branch.

        The columns people read first: ``moment``, the mean contribution in the range of predicted
        utility from ``interval_low`` to ``interval_high``, where its absolute value is largest;
        ``moment_lower`` and ``moment_upper``, its simultaneous bounds on that range, with their
        sign; ``n_in_interval``, the rows there. Where a utility has units, ``moment_in_units`` and
        ``units`` follow; where labels stop above the leaves, ``label_coverage``.

        With `all_columns` there is all that is known.
        ``lower`` and ``upper``, the absolute moment minus and plus ``radius``, hold for all rows
        together. ``detectable`` is twice the radius: had the population's absolute moment been
        larger than that, ``lower`` would have come out above zero with probability of at least the
        confidence level, so a smaller moment may have gone unseen in this window.
        ``moment`` is averaged over the window, ``moment_in_subgroup`` over the subgroup's rows;
        ``on_uc_interval`` and ``on_worst_interval`` are the branch's moments on the interval that
        maximises UC, and on that of the worst branch, of the same subgroup and utility: there
        cancellation shows. ``moment_in_units`` is the moment in the utility's own units.
        ``label_coverage`` is the share of the branch's rows whose label goes on below it: 1 where
        every label is a leaf. Moments of a branch count the rows it sees, divided by this share.
        """
        names = _COLUMNS
        if not all_columns:
            units = ("moment_in_units", "units") if any(self.candidates.units) else ()
            names = (*_FIRST, *units, *(("label_coverage",) if self.partial else ()))
        return pd.DataFrame({name: getattr(self.candidates, name) for name in names})

    def uc_frame(self) -> pd.DataFrame:
        """Return a row per (utility, subgroup): the moment after summing over branches."""
        return pd.DataFrame({name: getattr(self.totals, name) for name in _TOTALS})

    def violations(self, tolerance: float) -> pd.DataFrame:
        """Candidates whose absolute moment exceeds ``tolerance``, largest first.

        The column ``confident`` is true where the lower bound exceeds it as well.
        """
        check_number("tolerance", tolerance, least=0)
        frame = self.to_frame(all_columns=True)
        size = frame["moment"].abs()
        frame["confident"] = frame["lower"] > tolerance
        kept = frame[size > tolerance]
        return kept.loc[size[kept.index].sort_values(ascending=False, kind="stable").index]

    def guarantee(self, utility: str, nodes: Sequence[str] | None = None) -> float:
        """Bound on the risk that monotone post-processing could still save.

        Theorem G.2: when branching continues at ``nodes`` (each with all its
        ancestors; every node when left out) and utility is averaged below, no non-decreasing
        transformation of predicted utility lowers the threshold risk by more than
        ``2 * (relevant branches among nodes) * HUC`` of the whole population. This evaluates the
        bound at the window's own HUC.
        """
        names = list(dict.fromkeys(self.totals.utility))
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
        places = zip(table.utility, table.subgroup, strict=True)
        mine = [i for i, place in enumerate(places) if place == (utility, self.totals.subgroup[0])]
        huc = float(np.abs(table.moment[mine]).max(initial=0.0))
        return 2.0 * sum(table.node[i] in kept for i in mine) * huc

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
        not whether an error exceeds a tolerance. Audits with clusters, label probabilities or
        labels at inner nodes are refused: labels drawn for every row alone do not imitate them.
        """
        from huc_monitor.audit.full_calibration import check_groups, p_value_of, refuse_untestable
        from huc_monitor.audit.inputs import check_predictions

        refuse_untestable(self)
        predictions = check_predictions(probabilities, tree=self.tree)
        groups = check_groups(self.subgroups, features, weights, predictions.n)
        if not math.isclose(groups.total, self.n):
            msg = (
                f"`probabilities` must be the {self.n:g} rows of the audited window; "
                f"got {groups.total:g}. Pass the same rows and weights."
            )
            raise InvalidInputError(msg)
        if groups.uneven != self.weighted:
            msg = (
                f"`weights` must be those of the audit, which had {'' if self.weighted else 'no '}"
                "rows of different weight. Pass the same rows and weights."
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

    @property
    def partial(self) -> bool:
        """Whether any label stopped above the leaves."""
        return bool((self.candidates.label_coverage < 1.0).any())

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form with a schema version; undefined numbers are None."""
        return {
            "schema_version": SCHEMA_VERSION,
            "n": self.n,
            "huc": self.huc,
            "huc_lower": _finite(self.huc_lower),
            "huc_upper": _finite(self.huc_upper),
            "uc": self.uc,
            "method": self.method,
            "confidence_level": self.confidence_level,
            "n_draws": self.n_draws,
            "interiorized": self.interiorized,
            "tree": self.fingerprint,
            **({"unlogged": self.unlogged} if self.unlogged else {}),
            **({"notes": list(self.notes)} if self.notes else {}),
            **({"familiar": self.familiar.to_dict()} if self.familiar is not None else {}),
            **({"design": self.design.to_dict()} if self.design is not None else {}),
            "candidates": _records(self.candidates, _COLUMNS if self.partial else _COLUMNS[:-1]),
            "totals": _records(self.totals, _TOTALS),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AuditResult:
        """Read what `to_dict` wrote: the same numbers, to the last bit.

        The tree, the utilities and the subgroups themselves are not written, only their names.

        Examples
        --------
        >>> import huc_monitor as hm
        >>> tree = hm.LabelTree.flat(["a", "b"])
        >>> result = hm.audit([[0.5, 0.5]] * 8, ["a"] * 8, tree=tree, utilities=[hm.TopK(1)])
        >>> hm.AuditResult.from_dict(result.to_dict()).to_dict() == result.to_dict()
        True
        """
        if not isinstance(data, Mapping) or data.get("schema_version") != SCHEMA_VERSION:
            found = data.get("schema_version") if isinstance(data, Mapping) else data
            msg = (
                f"`data` must be AuditResult.to_dict() of schema_version {SCHEMA_VERSION}; got "
                f"{found!r:.80}. Read it with the version of huc-monitor that wrote it, or newer."
            )
            raise InvalidInputError(msg)
        keys = ("n", "method", "confidence_level", "n_draws", "interiorized", "tree")
        missing = [key for key in ("candidates", "totals", *keys) if key not in data]
        if missing:
            msg = f"`data` must be AuditResult.to_dict(); {missing[0]!r} is missing."
            raise InvalidInputError(msg)
        values: dict[str, Any] = {key: data[key] for key in keys[:-1]}
        return cls(
            **values,
            fingerprint=data["tree"],
            notes=tuple(data.get("notes", ())),
            design=Design.from_dict(data["design"]) if "design" in data else None,
            unlogged=float(data.get("unlogged", 0.0)),
            familiar=FamiliarNumbers.from_dict(told) if (told := data.get("familiar")) else None,
            candidates=_table(CandidateTable, data, "candidates"),
            totals=_table(TotalTable, data, "totals"),
        )

    def __repr__(self) -> str:
        """One line."""
        at = f", worst={self.worst.node!r}" if self.candidates.n else ""
        return (
            f"AuditResult(n={self.n:g}, huc={self.huc:.4g} "
            f"[{self.huc_lower:.4g}, {self.huc_upper:.4g}], uc={self.uc:.4g}{at}, "
            f"candidates={self.candidates.n})"
        )


def _records(table: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    columns = [getattr(table, name) for name in names]
    plain = [column if isinstance(column, list) else _finite(column) for column in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*plain, strict=True)]


def _finite(numbers: Any) -> Any:
    """Numbers as plain Python has them; None for those that are not finite."""
    plain = np.array(numbers, dtype=object)
    plain[~np.isfinite(numbers)] = None
    return plain.tolist()


_Table = TypeVar("_Table", CandidateTable, TotalTable)


def _table(cls: type[_Table], data: Mapping[str, Any], key: str) -> _Table:
    """Read records by column; None is a number that was not finite."""
    columns: dict[str, Any] = {}
    for item in fields(cls):
        try:
            values = [
                record.get(item.name, 1.0) if item.name == "label_coverage" else record[item.name]
                for record in data[key]
            ]
            named = str(item.type).startswith("list")
            columns[item.name] = values if named else np.array(values, dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            msg = (
                f"`data[{key!r}]` must be records with {item.name!r}, as AuditResult.to_dict() "
                f"writes them; got {type(error).__name__}: {error}."
            )
            raise InvalidInputError(msg) from error
    return cls(**columns)
