"""What makes bounds untrue without an error: rows that depend on each other, labels by choice.

*Dependence.* Residuals are tested for correlation within columns that look like keys (by name, and
by values: many that come again, not a few), and within identical predictions, such as retries.
Where few predictions are there, as those of a small decision tree, identical ones say nothing; then
those that come again sooner than chance would have it are tested, less what their prediction has.
Where clusters are blocks of time, it is tested whether neighbouring blocks depend on each other.

*Selection.* Labelled rows are compared with all rows of the window: scores, the branch that is
predicted, subgroups. Where labels are a random sample, each mean differs by chance alone. Labels
that depend on the outcome are noticed as far as they move these means; two rows with the same
prediction, of which the wrong one is labelled more often, look alike to any test without labels.

Each of the two has an error budget of 1 % per window, split between what it looks at; for selection
also between the looks at a window that is asked for late labels (`windows.revisit`), a half, a
sixth, a twelfth and so on, which is all of it however often one looks. For selection half of it is
for mean scores, which labels that follow errors move first. Where few rows have no label, or few
have one, sums are skewed, and a normal distribution would call several times as many of them
unlikely: deviations are corrected for it. Not told is what cannot matter: where so few rows have no
label that they move no moment by as much as the tolerance, whatever their outcome, and differences
that are worth less than a tenth of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from huc_monitor._common.safe_text import chat
from huc_monitor._common.settings import Section
from huc_monitor.audit.decomposition import UtilityRows
from huc_monitor.audit.dependence import (
    LEAST_GROUPS,
    Dependence,
    ShortBlocks,
    measure_blocks,
    measure_dependence,
)
from huc_monitor.audit.forecast import ScoreGaps, residuals, score_rows
from huc_monitor.audit.inputs import CACHE_CELLS, Predictions
from huc_monitor.monitor._amounts import number
from huc_monitor.monitor._rows import Decomposed
from huc_monitor.monitor.drift import children
from huc_monitor.sources import PredictionData, TooManyBadRowsError
from huc_monitor.sources._keys import LEAST_VALUES
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities.program import Floats, Ints

if TYPE_CHECKING:
    from huc_monitor.monitor._monitor import Monitor

_LEVEL = 0.01
_MOST_ROWS = 50_000
# Of keys, what matters; of equal predictions, what only the same event explains.
_LEAST_TOO_NARROW = 1.1
_LEAST_SAME = 0.3
_LEAST_ROWS = 30
# In parts of the smallest tolerance, what a difference must be worth to be told.
_LEAST_WORTH = 0.1
_MOST_CHILDREN = 50
# Of predictions that many rows share, what comes again within this part of the mean distance.
_SHARED_BY = 10
_SOON = 0.2
# What is compared, in words, among labelled rows and among all.
Terms = Iterable[tuple[str, Floats, Floats]]
SAME_PREDICTION = "identical predictions"
SAME_AND_NEAR = "identical predictions that follow each other"
_REPEATS = (SAME_PREDICTION, SAME_AND_NEAR)


class NoticePolicy(Section):
    """Whether a check looks for what makes bounds untrue.

    Parameters
    ----------
    enabled : bool, default True
        Whether a check tests for rows that depend on each other and for labels that are no random
        choice; windows with missing labels are read twice for it.
    """

    enabled: bool = True


def hash_rows(matrix: Floats) -> Ints:
    """Return a key per row of numbers; those of equal rows are equal."""
    bits = np.ascontiguousarray(matrix + 0.0).view(np.uint64)
    factors = np.random.default_rng(0).integers(1, 1 << 63, matrix.shape[1], dtype=np.uint64) | 1
    bits ^= bits >> np.uint64(29)
    bits *= factors
    bits ^= bits >> np.uint64(31)
    keys: Ints = np.einsum("ij->i", bits).view(np.int64)
    return keys


def find_dependence(
    rows: Sequence[UtilityRows], probabilities: Any, keys: Mapping[str, Ints], features: Any = None
) -> tuple[str, Dependence] | None:
    """Name the column within which residuals depend on each other most, if by more than chance.

    Rows are in the order of time. Of ``features``, a DataFrame, retries have the same.
    """
    chosen = slice(0, _MOST_ROWS)
    named = {name: _numbered(values[chosen]) for name, values in keys.items()}
    named = {name: codes for name, codes in named.items() if _may_be_key(codes)}
    first = Predictions.of(probabilities[chosen])
    hashes = np.empty(first.n, dtype=np.int64)
    for lo, hi in first.spans(CACHE_CELLS):
        hashes[lo:hi] = hash_rows(first.block(lo, hi))
    cells = _numbered(hashes)
    level = _LEVEL / ((len(named) + len(_REPEATS)) * len(rows))
    if _n_shared(cells) >= 2 * LEAST_GROUPS:  # or there are not as many groups
        alike = cells
        if features is not None and features.shape[1]:
            own = pd.util.hash_pandas_object(features.iloc[chosen], index=False).to_numpy()
            alike = _numbered(hashes ^ own.view(np.int64))
        named |= {SAME_PREDICTION: alike, SAME_AND_NEAR: _follow_soon(cells)}
    found: list[tuple[str, Dependence]] = []
    for item in rows if named else ():
        gaps = residuals(item)[chosen]
        means = np.bincount(cells, gaps) / np.bincount(cells)
        for name, codes in named.items():
            less = gaps - means[cells] if name == SAME_AND_NEAR else gaps
            tested = measure_dependence(item.scores[chosen], less, codes)
            if tested is not None and tested.is_sure(level) and _matters(name, tested):
                found.append((name, tested))
    # What is said of a key is of more use than that its rows look alike.
    return max(found, key=lambda pair: (not is_repeat(pair[0]), pair[1].too_narrow), default=None)


def is_repeat(name: str) -> bool:
    """Whether rows go together by their predictions, not by a column."""
    return name in _REPEATS


def _follow_soon(cells: Ints) -> Ints:
    """Give one number to rows of one cell, shared by many, that come soon again.

    Rows are in the order of time; a row that stands alone has a number of its own.
    """
    sizes = np.bincount(cells)[cells]
    order = np.argsort(cells, kind="stable")
    away = np.diff(order, prepend=-1)
    apart = np.diff(cells[order], prepend=-1) != 0
    limit = np.maximum(1.0, _SOON * cells.size / sizes[order])
    starts = apart | (away > limit) | (sizes[order] < _SHARED_BY)
    codes = np.empty(cells.size, dtype=np.int64)
    codes[order] = np.cumsum(starts) - 1
    return codes


def _matters(name: str, tested: Dependence) -> bool:
    if is_repeat(name):
        return tested.correlation >= _LEAST_SAME and round(tested.too_narrow, 1) > 1
    return tested.too_narrow >= _LEAST_TOO_NARROW


def _numbered(keys: Ints) -> Ints:
    """Give groups of equal keys numbers from 0."""
    return np.unique(keys, return_inverse=True)[1]


def _n_shared(codes: Ints) -> int:
    """Count the rows that are not alone in their group."""
    sizes = np.bincount(codes)
    return int(sizes[sizes > 1].sum())


def _may_be_key(codes: Ints) -> bool:
    n_distinct = int(codes.max(initial=-1)) + 1
    return LEAST_VALUES <= n_distinct <= 0.95 * codes.size


def find_short_blocks(rows: Sequence[UtilityRows], clusters: Ints) -> ShortBlocks | None:
    """Find out whether clusters are blocks of time that are too short; rows in order of time."""
    least = NormalDist().inv_cdf(1.0 - _LEVEL / len(rows))
    tested = (measure_blocks(item.scores, residuals(item), clusters) for item in rows)
    found = [item for item in tested if item is not None and item.significance > least]
    return max(found, key=lambda item: item.missed, default=None)


def say_blocks(found: ShortBlocks) -> str:
    """Say that blocks are too short, by how much bounds are off, and what to set."""
    return (
        f"Blocks of {found.rows_per_block:.0f} rows are too short: rows at the end of one and at "
        f"the start of the next depend on each other (neighbours by {found.correlation:.2f}). "
        f"Variances are about {found.missed:.0%} too small; make clusters.block "
        f"{found.times_as_long} times as long."
    )


def say_dependence(name: str, found: Dependence) -> str:
    """Say which rows depend on each other, by how much bounds are off, and what to set."""
    size = f"{round(found.rows_per_group, 1):g} rows each, correlation {found.correlation:.2f}"
    narrow = f"Bounds are {found.too_narrow:.1f} times too narrow"
    if is_repeat(name):
        return (
            f"Rows with {name} have the same outcome ({size}): retries, or rows "
            f"written twice? {narrow}; give retries one columns.id, or set columns.cluster to "
            "a column that they share."
        )
    shown = chat(name)
    return (
        f"Rows of one {shown} depend on each other ({size}). {narrow}; set "
        f"columns.cluster: {shown}."
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """How labelled rows differ from all rows of a window.

    Attributes
    ----------
    coverage : dict of str to float
        Share of rows with a label, by the child of the root under which the likeliest leaf lies;
        of children that are predicted often enough to say.
    differs : tuple of str
        What differs by more than chance, and enough to matter, in words, most certain first; empty
        where labels may be a random choice.
    worth : float
        The largest of these differences in utility: of scores as it is, of shares of rows times
        the largest spread of contributions.
    accepted : float
        The smallest tolerance of a candidate.
    effect : float
        By how much the mean gap between realised and predicted utility would move if labelled rows
        had the scores of all rows: the part of the effect that can be seen.
    effect_on : str
        The utility of that gap.
    bound : float
        No choice of labels moves a moment by more.
    """

    coverage: Mapping[str, float] = field(default_factory=dict)
    differs: tuple[str, ...] = ()
    worth: float = 0.0
    accepted: float = 0.0
    effect: float = 0.0
    effect_on: str = ""
    bound: float = 0.0

    def late(self, least: float) -> str | None:
        """Say which predicted branch has too small a share of labels, None if none has."""
        lowest = min(self.coverage, key=lambda name: self.coverage[name], default=None)
        if lowest is None or self.coverage[lowest] >= least:
            return None
        return (
            f"Not audited yet: of the rows that are predicted under '{chat(lowest)}', "
            f"{self.coverage[lowest]:.0%} have a label (windows.min_branch_coverage {least:.0%})."
        )


@dataclass(frozen=True, slots=True, eq=False)
class Noticing:
    """Looks at the rows of a monitor's windows."""

    monitor: Monitor
    subgroups: Subgroups

    def selection(self, found: Decomposed, look: int = 0) -> Selection:
        """Compare labelled rows with all rows of the window, where some have no label.

        `look` counts the earlier looks at the same window.
        """
        data, monitor = found.data, self.monitor
        wanted = monitor.policy.noticing.enabled or monitor.windows.min_branch_coverage > 0
        if not wanted or data.n_labelled >= data.n_predictions or data.sampled_from is not None:
            return Selection()
        try:
            everyone = monitor.source.predictions(data.start, data.end)
        except TooManyBadRowsError:
            return Selection()  # of rows without labels; those with labels can be used
        return look_at_labels(
            everyone,
            score_rows(
                monitor.utilities, Predictions.of(everyone.probabilities), tree=monitor.tree
            ),
            (data.probabilities, found.rows, found.weights),
            tree=monitor.tree,
            subgroups=self.subgroups,
            label_probability=data.label_probability,
            tolerance=float(
                monitor.policy.tolerance.values(
                    monitor.tree, monitor.utilities, self.subgroups
                ).min(initial=1.0)
            ),
            part=1.0 / ((look + 1) * (look + 2)) if monitor.windows.revisit_for else 1.0,
        )

    def faults(self, found: Decomposed, selection: Selection) -> dict[str, str | None]:
        """Say what makes bounds untrue: by what it is remembered, and None where nothing does."""
        data = found.data
        if not self.monitor.policy.noticing.enabled or data.sampled_from is not None:
            return {}
        if data.clusters is None:
            keys = {str(name): data.keys[name].to_numpy() for name in data.keys}
            tested = find_dependence(found.rows, data.probabilities, keys, data.features)
            dependent = None if tested is None else say_dependence(*tested)
        else:
            short = find_short_blocks(found.rows, data.clusters)
            dependent = None if short is None else say_blocks(short)
        return {"labels:chosen": say_selection(selection), "rows:dependent": dependent}


def look_at_labels(
    everyone: PredictionData,
    scored: Sequence[UtilityRows],
    labelled: tuple[Any, Sequence[UtilityRows], Sequence[np.ndarray[Any, Any]]],
    *,
    tree: LabelTree,
    subgroups: Subgroups,
    tolerance: float,
    label_probability: Floats | None = None,
    part: float = 1.0,
) -> Selection:
    """Compare labelled rows, given as probabilities, rows and subgroup weights, with all rows.

    What cannot matter beside the `tolerance` is left out. `part` is how much of the error budget
    this look may use.
    """
    probabilities, rows, weights = labelled
    n, n_labelled = everyone.n, probabilities.shape[0]
    here, there = (_predicted_child(p, tree) for p in (probabilities, everyone.probabilities))
    names = children(tree, 0)[0]
    size = len(names)
    counts = [np.bincount(found, minlength=size) for found in (here, there)]
    coverage = {
        names[c]: float(min(1.0, counts[0][c] / counts[1][c]))
        for c in range(size)
        if counts[1][c] >= _LEAST_ROWS
    }
    share = n_labelled / n
    if n_labelled < _LEAST_ROWS or n - n_labelled < _LEAST_ROWS:
        return Selection(coverage)
    chance = np.full(n_labelled, share) if label_probability is None else label_probability
    spread = max(float(np.max(u.utility.spreads(tree), initial=0.0)) for u in rows)
    shares = [
        *_range_terms(rows, scored),
        *_child_terms(here, there, names),
        *_group_terms(weights, subgroups.weights(everyone.features, n), subgroups),
    ]
    level = part * _LEVEL
    sure = [
        *_sure(_mean_terms(rows, scored), chance, level),
        *_sure(shares, chance, level, spread),
    ]
    bound = (1.0 - share) * spread
    least = _LEAST_WORTH * tolerance if bound > tolerance else math.inf
    told = [(worth, words) for worth, words in sure if worth > least]
    effects = _effects(rows, scored, chance if label_probability is not None else None)
    utility = max(effects, key=lambda name: abs(effects[name]))
    return Selection(
        coverage,
        tuple(words for _, words in told),
        max((worth for worth, _ in told), default=0.0),
        tolerance,
        effects[utility],
        utility,
        bound,
    )


def say_selection(found: Selection) -> str | None:
    """Say how labelled rows differ, and what that does to moments; None where they do not."""
    if not found.differs:
        return None
    shown = "; ".join(found.differs[:3])
    more = f" and {len(found.differs) - 3} more" if len(found.differs) > 3 else ""
    text = (
        f"Labels may be no random choice: labelled rows have {shown}{more}. Random labels differ "
        f"as much in at most {_LEVEL:.0%} of windows."
    )
    lowest = min(found.coverage, key=lambda name: found.coverage[name], default=None)
    if lowest is not None and found.coverage[lowest] < 0.9 * max(found.coverage.values()):
        highest = max(found.coverage, key=lambda name: found.coverage[name])
        text += (
            f" Under '{chat(lowest)}' {found.coverage[lowest]:.0%} of the rows have a label, under "
            f"'{chat(highest)}' {found.coverage[highest]:.0%}."
        )
    return (
        f"{text} In utility that is up to {number(found.worth)} per prediction (tolerance "
        f"{number(found.accepted)}); with the scores of all rows the mean gap of "
        f"{chat(found.effect_on)} would be {_moved(found.effect)}, and no choice of labels moves "
        f"it by more than {found.bound:.2f}. If labels are late, raise windows.label_lag; if rows "
        "are chosen for labels, choose them with: huc-monitor sample"
    )


def _moved(effect: float) -> str:
    """Say how far a mean would be off, with digits enough to be no zero."""
    if abs(effect) < 1e-6:
        return "the same"
    return f"{number(abs(effect))} {'higher' if effect > 0 else 'lower'}"


def _sure(
    terms: Terms, chance: Floats, level: float, spread: float | None = None
) -> list[tuple[float, str]]:
    """Say what differs by more than chance, and its worth, with half of the error budget.

    Terms are utilities, or, where a `spread` of contributions is given, shares of rows.
    """
    tested: list[tuple[float, float, str]] = []
    for words, mine, theirs in terms:
        z = _deviation(mine, theirs, chance, step=0.0 if spread is None else 1.0)
        if z is not None:
            more, higher = ("more", "higher") if z > 0 else ("fewer", "lower")
            told = words.replace("{more}", more, 1).replace("{higher}", higher, 1)
            own, mean = float(np.average(mine, weights=1.0 / chance)), float(theirs.mean())
            style = ".3f" if spread is None else ".1%"
            worth = abs(own - mean) * (1.0 if spread is None else spread)
            tested.append((abs(z), worth, f"{told} ({own:{style}} instead of {mean:{style}})"))
    least = NormalDist().inv_cdf(1.0 - 0.5 * level / (2 * max(1, len(tested))))
    return [(worth, words) for z, worth, words in sorted(tested, reverse=True) if z > least]


def _deviation(mine: Floats, theirs: Floats, chance: Floats, step: float) -> float | None:
    """Compare a weighted mean of labelled rows with that of all, as a normal deviate.

    `step` is by how much one row changes the sum of a term. Of chances that are all the same, all
    rows tell the variance and skewness of the sum; of others, labelled rows do, and the sum goes
    with its own variance. What is skewed is made normal as Wilson and Hilferty do.
    """
    mean = float(theirs.mean())
    present = min(float(np.count_nonzero(mine)), float(np.count_nonzero(mine - 1.0)))
    known = bool(np.ptp(chance) > 0)
    c = chance if known else np.full(theirs.size, chance[0])
    off = ((mine if known else theirs) - mean) / c
    times = 1.0 if known else c
    variance = float(np.sum(times * (1.0 - c) * off**2))
    if variance <= 0 or present < _LEAST_ROWS / 3:
        return None
    cubes = times * (1.0 - c) * off**3 / variance**1.5
    skew = float(np.sum((1.0 - 2.0 * c) * cubes))
    along = float(np.sum((1.0 - c) * cubes)) if known else 0.0
    total, half = float(np.sum((mine - mean) / chance)), 0.5 * step * float(np.mean(1.0 / chance))
    z = math.copysign(max(0.0, abs(total) - half), total) / math.sqrt(variance)
    z, skew = z + along / 2.0, skew - 3.0 * along
    if abs(skew) < 1e-6:
        return z
    return 6.0 / skew * (float(np.cbrt(1.0 + skew * z / 2.0)) - 1.0) + skew / 6.0


def _mean_terms(rows: Sequence[UtilityRows], scored: Sequence[UtilityRows]) -> Terms:
    for mine, theirs in zip(rows, scored, strict=True):
        yield f"{{higher}} scores of {chat(mine.utility.name)}", mine.scores, theirs.scores


def _range_terms(rows: Sequence[UtilityRows], scored: Sequence[UtilityRows]) -> Terms:
    for mine, theirs in zip(rows, scored, strict=True):
        name = chat(mine.utility.name)
        for cut in np.unique(np.quantile(theirs.scores, [0.25, 0.5, 0.75])):
            words = f"{{more}} scores of {name} above {cut:.2f}"
            yield words, (mine.scores > cut).astype(float), (theirs.scores > cut).astype(float)


def _child_terms(here: Ints, there: Ints, names: Sequence[str]) -> Terms:
    often = np.argsort(-np.bincount(there, minlength=len(names)), kind="stable")[:_MOST_CHILDREN]
    for c in often.tolist():
        words = f"{{more}} predictions of '{chat(names[c])}'"
        yield words, (here == c).astype(float), (there == c).astype(float)


def _group_terms(
    mine: Sequence[np.ndarray[Any, Any]],
    theirs: Sequence[np.ndarray[Any, Any]],
    subgroups: Subgroups,
) -> Terms:
    for name, own, all_rows in list(zip(subgroups.names, mine, theirs, strict=True))[1:]:
        yield f"{{more}} of {chat(name)}", np.asarray(own, float), np.asarray(all_rows, float)


def _predicted_child(probabilities: Any, tree: LabelTree) -> Ints:
    """Return the child of the root under which every row's likeliest leaf lies."""
    place = np.empty(tree.n_leaves, dtype=np.int64)
    for c, leaves in enumerate(children(tree, 0)[1]):
        place[leaves] = c
    found: Ints = place[Predictions.of(probabilities).likeliest()]
    return found


def _effects(
    rows: Sequence[UtilityRows], scored: Sequence[UtilityRows], chance: Floats | None
) -> dict[str, float]:
    """Return, by utility, how the mean gap would move if labelled rows had the scores of all."""
    weights = np.empty(0) if chance is None else 1.0 / chance
    found = {}
    for mine, theirs in zip(rows, scored, strict=True):
        item = ScoreGaps.of(mine, weights)
        there = item.forecast(theirs.scores)
        found[mine.utility.name] = there.value - there.score - float(item.weights @ item.gaps)
    return found
