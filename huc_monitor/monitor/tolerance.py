"""Tolerance: the largest absolute moment that is accepted, candidate by candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from huc_monitor._common.settings import Name, Number, Section, renamed
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats


class ToleranceRule(Section):
    """Another tolerance where all the given names match; the one with most names wins.

    Parameters
    ----------
    utility : str, optional
        Name of a utility.

        One of the three names at least is given; those left out stand for any.
    node : str, optional
        Name of a node.
    subgroup : str, optional
        Name of a subgroup.
    value : float
        The tolerance there.
    """

    utility: Name | None = None
    node: Name | None = None
    subgroup: Name | None = None
    value: Annotated[Number, Field(ge=0)]

    @model_validator(mode="after")
    def _some_name(self) -> ToleranceRule:
        if self.n_names == 0:
            msg = "must name a utility, a node or a subgroup"
            raise ValueError(msg)
        return self

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


class Tolerance(Section):
    """The largest absolute moment that is accepted.

    The most specific override decides; of equally specific ones, the last.

    Parameters
    ----------
    value : float, default 0.02
        For every candidate.

        Overrides say otherwise for some.
    unit : {"utility", "money"}, default "utility"
        utility: in [-1, 1]; money: in each utility's own units.

        A utility's own units are its values times its `scale`; one without `units` needs an
        override that names it, in utility.
    relative_to : {"zero", "reference"}, default "zero"
        reference: how far a moment may move from the reference window's; the change test decides.

        "reference" accepts what the frozen reference window showed: the change test then decides on
        alerts, and the tolerance is how far a moment must have moved from the reference's, by more
        than chance. Without the test (`change.enabled: false`) it is added to the size of the
        reference's moment.
    overrides : sequence of ToleranceRule
        Other tolerances for utilities, nodes or subgroups.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    >>> pay = hm.Payoff("cost", {"lynx": -1}, units="EUR", scale=200)
    >>> rules = [ToleranceRule(value=10, node="cat")]
    >>> tolerance = Tolerance(value=2, overrides=rules, unit="money")
    >>> tolerance.values(tree, [pay], hm.Subgroups.whole())
    array([0.01, 0.05])
    """

    value: Annotated[Number, Field(ge=0)] = 0.02
    unit: Literal["utility", "money"] = "utility"
    relative_to: Literal["zero", "reference"] = "zero"
    overrides: Annotated[Sequence[ToleranceRule], AfterValidator(tuple)] = Field(
        default=(), validation_alias=renamed("overrides", "rules")
    )

    @model_validator(mode="before")
    @classmethod
    def _read_flags(cls, given: Any) -> Any:
        """Read the flags `in_units` and `relative`, which earlier versions wrote."""
        flags = {"in_units": ("unit", "money"), "relative": ("relative_to", "reference")}
        if not isinstance(given, Mapping) or not flags.keys() & given.keys():
            return given
        kept = {name: value for name, value in given.items() if name not in flags}
        return dict(flags[name] for name in flags if given.get(name)) | kept

    @property
    def relative(self) -> bool:
        """Whether the reference's moments are accepted."""
        return self.relative_to == "reference"

    def values(
        self,
        tree: LabelTree,
        utilities: Sequence[Utility],
        subgroups: Subgroups,
        *,
        default: float | None = None,
    ) -> Floats:
        """Return the tolerance of every candidate, in the order utility, subgroup, branch.

        `default`, in utility, takes the place of `value` where no rule says otherwise.
        """
        self._check_names(tree, utilities, subgroups)
        bare = self.say_without_units(utilities)
        if bare is not None:
            msg = f"`tolerance.unit` {bare}"
            raise InvalidInputError(msg)
        return np.array(
            [
                self._of(utility, subgroup, tree.branches[branch], default)
                for utility in utilities
                for subgroup in subgroups.names
                for branch in utility.relevant_branches(tree)
            ],
            dtype=np.float64,
        )

    def say_without_units(self, utilities: Sequence[Utility]) -> str | None:
        """Say which utilities an amount of money means nothing for; None if there is none."""
        if self.unit != "money":
            return None
        bare = [
            utility.name
            for utility in self._unnamed(utilities)
            if utility.units is None and utility.scale == 1.0
        ]
        if not bare:
            return None
        return (
            f"must be 'utility' where utilities have no `units`: {', '.join(bare)}. Give them "
            "`units` and `scale`, or a tolerance of their own in `tolerance.overrides`: "
            f"{{utility: {bare[0]}, value: 0.02}}."
        )

    def say_out_of_reach(self, tree: LabelTree, utilities: Sequence[Utility]) -> str | None:
        """Say of which utilities no moment can exceed the tolerance; None if there is none.

        A utility that an override names is left out: a large value there switches it off.
        """
        groups = ["all", *(rule.subgroup for rule in self.overrides if rule.subgroup is not None)]
        found = [
            utility.name
            for utility in self._unnamed(utilities)
            if all(
                self._of(utility, group, node, None) >= spread
                for node, spread in zip(tree.branches, utility.spreads(tree), strict=True)
                for group in groups
                if spread > 0
            )
        ]
        if not found:
            return None
        return (
            f"No moment of {', '.join(found)} can exceed the tolerance of {self.value:g}"
            f"{' in money' if self.unit == 'money' else ''}, so no window is ever beyond it: "
            "lower tolerance.value; a utility that is not to be watched is named in "
            "tolerance.overrides"
        )

    def _unnamed(self, utilities: Sequence[Utility]) -> list[Utility]:
        named = {rule.utility for rule in self.overrides}
        return [utility for utility in utilities if utility.name not in named]

    def _of(self, utility: Utility, subgroup: str, node: str, default: float | None) -> float:
        chosen = None
        for rule in self.overrides:
            covered = rule.covers(utility, subgroup, node)
            if covered and (chosen is None or rule.n_names >= chosen.n_names):
                chosen = rule
        if chosen is None and default is not None:
            return default
        value = self.value if chosen is None else chosen.value
        return value / utility.scale if self.unit == "money" else value

    def _check_names(
        self, tree: LabelTree, utilities: Sequence[Utility], subgroups: Subgroups
    ) -> None:
        known = {
            "utility": [utility.name for utility in utilities],
            "subgroup": list(subgroups.names),
            "node": list(tree.branches),
        }
        for position, rule in enumerate(self.overrides):
            for field, names in known.items():
                name = getattr(rule, field)
                if name is not None and name not in names:
                    msg = (
                        f"`tolerance.overrides[{position}].{field}` must be a known name; got "
                        f"{name!r}. {did_you_mean(name, names)}"
                    )
                    raise UnknownNameError(msg)


def ignored(values: Floats, candidates: Sequence[tuple[str, str, str]]) -> set[tuple[str, str]]:
    """Return what no test is to speak of: the tolerance of all its candidates is 1 or more.

    As (kind, name) of a drift finding: the branch, the scores of a utility, or a subgroup.

    Examples
    --------
    >>> sorted(ignored(np.array([1.0, 0.1]), [("u", "all", "root"), ("u", "all", "cat")]))
    [('branch', 'root')]
    """
    kinds = ("scores", "subgroup", "branch")
    named = [set(zip(kinds, candidate, strict=True)) for candidate in candidates]
    heard = [names for names, value in zip(named, values, strict=True) if value < 1]
    return set().union(*named) - set().union(*heard)


def accepted(values: Floats, reference: Floats | None) -> Floats:
    """Return the size that is accepted of each moment, given the reference's moments, if any.

    Of a model that is too low on one range and too high on another, chance picks the sign of the
    largest moment, in the reference as in a window: the sign says nothing.

    Examples
    --------
    >>> accepted(np.array([0.02, 0.02]), np.array([-0.03, 0.01]))
    array([0.05, 0.03])
    """
    return values if reference is None else values + np.abs(reference)
