"""One subgroup's rule, a predicate or a weight column: reading, writing and evaluating it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from huc_monitor.errors import InvalidInputError
from huc_monitor.subgroups._predicates import Predicate, comparisons, holds, parse, to_plain, words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from huc_monitor.subgroups._columns import Column


@dataclass(frozen=True, slots=True)
class Weight:
    """A real-valued weight read from a column."""

    column: str


Rule: TypeAlias = Predicate | Weight


def evaluate(
    name: str, rule: Rule, columns: Mapping[str, Column], argument: str
) -> NDArray[np.uint8] | NDArray[np.float64]:
    if not isinstance(rule, Weight):
        return holds(rule, columns).view(np.uint8)
    column = columns[rule.column]
    if column.kind is None and not column.problem:
        return np.zeros(len(column.missing), dtype=np.float64)
    if column.kind != "number":
        remedy = column.conversion("number", argument=argument)
        msg = (
            f"`{argument}[{column.name!r}]` must hold numbers in [-1, 1], being the weight "
            f"{name!r}; got {column.content()}. Convert it, for example with {remedy}."
        )
        raise InvalidInputError(msg)
    values = np.asarray(column.data, dtype=np.float64)
    outside = ~((np.abs(values) <= 1.0) | column.missing)
    if outside.any():
        row = int(np.argmax(outside))
        msg = (
            f"`{argument}[{column.name!r}]` must be finite and in [-1, 1], being the weight "
            f"{name!r}; got {values[row]} (row {row}). Divide by the largest possible size."
        )
        raise InvalidInputError(msg)
    return np.where(column.missing, 0.0, values)


def needed_columns(rules: Iterable[tuple[str, Rule]]) -> dict[str, str]:
    """Columns that rules read, each with the first subgroup that needs it."""
    needed: dict[str, str] = {}
    for name, rule in rules:
        used = [rule.column] if isinstance(rule, Weight) else [c.column for c in comparisons(rule)]
        for column in used:
            needed.setdefault(column, f"the subgroup {name!r}")
    return needed


def compared_columns(rules: Iterable[tuple[str, Rule]]) -> dict[str, str]:
    """Columns whose values matter, not only whether they are missing."""
    compared: dict[str, str] = {}
    for name, rule in rules:
        if isinstance(rule, Weight):
            compared.setdefault(rule.column, f"the subgroup {name!r}")
            continue
        for comparison in comparisons(rule):
            if comparison.value is not None:
                compared.setdefault(comparison.column, f"the subgroup {name!r}")
    return compared


def rule_in_words(rule: Rule) -> str:
    return f"weight {rule.column}" if isinstance(rule, Weight) else words(rule)


def rule_to_plain(rule: Rule) -> dict[str, Any]:
    return {"weight": rule.column} if isinstance(rule, Weight) else to_plain(rule)


def parse_entry(entry: object, where: str) -> tuple[str, Rule]:
    if not isinstance(entry, Mapping) or set(entry) != {"name", "rule"}:
        msg = f"`{where}` must have the keys 'name' and 'rule'; got {entry!r}."
        raise InvalidInputError(msg)
    name, rule = check_name(where, entry["name"]), entry["rule"]
    if isinstance(rule, Mapping) and "weight" in rule:
        return name, parse_weight(rule, f"{where}['rule']")
    return name, parse(rule, f"{where}['rule']")


def parse_weight(rule: object, where: str) -> Weight:
    column = rule["weight"] if isinstance(rule, Mapping) and set(rule) == {"weight"} else rule
    if not isinstance(column, str) or not column:
        msg = f"`{where}` must be a column name or {{'weight': column name}}; got {rule!r}."
        raise InvalidInputError(msg)
    return Weight(column)


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


def check_count(argument: str, value: object) -> None:
    try:
        count = -1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        count = -1
    if count < 0:
        msg = f"`{argument}` must be a whole number of at least 0; got {value!r}."
        raise InvalidInputError(msg)
