"""What probably lies behind an alert: which branch hides it, which children, what else moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from huc_monitor._common.safe_text import chat
from huc_monitor.audit.decomposition import UtilityRows
from huc_monitor.monitor.drift import (
    DriftPolicy,
    DriftReference,
    children,
    label_shift,
    leaf_shares,
)
from huc_monitor.monitor.records import DriftFinding, tell_versions
from huc_monitor.tree import LabelTree
from huc_monitor.utilities.program import Floats, Ints

_HIDDEN = 0.5
_SHOWN_CHILDREN = 2
_LEAST_GAP = 0.01
_NOTHING_MOVED = (
    "Predictions, subgroups and the label mix did not move by more than chance since the "
    "reference{}: inputs look as before, and outcomes differ."
)
_NOT_NEW = "The reference shows about as much, so this need not be new."


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A branch of opposite sign on the same interval; None where nothing is hidden."""

    node: str | None = None
    moment: float | None = None


def cancellation(
    rows: UtilityRows, weights: np.ndarray[Any, Any], inside: Ints, node: str, moment: float
) -> Cancellation:
    """Find the branch that hides `node` in the sum: opposite, and leaving less than half of it."""
    moments = interval_moments(rows, weights, inside)
    total = float(moments.sum())
    opposite = np.where(moments * moment < 0, np.abs(moments), 0.0)
    slot = int(np.argmax(opposite)) if opposite.size else -1
    hidden = abs(total) <= _HIDDEN * abs(moment)
    if not hidden or opposite.size == 0 or opposite[slot] < _HIDDEN * abs(moment):
        return Cancellation()
    name = rows.tree.branches[rows.relevant[slot]]
    return Cancellation() if name == node else Cancellation(name, float(moments[slot]))


def interval_moments(rows: UtilityRows, weights: np.ndarray[Any, Any], inside: Ints) -> Floats:
    """Moment of every relevant branch on chosen rows, averaged over all rows."""
    values = rows.contributions[inside] * weights[inside, None].astype(np.float64)
    n = rows.relevant.size
    slots = rows.path_slots[rows.labels[inside]].ravel()
    return np.asarray(np.bincount(slots, values.ravel(), minlength=n)[:n] / rows.scores.size)


def rows_inside(rows: UtilityRows, weights: np.ndarray[Any, Any], low: float, high: float) -> Ints:
    """Return the subgroup's rows with a score in the closed interval."""
    return np.flatnonzero((rows.scores >= low) & (rows.scores <= high) & (weights != 0))


def branch_frequencies(
    tree: LabelTree, branch: int, mass: Floats, counts: Ints
) -> dict[str, dict[str, float]]:
    """Predicted and observed share of every child among the cases under a branch.

    `mass` is the probability of every leaf summed over rows, `counts` how often a label had each
    code; labels that stop at a branch or above it say nothing of its children.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["a", "b"])
    >>> branch_frequencies(tree, 0, np.array([2.0, 2.0]), np.array([3, 1]))["a"]
    {'predicted': 0.5, 'observed': 0.75}
    """
    names, slices = children(tree, branch)
    predicted = np.array([mass[one].sum() for one in slices])
    observed = np.array([labels_under(tree, counts, one) for one in slices], dtype=np.float64)
    if not observed.sum() or not predicted.sum():
        return {}
    predicted, observed = predicted / predicted.sum(), observed / observed.sum()
    return {
        name: {"predicted": float(p), "observed": float(o)}
        for name, p, o in zip(names, predicted, observed, strict=True)
    }


def labels_under(tree: LabelTree, counts: Ints, leaves: slice) -> int:
    """Count labels that are among these leaves, or stop at a node above some of them only."""
    inner, arrays = counts[tree.n_leaves :], tree.arrays
    total = int(counts[leaves].sum())
    if inner.any():
        below = (arrays.start >= leaves.start) & (arrays.stop <= leaves.stop)
        total += int(inner[below[: inner.size]].sum())
    return total


def child_hints(node: str, frequencies: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Say which children were predicted too rarely or too often."""
    gaps = sorted(
        ((name, share["predicted"], share["observed"]) for name, share in frequencies.items()),
        key=lambda item: -abs(item[2] - item[1]),
    )
    told = [
        f"*{chat(name)}* was predicted in {predicted:.1%} and seen in {observed:.1%}"
        for name, predicted, observed in gaps[:_SHOWN_CHILDREN]
        if abs(observed - predicted) >= _LEAST_GAP
    ]
    if not told:
        return []
    return [f"In this range, of the cases under *{chat(node)}*, {', '.join(told)}."]


def shift_hints(
    drift: Sequence[DriftFinding],
    *,
    tree: LabelTree,
    labels: Ints,
    reference: DriftReference | None,
    policy: DriftPolicy,
    changed: bool | None = None,
    when: str = "",
    version: str | None = None,
) -> list[str]:
    """Say whether predictions, subgroups or labels moved since the reference as well.

    `changed` is whether the moment differs by more than chance from the reference's; None where
    that is not known. `when` names the reference, `version` is the model version that made most
    of the predictions. Only what was tested is said.
    """
    if reference is None:
        return []
    moved = [item for item in drift if item.drifted]
    hints = [_moved(item, when) for item in moved if item.kind == "subgroup"][:1]
    hints += [_moved(item, when) for item in moved if item.kind != "subgroup"][:1]
    leaves = label_shift(reference, labels, policy)
    if leaves.size and reference.label_share is not None:
        share = leaf_shares(labels, tree.n_leaves)
        told = [
            f"*{chat(tree.leaves[leaf])}* from {before:.1%} to {share[leaf]:.1%}"
            for leaf, before in zip(leaves, reference.label_share[leaves], strict=True)
        ]
        hints.append(f"The label mix moved since the reference{when}: {', '.join(told)}.")
    if changed is False:
        return [*hints, _NOT_NEW]
    tested = policy.enabled and reference.label_share is not None
    hints = hints or ([_NOTHING_MOVED.format(when)] if changed and tested else [])
    if changed and reference.is_of_another(version) and not any(item.whose for item in moved):
        hints.insert(0, tell_versions(str(reference.version), str(version)))
    return hints


def _moved(item: DriftFinding, when: str) -> str:
    whose = f" {item.whose}" if item.whose else ""
    if item.kind == "subgroup":
        return (
            f"The inputs moved since the reference{when}: subgroup {chat(item.name)} from "
            f"{item.before['share']:.1%} to {item.after['share']:.1%} of the rows."
        )
    if item.kind == "scores":
        return (
            f"Predicted utility *{chat(item.name)}* moved since the reference{when}: median from "
            f"{item.before['median']:.3f} to {item.after['median']:.3f}.{whose}"
        )
    name = next(iter(item.before))
    return (
        f"Predictions moved since the reference{when}: under *{chat(item.name)}*, *{chat(name)}* "
        f"from {item.before[name]:.1%} to {item.after[name]:.1%} of the mass.{whose}"
    )
