r"""Do rows of one user, session or retry depend on each other, and how much too narrow are bounds.

With residuals r_i and groups of rows g, sums over pairs of one group

    Q = sum_g sum_{i != j in g} r_i r_j

are zero on average where rows are independent. Q over its standard deviation is compared with a
normal quantile, corrected for the skewness that sums of squares have with few groups. The *design
effect* sum_g (sum_i r_i)^2 / sum_i r_i^2 = 1 + Q / sum r^2 is by how much the variance of a mean
exceeds that of independent rows; bounds that take rows as independent are its root too narrow.

Residuals are taken less their mean in their range of score, because a miscalibrated model has
residuals of one sign there, whoever the row is of.

Blocks of time as clusters miss the pairs that a boundary parts. Where correlation falls as
a f^(k - 1) with the distance of k rows, blocks of m rows miss the share
2 a / ((1 - f)^2 m D) of the variance, D = 1 + 2 a / (1 - f): each boundary parts k pairs of
distance k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from huc_monitor.utilities.program import Floats, Ints

LEAST_GROUPS = 10
_RANGES = 10
_NEAR = 3
_MOST_MISSED = 0.05
_SLOWEST = 0.98


@dataclass(frozen=True, slots=True)
class Dependence:
    """What residuals say about rows of one group.

    Attributes
    ----------
    n_groups : int
        Groups with at least two rows.
    rows_per_group : float
        Mean size of the groups, counted by their rows.
    correlation : float
        Mean correlation of two residuals of one group; an estimate above 1 is given as 1.
    design_effect : float
        Variance of a mean over that of independent rows.
    significance : float
        Q over its standard deviation, on the scale of a normal number.
    """

    n_groups: int
    rows_per_group: float
    correlation: float
    design_effect: float
    significance: float

    @property
    def too_narrow(self) -> float:
        """How many times too narrow bounds are that take rows as independent."""
        return math.sqrt(max(1.0, self.design_effect))

    def is_sure(self, level: float) -> bool:
        """Whether chance alone would show as much with a probability below ``level``."""
        return self.significance > NormalDist().inv_cdf(1.0 - level)


def design_effect(terms: Floats, keys: Ints) -> float:
    """Variance of a sum over clusters, over that of a sum of independent rows; at least 1."""
    codes = np.unique(keys, return_inverse=True)[1]
    square = float(terms @ terms)
    return max(1.0, float(np.sum(np.bincount(codes, terms) ** 2)) / square) if square else 1.0


def measure_dependence(scores: Floats, residuals: Floats, codes: Ints) -> Dependence | None:
    """Measure whether residuals of rows of one group depend on each other.

    ``codes`` number the groups from 0. None where too few have several rows to say.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> codes, scores = np.repeat(np.arange(100), 20), rng.random(2000)
    >>> found = measure_dependence(scores, rng.normal(size=2000), codes)
    >>> found.is_sure(0.01)
    False
    >>> shared = rng.normal(size=100)[codes]
    >>> found = measure_dependence(scores, rng.normal(size=2000) + 0.7 * shared, codes)
    >>> found.is_sure(0.01), round(found.too_narrow)
    (True, 3)
    """
    sizes = np.bincount(codes)
    n_groups = int((sizes > 1).sum())
    if n_groups < LEAST_GROUPS:
        return None
    r = residuals - _means_by_range(scores, residuals)
    sums, squares = np.bincount(codes, r), np.bincount(codes, r**2)
    pairs = sums**2 - squares
    # Of a pair sum of independent numbers: 2 sum over pairs of the product of their variances.
    spread = 2.0 * (squares**2 - np.bincount(codes, r**4))
    total, variance = float(squares.sum()), float(spread.sum())
    if variance <= 0 or total <= 0:
        return None
    z = float(pairs.sum()) / math.sqrt(variance)
    # Skewness of a sum of squares with as many degrees of freedom as the groups are worth.
    worth = variance**2 / max(float(np.sum(spread**2)), 1e-300)
    skewness = math.sqrt(8.0 / max(worth, 1.0))
    normal = (z**2 - 1.0) * skewness / 6.0
    n_pairs = float(np.sum(sizes * (sizes - 1.0)))
    return Dependence(
        n_groups=n_groups,
        rows_per_group=float(np.sum(sizes**2) / sizes.sum()),
        correlation=min(1.0, float(pairs.sum()) / n_pairs / (total / r.size)),
        design_effect=1.0 + float(pairs.sum()) / total,
        significance=z - max(normal, 0.0) if z < 6.0 else z,
    )


@dataclass(frozen=True, slots=True)
class ShortBlocks:
    """Blocks of time that are too short: a block depends on the next one.

    Attributes
    ----------
    rows_per_block : float
    correlation : float
        Of the residuals of neighbouring rows.
    missed : float
        Share of the variance that the blocks miss.
    times_as_long : int
        Blocks so many times as long would miss at most 5 %.
    significance : float
        On the scale of a normal number.
    """

    rows_per_block: float
    correlation: float
    missed: float
    times_as_long: int
    significance: float


def measure_blocks(scores: Floats, residuals: Floats, keys: Ints) -> ShortBlocks | None:
    """Measure whether rows on both sides of a boundary between blocks depend on each other.

    ``keys`` are the blocks of rows in the order of time; None where they are no blocks, or too few
    to say, or long enough.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(size=4000)
    >>> follow = noise + 0.7 * np.roll(noise, 1) + 0.5 * np.roll(noise, 2)
    >>> measure_blocks(rng.random(4000), follow, np.arange(4000) // 10).times_as_long
    3
    >>> measure_blocks(rng.random(4000), follow, np.arange(4000) // 100) is None
    True
    """
    starts = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    if starts.size < LEAST_GROUPS or starts.size + 1 != np.unique(keys).size:
        return None
    r = residuals - _means_by_range(scores, residuals)
    here = [starts - 1 - back for lag in range(1, _NEAR + 1) for back in range(lag)]
    there = [rows + lag for lag, rows in zip((1, 2, 2, 3, 3, 3), here, strict=True)]
    i, j = np.concatenate(here), np.concatenate(there)
    kept = (i >= 0) & (j < r.size)
    across = r[i[kept]] * r[j[kept]]
    square = float(r @ r)
    spread = math.sqrt(float(across @ across))
    if spread <= 0:
        return None
    first, second = float(r[1:] @ r[:-1]) / square, float(r[2:] @ r[:-2]) / square
    slow = 1.0 - min(max(second / first, 0.0), _SLOWEST) if first > 0 else 1.0
    rows_per_block = r.size / (starts.size + 1)
    missed = 2.0 * first / slow**2 / (1.0 + 2.0 * first / slow) / rows_per_block
    if missed <= _MOST_MISSED:
        return None
    return ShortBlocks(
        rows_per_block,
        correlation=first,
        missed=min(missed, 1.0),
        times_as_long=math.ceil(missed / _MOST_MISSED),
        significance=float(across.sum()) / spread,
    )


def _means_by_range(scores: Floats, residuals: Floats) -> Floats:
    edges = np.unique(np.quantile(scores, np.arange(1, _RANGES) / _RANGES))
    at = np.searchsorted(edges, scores, side="right")
    counts = np.maximum(np.bincount(at, minlength=edges.size + 1), 1)
    found: Floats = (np.bincount(at, residuals, edges.size + 1) / counts)[at]
    return found
