"""Refusing settings that make no sense, by name, before anything is computed."""

from __future__ import annotations

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


def check_number(
    argument: str, value: Any, *, low: float, strict: bool = False, also: str = ""
) -> None:
    """Check a finite number at or above a limit."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if number and np.isfinite(value) and (value > low if strict else value >= low):
        return
    rule = f"a number {'above' if strict else 'of at least'} {low:g}" + (also and f" or {also}")
    msg = f"`{argument}` must be {rule}; got {value!r}."
    raise InvalidInputError(msg)
