"""Alarms that stay valid however often, and at however many candidates, one looks.

The null
    Rows arrive in order. For every candidate j = (subgroup c, utility u, branch v), every interval
    I of scores and every row i, given all rows before it,

        abs(E[c(X_i) * 1{score_i in I} * contribution_i]) <= tolerance_j .

    Nothing else is assumed: rows need be neither independent nor identically distributed, so a
    drift of features, scores or class shares that leaves every moment within tolerance is not a
    violation. Labels must arrive in an order that does not depend on what they are.

One bet
    Before a batch, an arm of candidate j fixes a side s, an interval I and a stake
    lambda <= 1 / (2 (b_j + tolerance_j)), all functions of earlier rows; b_j bounds the
    contribution. Row i multiplies its money by 1 + lambda (s c 1{score in I} contribution -
    tolerance), which lies in [1/2, 3/2] and under the null has mean at most 1 given the rows
    before. So the product L_t over the batch has mean at most 1 given the earlier batches (take
    expectations from the last row back): an e-value, for a batch of any size.

The detector
    Each arm keeps M_t = (M_{t-1} + 1) L_t with M_0 = 0: a new unit enters every batch, so the value
    reacts to a change at any time (Shiryaev-Roberts). A candidate's value is the mean over its
    arms, the detector's value the mean over candidates. Means keep E[M_t | past] <= M_{t-1} + 1,
    however dependent candidates are: M_t - t is a supermartingale.

Clusters
    Rows of a cluster depend on each other, so that the null holds for a row given the clusters
    before, not given the other rows of its own. Each cluster of a batch is one bet, on the mean of
    its rows' terms: a mean of numbers of at most b_j, whose expectation given earlier clusters is
    within tolerance if those of its rows are. Clusters count alike, however many rows they have.
    Rows of one cluster in two batches are two bets: the second must be within tolerance given the
    first. Where the same few users come back in every batch, what makes these users special is
    evidence against the model, and rightly so: it is wrong for them.

Chosen labels
    A row labelled with known probability pi is bet on with w (s c 1{score in I} contribution -
    tolerance), w = pi_0 / pi: over the choice, its mean is pi_0 times that of all rows, so at most
    0 under the null, also if pi depends on the outcome. pi_0 is half the smallest probability seen
    before, so that w <= 1 and stakes stay as they are. The first batch with probabilities, and one
    with a smaller probability than pi_0, are not bet on; they count as empty.

Average run length
    Let tau be the first batch with M_t >= A. Optional stopping at min(tau, T), and M >= 0, give
    A P(tau <= T) <= E[M_min(tau,T)] <= E[min(tau, T)]. Hence E[tau] >= A (if E[tau] is finite,
    P(tau <= T) tends to 1), and P(tau <= T) <= T / A. No count of looks, nodes, subgroups or
    utilities appears. After an alarm all arms restart at 0 and the argument starts again given the
    past, so the k-th false alarm comes after k A batches or more on average.

Naming
    A candidate is named when its own M_t >= n_candidates A. Summing over the candidates that
    satisfy the null, whatever the others do, the first false name comes after A batches or more on
    average. Restarts, resets and the ceiling only lower M, and leave the inequality true.

Several streams
    Where model versions serve side by side, each has a detector of its own, fed with its own rows.
    The unit that enters a batch is split among the versions in it by their share w of the rows:
    M_v <- (M_v + w_v) L_v. The shares do not depend on the batch's labels and sum to 1, so the sum
    of the M_v over all versions, less t, is a supermartingale as before, and an alarm is a sum over
    the versions in the batch of at least A. So the average run length holds as it stands for any
    number of versions, and no budget is lost; a version with share w pays log(1 / w) once. An alarm
    takes at least A from the sum: the k-th false one comes after k A batches or more on average.

What is not promised: a probability that one given alarm is false; anything about a violation
smaller than the tolerance; that the ranking is a test (only named candidates carry one); and that
a violation is still there: a name says that there was one since the last restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import numpy as np

from huc_monitor._common.checks import check_choice, check_number
from huc_monitor._common.row_order import check_row_order
from huc_monitor._common.threads import run_tasks
from huc_monitor.audit.decomposition import UtilityRows, iter_decomposed, relevant_paths
from huc_monitor.audit.inputs import check_labels, check_predictions
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.scan import Groups
from huc_monitor.detection._betting import N_ARMS, Clusters, Outcome, UtilityBets
from huc_monitor.detection.options import DEFAULTS
from huc_monitor.detection.step import EDetectorStep
from huc_monitor.errors import HUCError, InvalidInputError
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats

SCHEMA_VERSION = 1
AFTER_ALARM = ("restart", "continue")
# Wealth beyond this multiple of what naming takes only delays the return to normal.
_CEILING = 1e3
_PARALLEL_ROWS = 8192


class EDetector:
    """Watch every candidate's moment over a stream of labelled rows; say when one is too large.

    While every moment stays within ``tolerance``, the first alarm comes after
    ``average_run_length`` batches or more on average, whatever the number of utilities, subgroups,
    branches and looks: see the module's text for the null, the proof and what is not promised. The
    cost of a batch and the size of the state do not grow with the stream.

    Parameters
    ----------
    tree : LabelTree, or the path of a tree file
    utilities : list of Utility, with distinct names
    subgroups : Subgroups, optional
        The whole population when left out.
    tolerance : float or sequence of floats
        Largest absolute moment that is accepted; one number, or one per candidate in the order of
        `candidates`.
    average_run_length : float, default 100
        Batches between false alarms, on average and at least.
    memory : float, default 2000
        Rows after which the past has faded to 1/e in the choice of intervals.
    after_alarm : {"restart", "continue"}
        Restart bounds the long-run rate of false alarms by 1 / average_run_length per batch; a
        violation that lasts raises alarm after alarm. Continue keeps the evidence, so that names
        accumulate and the alarm stays on until `reset` or until the evidence has been lost again;
        its guarantee is about the first alarm.

    Examples
    --------
    Every batch predicts 50:50, but from the third batch on only "a" happens.

    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["a", "b"])
    >>> detector = hm.EDetector(tree=tree, utilities=[hm.Payoff("a", {"a": 1})], tolerance=0.05)
    >>> for batch in (list("abab") * 5, list("bbaa") * 5, ["a"] * 20, ["a"] * 20):
    ...     print(detector.update([[0.5, 0.5]] * 20, batch))
    EDetectorStep(batch 1, 20 rows: 0.634)
    EDetectorStep(batch 2, 20 rows: 1.09)
    EDetectorStep(batch 3, 20 rows: 15.7)
    EDetectorStep(batch 4, 20 rows: 602, alarm, first 'root' for 'all' in 'a')
    """

    def __init__(
        self,
        *,
        tree: LabelTree | str | Path,
        utilities: Sequence[Utility] | Utility,
        tolerance: float | Sequence[float],
        subgroups: Subgroups | None = None,
        average_run_length: float = DEFAULTS.average_run_length,
        memory: float = 2_000.0,
        after_alarm: str = "restart",
    ) -> None:
        check_choice("after_alarm", after_alarm, AFTER_ALARM)
        self._average_run_length = check_number("average_run_length", average_run_length, least=1)
        self._memory = check_number("memory", memory, least=1)
        self._after_alarm = after_alarm
        self._plan = AuditPlan.of(tree=tree, utilities=utilities, subgroups=subgroups)
        self._tree = self._plan.tree
        self._utilities, self._subgroups = self._plan.utilities, self._plan.subgroups
        self._names = self._plan.names
        if not self._names:
            msg = "`utilities` must have a relevant branch in this tree; none of them has."
            raise InvalidInputError(msg)
        self._tolerance = _check_tolerance(tolerance, len(self._names))
        self._ceiling = _CEILING * N_ARMS * len(self._names) * self._average_run_length
        self._n_batches = 0
        self._n_rows = 0
        self._last_reset: dict[str, Any] | None = None
        self._least_probability: float | None = None
        self._bets = self._start()

    def _start(self) -> list[UtilityBets]:
        bets, first = [], 0
        for utility in self._utilities:
            relevant, paths = relevant_paths(self._tree, utility)
            spreads = np.tile(utility.spreads(self._tree)[relevant], len(self._subgroups))
            tolerance = self._tolerance[first : first + spreads.size]
            bets.append(UtilityBets.start(paths, spreads, tolerance, self._memory))
            first += spreads.size
        return bets

    @property
    def candidates(self) -> list[tuple[str, str, str]]:
        """(utility, subgroup, node) of every candidate, in order."""
        return list(self._names)

    @property
    def n_batches(self) -> int:
        """Batches that updated the detector, empty ones included."""
        return self._n_batches

    @property
    def n_rows(self) -> int:
        """Rows that updated the detector: a stream that is read again resumes after this many."""
        return self._n_rows

    @property
    def last_reset(self) -> dict[str, Any] | None:
        """Reason of the last reset and the number of batches and rows before it."""
        return None if self._last_reset is None else dict(self._last_reset)

    def update(
        self,
        probabilities: Any,
        labels: Any,
        features: Any = None,
        *,
        clusters: Any = None,
        label_probability: Any = None,
    ) -> EDetectorStep:
        """Update the detector with one batch of newly labelled rows.

        Hand over every labelled row exactly once, in the order in which labels arrive. A batch may
        end at any row, for any reason that does not look ahead. An empty batch is counted and
        changes nothing else.

        Parameters
        ----------
        probabilities : (n, K) array in the order of ``tree.leaves``, or DataFrame with leaf columns
        labels : (n,) leaf names or codes
        features : DataFrame of n rows, optional
            Columns that the subgroups read.
        clusters, label_probability : (n,), optional
            As in `audit`; see "Clusters" and "Chosen labels" in the module's text.

        Returns
        -------
        EDetectorStep
        """
        if len(labels) == 0 and len(probabilities) == 0:
            return self._count_empty()
        given = {
            "features": features,
            "clusters": clusters,
            "label_probability": label_probability,
        }
        check_row_order(probabilities=probabilities, labels=labels, **given)
        predictions = check_predictions(probabilities, tree=self._tree)
        codes = check_labels(labels, predictions.n, tree=self._tree)
        predictions, codes, groups = self._plan.weigh(predictions, codes, **given)
        rows = iter_decomposed(self._utilities, predictions, codes, tree=self._tree)
        return self._eat(list(rows), groups)

    def update_rows(
        self, rows: Sequence[UtilityRows], groups: Groups, *, entering: float = 1.0
    ) -> EDetectorStep:
        """Update with a batch that was decomposed before: the same utilities and subgroups.

        `entering` is the part of the batch's new unit that this detector gets, where several share
        it (see "Several streams" in the module's text).
        """
        given = [row.utility for row in rows]
        if given != list(self._utilities) or any(row.tree != self._tree for row in rows):
            names = ", ".join(utility.name for utility in self._utilities)
            msg = f"`rows` must be decomposed by this tree and the utilities {names}, in order."
            raise InvalidInputError(msg)
        if groups.repeats.size and not (groups.times.size and (groups.times == 1).all()):
            msg = "`groups` must count every row once; got row weights. Leave `repeats` out."
            raise InvalidInputError(msg)
        weights = np.array(groups.weights)
        n = rows[0].scores.size
        if weights.shape != (len(self._subgroups), n) or np.abs(weights).max(initial=0.0) > 1:
            msg = (
                f"`groups` must weigh {n} rows in {len(self._subgroups)} subgroups, between -1 "
                f"and 1; got shape {weights.shape}."
            )
            raise InvalidInputError(msg)
        if any((row.labels < 0).any() for row in rows):
            msg = (
                "`rows` must all have labels. Hand over unlabelled rows once their label is known."
            )
            raise InvalidInputError(msg)
        return self._eat(rows, groups, entering) if n else self._count_empty()

    def _eat(
        self, rows: Sequence[UtilityRows], groups: Groups, entering: float = 1.0
    ) -> EDetectorStep:
        weights = np.array(groups.weights, dtype=np.float64)
        amounts = self._amounts(groups)
        if amounts is None:
            for bets, utility_rows in zip(self._bets, rows, strict=True):
                bets.learn(utility_rows, weights)
            self._n_rows += weights.shape[1]
            return self._count_empty()
        clusters = None
        if groups.times.size or groups.simplified().clusters.size:
            clusters = Clusters.of(groups.cluster_keys(0, amounts.size), amounts)

        def work(bets: UtilityBets, utility_rows: UtilityRows) -> Outcome:
            outcome = bets.bet(utility_rows, weights, self._ceiling, entering, clusters)
            bets.learn(utility_rows, weights * amounts)
            return outcome

        large = weights.shape[1] >= _PARALLEL_ROWS
        outcomes = list(run_tasks(work, zip(self._bets, rows, strict=True), parallel=large))
        self._n_batches += 1
        self._n_rows += weights.shape[1]
        step = self._step(_joined(outcomes), weights.shape[1])
        if step.alarm and self._after_alarm == "restart":
            self.restart()
        return step

    def _amounts(self, groups: Groups) -> Floats | None:
        """How often every row counts, at most once; None where stakes do not allow for it."""
        n = groups.weights[0].size
        if not groups.times.size:
            return np.ones(n)
        probability, least = groups.label_probability(n), self._least_probability
        smallest = float(probability.min())
        self._least_probability = min(smallest / 2, least or 1.0)
        return None if least is None or smallest < least else least / probability

    def restart(self) -> None:
        """Give up all evidence and keep the past, as after an alarm."""
        for bets in self._bets:
            bets.restart()

    def _count_empty(self) -> EDetectorStep:
        self._n_batches += 1
        values = np.concatenate([bets.values() for bets in self._bets])
        with np.errstate(divide="ignore"):  # a value of 0 has no logarithm
            log_value = np.log(values)
        nothing = np.full(values.size, np.inf)
        still = Outcome(log_value, log_value, np.zeros(values.size, np.int64), -nothing, nothing)
        return self._step(still, 0)

    def _step(self, outcome: Outcome, n_rows: int) -> EDetectorStep:
        return EDetectorStep(
            batch=self._n_batches,
            n_rows=n_rows,
            threshold=self._average_run_length,
            names=self._names,
            outcome=outcome,
        )

    def reset(self, reason: str) -> None:
        """Forget evidence and past, as a new model version asks; the counts go on.

        A reset at any time, even one chosen by looking at the values, keeps the guarantee.
        """
        self._bets = self._start()
        self._last_reset = {
            "reason": str(reason),
            "n_batches": self._n_batches,
            "n_rows": self._n_rows,
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe settings and state; a detector read back continues bit for bit."""
        return {
            "schema_version": SCHEMA_VERSION,
            "tree": self._tree.to_dict(),
            "utilities": [utility.to_dict() for utility in self._utilities],
            "subgroups": self._subgroups.to_dict(),
            "tolerance": self._tolerance.tolist(),
            "average_run_length": self._average_run_length,
            "memory": self._memory,
            "after_alarm": self._after_alarm,
            "n_batches": self._n_batches,
            "n_rows": self._n_rows,
            "last_reset": self.last_reset,
            "bets": [bets.state() for bets in self._bets],
            **({"least_probability": self._least_probability} if self._least_probability else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; functions of custom utilities must be registered before.

        Examples
        --------
        >>> import huc_monitor as hm
        >>> tree = hm.LabelTree.flat(["a", "b"])
        >>> one = EDetector(tree=tree, utilities=[hm.TopK(1)], tolerance=0.01)
        >>> other = EDetector.from_dict(one.to_dict())
        >>> batch = [[0.7, 0.3]] * 9, ["a"] * 9
        >>> one.update(*batch).value == other.update(*batch).value
        True
        """
        version = data.get("schema_version")
        if version != SCHEMA_VERSION or isinstance(version, bool):
            msg = (
                f"`data['schema_version']` must be {SCHEMA_VERSION}; got {version!r}. "
                "Read data written by EDetector.to_dict, with the version that wrote it or newer."
            )
            raise InvalidInputError(msg)
        try:
            return cls._read(data)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, HUCError):
                raise
            msg = (
                f"`data` must be what EDetector.to_dict wrote, unchanged; got {error!r} while "
                "reading it. Restore the saved state, or start a new detector."
            )
            raise InvalidInputError(msg) from error

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> Self:
        detector = cls(
            tree=LabelTree.from_dict(data["tree"]),
            utilities=[Utility.from_dict(utility) for utility in data["utilities"]],
            subgroups=Subgroups.from_dict(data["subgroups"]),
            tolerance=data["tolerance"],
            average_run_length=data["average_run_length"],
            memory=data["memory"],
            after_alarm=data["after_alarm"],
        )
        detector._n_batches = int(data["n_batches"])
        detector._n_rows = int(data["n_rows"])
        detector._last_reset = data["last_reset"]
        detector._least_probability = data.get("least_probability")
        for bets, state in zip(detector._bets, data["bets"], strict=True):
            bets.load(state)
        return detector

    def __repr__(self) -> str:
        """One line."""
        return (
            f"EDetector({len(self._names)} candidates, average_run_length="
            f"{self._average_run_length:g}, {self._n_batches} batches, {self._n_rows} rows)"
        )


def _joined(outcomes: Sequence[Outcome]) -> Outcome:
    names = [item.name for item in fields(Outcome)]
    return Outcome(
        **{name: np.concatenate([getattr(one, name) for one in outcomes]) for name in names}
    )


def _check_tolerance(tolerance: float | Sequence[float], n: int) -> Floats:
    array = np.asarray(tolerance, dtype=np.float64)
    if array.ndim > 1 or (array.ndim == 1 and array.size != n):
        msg = (
            f"`tolerance` must be one number or one per candidate ({n}); got shape {array.shape}. "
            "The order is that of `EDetector.candidates`."
        )
        raise InvalidInputError(msg)
    bad = array[~(np.isfinite(array) & (array >= 0))]
    if bad.size:
        msg = f"`tolerance` must be finite and at least 0; got {bad.flat[0]}."
        raise InvalidInputError(msg)
    return np.broadcast_to(array, n).copy()
