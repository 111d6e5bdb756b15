"""Conditions on single features: what a search for subgroups combines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from huc_monitor.subgroups._predicates import Predicate, compare, to_scalar, write_value
from huc_monitor.utilities.program import Floats, Ints

_MOST_VALUES: Final = 50
_FEW_NUMBERS: Final = 10
_CUTS: Final = np.arange(1, 10) / 10
_FINE_CUTS: Final = np.arange(1, 64) / 64
_DIGITS: Final = 4

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """One condition: its rule as subgroups write it, its name, and the rows it holds for."""

    column: str
    rule: Predicate
    name: str
    mask: Mask


@dataclass(frozen=True, slots=True, eq=False)
class Ordered:
    """A column of numbers or times: its values as floats (missing is NaN), and fine cut points."""

    name: str
    values: Floats
    cuts: Floats
    is_time: bool

    def bins(self) -> Ints:
        """Return how many cut points lie at or below each value; missing values have -1."""
        found = np.searchsorted(self.cuts, self.values, side="right")
        return np.where(np.isnan(self.values), -1, found)

    def between(self, low: int, high: int) -> Condition | None:
        """Hold for the bins low..high; None where that is every row with a value."""
        parts: list[Predicate] = []
        shown = ["", ""]
        inside = ~np.isnan(self.values)
        if low > 0:
            parts.append(compare(self.name, ">=", self._cut(low - 1)))
            shown[0] = write_value(self._cut(low - 1))
            inside &= self.values >= self.cuts[low - 1]
        if high < self.cuts.size:
            parts.append(compare(self.name, "<", self._cut(high)))
            shown[1] = write_value(self._cut(high))
            inside &= self.values < self.cuts[high]
        if not parts:
            return None
        if len(parts) == 2:
            return Condition(
                self.name, {"and": parts}, f"{shown[0]}<={self.name}<{shown[1]}", inside
            )
        text = f"{self.name}>={shown[0]}" if shown[0] else f"{self.name}<{shown[1]}"
        return Condition(self.name, parts[0], text, inside)

    def _cut(self, place: int) -> Any:
        cut = self.cuts[place]
        return to_scalar(pd.Timestamp(int(cut)) if self.is_time else cut, self.name)


def read_conditions(
    frame: pd.DataFrame, min_rows: int
) -> tuple[list[Condition], dict[str, Ordered], list[str]]:
    """List the conditions of every column, its fine cut points, and notes on what is left out."""
    conditions: list[Condition] = []
    ordered: dict[str, Ordered] = {}
    notes: list[str] = []
    for name, column in frame.items():
        text = str(name)
        missing = column.isna().to_numpy(dtype=bool)
        if missing.any():
            rule = {"column": text, "op": "is missing"}
            conditions.append(Condition(text, rule, f"{text} is missing", missing))
        values = column[~missing]
        kind = _kind(column)
        few = values.nunique() <= (_FEW_NUMBERS if kind else _MOST_VALUES)
        if few:
            conditions += _values(text, column)
        elif kind is None:
            notes.append(
                f"column {text!r} has {values.nunique():,} different values and was left out; "
                "give its length, a prefix or a group of them as a column of its own"
            )
            continue
        if kind is not None and values.nunique() > 2:
            ordered[text] = _ordered(text, column, is_time=kind == "time")
            conditions += _sides(ordered[text])
    kept = [c for c in conditions if min_rows <= c.mask.sum() <= c.mask.size - min_rows]
    return kept, ordered, notes


def _kind(column: pd.Series[Any]) -> str | None:
    if pd.api.types.is_bool_dtype(column):
        return None
    if pd.api.types.is_datetime64_any_dtype(column):
        return "time"
    return "number" if pd.api.types.is_numeric_dtype(column) else None


def _values(name: str, column: pd.Series[Any]) -> list[Condition]:
    found = []
    for value in column.dropna().unique():
        scalar = to_scalar(value, name)
        mask = (column == value).fillna(value=False).to_numpy(dtype=bool)
        rule = compare(name, "==", scalar)
        found.append(Condition(name, rule, f"{name}={write_value(scalar)}", mask))
    return sorted(found, key=lambda condition: condition.name)


def _ordered(name: str, column: pd.Series[Any], *, is_time: bool) -> Ordered:
    if is_time:
        plain = pd.DatetimeIndex(column).tz_localize(None).as_unit("ns")
        values = np.where(plain.isna(), np.nan, plain.asi8.astype(np.float64))
    else:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    present = values[np.isfinite(values)]
    cuts = np.quantile(present, np.union1d(_CUTS, _FINE_CUTS))
    if is_time:
        hour = 3.6e12
        cuts = np.round(cuts / hour) * hour
    else:
        cuts = np.array([float(f"{cut:.{_DIGITS}g}") for cut in cuts])
    return Ordered(name, values, np.unique(cuts), is_time)


def _sides(column: Ordered) -> list[Condition]:
    """Both sides of about ten cut points."""
    places = np.unique(np.linspace(0, column.cuts.size - 1, _CUTS.size + 2).astype(int))
    sides = [
        side
        for place in places.tolist()
        for side in (column.between(0, place), column.between(place + 1, column.cuts.size))
    ]
    return [side for side in sides if side is not None]
