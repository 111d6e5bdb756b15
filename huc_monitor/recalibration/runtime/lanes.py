"""Arithmetic on one row (plain floats) or on many (arrays), in the same order of operations.

The mathematics in `replay` is written once, for "lanes": the values of one leaf, branch or edge in
all rows at hand. A single request is faster without numpy, a batch is faster with it, and both
round like the compiled kernels, so a score on the border of an interval falls on the same side.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_SHIFTER = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to a whole number
_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.6931471803691238
_LN2_LOW = 1.9082149292705877e-10
_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))


class One:
    """A lane is a number."""

    maximum = max

    @staticmethod
    def where(condition: Any, yes: Any, no: Any) -> Any:
        """Choose."""
        return yes if condition else no

    @staticmethod
    def both(first: Any, second: Any) -> Any:
        """Both hold."""
        return first and second

    @staticmethod
    def either(first: Any, second: Any) -> Any:
        """One of both holds."""
        return first or second

    @staticmethod
    def pick(table: list[Any], index: Any) -> Any:
        """Look up."""
        return table[index]

    @staticmethod
    def exp(x: float) -> float:
        """Exponential of a number of at most 0; see `_exp`."""
        power, mantissa = _exp(max(x, -700.0))
        return float(mantissa * math.ldexp(1.0, int(power)))

    @staticmethod
    def by_rank(p: Any, payoffs: list[float]) -> list[float]:
        """Payoff of every leaf by its rank; equal probabilities rank in leaf order."""
        values = [0.0] * len(p)
        for rank, leaf in enumerate(sorted(range(len(p)), key=lambda k: -p[k])):
            values[leaf] = payoffs[rank]
        return values

    @staticmethod
    def by_function(p: Any, function: Any) -> Any:
        """Payoff of every leaf by a function of rows."""
        return function(np.array([p]))[0].tolist()


class Many:
    """A lane is an array with an entry per row."""

    maximum = np.maximum
    where = np.where
    both = np.logical_and
    either = np.logical_or

    @staticmethod
    def pick(table: list[Any], index: Any) -> Any:
        """Look up."""
        return np.asarray(table)[index]

    @staticmethod
    def exp(x: Any) -> Any:
        """Exponential of numbers of at most 0; see `_exp`."""
        power, mantissa = _exp(np.maximum(x, -700.0))
        return mantissa * np.ldexp(1.0, power.astype(np.int32))

    @staticmethod
    def by_rank(p: Any, payoffs: list[float]) -> Any:
        """Payoff of every leaf by its rank; equal probabilities rank in leaf order."""
        stacked = np.asarray(p)
        order = np.argsort(-stacked, axis=0, kind="stable")
        values = np.empty_like(stacked)
        np.put_along_axis(values, order, np.asarray(payoffs)[:, None], axis=0)
        return values

    @staticmethod
    def by_function(p: Any, function: Any) -> Any:
        """Payoff of every leaf by a function of rows."""
        return function(np.ascontiguousarray(np.asarray(p).T)).T


def _exp(x: Any) -> tuple[Any, Any]:
    """Power of two and factor of e^x by plain arithmetic, as the compiled kernels do it.

    No call into a maths library: those differ between machines and between versions.
    """
    power = (x * _LOG2_E + _SHIFTER) - _SHIFTER
    r = (x - power * _LN2_HIGH) - power * _LN2_LOW
    c13, c12, c11, c10, c9, c8, c7, c6, c5, c4, c3, c2, c1, c0 = _TAYLOR
    # Pairs of terms first, then pairs of pairs, in the order of the kernels.
    square = r * r
    fourth = square * square
    high = (r * c13 + c12) * fourth + ((r * c11 + c10) * square + (r * c9 + c8))
    low = ((r * c7 + c6) * square + (r * c5 + c4)) * fourth + (
        (r * c3 + c2) * square + (r * c1 + c0)
    )
    return power, high * (fourth * fourth) + low
