"""What an audit says about predictions of which not all mass was logged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from huc_monitor.audit.sparse_rows import Rows, SparseRows
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import LevelCorrectness, TopK, Utility


@dataclass(frozen=True, slots=True)
class Truncation:
    """How much was not logged; truncations of pieces of a window add up.

    Attributes
    ----------
    mass : float
        Sum over rows of the mass that was not logged.
    sure_k : float
        So many of the likeliest leaves are logged ones, in every row whatever the other leaves'
        probabilities; infinite where nothing was lost.
    """

    mass: float = 0.0
    sure_k: float = math.inf

    @classmethod
    def of(cls, rows: Rows) -> Truncation:
        """Look at rows."""
        if not isinstance(rows, SparseRows) or not rows.unlogged.any():
            return cls()
        # No leaf that was not logged is likelier than the least likely logged one, if these are the
        # k best; that it stays so after the rest is spread is checked here.
        if rows.rest.one is not None:
            return cls(float(rows.unlogged.sum()), 0.0)
        most = (rows.fill * rows.rest.shares.max())[rows.row]
        above = np.bincount(rows.row, weights=rows.score > most, minlength=len(rows))
        return cls(float(rows.unlogged.sum()), float(above[rows.unlogged > 0].min()))

    def __add__(self, other: Truncation) -> Truncation:
        """Both sets of rows together."""
        return Truncation(self.mass + other.mass, min(self.sure_k, other.sure_k))

    def notes(self, n: float, utilities: Sequence[Utility], tree: LabelTree) -> tuple[str, ...]:
        """Say what readers should know: how much is missing, and what is exact nevertheless."""
        if not self.mass:
            return ()
        text = say_unlogged(self.mass / max(1.0, n))
        exact = [item.name for item in utilities if self._keeps(item, tree)]
        if exact:
            text += f" Exact if the best classes were logged: UC of {', '.join(exact)}."
        return (text,)

    def _keeps(self, utility: Utility, tree: LabelTree) -> bool:
        """Say whether a utility's score is a sum of logged probabilities alone."""
        if isinstance(utility, TopK):
            return utility.k <= self.sure_k
        if isinstance(utility, LevelCorrectness) and self.sure_k >= 1:
            return bool(tree.level_codes(utility.level)[-1] == tree.n_leaves - 1)
        return False


def say_unlogged(share: float) -> str:
    """Say how much was not logged.

    Examples
    --------
    >>> say_unlogged(0.104)
    '10 % of the predicted mass was not logged; it is spread as `rest` says.'
    """
    return f"{100 * share:.2g} % of the predicted mass was not logged; it is spread as `rest` says."
