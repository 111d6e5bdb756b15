"""The predicate mini-language of subgroups: plain data, checked and said in words.

A predicate is ``{"column": ..., "op": ..., "value": ...}``, or ``{"and": [...]}``,
``{"or": [...]}``, ``{"not": ...}`` of predicates. It is checked once and stays plain data, never
evaluated as code: `recalibration.runtime.rules` computes who it holds for.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd

from huc_monitor._common.safe_text import distinct
from huc_monitor.errors import InvalidInputError
from huc_monitor.recalibration.runtime.columns import IN_WORDS, ORDER, Column
from huc_monitor.recalibration.runtime.rules import COMPLEMENT

Scalar: TypeAlias = bool | int | float | str
Predicate: TypeAlias = dict[str, Any]

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


def compare(column: str, op: str, value: Scalar) -> Predicate:
    """Write a comparison."""
    return {"column": column, "op": op, "value": value}


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
            return {key: _parse_parts(predicate[key], f"{where}[{key!r}]", depth)}
        if keys == {"not"}:
            return {"not": parse(predicate["not"], f"{where}['not']", depth + 1)}
    msg = (
        f"`{where}` must be {{'column': ..., 'op': ..., 'value': ...}} or a mapping with the "
        f"single key 'and', 'or' or 'not'; got {predicate!r}."
    )
    raise InvalidInputError(msg)


def _parse_parts(parts: object, where: str, depth: int) -> list[Predicate]:
    if not isinstance(parts, (list, tuple)) or not parts:
        msg = f"`{where}` must be a list of at least one predicate; got {parts!r}."
        raise InvalidInputError(msg)
    return [parse(part, f"{where}[{i}]", depth + 1) for i, part in enumerate(parts)]


def _parse_comparison(given: Mapping[Any, Any], where: str) -> Predicate:
    column, op = given["column"], given.get("op")
    if not isinstance(column, str) or not column:
        msg = (
            f"`{where}['column']` must be the name of a column; got {column!r}. "
            f"Rename columns that are not text, for example with frame.columns.astype(str)."
        )
        raise InvalidInputError(msg)
    if not isinstance(op, str) or op not in COMPLEMENT:
        choices = ", ".join(map(repr, COMPLEMENT))
        msg = f"`{where}['op']` must be one of {choices}; got {op!r}."
        raise InvalidInputError(msg)
    needs_value = not op.startswith("is ")
    if set(given) != {"column", "op"} | ({"value"} if needs_value else set()):
        rule = "'column', 'op' and 'value'" if needs_value else "'column' and 'op' only"
        got = ", ".join(map(repr, given))
        msg = f"`{where}` must have the keys {rule} with the operator {op!r}; got {got}."
        raise InvalidInputError(msg)
    if not needs_value:
        return {"column": column, "op": op}
    value = given["value"]
    if op not in {"in", "not in"}:
        return compare(column, op, to_scalar(value, f"{where}['value']"))
    if not isinstance(value, (list, tuple)) or not value:
        msg = f"`{where}['value']` must be a list of at least one value for {op!r}; got {value!r}."
        raise InvalidInputError(msg)
    scalars = [to_scalar(item, f"{where}['value'][{i}]") for i, item in enumerate(value)]
    return {"column": column, "op": op, "value": scalars}


def write_value(value: Scalar) -> str:
    """Write a value as it appears in subgroup names."""
    if isinstance(value, bool):
        return str(value).lower()
    return distinct(str(value).removesuffix("T00:00:00")) or '""'


def words(predicate: Predicate, *, nested: bool = False) -> str:
    """Say a predicate in words."""
    if "column" in predicate:
        text = f"{predicate['column']} {_IN_WORDS[predicate['op']]}"
        values = ", ".join(map(write_value, _items(predicate)))
        return f"{text} {values}" if values else text
    if "not" in predicate:
        return f"not ({words(predicate['not'])})"
    (key, parts), *_ = predicate.items()
    text = f" {key} ".join(words(part, nested=True) for part in parts)
    return f"({text})" if nested and len(parts) > 1 else text


def _items(comparison: Mapping[str, Any]) -> list[Scalar]:
    """List the values of a comparison; none for ``is missing`` and ``is present``."""
    value = comparison.get("value", [])
    return value if isinstance(value, list) else [value]


def check_kind(comparison: Mapping[str, Any], column: Column, user: str, *, argument: str) -> None:
    """Refuse a comparison that cannot mean anything, such as text with a number."""
    items = _items(comparison)
    if not items:
        return
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
    if column.codes is not None and comparison["op"] in ORDER:
        msg = (
            f"{place} must hold numbers or times for the operator {comparison['op']!r} in "
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
