r"""What changed between two samples of rows: simultaneous bounds on every candidate's change.

With the rows of one sample weighted 1/a and those of the other -1/b, an interval's sum is the
difference D(I) of the two samples' moments, and the exact scan of the merged rows finds the
interval on which it is largest. Comparing each sample's own largest moment would be wrong: a model
too low on one range and too high on another has two intervals of nearly equal size, and chance
picks one of them.

The bounds
----------
Given the rows, one draw of the multiplier bootstrap gives every row a normal multiplier g_i,
centred within its sample, and computes for candidate j with contributions A_i

    T_j = sup over I of | sum over sample s of +-(1/n_s) sum_i (g_i - mean_s g) A_i 1{s_i in I} |.

Its law imitates that of sup_I |D(I) - true D(I)|: both samples' noise is in it, added as variances.
It is divided by scale_j, with

    scale_j^2 = sum over s of (mean_s A^2 + b_j^2 log(N / d) / n_s) / n_s,

the sum of what an audit of each sample alone divides by, floors included; the radius is q scale_j
with q the quantile of the largest T_j / scale_j, and at least sqrt(log(N / d)). An outcome that one
sample has not seen has, with probability 1 - d/N, probability at most log(N / d) / n_s in it, which
moves the difference by less than that floor. Where an audit of either sample has the same q, the
radius is sqrt(r_after^2 + r_before^2).

The bound holds for every interval at once, so also on the one that was found: the change there has
sign and size, moment +- radius; and the largest absolute change over all intervals is within the
radius of the largest one seen.

It takes rows as independent within and between the samples, and utilities, subgroups and model as
chosen without looking at them. The model may differ between the samples: each row has its score.
Labels that stop above the leaves count as in `label_depth`, with the coverage of each sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from huc_monitor.audit.bounds.bootstrap import BootstrapBound
from huc_monitor.audit.comparison import Comparison, Difference
from huc_monitor.audit.decomposition import SortedRows, UtilityRows, join_rows, sort_rows
from huc_monitor.audit.label_depth import whole_rows
from huc_monitor.audit.packs import Pack, each_pack
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.scan import (
    AFTER,
    BEFORE,
    Groups,
    UtilityScan,
    scan_with_squares,
)
from huc_monitor.errors import InvalidInputError
from huc_monitor.utilities.program import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Decomposed rows, one entry per utility, with their subgroup weights.

    ``unforeseen`` counts labels where the model put almost no mass, as
    `huc_monitor.audit.unforeseen` does; empty where they were not counted. ``likeliest`` are the
    predicted leaves of the rows; empty where they were not kept.
    """

    rows: tuple[UtilityRows, ...]
    groups: Groups
    unforeseen: Floats = field(default_factory=lambda: np.empty(0))
    likeliest: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def n(self) -> float:
        """Rows, counted with their weights."""
        return self.groups.total

    @classmethod
    def join(cls, samples: Sequence[Sample]) -> Sample:
        """All rows of several samples of the same utilities and subgroups, as one."""
        if len(samples) == 1:
            return samples[0]
        rows = zip(*(sample.rows for sample in samples), strict=True)
        counts = [sample.unforeseen for sample in samples]
        leaves = [sample.likeliest for sample in samples]
        return cls(
            tuple(join_rows(parts) for parts in rows),
            Groups.joined([sample.groups for sample in samples]),
            sum(counts[1:], counts[0]) if all(one.size for one in counts) else np.empty(0),
            np.concatenate(leaves) if all(one.size for one in leaves) else leaves[0][:0],
        )


def compare_samples(
    before: Sample, after: Sample, plan: AuditPlan, *, screen: bool = False
) -> Comparison:
    """Bound the change of every candidate's moment from one sample to another.

    Parameters
    ----------
    before, after : Sample
        Decomposed and weighed by the tree, utilities and subgroups of the plan.
    plan : AuditPlan
        Of method "bootstrap".
    screen : bool, default False
        Make no draws, and no bounds, when no change is large enough for any draws to make it sure.

    Returns
    -------
    Comparison
        Of kind "samples".
    """
    check_sides(before, after, plan)
    groups = Groups.difference(after.groups, before.groups).sized()
    scans, after_sums, sorted_rows = [], [], []
    (old, wider), (new, also) = (whole_rows(side.rows, side.groups) for side in (before, after))
    limits = [
        spreads * np.maximum(*factors)
        for spreads, *factors in zip(plan.limits, wider, also, strict=True)
    ]
    least = change_bound(plan, groups)
    for *pair, spreads in zip(old, new, limits, strict=True):
        ordered = sort_rows(join_rows(pair), groups.scale)
        scan, sums, squares = _scan(ordered, groups)
        least.visit_summary(squares, np.empty(0, np.int64), spreads)
        scans.append(scan)
        after_sums.append(sums)
        sorted_rows.append((ordered, spreads, squares))
    radii = None
    if not screen or may_be_sure(scans, least):
        bound = change_bound(plan, groups)
        for ordered, spreads, squares in sorted_rows:
            bound.visit(ordered, groups, spreads, squares)
        radii = bound.radii()
    return make_comparison(plan, groups, scans, after_sums, radii, groups.totals)


def _scan(rows: SortedRows, groups: Groups) -> tuple[UtilityScan, AfterSums, Floats]:
    """Scan rows; add up those after on what was found, and the squares of all, in one go."""
    found = AfterSums.start(rows, groups)
    scan, squares = scan_with_squares(
        rows, groups, lambda pack, spans: found.add(rows, groups, pack, spans)
    )
    return scan, found, squares


@dataclass(frozen=True, slots=True, eq=False)
class AfterSums:
    """What the rows after have on every candidate's interval: sums and counts of shape (C, S)."""

    sums: Ints
    counts: Floats

    @classmethod
    def start(cls, rows: SortedRows, groups: Groups) -> AfterSums:
        """Return empty sums."""
        shape = (len(groups.weights), rows.relevant.size)
        return cls(np.zeros(shape, dtype=np.int64), np.zeros(shape))

    @classmethod
    def of(cls, rows: SortedRows, groups: Groups, span: Ints) -> AfterSums:
        """Add up sorted rows between the places of ``span``, of shape (C, S, 2)."""
        found = cls.start(rows, groups)
        each_pack(rows, groups, lambda pack: found.add(rows, groups, pack, span[pack.groups]))
        return found

    def add(self, rows: SortedRows, groups: Groups, pack: Pack, spans: Ints) -> None:
        """Add up a pack's rows between the places of ``spans``, of shape (G, S, 2)."""
        from huc_monitor import _kernels

        is_after = groups.sample[rows.order] == AFTER
        for k, (c, span) in enumerate(zip(pack.groups, spans, strict=True)):
            chosen = pack.positions(k)
            chosen = chosen[is_after[chosen]]
            own = span[: rows.relevant.size]
            _kernels.span_sums(rows.labels, pack.values, chosen, rows.paths, own, self.sums[c])
            first, last = np.searchsorted(chosen, own.T)
            if groups.counts.size:
                counts = groups.counts[rows.order[chosen]]
                before = np.append(0.0, np.cumsum(counts)) * groups.count_unit
                first, last = before[first], before[last]
            self.counts[c] = last - first

    def __add__(self, other: AfterSums) -> AfterSums:
        """Add up both sets of rows."""
        return AfterSums(self.sums + other.sums, self.counts + other.counts)


def change_bound(plan: AuditPlan, groups: Groups) -> BootstrapBound:
    """Start the bound on the change between two samples."""
    bound = BootstrapBound(plan.n_draws, plan.seed)
    bound.start(groups.sizes(), plan.n_candidates, plan.confidence_level)
    return bound


def may_be_sure(scans: Sequence[UtilityScan], bound: BootstrapBound) -> bool:
    """Whether any change is large enough for draws to make it sure."""
    changes = np.concatenate([scan.moment[:, :-1].ravel() for scan in scans])
    return bool((np.abs(changes) >= bound.least_radii()).any())


def make_comparison(
    plan: AuditPlan,
    groups: Groups,
    scans: Sequence[UtilityScan],
    after: Sequence[AfterSums],
    radii: Floats | None,
    sizes: Sequence[float],
) -> Comparison:
    """Put together what was found; without radii there are no bounds. ``sizes`` count rows."""
    found = [[scan.moment, scan.low, scan.high, scan.n_inside] for scan in scans]
    each = [
        np.concatenate([table[:, :-1].ravel() for table in one]) for one in zip(*found, strict=True)
    ]
    change, low, high, n_inside = each
    unit = 1.0 / (groups.scale * groups.mass)
    on_after = np.concatenate([item.sums.ravel() * unit for item in after])
    n_after = np.concatenate([item.counts.ravel() for item in after])
    drawn = radii is not None
    radii = np.full(change.size, np.nan) if radii is None else radii
    nothing = float("nan")
    return Comparison(
        kind="samples",
        n_before=sizes[BEFORE],
        n_after=sizes[AFTER],
        confidence_level=plan.confidence_level,
        method="bootstrap" if drawn else None,
        n_draws=plan.n_draws if drawn else 0,
        names=plan.names,
        before=on_after - change,
        after=on_after,
        difference=change,
        lower=change - radii,
        upper=change + radii,
        interval_low=low,
        interval_high=high,
        n_in_before=n_inside - n_after,
        n_in_after=n_after,
        huc=Difference("", "", "", *[nothing] * 5),
    )


def check_sides(before: Sample, after: Sample, plan: AuditPlan) -> None:
    """Refuse samples that were not decomposed and weighed as the plan says."""
    for name, side in (("before", before), ("after", after)):
        utilities = tuple(row.utility for row in side.rows)
        if utilities != plan.utilities or any(row.tree != plan.tree for row in side.rows):
            names = ", ".join(utility.name for utility in plan.utilities)
            msg = f"`{name}` must be decomposed by this tree and the utilities {names}, in order."
            raise InvalidInputError(msg)
        if len(side.groups.weights) != len(plan.subgroups):
            counts = f"{len(plan.subgroups)}; got {len(side.groups.weights)}"
            msg = f"`{name}` must be weighed by all subgroups, which are {counts}."
            raise InvalidInputError(msg)
