"""Drift: what moved since the reference, seen without labels.

Three kinds of things are compared with a frozen reference: how predicted mass is split among the
children of every node, the distribution of every utility's scores, and the share of every
subgroup. None of this says that predictions are wrong: a model may stay calibrated while its
inputs move, and go wrong while they stay. It says where to look until labels arrive.

The bounds
    All distances lie between 0 and 1. Rows of the two samples are taken as independent; N
    statistics are compared at confidence level 1 - d, and each sample may be wrong about each
    statistic with probability d / 2N. So with x = log(4 N / d), at once for all of them:

    * shares of a subgroup are off by at most w sqrt(x / 2n) (Hoeffding; w is the range of weights);
    * a distribution function by at most sqrt(x / 2n) (Dvoretzky-Kiefer-Wolfowitz, Massart). It is
      compared at the reference's quantiles only, which can but lower the distance;
    * for a node v with k children let q be their shares of v's mass in the reference, and
      z_c = p_c - q_c p_v: mass that child c has beyond its share. The total variation is
      1/2 sum_c |mean z_c|. One row changes it by at most 1/n, so it exceeds its mean by more than
      sqrt(x / 2n) with probability below exp(-x) (McDiarmid), and its mean is at most
      1/2 sqrt(k / n): the vectors z lie in a set of diameter sqrt(2), so their variance is at
      most 1 (Cauchy-Schwarz).
    * the reference knows q only as well as it knows v. With a the reference's mass of v, its error
      in q is 1/2 sum_c |mean z_c| / a over the reference's rows, where z has mean 0, and moves the
      distance by that times the window's mass of v (at most by that mass itself). For n reference
      rows, let A >= a be an upper bound of the true mass: sqrt(A) = sqrt(x / 2n) +
      sqrt(a + x / 2n) (Chernoff). Given v, what the children get has tilted variance at most 1, so
      z has variance at most A, and any signed half sum of it at most A / 4. So 1/2 sum_c |mean z_c|
      has mean m <= 1/2 sqrt(k A / n), and exceeds it by more than sqrt(x (A / 2 + 4 m) / n) +
      x / 3n with probability below exp(-x) (Bousquet). At the root, whose mass is 1, the term is
      that of the window with the reference's n.

    `lower` is the distance less both samples' terms. A branch without any mass in the reference has
    no split to be compared with: it is said to have no reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from huc_monitor._common.forms import Form
from huc_monitor._common.settings import Number, Section
from huc_monitor.audit.decomposition import UtilityRows
from huc_monitor.audit.options import ConfidenceLevel
from huc_monitor.audit.sparse_rows import Rows
from huc_monitor.monitor.records import DriftFinding
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities.program import Floats, Ints

SCHEMA_VERSION = 1
_N_QUANTILES = 200
_SHOWN = 5
ABSENT = "no reference for this branch"


class DriftPolicy(Section):
    """What is told of predictions that move, also before their labels are there.

    Parameters
    ----------
    enabled : bool, default True
        Whether drift is measured.
    min_distance : float, default 0.05
        Distances larger than this by more than chance are told.
    confidence_level : float, default 0.95
        That none is overstated, all taken together.
    """

    enabled: bool = True
    min_distance: Annotated[Number, Field(ge=0, lt=1)] = 0.05
    confidence_level: ConfidenceLevel = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class DriftReference(Form):
    """What is kept of a sample of predictions to compare others with.

    Attributes
    ----------
    n : int
    leaf_mass : (K,) mean probability of every leaf
    scores : dict of utility to (points, shares): the distribution function at some scores
    mix : dict of subgroup to its mean weight
    label_share : (K,) share of every leaf among the labels, or None
    version : str or None
        The model version that made most of the predictions.
    """

    sparse: ClassVar[tuple[str, ...]] = ("version",)

    n: int
    leaf_mass: Floats
    scores: Mapping[str, tuple[Floats, Floats]]
    mix: Mapping[str, float]
    label_share: Floats | None = None
    version: str | None = None

    schema: ClassVar[int | None] = SCHEMA_VERSION

    def is_of_another(self, version: str | None) -> bool:
        """Whether another model version than this one is known to have made the predictions."""
        return None not in {self.version, version} and self.version != version


def summarise(
    probabilities: Rows,
    rows: Sequence[UtilityRows],
    weights: Sequence[np.ndarray[Any, Any]],
    *,
    subgroups: Subgroups,
    labels: Ints | None = None,
    version: str | None = None,
) -> DriftReference:
    """Reduce a sample of predictions to what drift is measured by."""
    n, n_leaves = probabilities.shape
    share = None
    if labels is not None and n:
        share = leaf_shares(labels, n_leaves)
    return DriftReference(
        n=n,
        leaf_mass=probabilities.mean(axis=0) if n else np.zeros(n_leaves),
        scores={item.utility.name: _distribution(item.scores) for item in rows},
        mix={
            name: float(np.mean(w)) if n else 0.0
            for name, w in zip(subgroups.names, weights, strict=True)
        },
        label_share=share,
        version=version,
    )


def _distribution(scores: Floats) -> tuple[Floats, Floats]:
    ordered = np.sort(scores)
    ranks = np.linspace(0, scores.size - 1, min(_N_QUANTILES, scores.size)).round().astype(int)
    points = np.unique(ordered[ranks])
    return points, np.searchsorted(ordered, points, side="right") / scores.size


def compare(
    reference: DriftReference,
    probabilities: Rows,
    rows: Sequence[UtilityRows],
    weights: Sequence[np.ndarray[Any, Any]],
    *,
    tree: LabelTree,
    subgroups: Subgroups,
    policy: DriftPolicy,
    version: str | None = None,
) -> tuple[DriftFinding, ...]:
    """Measure how far a sample of predictions is from the reference, largest distance first.

    `version` is the model version that made most of them: predictions of another one than the
    reference's move by that alone, and are marked.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree, whole = hm.LabelTree.flat(["a", "b"]), hm.Subgroups.whole()
    >>> def sample(p, n=4000):
    ...     matrix = np.tile([p, 1 - p], (n, 1))
    ...     rows = hm.decompose(matrix, ["a"] * n, tree=tree, utilities=[hm.TopK(1)])
    ...     return matrix, rows, whole.weights(None, n)
    >>> before = summarise(*sample(0.5), subgroups=whole)
    >>> found = compare(before, *sample(0.7), tree=tree, subgroups=whole, policy=DriftPolicy())
    >>> [(item.kind, item.name, round(item.distance, 3), item.drifted) for item in found]
    [('scores', 'top1', 1.0, True), ('branch', 'root', 0.2, True)]
    """
    n = probabilities.shape[0]
    if not n or not reference.n:
        return ()
    n_statistics = tree.arrays.n_branches + len(rows) + len(subgroups) - 1
    x = math.log(4.0 * n_statistics / (1.0 - policy.confidence_level))
    sample = _Comparison(reference, n, math.sqrt(x / 2.0), policy.min_distance)
    found = [
        *sample.branches(probabilities.mean(axis=0), tree),
        *sample.score_distributions(rows),
    ]
    if reference.is_of_another(version):
        both = (str(reference.version), str(version))
        found = [replace(item, versions=both) if item.drifted else item for item in found]
    found += sample.subgroup_mix(weights, subgroups)
    return tuple(sorted(found, key=lambda item: -item.distance))


@dataclass(frozen=True, slots=True)
class _Comparison:
    reference: DriftReference
    n: int
    root: float
    least: float

    def _both(self, per_root: float) -> float:
        return per_root / math.sqrt(self.n) + per_root / math.sqrt(self.reference.n)

    def branches(self, mass: Floats, tree: LabelTree) -> Iterator[DriftFinding]:
        """Yield the total variation of predicted mass among every node's children."""
        before = self.reference.leaf_mass
        for v, node in enumerate(tree.branches):
            names, slices = children(tree, v)
            old = np.array([before[one].sum() for one in slices])
            new = np.array([mass[one].sum() for one in slices])
            if not old.sum() > 0:
                yield DriftFinding(
                    kind="branch", name=node, distance=0.0, lower=0.0, drifted=False, note=ABSENT
                )
                continue
            share = old / old.sum()
            moved = new - share * new.sum()
            distance = 0.5 * float(np.abs(moved).sum())
            per_root = 0.5 * math.sqrt(old.size) + self.root
            radius = self._both(per_root)
            if v > 0:  # branch 0 is the root
                mass_before = float(old.sum())
                known = self._reference_error(mass_before, old.size) / mass_before
                radius = per_root / math.sqrt(self.n) + float(new.sum()) * known
            now = new / new.sum() if new.sum() > 0 else share
            shown = np.argsort(-np.abs(moved), kind="stable")[:_SHOWN]
            sides = ({names[c]: float(side[c]) for c in shown} for side in (share, now))
            yield self._finding("branch", node, distance, radius, *sides)

    def _reference_error(self, mass: float, n_children: int) -> float:
        """Return how far the reference's split of a branch may be off, times its mass."""
        n, x = self.reference.n, 2.0 * self.root**2
        most = (math.sqrt(x / (2 * n)) + math.sqrt(mass + x / (2 * n))) ** 2
        mean = 0.5 * math.sqrt(n_children * most / n)
        return mean + math.sqrt(x * (most / 2 + 4 * mean) / n) + x / (3 * n)

    def score_distributions(self, rows: Sequence[UtilityRows]) -> Iterator[DriftFinding]:
        """Yield the Kolmogorov-Smirnov distance of every utility's scores."""
        for item in rows:
            points, before = self.reference.scores[item.utility.name]
            ordered = np.sort(item.scores)
            after = np.searchsorted(ordered, points, side="right") / self.n
            distance = float(np.abs(after - before).max(initial=0.0))
            old = _quartiles(points, before)
            new = _quartiles(*_distribution(item.scores))
            radius = self._both(self.root)
            yield self._finding("scores", item.utility.name, distance, radius, old, new)

    def subgroup_mix(
        self, weights: Sequence[np.ndarray[Any, Any]], subgroups: Subgroups
    ) -> Iterator[DriftFinding]:
        """Yield the change of every subgroup's share; the whole population has none."""
        for name, w in list(zip(subgroups.names, weights, strict=True))[1:]:
            width = 1.0 if w.dtype == np.uint8 else 2.0
            old, new = self.reference.mix[name], float(np.mean(w))
            distance, radius = abs(new - old) / width, self._both(self.root)
            shares = {"share": old}, {"share": new}
            yield self._finding("subgroup", name, distance, radius, *shares)

    def _finding(
        self,
        kind: Any,
        name: str,
        distance: float,
        radius: float,
        before: dict[str, float],
        after: dict[str, float],
    ) -> DriftFinding:
        lower = max(0.0, distance - radius)
        drifted = lower > self.least
        return DriftFinding(
            kind=kind,
            name=name,
            distance=distance,
            lower=lower,
            drifted=drifted,
            before=before if drifted else {},
            after=after if drifted else {},
        )


def _quartiles(points: Floats, shares: Floats) -> dict[str, float]:
    if not points.size:
        return {}
    at = np.minimum(np.searchsorted(shares, [0.25, 0.5, 0.75]), points.size - 1)
    return dict(zip(("quarter", "median", "three_quarters"), points[at].tolist(), strict=True))


def leaf_shares(labels: Ints, n_leaves: int) -> Floats:
    """Share of every leaf among the labels that reach one."""
    counts = np.bincount(labels[labels < n_leaves], minlength=n_leaves)
    return np.asarray(counts / max(1, counts.sum()))


def label_shift(reference: DriftReference, labels: Ints, policy: DriftPolicy) -> Ints:
    """Return the leaves whose share of the labels moved most, if by more than chance."""
    before, none = reference.label_share, np.empty(0, dtype=np.int64)
    if before is None:
        return none
    labels = labels[labels < before.size]
    if not labels.size:
        return none
    moved = leaf_shares(labels, before.size) - before
    x = math.log(4.0 / (1.0 - policy.confidence_level))
    per_root = 0.5 * math.sqrt(before.size) + math.sqrt(x / 2.0)
    radius = per_root / math.sqrt(labels.size) + per_root / math.sqrt(reference.n)
    if 0.5 * np.abs(moved).sum() - radius <= policy.min_distance:
        return none
    return np.argsort(-np.abs(moved), kind="stable")[:2].astype(np.int64)


def children(tree: LabelTree, branch: int) -> tuple[list[str], list[slice]]:
    """Names of a branch's children, and the leaves below each."""
    arrays = tree.arrays
    names, slices = [], []
    for code in arrays.child_code[arrays.child_ptr[branch] : arrays.child_ptr[branch + 1]]:
        if code >= 0:
            names.append(tree.branches[code])
            slices.append(slice(int(arrays.start[code]), int(arrays.stop[code])))
        else:
            names.append(tree.leaves[-1 - code])
            slices.append(slice(int(-1 - code), int(-code)))
    return names, slices
