"""The audit of a window: every candidate's largest moment, UC, HUC, and their bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from huc_monitor._common.row_order import check_row_order
from huc_monitor.audit.class_order import look_at_order
from huc_monitor.audit.clusters import Design, check_design
from huc_monitor.audit.decomposition import UtilityRows, iter_decomposed, sort_rows
from huc_monitor.audit.familiar import familiar_numbers
from huc_monitor.audit.inputs import check_labels, check_predictions, note_weights
from huc_monitor.audit.label_depth import check_method, coverage_of_rows
from huc_monitor.audit.options import DEFAULTS
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.result import AuditResult
from huc_monitor.audit.scan import Groups, UtilityScan, scan_utility, scan_with_squares
from huc_monitor.audit.truncation import Truncation
from huc_monitor.subgroups import Subgroups
from huc_monitor.subgroups._outcome import doubt_outcome
from huc_monitor.tree import LabelTree
from huc_monitor.tree.labels import LeafCodes
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats, Ints


def audit(
    probabilities: Any,
    labels: Any,
    *,
    tree: LabelTree | str | Path,
    utilities: Sequence[Utility] | Utility | None = None,
    subgroups: Subgroups | None = None,
    features: Any = None,
    weights: Any = None,
    clusters: Any = None,
    label_probability: Any = None,
    logits: bool = False,
    familiar: bool = False,
    bounds: str | None = DEFAULTS.bounds,
    confidence_level: float = DEFAULTS.confidence_level,
    n_draws: int = DEFAULTS.n_draws,
    rng: Any = DEFAULTS.rng,
) -> AuditResult:
    """Measure how far predicted utility is from realised utility, branch by branch.

    For every candidate (subgroup, utility, relevant branch) the audit finds the interval of
    predicted utility on which the branch's mean contribution is largest in
    absolute value, exactly, over all intervals. A negative moment says that predictions overstate
    utility there. HUC is the largest absolute moment; UC is the same after summing over branches,
    where errors of opposite sign cancel.

    Parameters
    ----------
    probabilities : (n, K) array in the order of ``tree.leaves``, or DataFrame with leaf columns
        A DataFrame of any library (pandas, polars, pyarrow) is matched by name; other columns are
        left alone. Rows sum to 1 within 1e-6; those of float16 and float32, within that type's
        precision times K, are divided by their sum. A row with a zero is mixed with 1e-10 of the
        uniform distribution, and the result says so (``interiorized``). Also: a list of mappings of
        leaf to probability, `TopKPredictions`, or what `read_predictions` made of a log.
    labels : (n,) names of nodes, or leaf codes
        A label that stops above the leaves, a path such as "billing/refund" and a set of labels
        are read as `LabelTree.encode` says; `Labels` bring other spellings. Branches below such a
        label do not see the row, and the result says how many rows each of them sees
        (``label_coverage``).
    tree : LabelTree, or the path of a tree file
    utilities : list of Utility, with distinct names
        Correctness at every level of the tree when left out.
    subgroups : Subgroups, optional
        The whole population when left out.
    features : DataFrame of n rows, optional
        Columns that the subgroups read.
    weights : (n,) non-negative numbers, optional
        How often each row counts: weight 2 equals repeating the row. A factor on all weights
        changes ``n``, and so the bounds, but no moment.
    clusters : (n,) values of any type, optional
        Rows of equal value may depend on each other (one user, patient, session, retried request,
        block of time); rows of different values do not. All rows independent when left out.
    label_probability : (n,) numbers above 0 and at most 1, optional
        With which probability each row was chosen to be labelled, where the choice was not the same
        for all. Rows count 1 / probability, so that moments are those of all rows, labelled or
        not. The probability may depend on the prediction, on features, even on the outcome; it must
        be known. Needs bounds="bootstrap" or None.
    logits : bool, default False
        The numbers are logits of all leaves: softmax makes probabilities of them, 0 of -inf.
    familiar : bool, default False
        Compute accuracy, log loss and the other numbers of `familiar_numbers` as well.
    bounds : {"bootstrap", "sharp", "theorem"} or None, default "bootstrap"
        How ``radius``, ``lower`` and ``upper`` are made. ``"bootstrap"`` is the narrowest, and
        approximate: its coverage was checked by simulation. ``"sharp"`` holds for any distribution
        and any n; 3 to 6 times as wide. ``"theorem"`` is Theorem 3.4; about
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

    Warns
    -----
    HUCWarning
        Where labels agree with the likeliest leaf no more often than by chance (1 / K), and
        less than a quarter as often as the predictions say: is the class order right?

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
    plan = AuditPlan.of(
        tree=tree,
        utilities=utilities,
        subgroups=subgroups,
        bounds=bounds,
        confidence_level=confidence_level,
        n_draws=n_draws,
        rng=rng,
    )
    tree = plan.tree
    design = {
        "weights": weights,
        "clusters": clusters,
        "label_probability": label_probability,
    }
    check_row_order(probabilities=probabilities, labels=labels, features=features, **design)
    predictions = check_predictions(probabilities, tree=tree, logits=logits)
    codes = check_labels(labels, predictions.n, tree=tree)
    # Labels that were chosen, by error perhaps, say nothing of accuracy.
    notes = look_at_order(predictions, codes) if label_probability is None else ()
    known = None
    if familiar:
        rows, level = (predictions, LeafCodes(codes)), confidence_level
        known = familiar_numbers(*rows, tree=tree, confidence_level=level, **design)
    labels = codes
    predictions, codes, groups = plan.weigh(predictions, codes, features=features, **design)
    notes = (*notes, *doubt_outcome(features, plan.subgroups.columns, labels, tree))
    decomposed = iter_decomposed(plan.utilities, predictions, codes, tree=tree)
    lost = Truncation.of(predictions.matrix)
    result = _audit(plan, decomposed, groups, interiorized=predictions.any_zero)
    told = result.with_truncation(lost, predictions.n, (*notes, *note_weights(weights)))
    return replace(told, familiar=known)


def audit_rows(
    rows: Sequence[UtilityRows],
    groups: Groups,
    *,
    subgroups: Subgroups,
    interiorized: bool = False,
    lost: Truncation = Truncation(),  # noqa: B008 - frozen
    **options: Any,
) -> AuditResult:
    """Audit rows that were decomposed before, as a monitor with overlapping windows does.

    ``options`` are bounds, confidence_level, n_draws and rng of `audit`.
    """
    utilities = [row.utility for row in rows]
    plan = AuditPlan.of(tree=rows[0].tree, utilities=utilities, subgroups=subgroups, **options)
    result = _audit(plan, rows, groups, interiorized=interiorized)
    return result.with_truncation(lost, rows[0].scores.size)


def _audit(
    plan: AuditPlan, decomposed: Iterable[UtilityRows], groups: Groups, *, interiorized: bool
) -> AuditResult:
    """Scan one utility at a time, so that memory holds the rows of one utility only."""
    groups = groups.simplified().sized()
    check_design(plan.method, groups.sizes(), chosen=groups.times.size > 0)
    bound = plan.bound(groups.sizes())
    scans: list[UtilityScan] = []
    coverage: Floats | None = None
    notes: tuple[str, ...] = ()
    before: tuple[Floats, Ints, Floats, Ints] | None = None
    for rows, spreads in zip(decomposed, plan.limits, strict=True):
        if not scans:
            coverage, notes = coverage_of_rows(rows, groups)
            if coverage is not None:
                check_method(plan)
        ordered = sort_rows(rows, groups.scale, before)
        before = rows.scores, ordered.order, ordered.scores, ordered.labels
        if bound.reads_squares:
            scan, squares = scan_with_squares(ordered, groups)
        else:
            scan, squares = scan_utility(ordered, groups), np.empty(0)
        scans.append(scan)
        bound.visit(ordered, groups, spreads, squares)
    radii = bound.radii()
    return plan.result(
        scans,
        radii,
        total=groups.total,
        shares=_mean_weights(groups, scans[0].size),
        interiorized=interiorized,
        weighted=groups.uneven,
        coverage=coverage,
        notes=notes,
        design=Design.of(groups.sizes(), bound.n_effective, groups.least_probability),
    )


def _mean_weights(groups: Groups, sizes: Floats) -> Floats:
    """Mean absolute weight of every subgroup; ``sizes`` count its rows of weights other than 0."""
    if not groups.repeats.size and not groups.weights.real.any():
        return sizes / groups.mass
    times = groups.repeats if groups.repeats.size else np.ones(1)
    return np.array([np.sum(np.abs(w) * times) for w in groups.weights]) / groups.mass
