"""Tolerance: the largest absolute moment that is accepted, candidate by candidate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from huc_monitor.subgroups import Subgroups
    from huc_monitor.tree import LabelTree
    from huc_monitor.utilities import Utility
    from huc_monitor.utilities.program import Floats

__all__ = ["Tolerance", "ToleranceRule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceRule:
    """A tolerance for some candidates: those that have all the given names.

    Attributes
    ----------
    value : float
    utility, subgroup, node : str or None
        None stands for any.
    """

    value: float
    utility: str | None = None
    subgroup: str | None = None
    node: str | None = None

    def __post_init__(self) -> None:
        _check_value(self.value)

    @property
    def n_names(self) -> int:
        """How specific the rule is."""
        return sum(name is not None for name in (self.utility, self.subgroup, self.node))

    def covers(self, utility: Utility, subgroup: str, node: str) -> bool:
        """Whether the rule speaks of a candidate."""
        return (
            self.utility in {None, utility.name}
            and self.subgroup in {None, subgroup}
            and self.node in {None, node}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """What is accepted: one number, exceptions to it, and whether the reference counts as fine.

    The most specific rule decides; of equally specific ones, the last.

    Parameters
    ----------
    value : float, default 0.02
        Accepted wherever no rule says otherwise.
    rules : sequence of ToleranceRule
    in_units : bool, default False
        Values are in each utility's own units (times its `scale`), not in [-1, 1].
    relative : bool, default False
        Accept what the frozen reference window showed: the tolerance is then a distance from the
        reference moment. A moment on the other side of zero has no such allowance.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    >>> pay = hm.Payoff("cost", {"lynx": -1}, units="EUR", scale=200)
    >>> rules = [ToleranceRule(value=10, node="cat")]
    >>> Tolerance(value=2, rules=rules, in_units=True).values(tree, [pay], hm.Subgroups.whole())
    array([0.01, 0.05])
    """

    value: float = 0.02
    rules: Sequence[ToleranceRule] = ()
    in_units: bool = False
    relative: bool = False

    def __post_init__(self) -> None:
        _check_value(self.value)
        object.__setattr__(self, "rules", tuple(self.rules))

    def values(self, tree: LabelTree, utilities: Sequence[Utility], subgroups: Subgroups) -> Floats:
        """Return the tolerance of every candidate, in the order utility, subgroup, branch."""
        self._check_names(tree, utilities, subgroups)
        return np.array(
            [
                self._of(utility, subgroup, tree.branches[branch])
                for utility in utilities
                for subgroup in subgroups.names
                for branch in utility.relevant_branches(tree)
            ],
            dtype=np.float64,
        )

    def _of(self, utility: Utility, subgroup: str, node: str) -> float:
        chosen = None
        for rule in self.rules:
            covered = rule.covers(utility, subgroup, node)
            if covered and (chosen is None or rule.n_names >= chosen.n_names):
                chosen = rule
        value = self.value if chosen is None else chosen.value
        return value / utility.scale if self.in_units else value

    def _check_names(
        self, tree: LabelTree, utilities: Sequence[Utility], subgroups: Subgroups
    ) -> None:
        known = {
            "utility": [utility.name for utility in utilities],
            "subgroup": list(subgroups.names),
            "node": list(tree.branches),
        }
        for position, rule in enumerate(self.rules):
            for field, names in known.items():
                name = getattr(rule, field)
                if name is not None and name not in names:
                    msg = (
                        f"`tolerance.rules[{position}].{field}` must be a known name; got "
                        f"{name!r}. {did_you_mean(name, names)}"
                    )
                    raise UnknownNameError(msg)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form."""
        names = ("value", "utility", "subgroup", "node")
        return {
            "value": self.value,
            "rules": [{name: getattr(rule, name) for name in names} for rule in self.rules],
            "in_units": self.in_units,
            "relative": self.relative,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Tolerance:
        """Read what `to_dict` wrote."""
        rules = [ToleranceRule(**rule) for rule in data.get("rules", ())]
        flags = {name: bool(data.get(name, False)) for name in ("in_units", "relative")}
        return cls(value=data["value"], rules=rules, **flags)


def accepted(values: Floats, moments: Floats, reference: Floats | None) -> Floats:
    """Return what is accepted of each moment, given the reference's moments, if any.

    Examples
    --------
    >>> values, reference = np.array([0.02, 0.02]), np.array([-0.03, -0.03])
    >>> accepted(values, np.array([-0.04, 0.04]), reference)
    array([0.05, 0.02])
    """
    if reference is None:
        return values
    return np.where(moments * reference > 0, values + np.abs(reference), values)


def _check_value(value: object) -> None:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:  # type: ignore[operator]
        msg = f"`tolerance` must be a number of at least 0; got {value!r}."
        raise InvalidInputError(msg)
