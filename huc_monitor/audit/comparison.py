"""What a comparison found: differences of all candidates with simultaneous bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd

from huc_monitor._common.forms import Form, Measured
from huc_monitor._common.views import Plotted
from huc_monitor.errors import InvalidInputError
from huc_monitor.utilities.program import Floats


@dataclass(frozen=True, slots=True)
class Difference:
    """After minus before, of one candidate or of HUC; ``lower`` and ``upper`` are signed.

    ``node`` and the other names are empty for HUC. For two samples the interval is the one of
    predicted utility on which the moment changed most; else it is undefined (NaN).
    """

    utility: str
    subgroup: str
    node: str
    before: Measured
    after: Measured
    difference: Measured
    lower: Measured
    upper: Measured
    interval_low: Measured = math.nan
    interval_high: Measured = math.nan

    @property
    def sure(self) -> bool:
        """Whether zero lies outside the bounds."""
        return self.lower > 0 or self.upper < 0

    def __repr__(self) -> str:
        """One line: where, how much, how sure."""
        at = f"{self.node!r}, subgroup={self.subgroup!r}, utility={self.utility!r}"
        return (
            f"Difference({at if self.node else 'HUC'}: {self.before:+.4f} to {self.after:+.4f}, "
            f"{self.difference:+.4f} [{self.lower:+.4f}, {self.upper:+.4f}])"
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison(Form, Plotted):
    """After minus before for every candidate, with simultaneous bounds.

    Attributes
    ----------
    kind : {"samples", "predictors", "audits"}
        What ``difference`` is. Of two samples: the candidate's moment after minus before, on the
        interval of predicted utility on which the two lie furthest apart. Of two predictors on the
        same rows, and of two audits: the absolute moment (largest over intervals, each on its own
        scores) after minus before; negative is better.
    n_before, n_after : float
        Rows, counted with their weights.
    confidence_level : float
        Probability that all bounds, those of HUC included, hold at once.
    method : str or None
        "bootstrap"; "radii" where both audits' radii were added; None where no bounds were made:
        they are then NaN.
    n_draws : int
        0 unless the method draws.
    names : tuple of (utility, subgroup, node)
    before, after, difference, lower, upper : arrays, a number per candidate
    interval_low, interval_high, n_in_before, n_in_after : arrays
        Where two samples differ most, and their rows there; NaN for other kinds.
    huc : Difference
        HUC after minus before. NaN for two samples, whose changes may cancel in HUC.
    """

    kind: Literal["samples", "predictors", "audits"]
    n_before: float
    n_after: float
    confidence_level: float
    method: str | None
    n_draws: int
    names: tuple[tuple[str, str, str], ...]
    before: Floats
    after: Floats
    difference: Floats
    lower: Floats
    upper: Floats
    interval_low: Floats
    interval_high: Floats
    n_in_before: Floats
    n_in_after: Floats
    huc: Difference
    schema: ClassVar[int | None] = 1

    @classmethod
    def of_sizes(cls, before: Floats, after: Floats, down: Floats, up: Floats, **more: Any) -> Self:
        """Compare absolute moments, which have no interval in common."""
        change, empty = after - before, np.full(before.size, np.nan)
        where: Any = dict.fromkeys(_COLUMNS[5:], empty)
        bounds: Any = {"difference": change, "lower": change - down, "upper": change + up}
        return cls(before=before, after=after, **bounds, **where, **more)

    @property
    def sure(self) -> tuple[Difference, ...]:
        """Candidates whose bounds exclude zero, the largest absolute difference first."""
        with np.errstate(invalid="ignore"):
            chosen = np.flatnonzero((self.lower > 0) | (self.upper < 0))
        order = np.argsort(-np.abs(self.difference[chosen]), kind="stable")
        return tuple(self[int(row)] for row in chosen[order])

    @property
    def worst(self) -> Difference:
        """The candidate that differs most; the first in order on a tie."""
        if not self.names:
            msg = "`worst` needs a candidate; no utility has a relevant branch in this tree."
            raise InvalidInputError(msg)
        return self[int(np.argmax(np.abs(self.difference)))]

    def worst_of(self, names: Sequence[tuple[str, str, str]]) -> Difference | None:
        """Return the candidate of these with the largest absolute moment before; None without one.

        Its ``after`` is the largest among all of these.
        """
        rows = [row for row, name in enumerate(self.names) if name in names]
        if not rows:
            return None
        worst = self[max(rows, key=lambda row: abs(self.before[row]))]
        return replace(worst, after=float(np.abs(self.after[rows]).max()))

    def __getitem__(self, row: int) -> Difference:
        """Return one candidate by its number."""
        values: Any = {
            name: float(getattr(self, name)[row]) for name in _COLUMNS if not name.startswith("n_")
        }
        return Difference(*self.names[row], **values)

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.names)

    def to_frame(self, *, all_columns: bool = False) -> pd.DataFrame:
        """Return a row per candidate, in the order utility, subgroup, branch.

        With `all_columns`, the interval on which two samples differ most and their rows there
        follow. ``sure`` is true where zero lies outside the simultaneous bounds.
        """
        names = zip(*self.names, strict=True) if self.names else ((), (), ())
        frame = pd.DataFrame(dict(zip(("utility", "subgroup", "node"), names, strict=True)))
        for name in _COLUMNS if all_columns else _COLUMNS[:5]:
            frame[name] = getattr(self, name)
        frame["sure"] = (frame["lower"] > 0) | (frame["upper"] < 0)
        return frame

    def __repr__(self) -> str:
        """One line."""
        sizes = f"n={self.n_before:g} and {self.n_after:g}"
        huc = "" if math.isnan(self.huc.difference) else f", HUC {self.huc.difference:+.4g}"
        at = f", most at {self.worst.node!r} {self.worst.difference:+.4g}" if self.names else ""
        return (
            f"Comparison({self.kind}, {sizes}{huc}{at}, "
            f"{len(self.sure)} of {len(self.names)} candidates sure)"
        )


_COLUMNS = (
    "before",
    "after",
    "difference",
    "lower",
    "upper",
    "interval_low",
    "interval_high",
    "n_in_before",
    "n_in_after",
)
