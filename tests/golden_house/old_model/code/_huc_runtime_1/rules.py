"""Subgroup weights from feature columns, by the frozen rules that travel with the model.

A comparison with a missing value is neither true nor false, and neither is its negation.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_COMPLEMENT = {
    "==": "!=",
    "!=": "==",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "in": "not in",
    "not in": "in",
    "is missing": "is present",
    "is present": "is missing",
}
_TEXT = "text", "boolean"


class Rules:
    """The subgroups that updates name, in the order in which updates number them."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.names: list[str] = data["names"]
        self.rules: list[Any] = data["rules"]
        self.kinds: dict[str, str] = data["columns"]
        self.columns = sorted({name for rule in self.rules for name in _columns(rule)})

    def weights(self, frame: Any, n: int) -> Any:
        """Weight of every row in every subgroup, shape (G, n)."""
        if n == 1 and self.columns and isinstance(frame, pd.DataFrame):
            found = self._of_one(frame)
            if found is not None:
                return np.array(found)[:, None]
        out = np.ones((len(self.rules), n))
        if not self.columns:
            return out
        columns = self._read(frame)
        for place, rule in enumerate(self.rules):
            if rule is None:  # everyone
                continue
            if "weight" in rule:
                out[place] = self._number_weight(columns[rule["weight"]], self.names[place])
            else:
                out[place] = _holds(rule, columns, truth=True)
        return out

    def _of_one(self, frame: Any) -> list[float] | None:
        """Weigh a single row without the cost of columns; None where it is not plain enough."""
        row: dict[str, Any] = {}
        # By position: looking a name up makes pandas index all names, for every request anew.
        names = frame.columns.tolist()
        for name in self.columns:
            if names.count(name) != 1:
                return None
            value = frame.iat[0, names.index(name)]  # noqa: PD009 - a fifth of the cost of iloc
            plain = _plain(value, self.kinds.get(name))
            if plain is _NOT_PLAIN:
                return None
            row[name] = plain
        found: list[float] = []
        for rule in self.rules:
            if rule is None:
                found.append(1.0)
            elif "weight" in rule:
                value = row[rule["weight"]]
                if value is not None and not -1.0 <= value <= 1.0:
                    return None  # the long way says which
                found.append(0.0 if value is None else float(value))
            else:
                found.append(float(_is(rule, row, truth=True)))
        return found

    def missing_from(self, names: Any) -> list[str]:
        """Columns that are needed and not there."""
        known = {str(name) for name in names}
        return [name for name in self.columns if name not in known]

    def check(self, frame: Any) -> None:
        """Refuse an input that lacks a column, naming it and who needs it."""
        if not self.columns:
            return
        if not isinstance(frame, pd.DataFrame):
            needed = ", ".join(map(repr, self.columns))
            msg = (
                f"The input must be a table with the columns {needed}, which the subgroups of this "
                f"model need; got {type(frame).__name__}. Pass a DataFrame."
            )
            raise ValueError(msg)  # noqa: TRY004 - servers answer a ValueError with "bad request"
        absent = self.missing_from(frame.columns)
        if absent:
            users = [self.names[i] for i, rule in enumerate(self.rules) if _uses(rule, absent[0])]
            msg = (
                f"The input must have the columns {', '.join(map(repr, absent))}; they are "
                f"missing, and the subgroups of this model need them ({absent[0]!r}: "
                f"{', '.join(map(repr, users[:3]))}). Add them to every request."
            )
            raise ValueError(msg)

    def _read(self, frame: Any) -> dict[str, _Column]:
        self.check(frame)
        return {name: _Column(name, frame[name], self.kinds.get(name)) for name in self.columns}

    def _number_weight(self, column: _Column, name: str) -> Any:
        values = np.where(column.missing, 0.0, np.asarray(column.values, dtype=np.float64))
        bad = np.flatnonzero(~(np.abs(values) <= 1.0))
        if bad.size:
            msg = (
                f"The column {column.name!r} must be in [-1, 1], being the weight {name!r}; "
                f"got {values[bad[0]]} (row {bad[0]})."
            )
            raise ValueError(msg)
        return values


_NOT_PLAIN = object()


def _plain(value: Any, kind: str | None) -> Any:
    """Return a number, text or truth value as Python's own, None if missing."""
    if kind == "text":
        if isinstance(value, str):
            return value
    elif kind == "boolean":
        if isinstance(value, bool | np.bool_):
            return bool(value)
    elif kind in {"number", None}:
        if isinstance(value, float | np.floating):
            return None if math.isnan(value) else float(value)
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            return int(value)
        if kind is None:
            return _NOT_PLAIN
    else:
        return _NOT_PLAIN
    missing = value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))
    return None if missing else _NOT_PLAIN


def _is(rule: Any, row: dict[str, Any], *, truth: bool) -> bool:
    """Say whether a rule is known to have that truth value for one row."""
    if "not" in rule:
        return _is(rule["not"], row, truth=not truth)
    if "column" not in rule:
        parts = rule.get("and", rule.get("or"))
        combine = all if ("and" in rule) == truth else any
        return combine(_is(part, row, truth=truth) for part in parts)
    op = rule["op"] if truth else _COMPLEMENT[rule["op"]]
    value = row[rule["column"]]
    if op in {"is missing", "is present"}:
        return (value is None) == (op == "is missing")
    if value is None:
        return False
    wanted = rule.get("value")
    items = wanted if isinstance(wanted, list) else [wanted]
    if op in _ORDER:
        return bool(_ORDER[op](value, items[0]))
    return (value in items) == (op in {"==", "in"})


class _Column:
    """One column in the form its kind compares by."""

    def __init__(self, name: str, series: Any, kind: str | None) -> None:
        self.name = name
        self.kind = kind
        self.codes: Any = None
        if kind in {"number", None} and series.dtype.kind in "fiu":
            # What nearly every request has, without the cost of asking pandas.
            self.values = series.to_numpy()
            self.values = (
                self.values.astype(np.float64) if series.dtype.kind == "f" else self.values
            )
            self.missing = self.values != self.values
            return
        self.missing = series.isna().to_numpy(dtype=bool)
        try:
            self.values = self._convert(series)
        except (TypeError, ValueError) as error:
            msg = (
                f"The column {name!r} must hold a {kind}, as it did when the model was "
                f"recalibrated; got {series.dtype} ({error})."
            )
            raise ValueError(msg) from error

    def _convert(self, series: Any) -> Any:
        if self.missing.all() or self.kind is None:
            return series
        if self.kind == "number":
            return series.astype(object).where(~self.missing, np.nan).astype(np.float64).to_numpy()
        if self.kind in _TEXT:
            found = types.infer_dtype(series, skipna=True)
            if found != ("string" if self.kind == "text" else "boolean"):
                msg = f"values of type {found}"
                raise TypeError(msg)
            self.codes, distinct = pd.factorize(series)
            return list(distinct)
        times = pd.DatetimeIndex(pd.to_datetime(series))
        if (times.tz is None) != (self.kind == "time"):
            msg = "a time zone is missing, or there is one too many"
            raise ValueError(msg)
        return times

    def compare(self, op: str, value: Any) -> Any:
        """Mark the rows where the comparison is known to hold."""
        if op in {"is missing", "is present"}:
            return self.missing == (op == "is missing")
        if self.missing.all():
            return np.zeros(len(self.missing), dtype=bool)
        items = value if isinstance(value, list) else [value]
        if self.kind in {"time", "zoned time"}:
            items = [pd.Timestamp(item) for item in items]
        if op in _ORDER:
            return np.asarray(_ORDER[op](self.values, items[0]), dtype=bool)
        if self.kind in _TEXT:
            # Decide once per distinct value; the appended False answers for code -1, missing.
            inside = np.array([*(item in items for item in self.values), False])[self.codes]
        else:
            inside = np.zeros(len(self.missing), dtype=bool)
            for item in items:
                inside |= np.asarray(self.values == item, dtype=bool)
        return (inside if op in {"==", "in"} else ~inside) & ~self.missing


def _holds(rule: Any, columns: dict[str, _Column], *, truth: bool) -> Any:
    """Mark the rows where a rule is known to have that truth value."""
    if "column" in rule:
        op = rule["op"] if truth else _COMPLEMENT[rule["op"]]
        return columns[rule["column"]].compare(op, rule.get("value"))
    if "not" in rule:
        return _holds(rule["not"], columns, truth=not truth)
    parts = rule.get("and", rule.get("or"))
    combine = np.logical_and if ("and" in rule) == truth else np.logical_or
    found = [_holds(part, columns, truth=truth) for part in parts]
    return combine.reduce(found)


def _columns(rule: Any) -> set[str]:
    if rule is None:
        return set()
    if "weight" in rule:
        return {rule["weight"]}
    if "column" in rule:
        return {rule["column"]}
    if "not" in rule:
        return _columns(rule["not"])
    return set().union(*(_columns(part) for part in rule.get("and", rule.get("or"))))


def _uses(rule: Any, column: str) -> bool:
    return column in _columns(rule)
