"""Why a candidate is told: what goes with its moment in the window, and what moved besides it.

The sentences themselves are made in `hints` and `confusion`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from huc_monitor._common.safe_text import chat
from huc_monitor.audit.sparse_rows import as_dense
from huc_monitor.audit.unforeseen import LEAST_MASS
from huc_monitor.monitor._reference import Reference
from huc_monitor.monitor._rows import Decomposed
from huc_monitor.monitor.change import CandidateChange
from huc_monitor.monitor.confusion import count_pairs, find_confusion, kept_pairs, n_pairs
from huc_monitor.monitor.drift import children
from huc_monitor.monitor.hints import (
    Cancellation,
    branch_frequencies,
    cancellation,
    child_hints,
    labels_under,
    rows_inside,
    shift_hints,
)
from huc_monitor.monitor.records import DriftFinding
from huc_monitor.subgroups import Subgroups
from huc_monitor.utilities.program import Ints

if TYPE_CHECKING:
    import pandas as pd

    from huc_monitor.monitor._monitor import Monitor

_MOST_TAKEN = 3


@dataclass(frozen=True, slots=True, eq=False)
class Explaining:
    """The rows of one window, and what they are compared with."""

    monitor: Monitor
    subgroups: Subgroups
    found: Decomposed
    drift: tuple[DriftFinding, ...]
    reference: Reference | None

    def explain(
        self, row: pd.Series[Any], change: CandidateChange | None = None
    ) -> tuple[Cancellation, list[str]]:
        """Say what cancels the moment of a row of the audit, and what goes with it."""
        low, high = row["interval_low"], row["interval_high"]
        if change is not None and change.counted:
            return Cancellation(), self._taken_for(change)
        if change is not None:
            low, high = change.interval_low, change.interval_high
        if low is None or not np.isfinite(low):
            return Cancellation(), []
        tree, data = self.monitor.tree, self.found.data
        rows = next(item for item in self.found.rows if item.utility.name == row["utility"])
        weights = self.found.weights[self.subgroups.names.index(row["subgroup"])]
        inside = rows_inside(rows, weights, low, high)
        hidden = Cancellation()
        if change is None:
            seen = row["moment"] * row["label_coverage"]
            hidden = cancellation(rows, weights, inside, row["node"], seen)
        branch = tree.branch_index(row["node"])
        probabilities, labels = data.probabilities[inside], data.labels[inside]
        counts = np.bincount(labels, minlength=tree.n_leaves)
        shares = branch_frequencies(tree, branch, probabilities.sum(axis=0), counts)
        hints = child_hints(row["node"], shares)
        if change is not None:
            confused = self._confusion(branch, row["subgroup"], changed=True)
            hints = [self._size(branch, counts), *(confused or hints)]
        hints = hints or self._confusion(branch, row["subgroup"])
        if change is None and row["lower"] is not None and not row["lower"] > 0:
            # What may be chance needs no cause.
            return hidden, hints
        known = self.reference
        hints += shift_hints(
            self.drift,
            tree=tree,
            labels=data.labels,
            reference=None if known is None else known.drift,
            policy=self.monitor.policy.drift,
            changed=self._changed(row) if change is None else True,
            when="" if known is None else known.when(self.monitor.windows.time_zone),
            version=data.version,
        )
        return hidden, hints

    def _taken_for(self, change: CandidateChange) -> list[str]:
        """Say what the model predicted in the window's rows with unforeseen labels."""
        assert change.unforeseen is not None  # noqa: S101 - they were counted
        tree, data, name = self.monitor.tree, self.found.data, change.unforeseen.name
        start, stop = tree.label_slices(tree.label_encoder().encode([name]))
        first, last = tree.label_slices(data.labels)
        mine = self.found.weights[self.subgroups.names.index(change.subgroup)] != 0
        p = as_dense(data.probabilities[mine & (start <= first) & (last <= stop)])
        p = p[p[:, start[0] : stop[0]].sum(axis=1) < LEAST_MASS]
        found = Counter(p.argmax(axis=1).tolist()).most_common(_MOST_TAKEN)
        told = [f"*{chat(tree.leaves[leaf])}* in {n:,}" for leaf, n in found]
        if not told:
            return []
        return [f"Of the {len(p):,} in this window the likeliest was {', '.join(told)}."]

    def _confusion(self, branch: int, subgroup: str, *, changed: bool = False) -> list[str]:
        """Say which children of a branch are mistaken for each other in a subgroup."""
        tree, data, names = self.monitor.tree, self.found.data, self.subgroups.names
        mine = np.flatnonzero(self.found.weights[names.index(subgroup)])
        pairs = count_pairs(tree, branch, data.probabilities[mine], data.labels[mine])
        kept = None if self.reference is None else self.reference.pairs.get(subgroup)
        error = 1.0 - self.monitor.policy.audit.confidence_level
        found = find_confusion(
            tree,
            branch,
            pairs,
            reference=kept_pairs(tree, branch, kept),
            changed=changed,
            least_p=error / max(1, n_pairs(tree, len(names))),
        )
        return [] if found is None else [str(found)]

    def _size(self, branch: int, counts: Ints) -> str:
        """Say how many rows the branch is about."""
        tree, n = self.monitor.tree, self.found.data.n
        mine = sum(labels_under(tree, counts, one) for one in children(tree, branch)[1])
        return f"{mine:,} of the window's {n:,} labels lie under this branch and in this range."

    def _changed(self, row: pd.Series[Any]) -> bool | None:
        """Tell whether the moment differs from the reference's; None where that cannot be known."""
        if self.reference is None:
            return None
        place: Any = row.name  # rows of an audit are numbered
        return self.reference.differs(place, float(row["moment"]), float(row["radius"]))
