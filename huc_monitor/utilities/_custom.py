"""A utility of the user's own, as a vectorised function of the predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.tree import LabelTree
from huc_monitor.utilities._base import Utility, frozen_names
from huc_monitor.utilities.program import DENSE, Floats, Program, program

_FUNCTIONS: dict[str, Callable[[Any], Any]] = {}


@dataclass(frozen=True, repr=False)
class CustomUtility(Utility):
    """Utility computed by ``function(probabilities) -> values``, both of shape (n, K).

    Columns follow ``tree.leaves``. Values must lie in [-1, 1] and each row may depend only on its
    own prediction. The JSON form carries the name alone: a program that reads it back calls
    ``CustomUtility.register(name, function)`` first, so that no file can name code to run.

    Parameters
    ----------
    name : str
    function : callable, optional
        Registered under ``name``; left out when it is registered already.
    relevant : list of branch names, optional
        Branches that can matter; all of them when left out.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["a", "b"])
    >>> hm.CustomUtility("brier", lambda p: 2 * p - (p**2).sum(1, keepdims=True)).values(
    ...     [[0.5, 0.5]], tree=tree
    ... )
    array([[0.5, 0.5]])
    """

    name: str = ""
    function: Callable[[Any], Any] | None = None
    relevant: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Register the function, or find it."""
        super().__post_init__()
        if self.relevant is not None:
            object.__setattr__(self, "relevant", frozen_names("relevant", self.relevant))
        if self.function is not None:
            self.register(self.name, self.function)
        elif self.name in _FUNCTIONS:
            object.__setattr__(self, "function", _FUNCTIONS[self.name])
        else:
            known = ", ".join(sorted(_FUNCTIONS)) or "none yet"
            msg = (
                f"`function` of the custom utility {self.name!r} is not registered ({known}). "
                f"Call CustomUtility.register({self.name!r}, function) first."
            )
            raise UnknownNameError(msg)

    @staticmethod
    def register(name: str, function: Callable[[Any], Any]) -> None:
        """Make a function available to JSON forms under a name."""
        if not callable(function):
            msg = f"`function` must be callable; got {function!r} (utility {name!r})."
            raise InvalidInputError(msg)
        _FUNCTIONS[name] = function

    def to_dict(self) -> dict[str, Any]:
        """JSON form without the function."""
        return {key: value for key, value in super().to_dict().items() if key != "function"}

    def compile(self, tree: LabelTree) -> Program:  # noqa: ARG002
        """Compile to a program that reads values handed in per row."""
        return program(DENSE)

    def dense_values(self, probabilities: Floats, tree: LabelTree) -> Floats:
        """Call the function and check what it gives."""
        assert self.function is not None  # noqa: S101 - set in __post_init__
        values = np.asarray(self.function(probabilities.copy()), dtype=np.float64)
        if values.shape != probabilities.shape:
            msg = (
                f"`function` of utility {self.name!r} must return shape {probabilities.shape}; "
                f"got {values.shape}."
            )
            raise InvalidInputError(msg)
        bad = np.argwhere(~(np.abs(values) <= 1))
        if bad.size:
            row, column = (int(index) for index in bad[0])
            msg = (
                f"`function` of utility {self.name!r} must return values between -1 and 1; got "
                f"{values[row, column]} (row {row}, column {tree.leaves[column]!r}). "
                "Divide by the largest absolute value and set `scale` to it."
            )
            raise InvalidInputError(msg)
        return np.ascontiguousarray(values)

    def spreads(self, tree: LabelTree) -> Floats:
        """Two, the widest range possible, at every branch that may matter."""
        spreads = np.zeros(tree.arrays.n_branches)
        if self.relevant is None:
            spreads[:] = 2.0
        else:
            spreads[[tree.branch_index(name) for name in self.relevant]] = 2.0
        return spreads
