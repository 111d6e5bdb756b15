r"""Radii from draws with one multiplier per cluster.

Rows of a cluster share a multiplier, so that whatever makes them alike, for whatever interval and
candidate, is in the draws. Three things differ from independent rows.

The scale
    How much a candidate's sum varies depends on how its contributions go together within clusters.
    The draws know: with R_j the largest absolute interval sum of a draw, scale_j^2 is
    mean(R_j^2) / (4 log 2), the variance of a Brownian motion whose range has that mean square.
Rare branches
    An outcome that was never seen may come one row at a time or a cluster at a time: unseen in n
    rows, its share is below D log(N / d) / n with the probability that independent rows have for
    D = 1; D lies between 1 and the rows per cluster, n / G. It is taken to go together as what was
    seen does: D is the factor by which clusters raise the variances of all candidates together,
    plus (D - 1) sqrt(2 / K), its error where K clusters of equal size estimate what is above that
    of independent rows, and at most n / G.
Few clusters
    The draws' variance is estimated from K clusters, which a normal quantile does not know. It is
    replaced by that of Student's law. For one mean the degrees of freedom would be K - 1; for a
    supremum over many intervals and candidates that is too many, and simulation chose 2 (K - 1)
    where rows of a cluster are alike (tests/bench/dependence.py: 25 users of 20 rows, 95 % bounds
    held in 93 % of windows with the normal quantile, in 95 % with 2 (K - 1) and in 99 % with K - 1
    degrees). Of the variance, the share 1 / D is that of independent rows and rests on more than
    clusters: the degrees are (2 + 1 / D) (K - 1). K counts clusters of
    equal size: (sum m^2)^2 / sum m^4, so that one giant among many small ones counts for little
    more than one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from huc_monitor.audit.clusters import Sizes
from huc_monitor.utilities.program import Floats, Ints

_RANGE_SQUARE = 4.0 * math.log(2.0)


class Drawn(NamedTuple):
    """Draws of one utility: mean squares (C, S) as of independent rows, ranges (C, S, draws)."""

    mean_squares: Floats
    ranges: Ints
    spreads: Floats


def clustered_radii(
    drawn: Sequence[Drawn], sizes: Sizes, log: float, quantile: Callable[[Floats], float]
) -> tuple[Floats, float]:
    """Return the radius of every candidate, and how many independent rows these are.

    ``log`` is log(N / d); ``quantile`` that of a number per draw.
    """
    from huc_monitor import _kernels

    squares, spreads, ranges = [], [], []
    for found in drawn:
        limits = np.broadcast_to(found.spreads, found.mean_squares.shape)
        squares.append(found.mean_squares.ravel())
        spreads.append(limits.ravel())
        sizes_drawn = found.ranges * (limits / _kernels.DRAW_UNIT)[..., None]
        ranges.append(sizes_drawn.reshape(limits.size, found.ranges.shape[-1]))
    if not any(found.size for found in squares):
        return np.empty(0), sizes.n
    b, table = np.concatenate(spreads), np.concatenate(ranges)
    variances = (table**2).mean(axis=1) / _RANGE_SQUARE
    effect = design_effect(variances / b**2, np.concatenate(squares) / b**2, sizes)
    rare = reach_of_rare(effect, sizes)
    scales = np.sqrt(variances + b**2 * (log * rare**2 / sizes.n_rare))
    q = max(quantile((table / scales[:, None]).max(axis=0)), math.sqrt(log))
    radii: Floats = student(q, degrees(sizes, effect)) / math.sqrt(sizes.n) * scales
    return radii, sizes.n_apart / effect


def design_effect(variances: Floats, mean_squares: Floats, sizes: Sizes) -> float:
    """By which factor clusters raise the variances of all candidates, as the draws have them.

    Between that of clusters whose rows are independent, 1, and of rows that are all alike.
    """
    alone = float(mean_squares.sum()) / sizes.n_apart
    found = float(variances.sum()) / sizes.n / alone if alone > 0 else 1.0
    return min(max(found, 1.0), max(1.0, sizes.n_apart / sizes.n))


def reach_of_rare(effect: float, sizes: Sizes) -> float:
    """Return how many rows an outcome that was never seen may bring at once: D above."""
    reach = effect + (effect - 1.0) * math.sqrt(2.0 / sizes.n_clusters)
    return min(reach, max(1.0, sizes.n_apart / sizes.n))


def degrees(sizes: Sizes, effect: float = math.inf) -> float:
    """Degrees of freedom that the variances of draws have; of plain rows too many to matter.

    ``effect`` is the `design_effect`; left out, rows of a cluster count as all alike.
    """
    if sizes.n_clusters:
        return (2.0 + 1.0 / effect) * (sizes.n_clusters - 1.0)
    return sizes.n - 1.0 if sizes.chosen else math.inf


def student(z: float, nu: float) -> float:
    """Quantile of Student's law where the normal law has the quantile z (Cornish and Fisher).

    Examples
    --------
    >>> round(student(1.96, 24), 3)
    2.064
    """
    nu = max(nu, 1.0)
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / nu + second / nu**2 + third / nu**3
