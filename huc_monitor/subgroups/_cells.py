"""Rules evaluated once per combination of values that they tell apart, not once per row."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor.recalibration.runtime.columns import ORDER, Column
from huc_monitor.recalibration.runtime.rules import comparisons, holds
from huc_monitor.subgroups._memberships import Words, pack_bits

# With more combinations than this, only those that rows have are looked at.
_MOST_CELLS: Final = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """A column as far as rules tell its values apart: a whole number for each row, or cell.

    ``places`` has the numbers of the values that rules name: 2, 4, 6 and so on, in ascending order
    where values have one. Odd numbers are other values, 2k + 1 those below the number 2k + 2 and
    above the one before it; 0 is a missing value.
    """

    places: Mapping[Any, int]
    codes: NDArray[Any]

    @classmethod
    def of(cls, column: Column, items: Sequence[Any]) -> Levels:
        """Give every row of a column the number of its value, among those that rules name."""
        if column.kind is None or column.codes is not None:
            places = {item: 2 * k + 2 for k, item in enumerate(items)}
            if column.codes is None:
                return cls(places, (~column.missing).view(np.uint8))
            kind = np.min_scalar_type(2 * len(items) + 2)
            table = np.array([*(places.get(value, 1) for value in column.data), 0], dtype=kind)
            return cls(places, table[column.codes])
        timed = isinstance(column.data, pd.DatetimeIndex)
        values = {item: pd.Timestamp(item) if timed else item for item in items}
        ordered = sorted(set(values.values()))
        codes = np.ones(len(column.missing), dtype=np.min_scalar_type(2 * len(ordered) + 2))
        for value in ordered:
            codes += np.asarray(column.data >= value)
            codes += np.asarray(column.data > value)
        codes[column.missing] = 0
        numbers = {value: 2 * k + 2 for k, value in enumerate(ordered)}
        return cls({item: numbers[value] for item, value in values.items()}, codes)

    @property
    def size(self) -> int:
        """How many numbers there may be."""
        return max(self.places.values(), default=0) + 2

    def compare(self, op: str, value: Any) -> NDArray[np.bool_]:
        """Mark where a comparison is known to hold, as `Column.compare` does."""
        if op == "is missing":
            return np.asarray(self.codes == 0)
        present = np.asarray(self.codes > 0)
        if op == "is present":
            return present
        wanted = [self.places[item] for item in _items(value)]
        if op in ORDER:
            return np.asarray(present & ORDER[op](self.codes, wanted[0]), dtype=bool)
        inside = np.isin(self.codes, wanted)
        return inside if op in {"==", "in"} else present & ~inside


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Combinations of the levels of columns; ``codes`` says which one every row has.

    ``kept`` has, for every column, its level in each combination that rows have; None where there
    are so few that all are listed, in the order of `numpy.unravel_index`.
    """

    levels: Mapping[str, Levels]
    codes: NDArray[np.uint32]
    kept: Mapping[str, NDArray[Any]] | None

    @classmethod
    def of(cls, levels: Mapping[str, Levels], n: int) -> Cells:
        """Combine the levels of columns."""
        codes: NDArray[Any] = np.zeros(n, dtype=np.uint32)
        size = 1
        kept: dict[str, NDArray[Any]] | None = None
        for place, (name, level) in enumerate(levels.items()):
            codes *= level.size
            codes += level.codes
            if kept is None and size * level.size <= _MOST_CELLS:
                size *= level.size
                continue
            before = _combine(list(levels.items())[:place]) if kept is None else kept
            codes, found = pd.factorize(codes)
            first, last = np.divmod(found, level.size)
            kept = {other: numbers[first] for other, numbers in before.items()} | {name: last}
        return cls(levels, codes.astype(np.uint32, copy=False), kept)

    def table(self, rules: Sequence[Mapping[str, Any]], known: dict[Hashable, Words]) -> Words:
        """Bits of every combination: the first for all rows, then one for each rule.

        Where all combinations are listed, they depend on no row, and `known` keeps them.
        """
        key = tuple(tuple(level.places.items()) for level in self.levels.values())
        if self.kept is not None:
            return pack_bits(self._marks(rules))
        if key not in known:
            known[key] = pack_bits(self._marks(rules))
        return known[key]

    def _marks(self, rules: Iterable[Mapping[str, Any]]) -> list[NDArray[np.uint8]]:
        """Mark, for every rule, the combinations that it holds for; first, all of them."""
        columns = _combine(list(self.levels.items())) if self.kept is None else self.kept
        each = {name: Levels(self.levels[name].places, codes) for name, codes in columns.items()}
        size = next((codes.size for codes in columns.values()), 1)
        known: dict[Any, NDArray[np.bool_]] = {}
        marked = [holds(rule, each, known=known).view(np.uint8) for rule in rules]
        return [np.ones(size, dtype=np.uint8), *marked]


def _combine(levels: Sequence[tuple[str, Levels]]) -> dict[str, NDArray[Any]]:
    """List all combinations of levels: for every column, its level in each."""
    sizes = [level.size for _, level in levels]
    numbers = np.indices(sizes).reshape(len(sizes), math.prod(sizes))
    return {name: codes for (name, _), codes in zip(levels, numbers, strict=True)}


def named_values(rules: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """List the values that rules compare each column with, each once."""
    found: dict[str, dict[Any, None]] = {}
    for one in chain.from_iterable(map(comparisons, rules)):
        values = found.setdefault(one["column"], {})
        values.update(dict.fromkeys(_items(one["value"]) if "value" in one else ()))
    return {name: list(values) for name, values in found.items()}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
