"""Compare two samples, two predictors on the same rows, or two audits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from huc_monitor._common.row_order import check_row_order
from huc_monitor.audit.comparison import Comparison, Difference
from huc_monitor.audit.decomposition import iter_decomposed
from huc_monitor.audit.inputs import Predictions, check_labels, check_predictions
from huc_monitor.audit.options import DEFAULTS
from huc_monitor.audit.paired import compare_predictors
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.result import AuditResult
from huc_monitor.audit.two_samples import Sample, compare_samples
from huc_monitor.errors import InvalidInputError
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Ints


def compare(
    before: Any,
    after: Any,
    *,
    tree: LabelTree | str | Path | None = None,
    utilities: Sequence[Utility] | Utility | None = None,
    subgroups: Subgroups | None = None,
    features: Any = None,
    weights: Any = None,
    clusters: Any = None,
    label_probability: Any = None,
    paired: bool = False,
    confidence_level: float = DEFAULTS.confidence_level,
    n_draws: int = DEFAULTS.n_draws,
    rng: Any = DEFAULTS.rng,
) -> Comparison:
    """Measure what changed from before to after, branch by branch, with simultaneous bounds.

    Three things can be compared.

    Two samples
        ``compare((p_old, y_old), (p_new, y_new), ...)``: two windows, or a window and a reference.
        A candidate's difference is its moment after minus before, on the interval of predicted
        utility on which the two lie furthest apart.
    Two predictors on the same rows
        ``compare((p, y), (q, y), paired=True, ...)``: two model versions, or before and after a
        recalibration. The difference is that of absolute moments, and of HUC; negative is better.
        Both see the same rows, so most noise cancels.
    Two audits
        ``compare(result, other)``, which keep no rows. The difference is that of absolute moments,
        and both radii are added: wider than the other two, and at confidence level
        1 - (1 - level of one) - (1 - level of the other). Both must be of the same tree; that
        utilities of one name are alike is checked unless a result was read back, which has names
        only.

    Parameters
    ----------
    before, after : (probabilities, labels) or AuditResult
        As `audit` takes them; each side may have its own number of rows unless ``paired``.
    tree, utilities, subgroups
        As in `audit`; this and what follows up to ``paired`` must be left out for two audits.
    features : (before, after), each as in `audit`; one of them if ``paired``
    weights, clusters, label_probability : (before, after), each as in `audit`; one if ``paired``
        A cluster with rows in both samples, such as a user, is one cluster.
    paired : bool, default False
        Both sides are the same rows, in the same order, with the same labels.
    confidence_level : float, default 0.95
        Probability that all bounds hold at once. Approximate, checked by simulation.
    n_draws, rng
        As in `audit`.

    Returns
    -------
    Comparison

    Notes
    -----
    Rows, or clusters of them, are taken as independent, within a sample and between the two. A
    small difference is not a small error: two samples may be equally wrong.

    Examples
    --------
    The split between "a" and "b" turns from even to four to one; predictions stay even.

    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
    >>> even = [[0.25] * 4] * 400
    >>> what = {"tree": tree, "utilities": hm.Payoff("pay", {"a": 1, "c": 1})}
    >>> hm.compare((even, list("abcd") * 100), (even, list("aaaabcdcdc") * 40), **what)
    Comparison(samples, n=400 and 400, most at 'left' +0.15, 1 of 3 candidates sure)
    """
    given = {
        "features": features,
        "weights": weights,
        "clusters": clusters,
        "label_probability": label_probability,
    }
    if isinstance(before, AuditResult) or isinstance(after, AuditResult):
        asked = {"tree": tree, "utilities": utilities, "subgroups": subgroups, **given}
        asked["paired"] = paired or None
        return _compare_audits(before, after, [name for name in asked if asked[name] is not None])
    if tree is None:
        msg = "`tree` must be given unless both sides are audits."
        raise InvalidInputError(msg)
    plan = AuditPlan.of(
        tree=tree,
        utilities=utilities,
        subgroups=subgroups,
        confidence_level=confidence_level,
        n_draws=n_draws,
        rng=rng,
    )
    designs = [
        {name: value if paired else _side_of(name, value, k) for name, value in given.items()}
        for k in range(2)
    ]
    sides = [
        _check_side(*side, plan.tree, design)
        for side, design in zip((("before", before), ("after", after)), designs, strict=True)
    ]
    if paired:
        _check_same_rows(sides)
    old, new = (
        make_sample(*rows, plan, **design) for rows, design in zip(sides, designs, strict=True)
    )
    return compare_predictors(old, new, plan) if paired else compare_samples(old, new, plan)


def make_sample(predictions: Predictions, codes: Ints, plan: AuditPlan, **given: Any) -> Sample:
    """Decompose checked rows, ready to be compared by this plan; see `AuditPlan.weigh`."""
    predictions, codes, groups = plan.weigh(predictions, codes, **given)
    rows = iter_decomposed(plan.utilities, predictions, codes, tree=plan.tree)
    return Sample(tuple(rows), groups)


def _check_side(
    name: str, side: Any, tree: LabelTree, design: dict[str, Any]
) -> tuple[Predictions, Any]:
    if not isinstance(side, tuple) or len(side) != 2:
        msg = (
            f"`{name}` must be a pair (probabilities, labels) or an AuditResult; "
            f"got {type(side).__name__}."
        )
        raise InvalidInputError(msg)
    check_row_order(probabilities=side[0], labels=side[1], **design)
    predictions = check_predictions(side[0], tree=tree, argument=name)
    return predictions, check_labels(side[1], predictions.n, tree=tree)


def _check_same_rows(sides: list[tuple[Predictions, Any]]) -> None:
    (_, old), (_, new) = sides
    if old.size != new.size:
        msg = (
            f"`before` and `after` must be the same rows if paired; got {old.size} and {new.size}. "
            "Leave `paired` out to compare two samples."
        )
        raise InvalidInputError(msg)
    other = np.flatnonzero(old != new)
    if other.size:
        msg = (
            "`before` and `after` must have the same labels in the same order if paired; they "
            f"differ in {other.size} rows, first in row {other[0]}."
        )
        raise InvalidInputError(msg)


def _side_of(name: str, value: Any, k: int) -> Any:
    if value is None:
        return None
    if not isinstance(value, tuple) or len(value) != 2:
        msg = (
            f"`{name}` must be a pair (before, after) for two samples; got "
            f"{type(value).__name__}. Pass paired=True if both sides are the same rows."
        )
        raise InvalidInputError(msg)
    return value[k]


def _check_same_audit(before: AuditResult, after: AuditResult) -> None:
    """Refuse audits whose candidates are not the same thing twice."""
    if before.fingerprint != after.fingerprint:
        msg = (
            "`before` and `after` must be audits of the same tree; got the fingerprints "
            f"{before.fingerprint} and {after.fingerprint}. Audit both with one tree."
        )
        raise InvalidInputError(msg)
    old, new = (
        list(zip(t.utility, t.subgroup, t.node, strict=True))
        for t in (before.candidates, after.candidates)
    )
    if old != new:
        msg = (
            "`before` and `after` must have the same candidates (utilities, subgroups and "
            "branches, in order). Audit both with the same settings."
        )
        raise InvalidInputError(msg)
    if before.plan is None or after.plan is None:
        return
    for one, other in zip(before.utilities, after.utilities, strict=False):
        if one.name == other.name and one.to_dict() != other.to_dict():
            msg = (
                f"`before` and `after` must have the same utilities; {one.name!r} is {one!r} in "
                f"one and {other!r} in the other. Audit both with one of them."
            )
            raise InvalidInputError(msg)


def _compare_audits(before: Any, after: Any, given: Sequence[str]) -> Comparison:
    """Difference of absolute moments of two audits; both radii are added."""
    sides = {"before": before, "after": after}
    for name, side in sides.items():
        if not isinstance(side, AuditResult):
            msg = f"`{name}` must be an AuditResult as the other side is; got {type(side)}."
            raise InvalidInputError(msg)
    if given:
        msg = (
            f"`{given[0]}` must be left out for two audits, which were made with theirs. Pass "
            "(probabilities, labels) on both sides to compare rows."
        )
        raise InvalidInputError(msg)
    _check_same_audit(before, after)
    tables = [side.candidates for side in (before, after)]
    old, new = (np.abs(table.moment) for table in tables)
    radii = tables[0].radius + tables[1].radius
    huc = (
        after.huc - before.huc,
        after.huc_lower - before.huc_upper,
        after.huc_upper - before.huc_lower,
    )
    return Comparison.of_sizes(
        old,
        new,
        radii,
        radii,
        kind="audits",
        n_before=before.n,
        n_after=after.n,
        confidence_level=max(0.0, before.confidence_level + after.confidence_level - 1.0),
        method=None if None in (before.method, after.method) else "radii",
        n_draws=0,
        names=tuple(zip(tables[1].utility, tables[1].subgroup, tables[1].node, strict=True)),
        huc=Difference("", "", "", before.huc, after.huc, *huc),
    )
