"""Bootstrap draws of rows that are never in one place: summaries of runs that merge.

A multiplier is a function of (seed, row, draw), so any engine can make it where the row is. For
every draw and candidate a run leaves its total and its lowest and highest prefix sum; over all
intervals, the largest absolute sum is the highest prefix of all rows minus the lowest.

Sums are the whole numbers of `huc_monitor.audit.bounds.bootstrap`, so that neither the cutting nor
the order of merging shows in a radius.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from huc_monitor._common.threads import run_tasks
from huc_monitor.audit.bounds.bootstrap import _normal_quantiles, gather_terms
from huc_monitor.audit.decomposition import SortedRows
from huc_monitor.audit.scan import Groups
from huc_monitor.utilities.program import Floats, Ints

_BATCH = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class DrawSummary:
    """Total, lowest and highest prefix of a run: shape (C, blocks, S, 3, lanes).

    Where a bound asks for no draws there are no blocks.
    """

    prefixes: Ints

    @classmethod
    def of(
        cls,
        rows: SortedRows,
        groups: Groups,
        ids: Ints,
        units: Floats,
        *,
        seed: int,
        means: npt.NDArray[np.float32],
    ) -> DrawSummary:
        """Draw for rows in order of score; ``means`` are every draw's over all of a sample."""
        from huc_monitor._kernels import summary as kernel

        n_blocks = means.shape[1] // kernel.LANES
        n_groups, n_slots = len(groups.weights), rows.relevant.size
        roots = groups.roots
        out = np.zeros((n_groups, n_blocks, n_slots, 3, kernel.LANES), dtype=np.int64)
        terms = gather_terms(rows, groups, units) if n_blocks else []

        def work(block: int) -> None:
            lanes = slice(block * kernel.LANES, (block + 1) * kernel.LANES)
            xi = np.empty((ids.size, kernel.LANES), dtype=np.float32)
            kernel.draw_by_id(np.uint64(seed), block, _normal_quantiles(), ids, xi)
            kernel.centre_by_means(
                roots, groups.repeats, groups.sample, groups.factors, means[:, lanes], xi
            )
            for c in range(n_groups):
                kernel.draw_extremes(*terms[c], xi, out[c, block])

        list(run_tasks(work, [(block,) for block in range(n_blocks)]))
        return cls(out)

    def merge(self, other: DrawSummary) -> DrawSummary:
        """Join with the summary of rows of higher score."""
        a, b = self.prefixes, other.prefixes
        total = a[..., 0, :]
        merged = np.stack(
            [
                total + b[..., 0, :],
                np.minimum(a[..., 1, :], total + b[..., 1, :]),
                np.maximum(a[..., 2, :], total + b[..., 2, :]),
            ],
            axis=-2,
        )
        return DrawSummary(merged)

    @property
    def ranges(self) -> Ints:
        """Largest absolute interval sum of every candidate and draw, shape (C, S, draws)."""
        found = self.prefixes[..., 2, :] - self.prefixes[..., 1, :]
        n_groups, n_blocks, n_slots, lanes = found.shape
        by_candidate: Ints = found.transpose(0, 2, 1, 3).reshape(
            n_groups, n_slots, n_blocks * lanes
        )
        return by_candidate


def add_multipliers(seed: int, n_draws: int, ids: Ints, roots: npt.NDArray[np.float32]) -> Floats:
    """Sum of every draw's multipliers over some rows, lanes of the last block filled up.

    ``roots`` are those of `Groups`.
    """
    from huc_monitor._kernels import summary as kernel

    n_blocks = -(-n_draws // kernel.LANES)
    sums = np.zeros((n_blocks, kernel.LANES))

    def work(block: int) -> None:
        for lo in range(0, ids.size, _BATCH):
            chosen: Any = slice(lo, lo + _BATCH)
            xi = np.empty((ids[chosen].size, kernel.LANES), dtype=np.float32)
            kernel.draw_by_id(np.uint64(seed), block, _normal_quantiles(), ids[chosen], xi)
            kernel.add_multipliers(roots[chosen], xi, sums[block])

    list(run_tasks(work, [(block,) for block in range(n_blocks)], parallel=ids.size > 1000))
    return sums.ravel()
