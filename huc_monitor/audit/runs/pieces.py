"""An audit of rows that come in pieces: what each engine does with a piece, and with the sums.

`PieceAudit` is the whole computation but for moving rows: it checks a piece, turns it into rows
that can be brought into order of score elsewhere, summarises a run of such rows, and makes the
result from merged summaries. The engine for windows larger than memory
(`huc_monitor.sources.large`) lets DuckDB do the ordering, `huc_spark` lets Spark; both call the
same methods with the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from huc_monitor.audit.bounds.bootstrap import draw_units
from huc_monitor.audit.bounds.closed_forms import SharpBound, make_bound, sharp_radius
from huc_monitor.audit.decomposition import SortedRows, iter_decomposed, relevant_paths
from huc_monitor.audit.inputs import (
    INTERIOR_MIX,
    Predictions,
    check_confidence_level,
    check_labels,
    check_predictions,
    check_utilities,
    check_weights,
)
from huc_monitor.audit.result import AuditResult, MomentTable
from huc_monitor.audit.runs.draws import DrawSummary, MergedBootstrapBound, add_draws
from huc_monitor.audit.runs.summaries import ScanSummary, merge_summaries, sums_within
from huc_monitor.audit.scan import Groups
from huc_monitor.errors import InvalidInputError
from huc_monitor.subgroups import Subgroups

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from huc_monitor.audit.bounds.bound import Bound
    from huc_monitor.tree import LabelTree
    from huc_monitor.utilities import Utility
    from huc_monitor.utilities.program import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Checked rows: probabilities, leaf codes, subgroup weights, repeats, and what rows are called.

    ``repeats`` is empty where every row counts once, ``ids`` where no bootstrap asks for them.
    """

    predictions: Predictions
    labels: Ints
    weights: list[np.ndarray[Any, Any]]
    repeats: Floats
    ids: Ints

    def take(self, rows: Ints) -> Piece:
        """Return some of the rows."""
        return Piece(
            self.predictions.take(rows),
            self.labels[rows],
            [weights[rows] for weights in self.weights],
            self.repeats[rows] if self.repeats.size else self.repeats,
            self.ids[rows] if self.ids.size else self.ids,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What must be known of all rows before any is scanned; facts of pieces add up."""

    n_rows: int
    total: float
    any_zero: bool
    shares: Floats
    draws: Floats

    def __add__(self, other: Facts) -> Facts:
        """Facts of both sets of rows."""
        return Facts(
            self.n_rows + other.n_rows,
            self.total + other.total,
            self.any_zero or other.any_zero,
            self.shares + other.shares,
            self.draws + other.draws,
        )

    @property
    def scale(self) -> float:
        """Units per 1.0 of the integer sums, as for a window in memory."""
        return Groups([], np.empty(0), self.total).scale


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """One utility's rows, in any order: what an engine moves about.

    ``values`` are contributions in whole numbers of 1 / scale.
    """

    scores: Floats
    labels: Ints
    values: Ints
    weights: list[np.ndarray[Any, Any]]
    repeats: Floats
    ids: Ints


@dataclass(frozen=True, slots=True, eq=False)
class RunSummary:
    """The summary of one utility's rows between two scores, with bootstrap draws if asked for."""

    scan: ScanSummary
    draws: DrawSummary | None

    def to_bytes(self) -> list[bytes]:
        """Plain arrays; the second is empty without draws."""
        return [self.scan.to_bytes(), b"" if self.draws is None else self.draws.to_bytes()]

    @classmethod
    def from_bytes(cls, scan: bytes, draws: bytes) -> RunSummary:
        """Read what `to_bytes` wrote."""
        return cls(ScanSummary.from_bytes(scan), DrawSummary.from_bytes(draws) if draws else None)


def merge_runs(runs: Sequence[RunSummary]) -> RunSummary:
    """Merge summaries of runs that do not share scores; they may come in any order."""
    ordered = sorted(runs, key=lambda run: run.scan.first)
    draws = [run.draws for run in ordered if run.draws is not None]
    merged = None
    for item in draws:
        merged = item if merged is None else merged.merge(item)
    return RunSummary(merge_summaries([run.scan for run in ordered]), merged)


@dataclass(frozen=True, eq=False)
class PieceAudit:
    """The arguments of an audit, checked, and every step of it.

    ``mix_each`` mixes only rows that have a zero probability with the uniform distribution, as the
    monitor does; otherwise all rows are mixed as soon as one has a zero, as `audit` does.
    """

    tree: LabelTree
    utilities: tuple[Utility, ...]
    subgroups: Subgroups
    method: str | None
    confidence_level: float
    n_draws: int
    rng: int
    mix_each: bool = False

    @classmethod
    def of(
        cls,
        *,
        tree: LabelTree,
        utilities: Any,
        subgroups: Subgroups | None = None,
        bounds: str | None = "bootstrap",
        confidence_level: float = 0.95,
        n_draws: int = 1000,
        rng: Any = 0,
        mix_each: bool = False,
    ) -> PieceAudit:
        """Check what `audit` checks before it looks at rows."""
        if tree.arrays.n_branches == 0:
            msg = (
                "`tree` must have a node with at least two children; a single class leaves "
                "nothing to audit."
            )
            raise InvalidInputError(msg)
        bound = make_bound(bounds, n_draws=n_draws, rng=rng)
        return cls(
            tree,
            check_utilities(utilities),
            Subgroups.whole() if subgroups is None else subgroups,
            bounds,
            check_confidence_level(confidence_level),
            n_draws,
            getattr(bound, "seed", 0),
            mix_each,
        )

    @property
    def draws(self) -> bool:
        """Whether rows need ids, and runs a summary of bootstrap draws."""
        return self.method == "bootstrap"

    @cached_property
    def limits(self) -> list[Floats]:
        """Bound on the absolute contribution of every relevant branch, utility by utility."""
        found = (utility.spreads(self.tree) for utility in self.utilities)
        return [spreads[spreads > 0] for spreads in found]

    @cached_property
    def real(self) -> tuple[bool, ...]:
        """Which subgroups have weights other than 0 and 1."""
        entries = self.subgroups.to_dict()["subgroups"]
        return (False, *("weight" in entry["rule"] for entry in entries))

    def _bound(self, total: float) -> Bound:
        if self.draws:
            bound: Bound = MergedBootstrapBound(self.n_draws, self.rng)
        else:
            bound = make_bound(self.method)
        n_candidates = len(self.subgroups) * sum(spreads.size for spreads in self.limits)
        bound.start(total, n_candidates, self.confidence_level)
        return bound

    # One piece.

    def check(
        self,
        probabilities: Any,
        labels: Any,
        features: Any = None,
        weights: Any = None,
        ids: Any = None,
    ) -> Piece:
        """Check rows as `audit` checks a window; those of weight zero are left out."""
        predictions = check_predictions(probabilities, tree=self.tree)
        n = predictions.n
        codes = check_labels(labels, n, tree=self.tree)
        repeats = _row_weights(weights, n)
        called = np.asarray(ids, dtype=np.int64) if self.draws else np.empty(0, dtype=np.int64)
        piece = Piece(
            predictions, codes, list(self.subgroups.weights(features, n)), repeats, called
        )
        if repeats.size and not repeats.all():
            piece = piece.take(np.flatnonzero(repeats))
        return piece

    def facts(self, piece: Piece) -> Facts:
        """Count what the scan must know in advance."""
        n = piece.labels.size
        times = piece.repeats if piece.repeats.size else np.ones(n)
        return Facts(
            n,
            float(times.sum()) if piece.repeats.size else float(n),
            piece.predictions.mix > 0,
            np.array([float(np.sum(np.abs(w) * times)) for w in piece.weights]),
            add_draws(self.rng, self.n_draws, piece.ids, piece.repeats)
            if self.draws
            else np.empty(0),
        )

    @property
    def no_facts(self) -> Facts:
        """Facts of no rows."""
        draws = np.empty(0)
        if self.draws:
            draws = add_draws(0, self.n_draws, np.empty(0, dtype=np.int64), np.empty(0))
        shares = np.zeros(len(self.subgroups))
        return Facts(n_rows=0, total=0.0, any_zero=False, shares=shares, draws=draws)

    def rows(self, piece: Piece, facts: Facts) -> Iterator[ScoredRows]:
        """Yield every utility's scores and contributions of a piece."""
        parts = list(self._mixed(piece, facts))
        for found in zip(*(self._decomposed(part, facts.scale) for part in parts), strict=True):
            yield found[0] if len(found) == 1 else _join(found)

    def _mixed(self, piece: Piece, facts: Facts) -> Iterator[Piece]:
        matrix = piece.predictions.matrix
        if not self.mix_each:
            mixes: list[tuple[Ints | None, float]] = [
                (None, INTERIOR_MIX if facts.any_zero else 0.0)
            ]
        else:
            zero = (matrix == 0).any(axis=1)
            mixes = [(np.flatnonzero(~zero), 0.0), (np.flatnonzero(zero), INTERIOR_MIX)]
        for chosen, mix in mixes:
            part = piece if chosen is None else piece.take(chosen)
            if part.labels.size:
                yield Piece(
                    Predictions(part.predictions.matrix, mix),
                    part.labels,
                    part.weights,
                    part.repeats,
                    part.ids,
                )

    def _decomposed(self, piece: Piece, scale: float) -> Iterator[ScoredRows]:
        for rows in iter_decomposed(
            self.utilities, piece.predictions, piece.labels, tree=self.tree
        ):
            values = np.rint(rows.contributions * scale).astype(np.int64)
            yield ScoredRows(
                rows.scores, piece.labels, values, piece.weights, piece.repeats, piece.ids
            )

    # All rows between two scores.

    def sorted(
        self, utility: int, rows: ScoredRows, scale: float
    ) -> tuple[SortedRows, Groups, Ints]:
        """Bring rows into order of score."""
        relevant, paths = relevant_paths(self.tree, self.utilities[utility])
        order = np.argsort(rows.scores, kind="stable")
        ordered = SortedRows(
            self.utilities[utility],
            relevant,
            np.arange(order.size),
            rows.scores[order],
            np.ascontiguousarray(rows.values[order]),
            rows.labels[order],
            paths,
            scale,
        )
        repeats = rows.repeats[order] if rows.repeats.size else None
        groups = Groups.of([weights[order] for weights in rows.weights], repeats)
        return ordered, groups, rows.ids[order] if rows.ids.size else rows.ids

    def summarise(self, utility: int, rows: ScoredRows, facts: Facts) -> RunSummary:
        """Summarise all rows between two scores."""
        ordered, groups, ids = self.sorted(utility, rows, facts.scale)
        draws = None
        if self.draws:
            units = draw_units(self.limits[utility], facts.total)
            means = (facts.draws / facts.total).astype(np.float32)
            draws = DrawSummary.of(ordered, groups, ids, units, seed=self.rng, means=means)
        return RunSummary(ScanSummary.of(ordered, groups), draws)

    def within(self, utility: int, rows: ScoredRows, facts: Facts, shown: Floats) -> Ints:
        """Add up all branches on the intervals that a merged summary shows; in any order."""
        relevant, paths = relevant_paths(self.tree, self.utilities[utility])
        plain = SortedRows(
            self.utilities[utility],
            relevant,
            np.arange(rows.scores.size),
            rows.scores,
            rows.values,
            rows.labels,
            paths,
            facts.scale,
        )
        repeats = rows.repeats if rows.repeats.size else None
        return sums_within(plain, Groups.of(rows.weights, repeats), shown)

    # Everything.

    def result(
        self, facts: Facts, merged: Sequence[RunSummary], within: Sequence[Ints]
    ) -> AuditResult:
        """Make the result from one merged summary per utility."""
        scale, total = facts.scale, facts.total
        scans = [
            run.scan.scan(sums, scale=scale, total=total)
            for run, sums in zip(merged, within, strict=True)
        ]
        relevant = [relevant_paths(self.tree, utility)[0] for utility in self.utilities]
        bound = self._bound(total)
        return AuditResult(
            n=total,
            tree=self.tree,
            utilities=self.utilities,
            subgroups=self.subgroups,
            candidates=MomentTable.of_branches(scans, relevant),
            totals=MomentTable.of_totals(scans),
            radii=self._radii(bound, facts, merged),
            subgroup_share=facts.shares / total,
            subgroup_size=scans[0].size,
            method=self.method,
            confidence_level=self.confidence_level,
            n_draws=bound.n_draws,
            interiorized=facts.any_zero,
        )

    def _radii(self, bound: Bound, facts: Facts, merged: Sequence[RunSummary]) -> Floats:
        squares = [run.scan.mean_squares(scale=facts.scale, total=facts.total) for run in merged]
        if isinstance(bound, SharpBound):
            found = [
                sharp_radius(
                    bound.n,
                    mean,
                    limit,
                    n_candidates=bound.n_candidates,
                    level=bound.confidence_level,
                ).ravel()
                for mean, limit in zip(squares, self.limits, strict=True)
            ]
            return np.concatenate(found)
        if isinstance(bound, MergedBootstrapBound):
            for run, mean, limit in zip(merged, squares, self.limits, strict=True):
                assert run.draws is not None  # noqa: S101 - `summarise` made them
                bound.add_ranges(mean, limit, run.draws.ranges)
        return bound.radii()


def _row_weights(weights: Any, n: int) -> Floats:
    """Row weights of a piece, in which all may be zero."""
    if weights is None:
        return np.empty(0)
    array = np.asarray(weights)
    if array.dtype.kind in "fiu" and array.shape == (n,) and not np.any(array):
        return np.zeros(n)
    found = check_weights(weights, n)
    return np.empty(0) if found is None else found


def _join(parts: tuple[ScoredRows, ...]) -> ScoredRows:
    def joined(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    weights = zip(*(part.weights for part in parts), strict=True)
    return ScoredRows(
        joined("scores"),
        joined("labels"),
        joined("values"),
        [np.concatenate(columns) for columns in weights],
        joined("repeats"),
        joined("ids"),
    )
