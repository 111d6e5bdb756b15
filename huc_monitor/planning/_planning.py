"""How many labels it takes to see a moment of a given size, before any are collected.

An audit shows a moment with confidence when its lower bound exceeds the tolerance. With the
probability of the confidence level the estimate is within one radius of the truth, so a true
moment above tolerance + 2 radii is then shown: `detectable_size`. The same rule stands behind the
column ``detectable`` of an audit. For the e-detector, which has no radius, `simulate_alarm` counts
labels in simulated streams.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, get_args

import numpy as np
import pandas as pd

from huc_monitor._common.checks import check_choice, check_number
from huc_monitor.audit import audit
from huc_monitor.audit.bounds.bound import log_share
from huc_monitor.audit.bounds.closed_forms import sharp_radius, theorem_radius
from huc_monitor.audit.decomposition import decompose
from huc_monitor.audit.inputs import check_subgroups, check_tree, check_utilities
from huc_monitor.audit.options import DEFAULTS, AuditOptions, BoundMethod
from huc_monitor.errors import InvalidInputError
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility

METHODS = get_args(BoundMethod)
_MOST_LABELS = 1 << 50


def detectable_size(
    n: float,
    *,
    bounds: str,
    n_candidates: int,
    mean_square: float | None = None,
    spread: float = 1.0,
    tolerance: float = 0.0,
    confidence_level: float = DEFAULTS.confidence_level,
    quantile: float | None = None,
    design_effect: float = 1.0,
) -> float:
    """Smallest absolute moment that an audit of n rows shows to exceed the tolerance.

    With probability ``confidence_level`` (for the bootstrap: approximately), every candidate
    whose moment is at least this large gets a lower bound above ``tolerance``. A value above the
    spread says that no moment can be shown with so few rows.

    Parameters
    ----------
    n : number of labelled rows
    bounds : {"theorem", "sharp", "bootstrap"}
    n_candidates : int
        Subgroups times relevant branches, summed over utilities.
    mean_square : float, optional
        Mean over all rows of the squared contribution, as `pilot_candidates` measures it; without,
        the largest that a calibrated branch can have, spread**2 / 4.
    spread : float, default 1
        Bound on the absolute contribution: the range of the utility below the branch.
    tolerance, confidence_level : float
    quantile : float, optional
        The bootstrap's studentised quantile, as `pilot_candidates` measures it; without, that of
        the range of a Brownian motion, shared between candidates as if they were disjoint.
    design_effect : float, default 1
        Rows per independent row, where rows depend on each other or labels are chosen: n over
        ``n_effective`` of an audit's `design`, as `pilot_candidates` measures it.

    Examples
    --------
    >>> for bounds in ("theorem", "sharp", "bootstrap"):
    ...     print(
    ...         bounds,
    ...         round(
    ...             detectable_size(2_000, bounds=bounds, n_candidates=84, mean_square=0.04), 3
    ...         ),
    ...     )
    theorem 1.06
    sharp 0.11
    bootstrap 0.035
    """
    check_choice("bounds", bounds, METHODS)
    level = AuditOptions(confidence_level=confidence_level).confidence_level
    square = spread**2 / 4.0 if mean_square is None else mean_square
    positive = {"n": n, "n_candidates": n_candidates, "spread": spread}
    for argument, value in {**positive, "design_effect": design_effect}.items():
        check_number(argument, value, above=0)
    for argument, value in (("mean_square", square), ("tolerance", tolerance)):
        check_number(argument, value, least=0)
    n = n / design_effect
    if bounds == "theorem":
        radius = theorem_radius(n, n_candidates, level)
    elif bounds == "sharp":
        radius = float(sharp_radius(n, square, spread, n_candidates=n_candidates, level=level))
    else:
        radius = _bootstrap_radius(n, square, spread, n_candidates, level, quantile)
    return tolerance + 2.0 * radius


def _bootstrap_radius(
    n: float, square: float, spread: float, n_candidates: int, level: float, quantile: float | None
) -> float:
    """Approximate the bootstrap's radius, q / sqrt(n) times its scale, by normal theory."""
    share = log_share(n_candidates, level)
    if quantile is None:
        quantile = _guess_quantile(n_candidates, level)
    q = max(quantile, math.sqrt(share))
    return q * math.sqrt((square + spread**2 * share / n) / n)


def _guess_quantile(n_candidates: int, level: float) -> float:
    """Of the range of a Brownian motion: it exceeds q with probability close to 8 P(normal > q)."""
    return NormalDist().inv_cdf(1.0 - (1.0 - level) / (8.0 * max(1, n_candidates)))


def labels_needed(
    size: float,
    *,
    bounds: str,
    n_candidates: int,
    mean_square: float | None = None,
    spread: float = 1.0,
    tolerance: float = 0.0,
    confidence_level: float = DEFAULTS.confidence_level,
    quantile: float | None = None,
    design_effect: float = 1.0,
) -> int:
    """Smallest number of labelled rows whose audit shows a moment of ``size``.

    The inverse of `detectable_size`; the parameters are explained there. A size above the spread is
    refused: no moment is so large.

    Examples
    --------
    >>> for bounds in ("theorem", "sharp", "bootstrap"):
    ...     print(bounds, labels_needed(0.05, bounds=bounds, n_candidates=84, mean_square=0.04))
    theorem 899307
    sharp 6839
    bootstrap 1080
    """
    if not tolerance < size < math.inf:
        msg = f"`size` must be above the tolerance, {tolerance:g}; got {size!r}."
        raise InvalidInputError(msg)
    if size > spread:
        msg = (
            f"`size` must be at most {spread:g}, the spread of utilities below the branch: no "
            f"moment is larger; got {size!r}. Divide a size in money by the utility's `scale`."
        )
        raise InvalidInputError(msg)

    def shown(n: int) -> bool:
        found = detectable_size(
            n,
            bounds=bounds,
            n_candidates=n_candidates,
            mean_square=mean_square,
            spread=spread,
            tolerance=tolerance,
            confidence_level=confidence_level,
            quantile=quantile,
            design_effect=design_effect,
        )
        return found <= size

    low, high = 0, 1
    while not shown(high):
        low, high = high, 2 * high
        if high > _MOST_LABELS:
            msg = f"`size` must be further above the tolerance, {tolerance:g}; got {size!r}."
            raise InvalidInputError(msg)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if shown(middle) else (middle, high)
    return high


def pilot_candidates(
    probabilities: Any,
    labels: Any,
    *,
    tree: LabelTree | str | Path,
    utilities: Sequence[Utility] | Utility,
    subgroups: Subgroups | None = None,
    features: Any = None,
    clusters: Any = None,
    label_probability: Any = None,
    confidence_level: float = DEFAULTS.confidence_level,
    rng: Any = DEFAULTS.rng,
) -> pd.DataFrame:
    """Measure on a pilot window what planning needs to know of every candidate.

    Returns
    -------
    DataFrame
        A row per candidate: ``utility``, ``subgroup``, ``node``, ``mean_square`` and ``spread`` of
        its contribution, and ``quantile``, the bootstrap's, the same for all. Where labels stop
        above the leaves, contributions are divided by the label coverage of their branch; a branch
        that no label of the pilot reaches has the largest mean square of a calibrated one, and
        takes no part in the quantile. With clusters or label probabilities also ``design_effect``:
        rows per independent row. With label probabilities, mean squares are those that the noise
        has: rows count by the square of their inverse.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["a", "b"])
    >>> frame = pilot_candidates(
    ...     [[0.5, 0.5]] * 50, ["a", "b"] * 25, tree=tree, utilities=[hm.TopK(1)]
    ... )
    >>> frame[["utility", "subgroup", "node", "mean_square", "spread"]]
      utility subgroup  node  mean_square  spread
    0    top1      all  root         0.25     1.0
    """
    tree = check_tree(tree)
    chosen = check_utilities(utilities)
    groups = check_subgroups(subgroups)
    result = audit(
        probabilities,
        labels,
        tree=tree,
        utilities=chosen,
        subgroups=groups,
        features=features,
        clusters=clusters,
        label_probability=label_probability,
        bounds="bootstrap",
        confidence_level=confidence_level,
        rng=rng,
    )
    frame = result.to_frame()[["utility", "subgroup", "node"]]
    n = int(result.n)
    weights = [np.asarray(weight, dtype=np.float64) for weight in groups.weights(features, n)]
    # In the variance of a mean, rows count by the square of how often they count in the mean.
    counts = np.ones(n) if label_probability is None else np.asarray(label_probability) ** -2.0
    shares = counts / counts.sum()
    squares, spreads = [], []
    for rows in decompose(probabilities, labels, tree=tree, utilities=chosen):
        # A branch does not see a label that stops above it: it counts no row, at its coverage.
        dense = np.nan_to_num(rows.to_frame().iloc[:, 2:].to_numpy()) ** 2
        squares += [(shares * weight**2) @ dense for weight in weights]
        spreads += [rows.utility.spreads(tree)[rows.relevant]] * len(weights)
    seen, spread = result.candidates.label_coverage, np.concatenate(spreads)
    times = np.divide(1.0, seen, out=np.ones_like(seen), where=seen > 0)
    square = np.where(seen > 0, np.concatenate(squares), spread**2 / 4.0)
    frame["mean_square"] = square * times**2
    frame["spread"] = spread * times
    share = log_share(result.candidates.n, confidence_level)
    rows_counted = n if result.design is None else result.design.n_effective
    scale = np.sqrt(frame["mean_square"] + frame["spread"] ** 2 * share / rows_counted)
    # Where labels stop above the leaves, the radius of a branch they hardly reach is cut off, and
    # that of a branch which they never reach is the cut, not a quantile times a scale.
    times_scale = result.radii * math.sqrt(rows_counted) / scale
    guess = _guess_quantile(result.candidates.n, confidence_level)
    frame["quantile"] = times_scale[seen > 0].max() if seen.any() else guess
    if result.design is not None:
        frame["design_effect"] = n / rows_counted
    return frame
