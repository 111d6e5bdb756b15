"""The predicate mini-language of subgroups: plain data in, row indicators out.

A predicate is ``{"column": ..., "op": ..., "value": ...}``, or ``{"and": [...]}``,
``{"or": [...]}``, ``{"not": ...}`` of predicates. It is parsed into the small classes below and
never evaluated as code. A comparison with a missing value is neither true nor false, and
neither is its negation; ``and`` and ``or`` are true or false as soon as their known parts decide.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor._common.safe_text import distinct
from huc_monitor.errors import InvalidInputError
from huc_monitor.subgroups._columns import IN_WORDS, Column

Scalar: TypeAlias = bool | int | float | str
Mask: TypeAlias = NDArray[np.bool_]

_ORDER: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPLEMENT: Final = {
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
_IN_WORDS: Final = {
    "==": "is",
    "!=": "is not",
    "<": "is below",
    "<=": "is at most",
    ">": "is above",
    ">=": "is at least",
    "in": "is one of",
    "not in": "is none of",
    "is missing": "is missing",
    "is present": "is present",
}
_MAX_DEPTH: Final = 32
_ISO_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column op value``; `value` is a tuple for ``in`` / ``not in``, None for ``is ...``."""

    column: str
    op: str
    value: Scalar | tuple[Scalar, ...] | None = None


@dataclass(frozen=True, slots=True)
class Every:
    """True where all parts are (``and``)."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """True where at least one part is (``or``)."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """True where the part is false (``not``); a missing value is neither."""

    part: Predicate


Predicate: TypeAlias = Comparison | Every | Either | Negation


def to_scalar(value: object, where: str) -> Scalar:
    """Normalise one value to what JSON can hold: numpy scalars to Python's, times to ISO text."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating, Decimal)) and math.isfinite(value):
        number = float(value)
        # 65.0 and 65 are the same cut: one spelling keeps names and files stable.
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    if isinstance(value, (dt.date, np.datetime64)) and not pd.isna(value):
        return str(pd.Timestamp(value).isoformat())
    msg = (
        f"`{where}` must be a finite number, text, true/false or a time; got {value!r}. "
        f"For missing values write the operator 'is missing'."
    )
    raise InvalidInputError(msg)


def parse(predicate: object, where: str, depth: int = 0) -> Predicate:
    """Turn plain data into a predicate, or say where it is malformed."""
    if depth > _MAX_DEPTH:
        msg = f"`{where}` must be nested at most {_MAX_DEPTH} deep. Flatten the predicate."
        raise InvalidInputError(msg)
    keys = set(predicate) if isinstance(predicate, Mapping) else set()
    if isinstance(predicate, Mapping):
        if "column" in keys:
            return _parse_comparison(predicate, where)
        if keys in ({"and"}, {"or"}):
            key = str(keys.pop())
            parts = _parse_parts(predicate[key], f"{where}[{key!r}]", depth)
            return Every(parts) if key == "and" else Either(parts)
        if keys == {"not"}:
            return Negation(parse(predicate["not"], f"{where}['not']", depth + 1))
    msg = (
        f"`{where}` must be {{'column': ..., 'op': ..., 'value': ...}} or a mapping with the "
        f"single key 'and', 'or' or 'not'; got {predicate!r}."
    )
    raise InvalidInputError(msg)


def _parse_parts(parts: object, where: str, depth: int) -> tuple[Predicate, ...]:
    if not isinstance(parts, (list, tuple)) or not parts:
        msg = f"`{where}` must be a list of at least one predicate; got {parts!r}."
        raise InvalidInputError(msg)
    return tuple(parse(part, f"{where}[{i}]", depth + 1) for i, part in enumerate(parts))


def _parse_comparison(given: Mapping[Any, Any], where: str) -> Comparison:
    column, op = given["column"], given.get("op")
    if not isinstance(column, str) or not column:
        msg = (
            f"`{where}['column']` must be the name of a column; got {column!r}. "
            f"Rename columns that are not text, for example with frame.columns.astype(str)."
        )
        raise InvalidInputError(msg)
    if not isinstance(op, str) or op not in _COMPLEMENT:
        choices = ", ".join(map(repr, _COMPLEMENT))
        msg = f"`{where}['op']` must be one of {choices}; got {op!r}."
        raise InvalidInputError(msg)
    needs_value = not op.startswith("is ")
    if set(given) != {"column", "op"} | ({"value"} if needs_value else set()):
        rule = "'column', 'op' and 'value'" if needs_value else "'column' and 'op' only"
        got = ", ".join(map(repr, given))
        msg = f"`{where}` must have the keys {rule} with the operator {op!r}; got {got}."
        raise InvalidInputError(msg)
    if not needs_value:
        return Comparison(column, op)
    value = given["value"]
    if op not in {"in", "not in"}:
        return Comparison(column, op, to_scalar(value, f"{where}['value']"))
    if not isinstance(value, (list, tuple)) or not value:
        msg = f"`{where}['value']` must be a list of at least one value for {op!r}; got {value!r}."
        raise InvalidInputError(msg)
    scalars = [to_scalar(item, f"{where}['value'][{i}]") for i, item in enumerate(value)]
    return Comparison(column, op, tuple(scalars))


def to_plain(predicate: Predicate) -> dict[str, Any]:
    """Write a predicate as the plain data that `parse` reads."""
    match predicate:
        case Comparison(column, op, None):
            return {"column": column, "op": op}
        case Comparison(column, op, tuple(values)):
            return {"column": column, "op": op, "value": list(values)}
        case Comparison(column, op, value):
            return {"column": column, "op": op, "value": value}
        case Every(parts):
            return {"and": [to_plain(part) for part in parts]}
        case Either(parts):
            return {"or": [to_plain(part) for part in parts]}
        case Negation(part):
            return {"not": to_plain(part)}


def comparisons(predicate: Predicate) -> Iterator[Comparison]:
    """Iterate over the comparisons a predicate is made of."""
    match predicate:
        case Comparison():
            yield predicate
        case Every(parts) | Either(parts):
            for part in parts:
                yield from comparisons(part)
        case Negation(part):
            yield from comparisons(part)


def _items(value: Scalar | tuple[Scalar, ...] | None) -> tuple[Scalar, ...]:
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def write_value(value: Scalar) -> str:
    """Write a value as it appears in subgroup names."""
    if isinstance(value, bool):
        return str(value).lower()
    return distinct(str(value).removesuffix("T00:00:00")) or '""'


def words(predicate: Predicate, *, nested: bool = False) -> str:
    """Say a predicate in words."""
    match predicate:
        case Comparison(column, op, None):
            return f"{column} {_IN_WORDS[op]}"
        case Comparison(column, op, value):
            values = _items(value)
            return f"{column} {_IN_WORDS[op]} {', '.join(map(write_value, values))}"
        case Every(parts) | Either(parts):
            joint = " and " if isinstance(predicate, Every) else " or "
            text = joint.join(words(part, nested=True) for part in parts)
            return f"({text})" if nested and len(parts) > 1 else text
        case Negation(part):
            return f"not ({words(part)})"


def holds(predicate: Predicate, columns: Mapping[str, Column], *, value: bool = True) -> Mask:
    """Mark the rows where a predicate is known to have the given truth value.

    Rows where it is neither true nor false, because values are missing, are marked by neither
    ``value=True`` nor ``value=False``: that is how negation passes by missing values.
    """
    match predicate:
        case Comparison():
            op = predicate.op if value else _COMPLEMENT[predicate.op]
            return _compare(columns[predicate.column], op, predicate.value)
        case Every(parts) | Either(parts):
            combine = np.logical_and if isinstance(predicate, Every) == value else np.logical_or
            result = holds(parts[0], columns, value=value)
            for part in parts[1:]:
                result = combine(result, holds(part, columns, value=value))
            return result
        case Negation(part):
            return holds(part, columns, value=not value)


def _compare(column: Column, op: str, value: Scalar | tuple[Scalar, ...] | None) -> Mask:
    if op == "is missing":
        return column.missing.copy()
    if op == "is present":
        return ~column.missing
    if column.kind is None:
        return np.zeros(len(column.missing), dtype=bool)
    items: tuple[Any, ...] = _items(value)
    if column.codes is not None:
        # Decide once per distinct value; the appended False answers for code -1, missing.
        chosen = np.array([item in items for item in column.data], dtype=bool)
        table = np.append(chosen if op in {"==", "in"} else ~chosen, False)
        rows: Mask = table[column.codes]
        return rows
    if isinstance(column.data, pd.DatetimeIndex):
        items = tuple(pd.Timestamp(item) for item in items)
    if op in _ORDER:
        return np.asarray(_ORDER[op](column.data, items[0]), dtype=bool)
    inside = np.zeros(len(column.missing), dtype=bool)
    for item in items:
        inside |= np.asarray(column.data == item, dtype=bool)
    return inside if op in {"==", "in"} else ~(inside | column.missing)


def check_kind(comparison: Comparison, column: Column, user: str, *, argument: str) -> None:
    """Refuse a comparison that cannot mean anything, such as text with a number."""
    if comparison.value is None:
        return
    items = _items(comparison.value)
    place = f"`{argument}[{column.name!r}]`"
    if column.problem:
        msg = (
            f"{place} must hold values of one kind for {user}; got "
            f"{column.problem}. Convert it to numbers, text, true/false or times."
        )
        raise InvalidInputError(msg)
    for item in items if column.kind else ():
        wanted = _kind_of(item, column)
        if wanted != column.kind:
            remedy = f"Compare with {IN_WORDS[str(column.kind)]}"
            if wanted in {"number", "text"}:
                remedy += f", or convert: {column.conversion(wanted, argument=argument)}"
            if wanted == "boolean":
                remedy += "; in YAML, quote words such as 'yes' and 'no'"
            msg = (
                f"{place} must hold {IN_WORDS[wanted]} to be compared with {item!r} in "
                f"{user}; got {column.content()}. {remedy}."
            )
            raise InvalidInputError(msg)
    if column.codes is not None and comparison.op in _ORDER:
        msg = (
            f"{place} must hold numbers or times for the operator {comparison.op!r} in "
            f"{user}; got {column.content()}. Use '==' or 'in', or convert the column."
        )
        raise InvalidInputError(msg)


def _kind_of(value: Scalar, column: Column) -> str:
    if isinstance(value, bool):
        return "boolean"
    if not isinstance(value, str):
        return "number"
    if not isinstance(column.data, pd.DatetimeIndex):
        return "text"
    # Only full ISO dates: pandas would also read "now", whose meaning changes by the minute.
    if not _ISO_DATE.match(value):
        return "text"
    try:
        zone = pd.Timestamp(value).tzinfo
    except ValueError:
        return "text"
    return "time" if zone is None else "zoned time"
