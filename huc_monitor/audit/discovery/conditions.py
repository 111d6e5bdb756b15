"""Conditions on single features: what a search for subgroups combines."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, Final

import numpy as np
import pandas as pd

from huc_monitor.subgroups._columns import read_columns
from huc_monitor.subgroups._predicates import Predicate, compare, to_scalar, write_value
from huc_monitor.utilities.program import Floats, Ints

_MOST_VALUES: Final = 50
_FEW_NUMBERS: Final = 10
_CUTS: Final = 11
_FINE_CUTS: Final = np.union1d(np.arange(1, 10) / 10, np.arange(1, 64) / 64)
_DIGITS: Final = 4
_MOST_DIGITS: Final = 17
_STEPS: Final = (3_600_000_000, 60_000_000, 1_000_000, 1_000)  # microseconds

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """One condition: its rule as subgroups write it, its name, and the rows it holds for.

    Its price is the logarithm of how many of its kind a feature has.
    """

    column: str
    rule: Predicate
    name: str
    mask: Mask
    price: float


@dataclass(frozen=True, slots=True, eq=False)
class Ordered:
    """A column of numbers or times, its cut points, and the bin between them of each row."""

    name: str
    cuts: Floats
    bins: Ints  # -1 where the value is missing
    is_time: bool
    zone: dt.tzinfo | None = None

    def price(self, n_ends: int) -> float:
        """Return the price of a range with one or two ends.

        It counts few of the cut points: neighbours divide nearly the same rows.
        """
        n_cuts = min(self.cuts.size, _CUTS)
        return math.log(2 * n_cuts if n_ends == 1 else n_cuts**2)

    def between(self, low: int, high: int) -> Condition:
        """Make the condition that a value lies in the bins low to high (not in all bins)."""
        parts: list[Predicate] = []
        shown = ["", ""]
        if low > 0:
            parts.append(compare(self.name, ">=", self._cut(low - 1)))
            shown[0] = write_value(self._cut(low - 1))
        if high < self.cuts.size:
            parts.append(compare(self.name, "<", self._cut(high)))
            shown[1] = write_value(self._cut(high))
        inside: Mask = (self.bins >= low) & (self.bins <= high)
        price = self.price(len(parts))
        if len(parts) == 2:
            text = f"{shown[0]}<={self.name}<{shown[1]}"
            return Condition(self.name, {"and": parts}, text, inside, price)
        text = f"{self.name}>={shown[0]}" if shown[0] else f"{self.name}<{shown[1]}"
        return Condition(self.name, parts[0], text, inside, price)

    def _cut(self, place: int) -> Any:
        cut: Any = self.cuts[place]
        if self.is_time:
            cut = pd.Timestamp(int(cut), unit="us", tz=self.zone)
        return to_scalar(cut, self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Feature:
    """A column's conditions, and the cells of rows that none of them divides.

    A condition is meant by its value, its first and last bin, or None: that a value is missing.
    """

    name: str
    ordered: Ordered | None
    of_row: Ints  # each row's cell
    meant: list[Any]
    holds: Floats  # (conditions, cells): 1 where a condition holds
    prices: Floats  # of the conditions

    def condition(self, place: int) -> Condition:
        """Write out one of the conditions."""
        meant = self.meant[place]
        if self.ordered is not None and isinstance(meant, tuple):
            return self.ordered.between(*meant)
        rule, text = compare(self.name, "==", meant), f"{self.name}={write_value(meant)}"
        if meant is None:
            rule, text = {"column": self.name, "op": "is missing"}, f"{self.name} is missing"
        mask = self.holds[place].astype(bool)[self.of_row]
        return Condition(self.name, rule, text, mask, float(self.prices[place]))


def comparable(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the columns as rules compare them, named by text, and notes on the others.

    Numbers are numbers and times are times, however a file or a database stored them.
    """
    notes: list[str] = []
    numbered = [label for label in frame.columns if not isinstance(label, str)]
    if numbered:
        notes.append(
            f"rules name columns by text: the column {numbered[0]!r} is {str(numbered[0])!r} in "
            "them; before you use them, set features.columns = features.columns.astype(str)"
        )
        frame = frame.set_axis([str(label) for label in frame.columns], axis=1)
    needed = dict.fromkeys(frame.columns, "the search")
    columns = read_columns(frame, needed, len(frame), argument="features")
    notes += [
        f"column {name!r} was left out, because rules cannot compare {column.problem}; "
        "make numbers, text, true/false values or times of it"
        for name, column in columns.items()
        if column.problem
    ]
    kept = {
        name: frame[name] if column.kind is None or column.codes is not None else column.data
        for name, column in columns.items()
        if not column.problem
    }
    return pd.DataFrame(kept, index=frame.index), notes


def read_features(frame: pd.DataFrame, min_rows: int) -> tuple[list[Feature], list[str]]:
    """Return every column's conditions that divide the rows, and notes on what is left out."""
    features: list[Feature] = []
    notes: list[str] = []
    for label, column in frame.items():
        name = str(label)
        n_values = column.nunique()
        if not n_values:
            notes.append(f"column {name!r} has no values and was left out")
            continue
        kind = _kind(column)
        if kind is None and n_values > _MOST_VALUES:
            notes.append(
                f"column {name!r} has {n_values:,} different values and was left out; "
                "give its length, a prefix or a group of them as a column of its own"
            )
            continue
        ordered = None
        if kind is not None and n_values > 2:
            ordered = _ordered(name, column, is_time=kind == "time")
        few = kind is None or n_values <= _FEW_NUMBERS
        of_row, meant, holds, prices = _cells(name, column, ordered, few=few)
        n_rows = holds @ np.bincount(of_row, minlength=holds.shape[1])
        kept = np.flatnonzero((n_rows >= min_rows) & (n_rows <= len(frame) - min_rows))
        if not kept.size:
            notes.append(
                f"column {name!r} was left out: no value or range of it has at least "
                f"{min_rows:,} of the {len(frame):,} searched rows on both of its sides"
            )
            continue
        meant = [meant[place] for place in kept.tolist()]
        features.append(Feature(name, ordered, of_row, meant, holds[kept], prices[kept]))
    return features, notes


def _kind(column: pd.Series[Any]) -> str | None:
    if pd.api.types.is_bool_dtype(column):
        return None
    if pd.api.types.is_datetime64_any_dtype(column):
        return "time"
    return "number" if pd.api.types.is_numeric_dtype(column) else None


def _cells(
    name: str, column: pd.Series[Any], ordered: Ordered | None, *, few: bool
) -> tuple[Ints, list[Any], Floats, Floats]:
    """Divide the rows by values, or by about ten cut points, and list what holds in which cell."""
    firsts = np.zeros(1, dtype=int)
    if ordered is not None:
        places = np.linspace(0, ordered.cuts.size - 1, _CUTS).astype(int)
        firsts = np.append(firsts, np.unique(places) + 1)
    unique: Any = []
    if few:
        of_row, unique = pd.factorize(column)
    elif ordered is not None:
        of_row = np.searchsorted(firsts, ordered.bins, side="right") - 1
    cells = np.arange((len(unique) if few else firsts.size) + 1)
    # Rules name no infinity.
    finite = [k for k, value in enumerate(unique) if value not in {math.inf, -math.inf}]
    place_of = {to_scalar(unique[k], name): k for k in finite}
    meant: list[Any] = [None, *sorted(place_of, key=write_value)]
    holds = [cells == cells[-1], *(cells == place_of[value] for value in meant[1:])]
    prices = [math.log(max(2, len(place_of)))] * len(meant)
    if ordered is not None:
        bins = np.full(cells.size, -1)
        bins[of_row] = ordered.bins
        lasts = np.append(firsts[1:] - 1, ordered.cuts.size).tolist()
        for low, high in combinations_with_replacement(range(firsts.size), 2):
            if high - low < firsts.size - 1:
                meant.append((int(firsts[low]), lasts[high]))
                holds.append((bins >= firsts[low]) & (bins <= lasts[high]))
                prices.append(ordered.price((low > 0) + (high < firsts.size - 1)))
    of_row = np.where(of_row < 0, cells[-1], of_row)
    return of_row, meant, np.array(holds, dtype=np.float64), np.array(prices)


def _ordered(name: str, column: pd.Series[Any], *, is_time: bool) -> Ordered:
    zone = None
    if is_time:
        times = pd.DatetimeIndex(column).as_unit("us")
        zone = times.tz
        values = np.where(times.isna(), np.nan, times.asi8.astype(np.float64))
    else:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    # Cut points are values of the column, so that whole numbers are cut at whole numbers.
    cuts = np.quantile(values[np.isfinite(values)], _FINE_CUTS, method="higher")
    cuts = _rounded(cuts, is_time=is_time)
    bins = np.where(np.isnan(values), -1, np.searchsorted(cuts, values, side="right"))
    return Ordered(name, cuts, bins, is_time, zone)


def _rounded(cuts: Floats, *, is_time: bool) -> Floats:
    """Round cut points to full hours, or to few digits; finer where too few would stay apart."""
    n_apart = np.unique(cuts).size
    for step in _STEPS if is_time else range(_DIGITS, _MOST_DIGITS):
        if is_time:
            found = np.unique(np.round(cuts / step) * step)
        else:
            found = np.unique([float(f"{cut:.{step}g}") for cut in cuts])
        if 2 * found.size >= n_apart:
            return found
    return np.unique(cuts)
