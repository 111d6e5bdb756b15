"""Subgroup rules: who counts, by frozen rules on feature columns.

A rule is ``{"column": ..., "op": ..., "value": ...}``, or ``{"and": [...]}``, ``{"or": [...]}``,
``{"not": ...}`` of rules, or ``{"weight": column}``. A comparison with a missing value is neither
true nor false, and neither is its negation; ``and`` and ``or`` are true or false as soon as their
known parts decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import reduce
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .columns import IN_WORDS, Column, to_column

COMPLEMENT: Final = {
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
EVERYONE: Final = "all"
_OFFSET: Final = r"(?:Z|[+-]\d\d:?\d\d)$"


class Comparable(Protocol):
    """What rules compare with values: a column, or what tells its values apart as rules do."""

    def compare(self, op: str, value: Any) -> NDArray[np.bool_]:
        """Mark where a comparison is known to hold."""


def comparisons(rule: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Iterate over the comparisons that a rule is made of; a weight has none."""
    if "column" in rule:
        yield rule
    for part in rule.get("and") or rule.get("or") or ([rule["not"]] if "not" in rule else ()):
        yield from comparisons(part)


def columns_of(rule: Mapping[str, Any]) -> list[str]:
    """List the columns that a rule reads."""
    return [rule["weight"]] if "weight" in rule else [c["column"] for c in comparisons(rule)]


def holds(
    rule: Mapping[str, Any],
    columns: Mapping[str, Comparable],
    *,
    truth: bool = True,
    known: dict[Any, NDArray[np.bool_]] | None = None,
) -> NDArray[np.bool_]:
    """Mark the rows where a rule is known to have that truth value.

    Rows where it is neither true nor false, because values are missing, are marked by neither
    ``truth=True`` nor ``truth=False``: that is how negation passes by missing values. Rules that
    share ``known``, empty at first, make each comparison once; marks are then shared as well.
    """
    if known is None:
        known = {}
    if "column" in rule:
        op = rule["op"] if truth else COMPLEMENT[rule["op"]]
        key = compared(rule, op)
        if key not in known:
            known[key] = columns[rule["column"]].compare(op, rule.get("value"))
        return known[key]
    if "not" in rule:
        return holds(rule["not"], columns, truth=not truth, known=known)
    combine = np.logical_and if ("and" in rule) == truth else np.logical_or
    parts = rule.get("and") or rule["or"]
    return reduce(combine, (holds(part, columns, truth=truth, known=known) for part in parts))


def compared(comparison: Mapping[str, Any], op: str) -> tuple[str, str, str]:
    """Return what tells comparisons apart."""
    # Written out, since 1 equals true in Python.
    return comparison["column"], op, repr(comparison.get("value"))


def weights_of(column: Column) -> tuple[NDArray[np.float64], int]:
    """Return a column of weights, 0 where missing, and the first row outside [-1, 1] or -1."""
    if column.kind is None:
        return np.zeros(len(column.missing)), -1
    values = np.where(column.missing, 0.0, np.asarray(column.data, dtype=np.float64))
    outside = ~(np.abs(values) <= 1.0)
    return values, int(np.argmax(outside)) if outside.any() else -1


class Rules:
    """The subgroups that updates name, in the order in which updates number them.

    Parameters
    ----------
    family : dict
        JSON form of the subgroups.
    names : list of str
        Those that updates name.
    """

    def __init__(self, family: dict[str, Any], names: list[str]) -> None:
        known = {entry["name"]: entry["rule"] for entry in family["subgroups"]}
        self.names = names
        self.rules = {name: known[name] for name in names if name != EVERYONE}
        self.kinds: dict[str, str] = family["columns"]
        needed = (column for rule in self.rules.values() for column in columns_of(rule))
        self.columns = sorted(set(needed))

    def weights(self, frame: Any, n: int) -> NDArray[np.float64]:
        """Weight of every row in every subgroup, shape (G, n)."""
        out = np.ones((len(self.names), n))
        if not self.columns:
            return out
        columns = self._read(frame, n)
        known: dict[Any, NDArray[np.bool_]] = {}
        for place, name in enumerate(self.names):
            rule = self.rules.get(name)
            if rule is None:
                continue
            if "weight" not in rule:
                out[place] = holds(rule, columns, known=known)
                continue
            out[place], bad = weights_of(columns[rule["weight"]])
            if bad >= 0:
                msg = (
                    f"The column {rule['weight']!r} must be in [-1, 1], being the weight "
                    f"{name!r}; got {out[place, bad]} (row {bad})."
                )
                raise ValueError(msg)
        return out

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
        known = {str(name) for name in frame.columns}
        absent = [name for name in self.columns if name not in known]
        if absent:
            users = [name for name, rule in self.rules.items() if absent[0] in columns_of(rule)]
            msg = (
                f"The input must have the columns {', '.join(map(repr, absent))}; they are "
                f"missing, and the subgroups of this model need them ({absent[0]!r}: "
                f"{', '.join(map(repr, users[:3]))}). Add them to every request."
            )
            raise ValueError(msg)

    def _read(self, frame: Any, n: int) -> dict[str, Column]:
        if n == 1 and isinstance(frame, pd.DataFrame):
            found = self._read_one(frame)
            if found is not None:
                return found
        self.check(frame)
        return {name: self._column(name, frame[name]) for name in self.columns}

    def _read_one(self, frame: pd.DataFrame) -> dict[str, Column] | None:
        """Read a single row without the cost of columns; None where it is not plain enough."""
        # By position: looking a name up makes pandas index all names, for every request anew.
        names = frame.columns.tolist()
        found = {}
        for name in self.columns:
            if names.count(name) != 1:
                return None
            value = frame.iat[0, names.index(name)]  # noqa: PD009 - a fifth of the cost of iloc
            column = _one_value(name, value, self.kinds.get(name))
            if column is None:
                return None
            found[name] = column
        return found

    def _column(self, name: str, series: Any) -> Column:
        """Read a column as the kind it had when the model was recalibrated."""
        kind, column = self.kinds.get(name), to_column(name, series)
        if kind is None or (column.kind in {kind, None} and not column.problem):
            return column
        converted = _converted(column, series, kind)
        if converted is not None and converted.kind == kind:
            return converted
        msg = (
            f"The column {name!r} must hold {IN_WORDS[kind]}, as it did when the model was "
            f"recalibrated; got {column.content()}."
        )
        raise ValueError(msg)


def _converted(column: Column, series: Any, kind: str) -> Column | None:
    """Convert what requests in JSON bring: times as text, numbers as objects.

    Numbers are no times, since nobody says in which unit they count, and true is no number.
    """
    try:
        if kind == "number" and column.kind != "boolean":
            return to_column(column.name, series.astype(np.float64))
        if kind.endswith("time") and (column.kind == "text" or _are_times(series)):
            return to_column(column.name, _times(series, zoned=kind == "zoned time"))
    except (TypeError, ValueError):
        return None
    return None


def _are_times(series: Any) -> bool:
    return all(isinstance(value, datetime) for value in series.dropna())


def _times(series: Any, *, zoned: bool) -> Any:
    """Read times in any of the spellings of ISO 8601, of which each may have an offset of its own.

    With a zone, an offset must be there: a text without one could mean any place.
    """
    text = series.dropna().astype(str)
    if zoned and not text.str.contains(_OFFSET).all():
        raise ValueError
    return pd.to_datetime(series, format="ISO8601", utc=zoned)


_PRESENT, _ABSENT = np.array([False]), np.array([True])
_FIRST = np.array([0])


def _one_value(name: str, value: Any, kind: str | None) -> Column | None:
    """Make a column of one plain value of the kind expected; None for the long way."""
    if kind == "number" and isinstance(value, float | np.floating):
        missing = _ABSENT if math.isnan(value) else _PRESENT
        return Column(name, "number", np.array([float(value)]), None, missing, None)
    if kind == "number" and isinstance(value, int | np.integer) and not isinstance(value, bool):
        return Column(name, "number", np.array([value]), None, _PRESENT, None)
    if kind == "text" and type(value) is str:
        return Column(name, "text", np.array([value], dtype=object), _FIRST, _PRESENT, None)
    if kind == "boolean" and isinstance(value, bool | np.bool_):
        return Column(name, "boolean", np.array([bool(value)]), _FIRST, _PRESENT, None)
    return None
