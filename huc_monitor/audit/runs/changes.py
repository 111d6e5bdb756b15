"""The change test on rows that come in pieces: a reference and windows that are never in one place.

Every row carries the number of its sample: 0 is the reference, 1 the newest window, 2 the one
before, and so on; k pooled windows are the samples 1 to k. Rows are read, scored and ordered once,
whatever is pooled: a run of rows in order of score is summarised for every pool, with the signed
amounts of `huc_monitor.audit.two_samples`, and summaries merge as those of audits do. A row has one
name, hence one multiplier, in all pools. Draws are made in a second pass over the ordered rows, and
only for pools in which some change is large enough for draws to make it sure.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, Self

import numpy as np

from huc_monitor.audit.bounds.bootstrap import BootstrapBound
from huc_monitor.audit.clusters import ClusterSizes, Sizes
from huc_monitor.audit.comparison import Comparison
from huc_monitor.audit.decomposition import SortedRows, iter_decomposed
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.row_weights import WeightUnit
from huc_monitor.audit.runs.draws import add_multipliers
from huc_monitor.audit.runs.pieces import Piece, PiecePlan, RunSummary, ScoredRows
from huc_monitor.audit.scan import AFTER, BEFORE, Groups, UtilityScan
from huc_monitor.audit.two_samples import AfterSums, change_bound, make_comparison, may_be_sure
from huc_monitor.utilities.program import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class SampleFacts:
    """What must be known of all rows before any is scanned, sample by sample; pieces add up.

    ``totals`` is how often the rows count, ``copies`` how many rows they are: these differ where
    labels were chosen. ``partial`` says whether any label stops above the leaves.
    """

    n_rows: Ints
    totals: Floats
    copies: Floats
    unit: WeightUnit
    partial: bool
    apart: Floats
    clusters: tuple[ClusterSizes, ...]
    chosen: bool = False

    def __add__(self, other: SampleFacts) -> SampleFacts:
        """Facts of both sets of rows."""
        pairs = zip(self.clusters, other.clusters, strict=True)
        return SampleFacts(
            self.n_rows + other.n_rows,
            self.totals + other.totals,
            self.copies + other.copies,
            self.unit.merge(other.unit),
            self.partial or other.partial,
            self.apart + other.apart,
            tuple(a + b if b.keys.size else a for a, b in pairs),
            self.chosen or other.chosen,
        )

    @property
    def clustered(self) -> bool:
        """Whether rows depend on each other."""
        return any(own.keys.size for own in self.clusters)

    def groups(self, pool: int, rows: ScoredRows | None = None) -> Groups:
        """Bundle rows of the reference and of the newest ``pool`` windows; none by default."""
        sizes = float(self.totals[1 : pool + 1].sum()), float(self.totals[0])
        if rows is None:
            none = Groups.apart([], np.empty(0), self.unit.size, np.empty(0, np.uint8), sizes)
            return self._sized(none, pool)
        repeats = self.unit.count(rows.repeats) if rows.repeats.size else rows.repeats
        sample = np.where(rows.samples == 0, BEFORE, AFTER).astype(np.uint8)
        groups = Groups.apart(rows.weights, repeats, self.unit.size, sample, sizes)
        clusters = rows.ids if self.clustered else np.empty(0, dtype=np.int64)
        groups = dataclasses.replace(groups, times=rows.times, clusters=clusters)
        return self._sized(groups, pool)

    def _sized(self, groups: Groups, pool: int) -> Groups:
        """Give rows the sizes of all rows, where they are dependent or their labels chosen."""
        if not self.clustered and not self.chosen:
            return groups
        unit, after = self.unit.size, slice(1, pool + 1)
        apart = [float(self.apart[after].sum()) / unit**2, float(self.apart[0]) / unit**2]
        tables = []
        if self.clustered:
            newest = functools.reduce(operator.add, self.clusters[after])
            tables = [newest * (1.0 / unit), self.clusters[0] * (1.0 / unit)]
        known = Sizes.of(groups.mass, groups.masses, apart, tables)
        return dataclasses.replace(groups, known=known)


class ChangeEngine(Protocol):
    """What an engine does with rows: it holds them, orders them and merges what runs say."""

    @property
    def facts(self) -> SampleFacts:
        """Facts of all rows."""

    def multipliers(self) -> Floats:
        """Sum of every draw's multipliers over each sample, (samples, draws)."""

    def summaries(self, pools: Sequence[int], sums: Floats | None) -> list[list[RunSummary]]:
        """Return one merged summary per pool and utility, with draws if there are ``sums``."""

    def after(
        self, pools: Sequence[int], intervals: Sequence[Sequence[Floats]]
    ) -> list[list[AfterSums]]:
        """Add up the rows of every pool on its intervals, (pool, utility)."""


@dataclass(frozen=True, eq=False)
class PieceChange(PiecePlan):
    """A comparison's arguments, and every step of it on rows that come in pieces."""

    n_samples: int

    @classmethod
    def from_plan(cls, plan: AuditPlan, n_samples: int) -> Self:
        """Ask what a plan asks, of a reference and one window less than there are samples."""
        given: Any = {item.name: getattr(plan, item.name) for item in fields(AuditPlan)}
        return cls(**given, n_samples=n_samples)

    def facts(self, piece: Piece) -> SampleFacts:
        """Count what the scan must know in advance."""
        weights = piece.repeats if piece.repeats.size else None
        sizes = {"minlength": self.n_samples}
        times = piece.times if piece.times.size else weights
        return SampleFacts(
            np.bincount(piece.samples, **sizes),
            np.bincount(piece.samples, weights, **sizes).astype(np.float64),
            np.bincount(piece.samples, times, **sizes).astype(np.float64),
            WeightUnit(1.0) if weights is None else WeightUnit.of(weights),
            bool((piece.labels >= self.tree.n_leaves).any()),
            np.bincount(piece.samples, piece.apart, **sizes).astype(np.float64),
            tuple(_clusters(piece, k) for k in range(self.n_samples)),
            piece.times.size > 0,
        )

    @property
    def no_facts(self) -> SampleFacts:
        """Facts of no rows."""
        none = np.zeros(self.n_samples)
        return SampleFacts(
            none.astype(np.int64),
            none,
            none,
            WeightUnit(),
            partial=False,
            apart=none,
            clusters=(ClusterSizes(),) * self.n_samples,
        )

    def rows(
        self,
        piece: Piece,
        facts: SampleFacts | None = None,  # noqa: ARG002 - as `PieceAudit.rows` is called
    ) -> Iterator[ScoredRows]:
        """Yield every utility's scores, and contributions in 32 bits, as past windows are kept."""
        more = (piece.weights, piece.repeats, piece.ids, piece.samples, piece.times)
        for rows in iter_decomposed(
            self.utilities, piece.predictions, piece.labels, tree=self.tree
        ):
            values = rows.contributions.astype(np.float32)
            yield ScoredRows(rows.scores, piece.labels, values, *more)

    def add_multipliers(self, rows: ScoredRows, facts: SampleFacts) -> Floats:
        """Sum of every draw's multipliers over the rows of each sample."""
        found = []
        for k in range(self.n_samples):
            mine = rows.take(np.flatnonzero(rows.samples == k))
            roots = facts.groups(1, mine).roots
            found.append(add_multipliers(self.seed, self.n_draws, mine.ids, roots))
        return np.stack(found)

    # All rows between two scores.

    def summarise_pool(
        self,
        utility: int,
        rows: ScoredRows,
        facts: SampleFacts,
        pool: int,
        sums: Floats | None = None,
    ) -> RunSummary | None:
        """Summarise the rows of a pool and of the reference; None where there are none."""
        ordered, groups, ids = self._pooled(utility, rows, facts, pool)
        if not ids.size:
            return None
        means = np.empty((2, 0))
        if sums is not None:
            both = np.stack([sums[1 : pool + 1].sum(axis=0), sums[0]])
            means = both / np.array(groups.masses)[:, None]
        return self._summary(utility, ordered, groups, ids, means)

    def after_sums(
        self, utility: int, rows: ScoredRows, facts: SampleFacts, pool: int, intervals: Floats
    ) -> AfterSums:
        """Add up the rows of a pool on the intervals of all candidates; in any order."""
        ordered, groups, _ = self._pooled(utility, rows, facts, pool)
        first = np.searchsorted(ordered.scores, intervals[..., 0])
        last = np.searchsorted(ordered.scores, intervals[..., 1], side="right")
        span = np.stack([first, last], axis=-1)
        span[np.isnan(intervals).any(axis=-1)] = 0
        return AfterSums.of(ordered, groups, span)

    def _pooled(
        self, utility: int, rows: ScoredRows, facts: SampleFacts, pool: int
    ) -> tuple[SortedRows, Groups, Ints]:
        """Bring the rows of a pool and of the reference into order of score."""
        from huc_monitor._kernels import sort_order

        kept = np.flatnonzero(rows.samples <= pool)
        mine = rows.take(kept[sort_order(rows.scores[kept])])
        groups = facts.groups(pool, mine)
        values = np.rint(mine.values.astype(np.float64) * groups.scale).astype(np.int64)
        ordered = self._ordered(utility, mine, values, groups.scale)
        return ordered, groups, mine.ids


def compare_pools(
    check: PieceChange, engine: ChangeEngine, pools: Sequence[int], *, screen: bool = True
) -> list[Comparison] | None:
    """Compare the newest windows, pooled, with the reference; one comparison per pool.

    The numbers are those of `huc_monitor.audit.two_samples.compare_samples` on rows in memory,
    reference first, then the newest window, then the one before. None where a sample has no rows,
    or where labels stop above the leaves: rows in memory are compared as `label_depth` says.
    """
    facts = engine.facts
    if not facts.n_rows.all() or facts.partial:
        return None
    groups = [facts.groups(pool) for pool in pools]
    found = engine.summaries(pools, None)
    scans = [_scans(runs, mine) for runs, mine in zip(found, groups, strict=True)]
    radii: list[Floats | None] = [None] * len(pools)
    near = []
    for i, (runs, mine) in enumerate(zip(found, groups, strict=True)):
        if not screen or may_be_sure(scans[i], _visited(check, runs, mine)):
            near.append(i)
    if near:
        drawn = engine.summaries([pools[i] for i in near], engine.multipliers())
        for i, runs in zip(near, drawn, strict=True):
            radii[i] = _visited(check, runs, groups[i]).radii()
    intervals = [[run.scan.intervals[:, :-1] for run in runs] for runs in found]
    after = engine.after(pools, intervals)
    rows = [(float(facts.copies[1 : pool + 1].sum()), float(facts.copies[0])) for pool in pools]
    parts = zip(groups, scans, after, radii, rows, strict=True)
    return [make_comparison(check, *part) for part in parts]


def _clusters(piece: Piece, sample: int) -> ClusterSizes:
    mine = piece.samples == sample
    if not piece.clusters.size or not mine.any():
        return ClusterSizes()
    return ClusterSizes.of(
        piece.clusters[mine], piece.repeats[mine] if piece.repeats.size else piece.repeats
    )


def _scans(runs: Sequence[RunSummary], groups: Groups) -> list[UtilityScan]:
    sizes = {"scale": groups.scale, "total": groups.mass, "unit": groups.unit}
    shapes = [run.scan.squares.shape for run in runs]
    nothing = [np.zeros((n_groups, 2, n_slots), dtype=np.int64) for n_groups, n_slots in shapes]
    return [run.scan.scan(none, **sizes) for run, none in zip(runs, nothing, strict=True)]


def _visited(check: PieceChange, runs: Sequence[RunSummary], groups: Groups) -> BootstrapBound:
    bound = change_bound(check, groups)
    for run, spreads in zip(runs, check.limits, strict=True):
        squares = run.scan.mean_squares(scale=groups.scale, total=groups.mass)
        bound.visit_summary(squares, run.draws.ranges, spreads)
    return bound
