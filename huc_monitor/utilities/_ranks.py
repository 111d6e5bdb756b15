"""Utilities of the label's rank under decreasing predicted probability."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from huc_monitor.errors import InvalidInputError
from huc_monitor.tree import LabelTree
from huc_monitor.utilities._base import Utility
from huc_monitor.utilities.program import LEVEL, RANK, Floats, Program, program


@dataclass(frozen=True, repr=False)
class _ByRank(Utility):
    @abstractmethod
    def theta(self, n_leaves: int) -> Floats:
        """Return the payoff of every rank."""

    def compile(self, tree: LabelTree) -> Program:
        """Compile to the payoff of every rank."""
        return program(RANK, floats=self.theta(tree.n_leaves))

    def spreads(self, tree: LabelTree) -> Floats:
        """Every branch sees the whole range: any two ranks can fall into two of its children."""
        return np.full(tree.arrays.n_branches, np.ptp(self.theta(tree.n_leaves)))


@dataclass(frozen=True, repr=False)
class RankPayoff(_ByRank):
    """Payoff theta_r when the label has rank r; equal probabilities rank in leaf order.

    ``payoffs`` may be shorter than the number of leaves: its last entry holds for all later ranks.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["a", "b", "c"])
    >>> hm.RankPayoff("search", payoffs=[1, 0.5, 0]).values([[0.2, 0.5, 0.3]], tree=tree)
    array([[0. , 1. , 0.5]])
    """

    name: str = ""
    payoffs: Sequence[float] = ()

    def __post_init__(self) -> None:
        """Check the payoffs."""
        super().__post_init__()
        payoffs = tuple(float(value) for value in self.payoffs)
        bad = [value for value in payoffs if not -1 <= value <= 1]
        if not payoffs or bad:
            got = bad[0] if bad else "an empty list"
            msg = f"`payoffs` must be numbers between -1 and 1; got {got} (utility {self.name!r})."
            raise InvalidInputError(msg)
        object.__setattr__(self, "payoffs", payoffs)

    def theta(self, n_leaves: int) -> Floats:
        if len(self.payoffs) > n_leaves:
            msg = (
                f"`payoffs` must have at most one entry per leaf ({n_leaves}); "
                f"got {len(self.payoffs)} (utility {self.name!r})."
            )
            raise InvalidInputError(msg)
        tail = [self.payoffs[-1]] * (n_leaves - len(self.payoffs))
        return np.array([*self.payoffs, *tail])


@dataclass(frozen=True, repr=False)
class TopK(_ByRank):
    """One when the label is among the k most probable leaves; ties rank in leaf order."""

    k: int

    def __post_init__(self) -> None:
        """Check k."""
        super().__post_init__()
        if isinstance(self.k, bool) or not isinstance(self.k, int | np.integer) or self.k < 1:
            msg = f"`k` must be a positive whole number; got {self.k!r}."
            raise InvalidInputError(msg)

    @property
    def default_name(self) -> str:
        """``top3``."""
        return f"top{self.k}"

    def compile(self, tree: LabelTree) -> Program:
        """Compile to ranks, or to a report of the likeliest leaf, which takes less work."""
        if self.k == 1:
            return program(LEVEL, ints=-1 - np.arange(tree.n_leaves))
        return super().compile(tree)

    def theta(self, n_leaves: int) -> Floats:
        if self.k > n_leaves:
            msg = f"`k` must be at most the number of leaves ({n_leaves}); got {self.k}."
            raise InvalidInputError(msg)
        return (np.arange(n_leaves) < self.k).astype(np.float64)
