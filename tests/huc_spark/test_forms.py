"""Every form of the same predictions on real Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import huc_spark
import pytest
from huc_spark import SparkSource, SparkTable
from support.prediction_forms import TREE, UTILITIES, all_forms

import huc_monitor as hm
from huc_monitor.audit.options import AuditOptions
from huc_monitor.sources import Columns

CASES = {case.name: case for case in all_forms(60)}
# One Spark job per case is enough: forms that Spark stores differently from each other.
READ_BY_SOURCE = ("columns", "map", "JSON pairs", "top-k lists", "top-k codes", "branches by map")


def local(case):
    rows = hm.read_predictions(case.frame, tree=TREE, **case.words)
    return hm.audit(rows, list(case.frame["y"]), tree=TREE, utilities=UTILITIES, n_draws=30)


def on(spark, case, tmp_path):
    import pyarrow.parquet as pq

    # Spark knows no structs whose fields are whatever a row logged; a Parquet file has them.
    pq.write_table(case.table, tmp_path / "log.parquet")
    return spark.read.parquet(str(tmp_path / "log.parquet"))


def same(found, wanted):
    assert list(found.candidates.moment) == list(wanted.candidates.moment)
    assert found.radii == pytest.approx(wanted.radii, rel=1e-9)
    assert found.unlogged == pytest.approx(wanted.unlogged)
    assert found.notes == wanted.notes


@pytest.mark.parametrize("name", CASES)
def test_a_form_on_spark_is_the_form_read_in_python(name, spark, tmp_path):
    case = CASES[name]
    found = huc_spark.audit(
        on(spark, case, tmp_path),
        tree=TREE,
        utilities=UTILITIES,
        probabilities=hm.PredictionColumns(**case.words),
        labels="y",
        row_id="id",
        n_draws=30,
        n_partitions=2,
    )
    same(found, local(case))


@pytest.mark.parametrize("name", READ_BY_SOURCE)
def test_a_form_in_a_log_on_spark_is_audited_as_it_was_logged(name, spark, tmp_path):
    case = CASES[name]
    source = SparkSource(
        SparkTable(on(spark, case, tmp_path)),
        tree=TREE,
        columns=Columns(
            time="at", id="id", label="y", probabilities=hm.PredictionColumns(**case.words)
        ),
        most_rows=10,
        n_partitions=2,
    )
    found = source.audit(
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 2, tzinfo=UTC),
        as_of=None,
        utilities=UTILITIES,
        subgroups=hm.Subgroups.whole(),
        options=AuditOptions(n_draws=30),
    )
    same(found, local(case))
