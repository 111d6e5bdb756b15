"""Find subgroups nobody named in which a branch misstates utility, and certify them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from huc_monitor._common.checks import check_number
from huc_monitor._common.forms import Form
from huc_monitor._common.frames import to_frame
from huc_monitor._common.row_order import check_row_order
from huc_monitor._common.views import Plotted
from huc_monitor.audit.clusters import FEW_CLUSTERS, check_clusters, check_label_probability
from huc_monitor.audit.decomposition import iter_decomposed
from huc_monitor.audit.discovery.conditions import Mask, comparable, read_features
from huc_monitor.audit.discovery.halves import Half, Place, amounts_of, divide
from huc_monitor.audit.discovery.options import SEARCH, DiscoveryOptions
from huc_monitor.audit.discovery.search import Found, Search, unexplained
from huc_monitor.audit.inputs import (
    check_labels,
    check_predictions,
    check_tree,
    check_utilities,
)
from huc_monitor.audit.label_depth import coverage_among
from huc_monitor.audit.options import DEFAULTS, AuditOptions
from huc_monitor.errors import InvalidInputError
from huc_monitor.subgroups import Subgroups
from huc_monitor.subgroups._outcome import doubt_outcome
from huc_monitor.subgroups._predicates import Predicate
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility

FEWEST_ROWS: Final = 400


@dataclass(frozen=True, slots=True)
class Segment(Form):
    """Rows, described by their features, in which one branch misstates utility.

    Attributes
    ----------
    name : str
        The conditions in short, as a name for `huc.yaml`; "all" where there are none.
    rule : dict or None
        The conditions as a predicate of `Subgroups`; None where there are none.
    utility, node : str
    score_range : {"any", "low", "high"}
        Whether the finding is about all predicted utilities, or those below or above their median.
    n : int
        Certifying rows in the segment whose label lies below the branch.
    share : float
        Of all certifying rows that are in the segment and the range of predicted utilities.
    moment, lower, upper : float
        Mean contribution of the branch, over all certifying rows, with simultaneous bounds:
        negative where predictions overstate utility.
    moment_in_segment : float
        The same per row of the segment that reaches the branch.
    certified : bool
        Whether the bounds exclude zero, and everything up to the tolerance.
    """

    name: str
    rule: dict[str, Any] | None
    utility: str
    node: str
    score_range: str
    n: int
    share: float
    moment: float
    lower: float
    upper: float
    moment_in_segment: float
    certified: bool

    @property
    def whom(self) -> str:
        """Which rows it is about, in short."""
        who = "All rows" if self.rule is None else self.name
        return who if self.score_range == "any" else f"{who}, {self.score_range} predicted utility"

    def __str__(self) -> str:
        """Say the finding in one sentence."""
        way = "overstate" if self.moment < 0 else "understate"
        return (
            f"{self.whom} ({self.share:.1%} of the certifying rows): at {self.node!r} "
            f"predictions {way} {self.utility} by {abs(self.moment_in_segment):.3g}, the mean of "
            f"the {self.n:,} of them labelled below it; {self.moment:+.2g} per prediction "
            f"[{self.lower:+.2g}, {self.upper:+.2g}]"
            + ("." if self.certified else "; not certified.")
        )


@dataclass(frozen=True, slots=True, eq=False)
class Discovery(Form, Plotted):
    """What a search found, and what of it held on rows that did not choose it.

    Attributes
    ----------
    segments : tuple of Segment
        In the order of the size of their certain moment; those not certified come last.
    n_searched, n_certifying : int
    confidence_level : float
        Probability that the bounds of all segments hold at once.
    notes : tuple of str
        Columns and rows that were left out, and why.
    """

    segments: tuple[Segment, ...]
    n_searched: int
    n_certifying: int
    confidence_level: float
    notes: tuple[str, ...] = ()

    @property
    def certified(self) -> tuple[Segment, ...]:
        """Segments that held."""
        return tuple(segment for segment in self.segments if segment.certified)

    @property
    def predicates(self) -> dict[str, Predicate]:
        """Return the certified segments' rules by name: `subgroups.predicates` in ``huc.yaml``."""
        return {s.name: s.rule for s in self.certified if s.rule is not None}

    def make_subgroups(self, features: Any) -> Subgroups:
        """Make the family of the certified segments, for audits and recalibration."""
        return Subgroups.from_reference(features, predicates=self.predicates)

    def to_frame(self, *, all_columns: bool = False) -> pd.DataFrame:
        """Tabulate the segments: what people read first, or all columns."""
        columns = list(Segment.__slots__)
        frame = pd.DataFrame([segment.to_dict() for segment in self.segments], columns=columns)
        less = [] if all_columns else ["rule", "score_range", "share", "moment_in_segment"]
        return frame.drop(columns=less)

    def __repr__(self) -> str:
        """Count and name what was certified."""
        names = ", ".join(repr(segment.name) for segment in self.certified[:3])
        found = f"{len(self.certified)} certified" + (f": {names}" if names else "")
        return f"Discovery({found}, of {len(self.segments)} found)"


def discover(
    probabilities: Any,
    labels: Any,
    *,
    tree: LabelTree | str | Path,
    features: Any,
    utilities: Sequence[Utility] | Utility | None = None,
    clusters: Any = None,
    label_probability: Any = None,
    tolerance: float | None = None,
    max_conditions: int = SEARCH.max_conditions,
    max_segments: int = SEARCH.max_segments,
    min_share: float = SEARCH.min_share,
    confidence_level: float = DEFAULTS.confidence_level,
    rng: int = DEFAULTS.rng,
) -> Discovery:
    """Find the subgroups and branches in which utility is misstated most.

    Half of the rows, drawn at random, are searched for conjunctions of conditions on the features;
    the other half, which chose nothing, bounds what was found. What one segment explains of its
    branch is taken out before the next is looked for, so that neighbours of a finding do not
    appear again.

    Parameters
    ----------
    probabilities, labels, tree, utilities
        As in `audit`.
    features : DataFrame of n rows
        Columns of categories, numbers or times; missing values are a condition of their own.
        Columns of more than 50 texts, and those that rules cannot compare, such as lists, are left
        out, with a note.
    clusters, label_probability : (n,), optional
        As in `audit`. A cluster is searched or certifies as a whole; rows count 1 / probability.
    tolerance : float, optional
        A segment is certified where its moment is larger than this, with confidence; 0 when left
        out.
    max_conditions : int, default 2
        Conditions that a segment may combine, 1 to 3.
    max_segments : int, default 8
        Segments to look for. Fewer give narrower bounds.
    min_share : float, default 0.01
        Smallest share of rows in a segment.
    confidence_level : float, default 0.95
        Probability that the bounds of all segments hold at once.
    rng : int, default 0
        Seed of the division into two halves.

    Returns
    -------
    Discovery

    Notes
    -----
    Bounds are Student's, for independent rows or clusters; the probability of error is divided over
    what was found by the searched rows' odds that it is more than chance. The variance is at least
    the one that predictions expect, with the floor of `audit` for rare outcomes that did not
    happen. On calibrated predictions a segment is certified with probability at most
    1 - confidence_level.
    Left out is what the certifying rows owe to clearer segments, or find off the other way.
    A segment that is not found is no proof of calibration: opposite errors inside every condition
    and range of predicted utility stay hidden.

    Examples
    --------
    >>> import numpy as np, pandas as pd, huc_monitor as hm
    >>> rng = np.random.default_rng(0)
    >>> tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    >>> frame = pd.DataFrame(
    ...     {"zoo": rng.choice(list("abc"), 6000), "age": rng.uniform(0, 9, 6000)}
    ... )
    >>> p = rng.dirichlet([2, 2, 2], 6000)
    >>> swapped = ((frame["zoo"] == "b") & (frame["age"] < 5)).to_numpy()
    >>> truth = np.where(swapped[:, None], p[:, [1, 0, 2]], p)
    >>> y = (truth.cumsum(axis=1) < rng.uniform(size=(6000, 1))).sum(axis=1)
    >>> found = hm.discover(p, y, tree=tree, features=frame)
    >>> (
    ...     found.certified[0].node,
    ...     sorted(part["column"] for part in found.certified[0].rule["and"]),
    ... )
    ('cat', ['age', 'zoo'])
    """
    tree = check_tree(tree)
    chosen = check_utilities(utilities, tree)
    options = AuditOptions(confidence_level=confidence_level, rng=rng)
    accepted = 0.0 if tolerance is None else tolerance
    check_number("tolerance", accepted, least=0)
    far = DiscoveryOptions(
        max_conditions=max_conditions, max_segments=max_segments, min_share=min_share
    )
    frame = to_frame(features, "features")
    design = {"clusters": clusters, "label_probability": label_probability}
    check_row_order(probabilities=probabilities, labels=labels, features=frame, **design)
    predictions = check_predictions(probabilities, tree=tree)
    codes = check_labels(labels, predictions.n, tree=tree)
    if not isinstance(frame, pd.DataFrame) or len(frame) != predictions.n:
        msg = f"`features` must be a DataFrame with a row per prediction ({predictions.n})."
        raise InvalidInputError(msg)
    if predictions.n < FEWEST_ROWS:
        msg = f"`labels` must have at least {FEWEST_ROWS} rows to search and to certify; got "
        raise InvalidInputError(msg + f"{predictions.n}. Wait for more labels.")
    frame, left_out = comparable(frame)
    keys = check_clusters(clusters, predictions.n)
    chance = check_label_probability(label_probability, predictions.n)
    halves = divide(predictions.n, keys, options.rng)
    rows = list(iter_decomposed(chosen, predictions, codes, tree=tree))
    search, certify = (
        Half(
            frame.iloc[half].reset_index(drop=True),
            predictions.take(half),
            [item.take(half) for item in rows],
            [float(np.median(item.scores)) for item in rows],
            None if chance is None else amounts_of(chance[half]),
            None if keys is None else np.unique(keys[half], return_inverse=True)[1],
        )
        for half in halves
    )
    found, notes = _search(search, far)
    segments = _certify(found, certify, accepted, confidence_level)
    notes = [*left_out, *doubt_outcome(frame, frame.columns, codes, tree), *notes]
    few = [half.clusters.max() + 1 for half in (search, certify) if half.clusters is not None]
    if few and min(few) < FEW_CLUSTERS:
        notes.append(
            f"one half of the rows has {min(few)} clusters: below {FEW_CLUSTERS:g} little can be "
            "found, and bounds are not to be relied on"
        )
    return Discovery(segments, halves[0].size, halves[1].size, confidence_level, tuple(notes))


def _search(half: Half, far: DiscoveryOptions) -> tuple[list[tuple[Found, Place]], list[str]]:
    n = len(half.frame)
    min_rows = max(20, math.ceil(far.min_share * n / 2))
    columns = half.columns()
    nodes = np.array([half.node(u, slot) for u, slot, _ in columns])
    peers = [np.flatnonzero(nodes == node) for node in nodes]
    features, notes = read_features(half.frame, math.ceil(far.min_share * n))
    entries = []
    for u, slot, part in columns:
        rows, values = half.entries(u, slot, part)
        entries.append((rows, values / half.spreads[u][slot]))
    designs = [
        max(1.0, half.square(rows, values) / max(float((values**2).sum()), 1e-300))
        for rows, values in entries
    ]
    search = Search(entries, n, peers, features, far.max_conditions, min_rows, designs)
    return [(item, columns[item.column]) for item in search.run(far.max_segments)], notes


def _certify(
    found: list[tuple[Found, Place]],
    half: Half,
    tolerance: float,
    confidence_level: float,
) -> tuple[Segment, ...]:
    """Bound what was found; of what is certified, keep what clearer segments do not explain."""
    # Evidence less its price is the log odds that a finding is more than chance.
    real = 1 / (1 + np.exp([-item.gain for item, _ in found]))
    errors = (1 - confidence_level) * real / max(1.0, real.sum())
    bounded = []
    for (item, column), error in zip(found, errors.tolist(), strict=True):
        inside = _holds(_rule_of(item), half.frame)
        segment = _bound(item, column, inside, half, tolerance, error)
        bounded.append((segment, item.sign, column, inside))
    bounded.sort(key=lambda one: -abs(one[0].moment) / (one[0].upper - one[0].lower))
    segments: list[Segment] = []
    explaining: dict[str, list[Mask]] = {}
    for segment, sign, column, inside in bounded:
        clearer = explaining.setdefault(segment.node, [])
        if segment.certified:
            rows, values = half.entries(*column)
            rest = unexplained(values, [mask[rows] for mask in clearer]) if clearer else values
            mine = inside[rows]
            left = segment.moment * float(rest[mine].sum() / values[mine].sum())
            if sign * left - (segment.upper - segment.lower) / 2 <= tolerance:
                continue
            clearer.append(inside)
        segments.append(segment)
    return tuple(
        sorted(
            segments,
            key=lambda s: (not s.certified, -min(abs(s.lower), abs(s.upper)), s.name, s.node),
        )
    )


def _bound(
    item: Found,
    column: Place,
    inside: Mask,
    half: Half,
    tolerance: float,
    error: float,
) -> Segment:
    """Bound the mean contribution, but for a probability of error."""
    from scipy.special import stdtrit

    n = len(half.frame)
    u, slot, part = column
    rows, values = half.entries(u, slot, part)
    mine = inside[rows]
    rows, values = rows[mine], values[mine]
    # Of the rows that reach the branch, labels may tell a part only: see `label_depth`.
    amounts = np.ones(n) if half.amounts is None else half.amounts
    seen = coverage_among(half.rows[u], inside * amounts)[slot] or 1.0
    in_segment = float(values.sum() / amounts[rows].sum()) if values.size else 0.0
    values = values / seen
    moment = float(values.sum() / n)
    # The squares seen are too few where outcomes are rare: what predictions expect counts, and
    # the floor of `bounds.bootstrap` for what may happen nonetheless.
    meant = inside & half.in_range(u, part)
    expected = half.expected_square(u, slot, meant) / seen
    square = max(half.square(rows, values), expected)
    square += -math.log(error) * (half.largest(meant) * half.spreads[u][slot] / seen) ** 2
    spread = math.sqrt(max(square / n - moment**2, 0.0) / n)
    n_apart = half.n_apart(rows)
    radius = float(stdtrit(max(1, n_apart - 1), 1 - error / 2)) * spread
    return Segment(
        name=" and ".join(c.name for c in item.conditions) or "all",
        rule=_rule_of(item),
        utility=half.rows[u].utility.name,
        node=half.node(u, slot),
        score_range=part,
        n=int(values.size),
        share=float((amounts * meant).sum() / n),
        moment=moment,
        lower=moment - radius,
        upper=moment + radius,
        moment_in_segment=in_segment,
        certified=n_apart > 1 and abs(moment) - radius > tolerance,
    )


def _rule_of(item: Found) -> dict[str, Any] | None:
    rules: list[dict[str, Any]] = []
    for condition in item.conditions:
        rules += condition.rule["and"] if set(condition.rule) == {"and"} else [condition.rule]
    if not rules:
        return None
    return rules[0] if len(rules) == 1 else {"and": rules}


def _holds(rule: dict[str, Any] | None, frame: pd.DataFrame) -> np.ndarray[Any, Any]:
    if rule is None:
        return np.ones(len(frame), dtype=bool)
    family = Subgroups.from_reference(frame, predicates={"segment": rule})
    return family.weights(frame, len(frame))[1].astype(bool)
