"""Refusing settings that make no sense, by name, before anything is computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from huc_monitor.errors import InvalidInputError, UnknownNameError


def check_choice(argument: str, value: Any, choices: tuple[str, ...]) -> None:
    """Check a name against the choices."""
    if value not in choices:
        msg = f"`{argument}` must be one of {', '.join(map(repr, choices))}; got {value!r}."
        raise UnknownNameError(msg)


def check_count(argument: str, value: Any) -> None:
    """Check a positive whole number, or None."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if value is not None and not (whole and value >= 1):
        msg = f"`{argument}` must be a positive whole number or None; got {value!r}."
        raise InvalidInputError(msg)


def check_whole(argument: str, value: Any, *, least: int, most: int | None = None) -> int:
    """Refuse what is no whole number within limits."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if whole and value >= least and (most is None or value <= most):
        return int(value)
    limits = f"of at least {least}" if most is None else f"from {least} to {most:,}"
    msg = f"`{argument}` must be a whole number {limits}; got {value!r}."
    raise InvalidInputError(msg)


def check_number(
    argument: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    below: float = math.inf,
    also: str = "",
) -> float:
    """Check a finite number within limits, of which ``above`` and ``below`` are left out."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    low = -math.inf if least is None else least
    if number and low <= value < below and (above is None or value > above):
        return float(value)
    rules = [f"of at least {least:g}"] if least is not None else []
    rules += [f"above {above:g}"] if above is not None else []
    rules += [f"below {below:g}"] if below < math.inf else []
    other = f" or {also}" if also else ""
    msg = f"`{argument}` must be a number {' and '.join(rules)}{other}; got {value!r}."
    raise InvalidInputError(msg)
