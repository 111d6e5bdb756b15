"""Row weights as an audit counts them: free of their common factor.

A factor on all weights must not change a bit of a moment, yet multiplying floats rounds each
product. So weights are taken relative to the largest, and rounded coarser than that noise:

* ratios of whole numbers up to 2**17 (repetitions, times any factor; decimals of few digits) become
  those whole numbers, exactly;
* other ratios are rounded to 30 significant bits, none below 2**-44 of the largest.

Powers of two never change a bit. Another factor could, if a weight of the second kind lay within
the noise of a rounding edge: one weight in 10**7. No rule can exclude that, because a chain of
rounded factors leads from any weights to any others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from huc_monitor.utilities.program import Floats

_MOST_WHOLE = 1 << 17
# A product, a product and a quotient round by 3 * 2**-53 together; the rest is for given weights.
_NOISE = 2.0**-50
_SIGNIFICANT = 2.0**30
_LEAST = 2.0**-44
# Not one half: edges then lie away from binary fractions, which weights often are.
_ROUND_UP = 0.43


@dataclass(frozen=True, slots=True)
class WeightUnit:
    """What the weights of some rows are counted in; units of pieces merge.

    Attributes
    ----------
    largest : float
        The largest weight; 0 where no row counts.
    whole : int
        The whole number that stands for it, 0 where weights are no multiples of one another.
    """

    largest: float = 0.0
    whole: int = 1

    @classmethod
    def of(cls, weights: Floats) -> WeightUnit:
        """Find the unit of some weights.

        Examples
        --------
        >>> WeightUnit.of(0.1 * np.array([3.0, 2.0, 0.0, 6.0]))
        WeightUnit(largest=0.6000000000000001, whole=6)
        """
        largest = float(weights.max(initial=0.0))
        if largest == 0.0:
            return cls()
        ratios, whole = weights / largest, 1
        while whole:
            multiples = ratios * whole
            odd = np.abs(multiples - np.rint(multiples)) > _NOISE * multiples
            if not odd.any():
                break
            # At least twice as many with every turn: seventeen at most.
            whole = _common(whole, _fraction(float(ratios[np.argmax(odd)])))
        return cls(largest, whole)

    def merge(self, other: WeightUnit) -> WeightUnit:
        """Return the unit of both sets of weights."""
        low, high = sorted((self, other), key=lambda unit: unit.largest)
        if not low.largest:
            return high
        if not low.whole or not high.whole:
            return WeightUnit(high.largest, 0)
        share = _fraction(low.largest / high.largest)
        return WeightUnit(high.largest, _common(high.whole, share and share / low.whole))

    @property
    def size(self) -> float:
        """The weight that counts as 1."""
        return self.largest / (self.whole or 1) if self.largest else 1.0

    def count(self, weights: Floats) -> Floats:
        """Return weights in this unit, free of rounding noise.

        Examples
        --------
        >>> weights = 0.1 * np.array([3.0, 2.0, 0.0, 6.0])
        >>> WeightUnit.of(weights).count(weights)
        array([3., 2., 0., 6.])
        """
        if not self.largest:
            return np.zeros_like(weights)
        ratios = weights / self.largest
        if self.whole:
            return np.rint(ratios * self.whole)
        mantissa, exponent = np.frexp(np.maximum(ratios, np.where(weights > 0, _LEAST, 0.0)))
        rounded: Floats = np.ldexp(
            np.floor(mantissa * _SIGNIFICANT + _ROUND_UP) / _SIGNIFICANT, exponent
        )
        return rounded


def _fraction(ratio: float) -> Fraction | None:
    """Return the ratio of whole numbers that a float between 0 and 1 is, up to rounding."""
    found = Fraction(ratio).limit_denominator(_MOST_WHOLE)
    return found if abs(found - Fraction(ratio)) <= _NOISE * ratio else None


def _common(whole: int, share: Fraction | None) -> int:
    """Return the least whole number for 1 that makes `share` whole as well, 0 where too large."""
    if share is None:
        return 0
    common = math.lcm(whole, share.denominator)
    return common if common <= _MOST_WHOLE else 0
