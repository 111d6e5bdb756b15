"""The label describes no case: groups made by what happened look miscalibrated, all of them.

Among the cases that turned out to be refunds, "refund" happened more often than any model said.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pandas as pd

from huc_monitor._common.safe_text import quoted
from huc_monitor.tree import LabelTree
from huc_monitor.tree.labels import LabelEncoder
from huc_monitor.utilities.program import Ints

_ROWS: Final = 1_000
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
    return _are_nodes(values.dropna().to_numpy(dtype=object), encoder)


def _are_nodes(values: Any, encoder: LabelEncoder) -> bool:
    named = len(values) > 0 and isinstance(values[0], str)
    return named and bool((encoder.find(values) >= 0).all())


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
    labels, doubted = np.asarray(codes)[:_ROWS], []
    for name in columns:
        column = features[name]
        values = column.array if isinstance(column, pd.Series) else np.asarray(column)
        if not _may_be_outcome(values[:_FEWEST], labels, tree):
            continue
        try:
            found, distinct = pd.factorize(np.asarray(values[:_ROWS]))
        except TypeError:  # lists
            continue
        if _agrees(found, len(distinct), labels):
            doubted.append(f"{quoted(name)} (it goes with the labels)")
        elif _are_nodes(distinct, tree.label_encoder()):
            doubted.append(f"{quoted(name)} (it holds names of the tree)")
    if not doubted:
        return ()
    text = f"Is the column {' or '.join(doubted)} the label? Then leave it out of the subgroups: "
    return (f"{text}{_WHY}. The predicted class is fine.",)


def _may_be_outcome(values: Any, labels: Ints, tree: LabelTree) -> bool:
    """Rule most columns out by their first values, which costs next to nothing."""
    items, known = values.tolist(), ~pd.isna(values)
    text = next((item for item in items if isinstance(item, str)), None)
    if text is not None and ("/" in text or text in tree.leaves or text in tree.nodes):
        return True
    label_of: dict[str, int] = {}
    pairs = zip(map(repr, items), labels[: len(items)].tolist(), strict=True)
    told = itertools.compress(pairs, known)
    return all(label_of.setdefault(item, label) == label for item, label in told)


def _agrees(found: Ints, n_distinct: int, labels: Ints) -> bool:
    """Whether every value has one label, and every label one value."""
    known = found >= 0
    found, labels = found[known], labels[known]
    if len(found) < _FEWEST or n_distinct < 2:
        return False
    label_of = np.empty(n_distinct, dtype=labels.dtype)
    label_of[found] = labels
    return bool((label_of[found] == labels).all()) and len(np.unique(label_of)) == n_distinct
