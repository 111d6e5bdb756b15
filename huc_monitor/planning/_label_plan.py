r"""Which labels to buy: probabilities that make the largest radius as small as a budget allows.

Rows are labelled with probabilities pi_i and weighted by 1 / pi_i, so any choice is valid; the
choice decides how wide the bounds are. A candidate's squared radius is proportional to

    sum_i V_ij / pi_i,      V_ij = weight_ij^2 E[contribution_ij^2 | prediction i],

and V is known before any label: a branch with mass p_v and children of mass p_c and mean utility
m_c contributes sum_c p_c (m_c - m_v)^2. For weights lambda on candidates the best probabilities
are proportional to sqrt(sum_j lambda_j V_ij / tolerance_j^2), no larger than 1; multiplicative
steps on lambda raise the candidates with the largest radius until they are equally wide. Weights
are found on a sample of rows, probabilities made for all. A share of the budget is spread evenly,
because V is what the model thinks: a model that is sure and wrong is found by that share.

To this comes the audit's floor for rare branches, b^2 log(N / d) (sum_i 1 / pi_i)^2 / n^2: it
counts labels as the n^2 / sum_i 1 / pi_i even ones that they are worth, which even sampling makes
most: with few labels there is less to save. Of its growth with 1 / pi_i the choice of rows knows.

A second opinion (an LLM judge, a junior annotator) makes the leaf it names likelier, by odds that
are fitted where labels are known (`proxy_odds`); V is then the mean over these probabilities. An
opinion that repeats what the prediction says has odds near 1 and changes nothing. Only the choice
of rows depends on it, so a poor opinion costs labels and never validity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from huc_monitor._common.row_order import check_row_order
from huc_monitor._common.threads import run_tasks
from huc_monitor.audit.expected_squares import expected_squares
from huc_monitor.audit.inputs import (
    check_labels,
    check_predictions,
    check_subgroups,
    check_tree,
    check_utilities,
)
from huc_monitor.audit.options import DEFAULTS, AuditOptions
from huc_monitor.errors import InvalidInputError
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats, Ints

_PILOT_ROWS = 4_000
_MOST_STEPS = 400
_CLOSE_ENOUGH = 1.01
_BLOCK_ROWS = 1 << 14
_MOST_ODDS = 1e4


@dataclass(frozen=True, slots=True, eq=False)
class LabelPlan:
    """Rows to label, and with what probability each row of the window was chosen.

    Attributes
    ----------
    probability : (n,) float64
        Of every row; they add up to the budget.
    chosen : (m,) int64
        Rows to label, in order.
    saving : float
        Share of labels that even sampling would need in addition for the same largest radius
        relative to tolerance, as calculated from the predictions: 0.3 says that 700 labels do
        the work of 1,000.
    worst : (utility, subgroup, node)
        The candidate whose relative radius is largest under this plan.
    """

    probability: Floats
    chosen: Ints
    saving: float
    worst: tuple[str, str, str]

    @property
    def n(self) -> int:
        """Rows of the window."""
        return int(self.probability.size)

    @property
    def design_effect(self) -> float:
        """Labels that this plan needs for each one of even sampling; see `labels_needed`."""
        return 1.0 - self.saving

    def to_frame(self, ids: Any = None) -> pd.DataFrame:
        """List the chosen rows: ``id`` (the row's number where there are none), probability."""
        names = np.arange(self.n) if ids is None else np.asarray(ids)
        if names.shape != (self.n,):
            msg = (
                f"`ids` must be one per row of the window ({self.n}); got shape {names.shape}. "
                "Pass those of all rows, chosen or not."
            )
            raise InvalidInputError(msg)
        return pd.DataFrame(
            {"id": names[self.chosen], "label_probability": self.probability[self.chosen]}
        )

    def __repr__(self) -> str:
        """One line."""
        return f"LabelPlan({self.chosen.size} of {self.n} rows, saving {self.saving:.0%})"


def plan_labels(
    probabilities: Any,
    *,
    tree: LabelTree | str | Path,
    utilities: Sequence[Utility] | Utility | None = None,
    subgroups: Subgroups | None = None,
    features: Any = None,
    budget: int,
    tolerance: float | Sequence[float] | None = None,
    uniform_share: float = 0.2,
    proxy: Any = None,
    proxy_odds: float = 1.0,
    rng: Any = DEFAULTS.rng,
) -> LabelPlan:
    """Choose rows to label so that the largest radius relative to tolerance becomes smallest.

    Audit the labelled rows with ``label_probability=plan.probability[plan.chosen]``.

    Parameters
    ----------
    probabilities : (n, K) predictions of the window, as in `audit`
    tree, utilities, subgroups, features
        As in `audit`.
    budget : int
        Labels to buy, at most n.
    tolerance : one number per candidate, in the order of an audit's; or a float, optional
        Radii are compared relative to it; one for all makes no difference.
    uniform_share : float in (0, 1], default 0.2
        Share of the budget that is spread evenly. No row's probability is below
        ``uniform_share * budget / n``.
    proxy : (n,) leaf names or codes, optional
        A second, cheaper opinion on every row's label.
    proxy_odds : float, default 1
        How many times likelier it makes the leaf it names, as `fit_proxy_odds` measures; at 1 it
        is not used.
    rng : int or numpy Generator, default 0

    Returns
    -------
    LabelPlan

    Examples
    --------
    Half of the rows are certain, so that their labels say little:

    >>> import huc_monitor as hm
    >>> p = [[0.99, 0.01]] * 500 + [[0.5, 0.5]] * 500
    >>> plan = hm.plan_labels(p, tree=hm.LabelTree.flat(["a", "b"]), budget=100)
    >>> plan.probability[[0, -1]].round(3), plan.chosen.size
    (array([0.071, 0.129]), 100)
    """
    tree = check_tree(tree)
    chosen = check_utilities(utilities, tree)
    check_row_order(probabilities=probabilities, features=features, proxy=proxy)
    predictions = check_predictions(probabilities, tree=tree)
    n = predictions.n
    if not isinstance(budget, int | np.integer) or not 0 < budget <= n:
        msg = f"`budget` must be a whole number of labels from 1 to the {n} rows; got {budget!r}."
        raise InvalidInputError(msg)
    if not 0 < uniform_share <= 1:
        msg = f"`uniform_share` must lie in (0, 1]; got {uniform_share!r}."
        raise InvalidInputError(msg)
    groups = check_subgroups(subgroups)
    members = np.stack([np.square(w, dtype=np.float64) for w in groups.weights(features, n)])
    variances = _Variances(tree, chosen, _likelihood(proxy, proxy_odds, n, tree))
    limits = _limits(tolerance, members.shape[0], variances)
    generator = np.random.default_rng(AuditOptions(rng=rng).rng)
    pilot = np.sort(generator.choice(n, min(n, _PILOT_ROWS), replace=False))
    known = _Known(
        variances.of(predictions.take(pilot).positive(), pilot),
        members[:, pilot],
        variances.floor(members.shape[0]),
        n,
    )
    even = np.full(pilot.size, budget / n)
    worth, added = _balance(known, limits, even, uniform_share)
    sizes = np.empty(n)

    def work(lo: int, hi: int) -> None:
        found = variances.of(predictions.block(lo, hi), np.arange(lo, hi))
        sizes[lo:hi] = _sizes(found, members[:, lo:hi], worth, added)

    spans = [(lo, min(lo + _BLOCK_ROWS, n)) for lo in range(0, n, _BLOCK_ROWS)]
    list(run_tasks(work, spans))
    pi = _mixed(sizes, float(budget), uniform_share)
    planned = known.squared_radii(pi[pilot]) / limits
    return LabelPlan(
        probability=pi,
        chosen=_systematic(pi, generator),
        saving=1.0 - budget / known.labels_evenly(planned.max() * limits),
        worst=variances.name(int(np.argmax(planned)), groups),
    )


class _Variances:
    """Mean squared contribution of every relevant branch given the prediction."""

    def __init__(
        self, tree: LabelTree, utilities: Sequence[Utility], likelihood: tuple[Ints, float] | None
    ) -> None:
        self.tree, self.utilities, self.likelihood = tree, utilities, likelihood
        self.relevant = [utility.relevant_branches(tree) for utility in utilities]
        self.n_branches = sum(found.size for found in self.relevant)
        if not self.n_branches:
            msg = "`utilities` must have a relevant branch in this tree; none of them has."
            raise InvalidInputError(msg)

    def of(self, block: Floats, rows: Ints) -> Floats:
        """Return one column per utility and relevant branch; `rows` are the block's numbers."""
        expected = block
        if self.likelihood is not None:
            codes, factor = self.likelihood
            expected = block.copy()
            expected[np.arange(rows.size), codes[rows]] *= factor
            expected /= expected.sum(axis=1, keepdims=True)
        return np.hstack(
            [
                expected_squares(utility, block, relevant, self.tree, expected)
                for utility, relevant in zip(self.utilities, self.relevant, strict=True)
            ]
        )

    def floor(self, n_groups: int) -> Floats:
        """Return what an audit of one label adds for branches that are seen rarely."""
        log = math.log(n_groups * self.n_branches / (1.0 - DEFAULTS.confidence_level))
        spreads = [
            u.spreads(self.tree)[r] for u, r in zip(self.utilities, self.relevant, strict=True)
        ]
        added: Floats = np.concatenate(spreads) ** 2 * log
        return added

    def name(self, candidate: int, groups: Subgroups) -> tuple[str, str, str]:
        """Return (utility, subgroup, node) of a place in the tables of subgroups and branches."""
        group, column = divmod(candidate, self.n_branches)
        named = [
            (utility.name, groups.names[group], self.tree.branches[v])
            for utility, relevant in zip(self.utilities, self.relevant, strict=True)
            for v in relevant
        ]
        return named[column]


def _likelihood(proxy: Any, odds: float, n: int, tree: LabelTree) -> tuple[Ints, float] | None:
    """Codes of a second opinion, and how much likelier it makes the leaf it names."""
    if proxy is None or odds == 1.0:
        return None
    if not 1.0 <= odds < math.inf:
        msg = f"`proxy_odds` must be a number of at least 1; got {odds!r}."
        raise InvalidInputError(msg)
    return check_labels(proxy, n, tree=tree, any_depth=False), odds


def fit_proxy_odds(
    probabilities: Any, labels: Any, proxy: Any, *, tree: LabelTree | str | Path
) -> float:
    """Measure how many times likelier a second opinion makes the leaf it names.

    The odds of greatest likelihood, given the predictions: 1 where the opinion says nothing beyond
    them, however often it is right.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["a", "b"])
    >>> y, judge = ["a", "a", "a", "b"] * 50, ["a", "a", "a", "a"] * 50
    >>> round(fit_proxy_odds([[0.5, 0.5]] * 200, y, judge, tree=tree), 2)
    3.0
    """
    tree = check_tree(tree)
    check_row_order(probabilities=probabilities, labels=labels, proxy=proxy)
    predictions = check_predictions(probabilities, tree=tree)
    codes, said = (
        check_labels(given, predictions.n, tree=tree, any_depth=False) for given in (labels, proxy)
    )
    named = np.concatenate(
        [
            predictions.block(lo, hi)[np.arange(hi - lo), said[lo:hi]]
            for lo, hi in predictions.spans()
        ]
    )
    right = codes == said

    def slope(log_odds: float) -> float:
        tilted = named * math.exp(log_odds)
        return float(np.sum(right - tilted / (1.0 - named + tilted)))

    low, high = 0.0, math.log(_MOST_ODDS)
    if slope(low) <= 0:
        return 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return math.exp(low)


def _limits(tolerance: Any, n_groups: int, variances: _Variances) -> Floats:
    """Squared tolerances by subgroup and branch, from the order utility, subgroup, branch."""
    given = np.asarray(1.0 if tolerance is None else tolerance, dtype=np.float64)
    n_candidates = n_groups * variances.n_branches
    if given.ndim > 1 or (given.ndim == 1 and given.size != n_candidates):
        msg = f"`tolerance` must be a number, or one for each of {n_candidates} candidates."
        raise InvalidInputError(msg)
    if not (np.isfinite(given).all() and (given > 0).all()):
        msg = f"`tolerance` must be above 0; got {given.min()!r}."
        raise InvalidInputError(msg)
    if given.ndim == 0:
        return np.full((n_groups, variances.n_branches), float(given) ** 2)
    ends = np.cumsum([n_groups * found.size for found in variances.relevant])[:-1]
    parts = [part.reshape(n_groups, -1) for part in np.split(given, ends)]
    found: Floats = np.concatenate(parts, axis=1) ** 2
    return found


class _Known(NamedTuple):
    """What is known of some rows before their labels: squares, memberships, floors, all rows."""

    squares: Floats
    members: Floats
    floor: Floats
    n: int

    def n_effective(self, pi: Floats) -> float:
        """As many labels taken evenly have the same floor."""
        return self.n * pi.size / float(np.sum(1.0 / pi))

    def squared_radii(self, pi: Floats) -> Floats:
        """Squared radii of every subgroup and branch, but for a factor they share."""
        n_effective = self.n_effective(pi)
        seen = (self.members / pi) @ self.squares / float(np.sum(1.0 / pi))
        found: Floats = (seen + self.floor / n_effective) / n_effective
        return found

    def labels_evenly(self, squared_radii: Floats) -> float:
        """How many labels taken evenly make no squared radius larger than these."""
        seen = self.members @ self.squares / self.members.shape[1]
        wanted = np.maximum(squared_radii, 1e-300)
        needed = (seen + np.sqrt(seen**2 + 4.0 * self.floor * wanted)) / (2.0 * wanted)
        return float(needed.max())


def _balance(
    known: _Known, limits: Floats, even: Floats, uniform_share: float
) -> tuple[Floats, Floats]:
    """Find what each candidate's variance is worth, so that the widest are equally wide.

    Also what the floor adds to each row's square, at the probabilities that this leads to.
    """
    worth = np.full(limits.shape, 1.0 / limits.size)
    budget, pi = float(even.sum()), even
    best, smallest = (worth, known.floor), math.inf
    for _ in range(_MOST_STEPS):
        added = 2.0 * known.floor / known.n_effective(pi)
        sizes = _sizes(known.squares, known.members, worth / limits, added)
        pi = _mixed(sizes, budget, uniform_share)
        squared = known.squared_radii(pi) / limits
        largest = float(squared.max())
        if largest < smallest:
            best, smallest = (worth, added), largest
        if largest <= _CLOSE_ENOUGH * float((worth * squared).sum()):
            break
        worth = worth * np.sqrt(squared / max(largest, 1e-300))
        worth /= worth.sum()
    return best[0] / limits, best[1]


def _sizes(squares: Floats, members: Floats, worth: Floats, added: Floats) -> Floats:
    """Root of every row's variance, weighted by what candidates are worth.

    The floor, unlike the variance of a subgroup, grows with the weight of whatever row.
    """
    own = np.einsum("is,is->i", members.T @ worth, squares)
    sizes: Floats = np.sqrt(own + float(worth.sum(axis=0) @ added))
    return sizes


def _mixed(sizes: Floats, budget: float, uniform_share: float) -> Floats:
    """Probabilities that add up to the budget: an even share, the rest in proportion to size."""
    n = sizes.size
    floor = uniform_share * budget / n
    room, rest = 1.0 - floor, budget - floor * n
    # What no size asks for goes to all alike once the others have reached 1.
    wanted = sizes + 1e-9 * (float(sizes.max()) or 1.0)
    ordered = np.sort(wanted)[::-1]
    behind = np.cumsum(ordered[::-1])[::-1]
    factor = (rest - room * np.arange(n)) / behind
    full = factor * ordered > room
    full[-1] = False  # by rounding, it may seem full where all rows are to be labelled
    at = int(np.argmin(full))
    return np.asarray(floor + np.minimum(room, max(factor[at], 0.0) * wanted), dtype=np.float64)


def _systematic(pi: Floats, rng: np.random.Generator) -> Ints:
    """Draw rows with these probabilities, as many as they add up to, give or take one."""
    order = rng.permutation(pi.size)
    steps = np.floor(np.cumsum(pi[order]) + rng.random())
    return np.sort(order[np.diff(steps, prepend=0.0) > 0]).astype(np.int64)
