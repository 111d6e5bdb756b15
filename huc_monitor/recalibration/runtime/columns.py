"""Feature columns in the one form that subgroup rules compare with.

A column has a *kind* that does not depend on how a file or a database happened to store it:
numbers are numbers whether they came as ``int8``, nullable ``Int64`` or ``Decimal`` objects.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

Kind: TypeAlias = Literal["number", "text", "boolean", "time", "zoned time"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

IN_WORDS: Final = {
    "number": "numbers",
    "text": "text",
    "boolean": "true/false values",
    "time": "times without a time zone",
    "zoned time": "times with a time zone",
}
CONVERSIONS: Final = {
    "number": "pd.to_numeric({column})",
    "text": "{column}.astype('str')",
    "boolean": "{column}.astype('boolean')",
    "time": "pd.to_datetime({column})",
    "zoned time": "pd.to_datetime({column}, utc=True)",
}

ORDER: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

# What pandas calls the content of an object column, in our words.
_INFERRED: Final[dict[str, Kind]] = {
    "string": "text",
    "boolean": "boolean",
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "number",
    "date": "time",
    "datetime": "time",
    "datetime64": "time",
}


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One feature column, ready to be compared.

    Attributes
    ----------
    name : str
        Its name in the frame.
    kind : Kind or None
        What it holds; None where every value is missing, or where `problem` says why not.
    data : ndarray or DatetimeIndex
        Numbers or times: one per row. Text or booleans: the distinct values.
    codes : ndarray of int or None
        Text or booleans: the position of each row's value in `data`, -1 where missing.
    missing : ndarray of bool
        Which rows have no value.
    source : Series or None
        The column as it was given, for messages.
    problem : str
        Why the content cannot be compared with anything; empty if it can.
    """

    name: str
    kind: Kind | None
    data: NDArray[Any] | pd.DatetimeIndex
    codes: NDArray[np.intp] | None
    missing: NDArray[np.bool_]
    source: pd.Series[Any] | None
    problem: str = ""

    def content(self) -> str:
        """Say in words what the column holds, with the first value as evidence."""
        if self.problem:
            return self.problem
        if self.kind is None:
            return "missing values only"
        row = int(np.argmin(self.missing))
        value = self.data[0] if self.source is None else self.source.iloc[row]
        plain = value.item() if isinstance(value, np.generic) else value
        return f"{IN_WORDS[self.kind]} (row {row}: {plain!r})"

    def conversion(self, kind: str, *, argument: str) -> str:
        """Write the call that turns the column into another kind."""
        # pd.to_numeric leaves booleans as they are.
        call = "{column}.astype('float64')" if self.kind == "boolean" else CONVERSIONS["number"]
        call = call if kind == "number" else CONVERSIONS[kind]
        if (self.kind, kind) == ("zoned time", "time"):
            call = CONVERSIONS["zoned time"] + ".dt.tz_localize(None)"
        return call.format(column=f"{argument}[{self.name!r}]")

    def compare(self, op: str, value: Any) -> NDArray[np.bool_]:
        """Mark the rows where a comparison is known to hold; none where the value is missing."""
        if op == "is missing":
            return self.missing.copy()
        if op == "is present":
            return ~self.missing
        if self.kind is None:
            return np.zeros(len(self.missing), dtype=bool)
        items = value if isinstance(value, list) else [value]
        if self.codes is not None:
            # Decide once per distinct value; the appended False answers for code -1, missing.
            positive = op in {"==", "in"}
            table = np.array([*((item in items) == positive for item in self.data), False])
            return np.asarray(table[self.codes])
        if isinstance(self.data, pd.DatetimeIndex):
            items = [pd.Timestamp(item) for item in items]
        if op in ORDER:
            return np.asarray(ORDER[op](self.data, items[0]), dtype=bool)
        inside = np.zeros(len(self.missing), dtype=bool)
        for item in items:
            inside |= np.asarray(self.data == item, dtype=bool)
        return inside if op in {"==", "in"} else ~(inside | self.missing)


def to_column(name: str, series: pd.Series[Any]) -> Column:
    """Put one series into comparable form; the series itself is left alone."""
    missing = series.isna().to_numpy(dtype=bool)
    if missing.all():
        # A window without a single value: whatever the dtype says, there is nothing to compare.
        return Column(name, None, np.empty(0), None, missing, series)
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _from_categories(name, series, missing)
    if types.is_bool_dtype(dtype):
        return _coded(name, "boolean", series, missing)
    if types.is_complex_dtype(dtype):
        return _unusable(name, series, missing, f"the dtype {dtype}")
    if types.is_numeric_dtype(dtype):
        return _numbers(name, series, missing)
    if types.is_datetime64_any_dtype(dtype):
        return _times(name, series, missing)
    if types.is_string_dtype(dtype) and dtype != np.dtype(object):
        return _coded(name, "text", series, missing)
    return _from_objects(name, series, missing)


def _from_categories(name: str, series: pd.Series[Any], missing: NDArray[np.bool_]) -> Column:
    # The categories are few: find their form once and hand it to the rows.
    categories = to_column(name, pd.Series(series.cat.categories))
    codes = np.asarray(series.cat.codes, dtype=np.intp)
    if categories.kind is None:
        return _unusable(name, series, missing, categories.problem)
    if categories.codes is not None:
        rows = np.append(categories.codes, -1)[codes]
        return Column(name, categories.kind, categories.data, rows, missing, series)
    if isinstance(categories.data, pd.DatetimeIndex):
        # An absent code becomes a missing time, as it is for every other kind.
        times = pd.DatetimeIndex(categories.data.insert(len(categories.data), pd.NaT)[codes])
        return Column(name, categories.kind, times, None, missing, series)
    numbers = np.append(categories.data.astype(np.float64), np.nan)[codes]
    return Column(name, categories.kind, numbers, None, missing, series)


def _from_objects(name: str, series: pd.Series[Any], missing: NDArray[np.bool_]) -> Column:
    objects = series.astype(object)
    inferred = types.infer_dtype(objects, skipna=True)
    kind = _INFERRED.get(inferred)
    if kind == "number":
        return _numbers(name, objects.where(~missing, np.nan).astype(np.float64), missing)
    if kind == "time":
        return _times(name, objects, missing)
    if kind is not None:
        return _coded(name, kind, objects, missing)
    if inferred.startswith("mixed"):
        return _unusable(name, series, missing, _first_clash(objects, missing))
    return _unusable(name, series, missing, f"values of type {inferred}")


def _first_clash(objects: pd.Series[Any], missing: NDArray[np.bool_]) -> str:
    rows = np.flatnonzero(~missing)
    first = objects.iloc[rows[0]]
    for row in rows:
        value = objects.iloc[row]
        if type(value) is not type(first):
            return f"mixed types (row {rows[0]}: {first!r}, row {row}: {value!r})"
    return f"values of type {type(first).__name__}"


def _numbers(name: str, series: pd.Series[Any], missing: NDArray[np.bool_]) -> Column:
    values: NDArray[Any]
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iu":
        values = series.to_numpy()
    else:
        # float64 also for narrower floats: a cut must fall on the same side however data is stored.
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    return Column(name, "number", values, None, missing, series)


def _coded(name: str, kind: Kind, series: pd.Series[Any], missing: NDArray[np.bool_]) -> Column:
    codes, values = pd.factorize(series)
    distinct = np.asarray(values, dtype=object)
    return Column(name, kind, distinct, np.asarray(codes, dtype=np.intp), missing, series)


def _times(name: str, series: pd.Series[Any], missing: NDArray[np.bool_]) -> Column:
    try:
        values = pd.DatetimeIndex(pd.to_datetime(series))
    except (ValueError, TypeError) as error:
        return _unusable(name, series, missing, f"times that cannot be compared ({error})")
    kind: Kind = "time" if values.tz is None else "zoned time"
    return Column(name, kind, values, None, missing, series)


def _unusable(
    name: str, series: pd.Series[Any], missing: NDArray[np.bool_], problem: str
) -> Column:
    return Column(name, None, np.empty(0), None, missing, series, problem)
