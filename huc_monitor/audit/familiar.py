"""The numbers people know, with intervals and what each of them hides.

Accuracy at every level, log loss, Brier score, calibration errors, hierarchical F1 and the area
under the risk-coverage curve are averages over all branches and rows: they say how good a model is,
not which branch misstates utility. They stand beside HUC for those who know them.

Every interval is asymptotic and holds for its number alone. Means and ratios: the normal interval
of the number's influence values, Wilson's for accuracies. Expected calibration errors are sums of
absolute gaps: by the triangle inequality an error of the estimate is at most the sum of the gaps'
own errors, whose quantile gives the radius. So the interval of a calibrated model reaches to zero,
although the estimate never does; it covers the error of the binned gaps, not of finer ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import pandas as pd

from huc_monitor._common.forms import Form
from huc_monitor._common.row_order import check_row_order
from huc_monitor._common.views import Shown
from huc_monitor.audit.clusters import check_clusters, check_label_probability
from huc_monitor.audit.inputs import (
    CACHE_CELLS,
    Predictions,
    block_spans,
    check_labels,
    check_predictions,
    check_tree,
    check_weights,
)
from huc_monitor.audit.options import DEFAULTS
from huc_monitor.tree import LabelTree
from huc_monitor.utilities.program import TIE, Floats, Ints

# A monitor computes them of windows up to this many rows times leaves: half a second or less.
MOST_CELLS: Final = 20_000_000
_BINS: Final = 15
_DRAWS: Final = 4000
_LARGEST: Final = {"log loss": math.inf, "Brier score": 2.0}
# What each number is, and what it does not say.
_ABOUT: Final = {
    "accuracy": (
        "share of rows whose likeliest node of that level contains the label",
        "counts a near miss like a far one, and rare branches hardly at all",
    ),
    "log loss": (
        "mean of -log of the label's probability",
        "all branches in one sum, ruled by rows of tiny probability; no utility in it",
    ),
    "Brier score": (
        "mean squared distance of the probabilities from the label, 0 to 2",
        "all branches in one sum; a far miss costs no more than a near one",
    ),
    "top-label ECE": (
        "mean absolute gap between the likeliest leaf's probability and how often it was right",
        "only the likeliest leaf's probability; opposite errors cancel in a bin",
    ),
    "classwise ECE": (
        "the same gap of every leaf's probability, averaged over leaves",
        "a mean over leaves: a large gap of a rare leaf vanishes in it",
    ),
    "hierarchical F1": (
        "share of nodes that the paths to the likeliest leaf and to the label have in common",
        "counts shared ancestors, not what an error costs; no probability in it",
    ),
    "AURC": (
        "area under the risk-coverage curve: error rate of the surest rows, over all shares",
        "sees only the order of confidences: how large they are makes no difference",
    ),
}


@dataclass(frozen=True, slots=True)
class FamiliarNumber(Form):
    """One number with its interval and the rows it is from."""

    name: str
    value: float
    lower: float
    upper: float
    n: float

    @property
    def measures(self) -> str:
        """What the number is."""
        return _ABOUT[self.name.partition(",")[0]][0]

    @property
    def hides(self) -> str:
        """What the number does not say."""
        return _ABOUT[self.name.partition(",")[0]][1]


@dataclass(frozen=True, slots=True)
class FamiliarNumbers(Form, Shown):
    """Familiar numbers of one window, each with an interval of its own.

    Attributes
    ----------
    numbers : tuple of FamiliarNumber
        A number that no label can tell is left out: those of leaves, where all labels stop above.
    confidence_level : float
        Of each interval by itself.
    """

    numbers: tuple[FamiliarNumber, ...]
    confidence_level: float

    def __getitem__(self, name: str) -> float:
        """Return one number by its name."""
        return {number.name: number.value for number in self.numbers}[name]

    def to_frame(self) -> pd.DataFrame:
        """Return a row per number."""
        columns = [*FamiliarNumber.__slots__, "measures", "hides"]
        rows = [[getattr(number, name) for name in columns] for number in self.numbers]
        return pd.DataFrame(rows, columns=columns)

    def __repr__(self) -> str:
        """One line."""
        told = ", ".join(f"{number.name} {number.value:.4g}" for number in self.numbers)
        return f"FamiliarNumbers({told})"


def familiar_numbers(
    probabilities: Any,
    labels: Any,
    *,
    tree: LabelTree | str | Path,
    logits: bool = False,
    weights: Any = None,
    clusters: Any = None,
    label_probability: Any = None,
    confidence_level: float = DEFAULTS.confidence_level,
) -> FamiliarNumbers:
    """Compute accuracy per level, log loss, Brier score, ECE, hierarchical F1 and AURC.

    ====================  ==========================================================================
    accuracy, level       share of rows whose likeliest node of that level contains the label
    log loss              mean of -log of the label's probability, in nats; of an inner node, the
                          sum of its leaves
    Brier score           mean squared distance of the probabilities from the label, 0 to 2
    top-label ECE         mean absolute gap of the likeliest leaf's probability, in 15 even bins
    classwise ECE         the same of every leaf's probability, averaged over leaves
    hierarchical F1       nodes that the paths to the likeliest leaf and to the label share, over
                          their mean length, over all rows; the root does not count
    AURC                  error rate among the most confident rows, averaged over all shares of them
    ====================  ==========================================================================

    Parameters
    ----------
    probabilities, labels, tree, logits, weights, clusters, label_probability
        As in `audit`. Numbers of leaves leave out rows whose label stops above the leaves, accuracy
        at a level those whose label stops above the level.
    confidence_level : float, default 0.95
        Of each interval by itself.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    >>> p = [[0.6, 0.3, 0.1]] * 10
    >>> found = hm.familiar_numbers(p, ["lion"] * 5 + ["lynx"] * 4 + ["dog"], tree=tree)
    >>> found["accuracy, level 1"], found["accuracy, leaves"], round(found["top-label ECE"], 6)
    (0.9, 0.5, 0.1)
    >>> found.to_frame()[["name", "value", "lower", "upper"]].round(3).head(2)
                    name  value  lower  upper
    0  accuracy, level 1    0.9  0.596  0.982
    1   accuracy, leaves    0.5  0.237  0.763
    """
    tree = check_tree(tree)
    check_row_order(
        probabilities=probabilities,
        labels=labels,
        weights=weights,
        clusters=clusters,
        label_probability=label_probability,
    )
    predictions = check_predictions(probabilities, tree=tree, logits=logits)
    codes = check_labels(labels, predictions.n, tree=tree)
    repeats = check_weights(weights, predictions.n)
    chance = check_label_probability(label_probability, predictions.n)
    groups = check_clusters(clusters, predictions.n)
    return measure(predictions, codes, repeats, chance, groups, tree, confidence_level)


def measure(
    predictions: Predictions,
    codes: Ints,
    repeats: Floats | None,
    chance: Floats | None,
    clusters: Ints | None,
    tree: LabelTree,
    confidence_level: float,
) -> FamiliarNumbers:
    """Compute the numbers of rows that were checked before."""
    times = np.ones(predictions.n) if repeats is None else repeats
    mass = times if chance is None else times / chance
    numbered = None if clusters is None else np.unique(clusters, return_inverse=True)[1]
    rows = _Rows(mass, times, numbered, NormalDist().inv_cdf(0.5 + confidence_level / 2))
    seen = _look(predictions, codes, tree, rows)
    found = [*_of_levels(seen, rows), *_of_leaves(seen, rows), *_by_class(seen, rows)]
    order = ("accuracy", *list(_ABOUT)[1:])
    found.sort(key=lambda number: order.index(number.name.partition(",")[0]))
    return FamiliarNumbers(tuple(found), confidence_level)


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """How often rows count, and which of them depend on one another."""

    mass: Floats
    times: Floats
    clusters: Ints | None
    z: float

    def total(self, known: Any) -> float:
        return float(self.mass[known].sum())

    def mean(self, values: Floats, known: Any) -> float:
        return float(self.mass[known] @ values[known] / self.total(known))

    def error(self, influence: Floats, known: Any) -> float:
        """Return the standard error of a number with these influence values of mean zero."""
        terms = self.mass[known] * influence[known]
        if self.clusters is None:
            # A row of weight w is w independent rows.
            squares = np.divide(terms**2, self.times[known], where=terms != 0, out=terms)
        else:
            squares = np.bincount(self.clusters[known], terms) ** 2
        return float(np.sqrt(squares.sum())) / self.total(known)

    def effective(self, known: Any) -> float:
        """Return how many independent rows of weight 1 say as much."""
        return self.error(np.ones(self.mass.size), known) ** -2

    def number(self, name: str, value: float, radius: float, known: Any) -> FamiliarNumber:
        lower, most = max(0.0, value - radius), _LARGEST.get(name, 1.0)
        return FamiliarNumber(name, value, lower, min(most, value + radius), self.total(known))

    def average(self, name: str, values: Floats, known: Any) -> FamiliarNumber:
        value = self.mean(values, known)
        return self.number(name, value, self.z * self.error(values - value, known), known)

    def share(self, name: str, right: Floats, known: Any) -> FamiliarNumber:
        """Return a share with Wilson's interval, by the effective number of rows."""
        value, z = self.mean(right, known), self.z
        error = self.error(right - value, known)
        n = value * (1 - value) / error**2 if error > 0 else self.effective(known)
        middle = (value + z * z / (2 * n)) / (1 + z * z / n)
        radius = z * math.sqrt(value * (1 - value) / n + (z / (2 * n)) ** 2) / (1 + z * z / n)
        ends = max(0.0, middle - radius), min(1.0, middle + radius)
        return FamiliarNumber(name, value, *ends, self.total(known))


@dataclass(slots=True, eq=False)
class _Seen:
    """What one pass over the predictions leaves of every row."""

    tree: LabelTree
    codes: Ints
    start: Ints
    stop: Ints
    levels: Ints
    top: Ints
    confidence: Floats
    at_label: Floats
    square: Floats
    gaps: Floats
    noise: Floats

    @property
    def leaf_known(self) -> Any:
        return self.codes < self.tree.n_leaves


def _look(predictions: Predictions, codes: Ints, tree: LabelTree, rows: _Rows) -> _Seen:
    n, n_leaves = predictions.n, tree.n_leaves
    start, stop = tree.label_slices(codes)
    levels = np.empty((tree.height, n), dtype=np.int64)
    seen = _Seen(
        tree,
        codes,
        start,
        stop,
        levels,
        top=np.empty(n, dtype=np.int64),
        confidence=np.empty(n),
        at_label=np.empty(n),
        square=np.empty(n),
        gaps=np.zeros((n_leaves, _BINS)),
        noise=np.zeros((n_leaves, _BINS)),
    )
    firsts = [
        np.flatnonzero(np.diff(tree.level_codes(level), prepend=-1))
        for level in range(1, tree.height)
    ]
    known = seen.leaf_known
    for lo, hi in predictions.spans():
        block, here = predictions.block(lo, hi), np.arange(hi - lo)
        seen.top[lo:hi] = top = block.argmax(axis=1)
        seen.confidence[lo:hi] = block[here, top]
        one = np.where(known[lo:hi], block[here, np.minimum(codes[lo:hi], n_leaves - 1)], 0.0)
        seen.at_label[lo:hi] = one
        above = np.flatnonzero(~known[lo:hi])  # labels that stop there
        if above.size:
            before = np.pad(np.cumsum(block[above], axis=1), ((0, 0), (1, 0)))
            own, inner = np.arange(above.size), above + lo
            below = before[own, stop[inner]] - before[own, start[inner]]
            seen.at_label[inner] = np.maximum(below, np.finfo(float).tiny)
        seen.square[lo:hi] = np.einsum("ij,ij->i", block, block) - 2 * one + 1
        for level, first in enumerate(firsts):
            masses = np.add.reduceat(block, first, axis=1)
            largest = masses.max(axis=1, keepdims=True)
            levels[level, lo:hi] = (masses >= largest - TIE).argmax(axis=1)
        levels[-1, lo:hi] = top
        _add_gaps(seen, block, slice(lo, hi), rows)
    return seen


def _add_gaps(seen: _Seen, block: Floats, span: slice, rows: _Rows) -> None:
    """Add the label minus its probability, and its square, to the bins of every leaf."""
    known = np.flatnonzero(seen.leaf_known[span])
    if not known.size:
        return
    codes, mass = seen.codes[span][known], rows.mass[span][known]
    spread = np.divide(mass**2, rows.times[span][known], where=mass > 0, out=np.zeros(known.size))
    n_leaves = block.shape[1]
    starts = np.arange(n_leaves) * _BINS
    of_all, of_label = np.zeros((2, n_leaves * _BINS)), np.zeros((2, n_leaves * _BINS))
    for lo, hi in block_spans(known.size, n_leaves, CACHE_CELLS):
        p = block[known[lo:hi]]
        cells = np.minimum((p * _BINS).astype(np.int64), _BINS - 1) + starts
        here = np.arange(hi - lo), codes[lo:hi]
        terms = -mass[lo:hi, None] * p, spread[lo:hi, None] * p**2
        own = mass[lo:hi], spread[lo:hi] * (1 - 2 * p[here])
        for k in range(2):
            np.add.at(of_all[k], cells.ravel(), terms[k].ravel())
            np.add.at(of_label[k], cells[here], own[k])
    gaps, noise = (of_all + of_label).reshape(2, n_leaves, _BINS)
    seen.gaps += gaps
    seen.noise += noise


def _of_levels(seen: _Seen, rows: _Rows) -> Iterator[FamiliarNumber]:
    tree = seen.tree
    for level in range(1, tree.height + 1):
        groups = tree.level_codes(level)
        label = groups[seen.start]
        known = (label == groups[seen.stop - 1]) & (rows.mass > 0)
        if not known.any():
            continue
        name = "leaves" if level == tree.height else f"level {level}"
        right = (seen.levels[level - 1] == label).astype(np.float64)
        yield rows.share(f"accuracy, {name}", right, known)


def _of_leaves(seen: _Seen, rows: _Rows) -> Iterator[FamiliarNumber]:
    everyone = rows.mass > 0
    yield rows.average("log loss", -np.log(seen.at_label), everyone)
    yield _hierarchical_f1(seen, rows, everyone)
    known = seen.leaf_known & everyone
    if not known.any():
        return
    yield rows.average("Brier score", seen.square, known)
    wrong = (seen.top != seen.codes).astype(np.float64)
    yield _risk_coverage(seen.confidence, wrong, rows, known)
    gaps = 1.0 - wrong - seen.confidence
    bins = np.minimum((seen.confidence * _BINS).astype(np.int64), _BINS - 1)[known]
    total = rows.total(known)
    value = float(np.abs(np.bincount(bins, (rows.mass * gaps)[known])).sum()) / total
    spread = np.divide(rows.mass**2, rows.times, where=everyone, out=np.zeros(rows.mass.size))
    noise = np.sqrt(np.bincount(bins, (spread * gaps**2)[known])) / total * _inflation(rows, known)
    draws = _absolute_normals(noise.size) @ noise
    level = NormalDist().cdf(rows.z) * 2 - 1
    radius = float(np.quantile(draws, level)) if rows.clusters is None else rows.z * noise.sum()
    yield rows.number("top-label ECE", value, radius, known)


@cache
def _absolute_normals(n: int) -> Floats:
    """Draws of n normal numbers without their signs: the same ones for every window."""
    return np.abs(np.random.default_rng(0).standard_normal((_DRAWS, n)))


def _by_class(seen: _Seen, rows: _Rows) -> Iterator[FamiliarNumber]:
    known = seen.leaf_known & (rows.mass > 0)
    if not known.any():
        return
    scale = rows.total(known) * seen.tree.n_leaves
    noise = np.sqrt(np.maximum(seen.noise, 0.0)).sum() / scale * _inflation(rows, known)
    # Leaves share their rows: the largest quantile of such a sum is that of gaps that go together.
    value = float(np.abs(seen.gaps).sum()) / scale
    yield rows.number("classwise ECE", value, rows.z * float(noise), known)


def _inflation(rows: _Rows, known: Any) -> float:
    """Return by how much clusters may widen a bin's error: as if their rows were copies."""
    if rows.clusters is None:
        return 1.0
    alone = _Rows(rows.mass, rows.times, None, rows.z)
    return math.sqrt(alone.effective(known) / rows.effective(known))


def _hierarchical_f1(seen: _Seen, rows: _Rows, known: Any) -> FamiliarNumber:
    tree = seen.tree
    depths = np.array([tree.depth(name) for name in (*tree.leaves, *tree.branches)])
    ours, theirs = depths[seen.top], depths[seen.codes]
    shared = np.zeros(seen.top.size)
    for level in range(1, tree.height + 1):
        groups = tree.level_codes(level)
        both = (ours >= level) & (theirs >= level)
        shared += both & (groups[seen.top] == groups[seen.start])
    lengths = (ours + theirs).astype(np.float64)
    mean = rows.mean(lengths, known)
    value = 2.0 * rows.mean(shared, known) / mean
    error = rows.error((2.0 * shared - value * lengths) / mean, known)
    return rows.number("hierarchical F1", value, rows.z * error, known)


def _risk_coverage(confidence: Floats, wrong: Floats, rows: _Rows, known: Any) -> FamiliarNumber:
    """Area under the risk-coverage curve (AURC).

    R(t) is the error rate among rows of confidence at least t; return its mean over all rows.

    Its influence value at a row of confidence t and error e, with G the share of rows above, is
    R(t) - AURC + e H(t) - K(t), where H and K average 1 / G and R / G over the rows up to t.
    """
    _, level = np.unique(-confidence[known], return_inverse=True)
    share = rows.mass[known] / rows.total(known)
    here = np.bincount(level, share)
    coverage = np.cumsum(here)
    risk = np.cumsum(np.bincount(level, share * wrong[known])) / coverage
    value = float(here @ risk)
    after = [np.cumsum((here * part / coverage)[::-1])[::-1] for part in (1.0, risk)]
    influence = np.zeros(confidence.size)
    influence[known] = (risk - value - after[1])[level] + wrong[known] * after[0][level]
    return rows.number("AURC", value, rows.z * rows.error(influence, known), known)
