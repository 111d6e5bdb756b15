"""A recalibrator as `runtime` applies it: its JSON form, and the tables compiled for its tree."""

from __future__ import annotations

from typing import Any

from huc_monitor.errors import InvalidInputError
from huc_monitor.recalibration._scalings import Scaling
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import ActionPayoff, BinaryAction, CustomUtility, Utility


def stage_of(recalibrator: Any, tree: LabelTree | None = None) -> dict[str, Any]:
    """Write a fitted recalibrator, `HUCBoost` or a scaling, as `runtime.stage.Stage` reads it.

    A scaling knows its leaves and no tree; `tree` says what decisions are about.
    """
    if isinstance(recalibrator, Scaling):
        plain = recalibrator.to_dict()
        own = tree if tree is not None else LabelTree.flat(plain["leaves"])
        return {"recalibrator": plain, "tree": tree_tables(own), "utilities": []}
    for attribute in ("updates_", "tree", "utilities", "to_dict"):
        if not hasattr(recalibrator, attribute):
            msg = (
                "`recalibrator` must be a fitted HUCBoost or scaling; got "
                f"{type(recalibrator).__name__} without `{attribute}`. Call fit() first."
            )
            raise InvalidInputError(msg)
    return {
        "recalibrator": recalibrator.to_dict(),
        "tree": tree_tables(recalibrator.tree),
        "utilities": [_portable(utility, recalibrator.tree) for utility in recalibrator.utilities],
    }


def tree_tables(tree: LabelTree) -> dict[str, Any]:
    """Write the arrays of a tree that replay reads."""
    names = ("start", "stop", "child_ptr", "child_code")
    arrays = {name: getattr(tree.arrays, name).tolist() for name in names}
    return {"leaves": list(tree.leaves), "branches": list(tree.branches), **arrays}


def utility_tables(utility: Utility, tree: LabelTree) -> dict[str, Any]:
    """Write the program of a utility that replay reads; a custom utility stays a function."""
    program = utility.compile(tree)
    return {
        "name": utility.name,
        "kind": int(program.kind),
        "ints": program.ints.tolist(),
        "floats": program.floats.tolist(),
        "payoff": program.payoff.tolist(),
        "actions": _actions(utility),
    }


def _portable(utility: Utility, tree: LabelTree) -> dict[str, Any]:
    if isinstance(utility, CustomUtility):
        msg = (
            f"`recalibrator` must not use custom utilities to be saved with a model; got "
            f"{utility.name!r}. A model must run where your function is not defined: write it as "
            "an ActionPayoff or a RankPayoff, or refit without it."
        )
        raise InvalidInputError(msg)
    return utility_tables(utility, tree)


def _actions(utility: Utility) -> list[str]:
    if isinstance(utility, ActionPayoff):
        return [str(name) for name in utility.actions]
    return ["act", "do not act"] if isinstance(utility, BinaryAction) else []
