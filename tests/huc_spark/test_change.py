"""The change test on real Spark against the one in memory."""

from __future__ import annotations

import pandas as pd
import pytest
from huc_spark._change import compare_frame
from huc_spark._worker import Job
from support.spark_cases import TREE, UTILITIES, window

import huc_monitor as hm
from huc_monitor.audit.compare import make_sample
from huc_monitor.audit.inputs import check_predictions
from huc_monitor.audit.runs.changes import PieceChange
from huc_monitor.audit.two_samples import Sample, compare_samples
from huc_monitor.detection.history import rounded

COLUMNS = {
    "predictions": {"pattern": "p_{leaf}"},
    "shares": None,
    "tolerance": 0.0,
    "labels": "label",
    "coded": False,
    "weights": None,
    "row_id": "row",
    "sample": "part",
}


def samples(seed):
    """The reference, the newest window, and the one before; rows are counted in this order."""
    parts = [window(seed + k, n=n).frame for k, n in enumerate((300, 200, 150))]
    done = 0
    for k, part in enumerate(parts):
        part["part"], part["row"] = k, part["row"] + done
        done += len(part)
    parts[1].loc[parts[1]["label"] == "b", "label"] = "e"
    return parts


def local(part, plan):
    columns = [f"p_{leaf}" for leaf in TREE.leaves]
    p = check_predictions(part[columns].to_numpy(), tree=TREE)
    return rounded(make_sample(p, TREE.encode(part["label"]), plan, features=part))


@pytest.mark.parametrize("n_partitions", [3, 40])
def test_a_comparison_on_spark_is_the_local_one(spark, n_partitions):
    parts = samples(5)
    groups = hm.Subgroups.from_reference(parts[0], {"g": "each"}, weights={"tilt": "w"})
    what = {"tree": TREE, "utilities": UTILITIES, "subgroups": groups, "n_draws": 40}
    check = PieceChange.of(**what, n_samples=3, confidence_level=0.9)
    df = spark.createDataFrame(pd.concat(parts)).repartition(3)
    job = Job.of(check, COLUMNS)
    found = compare_frame(df, check, job, [1, 2], n_partitions=n_partitions, screen=False)
    made = [local(part, check) for part in parts]
    for k, one in enumerate(found, 1):
        expected = compare_samples(made[0], Sample.join(made[1 : k + 1]), check)
        pd.testing.assert_frame_equal(
            one.to_frame(all_columns=True), expected.to_frame(all_columns=True), rtol=0, atol=1e-12
        )
    assert [item.node for item in found[0].sure]
