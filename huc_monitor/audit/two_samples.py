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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from huc_monitor.audit.bounds.bootstrap import BootstrapBound
from huc_monitor.audit.comparison import Comparison, Difference
from huc_monitor.audit.decomposition import UtilityRows, join_rows, sort_rows
from huc_monitor.audit.scan import AFTER, Groups, group_rows, row_counts, scan_utility
from huc_monitor.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from huc_monitor.audit.decomposition import SortedRows
    from huc_monitor.audit.plan import AuditPlan
    from huc_monitor.audit.scan import UtilityScan
    from huc_monitor.utilities.program import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Decomposed rows, one entry per utility, with their subgroup weights."""

    rows: tuple[UtilityRows, ...]
    groups: Groups

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
        return cls(
            tuple(join_rows(parts) for parts in rows),
            Groups.joined([sample.groups for sample in samples]),
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
    groups = Groups.difference(after.groups, before.groups)
    bound = BootstrapBound(plan.n_draws, plan.seed)
    bound.start(groups.total, plan.n_candidates, plan.confidence_level, groups.n_rare)
    columns: list[Floats] = []
    for *pair, spreads in zip(after.rows, before.rows, plan.limits, strict=True):
        ordered = sort_rows(join_rows(pair), groups.scale)
        scan = scan_utility(ordered, groups)
        bound.visit(ordered, groups, spreads)
        columns.append(_columns(ordered, groups, scan))
    change, low, high, on_after, n_inside, n_after = np.concatenate(columns, axis=1)
    drawn = not screen or bool((np.abs(change) >= bound.least_radii()).any())
    radii = bound.radii() if drawn else np.full(change.size, np.nan)
    nothing = float("nan")
    return Comparison(
        kind="samples",
        n_before=before.n,
        n_after=after.n,
        confidence_level=plan.confidence_level,
        method="bootstrap" if drawn else None,
        n_draws=bound.n_draws if drawn else 0,
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


def _columns(rows: SortedRows, groups: Groups, scan: UtilityScan) -> Floats:
    """Change, interval, moment after, rows inside, and of these rows after; (6, candidates)."""
    from huc_monitor import _kernels

    n_groups, n_slots = len(groups.weights), rows.relevant.size
    after = np.zeros((n_groups, n_slots), dtype=np.int64)
    n_after = np.zeros((n_groups, n_slots))
    first = groups.sample[rows.order] == AFTER
    for c in range(n_groups):
        mine = group_rows(rows, groups, c)
        chosen = mine.positions[first[mine.positions]]
        span = scan.span[c, :n_slots]
        _kernels.span_sums(rows.labels, mine.values, chosen, rows.paths, span, after[c])
        n_after[c] = row_counts(rows, groups, chosen)(*np.searchsorted(chosen, span.T))
    unit = 1.0 / (rows.scale * groups.mass)
    found = [table[:, :n_slots].ravel() for table in (scan.moment, scan.low, scan.high)]
    inside = scan.n_inside[:, :n_slots].ravel()
    return np.stack([*found, after.ravel() * unit, inside, n_after.ravel()])
