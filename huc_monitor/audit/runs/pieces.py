"""An audit of rows that come in pieces: what each engine does with a piece, and with the sums.

`PieceAudit` is the whole computation but for moving rows: it checks a piece, turns it into rows
that can be brought into order of score elsewhere, summarises a run of such rows, and makes the
result from merged summaries. The engine for windows larger than memory
(`huc_monitor.sources.large`) lets DuckDB do the ordering, `huc_spark` lets Spark; both call the
same methods with the same answer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from huc_monitor._common.arrays import pack, unpack
from huc_monitor.audit.bounds.bootstrap import draw_units
from huc_monitor.audit.clusters import (
    ClusterSizes,
    Design,
    Sizes,
    check_clusters,
    check_design,
    check_label_probability,
)
from huc_monitor.audit.decomposition import SortedRows, iter_decomposed, relevant_paths
from huc_monitor.audit.inputs import Predictions, check_labels, check_predictions, check_weights
from huc_monitor.audit.label_depth import check_method, count_labels, coverage_of, notes_on
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.result import AuditResult
from huc_monitor.audit.row_weights import WeightUnit
from huc_monitor.audit.runs.draws import DrawSummary, add_multipliers
from huc_monitor.audit.runs.summaries import ScanSummary, merge_summaries, sums_within
from huc_monitor.audit.scan import Groups
from huc_monitor.audit.truncation import Truncation
from huc_monitor.subgroups import Memberships
from huc_monitor.utilities.program import Floats, Ints

_ROUNDING: Final = 1e-12  # of a weight over a probability, and of the weight over that
_Item = TypeVar("_Item", "Piece", "ScoredRows")


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Checked rows: probabilities, leaf codes, subgroup weights, repeats, and what rows are called.

    ``repeats`` and ``times`` are as in `Groups`, in the units they were given in. ``ids`` is empty
    where no bootstrap asks for them; rows of a cluster are called alike. ``samples`` is empty
    where there is one sample only, ``clusters`` where rows are independent.
    """

    predictions: Predictions
    labels: Ints
    weights: Memberships
    repeats: Floats
    ids: Ints
    samples: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    times: Floats = field(default_factory=lambda: np.empty(0))
    clusters: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def apart(self) -> Floats:
        """How often every row counts, squared, over the rows it stands for."""
        if self.times.size:
            return self.repeats**2 / self.times
        return self.repeats if self.repeats.size else np.ones(self.labels.size)

    @property
    def label_probability(self) -> Floats:
        """With which probability every row was labelled; empty where all rows are."""
        return self.times / self.repeats if self.times.size else self.times

    def roots(self, times: float) -> npt.NDArray[np.float32]:
        """Those of `Groups`, in the units that weights were given in, so many times."""
        none, repeats = Memberships.of([]), self.repeats * times
        return Groups(none, repeats, 1.0, times=self.times, clusters=self.clusters).roots

    def take(self, rows: Ints) -> Piece:
        """Return some of the rows."""
        return _taken(self, rows)


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What must be known of all rows before any is scanned; facts of pieces add up.

    ``multipliers`` has every draw's sum over the rows, ``depths`` the counts of `count_labels`.
    ``copies`` is the sum of `Piece.times`, 0
    where there are none, ``apart`` that of `Piece.apart`, and ``least`` and ``most`` are the
    smallest and the largest label probability.
    """

    n_rows: int
    total: float
    unit: WeightUnit
    any_zero: bool
    shares: Floats
    multipliers: Floats
    depths: Floats
    lost: Truncation = Truncation()  # noqa: RUF009 - frozen
    copies: float = 0.0
    apart: float = 0.0
    least: float = 1.0
    clusters: ClusterSizes = field(default_factory=ClusterSizes)
    most: float = 0.0

    def simplified(self) -> Facts:
        """Return facts of all rows without label probabilities, where these are equal.

        They change nothing then. `PieceAudit.rows` counts rows by these facts.
        """
        if not self.copies or self.most - self.least > _ROUNDING * self.most:
            return self
        return replace(
            self,
            total=self.copies,
            unit=replace(self.unit, largest=self.unit.largest * self.least),
            shares=self.shares * self.least,
            multipliers=self.multipliers * self.least,
            depths=self.depths * self.least,
            copies=0.0,
            apart=self.copies,
            clusters=self.clusters * self.least,
        )

    def __add__(self, other: Facts) -> Facts:
        """Facts of both sets of rows."""
        return Facts(
            self.n_rows + other.n_rows,
            self.total + other.total,
            self.unit.merge(other.unit),
            self.any_zero or other.any_zero,
            self.shares + other.shares,
            self.multipliers + other.multipliers,
            self.depths + other.depths,
            self.lost + other.lost,
            self.copies + other.copies,
            self.apart + other.apart,
            min(self.least, other.least),
            self.clusters + other.clusters if other.clusters.keys.size else self.clusters,
            max(self.most, other.most),
        )

    @property
    def design_alone(self) -> bool:
        """Whether rows are independent, or clusters of one row each, and all labelled."""
        single = self.clusters.keys.size == self.n_rows and self.total == self.n_rows
        return not self.copies and (single or not self.clusters.keys.size)

    def sizes(self) -> Sizes:
        """Count what a bound may count on."""
        if self.design_alone:
            return Sizes(self.total, self.total, self.mass, self.total)
        tables = [self.clusters * (1.0 / self.unit.size)] if self.clusters.keys.size else []
        return Sizes.of(self.mass, [self.mass], [self.apart / self.unit.size**2], tables)

    @property
    def scale(self) -> float:
        """Units per 1.0 of the integer sums, as for a window in memory."""
        return Groups(Memberships.of([]), np.empty(0), self.mass).scale

    @property
    def mass(self) -> float:
        """Sum of row weights in numbers of their unit, to the rounding of weights."""
        mass = self.total / self.unit.size
        return float(round(mass)) if self.unit.whole else mass


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """One utility's rows, in any order: what an engine moves about.

    ``values`` are contributions in whole numbers of 1 / scale; of several samples, as they are.
    """

    scores: Floats
    labels: Ints
    values: np.ndarray[Any, Any]
    weights: Memberships
    repeats: Floats
    ids: Ints
    samples: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    times: Floats = field(default_factory=lambda: np.empty(0))

    def take(self, rows: Ints) -> ScoredRows:
        """Return some of the rows."""
        return _taken(self, rows)


@dataclass(frozen=True, slots=True, eq=False)
class RunSummary:
    """The summary of one utility's rows between two scores, and of the draws a bound asked for."""

    scan: ScanSummary
    draws: DrawSummary

    def to_bytes(self) -> bytes:
        """Plain arrays."""
        return pack(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> RunSummary:
        """Read what `to_bytes` wrote."""
        none: Any = np.empty(0)
        empty = ScanSummary(0.0, 0.0, 0, size=none, sums=none, places=none, squares=none)
        return unpack(cls(empty, DrawSummary(none)), data)


def merge_runs(runs: Sequence[RunSummary]) -> RunSummary:
    """Merge summaries of runs that do not share scores; they may come in any order."""
    ordered = sorted(runs, key=lambda run: run.scan.first)
    draws = functools.reduce(DrawSummary.merge, (run.draws for run in ordered))
    return RunSummary(merge_summaries([run.scan for run in ordered]), draws)


@dataclass(frozen=True, eq=False)
class PiecePlan(AuditPlan):
    """An audit's arguments, and what is done with rows that come in pieces, whoever asks."""

    @cached_property
    def real(self) -> tuple[bool, ...]:
        """Which subgroups have weights other than 0 and 1."""
        entries = self.subgroups.to_dict()["subgroups"]
        return (False, *("weight" in entry["rule"] for entry in entries))

    def check(
        self,
        probabilities: Any,
        labels: Any,
        features: Any = None,
        weights: Any = None,
        ids: Any = None,
        samples: Any = (),
        clusters: Any = None,
        label_probability: Any = None,
    ) -> Piece:
        """Check rows as `audit` checks a window; those of weight zero are left out."""
        predictions = check_predictions(probabilities, tree=self.tree)
        n = predictions.n
        codes = check_labels(labels, n, tree=self.tree)
        repeats, times = _row_weights(weights, n), np.empty(0)
        probability = check_label_probability(label_probability, n)
        if probability is not None:
            times = repeats if repeats.size else np.ones(n)
            repeats = times / probability
        keys, none = check_clusters(clusters, n), np.empty(0, dtype=np.int64)
        called = np.asarray(ids if keys is None else keys, dtype=np.int64) if self.n_draws else none
        among = np.asarray(samples, dtype=np.int64)
        groups = self.subgroups.memberships(features, n)
        more = (repeats, called, among, times, none if keys is None else keys)
        piece = Piece(predictions, codes, groups, *more)
        if repeats.size and not repeats.all():
            piece = piece.take(np.flatnonzero(repeats))
        return piece

    def _ordered(self, utility: int, rows: ScoredRows, values: Ints, scale: float) -> SortedRows:
        """Call rows by their place among those at hand."""
        relevant, paths = relevant_paths(self.tree, self.utilities[utility])
        order = np.arange(rows.scores.size)
        mine = (order, rows.scores, values, rows.labels)
        return SortedRows(self.utilities[utility], relevant, *mine, paths, scale)

    def _summary(
        self, utility: int, rows: SortedRows, groups: Groups, ids: Ints, means: Floats
    ) -> RunSummary:
        units = draw_units(self.limits[utility], groups.sizes().square)
        drawn = means.astype(np.float32)
        draws = DrawSummary.of(rows, groups, ids, units, seed=self.seed, means=drawn)
        return RunSummary(ScanSummary.of(rows, groups), draws)


@dataclass(frozen=True, eq=False)
class PieceAudit(PiecePlan):
    """Every step of an audit on rows that come in pieces."""

    # One piece.

    def facts(self, piece: Piece) -> Facts:
        """Count what the scan must know in advance."""
        n = piece.labels.size
        times = piece.repeats if piece.repeats.size else np.ones(n)
        chance = piece.label_probability
        least = float(chance.min(initial=1.0))
        # Equal probabilities then leave no rounding to single precision in the multipliers.
        multipliers = add_multipliers(self.seed, self.n_draws, piece.ids, piece.roots(least))
        return Facts(
            n,
            float(times.sum()) if piece.repeats.size else float(n),
            WeightUnit.of(piece.repeats) if piece.repeats.size else WeightUnit(1.0),
            piece.predictions.any_zero,
            np.array([float(np.sum(np.abs(w) * times)) for w in piece.weights]),
            multipliers / least,
            count_labels(self.tree, piece.labels, piece.weights, piece.repeats),
            Truncation.of(piece.predictions.matrix),
            float(piece.times.sum()),
            float(piece.apart.sum()),
            least,
            ClusterSizes.of(piece.clusters, piece.repeats),
            float(chance.max(initial=0.0)),
        )

    @property
    def no_facts(self) -> Facts:
        """Facts of no rows."""
        none = add_multipliers(0, self.n_draws, np.empty(0, dtype=np.int64), np.empty(0, "f4"))
        shares = np.zeros(len(self.subgroups))
        depths = np.zeros((shares.size, 2, self.tree.arrays.n_branches))
        unit = WeightUnit()
        return Facts(0, 0.0, unit, any_zero=False, shares=shares, multipliers=none, depths=depths)

    def rows(self, piece: Piece, facts: Facts) -> Iterator[ScoredRows]:
        """Yield every utility's scores and contributions of a piece."""
        given = piece.repeats
        if piece.times.size and not facts.copies:  # see `Facts.simplified`
            given = given * facts.least
        repeats = facts.unit.count(given)
        for rows in iter_decomposed(
            self.utilities, piece.predictions, piece.labels, tree=self.tree
        ):
            values = np.rint(rows.contributions * facts.scale).astype(np.int64)
            more = (piece.weights, repeats, piece.ids, piece.samples, piece.times)
            yield ScoredRows(rows.scores, piece.labels, values, *more)

    # All rows between two scores.

    def sorted(
        self, utility: int, rows: ScoredRows, facts: Facts
    ) -> tuple[SortedRows, Groups, Ints]:
        """Bring rows into order of score."""
        from huc_monitor._kernels import sort_order

        mine = rows.take(sort_order(rows.scores))
        ordered = self._ordered(utility, mine, mine.values, facts.scale)
        clusters = mine.ids if facts.clusters.keys.size else np.empty(0, dtype=np.int64)
        groups = Groups(
            mine.weights,
            mine.repeats,
            facts.mass,
            times=mine.times if facts.copies else np.empty(0),
            clusters=clusters,
            known=facts.sizes(),
        )
        return ordered, groups, mine.ids

    def summarise(self, utility: int, rows: ScoredRows, facts: Facts) -> RunSummary:
        """Summarise all rows between two scores."""
        ordered, groups, ids = self.sorted(utility, rows, facts)
        unit = math.sqrt(facts.unit.size) if facts.design_alone else facts.unit.size
        means = facts.multipliers / unit / facts.mass
        return self._summary(utility, ordered, groups, ids, means[None])

    def within(self, utility: int, rows: ScoredRows, facts: Facts, shown: Floats) -> Ints:
        """Add up all branches on the intervals that a merged summary shows; in any order."""
        plain = self._ordered(utility, rows, rows.values, facts.scale)
        return sums_within(plain, Groups.counted(rows.weights, rows.repeats), shown)

    # Everything.

    def merged_result(
        self, facts: Facts, merged: Sequence[RunSummary], within: Sequence[Ints]
    ) -> AuditResult:
        """Make the result from one merged summary per utility."""
        # The first subgroup is everyone: its size is the sum of all weights as they were counted.
        mass = facts.mass if facts.copies else float(merged[0].scan.size[0])
        sizes = {"scale": facts.scale, "total": mass}
        unit = 1.0 if facts.copies else facts.total / mass
        scans = [
            run.scan.scan(sums, **sizes, unit=unit)
            for run, sums in zip(merged, within, strict=True)
        ]
        coverage = coverage_of(self.tree, facts.depths)
        if coverage is not None:
            check_method(self)
        known, chosen = facts.sizes(), facts.copies > 0
        check_design(self.method, known, chosen=chosen)
        bound = self.bound(known)
        for run, spreads in zip(merged, self.limits, strict=True):
            bound.visit_summary(run.scan.mean_squares(**sizes), run.draws.ranges, spreads)
        radii = bound.radii()
        result = self.result(
            scans,
            radii,
            total=facts.copies or facts.total,
            shares=facts.shares / facts.total,
            interiorized=facts.any_zero,
            weighted=facts.unit.whole != 1,
            coverage=coverage,
            notes=notes_on(self.tree, facts.depths),
            design=Design.of(known, bound.n_effective, facts.least if chosen else None),
        )
        return result.with_truncation(facts.lost, facts.n_rows)


def _taken(item: _Item, rows: Ints) -> _Item:
    """Take rows of every field; one that may be left out is empty then."""
    some: dict[str, Any] = {}
    for name in (one.name for one in fields(item)):
        found = getattr(item, name)
        if isinstance(found, Predictions | Memberships):
            some[name] = found.take(rows)
        else:
            some[name] = np.ascontiguousarray(found[rows]) if len(found) else found
    return replace(item, **some)


def _row_weights(weights: Any, n: int) -> Floats:
    """Row weights of a piece, in which all may be zero."""
    if weights is None:
        return np.empty(0)
    array = np.asarray(weights)
    if array.dtype.kind in "fiu" and array.shape == (n,) and not np.any(array):
        return np.zeros(n)
    found = check_weights(weights, n)
    return np.empty(0) if found is None else found
