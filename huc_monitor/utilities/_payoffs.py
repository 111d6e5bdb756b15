"""Utilities given by payoffs: fixed ones, and those of an action chosen from the prediction."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from huc_monitor.errors import InvalidInputError
from huc_monitor.tree import LabelTree
from huc_monitor.utilities._base import Utility, frozen_names, leaf_mask, spread_of_rows
from huc_monitor.utilities.program import PAYOFF, Floats, Program, program


@dataclass(frozen=True, repr=False)
class _PayoffRows(Utility):
    """Shared by the families that are a payoff row per action and the argmax over actions."""

    name: str = ""

    @abstractmethod
    def rows(self, tree: LabelTree) -> Floats:
        """Payoff of every action (rows, in tie-breaking order) on every leaf (columns)."""

    def compile(self, tree: LabelTree) -> Program:
        """Compile to payoff rows; the kernel picks the first action of largest mean payoff."""
        return program(PAYOFF, payoff=self.rows(tree))

    def spreads(self, tree: LabelTree) -> Floats:
        """Range of the payoffs below each branch, over the actions that can be chosen."""
        rows = self.rows(tree)
        return spread_of_rows(tree, rows[_selectable(rows)])


def _selectable(rows: Floats) -> list[int]:
    """Actions that some strictly positive prediction selects.

    An action equal to an earlier one, or below the best of the others at every prediction, is
    never chosen, so it makes no branch relevant. One linear programme per action: the largest
    margin t with p_y >= t and payoff(a) >= payoff(b) + t for every other action b.
    """
    if len(rows) == 1:
        return [0]
    if len(rows) == 2 and np.array_equal(rows[0], -rows[1]):
        return [0]
    return list(_solved(rows.tobytes(), len(rows)))


@lru_cache(maxsize=64)  # every audit asks, more than once
def _solved(payoffs: bytes, n_actions: int) -> tuple[int, ...]:
    from scipy.optimize import linprog

    rows = np.frombuffer(payoffs).reshape(n_actions, -1)
    n_leaves = rows.shape[1]
    chosen = []
    for a in range(n_actions):
        if any(np.array_equal(rows[a], rows[b]) for b in range(a)):
            continue
        others = [b for b in range(n_actions) if not np.array_equal(rows[a], rows[b])]
        margins = np.hstack([rows[others] - rows[a], np.ones((len(others), 1))])
        positive = np.hstack([-np.eye(n_leaves), np.ones((n_leaves, 1))])
        found = linprog(
            np.append(np.zeros(n_leaves), -1.0),
            A_ub=np.vstack([margins, positive]),
            b_ub=np.zeros(len(others) + n_leaves),
            A_eq=np.append(np.ones(n_leaves), 0.0)[None, :],
            b_eq=[1.0],
            bounds=[(0, 1)] * n_leaves + [(-2, 1)],
        )
        if found.status == 0 and float(found.fun or 0.0) < -1e-12:
            chosen.append(a)
    return tuple(chosen)


def _payoff_row(
    payoffs: Mapping[str, float], tree: LabelTree, *, scale: float, default: float, owner: str
) -> Floats:
    """Lay payoffs of nodes and leaves over the leaves; the deepest name that covers a leaf wins."""
    row = np.full(tree.n_leaves, default / scale)
    for name in sorted(payoffs, key=lambda key: _depth(tree, key, owner)):
        row[leaf_mask(tree, [name], owner)] = float(payoffs[name]) / scale
    return row


def _depth(tree: LabelTree, name: str, owner: str) -> int:
    leaf_mask(tree, [name], owner)
    return tree.depth(name)


def _check_payoffs(
    name: str, payoffs: Mapping[str, Any], *, scale: float, action: str | None = None
) -> dict[str, float]:
    where = f"utility {name!r}" + ("" if action is None else f", action {action!r}")
    if not payoffs and action is None:
        msg = f"`payoffs` must name at least one leaf or node ({where})."
        raise InvalidInputError(msg)
    checked: dict[str, float] = {}
    for key, value in (payoffs or {}).items():
        ok = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not ok or not np.isfinite(value) or abs(value) > scale:
            msg = (
                f"`payoffs` must be numbers between -{scale:g} and {scale:g}; "
                f"got {value!r} ({where}, label {key!r}). "
                "Set `scale` to the largest absolute payoff to work in your own units."
            )
            raise InvalidInputError(msg)
        checked[str(key)] = float(value)
    return checked


@dataclass(frozen=True, repr=False)
class Payoff(_PayoffRows):
    """Linear utility: label y is worth b_y, whatever was predicted.

    Parameters
    ----------
    name : str
    payoffs : mapping of node or leaf name to payoff
        In units (divided by ``scale``). The deepest name wins; leaves not covered get ``default``.
    default : float, default 0

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"sick": ["flu", "cold"], "well": None})
    >>> cost = hm.Payoff("cost", {"flu": -100, "cold": -20}, units="EUR", scale=100)
    >>> cost.values([[0.2, 0.3, 0.5]], tree=tree)
    array([[-1. , -0.2,  0. ]])
    """

    payoffs: Mapping[str, float] = field(default_factory=dict)
    default: float = 0.0

    def __post_init__(self) -> None:
        """Check the payoffs."""
        super().__post_init__()
        checked = _check_payoffs(self.name, self.payoffs, scale=self.scale)
        _check_payoffs(self.name, {"default": self.default}, scale=self.scale)
        object.__setattr__(self, "payoffs", checked)

    def rows(self, tree: LabelTree) -> Floats:
        """One row: the payoffs."""
        row = _payoff_row(
            self.payoffs, tree, scale=self.scale, default=self.default, owner="payoffs"
        )
        return row[None, :]


@dataclass(frozen=True, repr=False)
class SubtreeIndicator(_PayoffRows):
    """Linear utility that is one exactly when the label lies below ``node``."""

    node: str = ""

    def __post_init__(self) -> None:
        """Check the node's name."""
        if not self.node:
            msg = "`node` must name a node or leaf; got ''."
            raise InvalidInputError(msg)
        super().__post_init__()

    @property
    def default_name(self) -> str:
        """``in_`` and the node."""
        return f"in_{self.node}"

    def rows(self, tree: LabelTree) -> Floats:
        """One row: the indicator."""
        return leaf_mask(tree, [self.node], "node").astype(np.float64)[None, :]


@dataclass(frozen=True, repr=False)
class ActionPayoff(_PayoffRows):
    """Payoff of the action with the largest predicted mean payoff.

    Parameters
    ----------
    name : str
    actions : mapping of action name to a mapping of node or leaf name to payoff
        The order of the actions breaks ties: the first one wins. An empty mapping is an action that
        pays the default whatever happens, such as doing nothing.
    default : float, default 0
        Payoff of leaves that an action does not mention.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"fraud": ["card", "login"], "fine": None})
    >>> block = hm.ActionPayoff(
    ...     "block", {"block": {"fraud": 1, "fine": -0.5}, "pass": {"fine": 1}}
    ... )
    >>> block.values([[0.4, 0.3, 0.3]], tree=tree)
    array([[ 1. ,  1. , -0.5]])
    """

    actions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    default: float = 0.0

    def __post_init__(self) -> None:
        """Check every action's payoffs."""
        super().__post_init__()
        if not self.actions:
            msg = f"`actions` must hold at least one action (utility {self.name!r})."
            raise InvalidInputError(msg)
        checked = {
            str(action): _check_payoffs(self.name, payoffs, scale=self.scale, action=str(action))
            for action, payoffs in self.actions.items()
        }
        object.__setattr__(self, "actions", checked)

    def rows(self, tree: LabelTree) -> Floats:
        """One row per action, in order."""
        return np.vstack(
            [
                _payoff_row(payoffs, tree, scale=self.scale, default=self.default, owner="actions")
                for payoffs in self.actions.values()
            ]
        )


@dataclass(frozen=True, repr=False)
class BinaryAction(_PayoffRows):
    """Payoff of acting or not, judged only on the ``active`` outcomes.

    Acting gains ``1 - threshold`` on outcomes that favour it and loses ``threshold`` on the other
    active ones; not acting is the mirror image. The model
    acts when the favouring outcomes' share of the active ones is at least ``threshold``; on a tie
    it acts.

    Parameters
    ----------
    name : str
    active, favours : list of node or leaf names
        D and S of the paper; ``favours`` must lie inside ``active``.
    threshold : float in [0, 1]

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"alive": ["well", "coma"], "died": None})
    >>> icu = hm.BinaryAction("icu", active=["alive"], favours=["coma"], threshold=0.25)
    >>> icu.values([[0.6, 0.2, 0.2]], tree=tree)
    array([[-0.25,  0.75,  0.  ]])
    """

    active: Sequence[str] = ()
    favours: Sequence[str] = ()
    threshold: float = 0.5

    def __post_init__(self) -> None:
        """Check names and threshold."""
        super().__post_init__()
        object.__setattr__(self, "active", frozen_names("active", self.active))
        object.__setattr__(self, "favours", frozen_names("favours", self.favours))
        if not (0 <= self.threshold <= 1):
            msg = (
                f"`threshold` must lie between 0 and 1; got {self.threshold!r} "
                f"(utility {self.name!r})."
            )
            raise InvalidInputError(msg)

    def rows(self, tree: LabelTree) -> Floats:
        """Act first, so that a tie acts; then its mirror image."""
        active = leaf_mask(tree, self.active, "active")
        favours = leaf_mask(tree, self.favours, "favours")
        outside = np.flatnonzero(favours & ~active)
        if outside.size:
            leaf = tree.leaves[outside[0]]
            msg = (
                f"`favours` must lie inside `active`; got {leaf!r} (utility {self.name!r}). "
                "Add it to `active` or drop it from `favours`."
            )
            raise InvalidInputError(msg)
        act = favours - self.threshold * active
        return np.vstack([act, -act])
