"""The contract every utility keeps: a name, a JSON form, relevant branches, and a program."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.tree import LabelTree
from huc_monitor.utilities.program import Floats, Ints, Program

_FAMILIES: dict[str, type[Utility]] = {}


@dataclass(frozen=True, kw_only=True)
class Utility(ABC):
    """Value in [-1, 1] of using prediction p when label y happens.

    A utility knows no data. It is compiled for a tree, and then read by the audit. One unit of
    utility is worth ``scale`` of ``units``: with ``units="EUR", scale=200`` a moment of 0.01 is
    reported as 2 EUR per prediction as well.

    Ties are always broken by order: the first action, the first child, the first leaf.
    """

    name: str = ""
    units: str | None = None
    scale: float = 1.0

    family: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Register the family under its class name, which is its ``type`` in JSON."""
        cls.family = cls.__name__
        _FAMILIES[cls.__name__] = cls

    def __post_init__(self) -> None:
        """Name the utility unless told, and reject a scale that could not turn it into units."""
        if not isinstance(self.name, str) or not (self.name or self.default_name):
            msg = f"`name` must be a non-empty string; got {self.name!r} ({self.family})."
            raise InvalidInputError(msg)
        object.__setattr__(self, "name", self.name or self.default_name)
        if not self.name.isprintable() and any("\ud800" <= c <= "\udfff" for c in self.name):
            msg = f"`name` must be text that UTF-8 can hold; got {self.name!r}. Rename the utility."
            raise InvalidInputError(msg)
        if not (math.isfinite(self.scale) and self.scale > 0):
            msg = f"`scale` must be a positive number; got {self.scale!r} (utility {self.name!r})."
            raise InvalidInputError(msg)

    @property
    def default_name(self) -> str:
        """Stable name of a family whose settings say it all; empty where the user must choose."""
        return ""

    @abstractmethod
    def compile(self, tree: LabelTree) -> Program:
        """Return the arrays that the kernels run for this utility on `tree`."""

    @abstractmethod
    def spreads(self, tree: LabelTree) -> Floats:
        """Bound on the absolute contribution of every branch, zero where it is irrelevant.

        A contribution is a child mean minus its parent's mean, so it cannot exceed the largest
        difference between two utility values that one prediction can give to leaves below the
        branch. The branch is relevant exactly when that
        difference can be positive.
        """

    def relevant_branches(self, tree: LabelTree) -> Ints:
        """Return the branches whose outcome can change the mean utility, by structure alone."""
        return np.flatnonzero(self.spreads(tree) > 0).astype(np.int64)

    def dense_values(self, probabilities: Floats, tree: LabelTree) -> Floats | None:  # noqa: ARG002
        """Values u(p, y) for utilities that no kernel knows; None for all others."""
        return None

    def values(self, probabilities: Any, *, tree: LabelTree) -> Floats:
        """Return the utility of every leaf for every prediction, shape (n, K).

        Examples
        --------
        >>> import huc_monitor as hm
        >>> tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
        >>> hm.LevelCorrectness(level=1).values([[0.3, 0.3, 0.4]], tree=tree)
        array([[1., 1., 0.]])
        """
        from huc_monitor.audit.decomposition import evaluate_utility

        return evaluate_utility(self, probabilities, tree=tree)

    def to_dict(self) -> dict[str, Any]:
        """JSON form; `Utility.from_dict` reads it back."""
        fields = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        given = {key: value for key, value in fields.items() if value is not None}
        return {"type": self.family, **given}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Utility:
        """Build the utility that a JSON form describes.

        Examples
        --------
        >>> import huc_monitor as hm
        >>> hm.Utility.from_dict({"type": "TopK", "k": 3})
        TopK(k=3)
        """
        kind = data.get("type")
        if kind not in _FAMILIES:
            known = ", ".join(sorted(name for name in _FAMILIES if not name.startswith("_")))
            msg = f"`type` must be a utility family; got {kind!r}. Choose one of: {known}."
            raise UnknownNameError(msg)
        cls = _FAMILIES[kind]
        allowed = {f.name for f in dataclasses.fields(cls)}
        given = {key: value for key, value in data.items() if key != "type"}
        unknown = sorted(set(given) - allowed)
        if unknown:
            msg = (
                f"`{unknown[0]}` is not a setting of {kind}; "
                f"choose among: {', '.join(sorted(allowed))}."
            )
            raise InvalidInputError(msg)
        try:
            return cls(**given)
        except TypeError as error:
            required = [
                f.name
                for f in dataclasses.fields(cls)
                if f.default is dataclasses.MISSING and f.name not in given
            ]
            msg = f"`{kind}` needs the settings {', '.join(required)}; got {sorted(given)}."
            raise InvalidInputError(msg) from error

    def __repr__(self) -> str:
        """Show the settings that differ from their defaults."""
        shown = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) not in (f.default, self.default_name)
        ]
        return f"{self.family}({', '.join(shown)})"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def frozen_names(argument: str, names: Sequence[str] | str) -> tuple[str, ...]:
    """Normalise a collection of names; a lone string is almost always a mistake."""
    if isinstance(names, str):
        msg = f"`{argument}` must be a list of names; got the string {names!r}. Write [{names!r}]."
        raise InvalidInputError(msg)
    return tuple(str(name) for name in names)


def leaf_mask(tree: LabelTree, names: Sequence[str], argument: str) -> np.ndarray[Any, Any]:
    """Boolean vector over leaves that lie below any of the named nodes or leaves."""
    mask = np.zeros(tree.n_leaves, dtype=bool)
    for name in names:
        try:
            below = tree.leaves_under(name)
        except UnknownNameError as error:
            msg = f"`{argument}` must name nodes or leaves of the tree: {error}"
            raise UnknownNameError(msg) from error
        for leaf in below:
            mask[tree.leaf_index(leaf)] = True
    return mask


def spread_of_rows(tree: LabelTree, rows: Floats) -> Floats:
    """Largest range of any payoff row over the leaves below each branch."""
    arrays = tree.arrays
    low = np.full((rows.shape[0], arrays.n_branches), np.inf)
    high = np.full((rows.shape[0], arrays.n_branches), -np.inf)
    for v in range(arrays.n_branches - 1, -1, -1):
        for code in arrays.child_code[arrays.child_ptr[v] : arrays.child_ptr[v + 1]]:
            below_low = low[:, code] if code >= 0 else rows[:, -1 - code]
            below_high = high[:, code] if code >= 0 else rows[:, -1 - code]
            low[:, v] = np.minimum(low[:, v], below_low)
            high[:, v] = np.maximum(high[:, v], below_high)
    if rows.shape[0] == 0 or arrays.n_branches == 0:
        return np.zeros(arrays.n_branches)
    return np.asarray((high - low).max(axis=0), dtype=np.float64)
