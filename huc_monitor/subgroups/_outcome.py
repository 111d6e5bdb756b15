"""The label describes no case: groups made by what happened look miscalibrated, all of them.

Among the cases that turned out to be refunds, "refund" happened more often than any model said.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pandas as pd

from huc_monitor._common.safe_text import quoted
from huc_monitor.tree import LabelTree
from huc_monitor.tree.labels import LabelEncoder
from huc_monitor.utilities.program import Ints

_ROWS: Final = 2_000
_FEWEST: Final = 50  # that do not go with the labels by chance
_WHY: Final = "grouped by what happened, even a perfect model looks miscalibrated"


def no_label(name: str) -> str:
    """Say, after the name of a setting, why a column that is the label is refused there."""
    return (
        f"must be known when the model answers; got the label {name!r}: {_WHY}. The predicted "
        "class may be used instead."
    )


def names_nodes(values: pd.Series[Any], encoder: LabelEncoder) -> bool:
    """Say whether every text of a column is a node of the tree."""
    texts = values.dropna()
    named = len(texts) > 0 and isinstance(texts.iloc[0], str)
    return named and bool((encoder.find(texts.astype(object)) >= 0).all())


def doubt_outcome(
    features: Any,
    columns: Iterable[str],
    codes: Any,
    tree: LabelTree,
) -> tuple[str, ...]:
    """Say which columns of a frame or mapping may be the label, by their first rows.

    Examples
    --------
    >>> frame = pd.DataFrame({"seen": ["cat", "dog"], "sex": ["f", "f"]})
    >>> tree = LabelTree.flat(["cat", "dog"])
    >>> doubt_outcome(frame, ["sex"], [0, 1], tree)
    ()
    >>> doubt_outcome(frame, frame, [0, 1], tree)[0][:55]
    "Is the column 'seen' (it holds names of the tree) the l"
    """
    encoder, labels = tree.label_encoder(), np.asarray(codes)[:_ROWS]
    doubted = []
    for name in columns:
        column = features[name]
        first = column.iloc[:_ROWS] if isinstance(column, pd.Series) else column[:_ROWS]
        try:
            found, distinct = pd.factorize(np.asarray(first))
        except TypeError:  # lists
            continue
        if _agrees(found, len(distinct), labels):
            doubted.append(f"{quoted(name)} (it goes with the labels)")
        elif names_nodes(pd.Series(distinct), encoder):
            doubted.append(f"{quoted(name)} (it holds names of the tree)")
    if not doubted:
        return ()
    text = f"Is the column {' or '.join(doubted)} the label? Then leave it out of the subgroups: "
    return (f"{text}{_WHY}. The predicted class is fine.",)


def _agrees(found: Ints, n_distinct: int, labels: Ints) -> bool:
    """Whether every value has one label, and every label one value."""
    known = found >= 0
    if len(found) < _FEWEST:
        return False
    pairs = np.unique(np.stack([found[known], labels[known]]), axis=1)
    return 2 <= n_distinct == pairs.shape[1] == len(np.unique(pairs[1]))
