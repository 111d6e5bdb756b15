"""Subgroups as bits: one pass over a utility's rows serves up to 64 of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from huc_monitor._common.threads import n_threads, run_tasks
from huc_monitor.subgroups import WORD, Cells, Words
from huc_monitor.utilities.program import Floats, Ints

if TYPE_CHECKING:
    from huc_monitor.audit.decomposition import SortedRows
    from huc_monitor.audit.scan import Groups

# Cells of state that a pass keeps: they stay in a core's own cache.
_STATE_CELLS: Final = 1 << 12
_PARALLEL_ROWS: Final = 50_000


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """Some subgroups' rows of a utility, in order of score.

    ``cells`` are those of the rows, and bit k of ``table[cell]`` says that the cell belongs to
    ``groups[k]``; ``values`` are contributions times the weight, which is one for several
    subgroups.
    """

    groups: Ints
    cells: Cells
    table: Words
    values: Ints

    @property
    def bits(self) -> Words:
        """Bits of every row."""
        return self.table.take(self.cells)

    def positions(self, k: int) -> Ints:
        """Sorted positions of the rows of ``groups[k]``."""
        from huc_monitor import _kernels

        found = np.empty(self.cells.size, dtype=np.int64)
        return found[: _kernels.select_rows(self.cells, self.table, k, found)]


def pack_tasks(rows: SortedRows, groups: Groups, amounts: Floats) -> list[Callable[[], Pack]]:
    """Return what makes every pack of a utility's rows.

    ``amounts`` multiply contributions, in the order of the caller's rows; empty where they are 1.
    Indicators share contributions weighed once; a real-valued weight makes a pack of its own.
    """
    from huc_monitor import _kernels

    def weigh(weights: np.ndarray[Any, Any]) -> Ints:
        values = np.empty_like(rows.values)
        _kernels.weigh_values(rows.order, rows.values, weights, amounts, values)
        return values

    indicators, shared = np.flatnonzero(~groups.weights.real), rows.values
    cells = np.empty_like(groups.weights.cells)
    if indicators.size:
        _kernels.gather(rows.order, groups.weights.cells, cells)
        if amounts.size:
            shared = weigh(np.ones(amounts.size, dtype=np.uint8))

    def several(first: int, last: int) -> Pack:
        table = groups.weights.table[first // WORD] >> np.uint64(first % WORD)
        if last < indicators.size and last % WORD:
            table &= np.uint64((1 << (last - first)) - 1)
        return Pack(indicators[first:last], cells, table, shared)

    def single(c: int) -> Pack:
        weights = groups.weights[c]
        inside = (weights[rows.order] != 0).astype(np.uint32)
        return Pack(np.array([c]), inside, np.arange(2, dtype=np.uint64), weigh(weights))

    most = max(1, _STATE_CELLS // (rows.relevant.size + 1))
    if rows.order.size >= _PARALLEL_ROWS:
        most = min(most, -(-indicators.size // n_threads()))
    tasks: list[Callable[[], Pack]] = [
        lambda first=first, last=last: several(first, last)  # type: ignore[misc]
        for first, last in _cuts(indicators.size, most)
    ]
    tasks += [lambda c=c: single(c) for c in np.flatnonzero(groups.weights.real).tolist()]  # type: ignore[misc]
    return tasks


def each_pack(
    rows: SortedRows, groups: Groups, work: Callable[[Pack], None], amounts: Floats | None = None
) -> None:
    """Call ``work`` with every pack of a utility's rows, side by side where these are many.

    ``amounts`` are those of the groups when left out.
    """
    tasks = pack_tasks(rows, groups, groups.amounts if amounts is None else amounts)
    parallel = rows.order.size >= _PARALLEL_ROWS
    list(run_tasks(lambda make: work(make()), [(make,) for make in tasks], parallel=parallel))


def _cuts(n: int, most: int) -> Iterator[tuple[int, int]]:
    """Cut n subgroups into ranges of at most `most`, each within one 64-bit word."""
    for start in range(0, n, WORD):
        stop = min(start + WORD, n)
        for first in range(start, stop, most):
            yield first, min(first + most, stop)
