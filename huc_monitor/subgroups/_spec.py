"""How a short column specification becomes named subgroup rules with frozen cut points."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd

from huc_monitor._common.safe_text import LONGEST, quoted
from huc_monitor.errors import InvalidInputError
from huc_monitor.recalibration.runtime.columns import Column
from huc_monitor.subgroups._columns import count_values
from huc_monitor.subgroups._predicates import (
    Predicate,
    Scalar,
    check_kind,
    compare,
    to_scalar,
    write_value,
)

log = logging.getLogger("huc_monitor")

NamedRules: TypeAlias = "list[tuple[str, Predicate]]"

MAX_VALUES: Final = 1_000
# So many subgroups beside the whole population, and fewer rows in one, are told as a doubt.
_MANY: Final = 100
_FEW_ROWS: Final = 50
_TOP: Final = (
    "a column's most frequent values with {'each': {'top': 20}}, in huc.yaml or Python "
    "(--subgroup cannot)"
)
_FORMS: Final = (
    "'each', {'each': {'top': 3}}, {'each': ['a', 'b']}, a list of increasing cut points, "
    "'median', {'median': 'below'} or {'quantiles': [0.25, 0.5, 0.75]}"
)


def expand(column: Column, rule: object, *, argument: str) -> NamedRules:
    """Turn the specification of one column into its named rules.

    Parameters
    ----------
    column : Column
        The column in the reference data: values, medians and quantiles are taken from it.
    rule : str, list or mapping
        What the user wrote for the column.
    argument : str
        What the caller's frame parameter is called, for messages.
    """
    where = f"spec[{column.name!r}]"
    if isinstance(rule, str):
        rule = {rule: None}
    if isinstance(rule, np.ndarray):
        rule = rule.tolist()
    if isinstance(rule, (list, tuple)):
        return _between(column, _cut_points(column, rule, where, argument))
    if isinstance(rule, Mapping) and len(rule) == 1:
        match next(iter(rule.items())):
            case ("each", options):
                return _each(column, options, where, argument)
            case ("median", side):
                return _median(column, side, where, argument)
            case ("quantiles", list() | tuple() as levels):
                return _quantiles(column, levels, where, argument)
    msg = f"`{where}` must be {_FORMS}; got {rule!r}."
    raise InvalidInputError(msg)


def _cut_points(
    column: Column, cuts: Sequence[Any], where: str, argument: str
) -> list[int | float | str]:
    scalars = [to_scalar(cut, f"{where}[{i}]") for i, cut in enumerate(cuts)]
    if column.kind == "text" or any(isinstance(cut, bool) for cut in scalars):
        msg = (
            f"`{where}` must be cut points of a column of numbers or times; got {list(cuts)!r} for "
            f"{column.content()}. For a group per listed value write {{'each': {list(cuts)!r}}}."
        )
        raise InvalidInputError(msg)
    for cut in scalars:
        check_kind(compare(column.name, "<", cut), column, f"`{where}`", argument=argument)
    times = isinstance(column.data, pd.DatetimeIndex)
    keys: list[Any] = [pd.Timestamp(str(cut)) if times else cut for cut in scalars]
    same_type = len({isinstance(cut, str) for cut in scalars}) == 1
    if not same_type or any(a >= b for a, b in pairwise(keys)):
        msg = (
            f"`{where}` must be at least one cut point, strictly increasing; got {list(cuts)!r}. "
            f"Sort the cut points and remove repeated ones."
        )
        raise InvalidInputError(msg)
    # One spelling of a time, so that a date object and its ISO text give the same family.
    return [key.isoformat() if times else key for key in keys]


def _between(column: Column, cuts: Sequence[Scalar]) -> NamedRules:
    name, shown = column.name, [write_value(cut) for cut in cuts]
    rules: NamedRules = [(f"{name}<{shown[0]}", compare(name, "<", cuts[0]))]
    for i in range(len(cuts) - 1):
        low, high = compare(name, ">=", cuts[i]), compare(name, "<", cuts[i + 1])
        rules.append((f"{shown[i]}<={name}<{shown[i + 1]}", {"and": [low, high]}))
    rules.append((f"{name}>={shown[-1]}", compare(name, ">=", cuts[-1])))
    return rules


def _each(column: Column, options: object, where: str, argument: str) -> NamedRules:
    match options:
        case None:
            values = [value for value, _ in _short(column, where, argument)]
        case {"top": int() as top, **rest} if top > 0 and top is not True and not rest:
            counts = _short(column, where, argument)
            # Sorting is stable: among equally frequent values the first in value order stays.
            chosen = sorted(range(len(counts)), key=lambda i: -counts[i][1])[:top]
            values = [counts[i][0] for i in sorted(chosen)]
        case list() | tuple() if options:
            values = list(options)
        case _:
            msg = (
                f"`{where}['each']` must be {{'top': n}} with n >= 1, or a list of values; "
                f"got {options!r}. Write 'each' alone for every value in the reference."
            )
            raise InvalidInputError(msg)
    if len(values) > MAX_VALUES:
        msg = (
            f"`{where}` must give at most {MAX_VALUES:,} subgroups; got {len(values):,} distinct "
            f"values. Keep {_TOP}, or leave the column out."
        )
        raise InvalidInputError(msg)
    scalars = [to_scalar(value, where) for value in values]
    return [
        (f"{column.name}={write_value(value)}", compare(column.name, "==", value))
        for value in scalars
    ]


def _short(column: Column, where: str, argument: str) -> list[tuple[Any, int]]:
    """Count values; texts too long to be a name are no categories, and would fill every record."""
    counts = _counts(column, where, argument)
    long = [value for value, _ in counts if isinstance(value, str) and len(value) > LONGEST]
    if long:
        log.warning(
            "column %r: %d values are longer than %d characters and have no subgroups; first: %s",
            column.name,
            len(long),
            LONGEST,
            quoted(long[0]),
        )
    return [pair for pair in counts if not isinstance(pair[0], str) or len(pair[0]) <= LONGEST]


def _counts(column: Column, where: str, argument: str) -> list[tuple[Any, int]]:
    if column.kind is None:
        msg = (
            f"`{where}` must name a column with values to split by; `{argument}[{column.name!r}]` "
            f"has {column.content()}. Leave the column out or list the values yourself."
        )
        raise InvalidInputError(msg)
    return count_values(column)


def _median(column: Column, side: object, where: str, argument: str) -> NamedRules:
    if side not in {None, "at most", "below"}:
        msg = (
            f"`{where}['median']` must be 'at most' (groups <= m and > m, the default) or 'below' "
            f"(groups < m and >= m); got {side!r}."
        )
        raise InvalidInputError(msg)
    cut = _reference_quantiles(column, [0.5], where, argument)[0]
    low, high = ("<", ">=") if side == "below" else ("<=", ">")
    return [
        (f"{column.name}{op}{write_value(cut)}", compare(column.name, op, cut))
        for op in (low, high)
    ]


def _quantiles(column: Column, levels: Sequence[Any], where: str, argument: str) -> NamedRules:
    place = f"{where}['quantiles']"
    numbers = [to_scalar(level, f"{place}[{i}]") for i, level in enumerate(levels)]
    inside = [
        n for n in numbers if isinstance(n, (int, float)) and not isinstance(n, bool) and 0 < n < 1
    ]
    increasing = all(a < b for a, b in pairwise(inside))
    if not inside or len(inside) < len(numbers) or not increasing:
        msg = (
            f"`{place}` must be increasing numbers strictly between 0 and 1; got {list(levels)!r}. "
            f"For quarters write [0.25, 0.5, 0.75]."
        )
        raise InvalidInputError(msg)
    cuts = _reference_quantiles(column, inside, where, argument)
    # Quantiles of a column with many equal values coincide; between equal cuts nobody can be.
    return _between(column, list(dict.fromkeys(cuts)))


def _reference_quantiles(
    column: Column, levels: Sequence[float], where: str, argument: str
) -> list[int | float | str]:
    if column.kind != "number":
        msg = (
            f"`{where}` must name a column of numbers to take quantiles of; "
            f"`{argument}[{column.name!r}]` has {column.content()}. "
            f"Use 'each' for text and true/false values, cut points for times."
        )
        raise InvalidInputError(msg)
    present = np.asarray(column.data[~column.missing], dtype=np.float64)
    if not np.isfinite(present).all():
        row = int(np.flatnonzero(np.isinf(np.asarray(column.data, dtype=np.float64)))[0])
        msg = (
            f"`{argument}[{column.name!r}]` must be finite to take quantiles of (`{where}`); got "
            f"{column.data[row]} in row {row}. Replace it by a number or by a missing value."
        )
        raise InvalidInputError(msg)
    return [to_scalar(cut, where) for cut in np.quantile(present, levels)]


def tell_many(sizes: Sequence[int], column: str | None) -> None:
    """Warn of many subgroups, most of them made by ``column``; they may not be meant."""
    if len(sizes) < _MANY:
        return
    n_small = sum(size < _FEW_ROWS for size in sizes)
    told = [f"{len(sizes) + 1} subgroups"]  # and the whole population
    remedies = []
    if column is not None:
        remedies.append(f"Keep {_TOP}")
    if n_small:
        told.append(f"{n_small} of them with fewer than {_FEW_ROWS} rows")
        remedies.append("leave out small subgroups with min_size")
    if column is not None:
        told.append(f"most by the column {quoted(column)}")
    remedy = ", or ".join(remedies) or "leave out those that nobody acts on"
    log.warning(
        "%s: with each of them bounds get wider and audits slower. %s.",
        ", ".join(told),
        remedy[0].upper() + remedy[1:],
    )
