"""What one batch told the e-detector: alarm or not, and who is under suspicion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from huc_monitor._common.forms import Form, Measured
from huc_monitor.detection._betting import Outcome
from huc_monitor.utilities.program import Floats

_LARGEST_LOG = 709.0


@dataclass(frozen=True, slots=True)
class Evidence(Form):
    """Evidence that one candidate is beyond tolerance, and the interval and side of its best bet.

    ``value`` is the candidate's Shiryaev-Roberts value. ``side`` is 1 where predictions understate
    utility, -1 where they overstate it, 0 before any row. Scores in [interval_low, interval_high)
    are bet on; infinite ends are the whole line.
    """

    utility: str
    subgroup: str
    node: str
    value: Measured
    named: bool
    side: int
    interval_low: Measured
    interval_high: Measured


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EDetectorStep:
    """The detector's state after one batch.

    Attributes
    ----------
    batch : int
        Number of the batch, from 1.
    n_rows : int
        Rows in it.
    threshold : float
        The average run length: an alarm is a ``value`` of at least this.
    """

    batch: int
    n_rows: int
    threshold: float
    names: tuple[tuple[str, str, str], ...]
    outcome: Outcome

    @classmethod
    def joined(cls, steps: Sequence[EDetectorStep]) -> EDetectorStep:
        """Add up the values of detectors that shared one batch, as for several model versions."""
        if len(steps) == 1:
            return steps[0]
        values = np.array([step.outcome.log_value for step in steps])
        richest = values.argmax(axis=0)

        def of_richest(name: str) -> Any:
            every = np.array([getattr(step.outcome, name) for step in steps])
            return every[richest, np.arange(richest.size)]

        outcome = Outcome(
            log_value=np.logaddexp.reduce(values, axis=0),
            log_before=np.logaddexp.reduce([step.outcome.log_before for step in steps], axis=0),
            side=of_richest("side"),
            low=of_richest("low"),
            high=of_richest("high"),
        )
        first = steps[0]
        batch, n_rows = max(step.batch for step in steps), sum(step.n_rows for step in steps)
        return cls(batch, n_rows, first.threshold, first.names, outcome)

    @property
    def log_value(self) -> float:
        """Natural logarithm of ``value``, which may itself be too large for a float."""
        logs = self.outcome.log_value
        top = float(logs.max())
        return top + math.log(np.exp(logs - top).mean()) if math.isfinite(top) else top

    @property
    def value(self) -> float:
        """Mean of the candidates' values."""
        return _exp(self.log_value)

    @property
    def alarm(self) -> bool:
        """True when the value has reached the threshold."""
        return self.log_value >= math.log(self.threshold)

    @property
    def candidate_values(self) -> Floats:
        """Shiryaev-Roberts value M_t of every candidate."""
        return _exp_all(self.outcome.log_value)

    @property
    def e_values(self) -> Floats:
        """What this batch alone earned per candidate, M_t / (M_{t-1} + 1): mean <= 1 if null."""
        if self.n_rows == 0:
            return np.ones(len(self.names))
        return _exp_all(self.outcome.log_value - self.outcome.log_before)

    @property
    def ranking(self) -> tuple[Evidence, ...]:
        """All candidates, the largest value first. An order of suspicion, not a test."""
        order = np.argsort(-self.outcome.log_value, kind="stable")
        return tuple(self._evidence(int(row)) for row in order)

    @property
    def worst(self) -> Evidence:
        """The candidate of largest value; the first in order on a tie."""
        return self._evidence(int(np.argmax(self.outcome.log_value)))

    @property
    def named(self) -> tuple[Evidence, ...]:
        """Candidates whose own value has reached n_candidates * threshold, largest first."""
        return tuple(evidence for evidence in self.ranking if evidence.named)

    def _evidence(self, row: int) -> Evidence:
        utility, subgroup, node = self.names[row]
        log_value = float(self.outcome.log_value[row])
        return Evidence(
            utility=utility,
            subgroup=subgroup,
            node=node,
            value=_exp(log_value),
            named=log_value >= math.log(len(self.names) * self.threshold),
            side=int(self.outcome.side[row]),
            interval_low=float(self.outcome.low[row]),
            interval_high=float(self.outcome.high[row]),
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a row per candidate, the largest value first."""
        frame = pd.DataFrame([evidence.to_dict() for evidence in self.ranking])
        order = np.argsort(-self.outcome.log_value, kind="stable")
        frame.insert(4, "e_value", self.e_values[order])
        return frame

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form: the decision, the names, and the first of the ranking."""
        return {
            "batch": self.batch,
            "n_rows": self.n_rows,
            "alarm": self.alarm,
            "value": _finite(self.value),
            "threshold": self.threshold,
            "named": [evidence.to_dict() for evidence in self.named],
            "worst": self.worst.to_dict(),
        }

    def __repr__(self) -> str:
        """One line."""
        rows = "1 row" if self.n_rows == 1 else f"{self.n_rows} rows"
        text = f"batch {self.batch}, {rows}: {self.value:.3g}"
        if self.alarm:
            worst = self.worst
            text += f", alarm, first {worst.node!r} for {worst.subgroup!r} in {worst.utility!r}"
        return f"EDetectorStep({text})"


def _exp(log_value: float) -> float:
    return math.exp(log_value) if log_value < _LARGEST_LOG else math.inf


def _exp_all(logs: Floats) -> Floats:
    return np.where(logs < _LARGEST_LOG, np.exp(np.minimum(logs, _LARGEST_LOG)), np.inf)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
