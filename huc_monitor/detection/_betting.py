"""Bets against one utility's candidates: what each arm stakes, earns, and bets on next.

Every candidate keeps twelve arms, the product of

* two sides: the moment is above the tolerance, or below minus the tolerance;
* two places: the whole line of scores, and the run of score bins on which the trailing sum of
  contributions was most extreme on that side;
* three stakes: 1, 1/2 and 1/5 of the largest stake that keeps every factor at 1/2 or more.

Rather than estimate one best bet, all arms play, each with its own wealth, and a candidate's value
is their mean. The share of an arm in that mean is what it has earned, so the bet adapts by itself,
at a price of at most log(12) once. A large stake sees a gross violation in a few hundred rows; a
small one is not ruined by the noise while a slight violation adds up.

The runs come from sums over bins that fade by 1 - 1/memory per row. Bins are quantiles of the
first scores seen and then frozen: their number bounds the state and the cost of a batch whatever
the length of the stream. Any rule that reads only the past is valid, so coarse bins can cost
power but never the guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from huc_monitor.audit.decomposition import UtilityRows
from huc_monitor.utilities.program import Floats, Ints, PathTables

STAKES = (1.0, 0.5, 0.2)
SIDES = (1, -1)
N_ARMS = 2 * len(SIDES) * len(STAKES)
N_BINS = 32
# Eight scores per bin are enough to place its edges.
_FIRST_SCORES = 8 * N_BINS
_IDLE_AT_A_TIME = 256


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Rows of a batch that are bet on together.

    ``order[ptr[u] : ptr[u + 1]]`` are the rows of cluster u; a row counts ``portions`` times, and
    ``shares`` are the sums over clusters, at most 1.
    """

    order: Ints
    ptr: Ints
    portions: Floats
    shares: Floats

    @classmethod
    def of(cls, keys: Ints, amounts: Floats) -> Clusters:
        """Give every row of a cluster an equal part of one bet, times its amount of at most 1."""
        _, codes, counts = np.unique(keys, return_inverse=True, return_counts=True)
        portions = amounts / counts[codes]
        order = np.argsort(codes, kind="stable").astype(np.int64)
        ptr = np.append(0, np.cumsum(counts)).astype(np.int64)
        shares: Floats = np.bincount(codes, portions).astype(np.float64)
        return cls(order, ptr, portions, shares)


@dataclass(slots=True, eq=False)
class Outcome:
    """What one batch did to a utility's candidates, each an array of length J.

    ``log_value`` is the logarithm of the candidate's value, before any ceiling, and ``log_before``
    that of its value before the batch and what entered with it; their difference is the batch's log
    e-value. ``side`` and ``low``, ``high`` are the bet of the richest arm.
    """

    log_value: Floats
    log_before: Floats
    side: Ints
    low: Floats
    high: Floats


@dataclass(slots=True, eq=False)
class UtilityBets:
    """All arms of one utility's candidates, numbered subgroup first, then relevant branch.

    ``wealth`` has shape (J, side, place, stake) and holds the Shiryaev-Roberts value of each arm.
    """

    paths: PathTables
    stakes: Floats
    tolerance: Floats
    forget: float
    wealth: Floats
    sums: Floats
    edges: Floats = field(default_factory=lambda: np.empty(0))
    first_scores: Floats = field(default_factory=lambda: np.empty(0))

    @classmethod
    def start(
        cls, paths: PathTables, spreads: Floats, tolerance: Floats, memory: float
    ) -> UtilityBets:
        """Start without wealth and without a past."""
        largest = 1.0 / (2.0 * (spreads + tolerance))
        n = spreads.size
        return cls(
            paths=paths,
            stakes=largest[:, None] * np.array(STAKES),
            tolerance=tolerance,
            forget=1.0 - 1.0 / memory,
            wealth=np.zeros((n, len(SIDES), 2, len(STAKES))),
            sums=np.zeros((n, N_BINS)),
        )

    def runs(self) -> Ints:
        """Half-open range of bins to bet on, of shape (J, side, 2): a function of the past."""
        from huc_monitor._kernels.betting import best_runs

        runs = np.empty((self.sums.shape[0], len(SIDES), 2), dtype=np.int64)
        best_runs(self.sums, self.edges.size + 1, runs)
        return runs

    def log_growth(
        self, rows: UtilityRows, weights: Floats, runs: Ints, clusters: Clusters | None = None
    ) -> Floats:
        """Log of the product of 1 + stake * (side * c * contribution - tolerance), per arm.

        A row off the path or outside the run contributes 1 - stake * tolerance, whatever it is;
        these are taken out of the product, and only the others are visited.
        """
        from huc_monitor._kernels.betting import log_growth, log_growth_of_clusters

        growth = np.zeros(self.wealth.shape)
        if clusters is not None:
            log_growth_of_clusters(
                clusters.order,
                clusters.ptr,
                clusters.portions,
                clusters.shares,
                *self._seen(rows, weights),
                runs,
                self.stakes,
                self.tolerance,
                growth,
            )
            # Clusters of equal shares are idle alike.
            shares, counts = np.unique(clusters.shares, return_counts=True)
            lost = self.stakes * self.tolerance[:, None]
            for lo in range(0, shares.size, _IDLE_AT_A_TIME):
                part = slice(lo, lo + _IDLE_AT_A_TIME)
                idle = np.log1p(-shares[part, None, None] * lost)
                growth += np.tensordot(counts[part], idle, 1)[:, None, None, :]
            return growth
        idle = 1.0 - self.stakes * self.tolerance[:, None]
        log_growth(*self._seen(rows, weights), runs, self.stakes / idle, growth)
        growth += (rows.scores.size * np.log(idle))[:, None, None, :]
        return growth

    def bet(
        self,
        rows: UtilityRows,
        weights: Floats,
        ceiling: float,
        entering: float,
        clusters: Clusters | None,
    ) -> Outcome:
        """Play one batch: every arm's wealth becomes (wealth + entering) times what it earned."""
        runs = self.runs()
        before = self.values()
        entered = np.log(entering) + np.log1p(self.wealth / entering)
        log_wealth = self.log_growth(rows, weights, runs, clusters) + entered
        self.wealth = np.exp(np.minimum(log_wealth, np.log(ceiling)))
        flat = log_wealth.reshape(-1, N_ARMS)
        richest = np.argmax(flat, axis=1)
        side, place, _ = np.unravel_index(richest, self.wealth.shape[1:])
        top = flat[np.arange(flat.shape[0]), richest]
        run = runs[np.arange(flat.shape[0]), side]
        whole = place == 0
        bounds = np.concatenate([[-np.inf], self.edges, [np.inf]])
        return Outcome(
            log_value=top + np.log(np.exp(flat - top[:, None]).mean(axis=1)),
            log_before=np.log(entering) + np.log1p(before / entering),
            side=np.array(SIDES)[side],
            low=np.where(whole, -np.inf, bounds[run[:, 0]]),
            high=np.where(whole, np.inf, bounds[run[:, 1]]),
        )

    def learn(self, rows: UtilityRows, weights: Floats) -> None:
        """Add the batch to the past that later bets may read."""
        from huc_monitor._kernels.betting import add_to_bins

        if not self.edges.size:
            self._place_edges(rows.scores)
        self.sums *= self.forget**rows.scores.size
        add_to_bins(*self._seen(rows, weights), self.sums)

    def _seen(self, rows: UtilityRows, weights: Floats) -> tuple[Any, ...]:
        """Return what every kernel reads of a batch."""
        return rows.scores, rows.labels, rows.contributions, weights, self.paths, self.edges

    def _place_edges(self, scores: Floats) -> None:
        self.first_scores = np.append(self.first_scores, scores)[:_FIRST_SCORES]
        if self.first_scores.size < _FIRST_SCORES:
            return
        levels = np.arange(1, N_BINS) / N_BINS
        self.edges = np.unique(np.quantile(self.first_scores, levels, method="inverted_cdf"))
        # Sums so far lie in one bin that is now many: start over.
        self.sums = np.zeros_like(self.sums)
        self.first_scores = np.empty(0)

    def values(self) -> Floats:
        """Value of every candidate: the mean wealth of its arms."""
        return np.asarray(self.wealth.reshape(-1, N_ARMS).mean(axis=1))

    def restart(self) -> None:
        """Give up all wealth, and keep the past."""
        self.wealth = np.zeros_like(self.wealth)

    def state(self) -> dict[str, Any]:
        """Everything that changes, as lists; a float's shortest decimal form is exact."""
        return {
            "wealth": self.wealth.ravel().tolist(),
            "sums": self.sums[:, : self.edges.size + 1].ravel().tolist(),
            "edges": self.edges.tolist(),
            "first_scores": self.first_scores.tolist(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what `state` wrote."""
        self.wealth = _numbers(state["wealth"]).reshape(self.wealth.shape)
        self.edges = _numbers(state["edges"])
        self.first_scores = _numbers(state["first_scores"])
        kept = _numbers(state["sums"]).reshape(self.sums.shape[0], self.edges.size + 1)
        self.sums = np.zeros_like(self.sums)
        self.sums[:, : kept.shape[1]] = kept


def _numbers(values: list[float]) -> Floats:
    return np.array(values, dtype=np.float64)
