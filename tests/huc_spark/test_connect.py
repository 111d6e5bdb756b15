"""A session of Spark Connect, with a real server: no Java, and no SparkContext, on this side."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
import pytest
from support import spark_cases as cases
from support import spark_sessions as sessions

import huc_monitor as hm

pytestmark = pytest.mark.slow


def test_everything_works_over_spark_connect(tmp_path):
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    told = sessions.run_alone(__file__, str(tmp_path))
    assert told["session"] == "pyspark.sql.connect.session"
    assert told["n_predictions"] == 500
    assert 0 < told["n_sample"] < 200
    assert told["n_replayed"] == 500
    assert "Spark could not open" in told["missing"]


def main(folder: Path) -> None:
    """Audit, monitor, fit and replay."""
    import huc_spark
    from pyspark.sql import SparkSession

    sessions.use_own_java(folder)
    builder = SparkSession.builder.remote("local[2]")
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    rows = cases.window(3, n=500)
    cases.assert_same(rows.spark(spark.createDataFrame(rows.frame)), rows.local())
    times = pd.date_range("2024-01-01", periods=500, freq="1min", tz="UTC").as_unit("us")
    log = rows.frame.assign(at=times, id=[f"r{i}" for i in range(500)])
    spark.createDataFrame(log).write.parquet(str(folder / "log"))
    engine = huc_spark.SparkEngine()
    source = engine.source(
        engine.table(path=str(folder / "log"), table=None),
        tree=cases.TREE,
        columns=hm.sources.Columns(time="at", id="id", probabilities="p_{leaf}", label="label"),
        most_rows=100,
    )
    span = times[0].to_pydatetime(), (times[-1] + pd.Timedelta("1min")).to_pydatetime()
    what = {"utilities": cases.UTILITIES, "subgroups": hm.Subgroups.whole()}
    found = source.audit(*span, as_of=None, options=hm.AuditOptions(bounds="sharp"), **what)
    local = hm.audit(
        log[rows.columns].to_numpy(),
        log["label"].to_numpy(),
        tree=cases.TREE,
        bounds="sharp",
        **what,
    )
    cases.assert_same(found, local)
    boost = hm.HUCBoost(tree=cases.TREE, utilities=cases.UTILITIES)
    df = spark.read.parquet(str(folder / "log"))
    fit = huc_spark.fit_on_sample(df, boost, row_id="id", rows=200, probabilities="p_{leaf}")
    replayed = huc_spark.predict_proba(df, fit.recalibrator, probabilities="p_{leaf}")
    try:
        engine.table(path=str(folder / "nowhere"), table=None)
        missing = ""
    except hm.InvalidInputError as error:
        missing = str(error)
    told = {
        "session": type(spark).__module__,
        "n_predictions": source.counts(*span).n_predictions,
        "n_sample": source.labelled(*span).n,
        "n_replayed": replayed.count(),
        "missing": missing,
    }
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
