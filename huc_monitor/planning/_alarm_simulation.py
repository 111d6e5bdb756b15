"""How many labels the e-detector needs: a pilot's predictions, with one branch made wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from huc_monitor._common.frames import to_frame
from huc_monitor._common.row_order import check_row_order
from huc_monitor.audit.decomposition import decompose_utility, relevant_paths
from huc_monitor.audit.inputs import (
    check_predictions,
    check_subgroups,
    check_tree,
    check_utilities,
)
from huc_monitor.audit.options import AuditOptions
from huc_monitor.detection import EDetector
from huc_monitor.detection.options import DEFAULTS
from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.tree.labels import LeafCodes
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats, Ints


@dataclass(frozen=True, slots=True)
class AlarmDelay:
    """Labels from a change to the alarm, in simulated streams.

    ``labels`` has one entry per run, infinite where no alarm came. ``found`` is the share of alarms
    at which the changed branch stood first.
    """

    candidate: tuple[str, str, str]
    size: float
    batch_size: int
    labels: tuple[float, ...]
    found: float

    def quantile(self, share: float) -> float:
        """Labels after which this share of the runs had raised the alarm."""
        ordered = sorted(self.labels)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    @property
    def median(self) -> float:
        """Labels after which half of the runs had raised the alarm."""
        return self.quantile(0.5)

    def __repr__(self) -> str:
        """One line."""
        return (
            f"AlarmDelay(moment {self.size:+g}: median {self.median:g} labels, "
            f"{len(self.labels)} runs of batches of {self.batch_size})"
        )


def simulate_alarm(
    probabilities: Any,
    *,
    tree: LabelTree | str | Path,
    utilities: Sequence[Utility] | Utility,
    candidate: tuple[str, str, str],
    size: float,
    tolerance: float,
    subgroups: Subgroups | None = None,
    features: Any = None,
    average_run_length: float = DEFAULTS.average_run_length,
    batch_size: int = 250,
    n_before: int = 10,
    max_batches: int = 60,
    n_runs: int = 20,
    rng: Any = 0,
) -> AlarmDelay:
    """Simulate how many labels the e-detector needs to notice a moment of a given size.

    Rows are drawn from the pilot with replacement, and their labels from the predictions: a
    calibrated stream of ``n_before`` batches. Then one branch's outcome probabilities are tilted,
    by exp(theta * contribution), so that the candidate's moment over the pilot is ``size``: of all
    changes with that moment, the one that shows least. The labels of the pilot are not used.

    Parameters
    ----------
    probabilities : (n, K) array in the order of ``tree.leaves``, or DataFrame with leaf columns
    tree : LabelTree, or the path of a tree file
    candidate : (utility, subgroup, node)
    size : float
        The moment, negative when predictions shall overstate utility.
    tolerance, average_run_length
        Of the detector.
    features : DataFrame of n rows, optional
    batch_size, n_before, max_batches, n_runs : int
    rng : int or numpy Generator, default 0

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    >>> p = np.random.default_rng(0).dirichlet([2, 2, 1], size=200)
    >>> hm.simulate_alarm(
    ...     p,
    ...     tree=tree,
    ...     utilities=[hm.SubtreeIndicator(node="lion")],
    ...     candidate=("in_lion", "all", "cat"),
    ...     size=0.1,
    ...     tolerance=0.01,
    ...     n_runs=5,
    ... )
    AlarmDelay(moment +0.1: median 500 labels, 5 runs of batches of 250)
    """
    tree = check_tree(tree)
    chosen = check_utilities(utilities)
    groups = check_subgroups(subgroups)
    check_row_order(probabilities=probabilities, features=features)
    predictions = check_predictions(probabilities, tree=tree)
    p = predictions.positive()
    frame = None if features is None else pd.DataFrame(to_frame(features, "features"))
    utility, weights = _find(candidate, chosen, groups, frame, predictions.n)
    tilted = _tilt(p, _branch(p, utility, candidate[2], weights, tree=tree), size)
    generator = np.random.default_rng(AuditOptions(rng=rng).rng)
    labels, first = [], 0
    for _ in range(n_runs):
        detector = EDetector(
            tree=tree,
            utilities=chosen,
            subgroups=groups,
            tolerance=tolerance,
            average_run_length=average_run_length,
        )
        passed = math.inf
        for batch in range(n_before + max_batches):
            truth = p if batch < n_before else tilted
            rows = generator.integers(0, p.shape[0], batch_size)
            drawn = _draw(truth[rows], generator)
            step = detector.update(
                p[rows], LeafCodes(drawn), None if frame is None else frame.iloc[rows]
            )
            if step.alarm and batch >= n_before:
                passed = float((batch - n_before + 1) * batch_size)
                first += step.worst.node == candidate[2]
                break
        labels.append(passed)
    n_alarms = sum(math.isfinite(count) for count in labels)
    return AlarmDelay(candidate, size, batch_size, tuple(labels), first / max(1, n_alarms))


def _find(
    candidate: tuple[str, str, str],
    utilities: Sequence[Utility],
    subgroups: Subgroups,
    frame: pd.DataFrame | None,
    n: int,
) -> tuple[Utility, Floats]:
    """Return the candidate's utility and every row's weight in its subgroup."""
    by_name = {utility.name: utility for utility in utilities}
    for given, known in ((candidate[0], list(by_name)), (candidate[1], list(subgroups.names))):
        if given not in known:
            msg = (
                f"`candidate` must be (utility, subgroup, node); got {given!r}. "
                f"Choose from {', '.join(map(repr, known))}."
            )
            raise UnknownNameError(msg)
    weights = subgroups.weights(frame, n)[subgroups.names.index(candidate[1])]
    return by_name[candidate[0]], np.asarray(weights, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class _Branch:
    """One branch of every pilot row: its children's probabilities and signed, weighted values.

    ``codes`` says which child a leaf lies below, -1 for leaves outside the branch.
    """

    codes: Ints
    mass: Floats
    slopes: Floats

    @property
    def largest(self) -> float:
        """Moment when every row takes the child of largest value."""
        return float((self.mass.sum(axis=1) * self.slopes.max(axis=1)).mean())

    def tilted(self, theta: float) -> Floats:
        """Children's probabilities times exp(theta * value), with the same sum."""
        logs = np.log(self.mass) + theta * self.slopes
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        scale = self.mass.sum(axis=1) / shares.sum(axis=1)
        return np.asarray(shares * scale[:, None])

    def moment(self, theta: float) -> float:
        """Mean value under the tilted probabilities; it grows with theta."""
        return float((self.tilted(theta) * self.slopes).sum(axis=1).mean())


def _branch(p: Floats, utility: Utility, node: str, weights: Floats, *, tree: LabelTree) -> _Branch:
    codes, values = _child_values(p, utility, tree.branch_index(node), tree=tree)
    mass = np.stack([p[:, codes == child].sum(axis=1) for child in range(values.shape[1])], axis=1)
    return _Branch(codes, mass, weights[:, None] * values)


def _tilt(p: Floats, branch: _Branch, size: float) -> Floats:
    """Change the branch's outcome probabilities until the candidate's moment is `size`."""
    side = math.copysign(1.0, size)
    branch = _Branch(branch.codes, branch.mass, side * branch.slopes)
    if not 0 < abs(size) < branch.largest:
        msg = (
            f"`size` must lie strictly between 0 and {side * branch.largest:.4g}, the largest "
            f"moment this candidate can have on the pilot; got {size!r}."
        )
        raise InvalidInputError(msg)
    low, high = 0.0, 1.0
    while branch.moment(high) < abs(size):
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if branch.moment(middle) < abs(size) else (low, middle)
    factors = branch.tilted(high) / branch.mass
    inside = branch.codes >= 0
    changed = p.copy()
    changed[:, inside] *= factors[:, branch.codes[inside]]
    return changed


def largest_moment(
    probabilities: Any,
    *,
    tree: LabelTree | str | Path,
    utilities: Sequence[Utility] | Utility,
    candidate: tuple[str, str, str],
    subgroups: Subgroups | None = None,
    features: Any = None,
) -> float:
    """Largest moment that a candidate can have on a pilot's predictions, whatever the labels.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["a", "b"])
    >>> candidate = ("in_a", "all", "root")
    >>> largest_moment(
    ...     [[0.7, 0.3]],
    ...     tree=tree,
    ...     utilities=[hm.SubtreeIndicator(node="a")],
    ...     candidate=candidate,
    ... )
    0.3
    """
    tree = check_tree(tree)
    groups = check_subgroups(subgroups)
    check_row_order(probabilities=probabilities, features=features)
    frame = None if features is None else pd.DataFrame(to_frame(features, "features"))
    p = check_predictions(probabilities, tree=tree).positive()
    utility, weights = _find(candidate, check_utilities(utilities), groups, frame, p.shape[0])
    return _branch(p, utility, candidate[2], weights, tree=tree).largest


def _child_values(
    p: Floats, utility: Utility, branch: int, *, tree: LabelTree
) -> tuple[Ints, Floats]:
    """Child of the branch over every leaf (-1 outside), and the contribution of each child."""
    relevant, paths = relevant_paths(tree, utility)
    if branch not in relevant:
        names = ", ".join(repr(tree.branches[v]) for v in relevant)
        msg = (
            f"`candidate` must name a relevant node of {utility.name!r}; got "
            f"{tree.branches[branch]!r}. Choose from {names}."
        )
        raise UnknownNameError(msg)
    arrays = tree.arrays
    children = arrays.child_code[arrays.child_ptr[branch] : arrays.child_ptr[branch + 1]]
    codes = np.full(tree.n_leaves, -1, dtype=np.int64)
    values = np.empty((p.shape[0], children.size))
    predictions = check_predictions(p, tree=tree)
    for child, code in enumerate(children):
        first = arrays.start[code] if code >= 0 else -1 - code
        stop = arrays.stop[code] if code >= 0 else -code
        codes[first:stop] = child
        labels = np.full(p.shape[0], first, dtype=np.int64)
        rows = decompose_utility(utility, predictions, labels, tree=tree)
        at = np.flatnonzero(paths.branch[paths.ptr[first] : paths.ptr[first + 1]] == branch)[0]
        values[:, child] = rows.contributions[:, at]
    return codes, values


def _draw(p: Floats, rng: np.random.Generator) -> Ints:
    below = np.cumsum(p, axis=1)
    picked = (rng.random((p.shape[0], 1)) * below[:, -1:] > below).sum(axis=1)
    return np.asarray(np.minimum(picked, p.shape[1] - 1), dtype=np.int64)
