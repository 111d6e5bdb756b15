"""A label means the same leaf on Spark as everywhere else."""

from __future__ import annotations

from datetime import UTC, datetime

import huc_spark
import numpy as np
import pytest
from huc_spark._source import SparkSource
from huc_spark._table import SparkTable
from support.label_cases import CASES, REFUSED

import huc_monitor as hm
from huc_monitor.sources import Columns
from huc_monitor.tree.labels import LeafCodes

DAY = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
HELD = [case for case in CASES if "mixed" not in case.name]  # Spark's columns have one type
OPTIONS = {"utilities": [hm.TopK(1), hm.TopK(2)], "bounds": "sharp"}


@pytest.mark.parametrize("case", HELD, ids=lambda case: case.name)
def test_spark_gives_the_one_answer(case, spark):
    frame = case.log(n=20)
    if case.name in {"categories", "numpy codes"}:  # types that Spark does not have
        frame["label"] = frame["label"].astype(object)
    df = spark.createDataFrame(frame)
    source = SparkSource(
        SparkTable(df),
        tree=case.tree,
        columns=Columns(time="at", label="label"),
        most_rows=1_000,
    )
    whole = {"utilities": OPTIONS["utilities"], "subgroups": hm.Subgroups.whole()}
    if case.answer == REFUSED:
        with pytest.raises(hm.InvalidInputError, match="`labels` must be"):
            huc_spark.audit(df, tree=case.tree, **OPTIONS)
        with pytest.raises(hm.InvalidInputError, match="unknown label"):
            source.labelled(*DAY)
        return
    p, codes = frame[list(case.leaves)], LeafCodes(case.codes(len(frame)))
    expected = hm.audit(p, codes, tree=case.tree, **OPTIONS).to_frame(all_columns=True)
    found = huc_spark.audit(df, tree=case.tree, **OPTIONS).to_frame(all_columns=True)
    assert np.array_equal(found["moment"], expected["moment"])
    on_cluster = source.audit(
        *DAY, as_of=None, options=hm.AuditOptions(bounds="sharp"), **whole
    ).to_frame(all_columns=True)
    assert np.array_equal(on_cluster["moment"], expected["moment"])
    assert np.array_equal(source.labelled(*DAY).labels, codes.codes)
