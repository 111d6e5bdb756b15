"""Which rows belong to which subgroups: every row has a cell, and every cell its subgroups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt
import pandas as pd

Cells = npt.NDArray[np.uint32]
Words = npt.NDArray[np.uint64]
Weights = npt.NDArray[np.uint8] | npt.NDArray[np.float64]

WORD: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Memberships(Sequence[Weights]):
    """Weights of every row in every subgroup; an item is made when it is asked for.

    Rows that belong to the same subgroups may share a cell: what depends on subgroups alone is then
    done once per cell, not once per row.

    Attributes
    ----------
    cells : (n,) the cell of every row
    table : (ceil(m / 64), cells) which of the m indicators a cell belongs to, 64 bits to a number
    real : (C,) which subgroups have real-valued weights
    values : (C - m, n) those weights, in the order of their subgroups

    Examples
    --------
    >>> found = Memberships.of([np.array([0, 1, 1], np.uint8), np.array([0.5, 0.0, -1.0])])
    >>> found.cells, found.table, found[0]
    (array([0, 1, 1], dtype=uint32), array([[0, 1]], dtype=uint64), array([0, 1, 1], dtype=uint8))
    """

    cells: Cells
    table: Words
    real: npt.NDArray[np.bool_]
    values: npt.NDArray[np.float64]

    @classmethod
    def of(cls, weights: Sequence[np.ndarray[Any, Any]]) -> Memberships:
        """Pack arrays of weights: uint8 for indicators, float64 for others."""
        if isinstance(weights, Memberships):
            return weights
        real = np.array([weight.dtype != np.uint8 for weight in weights], dtype=bool)
        indicators = [weight for weight in weights if weight.dtype == np.uint8]
        n = weights[0].size if len(weights) else 0
        values = [weight for weight in weights if weight.dtype != np.uint8]
        words = pack_bits(indicators) if indicators else np.empty((0, n), dtype=np.uint64)
        return cls(*_share_cells(words), real, stack_values(values, n))

    @classmethod
    def from_bytes(
        cls, bits: npt.NDArray[np.uint8], real: Sequence[bool], values: npt.NDArray[np.float64]
    ) -> Memberships:
        """Read what `to_bytes` wrote."""
        n_words = -(-bits.shape[1] // 8)
        whole = np.zeros((len(bits), 8 * n_words), dtype=np.uint8)
        whole[:, : bits.shape[1]] = bits
        cells, table = _share_cells(whole.view("<u8").T.astype(np.uint64, copy=False))
        return cls(cells, table, np.array(real, dtype=bool), np.ascontiguousarray(values))

    def to_bytes(self) -> npt.NDArray[np.uint8]:
        """Bits of every row, in as few bytes as hold them: shape (n, bytes)."""
        n_bytes = -(-int(np.count_nonzero(~self.real)) // 8)
        words = np.ascontiguousarray(self.words.T).astype("<u8", copy=False)
        return words.view(np.uint8)[:, :n_bytes]

    @classmethod
    def joined(cls, parts: Sequence[Memberships]) -> Memberships:
        """Put the rows of several windows one after the other."""
        tables: list[Words] = []
        places = [_place_of(part.table, tables) for part in parts]
        starts = np.cumsum([0, *(table.shape[1] for table in tables)])
        pairs = zip(parts, places, strict=True)
        cells = [part.cells + np.uint32(starts[place]) for part, place in pairs]
        values = np.concatenate([part.values for part in parts], axis=1)  # noqa: PD011 - no pandas
        return cls(np.concatenate(cells), np.concatenate(tables, axis=1), parts[0].real, values)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.cells.size)

    @property
    def words(self) -> Words:
        """Bits of every row: shape (ceil(m / 64), n)."""
        return self.table.take(self.cells, axis=1)

    def take(self, rows: Any) -> Memberships:
        """Return the same subgroups on some of the rows."""
        values = np.ascontiguousarray(self.values[:, rows])
        return Memberships(self.cells[rows], self.table, self.real, values)

    def __len__(self) -> int:
        return int(self.real.size)

    @overload
    def __getitem__(self, place: int) -> Weights: ...
    @overload
    def __getitem__(self, place: slice) -> list[Weights]: ...
    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[c] for c in range(*place.indices(len(self)))]
        c = range(len(self))[place]
        n_real = int(np.count_nonzero(self.real[:c]))
        if self.real[c]:
            return self.values[n_real]
        word, bit = divmod(c - n_real, WORD)
        inside = (self.table[word] >> np.uint64(bit)).astype(np.uint8) & 1
        return inside.take(self.cells)


def _share_cells(words: Words) -> tuple[Cells, Words]:
    """Give every row a cell, which it shares with all rows of the same bits."""
    n = words.shape[1]
    cells = np.zeros(n, dtype=np.int64)
    for word in words:
        codes, found = pd.factorize(word)
        cells = pd.factorize(cells * found.size + codes)[0] if cells.any() else codes
    example = np.empty(cells.max(initial=-1) + 1, dtype=np.int64)
    example[cells] = np.arange(n)
    return cells.astype(np.uint32), np.ascontiguousarray(words[:, example])


def _place_of(table: Words, tables: list[Words]) -> int:
    """Find a table among others; it is added where it is not there."""
    for place, other in enumerate(tables):
        if table is other or np.array_equal(table, other):
            return place
    tables.append(table)
    return len(tables) - 1


def stack_values(values: Sequence[np.ndarray[Any, Any]], n: int) -> npt.NDArray[np.float64]:
    """Real-valued weights of n rows, one row of the array for each subgroup."""
    return np.array(values, dtype=np.float64).reshape(len(values), n)


def pack_bits(indicators: Sequence[npt.NDArray[np.uint8]]) -> Words:
    """Bits of one or more indicators of n rows, 64 to a number: shape (words, n)."""
    n = indicators[0].size
    words = np.zeros((-(-len(indicators) // WORD), n), dtype="<u8")
    # Eight subgroups at a time, in bytes: that is an eighth of the memory to go through.
    eighths = words.view(np.uint8).reshape(len(words), n, 8)
    taken = np.empty(n, dtype=np.uint8)
    for first in range(0, len(indicators), 8):
        taken[:] = 0
        for weight in indicators[first : first + 8][::-1]:
            np.add(taken, taken, out=taken)
            np.bitwise_or(taken, weight, out=taken)
        eighths[first // WORD, :, first % WORD // 8] = taken
    return words.astype(np.uint64, copy=False)
