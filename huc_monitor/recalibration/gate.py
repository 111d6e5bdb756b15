"""The gate: what a recalibrator must show before it may replace the model that serves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import Field

from huc_monitor._common.settings import Number, Section, Share
from huc_monitor.audit.comparison import Comparison, Difference

if TYPE_CHECKING:
    from huc_monitor.recalibration.choosing import Figures


class Gate(Section):
    """What a recalibration must achieve on held-out rows before it may be registered.

    It is compared with the model that serves now, on the same rows.

    Parameters
    ----------
    min_improvement : float, default 0.1
        Share of the serving model's HUC, or of the largest moment with an open alert, that must be
        gone; 0.1 is a tenth.

        That is asked of the point estimates; besides, it must fall by more than chance: zero must
        lie outside the bounds of `compare` for both predictors on the same rows.
    max_log_loss_increase : float, default 0
        In nats per row.
    max_accuracy_drop : float, default 0.005
        In shares of rows; 0.005 is one row in 200.

    Examples
    --------
    >>> from huc_monitor.recalibration.choosing import Figures
    >>> before = Figures(400, 0.10, None, None, 0.02, 1.1, 0.62)
    >>> Gate().reasons(before, Figures(400, 0.04, None, None, 0.02, 1.0, 0.62))
    ()
    >>> Gate(min_improvement=0.7).reasons(
    ...     before, Figures(400, 0.04, None, None, 0.02, 1.0, 0.62)
    ... )
    ('HUC on 400 held-out rows is 0.1000 before, 0.0400 after; it must fall by at least 70%',)
    """

    min_improvement: Share = 0.1
    max_log_loss_increase: Annotated[Number, Field(ge=0)] = 0.0
    max_accuracy_drop: Share = 0.005

    def reasons(
        self,
        before: Figures,
        after: Figures,
        *,
        comparison: Comparison | None = None,
        rows: str = "",
        n_labels: int | None = None,
        targets: Sequence[tuple[str, str, str]] = (),
    ) -> tuple[str, ...]:
        """Say what stands against the recalibration; nothing when it may pass.

        ``comparison`` is that of both predictors on these rows; without it nothing says whether
        the improvement is sure, and only the figures are judged. ``n_labels`` are all that were
        divided into rows that fit, choose and judge. ``targets`` are candidates with an open alert:
        it is enough that the largest moment among them falls, unless HUC surely rises. HUC may be
        another branch's, of which nobody asked.
        """
        rows = rows or f"{after.n:,} held-out rows"
        judged = _Judged(comparison, rows, after.n, n_labels)
        huc = Difference("", "", "", before.huc, after.huc, *_bounds(comparison))
        against = [self._against("HUC", huc, judged)]
        worst = comparison.worst_of(targets) if comparison is not None and targets else None
        if worst is not None:
            at = f"{worst.node} (subgroup {worst.subgroup}, utility {worst.utility})"
            against.append(self._against(f"the moment of {at}, which has an alert,", worst, judged))
        found = []
        if all(against):
            found.append(against[-1])
        elif against[0] and huc.lower > 0.0:
            found.append(f"HUC on {rows} rises from {before.huc:.4f} to {after.huc:.4f}")
        if after.log_loss > before.log_loss + self.max_log_loss_increase:
            found.append(
                f"log loss rises from {before.log_loss:.4f} to {after.log_loss:.4f}; "
                f"allowed is a rise of {self.max_log_loss_increase:g}"
            )
        if after.accuracy < before.accuracy - self.max_accuracy_drop:
            found.append(
                f"accuracy falls from {before.accuracy:.4f} to {after.accuracy:.4f}; "
                f"allowed is a fall of {self.max_accuracy_drop:g}"
            )
        return tuple(found)

    def _against(self, what: str, one: Difference, judged: _Judged) -> str:
        """Say why a number did not fall enough; nothing where it did."""
        told = f"{what} on {judged.rows} is {one.before:.4f} before, {one.after:.4f} after"
        if not one.after <= (1.0 - self.min_improvement) * one.before:
            return f"{told}; it must fall by at least {self.min_improvement:.0%}"
        if judged.comparison is None or shown_better(one):
            return ""
        return (
            f"{told}, which may be chance: the difference lies between {one.lower:+.4f} and "
            f"{one.upper:+.4f} ({judged.comparison.confidence_level:.0%} confidence). "
            f"Wait for more labels{judged.rows_needed(one)}"
        )


class _Judged(NamedTuple):
    """On what a recalibration is judged: both predictors compared, on so many of the labels."""

    comparison: Comparison | None
    rows: str
    n: int
    n_labels: int | None

    def rows_needed(self, one: Difference) -> str:
        """Say how many rows would show it: bounds narrow with the root of their number."""
        if not (one.difference < 0 and math.isfinite(one.upper)):
            return ""
        needed = self.n * ((one.upper - one.difference) / one.difference) ** 2
        if self.n_labels is None:
            return f": about {_two_digits(needed)} rows would show such a gain"
        return (
            f": about {_two_digits(needed)} held-out rows would show such a gain, "
            f"{_two_digits(needed * self.n_labels / self.n)} labels in all at this division"
        )


def _bounds(comparison: Comparison | None) -> tuple[float, float, float]:
    """Return by how much HUC falls, and its bounds."""
    if comparison is None:
        return math.nan, math.nan, math.nan
    return comparison.huc.difference, comparison.huc.lower, comparison.huc.upper


def _two_digits(count: float) -> str:
    step = 10 ** max(0, math.floor(math.log10(count)) - 1)
    return f"{math.ceil(count / step) * step:,}"


def shown_better(one: Difference) -> bool:
    """Whether a number is lower after by more than chance: zero lies above its bounds.

    At 95 % confidence a calibrated model's HUC, which nothing can lower, passes in at most 2.5 % of
    trials.
    """
    return one.upper < 0.0
