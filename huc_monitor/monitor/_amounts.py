"""How large an alert is, in words: amounts in the units of its utility, bounds, ranges of score."""

from __future__ import annotations

import math

from huc_monitor._common.safe_text import chat
from huc_monitor.monitor.records import AlertTransition
from huc_monitor.utilities import Utility

_SMALLEST = 0.0005  # what three decimals show as more than zero


def interval(step: AlertTransition) -> str:
    """Say where predicted utility was."""
    if step.interval_low is None or step.interval_high is None:
        return "anywhere"
    low, high = (f"{x * step.scale:.2f}" for x in (step.interval_low, step.interval_high))
    return f"{low} to {high}{units(step)}"


def bounds(step: AlertTransition) -> str:
    """Say both bounds; nothing where there are none."""
    if step.lower is None or step.upper is None:
        return ""
    low, high = (number(x * step.scale) for x in (step.lower, step.upper))
    return f" [{low}, {high}]"


def amount(value: float, step: AlertTransition | Utility) -> str:
    """Say an amount, rounded for people."""
    return f"{number(value * step.scale)}{units(step)}"


def plain_amount(value: float, step: AlertTransition | Utility) -> str:
    """Say an amount in four digits."""
    return f"{value * step.scale:.4g}{units(step)}"


def signed(value: float, step: AlertTransition | Utility) -> str:
    """Say an amount with its sign."""
    return f"{'+' if value > 0 else '-' * (value < 0)}{amount(abs(value), step)}"


def rounded(value: float, step: AlertTransition) -> str:
    """Show a signed amount beside others that may be much larger."""
    return signed(value, step) if abs(value * step.scale) >= _SMALLEST else f"0.000{units(step)}"


def units(step: AlertTransition | Utility) -> str:
    """Say the unit of the utility, where it has one."""
    return f" {chat(step.units)}" if step.units else ""


def number(value: float) -> str:
    """Show three decimals, fewer of a large number, and never a finding as zero.

    Examples
    --------
    >>> [number(x) for x in (0.0431, 0.0, 0.00012, 0.0000251, 8.62, 15.0, 1234.5)]
    ['0.043', '0', '0.00012', '0.000025', '8.62', '15.0', '1,234']
    """
    if value == 0:
        return "0"
    size = abs(value)
    if size < _SMALLEST:
        return f"{value:.{1 - math.floor(math.log10(size))}f}"
    digits = 3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:,.{digits}f}"
