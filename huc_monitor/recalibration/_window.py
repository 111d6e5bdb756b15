"""Rows being recalibrated: branch probabilities, and every moment kept current after updates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from huc_monitor._common.threads import run_tasks
from huc_monitor.audit.decomposition import SortedRows
from huc_monitor.audit.scan import Groups
from huc_monitor.recalibration._pack import CompiledTree, CompiledUtility
from huc_monitor.utilities.program import GREEDY, LEVEL, Floats, Ints

_PARALLEL_ROWS = 20_000
# A record packs the label's code below the subgroups' bits.
LABEL_BITS = 20
_MAX_BITS = 62 - LABEL_BITS


@dataclass(frozen=True, slots=True)
class BoostCandidate:
    """A candidate by index: its moment on its closed interval; ``node`` is -1 for UC."""

    utility: int
    subgroup: int
    node: int
    moment: float
    low: float
    high: float


class _UtilityState:
    """Scores, contributions and sorted order of one utility."""

    def __init__(self, compiled: CompiledUtility, labels: Ints, n_groups: int, m: int) -> None:
        paths = compiled.paths
        on_path = np.diff(paths.ptr)
        place = np.arange(paths.slot.size) - np.repeat(paths.ptr[:-1], on_path)
        width = int(on_path.max(initial=0))
        self.compiled = compiled
        self.scores = np.zeros(labels.size)
        self.width = width + 1
        self.rows = _empty_rows(labels.size, self.width)
        self.rows[0][:] = np.arange(labels.size)
        self.spare = _empty_rows(labels.size, self.width)
        # A report of several payoffs inside a branch cannot be judged by its leaves alone.
        simple = compiled.program.kind in {LEVEL, GREEDY}
        self.reported = np.zeros((labels.size if simple else 0, 2), dtype=np.int64)
        self.size = np.zeros((n_groups, compiled.relevant.size + 1), dtype=np.int64)
        self.slots = np.append(compiled.relevant, m)
        held = np.zeros(self.slots.size, dtype=np.int64)
        by_label = np.bincount(labels, minlength=on_path.size)
        np.add.at(held, paths.slot, np.repeat(by_label, on_path))
        held[-1] = labels.size
        self.slot_ptr = np.concatenate([[0], np.cumsum(held)]).astype(np.int64)
        self.ends = np.zeros(held.size, dtype=np.int64)
        self.entries = np.empty((self.slot_ptr[-1] + 1, 2), dtype=np.int64)
        self.depth = dict(zip(paths.branch.tolist(), place.tolist(), strict=True))


class BoostWindow:
    """Labelled rows whose predictions are updated step by step.

    ``sizes`` (U, C, M + 1) holds every candidate's largest absolute moment, zero where a branch is
    irrelevant; the last column is UC. After an update only the rows it changed are scored again,
    only for utilities that can see the branch, and they are merged back into the sorted order.
    """

    def __init__(
        self,
        probabilities: Floats,
        mix: float,
        labels: Ints,
        groups: Groups,
        *,
        tree: CompiledTree,
        utilities: Sequence[CompiledUtility],
        squares: bool = False,
    ) -> None:
        from huc_monitor._kernels import boost

        n = labels.size
        n_groups = len(groups.weights)
        self.tree = tree
        self.labels = labels
        self._first, self._last = tree.tree.label_slices(labels)
        self.groups = groups
        self.scale = groups.scale
        self.sized, self.mass = groups.sizes(), groups.mass
        self.state = np.empty(n * tree.n_edges)
        boost.start_state(probabilities, mix, tree.tables, self.state, 0)
        self.weights = np.vstack([w.astype(np.float64)[None, :] for w in groups.weights])
        self._factors = self._make_factors()
        self._square_factors = self._make_square_factors()
        self._who = (self._make_members() << LABEL_BITS) | labels
        self._squares = squares
        m = tree.branches.size
        self.utilities = [_UtilityState(item, labels, n_groups, m) for item in utilities]
        self.sizes = np.zeros((len(utilities), n_groups, m + 1))
        self.second = np.zeros(self.sizes.shape)
        self._moved = np.zeros(n, dtype=np.uint8)
        self._scratch = np.empty(n, dtype=np.int64)
        self.log_probability = np.zeros(n)
        everything = np.arange(n)
        self._update_log(everything, 0)
        self._refresh(everything, range(len(utilities)))

    def _make_factors(self) -> Floats:
        """Multipliers of contributions, empty when all are one."""
        plain = not self.groups.weights.real.any()
        if plain and not self.groups.repeats.size and len(self.groups.weights) <= _MAX_BITS:
            return np.empty((0, 0))
        return self.weights * self.groups.repeats if self.groups.repeats.size else self.weights

    def _make_square_factors(self) -> Floats:
        """Multipliers of squared contributions; a part of a row in a subgroup counts squared."""
        inside = self.weights**2 if self.groups.weights.real.any() else self.weights
        if self.groups.times.size:
            return inside * self.groups.square_shares
        if inside is self.weights:
            return self._factors
        return inside * self.groups.repeats if self.groups.repeats.size else inside

    def _make_members(self) -> Ints:
        """Subgroups of every row as bits, where contributions need no multiplier."""
        if self._factors.size:
            return np.zeros(self.labels.size, dtype=np.int64)
        return np.asarray(self.groups.weights.words[0], dtype=np.int64)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.labels.size)

    @property
    def huc(self) -> float:
        """Largest absolute moment of any branch."""
        return float(self.sizes[:, :, :-1].max(initial=0.0))

    @property
    def uc(self) -> float:
        """Largest absolute moment after summing over branches."""
        return float(self.sizes[:, :, -1].max(initial=0.0))

    @property
    def log_loss(self) -> float:
        """Mean negative log probability of the label, be it a leaf or a node above."""
        if self.groups.repeats.size:
            return float(-np.dot(self.log_probability, self.groups.repeats) / self.mass)
        return float(-self.log_probability.mean())

    def found(self, utility: int, subgroup: int, node: int) -> BoostCandidate:
        """Find the interval of a candidate's largest moment; node -1 is UC."""
        from huc_monitor._kernels import boost_scan

        item = self.utilities[utility]
        paths = item.compiled.paths
        inside = np.ones(paths.ptr.size - 1, dtype=np.bool_)
        if node >= 0:
            place = paths.ptr[:-1] + item.depth[node]
            inside = place < paths.ptr[1:]
            inside[inside] = paths.branch[place[inside]] == node
        total, low, high = boost_scan.locate(
            item.rows,
            self.weights[subgroup],
            self._factors[subgroup] if self._factors.size else np.empty(0),
            paths,
            inside,
            item.depth[node] if node >= 0 else -1,
        )
        moment = float(total / (self.scale * self.mass))
        return BoostCandidate(utility, subgroup, node, moment, float(low), float(high))

    def sorted_rows(self, utility: int, rows: Ints) -> SortedRows:
        """Return some rows of a utility, numbered anew, in order of score as the audit has them."""
        item = self.utilities[utility]
        number = np.full(self.n, -1, dtype=np.int64)
        number[rows] = np.arange(rows.size)
        order, scores, records = item.rows
        chosen = np.flatnonzero(number[order] >= 0)
        return SortedRows(
            item.compiled.utility,
            item.compiled.relevant,
            number[order[chosen]],
            scores[chosen],
            np.ascontiguousarray(records[chosen, 1:]),
            self.labels[order[chosen]],
            item.compiled.paths,
            self.scale,
        )

    def directions(self, found: BoostCandidate) -> tuple[Ints, Floats]:
        """Rows that an update would move, and their logit directions (node -1: all leaves)."""
        from huc_monitor._kernels import boost

        node = found.node
        item = self.utilities[found.utility]
        compiled = item.compiled
        v = max(node, 0)
        count = boost.affected_rows(
            item.scores,
            item.reported if node >= 0 else item.reported[:0],
            self.weights[found.subgroup],
            found.low,
            found.high,
            self.tree.tables.start[v],
            self.tree.tables.stop[v],
            self._scratch,
        )
        rows = self._scratch[:count]
        parts = self.tree.n_children(node) if node >= 0 else self.tree.tree.n_leaves
        out = np.empty((rows.size, parts))
        moving = rows.copy()
        count = boost.directions(
            self.state,
            moving,
            self._dense(compiled, rows),
            self.weights[found.subgroup],
            self.tree.tables,
            compiled.program,
            self.tree.branches if node < 0 else compiled.reads,
            node,
            out,
        )
        return moving[:count], out[:count]

    def curvature(self, rows: Ints, directions: Floats, node: int) -> float:
        """Curvature bound Lambda of the log loss along the directions."""
        from huc_monitor._kernels import boost

        v = max(node, 0)
        total = boost.curvature(
            directions,
            rows,
            self._first,
            self._last,
            self.groups.repeats,
            self.tree.tables.start[v],
            self.tree.tables.stop[v],
            self.scale,
        )
        return float(total / (self.scale * self.mass))

    def apply(self, rows: Ints, directions: Floats, node: int, step: float) -> None:
        """Tilt the rows and bring every moment up to date."""
        from huc_monitor._kernels import boost

        boost.apply_step(
            self.state, rows, directions, self.tree.tables, self.tree.branches, node, step
        )
        self._update_log(rows, max(node, 0))
        seen = [
            u
            for u, item in enumerate(self.utilities)
            if node < 0 or (item.compiled.reads == node).any()
        ]
        self._refresh(rows, seen)

    def leaf_probabilities(self, rows: Ints | None = None) -> Floats:
        """Return the current probabilities of the leaves."""
        from huc_monitor._kernels import boost

        # In one order in memory: kernels are compiled once for each.
        chosen = np.arange(self.n) if rows is None else np.ascontiguousarray(rows)
        out = np.empty((chosen.size, self.tree.tree.n_leaves))
        boost.leaf_rows(self.state, chosen, self.tree.tables, self.tree.branches, out)
        return out

    def _update_log(self, rows: Ints, v: int) -> None:
        """Bring log probabilities up to date after branch v changed for some rows."""
        from huc_monitor._kernels import boost

        boost.label_edges_log(
            self.state,
            rows,
            self.labels,
            self._first,
            self._last,
            self.tree.tables.start[v],
            self.tree.tables.stop[v],
            self.tree.n_edges,
            self.tree.edge_ptr,
            self.tree.edges,
            self.log_probability,
        )

    def _dense(self, compiled: CompiledUtility, rows: Ints) -> Floats:
        if not compiled.is_dense:
            return np.zeros((1, 1))
        values = compiled.utility.dense_values(self.leaf_probabilities(rows), self.tree.tree)
        assert values is not None  # noqa: S101 - a dense program comes with values
        return values

    def _refresh(self, rows: Ints, utilities: Sequence[int]) -> None:
        """Score some rows again and measure all candidates of the utilities that see a change.

        In three stages, so that two threads find work even when one utility is concerned.
        """
        dense = any(self.utilities[u].compiled.is_dense for u in utilities)
        run = _one_by_one if self.n < _PARALLEL_ROWS or dense else run_tasks
        half = rows.size // 2 if run is run_tasks else 0
        n_groups = len(self.weights)
        self._moved[rows] = 1
        fresh = {
            u: np.zeros((rows.size, self.utilities[u].width), dtype=np.int64) for u in utilities
        }
        spans = [(0, half), (half, rows.size)] if half else [(0, rows.size)]
        list(
            run(
                self._score,
                [(u, rows[lo:hi], fresh[u][lo:hi]) for u in utilities for lo, hi in spans],
            )
        )
        list(run(self._sort, [(u, rows, fresh[u]) for u in utilities]))
        blocks = [(c, min(c + 4, n_groups)) for c in range(0, n_groups, 4)]
        list(run(self._measure, [(u, *block) for u in utilities for block in blocks]))
        self._moved[rows] = 0

    def _score(self, u: int, rows: Ints, records: Ints) -> None:
        from huc_monitor._kernels import boost

        item = self.utilities[u]
        compiled = item.compiled
        boost.refresh_rows(
            self.state,
            rows,
            self._dense(compiled, rows),
            self.tree.tables,
            compiled.program,
            compiled.reads,
            compiled.paths,
            self.scale,
            self._who,
            item.scores,
            item.reported,
            records,
        )

    def _sort(self, u: int, rows: Ints, records: Ints) -> None:
        from huc_monitor._kernels import boost_scan, sort_order

        item = self.utilities[u]
        paths = item.compiled.paths
        scores = item.scores[rows]
        ties = boost_scan.merge_rows(
            item.rows, self._moved, rows, sort_order(scores), scores, records, item.spare
        )
        item.rows, item.spare = item.spare, item.rows
        plain = not self._factors.size
        boost_scan.deal(item.rows, ties, paths, item.slot_ptr, plain, item.entries, item.ends)
        if self._squares:
            squares = np.zeros((len(self.weights), item.slots.size - 1), dtype=np.int64)
            boost_scan.square_totals(item.rows, self._square_factors, paths, self.scale, squares)
            self.second[u][:, item.slots[:-1]] = squares / (0.5 * self.scale * self.mass)

    def _measure(self, u: int, first: int, last: int) -> None:
        from huc_monitor._kernels import boost_scan

        item = self.utilities[u]
        boost_scan.measure(
            item.entries, item.slot_ptr, item.ends, self._factors, first, last, item.size
        )
        sizes = item.size[first:last] / (self.scale * self.mass)
        self.sizes[u, first:last, item.slots] = sizes.T


def _empty_rows(n: int, width: int) -> tuple[Ints, Floats, Ints]:
    """Room for row numbers, scores and records in order of score."""
    return np.empty(n, dtype=np.int64), np.empty(n), np.empty((n, width), dtype=np.int64)


def _one_by_one(function: Any, arguments: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    for task in arguments:
        yield function(*task)
