# For whoever knows what a prediction is worth in their own business and finds it in none of the
# families: a stock of spare parts that is filled by expected demand.
# One vectorised function of the probabilities is all it takes.
"""Audit a utility of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np

import huc_monitor as hm

TREE = hm.LabelTree.from_nested(
    {"engine": ["pump", "valve"], "brakes": ["disc", "pad", "hose"]}, root="repair"
)
PRICE = np.array([400.0, 60.0, 150.0, 40.0, 30.0])  # in the order of TREE.leaves
MOST = PRICE.max()


def saved_trip(probabilities: Any) -> Any:
    """Value of the two parts the mechanic takes along: a tenth of the price of the one needed.

    Parts are chosen by probability times price. Rows are predictions, columns are leaves, and so
    are the rows and columns of the result, between -1 and 1.
    """
    expected = probabilities * PRICE
    taken = np.argsort(-expected, axis=1, kind="stable")[:, :2]
    value = np.full(probabilities.shape, -0.05)  # the trip, when the part is not aboard
    np.put_along_axis(value, taken, (PRICE / MOST)[taken], axis=1)
    return value


def main() -> None:
    """Audit it beside a family that comes with the library."""
    rng = np.random.default_rng(0)
    predicted = rng.dirichlet([1, 2, 1, 2, 2], 8_000)
    truth = predicted * [0.5, 1.5, 1, 1, 1]  # pumps fail less often than the model says
    truth /= truth.sum(axis=1, keepdims=True)
    codes = (truth.cumsum(axis=1) < rng.random((8_000, 1))).sum(axis=1).clip(max=4)

    trip = hm.CustomUtility("saved trip", saved_trip, units="EUR", scale=MOST)
    result = hm.audit(predicted, codes, tree=TREE, utilities=[trip, hm.TopK(2)], rng=0)
    for row in result.to_frame().itertuples():
        money = (
            f" ({row.moment_in_units:+.1f} {row.units} a repair)"
            if isinstance(row.units, str)
            else ""
        )
        print(f"{row.utility:>10}, {row.node}: {row.moment:+.3f}{money}")
    # A file holds the name only. Whoever reads it back registers the function first.
    print(trip.to_dict())


if __name__ == "__main__":
    main()
