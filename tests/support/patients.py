"""A small frame of every kind of column, and the subgroups its rows are in."""

from __future__ import annotations

import numpy as np
import pandas as pd

from huc_monitor.subgroups import Subgroups


def patients() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": [64.9, 65.0, 79.9, 80.0, np.nan],
            "sex": ["female", "male", "female", None, "male"],
            "icu": [True, False, True, True, False],
            "risk": [-1.0, 0.0, 0.5, 1.0, np.nan],
            "admitted": pd.to_datetime(
                ["2023-12-31", "2024-01-01", "2024-06-30", "2024-07-01", None]
            ),
        }
    )


def members(groups: Subgroups, features, n: int | None = None) -> dict[str, list[float]]:
    weights = groups.weights(features, len(features) if n is None else n)
    return {name: w.tolist() for name, w in zip(groups.names, weights, strict=True)}


def one(frame, predicate) -> list[int]:
    """Rows of a single explicit predicate."""
    groups = Subgroups.from_reference(frame, predicates={"it": predicate})
    return groups.weights(
        frame, len(next(iter(frame.values()))) if isinstance(frame, dict) else len(frame)
    )[1].tolist()
