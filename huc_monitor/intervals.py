"""The largest interval moment of every branch: one exact scan per subgroup and utility."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from huc_monitor._threads import run_tasks

if TYPE_CHECKING:
    from huc_monitor._program import Floats, Ints
    from huc_monitor.decomposition import SortedRows

_HEADROOM_BITS = 61


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Subgroup weights on the rows of a window, and how often each row counts.

    ``weights[c]`` is uint8 for an indicator and float64 otherwise; ``repeats`` is empty when every
    row counts once.
    """

    weights: list[np.ndarray[Any, Any]]
    repeats: Floats
    total: float

    @classmethod
    def of(cls, weights: list[np.ndarray[Any, Any]], repeats: Floats | None) -> Groups:
        """Bundle subgroup weights with row weights."""
        n = weights[0].size
        if repeats is None:
            return cls(weights, np.empty(0), float(n))
        return cls(weights, repeats, float(repeats.sum()))

    @property
    def scale(self) -> float:
        """Units per 1.0 of the integer sums: as fine as 64 bits allow for this window.

        A sum of n contributions of size at most 2 stays below 2**62, and rounding moves a moment
        by at most n * 2**-62: 3e-13 for a million rows, however the rows are ordered.
        """
        return math.ldexp(1.0, _HEADROOM_BITS - math.ceil(math.log2(self.total)))


@dataclass(frozen=True, slots=True, eq=False)
class UtilityScan:
    """Moments of one utility: arrays of shape (C, S + 1), the last column being UC.

    ``span`` is the half-open range of sorted rows; ``low`` and ``high`` the closed score interval
    (NaN when the moment is zero and the interval empty). ``on_uc`` and ``on_worst``, of shape
    (C, S), are every branch's moments on the interval of UC and on that of the worst branch.
    """

    moment: Floats
    low: Floats
    high: Floats
    span: Ints
    n_inside: Floats
    size: Floats
    on_uc: Floats
    on_worst: Floats


def scan_utility(rows: SortedRows, groups: Groups) -> UtilityScan:
    """Maximise the absolute moment over all intervals, for every subgroup and relevant branch."""
    from huc_monitor import _kernels

    n_groups, n_slots = len(groups.weights), rows.relevant.size
    best = np.zeros((n_groups, n_slots + 1), dtype=np.int64)
    span = np.zeros((n_groups, n_slots + 1, 2), dtype=np.int64)
    inside = np.zeros((n_groups, n_slots + 1))
    size = np.zeros(n_groups)
    on_uc = np.zeros((n_groups, n_slots), dtype=np.int64)
    on_worst = np.zeros((n_groups, n_slots), dtype=np.int64)
    scale = groups.scale

    def work(c: int) -> None:
        weights = groups.weights[c]
        size[c] = _kernels.scan_group(
            rows.scores,
            rows.order,
            rows.labels,
            rows.contributions,
            weights,
            groups.repeats,
            rows.paths,
            scale,
            best[c],
            span[c],
            inside[c],
        )
        if n_slots:
            worst = int(np.argmax(np.abs(best[c, :n_slots])))
            for sums, slot in ((on_uc[c], n_slots), (on_worst[c], worst)):
                _kernels.interval_sums(
                    rows.order,
                    rows.labels,
                    rows.contributions,
                    weights,
                    groups.repeats,
                    rows.paths,
                    scale,
                    span[c, slot, 0],
                    span[c, slot, 1],
                    sums,
                )

    list(run_tasks(work, [(c,) for c in range(n_groups)]))
    unit = 1.0 / (scale * groups.total)
    empty = span[..., 0] == span[..., 1]
    low = np.where(empty, np.nan, rows.scores[np.minimum(span[..., 0], rows.scores.size - 1)])
    high = np.where(empty, np.nan, rows.scores[span[..., 1] - 1])
    return UtilityScan(
        best * unit, low, high, span, inside, size, on_uc * unit, on_worst * unit
    )


def second_moments(rows: SortedRows, groups: Groups) -> Floats:
    """Mean squared contribution of every subgroup and relevant branch, shape (C, S)."""
    from huc_monitor import _kernels

    sums = np.zeros((len(groups.weights), rows.relevant.size), dtype=np.int64)
    scale = math.ldexp(groups.scale, -1)

    def work(c: int) -> None:
        _kernels.second_moments(
            rows.order,
            rows.labels,
            rows.contributions,
            groups.weights[c],
            groups.repeats,
            rows.paths,
            scale,
            sums[c],
        )

    list(run_tasks(work, [(c,) for c in range(len(groups.weights))]))
    return sums / (scale * groups.total)
