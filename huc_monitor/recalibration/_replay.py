"""Applying a fitted recalibrator to new rows: the serving path."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from huc_monitor._common.threads import run_tasks
from huc_monitor.audit.inputs import INTERIOR_MIX, Predictions, block_spans
from huc_monitor.errors import UnknownNameError
from huc_monitor.recalibration._pack import CompiledTree, CompiledUtility, pack_programs
from huc_monitor.recalibration._scalings import Scaling
from huc_monitor.recalibration._stage import tree_tables, utility_tables
from huc_monitor.recalibration._updates import Update
from huc_monitor.recalibration.runtime.replay import Replay, Tree
from huc_monitor.recalibration.runtime.stage import mix
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats, Ints


class Steps(NamedTuple):
    """Updates as the kernel reads them; ``width`` is the most parts any of them moves."""

    subgroup: Ints
    utility: Ints
    low: Floats
    high: Floats
    node: Ints
    step: Floats
    width: int


class Replayer:
    """An initial scaling and an ordered list of updates, compiled for one tree.

    Every row is treated by itself: its result has the same bits alone, in a batch, or during the
    fit. The input is not modified.
    """

    def __init__(
        self,
        updates: Sequence[Update],
        *,
        tree: LabelTree,
        utilities: Sequence[Utility],
        subgroups: Subgroups,
        initial: Scaling | None,
        interior: float = INTERIOR_MIX,
    ) -> None:
        used = [u for u in utilities if any(update.utility == u.name for update in updates)]
        groups = list(dict.fromkeys(update.subgroup for update in updates))
        self.tree = CompiledTree.of(tree)
        self.subgroups = subgroups
        self.initial = initial
        self.interior = interior
        self.steps = _compile_steps(updates, tree, [u.name for u in used], groups, subgroups)
        self._groups = [subgroups.names.index(name) for name in groups]
        self._needs_features = any(c > 0 for c in self._groups)
        compiled = [CompiledUtility.of(utility, tree) for utility in used]
        self._pack = pack_programs(compiled, tree)
        self._by_numpy: Replay | None = None
        if any(item.is_dense for item in compiled):  # only Python can evaluate the utility
            plain = [update.to_dict() for update in updates]
            tables = [
                {**utility_tables(u, tree), "function": partial(u.dense_values, tree=tree)}
                for u in used
            ]
            self._by_numpy = Replay(Tree(tree_tables(tree)), tables, plain, groups)

    def start(self, predictions: Predictions) -> tuple[Floats, float]:
        """Probabilities before the first update, and the share of uniform still to be mixed in."""
        matrix = np.ascontiguousarray(predictions.dense(), dtype=np.float64)
        if self.initial is None:
            return matrix, self.interior
        mixed = self.initial.predict_proba(mix(matrix, self.interior))
        return np.ascontiguousarray(mixed, dtype=np.float64), 0.0

    def run(self, predictions: Predictions, features: Any) -> Floats:
        """Recalibrated probabilities of checked predictions, a new array."""
        matrix, share = self.start(predictions)
        n = matrix.shape[0]
        if self._needs_features:
            weights = self.subgroups.weights_in(self._groups, features, n)
        else:
            weights = np.ones((len(self._groups), n))
        return self.update(matrix, weights, share)

    def update(self, matrix: Floats, weights: Floats, share: float = 0.0) -> Floats:
        """Mix in a share of uniform, and apply all updates; `weights` (G, n) as they name them."""
        if self._by_numpy is not None:
            done: Floats = self._by_numpy.apply(mix(matrix, share), weights)
            return done
        from huc_monitor._kernels.replay import replay_rows

        def replay(part: Floats, weights: Floats, out: Floats) -> None:
            tables = self.tree.tables
            replay_rows(part, share, _NO_VALUES, weights, tables, self._pack, self.steps, out)

        n = matrix.shape[0]
        out = np.empty_like(matrix)
        if n <= _ONE_CALL_ROWS:
            replay(matrix, weights, out)
            return out

        def work(lo: int, hi: int) -> None:
            part = matrix[lo:hi]
            order = _kindred(part, weights[:, lo:hi])
            done = np.empty_like(part)
            replay(part[order], np.ascontiguousarray(weights[:, lo + order]), done)
            out[lo + order] = done

        list(run_tasks(work, _pieces(n, matrix.shape[1])))
        return out


_NO_VALUES = np.zeros((1, 1))
_ONE_CALL_ROWS = 512


def _kindred(matrix: Floats, weights: Floats) -> Ints:
    """Order in which rows that the same updates move lie side by side, leaving fewer idle lanes.

    Alike are rows with the same likeliest leaf, the same subgroups and a similar confidence. Each
    row's result is its own, so the order changes no bit.
    """
    leaf = matrix.argmax(axis=1)
    kind = leaf.astype(np.int64)
    for mine in weights[:40]:
        kind = kind * 2 + (mine != 0)
    return np.lexsort((matrix[np.arange(leaf.size), leaf], kind))


def _pieces(n: int, n_columns: int) -> list[tuple[int, int]]:
    """Row ranges that stay in cache, at least two so that two threads can share a small batch."""
    spans = list(block_spans(n, n_columns))
    if len(spans) > 1:
        return spans
    middle = n // 2 // 16 * 16
    return [(0, middle), (middle, n)]


def _compile_steps(
    updates: Sequence[Update],
    tree: LabelTree,
    utilities: list[str],
    groups: list[str],
    subgroups: Subgroups,
) -> Steps:
    for position, update in enumerate(updates):
        for what, name, known in (
            ("utility", update.utility, utilities),
            ("subgroup", update.subgroup, subgroups.names),
        ):
            if name not in known:
                msg = (
                    f"`updates` must name a known {what}; got {name!r} (update {position}). "
                    f"Known: {', '.join(map(repr, known))}."
                )
                raise UnknownNameError(msg)
    nodes = [-1 if u.node is None else tree.branch_index(u.node) for u in updates]
    arrays = tree.arrays
    width = int(np.diff(arrays.child_ptr).max(initial=1))
    if -1 in nodes:
        width = max(width, tree.n_leaves)
    return Steps(
        np.array([groups.index(u.subgroup) for u in updates], dtype=np.int64),
        np.array([utilities.index(u.utility) for u in updates], dtype=np.int64),
        np.array([u.interval_low for u in updates], dtype=np.float64),
        np.array([u.interval_high for u in updates], dtype=np.float64),
        np.array(nodes, dtype=np.int64),
        np.array([u.step for u in updates], dtype=np.float64),
        width,
    )
