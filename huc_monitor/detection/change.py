"""The change test: the newest windows, pooled, against the reference, at a known false-alarm rate.

A small fault adds up: one window may not show what four or sixteen do. So the newest 1, 4 and 16
windows, pooled, are each compared with the reference (`huc_monitor.audit.two_samples`), each with
a third of the probability of error 1 / average_run_length. While nothing changes, a look at one
window is false with at most that probability, so that in T windows at most
T / average_run_length looks are false on average, however the looks share windows and reference:
expectations add up, dependent or not. The bound on each look is the bootstrap's, checked by
simulation (tests/bench/change.py).

What the reference says is not the truth but another sample, whose noise is in the bounds; what was
wrong from the start, and is wrong in the same way now, is no change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from huc_monitor._common.checks import check_number
from huc_monitor._common.views import Plotted
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.two_samples import Sample, compare_samples
from huc_monitor.detection.options import DEFAULTS
from huc_monitor.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from huc_monitor.audit.comparison import Comparison, Difference

__all__ = ["Change", "ChangeStep", "ChangeTest"]

POOLS = (1, 4, 16)
# As many draws as leave five above the quantile; beyond the most it is continued by the bound.
_DRAWS_ABOVE = 5
_FEWEST_DRAWS, _MOST_DRAWS = 1000, 2000
_RESERVE = 0.8


@dataclass(frozen=True, slots=True)
class Change:
    """A candidate that changed by more than chance, and how many windows show it best, pooled."""

    candidate: Difference
    n_windows: int

    def __repr__(self) -> str:
        """One line."""
        windows = "newest window" if self.n_windows == 1 else f"newest {self.n_windows} windows"
        return f"Change({windows}: {self.candidate!r})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ChangeStep(Plotted):
    """What the newest windows say about a change since the reference.

    Attributes
    ----------
    pools : tuple of (number of windows, Comparison)
        One per pool. A comparison of method None had no candidate near its bound: nothing changed
        by more than chance, and no bounds were made.
    average_run_length : float
        Windows between false alarms, on average and at least.
    """

    pools: tuple[tuple[int, Comparison], ...]
    average_run_length: float

    @property
    def alarm(self) -> bool:
        """Whether any candidate changed by more than chance."""
        return any(found.sure for _, found in self.pools)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Candidates that changed by more than chance, once each, the most certain first.

        Each comes from the pool in which it exceeds its radius by the largest factor.
        """
        best: dict[tuple[str, str, str], tuple[float, Change]] = {}
        for n_windows, found in self.pools:
            for item in found.sure:
                factor = abs(item.difference) / (0.5 * (item.upper - item.lower))
                key = (item.utility, item.subgroup, item.node)
                if key not in best or factor > best[key][0]:
                    best[key] = factor, Change(item, n_windows)
        ranked = sorted(best.values(), key=lambda pair: -pair[0])
        return tuple(change for _, change in ranked)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form."""
        return {
            "average_run_length": self.average_run_length,
            "pools": [{"n_windows": n, **found.to_dict()} for n, found in self.pools],
        }

    def __repr__(self) -> str:
        """One line."""
        pooled = ", ".join(str(n) for n, _ in self.pools)
        changes = self.changes
        first = f", first {changes[0].candidate.node!r}" if changes else ""
        return f"ChangeStep(newest {pooled} windows: {len(changes)} changed{first})"


class ChangeTest:
    """Compare the newest windows with the reference; at most one false look in a run length.

    Parameters
    ----------
    tree, utilities, subgroups
        As in `audit`.
    average_run_length : float, default 100
        Windows between false alarms, on average and at least.
    pools : tuple of int, default (1, 4, 16)
        How many of the newest windows are pooled; the probability of error is split evenly.
    rng : int, default 0
        Seed of the bootstrap.

    Examples
    --------
    >>> import numpy as np, huc_monitor as hm
    >>> from huc_monitor.audit.compare import make_sample
    >>> from huc_monitor.audit.inputs import check_predictions
    >>> tree = hm.LabelTree.flat(["a", "b"])
    >>> test = ChangeTest(tree=tree, utilities=[hm.Payoff("pay", {"a": 1})])
    >>> even = check_predictions(np.full((400, 2), 0.5), tree=tree)
    >>> same, other = (make_sample(even, np.arange(400) % k % 2, test.plan) for k in (2, 3))
    >>> test.look(same, [same, same])
    ChangeStep(newest 1, 2 windows: 0 changed)
    >>> test.look(same, [same, other]).changes[0].candidate.difference
    0.17
    """

    def __init__(
        self,
        *,
        tree: Any,
        utilities: Any,
        subgroups: Any = None,
        average_run_length: float = DEFAULTS.average_run_length,
        pools: tuple[int, ...] = POOLS,
        rng: Any = 0,
    ) -> None:
        check_number("average_run_length", average_run_length, above=1)
        if not pools or any(size < 1 for size in pools):
            msg = f"`pools` must be whole numbers of at least 1; got {pools!r}."
            raise InvalidInputError(msg)
        self.average_run_length = float(average_run_length)
        self.pools = tuple(sorted(pools))
        error = 1.0 / (average_run_length * len(pools))
        draws = math.ceil(_DRAWS_ABOVE / (_RESERVE * error))
        self.plan = AuditPlan.of(
            tree=tree,
            utilities=utilities,
            subgroups=subgroups,
            confidence_level=1.0 - error,
            n_draws=min(max(_FEWEST_DRAWS, draws), _MOST_DRAWS),
            rng=rng,
        )

    def sizes(self, n_windows: int) -> list[int]:
        """How many of so many windows are pooled, pool by pool."""
        return sorted({min(size, n_windows) for size in self.pools})

    def look(self, reference: Sample, windows: Sequence[Sample]) -> ChangeStep:
        """Compare the newest windows with the reference.

        Parameters
        ----------
        reference : Sample
        windows : list of Sample, oldest first
            Without common rows, with one another or with the reference; those beyond the largest
            pool are not read. Fewer than a pool needs are pooled as they are.
        """
        if not windows:
            msg = "`windows` must hold at least one window; got none."
            raise InvalidInputError(msg)
        found = []
        for size in self.sizes(len(windows)):
            pooled = Sample.join(windows[: -size - 1 : -1])
            found.append((size, compare_samples(reference, pooled, self.plan, screen=True)))
        return ChangeStep(tuple(found), self.average_run_length)


def candidate_terms(
    sample: Sample, plan: AuditPlan, utility: str, subgroup: str, node: str
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Score of every row, and its contribution to one candidate times the subgroup's weight."""
    u = [item.name for item in plan.utilities].index(utility)
    rows = sample.rows[u]
    slot = [plan.tree.branches[v] for v in rows.relevant].index(node)
    c = plan.subgroups.names.index(subgroup)
    wanted = rows.path_slots[rows.labels] == slot
    values = np.where(wanted, rows.contributions, 0.0).sum(axis=1)
    return rows.scores, values * sample.groups.weights[c]
