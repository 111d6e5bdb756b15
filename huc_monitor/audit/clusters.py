"""Rows that are not independent of each other, and labels that were chosen: how much they count.

Clusters are known by a stable hash of their value: the multiplier of a cluster is a function of
that hash, so that rows in memory, in pieces and on other machines get the same one, and so that a
cluster with rows in two samples has one multiplier in both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from huc_monitor._common.forms import Form
from huc_monitor.errors import InvalidInputError
from huc_monitor.utilities.program import Floats, Ints

# With fewer clusters, or one that outweighs the others, a note says what the bounds rest on.
FEW_CLUSTERS = 20.0


@dataclass(frozen=True, slots=True)
class Design(Form):
    """How dependent rows and chosen labels were counted in an audit.

    Attributes
    ----------
    n_effective : float
        As many independent rows, all of them labelled, would give about the same radii.
    n_clusters : int or None
        Clusters of rows that depend on each other; None where rows are independent.
    largest_share : float or None
        Share of the rows in the largest cluster.
    min_label_probability : float or None
        Smallest probability with which a label was chosen; None where all rows are labelled.
    """

    n_effective: float
    n_clusters: int | None = None
    largest_share: float | None = None
    min_label_probability: float | None = None

    @classmethod
    def of(cls, sizes: Sizes, n_effective: float, least: float | None = None) -> Design | None:
        """Say how rows were counted; None where they are independent and all labelled.

        ``least`` is the smallest label probability.
        """
        if sizes.count:
            return cls(n_effective, sizes.count, 1.0 / sizes.n_largest, least)
        return None if least is None else cls(n_effective, None, None, least)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of bounds that rest on few clusters."""
        if self.n_clusters is None or self.largest_share is None:
            return ()
        if self.largest_share * FEW_CLUSTERS <= 1.0:
            return ()
        note = (
            f"bounds rest on {self.n_clusters:,} clusters, of which the largest has "
            f"{self.largest_share:.0%} of the rows: they are wide, and below {FEW_CLUSTERS:g} "
            "clusters of similar size not to be relied on. Take a longer window, or a finer "
            "cluster if one is right."
        )
        return (note,)

    def __str__(self) -> str:
        """One line."""
        parts = []
        if self.n_clusters is not None:
            parts.append(f"in {self.n_clusters:,} clusters")
        if self.min_label_probability is not None:
            parts.append(f"labelled with probability {self.min_label_probability:.3g} or more")
        return f"{', '.join(parts)}: as good as {self.n_effective:,.0f} independent rows"


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSizes:
    """How much every cluster counts; sizes of pieces add up.

    Attributes
    ----------
    keys : (G,) int64, ascending
    amounts : (G,) float64
        Sums of how often the rows count.
    """

    keys: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    amounts: Floats = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, keys: Ints, amounts: Floats) -> ClusterSizes:
        """Add up rows; ``amounts`` is empty where every row counts once."""
        found, codes = np.unique(keys, return_inverse=True)
        return cls(found, np.bincount(codes, amounts if amounts.size else None).astype(np.float64))

    def __mul__(self, factor: float) -> ClusterSizes:
        """Return the sizes where rows count so many times as much."""
        return ClusterSizes(self.keys, self.amounts * factor)

    def __add__(self, other: ClusterSizes) -> ClusterSizes:
        """Sizes of both sets of rows."""
        keys = np.concatenate([self.keys, other.keys])
        return ClusterSizes.of(keys, np.concatenate([self.amounts, other.amounts]))

    @property
    def square(self) -> float:
        """Return the sum over clusters of the squared number of rows."""
        return math.fsum((self.amounts**2).tolist())

    @property
    def n_effective(self) -> float:
        """How many clusters of equal size would estimate a variance as well."""
        largest = self.amounts.max()
        shares = (self.amounts / largest) ** 2
        return float(shares.sum() ** 2 / (shares**2).sum())


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many rows a bound may count on.

    Attributes
    ----------
    n : float
        Rows, if all rows of a cluster were one row, and with weights of chosen labels: the mean's
        variance is at most b**2 / n where contributions are at most b.
    n_rare : float
        What the floor for rare branches counts, if rows were independent within clusters.
    square : float
        Sum over clusters of the squared sums of multipliers' weights, so that the sum of all
        contributions times their multipliers has a standard deviation of at most b sqrt(square).
    n_apart : float
        ``n`` if rows were independent within clusters.
    n_clusters : float
        `ClusterSizes.n_effective`; 0 where rows are independent.
    n_largest : float
        Rows, if all clusters were as large as the largest.
    count : int
        Clusters, whatever their size.
    chosen : bool
        Whether rows are independent and count by their label probability.
    """

    n: float
    n_rare: float
    square: float
    n_apart: float
    n_clusters: float = 0.0
    n_largest: float = 0.0
    count: int = 0
    chosen: bool = False

    @classmethod
    def of(
        cls,
        mass: float,
        masses: Sequence[float],
        apart: Sequence[float],
        clusters: Sequence[ClusterSizes] = (),
    ) -> Sizes:
        """Count rows of one sample, or of two whose difference is measured.

        Parameters
        ----------
        mass : of all, as in `Groups`
        masses : of every sample
        apart : of every sample, the sum over rows of amount**2 / rows it stands for
        clusters : of every sample; none where rows are independent
        """
        factors = [mass / own for own in masses]
        square = sum(f**2 * own for f, own in zip(factors, apart, strict=True))
        n = n_apart = mass**2 / square
        rare = sum((own / m**2) ** 2 for own, m in zip(apart, masses, strict=True))
        if not clusters:
            return cls(n, 1.0 / (n * rare), square, n_apart, chosen=True)
        parts = [own * f for own, f in zip(clusters, factors, strict=True)]
        found = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        n = mass**2 / found.square
        return cls(
            n,
            1.0 / (n * rare),
            found.square,
            n_apart,
            found.n_effective,
            mass / float(found.amounts.max()),
            found.keys.size,
        )


class ClusterKeys(NamedTuple):
    """Keys that `check_clusters` made before."""

    keys: Ints


def check_clusters(clusters: Any, n: int, *, argument: str = "clusters") -> Ints | None:
    """Return the key of every row's cluster, or None where rows are independent.

    Values are told apart by their text, so that 7, 7.0 and "7" are one cluster.

    Examples
    --------
    >>> a, b, c = check_clusters(["ann", "bob", "ann"], 3).tolist()
    >>> a == c, a == b
    (True, False)
    """
    if clusters is None:
        return None
    if isinstance(clusters, ClusterKeys):
        return clusters.keys
    # In an array of text a missing value would be the text "nan".
    values = np.asarray(clusters, dtype=object if isinstance(clusters, list | tuple) else None)
    if values.shape != (n,):
        msg = f"`{argument}` must be one value per row ({n}); got shape {values.shape}."
        raise InvalidInputError(msg)
    codes, distinct = pd.factorize(values)
    missing = np.flatnonzero(codes < 0)
    if missing.size:
        msg = (
            f"`{argument}` must have a value in every row; row {missing[0]} has none "
            f"({missing.size} in all). Give each of these rows a value of its own if they are "
            "independent."
        )
        raise InvalidInputError(msg)
    texts = np.array([_text(value) for value in distinct], dtype=object)
    keys: Ints = pd.util.hash_array(texts, categorize=False).view(np.int64)[codes]
    return keys


def _text(value: Any) -> str:
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value) if whole else value)


def check_label_probability(
    probability: Any, n: int, *, argument: str = "label_probability"
) -> Floats | None:
    """Return the probability with which every row's label was chosen, or None."""
    if probability is None:
        return None
    array = np.asarray(probability)
    if array.dtype.kind not in "fiu" or array.shape != (n,):
        msg = (
            f"`{argument}` must be one number per row ({n}); got shape {array.shape}, "
            f"dtype {array.dtype}."
        )
        raise InvalidInputError(msg)
    array = array.astype(np.float64)
    bad = np.flatnonzero(~((array > 0) & (array <= 1)))
    if bad.size:
        msg = (
            f"`{argument}` must be above 0 and at most 1; got {array[bad[0]]} (row {bad[0]}). "
            "A row that could not have been labelled cannot be spoken for: leave its kind out of "
            "the audit, or label some of them."
        )
        raise InvalidInputError(msg)
    return array


def check_uneven(probability: Any, n: int, *, argument: str = "label_probability") -> Floats | None:
    """Return what `check_label_probability` does; None where all are equal: these change nothing.

    Examples
    --------
    >>> check_uneven([0.1, 0.1], 2) is None, check_uneven([0.1, 0.2], 2)
    (True, array([0.1, 0.2]))
    """
    found = check_label_probability(probability, n, argument=argument)
    return found if found is not None and np.ptp(found) > 0 else None


def check_design(method: str | None, sizes: Sizes, *, chosen: bool) -> None:
    """Refuse bounds that do not hold for the rows; ``chosen`` says that labels were."""
    if method not in {None, "bootstrap"} and chosen:
        msg = (
            f"`bounds` must be 'bootstrap' or None where labels were chosen with known "
            f"probability; got {method!r}."
        )
        raise InvalidInputError(msg)
    if method is not None and sizes.count == 1:
        msg = (
            "`clusters` must have at least two different values; all rows are in one, and nothing "
            "says how much it may vary. Take a longer window, or pass bounds=None."
        )
        raise InvalidInputError(msg)
