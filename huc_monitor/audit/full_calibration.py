"""Could a fully calibrated model have looked like this? An exact test by redrawing labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from huc_monitor._common.threads import run_tasks
from huc_monitor.audit.decomposition import iter_decomposed, sort_rows
from huc_monitor.audit.inputs import (
    Predictions,
    check_labels,
    check_predictions,
    check_subgroups,
    check_tree,
    check_utilities,
    check_weights,
)
from huc_monitor.audit.options import AuditOptions
from huc_monitor.audit.scan import Groups, scan_utility
from huc_monitor.errors import InvalidInputError
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats, Ints

if TYPE_CHECKING:
    from huc_monitor.audit.result import AuditResult

# Equal statistics may differ in the last digits when they were computed in different ways; counting
# them as ties keeps the p-value valid.
_TIE = 1.0 - 1e-12


def calibration_p_value(
    probabilities: Any,
    labels: Any,
    *,
    tree: LabelTree | str | Path,
    utilities: Sequence[Utility] | Utility,
    subgroups: Subgroups | None = None,
    features: Any = None,
    weights: Any = None,
    n_draws: int = 199,
    rng: Any = 0,
) -> float:
    """Probability that a fully calibrated model shows a HUC at least as large as this window's.

    The null hypothesis is full calibration given the features: each label drawn from the row's own
    predicted probabilities, independently. Labels are redrawn so ``n_draws`` times, and the p-value
    is (1 + draws with at least this HUC) / (1 + ``n_draws``). Under the null it is at most alpha
    with probability at most alpha, for every n and every number of draws: the test is exact.

    It is a test of calibration, not of tolerance: with enough rows any model fails it, for errors
    too small to matter. Use the bounds of the audit to decide whether an error matters.

    Parameters
    ----------
    probabilities, labels, tree, utilities, subgroups, features, weights
        As in `audit`. Weights must not depend on the labels: 1 / pi is one where labels were
        chosen with a probability pi that the prediction and features decide. Each row has one
        label, whatever its weight; hand in rows that were counted together one by one.
    n_draws : int, default 199
        Each draw costs a plain audit. The smallest possible p-value is 1 / (1 + n_draws).
    rng : int or numpy Generator, default 0

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["no", "yes"])
    >>> pay = hm.Payoff("pay", {"no": 0, "yes": 1})
    >>> calibration_p_value(
    ...     [[0.9, 0.1]] * 40, ["yes"] * 12 + ["no"] * 28, tree=tree, utilities=pay
    ... )
    0.005
    """
    tree = check_tree(tree)
    chosen = check_utilities(utilities)
    predictions = check_predictions(probabilities, tree=tree)
    # Where a label would have stopped, had it come out otherwise, is not known.
    codes = check_labels(labels, predictions.n, tree=tree, any_depth=False)
    groups = check_groups(subgroups, features, weights, predictions.n)
    seen = _huc(predictions, codes, groups, tree, chosen)
    return p_value_of(
        seen, predictions, groups, tree=tree, utilities=chosen, n_draws=n_draws, rng=rng
    )


def check_groups(subgroups: Subgroups | None, features: Any, weights: Any, n: int) -> Groups:
    """Subgroup weights and row weights of n rows."""
    repeats = check_weights(weights, n)
    return Groups.of(check_subgroups(subgroups).memberships(features, n), repeats)


def refuse_untestable(result: AuditResult) -> None:
    """Refuse an audit whose HUC labels drawn for every row alone do not imitate."""
    found, remedy = "", "Judge by its bounds, such as `huc_lower`"
    if result.design is not None and result.design.n_clusters is not None:
        found = "clusters: rows that depend on each other"
    elif result.design is not None:
        found = "`label_probability`"
        remedy += (
            "; or, where the probability did not depend on the label, call "
            "`full_calibration.calibration_p_value` with weights=1 / label_probability"
        )
    elif result.partial:
        found = "labels at inner nodes"
    if found:
        msg = (
            "`p_value_calibrated` must be asked of independent rows that all have a leaf as "
            f"label; the audit had {found}. {remedy}."
        )
        raise InvalidInputError(msg)


def p_value_of(
    huc: float,
    predictions: Predictions,
    groups: Groups,
    *,
    tree: LabelTree,
    utilities: tuple[Utility, ...],
    n_draws: int,
    rng: Any,
) -> float:
    """Monte-Carlo p-value of an observed HUC."""
    options = AuditOptions(n_draws=n_draws, rng=rng)
    draws, seed = options.n_draws, options.rng
    reach = np.cumsum(predictions.positive(), axis=1)

    def draw(number: int) -> float:
        codes = _draw_labels(reach, np.random.default_rng([seed, number]))
        return _huc(predictions, codes, groups, tree, utilities)

    drawn = np.array(list(run_tasks(draw, [(number,) for number in range(draws)])))
    return float((1 + np.count_nonzero(drawn >= huc * _TIE)) / (1 + draws))


def _draw_labels(reach: Floats, rng: np.random.Generator) -> Ints:
    """One label per row: the first whose cumulated probability exceeds a uniform number."""
    level = rng.random(reach.shape[0]) * reach[:, -1]
    codes: Ints = np.count_nonzero(reach <= level[:, None], axis=1).astype(np.int64)
    return codes


def _huc(
    predictions: Predictions,
    labels: Ints,
    groups: Groups,
    tree: LabelTree,
    utilities: tuple[Utility, ...],
) -> float:
    largest = 0.0
    for rows in iter_decomposed(utilities, predictions, labels, tree=tree):
        scan = scan_utility(sort_rows(rows, groups.scale), groups)
        largest = max(largest, float(np.abs(scan.moment[:, :-1]).max(initial=0.0)))
    return largest
