"""Delta tables, written by delta-rs. Delta's package for Spark is Java that no registry of Python
packages has; in its place a data source of the same name reads them with delta-rs as well.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader

from huc_monitor.errors import InvalidInputError
from huc_monitor.sources import DuckTable, TimeRange
from huc_monitor.sources._table import TimeColumn

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")

START = np.datetime64("2024-01-01T00:00", "us")


def rows(n, value):
    times = pa.array(START + np.arange(n) * np.timedelta64(1, "m"), pa.timestamp("us", "UTC"))
    return pa.table({"at": times, "value": np.full(n, value)})


@pytest.fixture
def table(tmp_path):
    """A table of 30 rows, which replaced 50 others whose files are still there."""
    place = tmp_path / "log"
    deltalake.write_deltalake(place, rows(50, 1.0))
    deltalake.write_deltalake(place, rows(20, 2.0), mode="overwrite")
    deltalake.write_deltalake(place, rows(10, 3.0), mode="append")
    return place


class Rows(DataSourceReader):
    def __init__(self, path):
        self.path = path

    def read(self, partition):
        del partition
        import deltalake

        yield from deltalake.DeltaTable(self.path).to_pyarrow_dataset().to_batches()


class Delta(DataSource):
    @classmethod
    def name(cls):
        return "delta"

    def schema(self):
        return "at timestamp, value double"

    def reader(self, schema):
        del schema
        return Rows(self.options["path"])


@pytest.fixture
def engine(spark):
    from huc_spark import SparkEngine

    made = SparkEngine()
    made._session = spark.newSession()  # the others know no data source of that name
    made._session.dataSource.register(Delta)
    return made


@pytest.mark.parametrize("kind", ["auto", "delta"])
def test_a_delta_path_is_read_in_its_present_version(engine, table, kind):
    found = engine.table(path=str(table), table=None, format=kind)
    time = TimeColumn("at")
    span = found.time_range(time)
    assert isinstance(span, TimeRange)
    n, _ = found.count(time, span.first, span.last.replace(year=2025))
    assert n == 30, "not the 80 rows of all files in the folder"
    assert "the delta log" in found.name


def test_files_without_a_delta_log_are_parquet(spark, engine, tmp_path):
    place = str(tmp_path / "plain")
    spark.range(5).write.parquet(place)
    assert "the parquet log" in engine.table(path=place, table=None).name


def test_a_missing_package_for_delta_is_said(spark, table):
    from huc_spark import SparkEngine

    del spark  # the session it starts from
    with pytest.raises(InvalidInputError, match="Spark could not open"):
        SparkEngine().table(path=str(table), table=None)


def test_the_local_engine_counts_no_replaced_rows_either(table):
    found = DuckTable.files(table)
    time = TimeColumn("at")
    span = found.time_range(time)
    n, _ = found.count(time, span.first, span.last.replace(year=2025))
    assert n == 30
