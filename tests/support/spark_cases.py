"""Random windows as local arrays and as Spark DataFrames."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import huc_monitor as hm

TREE = hm.LabelTree.from_nested({"left": {"a": None, "b": None, "e": None}, "right": ["c", "d"]})
UTILITIES = [
    hm.Payoff("pay", {"a": -1, "b": 1, "c": 0.5, "d": 0.25}),
    hm.LevelCorrectness(level=1),
]
N_WINDOWS = 200
N_RUNS = (1, 2, 3, 5, 8, 13, 21, 34, 64)
SAME = {"rtol": 0, "atol": 1e-12}


@dataclass(frozen=True)
class Window:
    """One window, with the options of its audit."""

    frame: pd.DataFrame
    columns: list[str]
    options: dict[str, Any]
    weights: str | None = None

    def local(self, **changed):
        """Audit in memory."""
        weights = None if self.weights is None else self.frame[self.weights].to_numpy()
        changed = {"weights": weights, **changed}
        return hm.audit(
            self.frame[self.columns].to_numpy(),
            self.frame["label"].to_numpy(),
            features=self.frame,
            **{**self.options, **changed},
        )

    def on(self, spark, n_partitions):
        """Hand the rows to Spark, dealt out over partitions."""
        df = spark.createDataFrame(self.frame)
        few = n_partitions <= spark.sparkContext.defaultParallelism
        return df.coalesce(n_partitions) if few else df.repartition(n_partitions)

    def spark(self, df, **changed):
        """Audit on Spark."""
        import huc_spark

        return huc_spark.audit(
            df,
            probabilities="p_{leaf}",
            weights=self.weights,
            row_id="row",
            **{**self.options, **changed},
        )


def window(seed: int, *, n: int | None = None, skewed=False, ties=True) -> Window:
    """Rows with ties, skewed scores, subgroups, and now and then weights and zeros."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 400)) if n is None else n
    concentration = [8.0, 0.05, 0.05, 0.05, 0.05] if skewed else np.full(5, 1.5)
    p = rng.dirichlet(concentration, n)
    p = (p + 1e-9) / (p + 1e-9).sum(axis=1, keepdims=True)
    if ties:
        p = p[rng.integers(0, max(1, n // int(rng.integers(1, 20))), n)]
    if seed % 4 == 0:
        p[0] = [1, 0, 0, 0, 0]
    columns = [f"p_{leaf}" for leaf in TREE.leaves]
    frame = pd.DataFrame(p, columns=columns)
    frame["label"] = np.array(TREE.leaves)[rng.integers(0, 5, n)]
    frame["g"], frame["w"] = rng.choice(["x", "y"], n), rng.uniform(-1, 1, n)
    frame["times"], frame["row"] = rng.integers(1, 4, n) * 1.0, np.arange(n)
    groups = hm.Subgroups.from_reference(frame, {"g": "each"}, weights={"tilt": "w"})
    bounds = (None, "theorem", "sharp", "bootstrap")[seed % 4 if seed % 8 else 2]
    options = {
        "tree": TREE,
        "utilities": UTILITIES,
        "subgroups": groups,
        "bounds": bounds,
        "confidence_level": 0.9,
        "n_draws": 40,
        "rng": seed,
    }
    return Window(frame, columns, options, "times" if seed % 3 == 0 else None)


def assert_same(found, expected) -> None:
    """Equal to 1e-12, radii of the bootstrap included."""
    pd.testing.assert_frame_equal(
        found.to_frame(all_columns=True), expected.to_frame(all_columns=True), **SAME
    )
    moments = ["moment", "interval_low", "interval_high", "n_in_interval", "on_uc_interval"]
    one, other = (
        found.to_frame(all_columns=True)[moments],
        expected.to_frame(all_columns=True)[moments],
    )
    pd.testing.assert_frame_equal(one, other, **SAME)
    pd.testing.assert_frame_equal(found.uc_frame(), expected.uc_frame(), **SAME)
    for name in ("interiorized", "method", "confidence_level", "n_draws"):
        assert getattr(found, name) == getattr(expected, name)
    assert abs(found.n - expected.n) <= 1e-12 * expected.n


def n_same(spark) -> int:
    """Count windows that come out as in memory: with ties, half of them skewed, 1 to 64 runs."""

    def audited(seed):
        rng = np.random.default_rng(10_000 + seed)
        rows = window(seed, skewed=seed % 2 == 0)
        df = rows.on(spark, int(rng.integers(1, 4)))
        return rows, rows.spark(df, n_partitions=int(rng.choice(N_RUNS)))

    same = 0
    with ThreadPoolExecutor(4) as pool:
        for rows, result in pool.map(audited, range(N_WINDOWS)):
            assert_same(result, rows.local())
            same += 1
    return same
