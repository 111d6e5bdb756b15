"""What every way to bound moments promises: read each utility's statistics, then give radii."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from huc_monitor.audit.clusters import Sizes
from huc_monitor.utilities.program import Floats, Ints

if TYPE_CHECKING:
    from huc_monitor.audit.decomposition import SortedRows
    from huc_monitor.audit.scan import Groups


class Bound(ABC):
    """Radii for all candidates at once.

    Call `start`, then `visit` or `visit_summary` once per utility, then `radii`. A bound reads
    contributions and the limits known for them; it does not know what they mean.

    Attributes
    ----------
    n_draws, seed : int
        How many multipliers of every row it reads, and what they are a function of. Whoever
        summarises rows makes that many draws; closed forms ask for none.
    reads_squares : bool
        Whether it reads mean squares; whoever calls `visit` may hand in any if not.
    """

    n_draws: int = 0
    seed: int = 0
    reads_squares: bool = True

    def start(self, sizes: Sizes, n_candidates: int, confidence_level: float) -> None:
        """Say how many rows and candidates share the probability of error."""
        self.sizes = sizes
        self.n_candidates = n_candidates
        self.confidence_level = confidence_level

    def visit(  # noqa: B027 - some bounds need nothing
        self, rows: SortedRows, groups: Groups, spreads: Floats, mean_squares: Floats
    ) -> None:
        """Collect what is needed from one utility whose rows are in hand.

        ``spreads[j]`` limits the absolute contributions of the j-th relevant branch;
        ``mean_squares`` are their `second_moments`.
        """

    def visit_summary(  # noqa: B027 - some bounds need nothing
        self, mean_squares: Floats, ranges: Ints, spreads: Floats
    ) -> None:
        """Collect the same from summaries: mean squares (C, S) and ranges of draws (C, S, draws).

        A range is the largest absolute interval sum of one draw, in the units of `draw_units`.
        """

    @property
    def n_effective(self) -> float:
        """How many independent rows would give about these radii, once they are made."""
        return self.sizes.n

    @abstractmethod
    def radii(self) -> Floats:
        """Radius of every candidate, in the order of visits: utility, subgroup, branch."""


def log_share(n_candidates: int, confidence_level: float) -> float:
    """Log of 1 / (probability of error left to one candidate)."""
    return math.log(max(1, n_candidates) / (1.0 - confidence_level))
