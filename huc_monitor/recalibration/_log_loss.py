"""Fitting a logit map by penalised log loss: objectives, analytic gradients, choice of strength."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from huc_monitor.utilities.program import Floats, Ints

STRENGTHS: Floats = np.logspace(-4, 1, 11)
_N_FOLDS = 5
_MOST_ITERATIONS = 1_000
_EXACT, _ROUGH = 1e-11, 1e-7  # of the log loss: for what is kept, and for comparing strengths
_WORSE_IN_A_ROW = 3
_MOST_OBSERVATIONS = 2.0**62  # so that their number fits into 64 bits
_BETA_BOUNDS = (1e-3, 1e3)
# Wrong shares of the classes are the largest part of most miscalibration, and the rows tell them
# well: intercepts are pulled back only so far that a class without rows does not vanish.
_INTERCEPTS = 0.01
# A Dirichlet map has a leaf's own slope and intercept, and K - 1 weights for other leaves. Where
# rows tell the former better than the latter, one strength for all keeps them short of what the
# rows show, and every range of scores is off by that. Held-out rows say whether it is so.
_OWN_SLOPES, _OWN_INTERCEPTS = 0.01, 0.001
# Curvature of the log loss is estimated from this many rows, or so many per leaf.
_CURVATURE_ROWS, _CURVATURE_ROWS_EACH = 500, 8
_MOST_CURVED = 256  # leaves; beyond, a curvature per leaf takes too much memory


@dataclass(frozen=True, slots=True, eq=False)
class LossRows:
    """Log probabilities, labels, and the share of the mean that each row has.

    A label is the leaves ``first`` to ``last`` - 1: one, or all under a node where it stops above
    the leaves. Its probability is their sum. ``times`` is how many rows a row stands for: its
    weight, whatever the probability with which its label was chosen.
    """

    logs: Floats
    first: Ints
    last: Ints
    share: Floats
    times: Floats

    @classmethod
    def of(
        cls,
        logs: Floats,
        label: tuple[Ints, Ints],
        weights: Floats | None,
        label_probability: Floats | None = None,
    ) -> LossRows:
        """Normalise weights to shares; a row of weight 2 counts like two rows."""
        times = np.ones(len(logs)) if weights is None else weights
        return cls(logs, *label, shares(times, label_probability), times)

    @property
    def count(self) -> Ints:
        """How many observations a row stands for; one where not all weights are whole numbers."""
        if (self.times != np.floor(self.times)).any():
            return np.ones(self.times.size, dtype=np.int64)
        most = _MOST_OBSERVATIONS / self.times.size
        return np.minimum(self.times, most).astype(np.int64)

    def mean(self, terms: Floats) -> tuple[float, float]:
        """Mean of a number per row, and its standard error."""
        mean = float(self.share @ terms)
        off = self.share * (terms - mean)
        counted = off != 0
        return mean, float(np.linalg.norm(off[counted] / np.sqrt(self.times[counted])))

    def wide(self) -> Iterator[tuple[Ints, slice]]:
        """Yield the rows whose label stops at a node, with the node's leaves, node by node."""
        inner = np.flatnonzero(self.last - self.first > 1)
        if not inner.size:
            return
        nodes, which = np.unique(
            np.stack([self.first[inner], self.last[inner]]), axis=1, return_inverse=True
        )
        for k, (first, last) in enumerate(nodes.T):
            yield inner[which.ravel() == k], slice(int(first), int(last))

    def take(self, rows: Ints | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> LossRows:
        """Part of the rows, their shares made to sum to one again."""
        share = self.share[rows]
        label = self.first[rows], self.last[rows]
        return LossRows(self.logs[rows], *label, share / share.sum(), self.times[rows])


def shares(times: Floats, label_probability: Floats | None) -> Floats:
    """Share of a mean that each row has, by its weight over the probability of its label."""
    amounts = times if label_probability is None else times / label_probability
    found: Floats = amounts / amounts.sum()
    return found


class LogitMap(ABC):
    """How parameters turn log probabilities into logits, and how gradients travel back."""

    bounds: tuple[float, float] | None = None

    def __init__(self, n_leaves: int) -> None:
        self.n_leaves = n_leaves

    @classmethod
    def penalties(cls, n_leaves: int) -> list[LogitMap]:
        """Return the map with each penalty that held-out rows choose among."""
        return [cls(n_leaves)]

    @abstractmethod
    def start(self) -> Floats:
        """Parameters that leave predictions as they are."""

    @abstractmethod
    def logits(self, theta: Floats, logs: Floats) -> Floats:
        """Logits of all rows, as fast as possible; `runtime.scaling` applies them row by row."""

    @abstractmethod
    def pull(self, gradient: Floats, logs: Floats) -> Floats:
        """Gradient in the parameters from the gradient in the logits."""

    def pull_back(self) -> Floats:
        """Share of the penalty that pulls each parameter to where it starts; 0 leaves it free."""
        return np.zeros(self.start().size)


class TemperatureMap(LogitMap):
    """One inverse temperature."""

    bounds = _BETA_BOUNDS

    def start(self) -> Floats:
        """Temperature one."""
        return np.ones(1)

    def logits(self, theta: Floats, logs: Floats) -> Floats:
        """Scaled logs."""
        return np.asarray(theta[0] * logs)

    def pull(self, gradient: Floats, logs: Floats) -> Floats:
        """Inner product with the logs."""
        return np.array([np.vdot(gradient, logs)])


class VectorMap(LogitMap):
    """A slope and an intercept per leaf."""

    def start(self) -> Floats:
        """Slopes one, intercepts zero."""
        return np.concatenate([np.ones(self.n_leaves), np.zeros(self.n_leaves)])

    def logits(self, theta: Floats, logs: Floats) -> Floats:
        """Slope times log plus intercept."""
        return theta[: self.n_leaves] * logs + theta[self.n_leaves :]

    def pull(self, gradient: Floats, logs: Floats) -> Floats:
        """Column sums, weighted by the logs and plain."""
        slopes = np.einsum("ij,ij->j", gradient, logs)
        return np.concatenate([slopes, gradient.sum(axis=0)])

    def pull_back(self) -> Floats:
        """Pull slopes, and intercepts a little."""
        return np.repeat([1.0, _INTERCEPTS], self.n_leaves)


class DirichletMap(LogitMap):
    """A full matrix and an intercept per leaf; ``free`` ones of a leaf's own are pulled less."""

    def __init__(self, n_leaves: int, *, free: bool = False) -> None:
        super().__init__(n_leaves)
        self._own = (_OWN_SLOPES, _OWN_INTERCEPTS) if free else (1.0, _INTERCEPTS)

    @classmethod
    def penalties(cls, n_leaves: int) -> list[LogitMap]:
        """Return both."""
        return [cls(n_leaves), cls(n_leaves, free=True)]

    def start(self) -> Floats:
        """Identity matrix, intercepts zero."""
        return np.concatenate([np.eye(self.n_leaves).ravel(), np.zeros(self.n_leaves)])

    def logits(self, theta: Floats, logs: Floats) -> Floats:
        """One matrix product."""
        k = self.n_leaves
        return logs @ theta[: k * k].reshape(k, k).T + theta[k * k :]

    def pull(self, gradient: Floats, logs: Floats) -> Floats:
        """Matrix product and column sums."""
        return np.concatenate([(gradient.T @ logs).ravel(), gradient.sum(axis=0)])

    def pull_back(self) -> Floats:
        """Pull the matrix, and intercepts a little."""
        slopes, intercepts = self._own
        matrix = np.ones((self.n_leaves, self.n_leaves))
        np.fill_diagonal(matrix, slopes)
        return np.append(matrix, np.full(self.n_leaves, intercepts))


def objective(
    theta: Floats, logit_map: LogitMap, sample: LossRows, strength: float
) -> tuple[float, Floats]:
    """Penalised log loss and its gradient."""
    loss, in_logits = _loss_and_gradient(logit_map.logits(theta, sample.logs), sample)
    away = theta - logit_map.start()
    back = strength * logit_map.pull_back() * away
    return loss + 0.5 * float(back @ away), logit_map.pull(in_logits, sample.logs) + back


def row_losses(theta: Floats, logit_map: LogitMap, sample: LossRows) -> Floats:
    """Negative log likelihood of every row."""
    logits = logit_map.logits(theta, sample.logs)
    logits -= logits.max(axis=1, keepdims=True)
    chosen = logits[np.arange(sample.first.size), sample.first]
    for rows, leaves in sample.wide():
        chosen[rows] = np.logaddexp.reduce(logits[rows, leaves], axis=1)
    return np.asarray(np.log(np.exp(logits).sum(axis=1)) - chosen)


def label_losses(probabilities: Floats, label: tuple[Ints, Ints]) -> Floats:
    """Negative log likelihood of labels under probabilities as they are."""
    plain = TemperatureMap(probabilities.shape[1])
    sample = LossRows.of(np.log(probabilities), label, None)
    return row_losses(plain.start(), plain, sample)


def _loss_and_gradient(logits: Floats, sample: LossRows) -> tuple[float, Floats]:
    rows = np.arange(sample.first.size)
    logits -= logits.max(axis=1, keepdims=True)
    chosen = logits[rows, sample.first]
    within = []
    for inner, leaves in sample.wide():
        chosen[inner] = np.logaddexp.reduce(logits[inner, leaves], axis=1)
        # Share of each leaf in the label's probability, less what the first leaf is given below.
        part = np.exp(logits[inner, leaves] - chosen[inner, None])
        part[:, 0] -= 1.0
        within.append((inner, leaves, part * sample.share[inner, None]))
    np.exp(logits, out=logits)
    sums = logits.sum(axis=1)
    loss = float(sample.share @ (np.log(sums) - chosen))
    logits *= (sample.share / sums)[:, None]
    logits[rows, sample.first] -= sample.share
    for inner, leaves, part in within:
        logits[inner, leaves] -= part
    return loss, logits


def fit_map(
    logit_map: LogitMap,
    sample: LossRows,
    strength: float,
    *,
    start: Floats | None = None,
    precision: float = _EXACT,
) -> Floats:
    """Parameters of least penalised log loss: L-BFGS with the analytic gradient.

    Log probabilities reach from 0 to -27 and penalties differ a thousandfold: a Dirichlet map would
    take hundreds of steps. Its steps are taken in coordinates in which the curvature at the start
    is about the same in every direction.
    """
    from scipy.optimize import minimize

    first = logit_map.start() if start is None else start
    bounds = None if logit_map.bounds is None else [logit_map.bounds] * first.size
    # The products are small: threads of the linear algebra would wait for one another longer than
    # they compute, and would round differently from one machine to the next.
    with _libraries().limit(limits=1, user_api="blas"):
        coordinates = _Coordinates.at(first, logit_map, sample, strength)

        def evaluate(moved: Floats) -> tuple[float, Floats]:
            theta = coordinates.parameters(moved)
            loss, gradient = objective(theta, logit_map, sample, strength)
            return loss, coordinates.gradient(gradient)

        found = minimize(
            evaluate,
            coordinates.start(),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": _MOST_ITERATIONS, "maxcor": 20, "ftol": precision, "gtol": 1e-7},
        )
    return coordinates.parameters(np.asarray(found.x, dtype=np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class _Coordinates:
    """Coordinates for fitting: a leaf's parameters are ``first`` plus its matrix times them.

    The same step in all leaves changes no probability. ``pulls`` are the shares by which it is
    taken out: of all parameters with the same loss, those of least penalty remain. Without
    matrices, as for maps of few parameters, these are their own coordinates.
    """

    first: Floats
    matrices: Floats | None = None
    pulls: Floats = field(default_factory=lambda: np.ones(1))

    @classmethod
    def at(
        cls, first: Floats, logit_map: LogitMap, sample: LossRows, strength: float
    ) -> _Coordinates:
        """Measure the curvature of every leaf's parameters, other leaves' kept as they are."""
        k = logit_map.n_leaves
        if not isinstance(logit_map, DirichletMap) or k > _MOST_CURVED:
            return cls(first)
        pulled = strength * _by_leaf(logit_map.pull_back(), k)
        wanted = max(_CURVATURE_ROWS, _CURVATURE_ROWS_EACH * k)
        counted = np.flatnonzero(sample.share > 0)
        rows = sample.take(counted[:: 1 + counted.size // wanted])
        logits = logit_map.logits(first, rows.logs)
        q = np.exp(logits - logits.max(axis=1, keepdims=True))
        q /= q.sum(axis=1, keepdims=True)
        weights = rows.share[:, None] * q * (1.0 - q)
        x = np.column_stack([rows.logs, np.ones(len(q))])
        matrices = np.empty((k, k + 1, k + 1))
        for leaf in range(k):
            curvature = x.T @ (x * weights[:, leaf, None])
            least = _EXACT + _ROUGH * np.trace(curvature) / k  # where nothing pulls
            curvature[np.diag_indices_from(curvature)] += pulled[leaf] + least
            matrices[leaf] = np.linalg.inv(np.linalg.cholesky(curvature)).T
        pulls = np.maximum(pulled, _EXACT)
        return cls(first, matrices, pulls / pulls.sum(axis=0))

    def start(self) -> Floats:
        """Coordinates of the parameters to start from."""
        return self.first if self.matrices is None else np.zeros(self.first.size)

    def parameters(self, moved: Floats) -> Floats:
        """Parameters at coordinates."""
        if self.matrices is None:
            return moved
        steps = np.matmul(self.matrices, moved.reshape(*self.matrices.shape[:2], 1))[..., 0]
        steps -= (self.pulls * steps).sum(axis=0)
        return np.asarray(self.first + np.append(steps[:, :-1], steps[:, -1]))

    def gradient(self, gradient: Floats) -> Floats:
        """Gradient in the coordinates from the gradient in the parameters."""
        if self.matrices is None:
            return gradient
        by_leaf = _by_leaf(gradient, len(self.matrices))
        by_leaf -= self.pulls * by_leaf.sum(axis=0)
        return np.asarray(np.matmul(by_leaf[:, None, :], self.matrices).ravel())


def _by_leaf(theta: Floats, n_leaves: int) -> Floats:
    """Slopes of each leaf, then its intercept: a row per leaf."""
    return np.column_stack([theta[:-n_leaves].reshape(n_leaves, -1), theta[-n_leaves:]])


@functools.cache
def _libraries() -> Any:
    """Look for the linear algebra once: that takes as long as a small fit."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A penalty's strength, and the log loss of every held-out row under it.

    ``folds`` has the parameters that each fold's other rows gave, and the part of every row (of
    those that count) that was held out from them; it is empty where other rows chose.
    """

    strength: float
    losses: Floats
    share: Floats
    folds: tuple[tuple[Floats, Floats], ...] = ()

    @property
    def log_loss(self) -> float:
        """Mean over the held-out rows."""
        return float(self.share @ self.losses)


def choose_strength(logit_map: LogitMap, sample: LossRows, held_out: LossRows | None) -> Choice:
    """Strength of least log loss on held-out rows, or over folds; the strongest of equals.

    A map without a penalty has only strength zero to try. Fits start from the next stronger one.
    Weak penalties are slow to fit: once the loss over all folds has three times in a row been above
    the least so far, the weaker ones are given up.
    """
    strengths = STRENGTHS if logit_map.pull_back().any() else np.zeros(1)
    if held_out is not None:
        share = held_out.share
        parts = [(sample, held_out, np.arange(share.size), np.ones(share.size))]
    else:
        sample = sample.take(sample.share > 0)
        share, parts = sample.share, list(_folded(sample))
    rows = np.full((strengths.size, share.size), np.inf)
    thetas: list[Any] = [None] * len(parts)
    fits: dict[int, list[Floats]] = {}
    least, worse = np.inf, 0
    for place in range(strengths.size - 1, -1, -1):
        strength = float(strengths[place])
        rows[place] = 0.0
        for k, (fitted, judged, inside, part) in enumerate(parts):
            theta = fit_map(logit_map, fitted, strength, start=thetas[k], precision=_ROUGH)
            rows[place, inside] += part * row_losses(theta, logit_map, judged)
            thetas[k] = theta
        fits[place] = list(thetas)
        mean = float(share @ rows[place])
        worse = 0 if mean < least else worse + 1
        least = min(least, mean)
        if worse == _WORSE_IN_A_ROW:
            break
    losses = rows @ share
    best = strengths.size - 1 - int(np.argmin(losses[::-1]))
    folds = []
    for theta, (_, _, inside, part) in zip(fits[best], parts, strict=True):
        held = np.zeros(share.size)
        held[inside] = part
        folds.append((theta, held))
    kept = tuple(folds) if held_out is None else ()
    return Choice(float(strengths[best]), rows[best], share, kept)


def _folded(sample: LossRows) -> Iterator[tuple[LossRows, LossRows, Ints, Floats]]:
    """Yield the rows to fit and those to judge by, with their places and parts, fold by fold.

    A row that stands for several observations is split between folds: one of weight 2 counts like
    two rows. Equal rows share their folds evenly, so that the order of rows does not matter.
    """
    parts = _parts(sample)
    for part in parts.T:
        inside, rest = np.flatnonzero(part > 0), part < 1
        if not inside.size:
            continue
        fitted = sample
        if rest.any():
            fitted = replace(sample, share=sample.share * (1.0 - part)).take(rest)
        yield fitted, sample.take(inside), inside, part[inside]


def _parts(sample: LossRows) -> Floats:
    """Draw for every row the part of it in each fold, alike in every run.

    Every observation is drawn by itself. To keep equal predictions in one fold would be wrong: they
    come again among new rows, and a fold that has all of one label leaves only the others to the
    rest. Nor do folds share classes evenly: the rest would then have the class counts of the fold,
    chance included, and intercepts fitted to chance would look good.
    """
    rows = np.column_stack([sample.first, sample.last, sample.logs])
    distinct, rank = np.unique(rows, axis=0, return_inverse=True)
    count = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(count, rank.ravel(), sample.count)
    drawn = np.random.default_rng(0).multinomial(count, np.full(_N_FOLDS, 1.0 / _N_FOLDS))
    return np.asarray((drawn / count[:, None])[rank.ravel()])
