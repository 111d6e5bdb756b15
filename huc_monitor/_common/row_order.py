"""Rows of several pandas objects that are matched by position although their indexes disagree."""

from __future__ import annotations

import warnings
from typing import Any

import pandas as pd

from huc_monitor.errors import HUCWarning, InvalidInputError

_PANDAS = (pd.DataFrame, pd.Series)


def check_row_order(**inputs: Any) -> None:
    """Refuse inputs whose indexes hold the same rows in different orders.

    Rows are matched by position. Where one of the indexes is merely the default one, nobody can
    tell whether that is meant: it is a warning.

    Examples
    --------
    >>> p = pd.DataFrame({"a": [0.9, 0.2], "b": [0.1, 0.8]}, index=["x", "y"])
    >>> check_row_order(probabilities=p, labels=pd.Series(["a", "b"], index=["x", "y"]))
    >>> check_row_order(probabilities=p, labels=pd.Series(["b", "a"], index=["y", "x"]))
    Traceback (most recent call last):
        ...
    huc_monitor.errors.InvalidInputError: `labels` must be in the order of `probabilities`; its \
index holds the same rows in another order. Use labels.loc[probabilities.index], or \
labels.to_numpy() if rows match by position.
    """
    known = {name: value.index for name, value in inputs.items() if isinstance(value, _PANDAS)}
    if len(known) < 2:
        return
    (first, index), *others = known.items()
    for name, other in others:
        if len(other) != len(index) or other.equals(index) or not _is_permuted(other, index):
            continue
        rule = f"`{name}` must be in the order of `{first}`; its index holds the same rows in "
        # Features are known by their columns, so they stay a table.
        as_given = f"set_axis({first}.index)" if name == "features" else "to_numpy()"
        remedy = (
            f"another order. Use {name}.loc[{first}.index], or {name}.{as_given} if rows match by "
            "position."
        )
        if not isinstance(index, pd.RangeIndex) and not isinstance(other, pd.RangeIndex):
            raise InvalidInputError(rule + remedy)
        warnings.warn(rule + remedy, HUCWarning, stacklevel=3)


def _is_permuted(one: pd.Index[Any], other: pd.Index[Any]) -> bool:
    return bool(one.is_unique and other.is_unique and one.isin(other).all())
