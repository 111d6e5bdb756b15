"""What travels with a saved model: stages compiled to plain lists that the runtime reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from huc_monitor.errors import InvalidInputError
from huc_monitor.recalibration import Scaling
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import ActionPayoff, BinaryAction, CustomUtility

if TYPE_CHECKING:
    from collections.abc import Sequence

    from huc_monitor.utilities import Utility

SCHEMA_VERSION = 1
EVERYONE = "all"


def stage_of(recalibrator: Any, tree: LabelTree | None = None) -> dict[str, Any]:
    """Compile a fitted recalibrator, `HUCBoost` or a scaling, to one stage of a payload.

    A scaling knows its leaves and no tree; `tree` says what decisions are about.
    """
    if isinstance(recalibrator, Scaling):
        plain = recalibrator.to_dict()
        own = tree if tree is not None else LabelTree.flat(plain["leaves"])
        return _stage(plain, plain, own, (), Subgroups.whole(), ())
    for attribute in ("updates_", "tree", "utilities", "to_dict"):
        if not hasattr(recalibrator, attribute):
            msg = (
                "`recalibrator` must be a fitted HUCBoost or scaling; got "
                f"{type(recalibrator).__name__} without `{attribute}`. Call fit() first."
            )
            raise InvalidInputError(msg)
    plain = recalibrator.to_dict()
    return _stage(
        plain,
        plain["initial"],
        recalibrator.tree,
        recalibrator.utilities,
        recalibrator.subgroups or Subgroups.whole(),
        recalibrator.updates_,
    )


def _stage(
    plain: dict[str, Any],
    scaling: dict[str, Any] | None,
    tree: LabelTree,
    utilities: Sequence[Utility],
    subgroups: Subgroups,
    updates: Sequence[Any],
) -> dict[str, Any]:
    utility_at = {utility.name: place for place, utility in enumerate(utilities)}
    used = list(dict.fromkeys(update.subgroup for update in updates))
    return {
        "recalibrator": plain,
        "interior": plain.get("settings", {}).get("interior", 0.0),
        "scaling": scaling,
        "tree": _tree(tree),
        "utilities": [_utility(utility, tree) for utility in utilities],
        "groups": _groups(subgroups, used),
        "updates": [
            {
                "utility": utility_at[update.utility],
                "group": used.index(update.subgroup),
                "low": update.interval_low,
                "high": update.interval_high,
                "node": -1 if update.node is None else tree.branch_index(update.node),
                "step": update.step,
            }
            for update in updates
        ],
    }


def _tree(tree: LabelTree) -> dict[str, Any]:
    names = ("start", "stop", "child_ptr", "child_code")
    arrays = {name: getattr(tree.arrays, name).tolist() for name in names}
    return {"leaves": list(tree.leaves), "branches": list(tree.branches), **arrays}


def _utility(utility: Utility, tree: LabelTree) -> dict[str, Any]:
    if isinstance(utility, CustomUtility):
        msg = (
            f"`recalibrator` must not use custom utilities to be saved with a model; got "
            f"{utility.name!r}. A model must run where your function is not defined: write it as "
            "an ActionPayoff or a RankPayoff, or refit without it."
        )
        raise InvalidInputError(msg)
    program = utility.compile(tree)
    return {
        "name": utility.name,
        "kind": int(program.kind),
        "ints": program.ints.tolist(),
        "floats": program.floats.tolist(),
        "payoff": program.payoff.tolist(),
        "actions": _actions(utility),
    }


def _actions(utility: Utility) -> list[str]:
    if isinstance(utility, ActionPayoff):
        return [str(name) for name in utility.actions]
    return ["act", "do not act"] if isinstance(utility, BinaryAction) else []


def _groups(subgroups: Subgroups, used: Sequence[str]) -> dict[str, Any]:
    plain = subgroups.to_dict()
    rules = {entry["name"]: entry["rule"] for entry in plain["subgroups"]}
    return {
        "names": list(used),
        "rules": [None if name == EVERYONE else rules[name] for name in used],
        "columns": plain["columns"],
    }
