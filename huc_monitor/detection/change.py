"""The change test: the newest windows, pooled, against the reference, at a known false-alarm rate.

A small fault adds up: one window may not show what four or sixteen do. So the newest 1, 4 and 16
windows, pooled, are each compared with the reference (`huc_monitor.audit.two_samples`), each with
a third of the probability of error 1 / average_run_length. While nothing changes, a look at one
window is false with at most that probability, so that in T windows at most
T / average_run_length looks are false on average, however the looks share windows and reference:
expectations add up, dependent or not. The bound on each look is the bootstrap's, checked by
simulation (tests/bench/change.py).

A tenth of the error is for labels where the model put almost no mass, whose counts in the same
windows are compared with the reference's (`huc_monitor.audit.unforeseen`): a class it never saw.

What the reference says is not the truth but another sample, whose noise is in the bounds; what was
wrong from the start, and is wrong in the same way now, is no change.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from huc_monitor._common.checks import check_number
from huc_monitor._common.views import Plotted
from huc_monitor.audit.comparison import Comparison, Difference
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.two_samples import Sample, compare_samples
from huc_monitor.audit.unforeseen import Unforeseen, find_rises
from huc_monitor.detection.options import DEFAULTS
from huc_monitor.errors import InvalidInputError

POOLS = (1, 4, 16)
# As many draws as leave five above the quantile; beyond the most it is continued by the bound.
_DRAWS_ABOVE = 5
_FEWEST_DRAWS, _MOST_DRAWS = 1000, 2000
_RESERVE = 0.8
_FOR_UNFORESEEN = 0.1


@dataclass(frozen=True, slots=True)
class Change:
    """A candidate that changed by more than chance, and how many windows show it best, pooled.

    ``unforeseen`` are labels under the branch that the model gave almost no mass; where nothing
    else tells the change, the candidate's numbers are their share of all rows, and it has no
    interval.
    """

    candidate: Difference
    n_windows: int
    unforeseen: Unforeseen | None = None

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
    unforeseen : tuple of Change
        Branches under which labels came that the model gave almost no mass.
    """

    pools: tuple[tuple[int, Comparison], ...]
    average_run_length: float
    unforeseen: tuple[Change, ...] = ()

    @property
    def alarm(self) -> bool:
        """Whether any candidate changed by more than chance."""
        return bool(self.unforeseen) or any(found.sure for _, found in self.pools)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Candidates that changed by more than chance, once each, the most certain first.

        All of a branch come from one pool, in which the most certain of them exceeds its radius by
        the largest factor, so that their sizes can be compared: windows from before the change
        make it look smaller in a larger pool. One that is sure in another pool alone comes from
        there. Moments and counts of unforeseen labels have a pool each.
        """
        found = [Change(item, n) for n, pool in self.pools for item in pool.sure]
        best = _one_each(found)
        for key, change in _one_each(self.unforeseen).items():
            known = best.get(key, change)
            best[key] = dataclasses.replace(known, unforeseen=change.unforeseen)
        return tuple(sorted(best.values(), key=_factor, reverse=True))

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
        self._error_of_counts = _FOR_UNFORESEEN * error
        error -= self._error_of_counts
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
        pools = self.pooled(windows)
        found = tuple(
            (size, compare_samples(reference, pooled, self.plan, screen=True))
            for size, pooled in pools
        )
        return ChangeStep(found, self.average_run_length, self.unforeseen(reference, pools))

    def pooled(self, windows: Sequence[Sample]) -> list[tuple[int, Sample]]:
        """Join the newest windows, pool by pool."""
        sizes = self.sizes(len(windows))
        return [(size, Sample.join(windows[: -size - 1 : -1])) for size in sizes]

    def unforeseen(
        self, reference: Sample, pools: Iterable[tuple[int, Sample]]
    ) -> tuple[Change, ...]:
        """Find branches under which labels came that the model gave almost no mass, in any pool.

        Each is told of the lowest branch above the labels that is a candidate.
        """
        plan, found = self.plan, []
        for size, pooled in pools:
            sides = [(side.unforeseen, side.n) for side in (reference, pooled)]
            for rise in find_rises(plan.tree, sides[0], sides[1], self._error_of_counts):
                subgroup = plan.subgroups.names[rise.subgroup]
                place = self._place(rise.counts.name, subgroup)
                if place is not None:
                    numbers = (rise.before, rise.after, rise.after - rise.before)
                    at = Difference(*place, *numbers, rise.lower, rise.upper)
                    found.append(Change(at, size, rise.counts))
        return tuple(found)

    def _place(self, name: str, subgroup: str) -> tuple[str, str, str] | None:
        """Return the candidate of the lowest branch above a node, of the first utility it has."""
        names = {(group, node): utility for utility, group, node in reversed(self.plan.names)}
        above = reversed(self.plan.tree.ancestors(name))
        found = (
            (names[subgroup, node], subgroup, node) for node in above if (subgroup, node) in names
        )
        return next(found, None)


def _factor(change: Change) -> float:
    """By how many radii a change differs from none."""
    at = change.candidate
    return 2.0 * abs(at.difference) / (at.upper - at.lower)


def _one_each(changes: Iterable[Change]) -> dict[tuple[str, str, str], Change]:
    """Choose a change of every candidate, from the pool of its branch's most certain one."""
    ranked = sorted(changes, key=_factor, reverse=True)
    pool: dict[str, int] = {}
    for change in ranked:
        pool.setdefault(change.candidate.node, change.n_windows)
    ranked.sort(key=lambda change: change.n_windows != pool[change.candidate.node])
    best: dict[tuple[str, str, str], Change] = {}
    for change in ranked:
        at = change.candidate
        best.setdefault((at.utility, at.subgroup, at.node), change)
    return best


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
