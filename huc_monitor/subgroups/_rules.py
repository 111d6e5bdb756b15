"""One subgroup's rule, a predicate or a weight column: reading, writing and evaluating it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from huc_monitor.errors import InvalidInputError
from huc_monitor.recalibration.runtime.columns import Column
from huc_monitor.recalibration.runtime.rules import (
    columns_of,
    compared,
    comparisons,
    weights_of,
)
from huc_monitor.subgroups._predicates import Predicate, parse, words

# A predicate, or {"weight": column}: a real-valued weight read from a column.
Rule: TypeAlias = Predicate


def read_weights(
    name: str, rule: Rule, columns: Mapping[str, Column], argument: str
) -> NDArray[np.float64]:
    """Read the column of a real-valued weight."""
    column = columns[rule["weight"]]
    if column.problem or column.kind not in {"number", None}:
        remedy = column.conversion("number", argument=argument)
        msg = (
            f"`{argument}[{column.name!r}]` must hold numbers in [-1, 1], being the weight "
            f"{name!r}; got {column.content()}. Convert it, for example with {remedy}."
        )
        raise InvalidInputError(msg)
    values, row = weights_of(column)
    if row >= 0:
        msg = (
            f"`{argument}[{column.name!r}]` must be finite and in [-1, 1], being the weight "
            f"{name!r}; got {values[row]} (row {row}). Divide by the largest possible size."
        )
        raise InvalidInputError(msg)
    return values


def needed_columns(rules: Iterable[tuple[str, Rule]]) -> dict[str, str]:
    """Columns that rules read, each with the first subgroup that needs it."""
    return _first_users((column, name) for name, rule in rules for column in columns_of(rule))


def compared_columns(rules: Iterable[tuple[str, Rule]]) -> dict[str, str]:
    """Columns whose values matter, not only whether they are missing."""
    pairs = []
    for name, rule in rules:
        compared = [c["column"] for c in comparisons(rule) if "value" in c]
        pairs += [(column, name) for column in ([rule["weight"]] if "weight" in rule else compared)]
    return _first_users(pairs)


def distinct_comparisons(
    rules: Iterable[tuple[str, Rule]],
) -> list[tuple[Mapping[str, Any], str]]:
    """Comparisons that rules make, each with the first subgroup that makes it."""
    found: dict[Any, tuple[Mapping[str, Any], str]] = {}
    for name, rule in rules:
        for one in comparisons(rule):
            found.setdefault(compared(one, one["op"]), (one, f"the subgroup {name!r}"))
    return list(found.values())


def _first_users(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    users: dict[str, str] = {}
    for column, name in pairs:
        users.setdefault(column, f"the subgroup {name!r}")
    return users


def rule_in_words(rule: Rule) -> str:
    return f"weight {rule['weight']}" if "weight" in rule else words(rule)


def parse_entry(entry: object, where: str) -> tuple[str, Rule]:
    if not isinstance(entry, Mapping) or set(entry) != {"name", "rule"}:
        msg = f"`{where}` must have the keys 'name' and 'rule'; got {entry!r}."
        raise InvalidInputError(msg)
    name, rule = check_name(where, entry["name"]), entry["rule"]
    if isinstance(rule, Mapping) and "weight" in rule:
        return name, parse_weight(rule, f"{where}['rule']")
    return name, parse(rule, f"{where}['rule']")


def parse_weight(rule: object, where: str) -> Rule:
    column = rule["weight"] if isinstance(rule, Mapping) and set(rule) == {"weight"} else rule
    if not isinstance(column, str) or not column:
        msg = f"`{where}` must be a column name or {{'weight': column name}}; got {rule!r}."
        raise InvalidInputError(msg)
    return {"weight": column}


def check_mapping(argument: str, given: object) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        msg = f"`{argument}` must be a mapping; got {type(given).__name__} {given!r}."
        raise InvalidInputError(msg)
    return given


def check_name(argument: str, name: object) -> str:
    if not isinstance(name, str) or not name:
        msg = f"`{argument}` must be named by non-empty text; got {name!r}. Rename it."
        raise InvalidInputError(msg)
    return name
