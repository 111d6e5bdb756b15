"""Ids that mean the same and are written differently in two tables."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pandas as pd

HARDLY: Final = 0.01  # a share of ids that meet; no more are as good as none
# What to take away; None: the difference of upper and lower case.
_DIFFERENCES: Final[dict[str, str | None]] = {
    "surrounding spaces": r"^\s+|\s+$",
    "'.0' at the end": r"\.0$",
    "leading zeros": r"^0+(?=.)",
    "upper and lower case": None,
}


def find_difference(mine: pd.Series[Any], theirs: pd.Series[Any]) -> tuple[str, str, str] | None:
    """Find the simple difference without which ids meet: an id as both write it, and its name.

    Examples
    --------
    >>> import pandas as pd
    >>> find_difference(pd.Series(["0007", "0012"]), pd.Series([12, 15]))
    ('0012', '12', 'leading zeros')
    >>> find_difference(pd.Series(["a", "b"]), pd.Series(["c"])) is None
    True
    """
    texts = tuple(ids.dropna().drop_duplicates().astype(str) for ids in (mine, theirs))
    for n in range(1, len(_DIFFERENCES) + 1):
        for names in itertools.combinations(_DIFFERENCES, n):
            left, right = (_without(names, ids) for ids in texts)
            met = left.isin(right)
            if met.mean() > HARDLY:
                place = int(met.to_numpy().argmax())
                other = texts[1][right == left.iloc[place]].iloc[0]
                return texts[0].iloc[place], other, " and ".join(names)
    return None


def _without(names: tuple[str, ...], ids: pd.Series[Any]) -> pd.Series[Any]:
    for name in names:
        pattern = _DIFFERENCES[name]
        ids = ids.str.lower() if pattern is None else ids.str.replace(pattern, "", regex=True)
    return ids
