"""The gate: what a recalibrator must show before it may replace the model that serves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from huc_monitor._common.settings import Number, Section, Share
from huc_monitor.audit.comparison import Comparison

if TYPE_CHECKING:
    from huc_monitor.recalibration.choosing import Figures


class Gate(Section):
    """What a recalibration must achieve on held-out rows before it may be registered.

    It is compared with the model that serves now, on the same rows.

    Parameters
    ----------
    min_improvement : float, default 0.1
        Share of the serving model's HUC that must be gone; 0.1 is a tenth.

        That is asked of the point estimates; besides, HUC must fall by more than chance: zero must
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
    ('HUC on 400 held-out rows is 0.0400 after 0.1000; it must fall by at least 70%',)
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
    ) -> tuple[str, ...]:
        """Say what stands against the recalibration; nothing when it may pass.

        ``comparison`` is that of both predictors on these rows; without it nothing says whether
        the improvement is sure, and only the figures are judged. ``n_labels`` are all that were
        divided into rows that fit, choose and judge.
        """
        found = []
        rows = rows or f"{after.n:,} held-out rows"
        if not after.huc <= (1.0 - self.min_improvement) * before.huc:
            found.append(
                f"HUC on {rows} is {after.huc:.4f} after {before.huc:.4f}; "
                f"it must fall by at least {self.min_improvement:.0%}"
            )
        elif comparison is not None and not shown_better(comparison):
            huc = comparison.huc
            found.append(
                f"HUC on {rows} is {after.huc:.4f} after {before.huc:.4f}, which may be chance: "
                f"the difference lies between {huc.lower:+.4f} and {huc.upper:+.4f} "
                f"({comparison.confidence_level:.0%} confidence). Wait for more labels"
                + _rows_needed(comparison, after.n, n_labels)
            )
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


def _rows_needed(comparison: Comparison, n: int, n_labels: int | None) -> str:
    """Say how many rows would show the difference: bounds narrow with the root of their number."""
    huc = comparison.huc
    if not (huc.difference < 0 and math.isfinite(huc.upper)):
        return ""
    needed = n * ((huc.upper - huc.difference) / huc.difference) ** 2
    if n_labels is None:
        return f": about {_two_digits(needed)} rows would show such a gain"
    return (
        f": about {_two_digits(needed)} held-out rows would show such a gain, "
        f"{_two_digits(needed * n_labels / n)} labels in all at this division"
    )


def _two_digits(count: float) -> str:
    step = 10 ** max(0, math.floor(math.log10(count)) - 1)
    return f"{math.ceil(count / step) * step:,}"


def shown_better(comparison: Comparison) -> bool:
    """Whether HUC is lower after by more than chance: zero lies above the bounds of the difference.

    At 95 % confidence a calibrated model's HUC, which nothing can lower, passes in at most 2.5 % of
    trials.
    """
    return comparison.huc.upper < 0.0
