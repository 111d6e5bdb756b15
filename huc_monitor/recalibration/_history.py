"""What a fit did, step by step, and whether the theorems' guarantees held."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

import numpy as np
import pandas as pd

from huc_monitor.recalibration._rules import Pick
from huc_monitor.recalibration._updates import Update
from huc_monitor.recalibration._window import BoostWindow
from huc_monitor.utilities.program import Floats, Ints

# Rounding of a mean of logarithms and of sixteen-digit products.
_ROUNDING = 1e-12
_SAMPLE = 32


@dataclass(frozen=True, slots=True)
class Checks:
    """The guard rails of Theorem 3.5, as they turned out.

    Attributes
    ----------
    log_loss_fell : bool
        Every update lowered the log loss of the calibration rows. Guaranteed for adaptive steps.
    within_descent_bound : bool
        Every change was at most -step * moment + step^2 * curvature / 2, which holds for any step.
    n_updates, update_bound : int, int or None
        Updates made, and the theorem's limit: ceil(2 L0 / tolerance^2) for adaptive steps,
        ceil(4 L0 / eps^2) for fixed ones with tolerance 3 eps / 4 and step eps / 2; None when a
        fixed step is too long for its tolerance to have a limit.
    locality_error : float
        Largest change, over sampled rows and all updates, of a node's reach, of the distribution
        inside its children, or of a leaf outside; 0 for UC-Boost, which promises none of this.
    """

    log_loss_fell: bool
    within_descent_bound: bool
    n_updates: int
    update_bound: int | None
    locality_error: float

    @property
    def hold(self) -> bool:
        """True when every guarantee that applies was kept."""
        few = self.update_bound is None or self.n_updates <= self.update_bound
        return self.within_descent_bound and few and self.locality_error <= _ROUNDING

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {**asdict(self), "hold": self.hold}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(**{one.name: data[one.name] for one in fields(cls)})


def update_bound(log_loss: float, tolerance: float, fixed_step: float | None) -> int | None:
    """Most updates that can be made before the log loss would fall below zero.

    >>> update_bound(0.5, 0.1, None)
    100
    >>> update_bound(0.5, 0.075, 0.05)
    200
    """
    if tolerance <= 0:
        return None
    if fixed_step is None:
        return math.ceil(2.0 * log_loss / tolerance**2)
    fall = fixed_step * tolerance - fixed_step**2 / 2.0
    return math.ceil(log_loss / fall * (1 - 1e-12)) if fall > 0 else None


@dataclass(slots=True)
class Recorder:
    """Collects one line per step while a fit runs."""

    tolerance: float
    fixed_step: float | None
    lines: list[dict[str, Any]] = field(default_factory=list)
    worst_excess: float = -math.inf
    worst_rise: float = -math.inf
    locality: float = 0.0

    def start(self, train: BoostWindow, validation: BoostWindow | None) -> None:
        """Record the state before the first update."""
        self.lines.append({"update": 0, "pass": 0, **_state(train, validation)})

    def add(
        self,
        update: Update,
        pick: Pick,
        *,
        number: int,
        n_rows: int,
        curvature: float,
        train: BoostWindow,
        validation: BoostWindow | None,
    ) -> None:
        """Record an update that has just been applied."""
        state = _state(train, validation)
        change = state["log_loss"] - self.lines[-1]["log_loss"]
        step, moment = update.step, pick.found.moment
        self.worst_rise = max(self.worst_rise, change)
        limit = -step * moment + step**2 * curvature / 2.0
        self.worst_excess = max(self.worst_excess, change - limit)
        self.lines.append(
            {
                "update": len(self.lines),
                "pass": number,
                **update.to_dict(),
                "moment": moment,
                "radius": pick.radius,
                "n_rows": n_rows,
                **state,
            }
        )

    def note_locality(self, before: Floats, after: Floats, window: BoostWindow, node: int) -> None:
        """Compare leaf probabilities of a few rows before and after an update at a branch."""
        tables = window.tree.tables
        start, stop = int(tables.start[node]), int(tables.stop[node])
        outside = np.ones(before.shape[1], dtype=bool)
        outside[start:stop] = False
        errors = [np.abs(before - after)[:, outside]]
        errors.append(np.abs(before[:, start:stop].sum(1) - after[:, start:stop].sum(1)))
        for code in tables.child_code[tables.child_ptr[node] : tables.child_ptr[node + 1]]:
            if code >= 0:
                child = slice(int(tables.start[code]), int(tables.stop[code]))
                shares = [p[:, child] / p[:, child].sum(1, keepdims=True) for p in (before, after)]
                errors.append(np.abs(shares[0] - shares[1]))
        self.locality = max(self.locality, *(float(e.max(initial=0.0)) for e in errors))

    def checks(self) -> Checks:
        """Judge the whole path."""
        return Checks(
            log_loss_fell=self.worst_rise <= _ROUNDING,
            within_descent_bound=self.worst_excess <= _ROUNDING,
            n_updates=len(self.lines) - 1,
            update_bound=update_bound(self.lines[0]["log_loss"], self.tolerance, self.fixed_step),
            locality_error=self.locality,
        )

    def frame(self, n_kept: int) -> pd.DataFrame:
        """One row per step; ``kept`` marks the steps of the returned recalibrator."""
        columns = [
            "update",
            "pass",
            "node",
            "subgroup",
            "utility",
            "interval_low",
            "interval_high",
            "n_rows",
            "moment",
            "radius",
            "step",
            "huc",
            "uc",
            "log_loss",
            "validation_huc",
            "validation_uc",
            "validation_log_loss",
        ]
        frame = pd.DataFrame(self.lines, columns=columns)
        frame["kept"] = frame["update"] <= n_kept
        return frame


def sample_of(rows: Ints) -> Ints:
    """Pick a few of the rows, spread over all of them."""
    return rows[:: max(1, rows.size // _SAMPLE)]


def _state(train: BoostWindow, validation: BoostWindow | None) -> dict[str, float]:
    state = {"huc": train.huc, "uc": train.uc, "log_loss": train.log_loss}
    if validation is not None:
        state |= {
            "validation_huc": validation.huc,
            "validation_uc": validation.uc,
            "validation_log_loss": validation.log_loss,
        }
    return state
