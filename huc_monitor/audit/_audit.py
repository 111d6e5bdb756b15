"""The audit of a window: every candidate's largest moment, UC, HUC, and their bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from huc_monitor.audit.bounds.closed_forms import make_bound
from huc_monitor.audit.decomposition import UtilityRows, iter_decomposed, sort_rows
from huc_monitor.audit.inputs import (
    check_confidence_level,
    check_labels,
    check_predictions,
    check_utilities,
    check_weights,
)
from huc_monitor.audit.result import AuditResult, MomentTable
from huc_monitor.audit.scan import Groups, scan_utility
from huc_monitor.errors import InvalidInputError
from huc_monitor.subgroups import Subgroups

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from huc_monitor.audit.bounds.bound import Bound
    from huc_monitor.audit.scan import UtilityScan
    from huc_monitor.tree import LabelTree
    from huc_monitor.utilities import Utility

__all__ = ["AuditResult", "audit", "audit_rows"]


def audit(
    probabilities: Any,
    labels: Any,
    *,
    tree: LabelTree,
    utilities: Sequence[Utility] | Utility,
    subgroups: Subgroups | None = None,
    features: Any = None,
    weights: Any = None,
    bounds: str | None = "bootstrap",
    confidence_level: float = 0.95,
    n_draws: int = 1000,
    rng: Any = 0,
) -> AuditResult:
    """Measure how far predicted utility is from realised utility, branch by branch.

    For every candidate (subgroup, utility, relevant branch) the audit finds the interval of
    predicted utility on which the branch's mean contribution (eq:gamma-note) is largest in
    absolute value, exactly, over all intervals. A negative moment says that predictions overstate
    utility there. HUC is the largest absolute moment; UC is the same after summing over branches,
    where errors of opposite sign cancel.

    Parameters
    ----------
    probabilities : (n, K) array in the order of ``tree.leaves``, or DataFrame with leaf columns
        Rows sum to 1 within 1e-6. Where any probability is zero, all rows are mixed with 1e-10 of
        the uniform distribution, and the result says so (``interiorized``).
    labels : (n,) leaf names or codes
    tree : LabelTree
    utilities : list of Utility, with distinct names
    subgroups : Subgroups, optional
        The whole population when left out.
    features : DataFrame of n rows, optional
        Columns that the subgroups read.
    weights : (n,) non-negative numbers, optional
        How often each row counts: weight 2 equals repeating the row.
    bounds : {"bootstrap", "sharp", "theorem"} or None, default "bootstrap"
        How ``radius``, ``lower`` and ``upper`` are made. ``"bootstrap"`` is the narrowest, and
        approximate: its coverage was checked by simulation. ``"sharp"`` holds for any distribution
        and any n; 3 to 6 times as wide. ``"theorem"`` is Theorem thm:finite-sample-main; about
        0.5 at 2,000 rows. None makes no bounds: they are NaN.
    confidence_level : float, default 0.95
        Probability that all bounds hold at once.
    n_draws : int, default 1000
        Bootstrap draws; other bounds ignore it.
    rng : int or numpy Generator, default 0
        Seed of the bootstrap. The same seed gives the same result, whatever the number of threads.

    Returns
    -------
    AuditResult

    Notes
    -----
    Small HUC bounds the error of predicted utility at every level of the tree; it does not say
    that decisions are good, nor that other utilities are well predicted.

    Examples
    --------
    Errors in two branches cancel: the aggregate is perfect, the branches are not.

    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
    >>> pay = hm.Payoff("pay", {"a": -1, "b": 1, "c": 1, "d": 1})
    >>> result = hm.audit([[0.25] * 4] * 8, list("aacccddd"), tree=tree, utilities=[pay])
    >>> result.uc, result.huc
    (0.0, 0.25)
    """
    if tree.arrays.n_branches == 0:
        msg = (
            "`tree` must have a node with at least two children; a single class leaves nothing "
            "to audit."
        )
        raise InvalidInputError(msg)
    chosen = check_utilities(utilities)
    level = check_confidence_level(confidence_level)
    bound = make_bound(bounds, n_draws=n_draws, rng=rng)
    predictions = check_predictions(probabilities, tree=tree)
    codes = check_labels(labels, predictions.n, tree=tree)
    repeats = check_weights(weights, predictions.n)
    groups_of = Subgroups.whole() if subgroups is None else subgroups
    groups = Groups.of(groups_of.weights(features, predictions.n), repeats)
    if repeats is not None and not repeats.all():
        # A row that never counts must not lend its score to an interval's end either.
        kept = np.flatnonzero(repeats)
        predictions, codes, groups = predictions.take(kept), codes[kept], groups.take(kept)
    decomposed = iter_decomposed(chosen, predictions, codes, tree=tree)
    return _audit(
        decomposed,
        groups,
        tree=tree,
        utilities=chosen,
        subgroups=groups_of,
        bound=bound,
        method=bounds,
        confidence_level=level,
        interiorized=predictions.mix > 0,
    )


def audit_rows(
    rows: Sequence[UtilityRows],
    groups: Groups,
    *,
    subgroups: Subgroups,
    bounds: str | None = "bootstrap",
    confidence_level: float = 0.95,
    n_draws: int = 1000,
    rng: Any = 0,
    interiorized: bool = False,
) -> AuditResult:
    """Audit rows that were decomposed before, as a monitor with overlapping windows does."""
    return _audit(
        rows,
        groups,
        tree=rows[0].tree,
        utilities=tuple(row.utility for row in rows),
        subgroups=subgroups,
        bound=make_bound(bounds, n_draws=n_draws, rng=rng),
        method=bounds,
        confidence_level=check_confidence_level(confidence_level),
        interiorized=interiorized,
    )


def _audit(
    decomposed: Iterable[UtilityRows],
    groups: Groups,
    *,
    tree: LabelTree,
    utilities: tuple[Utility, ...],
    subgroups: Subgroups,
    bound: Bound,
    method: str | None,
    confidence_level: float,
    interiorized: bool,
) -> AuditResult:
    """Scan one utility at a time, so that memory holds the rows of one utility only."""
    scans: list[UtilityScan] = []
    limits = [spreads[spreads > 0] for spreads in (u.spreads(tree) for u in utilities)]
    n_candidates = len(groups.weights) * sum(spreads.size for spreads in limits)
    bound.start(groups.total, n_candidates, confidence_level)
    relevant = []
    for rows, spreads in zip(decomposed, limits, strict=True):
        ordered = sort_rows(rows, groups.scale)
        scan = scan_utility(ordered, groups)
        bound.visit(ordered, groups, spreads)
        scans.append(scan)
        relevant.append(rows.relevant)
    share = np.array([_mean_weight(weights, groups) for weights in groups.weights])
    return AuditResult(
        n=groups.total,
        tree=tree,
        utilities=utilities,
        subgroups=subgroups,
        candidates=MomentTable.of_branches(scans, relevant),
        totals=MomentTable.of_totals(scans),
        radii=bound.radii(),
        subgroup_share=share,
        subgroup_size=scans[0].size,
        method=method,
        confidence_level=confidence_level,
        n_draws=bound.n_draws,
        interiorized=interiorized,
    )


def _mean_weight(weights: np.ndarray[Any, Any], groups: Groups) -> float:
    times = groups.repeats if groups.repeats.size else np.ones(1)
    return float(np.sum(np.abs(weights) * times) / groups.total)
