"""Gaussian multiplier bootstrap of all candidates' suprema at once: narrow, approximate radii.

One draw gives every row i a normal multiplier g_i, the same for all candidates, and computes for
candidate j with contributions A_i (times the subgroup's weight)

    T_j = sup over intervals I of | (1/n) sum_i (g_i - mean g) A_i 1{s_i in I} |,

whose law, given the rows, imitates that of sup_I |empirical - true moment|. Dividing by

    scale_j = sqrt(mean A^2 + b_j^2 log(N / d) / n)

makes candidates comparable; the radius is q * scale_j, with q the 1 - 0.8 d quantile over draws of
the largest T_j / scale_j. So the radii hold for all candidates together, and a candidate with
small contributions has a small radius. A fifth of the error probability d is kept for the bootstrap
being an approximation: in simulated windows of 500 to 1,000 rows the plain 95 % quantile covered
94 % (tests/bench/coverage.py); the reserve widens radii by about 2 %.

Where a branch is rarely or never seen, its rows say little about it, and two floors keep the radius
honest. The second term of the scale does not vanish with the contributions seen; and q is at least
sqrt(log(N / d) / n), which makes every radius at least b_j log(N / d) / n: an outcome of greater
probability than log(N / d) / n stays unseen in n rows with probability less than d / N.

Ties are kept whole, as in the audit. A row of weight w counts as w independent rows: its multiplier
is sqrt(w) g_i. Weights that are not counts of independent rows make these radii too narrow.

Dependent rows share the multiplier of their cluster (`huc_monitor.audit.bounds.clustered`).

Labels chosen with known probability pi weigh 1 / pi, and moments are divided by the sum of these
weights: M(I) = sum_i w_i A_i 1{s_i in I} / sum_i w_i. To first order its error is the mean of
w_i (A_i 1{s_i in I} - M(I)), so that the multiplier of row i is w_i (g_i - sum w g / sum w). Rows
are counted as (sum w)^2 / sum w^2, in the radius and in the floors; with as many degrees of freedom
less one, the quantile is Student's.

A level that fewer than five of a thousand draws or more reach is found from the fifth largest, t,
of level l. Given the rows, T is the largest of normal variables, and the normal quantile of its
law, z(P(T <= t)), is concave in t (Ehrhard, Borell), with a slope of at least one over the largest
standard deviation, which the scale makes at most one. So the quantile of a level k is at most
t + z(k) - z(l): not too small but for the noise of t, and at k = 0.9997 and 2,000 draws some 4 %
too large. Where rows are dependent or chosen, scales are estimates, and the slope is at most that
between the median and t.

A multiplier is a function of (seed, row, draw): results are the same to the last bit for any number
of threads, and a run with fewer draws uses the first of them. Permuting the rows permutes the
multipliers, and so changes the radii by the noise of the bootstrap itself.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from huc_monitor._common.threads import run_tasks
from huc_monitor.audit.bounds.bound import Bound, log_share
from huc_monitor.audit.bounds.clustered import Drawn, clustered_radii, degrees, student
from huc_monitor.audit.clusters import Sizes
from huc_monitor.audit.packs import Pack, each_pack
from huc_monitor.audit.scan import Groups
from huc_monitor.errors import InvalidInputError
from huc_monitor.utilities.program import Floats, Ints

if TYPE_CHECKING:
    from huc_monitor.audit.decomposition import SortedRows

Singles = npt.NDArray[np.float32]

# Terms of subgroups held at a time (4 bytes each; what they share counts twice); beyond that, draws
# run before more are gathered.
_MOST_TERMS = 1 << 25
_QUANTILE_BITS = 16
_RESERVE = 0.2
# So many draws above a quantile keep it from being noise; of fewer in all it is not continued.
_DRAWS_ABOVE = 5
_MANY_DRAWS = 1000


class Terms(NamedTuple):
    """Contributions of one subgroup and utility, branch after branch, each in order of score.

    ``rows`` counts in the utility's order of score, so that multipliers brought into that order
    are read from first to last.
    """

    ptr: Ints
    rows: npt.NDArray[np.int32]
    values: Singles
    closes: npt.NDArray[np.uint8]


class SharedTerms(NamedTuple):
    """Contributions of a pack's rows, branch after branch, and which are each subgroup's.

    ``rows`` are the caller's; ``starts`` and ``items`` are those of `_kernels.share_terms`.
    """

    ptr: Ints
    rows: npt.NDArray[np.int32]
    values: Singles
    starts: Ints
    items: npt.NDArray[np.uint32]


class BootstrapBound(Bound):
    """Radii from the joint law of all candidates' suprema under Gaussian multipliers."""

    def __init__(self, n_draws: int, seed: int) -> None:
        self.n_draws, self.seed = n_draws, seed

    def start(self, sizes: Sizes, n_candidates: int, confidence_level: float) -> None:
        """Forget earlier visits, and refuse a level that so few draws cannot reach."""
        super().start(sizes, n_candidates, confidence_level)
        level = 1.0 - (1.0 - confidence_level) * (1.0 - _RESERVE)
        # The rank among draws + 1 exchangeable numbers, the observed one included.
        self._rank = math.ceil(level * (self.n_draws + 1) - 1e-9)
        self._beyond, self._known = 0.0, 1.0
        most = self.n_draws + 1 - _DRAWS_ABOVE
        if self._rank > most and self.n_draws >= _MANY_DRAWS:
            self._rank, normal = most, NormalDist().inv_cdf
            self._known = normal(most / (self.n_draws + 1))
            self._beyond = normal(level) - self._known
        if self._rank > self.n_draws:
            least = min(_MANY_DRAWS, math.ceil(level / (1.0 - level) - 1e-9))
            msg = (
                f"`n_draws` must be at least {least} at confidence_level {confidence_level}; "
                f"got {self.n_draws}."
            )
            raise InvalidInputError(msg)
        self._gathered: list[tuple[SharedTerms, Ints, Any]] = []
        self._scales: list[Floats] = []
        self._worst = np.zeros(-(-self.n_draws // _lanes()) * _lanes())
        self._groups: Groups | None = None
        # Where rows are dependent, what the scale is made of is known after all draws.
        self._drawn: list[Drawn] = []
        self._n_effective = sizes.n

    @property
    def n_effective(self) -> float:
        """How many independent rows would give about these radii, once they are made."""
        return self._n_effective

    def visit(
        self, rows: SortedRows, groups: Groups, spreads: Floats, mean_squares: Floats
    ) -> None:
        """List the contributions of every candidate of one utility."""
        if groups.clusters.size:
            found = np.empty((*mean_squares.shape, self._worst.size), dtype=np.int32)
            self._drawn.append(Drawn(mean_squares, found[..., : self.n_draws], spreads))
            takers: Any = found
        else:
            takers = shrinking(spreads, self._scale(mean_squares, spreads))
        self._groups = groups
        units = draw_units(spreads, self.sizes.square)

        def work(pack: Pack) -> None:
            self._gathered.append((share_terms(rows, pack, units), pack.groups, takers))

        each_pack(rows, groups, work, amounts=np.empty(0))
        held = sum(terms.items.size + 2 * terms.rows.size for terms, _, _ in self._gathered)
        if held > _MOST_TERMS:
            self._run()

    def visit_summary(self, mean_squares: Floats, ranges: Ints, spreads: Floats) -> None:
        """Take draws that were made where the rows are."""
        if self.sizes.n_clusters:
            self._drawn.append(Drawn(mean_squares, ranges[..., : self.n_draws], spreads))
            return
        scales = self._scale(mean_squares, spreads)
        if ranges.size:
            largest = (ranges * shrinking(spreads, scales)[..., None]).max(axis=(0, 1))
            np.maximum(self._worst, largest, out=self._worst)

    def _scale(self, mean_squares: Floats, spreads: Floats) -> Floats:
        """Root mean square of every candidate with a floor, so that rare branches stay honest."""
        floor = spreads**2 * (self._log / self.sizes.n_rare)
        scales: Floats = np.sqrt(mean_squares + floor)
        self._scales.append(scales.ravel())
        return scales

    def radii(self) -> Floats:
        """Return q times the scale of every candidate."""
        self._run()
        if self._drawn:
            radii, self._n_effective = clustered_radii(
                self._drawn, self.sizes, self._log, self.quantile
            )
            return radii
        return self._times_scale(self.quantile(self._worst[: self.n_draws]))

    def quantile(self, drawn: Floats) -> float:
        """Return the quantile of a number per draw that the confidence level asks for."""
        found = float(np.sort(drawn)[self._rank - 1])
        if not self._beyond:
            return found
        spread = (found - float(np.median(drawn))) / self._known
        return found + self._beyond * max(1.0, spread)

    def least_radii(self) -> Floats:
        """Return what no draws can make the radii fall below."""
        if self._drawn:
            return np.zeros(self.n_candidates)
        return self._times_scale(0.0)

    @property
    def _log(self) -> float:
        return log_share(self.n_candidates, self.confidence_level)

    def _times_scale(self, drawn: float) -> Floats:
        q = student(max(drawn, math.sqrt(self._log)), degrees(self.sizes))
        return q / math.sqrt(self.sizes.n) * np.concatenate(self._scales)

    def _run(self) -> None:
        """Raise every draw's largest statistic by the contributions gathered so far."""
        lanes, groups = _lanes(), self._groups
        if groups is None or not self._gathered:
            return
        n_rows = groups.weights.n_rows
        # Kept from block to block: fresh memory costs the system more than the draws cost us.
        spare: list[Singles] = []

        def work(block: int) -> None:
            from huc_monitor import _kernels

            xi = spare.pop() if spare else np.empty((n_rows, lanes), dtype=np.float32)
            draw_multipliers(self.seed, block, groups, xi)
            drawn = slice(block * lanes, (block + 1) * lanes)
            worst = self._worst[drawn]
            for terms, mine, taker in self._gathered:
                ranges = np.empty((mine.size, terms.ptr.size - 1, lanes), dtype=np.int32)
                _kernels.draw_ranges(terms, xi, ranges)
                if taker.ndim > 2:
                    taker[mine, :, drawn] = ranges
                elif ranges.size:
                    largest = (ranges * taker[mine][..., None]).max(axis=(0, 1))
                    np.maximum(worst, largest, out=worst)
            spare.append(xi)

        list(run_tasks(work, [(block,) for block in range(self._worst.size // lanes)]))
        self._gathered = []


def gather_terms(rows: SortedRows, groups: Groups, units: Floats) -> list[Terms]:
    """List every subgroup's nonzero contributions by branch, times ``units`` of the branch."""
    found: list[Any] = [None] * len(groups.weights)

    def work(pack: Pack) -> None:
        for k, c in enumerate(pack.groups):
            found[c] = _terms(rows, pack, pack.positions(k), units)

    each_pack(rows, groups, work, amounts=np.empty(0))
    return found


def share_terms(rows: SortedRows, pack: Pack, units: Floats) -> SharedTerms:
    """List the nonzero contributions of all subgroups of a pack."""
    from huc_monitor import _kernels

    terms = _terms(rows, pack, np.flatnonzero(pack.bits), units)
    lists = _kernels.share_terms(terms.ptr, terms.rows, pack.bits, rows.scores, pack.groups.size)
    own = rows.order[terms.rows].astype(np.int32)
    return SharedTerms(terms.ptr, own, terms.values, *lists)


def _terms(rows: SortedRows, pack: Pack, positions: Ints, units: Floats) -> Terms:
    """List nonzero contributions of some rows."""
    from huc_monitor import _kernels

    ptr = np.empty(rows.relevant.size + 1, dtype=np.int64)
    _kernels.count_terms(rows.labels, pack.values, positions, rows.paths, ptr)
    terms = Terms(
        ptr,
        np.empty(ptr[-1], dtype=np.int32),
        np.empty(ptr[-1], dtype=np.float32),
        np.empty(ptr[-1], dtype=np.uint8),
    )
    given = (rows.scores, rows.labels, pack.values, positions, rows.paths)
    _kernels.gather_terms(*given, units / rows.scale, *terms)
    return terms


def draw_units(spreads: Floats, square: float) -> Floats:
    """Return what contributions are multiplied by before they are drawn, branch by branch.

    ``square`` is that of `Sizes`.
    """
    from huc_monitor import _kernels

    return _kernels.DRAW_UNIT / (spreads * math.sqrt(square))


def shrinking(spreads: Floats, scales: Floats) -> Floats:
    """Return what turns sums in those units into numbers of a candidate's scale over sqrt(n)."""
    from huc_monitor import _kernels

    return spreads / (scales * _kernels.DRAW_UNIT)


def draw_multipliers(seed: int, block: int, groups: Groups, out: Singles) -> None:
    """Write the centred multipliers of one block of 32 draws, shape (n_rows, 32)."""
    from huc_monitor import _kernels

    if groups.clusters.size:
        from huc_monitor._kernels.summary import draw_by_id

        draw_by_id(np.uint64(seed), block, _normal_quantiles(), groups.clusters, out)
    else:
        _kernels.draw_multipliers(np.uint64(seed), block, _normal_quantiles(), out)
    roots, repeats = groups.roots, groups.repeats
    _kernels.centre_multipliers(roots, repeats, groups.sample, groups.factors, out)


def _lanes() -> int:
    from huc_monitor import _kernels

    return int(_kernels.DRAW_LANES)


@lru_cache(maxsize=1)
def _normal_quantiles() -> Singles:
    """Mid-point quantiles of the normal law, symmetric, scaled to variance one."""
    size = 1 << _QUANTILE_BITS
    inverse = NormalDist().inv_cdf
    upper = np.array([inverse(0.5 + (k + 0.5) / size) for k in range(size // 2)])
    upper /= math.sqrt(float(np.mean(upper**2)))
    # On a grid: sums of many are then exact, in whatever order.
    upper = np.rint(upper * 2.0**20) / 2.0**20
    return np.concatenate([-upper[::-1], upper]).astype(np.float32)
