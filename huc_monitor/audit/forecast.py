r"""What a window's predictions will be worth, before its labels are there.

Rows that were audited say by how much realised utility differs from the score, by range of score
and by predicted leaf (`huc_monitor.audit.gaps`). The forecast of a window is its mean score plus
its mean gap.

What is assumed
    *What follows from a score did not change*: given the score and the predicted leaf (the
    likeliest one), the mean utility is that of the audited rows. Scores and predicted leaves may
    move as they like. Where the relation itself moves (concept shift), no forecast can know, and
    this one fails; nor does it see that rows of one score and leaf differ by a property that
    neither carries, once the mix of that property moves.

The bound
    With a(s) b(l) the density of the window's rows relative to the audited ones, by range of score
    and by predicted leaf, and g(s, l) the correction, the error of the forecast is
    E[a(s) b(l) (u - mu - g)] over audited rows, and summing by parts over scores

        |E[a(s) b(l) (u - mu - g)]| <= (|a_end| + TV(a)) sup_I |E[b(l) (u - mu - g) 1{s in I}]|,

    TV being the total variation, I any interval: UC of what the correction leaves, in audited rows
    that were weighted to have the window's leaves, times how unevenly the scores moved. To this
    comes sampling error, see below. Rows with a score beyond the audited ones, or with a leaf of
    a kind that was never audited, or never at such scores, count with the utility's whole range.
    Each bound holds by itself with the confidence level. Nothing depends on how good the correction
    is: a poor one leaves more, and makes the bound wider. Forecast and bounds are then kept within
    the values that the utility can have.

Sampling error
    Two samples vary: the m audited rows, as many as they are worth when weighted by a(s) b(l), and
    the outcomes of the window's n. With s2 the variance that the correction leaves, 1 - d the
    confidence level and b the utility's range, the radius is t sqrt(s2 (1/m + 1/n) + floor),

        floor = b**2 log(1/d) (1/m**2 + 1/n**2),

    which audits of two samples have too (`huc_monitor.audit.bounds.bootstrap`): what was never seen
    in m rows may happen for all that, and n outcomes come in steps of b/n. s2 is divided by the
    share of m that the correction's fitted numbers leave, and t is Student's quantile with as many
    degrees of freedom, or with one less than clusters. Where rows are dependent, D rows stand for
    one: s2 counts D times, and b**2 in the floor D**2 times, D being there that of gaps as they
    are, not less their mean, so that clusters in which nothing was ever wrong count as one row. Of
    labels that stop early, b is divided by the label coverage.

    Where all scores are alike and outcomes right or wrong, at any error rate, 10 to 3,000 audited
    rows and windows of 10 to 10,000, bounds of 80, 90, 95 and 99 % miss at most 1.03 times as often
    as they may: counted, not simulated (tests/bench/forecasts.py).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from huc_monitor._common.forms import Form
from huc_monitor._common.row_order import check_row_order
from huc_monitor.audit.bounds.bound import log_share
from huc_monitor.audit.bounds.clustered import reach_of_rare, student
from huc_monitor.audit.clusters import (
    ClusterSizes,
    Sizes,
    check_clusters,
    check_label_probability,
)
from huc_monitor.audit.decomposition import UtilityRows, iter_decomposed
from huc_monitor.audit.dependence import design_effect
from huc_monitor.audit.gaps import Grid, fit_gaps, rake
from huc_monitor.audit.inputs import (
    Predictions,
    check_labels,
    check_predictions,
    check_tree,
    check_utilities,
)
from huc_monitor.audit.label_depth import coverage_among, whole_rows
from huc_monitor.audit.options import DEFAULTS, AuditOptions
from huc_monitor.audit.scan import Groups
from huc_monitor.errors import InvalidInputError
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats, Ints, value_range

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast(Form):
    """The mean utility that a window is expected to have, with what became of it.

    Attributes
    ----------
    utility : str
    n : int
        Rows of the window.
    n_audited : float
        Rows that the correction is from.
    score : float
        Mean predicted utility: the forecast without correction.
    value, lower, upper : float
        The forecast per prediction and its bound, in utility.
    confidence_level : float
    shift : float
        The part of the bound for rows that moved, ``(|a_end| + TV(a)) UC``.
    sampling : float
        The part for sampling error.
    variance : float
        Of one row's utility given its score and predicted leaf, in the window.
    rare : float
        What an outcome that was never seen may add to a sum of utilities.
    outside : float
        Share of rows with a score beyond all audited ones, or a predicted leaf of a kind that was
        never audited, or never at such scores.
    units, scale : str or None, float
        A utility times `scale` is in `units`.
    realised : float or None
        The mean utility once labels came; where some rows have none, their mean score plus the mean
        gap of those that have.
    inside : bool or None
        Whether that lay within the bound, widened for labels that are still missing; None without
        a bound.
    audited_version : str or None
        The model version of the audited rows where another one predicted: how its outcomes follow
        its predictions is not known, so the correction and the bound say nothing of them.
    """

    sparse: ClassVar[tuple[str, ...]] = ("audited_version",)

    utility: str
    n: int
    n_audited: float
    score: float
    value: float
    lower: float
    upper: float
    confidence_level: float
    shift: float
    sampling: float
    variance: float
    rare: float = 0.0
    outside: float = 0.0
    units: str | None = None
    scale: float = 1.0
    realised: float | None = None
    inside: bool | None = None
    audited_version: str | None = None

    def judged(self, gap: float, n_labelled: float) -> Forecast:
        """Compare with what came: the mean gap of so many labelled rows of the window."""
        realised = self.score + gap
        labelled = min(max(n_labelled, 1.0), self.n)
        missing = (1.0 / labelled - 1.0 / self.n) * self.variance
        floor = log_share(1, self.confidence_level) * self.rare**2
        missing += floor * (1.0 / labelled**2 - 1.0 / self.n**2)
        slack = math.hypot(self.sampling, _z(self.confidence_level) * math.sqrt(missing))
        # Of an end that the utility's range cut off, the other one tells the radius.
        radius = max(self.upper - self.value, self.value - self.lower)
        inside = abs(realised - self.value) <= radius - self.sampling + slack + _ROUNDING
        known = None if self.audited_version is not None else inside
        return dataclasses.replace(self, realised=realised, inside=known)

    def __repr__(self) -> str:
        """One line."""
        return (
            f"Forecast({self.utility}: {self.value:.4f} in [{self.lower:.4f}, {self.upper:.4f}], "
            f"{self.n:,} rows)"
        )


@dataclass(frozen=True, slots=True, eq=False)
class ScoreGaps:
    """Audited rows of one utility: by how much realised utility differs from the score.

    ``scores`` are in order, ``leaves`` are the predicted ones, ``gaps`` are realised minus
    predicted, ``weights`` add up to 1. ``design_effect`` is how much more the rows' means vary than
    those of independent rows. ``limits`` are the values that the utility can have. ``rare`` is what
    an outcome that was never seen may add to a sum; left out, the spread. ``n_clusters`` are those
    of equal size that say as much.
    """

    utility: Utility
    spread: float
    scores: Floats
    leaves: Ints
    gaps: Floats
    weights: Floats
    design_effect: float = 1.0
    limits: tuple[float, float] = (-1.0, 1.0)
    rare: float | None = None
    n_clusters: float = math.inf

    @classmethod
    def of(
        cls,
        rows: UtilityRows,
        weights: Floats,
        clusters: Ints | None = None,
        likeliest: Ints | None = None,
    ) -> ScoreGaps:
        """Take labelled rows, each as often as it stands for; no weights: once."""
        order = np.argsort(rows.scores, kind="stable")
        counts = weights if weights.size else np.ones(order.size)
        gaps = whole_residuals(rows, counts)
        effect, reach, n_clusters = 1.0, 1.0, math.inf
        if clusters is not None and clusters.size:
            mass = float(counts.sum())
            parts = [ClusterSizes.of(clusters, counts)]
            sizes = Sizes.of(mass, [mass], [float(counts @ counts)], parts)
            n_clusters = sizes.n_clusters
            effect = design_effect(counts * (gaps - np.average(gaps, weights=counts)), clusters)
            alike = counts * gaps if gaps.any() else counts
            reach = reach_of_rare(design_effect(alike, clusters), sizes)
        spreads = rows.utility.spreads(rows.tree)[rows.relevant]
        seen = coverage_among(rows, counts)
        return cls(
            rows.utility,
            float(spreads.max(initial=0.0)),
            rows.scores[order],
            _one_leaf(order.size) if likeliest is None else likeliest[order],
            gaps[order],
            counts[order] / counts.sum(),
            effect,
            value_range(rows.utility.compile(rows.tree)),
            reach * float(np.max(spreads / np.where(seen > 0, seen, 1.0), initial=0.0)),
            n_clusters,
        )

    @property
    def n(self) -> float:
        """How many independent rows of equal weight say as much."""
        return float(1.0 / np.sum(self.weights**2)) / self.design_effect

    @property
    def _rare(self) -> float:
        return self.spread if self.rare is None else self.rare

    def _sampling(
        self, density: Floats, left: Floats, n_fitted: float, n_window: int, level: float
    ) -> tuple[float, float]:
        """Return the sampling error, and the variance of an outcome given score and leaf."""
        free = max(self.n - n_fitted, 1.0) / self.n
        moved = float(density @ density)
        outcome = float(density @ left**2) / max(float(density.sum()), 1e-12) / free
        noise = float(np.sum((density * left) ** 2)) / free + outcome / n_window
        floor = log_share(1, level) * self._rare**2 * (moved**2 + 1.0 / n_window**2)
        degrees = min(free / max(self.design_effect * moved, 1e-12), self.n_clusters - 1.0)
        quantile = student(_z(level), degrees)
        return quantile * math.sqrt(self.design_effect * noise + floor), outcome

    def forecast(
        self,
        scores: Floats,
        likeliest: Ints | None = None,
        *,
        confidence_level: float = DEFAULTS.confidence_level,
    ) -> Forecast:
        """Forecast the mean utility of rows with these scores and predicted leaves."""
        grid = Grid.of(self.scores, self.leaves, self.weights, self.n)
        mine = grid.places(self.scores, self.leaves)
        leaves = _one_leaf(scores.size) if likeliest is None else likeliest
        theirs = grid.places(scores, leaves)
        *correction, n_fitted = fit_gaps(mine, self.gaps, self.weights, self.n)
        left = self.gaps - mine.at(*correction)
        audited = mine.table(self.weights)
        wanted = theirs.table(np.full(scores.size, 1.0 / scores.size))
        along, across = rake(audited, wanted)
        density = self.weights * along[mine.ranges] * across[mine.groups]
        sampling, outcome = self._sampling(density, left, n_fitted, scores.size, confidence_level)
        variation = float(np.abs(np.diff(along)).sum() + along[-1])
        reweighted = self.weights * across[mine.groups] * left
        shift = min(variation * _largest_interval(self.scores, reweighted), self.spread)

        # Ranges that raking cannot reach hold leaves that were never audited at such scores.
        unknown = (audited.sum(axis=0)[theirs.groups] == 0) | (along[theirs.ranges] == 0)
        beyond = (scores < self.scores[0]) | (scores > self.scores[-1]) | unknown
        outside = float(beyond.mean())
        radius = shift + sampling + outside * self.spread
        score = float(scores.mean())
        value = score + float(theirs.at(*correction).mean())
        value, lower, upper = np.clip([value, value - radius, value + radius], *self.limits)
        named = self.utility.units is not None
        return Forecast(
            utility=self.utility.name,
            n=int(scores.size),
            n_audited=self.n,
            score=score,
            value=float(value),
            lower=float(lower),
            upper=float(upper),
            confidence_level=confidence_level,
            shift=shift,
            sampling=sampling,
            variance=outcome,
            rare=self._rare,
            outside=outside,
            units=self.utility.units,
            scale=self.utility.scale if named else 1.0,
        )


def _largest_interval(scores: Floats, terms: Floats) -> float:
    """Return the largest absolute sum over an interval of scores; ties stay together."""
    ends = np.append(np.flatnonzero(np.diff(scores)), scores.size - 1)
    sums = np.append(0.0, np.cumsum(terms)[ends])
    return float(sums.max() - sums.min())


def _one_leaf(n: int) -> Ints:
    """Predicted leaves that nobody knows: all alike."""
    found: Ints = np.zeros(n, dtype=np.int64)
    return found


def _z(confidence_level: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence_level / 2.0)


def residuals(rows: UtilityRows) -> Floats:
    """Realised minus predicted utility of labelled rows: their contributions added up."""
    depth = np.diff(rows.paths.ptr)[rows.labels]
    used = np.arange(rows.contributions.shape[1]) < depth[:, None]
    total: Floats = np.where(used, rows.contributions, 0.0).sum(axis=1)
    return total


def whole_residuals(rows: UtilityRows, weights: Floats) -> Floats:
    """`residuals` that rows with deeper labels make whole, where labels stop above the leaves."""
    groups = Groups.counted([np.ones(rows.labels.size, dtype=np.uint8)], weights)
    (whole,), _ = whole_rows([rows], groups)
    return residuals(whole)


def is_told(rows: UtilityRows) -> bool:
    """Whether labels go below every branch of the utility, so that its mean can be told."""
    return bool(coverage_among(rows, np.ones(rows.labels.size)).all())


def score_rows(
    utilities: Sequence[Utility], predictions: Predictions, *, tree: LabelTree
) -> list[UtilityRows]:
    """Decompose predictions without labels: their scores are known, their contributions not."""
    unknown: Ints = np.full(predictions.n, -1, dtype=np.int64)
    return list(iter_decomposed(utilities, predictions, unknown, tree=tree))


def forecast(
    probabilities: Any,
    audited: Any,
    labels: Any,
    *,
    tree: LabelTree | str | Path,
    utilities: Sequence[Utility] | Utility | None = None,
    clusters: Any = None,
    label_probability: Any = None,
    confidence_level: float = DEFAULTS.confidence_level,
) -> list[Forecast]:
    """Forecast the mean utility of predictions whose labels are not there yet.

    The mean score is corrected by what audited rows showed, by range of score and by predicted
    leaf. The bound holds if what follows from a score did not change since; if it did (concept
    shift), it fails.

    Parameters
    ----------
    probabilities : (n, K) predictions without labels, as in `audit`
    audited : (m, K) predictions with labels
        Of the reference or, better, of the newest windows that have labels.
    labels : (m,) labels as in `audit`, at any depth
        Below every branch of a utility some of them must go.
    tree : LabelTree, or the path of a tree file
    utilities : list of Utility
        Correctness at every level of the tree when left out.
    clusters, label_probability : (m,), optional
        Of the audited rows, as in `audit`.
    confidence_level : float, default 0.95
        Probability that a bound holds, each by itself.

    Returns
    -------
    list of Forecast, one per utility

    Examples
    --------
    An overconfident model: it says 0.9 and is right in 70 % of the cases.

    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["a", "b"])
    >>> past, y = [[0.9, 0.1]] * 100, ["a"] * 70 + ["b"] * 30
    >>> (found,) = hm.forecast([[0.9, 0.1]] * 50, past, y, tree=tree, utilities=hm.TopK(1))
    >>> round(found.score, 3), round(found.value, 3)
    (0.9, 0.7)
    """
    tree = check_tree(tree)
    chosen = check_utilities(utilities, tree)
    level = AuditOptions(confidence_level=confidence_level).confidence_level
    design = {"clusters": clusters, "label_probability": label_probability}
    check_row_order(audited=audited, labels=labels, **design)
    before = check_predictions(audited, tree=tree, argument="audited")
    codes = check_labels(labels, before.n, tree=tree)
    chance = check_label_probability(label_probability, before.n)
    weights = np.empty(0) if chance is None else 1.0 / chance
    keys = check_clusters(clusters, before.n)
    past = list(iter_decomposed(chosen, before, codes, tree=tree))
    untold = [rows.utility.name for rows in past if not is_told(rows)]
    if untold:
        msg = (
            "`labels` must go below every branch that a utility looks at; all of them stop above "
            f"for {', '.join(untold)}. Leave these utilities out, or wait for deeper labels."
        )
        raise InvalidInputError(msg)
    coming = check_predictions(probabilities, tree=tree)
    window = score_rows(chosen, coming, tree=tree)
    known, leaves = before.likeliest(), coming.likeliest()
    return [
        ScoreGaps.of(rows, weights, keys, known).forecast(
            new.scores, leaves, confidence_level=level
        )
        for rows, new in zip(past, window, strict=True)
    ]
