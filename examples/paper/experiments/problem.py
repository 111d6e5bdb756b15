"""A data set prepared for the protocol: what is predicted, from what, for whom, how it is split."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    import huc_monitor as hm

MASTER_SEED = 20260907
BASES = ("LR", "GNB", "DT", "RF", "XGB", "MLP")


@dataclass(frozen=True)
class Split:
    """Row numbers of every part.

    The scaling is fitted on ``initial`` and its strength chosen on ``select``; boosting is fitted
    on ``correct`` and its prefix chosen on ``validate``. Only MASSIVE tells the pairs apart.
    """

    train: np.ndarray[Any, Any]
    initial: np.ndarray[Any, Any]
    correct: np.ndarray[Any, Any]
    select: np.ndarray[Any, Any]
    validate: np.ndarray[Any, Any]
    test: np.ndarray[Any, Any]

    @classmethod
    def of_four(cls, train: Any, calibration: Any, validation: Any, test: Any) -> Split:
        """Use one calibration and one validation set for both stages."""
        return cls(train, calibration, calibration, validation, validation, test)


@dataclass(frozen=True)
class Problem:
    """Everything the protocol needs to know of a data set.

    ``inputs(rows, train)`` gives the classifier's input for some rows, with every statistic it
    needs (medians, scales, vocabularies) taken from the training rows.
    """

    name: str
    tree: hm.LabelTree
    utilities: list[hm.Utility]
    labels: np.ndarray[Any, Any]
    attributes: pd.DataFrame
    inputs: Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any]], Any]
    split: Callable[[int], Split]
    subgroups: Callable[[Split], hm.Subgroups]
    bases: tuple[str, ...] = BASES
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def stratified_parts(
    labels: np.ndarray[Any, Any], sizes: list[int], seed: int
) -> list[np.ndarray[Any, Any]]:
    """Cut all rows into parts of given sizes that share every class as evenly as can be."""
    from sklearn.model_selection import train_test_split

    rest = np.arange(labels.size)
    parts = []
    for place, size in enumerate(sizes[:-1]):
        taken, rest = train_test_split(
            rest, train_size=size, stratify=labels[rest], random_state=seed * 100 + place
        )
        parts.append(np.sort(taken))
    return [*parts, np.sort(rest)]


def shares(n: int, proportions: tuple[float, ...] = (0.45, 0.20, 0.15, 0.20)) -> list[int]:
    """Whole sizes of the four parts."""
    edges = np.round(np.cumsum([0.0, *proportions]) * n).astype(int)
    return np.diff(edges).tolist()
