"""The largest interval moment of every branch: one exact scan per subgroup and utility."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from huc_monitor.audit.clusters import ClusterSizes, Sizes
from huc_monitor.audit.packs import Pack, each_pack
from huc_monitor.audit.row_weights import WeightUnit
from huc_monitor.subgroups import Memberships
from huc_monitor.utilities.program import Floats, Ints

if TYPE_CHECKING:
    from huc_monitor.audit.decomposition import SortedRows

_HEADROOM_BITS = 61
_LEAST_STEP = 1 << 8
# Which of two samples a row belongs to.
AFTER, BEFORE = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Subgroup weights on the rows of a window, how often each row counts, and what is dependent.

    ``weights[c]`` is uint8 for an indicator and float64 otherwise. ``repeats`` is empty when every
    row counts once, and otherwise how often each counts, in numbers of ``unit``: its row weight
    over the probability with which its label was chosen. Their sum is ``mass``.

    ``times`` are the row weights alone, where labels were chosen with known probability, and empty
    otherwise: how many rows a row stands for is then not how often it counts. Where the probability
    is the same for all rows, it is ``evenly``, and changes nothing but how rows count beside those
    of another window. ``clusters`` are the keys of the clusters of dependent rows, empty where all
    rows are independent.

    Two samples of masses a and b are rows of one window too: with ``mass`` = m = ab / (a + b), a
    row of the first counts m / a times, one of the second -m / b times (`factors`), so that a
    sum over m is the difference of the samples' moments. ``sample`` says which sample a row is of
    and ``masses`` are a and b; both are empty where there is one sample. ``known`` are the sizes of
    all rows where these are a part of them, or were counted before.
    """

    weights: Memberships
    repeats: Floats
    mass: float
    unit: float = 1.0
    sample: npt.NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, dtype=np.uint8))
    masses: tuple[float, ...] = ()
    times: Floats = field(default_factory=lambda: np.empty(0))
    clusters: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    evenly: float = 1.0
    known: Sizes | None = None

    @classmethod
    def of(
        cls,
        weights: Sequence[np.ndarray[Any, Any]],
        repeats: Floats | None,
        label_probability: Floats | None = None,
        clusters: Ints | None = None,
    ) -> Groups:
        """Bundle subgroup weights with what else was given for the rows, checked."""
        weights = Memberships.of(weights)
        more: dict[str, Any] = {} if clusters is None else {"clusters": clusters}
        if label_probability is not None and label_probability.size:
            if np.ptp(label_probability) > 0:
                more["times"] = np.ones(weights.n_rows) if repeats is None else repeats
                repeats = more["times"] / label_probability
            else:
                more["evenly"] = float(label_probability[0])
        if repeats is None:
            return dataclasses.replace(cls.counted(weights, np.empty(0)), **more)
        counted = WeightUnit.of(repeats).count(repeats)
        mass = math.fsum(counted.tolist())
        return cls(weights, counted, mass, float(repeats.sum()) / mass, **more)

    @classmethod
    def counted(
        cls, weights: Sequence[np.ndarray[Any, Any]], repeats: Floats, unit: float = 1.0
    ) -> Groups:
        """Bundle subgroup weights with row weights that are in numbers of a unit already."""
        found = Memberships.of(weights)
        mass = math.fsum(repeats.tolist()) if repeats.size else float(found.n_rows)
        return cls(found, repeats, mass, unit)

    @classmethod
    def joined(cls, parts: Sequence[Groups]) -> Groups:
        """Bundle the rows of several windows into one."""
        counts = [groups.weights.n_rows for groups in parts]
        pairs = list(zip(parts, counts, strict=True))
        repeats = probability = clusters = None
        if any(groups.repeats.size for groups in parts):
            repeats = np.concatenate([g.copies(count) for g, count in pairs])
        if any(groups.times.size or groups.evenly < 1 for groups in parts):
            probability = np.concatenate([g.label_probability(count) for g, count in pairs])
        if any(groups.clusters.size for groups in parts):
            clusters = np.concatenate([g.cluster_keys(k, n) for k, (g, n) in enumerate(pairs)])
        weights = Memberships.joined([groups.weights for groups in parts])
        return cls.of(weights, repeats, probability, clusters)

    @classmethod
    def difference(cls, after: Groups, before: Groups) -> Groups:
        """Bundle two samples, the rows of ``before`` first, to measure after minus before."""
        # Each sample is a mean of its own, which what all of its rows share does not change.
        both = cls.joined([dataclasses.replace(one, evenly=1.0) for one in (before, after)])
        counts = [before.weights.n_rows, after.weights.n_rows]
        sample = np.repeat(np.array([BEFORE, AFTER], dtype=np.uint8), counts)
        sizes = (after.mass * after.unit, before.mass * before.unit)
        groups = cls.apart(both.weights, both.repeats, both.unit, sample, sizes)
        return dataclasses.replace(groups, times=both.times, clusters=both.clusters)

    @classmethod
    def apart(
        cls,
        weights: Sequence[np.ndarray[Any, Any]],
        repeats: Floats,
        unit: float,
        sample: npt.NDArray[np.uint8],
        sizes: tuple[float, float],
    ) -> Groups:
        """Bundle rows of two samples of known sizes, of which these may be a part."""
        masses = tuple(size / unit for size in sizes)
        mass = 1.0 / sum(1.0 / one for one in masses)
        return cls(Memberships.of(weights), repeats, mass, unit, sample, masses)

    def take(self, rows: Ints) -> Groups:
        """Return the same subgroups on a subset of the rows of one sample."""
        repeats = self.repeats[rows] if self.repeats.size else self.repeats
        groups = Groups.counted(self.weights.take(rows), repeats, self.unit)
        return dataclasses.replace(
            groups,
            times=self.times[rows] if self.times.size else self.times,
            clusters=self.clusters[rows] if self.clusters.size else self.clusters,
            evenly=self.evenly,
        )

    def simplified(self) -> Groups:
        """Return the same without clusters, where each is one row: they change nothing."""
        keys = self.clusters
        if not keys.size or self.repeats.size or np.unique(keys).size < keys.size:
            return self
        return dataclasses.replace(self, clusters=np.empty(0, dtype=np.int64))

    def copies(self, n: int) -> Floats:
        """Row weights as they were given."""
        if self.times.size:
            return self.times
        return self.repeats * self.unit if self.repeats.size else np.ones(n)

    def label_probability(self, n: int) -> Floats:
        """With which probability every row was labelled."""
        if self.times.size:
            return self.times / (self.repeats * self.unit)
        return np.full(n, self.evenly)

    def cluster_keys(self, part: int, n: int) -> Ints:
        """Cluster of every row; rows that are independent get keys of their own.

        ``part`` keeps those of several windows apart.
        """
        if self.clusters.size:
            return self.clusters
        alone: Ints = pd.util.hash_array(np.arange(n) + (part << 40)).view(np.int64)
        return alone

    def mean(self, terms: Floats) -> tuple[float, float]:
        """Mean of a number per row, and the variance of that mean."""
        amounts = self.repeats if self.repeats.size else np.ones(terms.size)
        mean = float(np.average(terms, weights=amounts))
        off = amounts * (terms - mean)
        if self.clusters.size:
            _, codes = np.unique(self.clusters, return_inverse=True)
            square = float((np.bincount(codes, off) ** 2).sum())
        else:
            square = float((off**2 / self.copies(terms.size)).sum())
        return mean, square / self.mass**2

    @property
    def least_probability(self) -> float | None:
        """Smallest label probability; None where all rows were labelled alike."""
        n = self.times.size
        return float(self.label_probability(n).min()) if n else None

    @property
    def total(self) -> float:
        """Sum of the row weights as they were given: how many rows these are."""
        return math.fsum(self.times.tolist()) if self.times.size else self.mass * self.unit

    @property
    def uneven(self) -> bool:
        """Whether the rows that count do not all count alike."""
        return np.unique(self.repeats[self.repeats > 0]).size > 1

    @property
    def totals(self) -> list[float]:
        """How many rows every sample has."""
        if self.times.size:
            found: list[float] = np.bincount(self.sample, self.times, minlength=2).tolist()
            return found
        return [mass * self.unit for mass in self.masses]

    @property
    def factors(self) -> Floats:
        """How often a row of each sample counts, with its sign; 1 where there is one sample."""
        if not self.masses:
            return np.ones(1)
        after, before = self.masses
        return np.array([self.mass / after, -self.mass / before])

    @property
    def amounts(self) -> Floats:
        """How often every row counts, with its sign; empty when each counts once."""
        if not self.sample.size:
            return self.repeats
        factors: Floats = self.factors[self.sample]
        return factors * self.repeats if self.repeats.size else factors

    @property
    def counts(self) -> Floats:
        """How many rows every row stands for, in numbers of `count_unit`; empty where it is one."""
        return self.times if self.times.size else self.repeats

    @property
    def count_unit(self) -> float:
        """Rows per 1.0 of `counts`."""
        return self.unit if self.repeats.size and not self.times.size else 1.0

    @property
    def roots(self) -> npt.NDArray[np.float32]:
        """What a row's multiplier is multiplied by; empty where that is 1.

        A row that stands for w independent rows takes the sum of w multipliers: sqrt(w) times one;
        in a cluster these w rows have one multiplier.
        """
        found = self.repeats
        if found.size and not self.clusters.size:
            found = _divide(found, np.sqrt(self.times)) if self.times.size else np.sqrt(found)
        return found.astype(np.float32)

    @property
    def divisors(self) -> Floats:
        """What squared contributions, times how often they count, are divided by; empty: 1."""
        return self.times * (self.mass / self.sizes().n_apart) if self.times.size else self.repeats

    @property
    def n_rare(self) -> float:
        """Rows that the floor for rare branches counts: ``total`` where there is one sample.

        Each of two samples may miss what is rare in it: 1 / n_rare = total * sum of 1 / size**2.
        """
        if not self.masses:
            return self.total
        return self.unit / (self.mass * sum(mass**-2 for mass in self.masses))

    def sizes(self) -> Sizes:
        """Count what a bound may count on."""
        if self.known is not None:
            return self.known
        if not self.times.size and not self.clusters.size:
            n = self.mass * self.unit
            return Sizes(n, self.n_rare, self.mass, n)
        masses = self.masses or (self.mass,)
        parts = [np.arange(self.weights.n_rows)]
        if self.masses:
            parts = [np.flatnonzero(self.sample == s) for s in range(len(masses))]
        own = [
            dataclasses.replace(self.take(part), mass=mass)
            for part, mass in zip(parts, masses, strict=True)
        ]
        tables = [ClusterSizes.of(one.clusters, one.repeats) for one in own if one.clusters.size]
        return Sizes.of(self.mass, masses, [one.squared() for one in own], tables)

    def sized(self) -> Groups:
        """Return the same with sizes counted once."""
        return dataclasses.replace(self, known=self.sizes())

    def squared(self) -> float:
        """Sum over the rows of one sample of how often they count, squared, over rows they are."""
        if not self.times.size:
            return self.mass / self.unit
        return math.fsum(_divide(self.repeats**2, self.times).tolist())

    @property
    def square_shares(self) -> Floats:
        """What squared contributions are multiplied by."""
        return _divide(self.repeats**2, self.divisors)

    @property
    def scale(self) -> float:
        """Units per 1.0 of the integer sums: as fine as 64 bits allow for this window.

        A sum of n contributions of size at most 2 stays below 2**62, and rounding moves a moment
        by at most n * 2**-62: 3e-13 for a million rows, however the rows are ordered. The amounts
        of two samples add up to 2n in absolute value.
        """
        amount = max(1, len(self.masses)) * self.mass
        return math.ldexp(1.0, _HEADROOM_BITS - math.ceil(math.log2(amount)))


def _divide(amounts: Floats, parts: Floats) -> Floats:
    """Return amounts over parts; 0 for rows of weight 0, whose parts are 0."""
    return np.divide(amounts, parts, where=parts > 0, out=np.zeros(amounts.size))


@dataclass(frozen=True, slots=True, eq=False)
class UtilityScan:
    """Moments of one utility: arrays of shape (C, S + 1), the last column being UC.

    ``span`` is the half-open range of sorted rows; ``low`` and ``high`` the closed score interval
    (NaN when the moment is zero and the interval empty). ``on_uc`` and ``on_worst``, of shape
    (C, S), are every branch's moments on the interval of UC and on that of the worst branch.
    """

    moment: Floats
    low: Floats
    high: Floats
    span: Ints
    n_inside: Floats
    size: Floats
    on_uc: Floats
    on_worst: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PackScan:
    """What a scan keeps of some subgroups: `state` and `reached` of `_kernels.scan_rows`."""

    pack: Pack
    state: Ints
    reached: Floats
    size: Floats
    marks: Ints
    step: int

    @classmethod
    def of(cls, rows: SortedRows, groups: Groups, pack: Pack) -> PackScan:
        """Scan the rows of a pack once."""
        from huc_monitor import _kernels

        shape = pack.groups.size, rows.relevant.size + 1
        # So that marks take no more room than a number per row, nor making them much time.
        step = max(_LEAST_STEP, math.prod(shape))
        found = cls(
            pack,
            np.zeros((*shape, 5), dtype=np.int64),
            np.zeros((*shape, 2)),
            np.zeros(shape[0]),
            np.zeros((rows.order.size // step + 1, shape[0], shape[1] - 1), dtype=np.int64),
            step,
        )
        _kernels.scan_rows(
            rows.scores,
            rows.labels,
            pack.values,
            pack.cells,
            pack.table,
            groups.counts[rows.order] if groups.counts.size else groups.counts,
            rows.paths,
            step,
            found.state,
            found.reached,
            found.size,
            found.marks,
        )
        return found

    @property
    def prefixes(self) -> tuple[Ints, Ints, Ints]:
        """Total, lowest and highest prefix sum."""
        return self.state[..., 0], self.state[..., 1], self.state[..., 2]

    @property
    def ends(self) -> Ints:
        """Where the lowest and the highest prefix end."""
        return self.state[..., 3:]

    @property
    def best(self) -> Ints:
        """Largest absolute interval sum, with its sign."""
        _, low, high = self.prefixes
        return np.where(self.rises, high - low, low - high)

    @property
    def rises(self) -> npt.NDArray[np.bool_]:
        """Whether the lowest prefix comes before the highest."""
        found: npt.NDArray[np.bool_] = self.ends[..., 1] > self.ends[..., 0]
        return found

    def in_order(self, pairs: Any) -> Any:
        """Return numbers of the lowest and the highest prefix as those of first and last."""
        return np.where(self.rises[..., None], pairs, pairs[..., ::-1])

    def sums_on(self, rows: SortedRows, spans: Ints) -> Ints:
        """Add up every branch on ranges of sorted rows, (G, K, 2): shape (G, K, S)."""
        from huc_monitor import _kernels

        sums = np.zeros((*spans.shape[:2], rows.relevant.size), dtype=np.int64)
        _kernels.interval_sums(
            rows.labels,
            self.pack.values,
            self.pack.cells,
            self.pack.table,
            rows.paths,
            self.step,
            self.marks,
            spans,
            sums,
        )
        return sums


def scan_utility(
    rows: SortedRows, groups: Groups, also: Callable[[Pack, Ints], None] | None = None
) -> UtilityScan:
    """Maximise the absolute moment over all intervals, for every subgroup and relevant branch.

    ``also`` is called with every pack of subgroups and their spans, while these are at hand.
    """
    n_groups, n_slots = len(groups.weights), rows.relevant.size
    best = np.zeros((n_groups, n_slots + 1), dtype=np.int64)
    span = np.zeros((n_groups, n_slots + 1, 2), dtype=np.int64)
    inside = np.zeros((n_groups, n_slots + 1))
    size = np.zeros(n_groups)
    shown = np.zeros((n_groups, 2, n_slots), dtype=np.int64)

    def work(pack: Pack) -> None:
        scan, mine = PackScan.of(rows, groups, pack), pack.groups
        best[mine] = scan.best
        span[mine] = spans = np.ascontiguousarray(scan.in_order(scan.ends))
        first, last = np.moveaxis(scan.in_order(scan.reached) * groups.count_unit, -1, 0)
        inside[mine] = last - first
        size[mine] = scan.size * groups.count_unit
        if n_slots:
            worst = np.argmax(np.abs(best[mine, :n_slots]), axis=1)
            chosen = np.stack([np.full_like(worst, n_slots), worst], axis=1)
            wanted = np.take_along_axis(spans, chosen[..., None], axis=1)
            shown[mine] = scan.sums_on(rows, wanted)
        if also is not None:
            also(pack, spans)

    each_pack(rows, groups, work)
    unit = 1.0 / (rows.scale * groups.mass)
    empty = span[..., 0] == span[..., 1]
    low = np.where(empty, np.nan, rows.scores[np.minimum(span[..., 0], rows.scores.size - 1)])
    high = np.where(empty, np.nan, rows.scores[span[..., 1] - 1])
    return UtilityScan(
        moment=best.astype(np.float64) * unit,
        low=low,
        high=high,
        span=span,
        n_inside=inside,
        size=size,
        on_uc=shown[:, 0].astype(np.float64) * unit,
        on_worst=shown[:, 1].astype(np.float64) * unit,
    )


def scan_with_squares(
    rows: SortedRows, groups: Groups, also: Callable[[Pack, Ints], None] | None = None
) -> tuple[UtilityScan, Floats]:
    """Do what `scan_utility` does and, while packs are at hand, what `second_moments` does."""
    sums = np.zeros((len(groups.weights), rows.relevant.size), dtype=np.int64)

    def both(pack: Pack, spans: Ints) -> None:
        add_squares(rows, groups, pack, sums)
        if also is not None:
            also(pack, spans)

    scan = scan_utility(rows, groups, both)
    return scan, mean_squares(sums, rows.scale, groups.mass)


def second_moments(rows: SortedRows, groups: Groups) -> Floats:
    """Mean squared contribution of every subgroup and relevant branch, shape (C, S)."""
    sums = np.zeros((len(groups.weights), rows.relevant.size), dtype=np.int64)
    each_pack(rows, groups, lambda pack: add_squares(rows, groups, pack, sums))
    return mean_squares(sums, rows.scale, groups.mass)


def mean_squares(sums: Ints, scale: float, mass: float) -> Floats:
    """Turn what `add_squares` added up into means."""
    return sums / (0.5 * scale * mass)


def add_squares(rows: SortedRows, groups: Groups, pack: Pack, sums: Ints) -> None:
    """Add up every branch's squared contributions in a pack's subgroups, in units of 2 / scale.

    ``sums`` are those of all subgroups, (C, S).
    """
    from huc_monitor import _kernels

    found = np.zeros((pack.groups.size, rows.relevant.size), dtype=np.int64)
    _kernels.square_sums(
        rows.order,
        rows.labels,
        pack.values,
        pack.cells,
        pack.table,
        groups.divisors,
        rows.paths,
        rows.scale,
        found,
    )
    sums[pack.groups] += found
