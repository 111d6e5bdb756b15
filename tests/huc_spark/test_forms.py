"""Every form of the same predictions on real Spark."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import huc_spark
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from huc_spark import SparkSource, SparkTable
from support.prediction_forms import TREE, UTILITIES, all_forms

import huc_monitor as hm
from huc_monitor.audit.options import AuditOptions
from huc_monitor.sources import Columns

DAY = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
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


def source_of(spark, case, tmp_path, **columns):
    where = {"time": "at", "id": "id", "label": "y", **columns}
    return SparkSource(
        SparkTable(on(spark, case, tmp_path)),
        tree=TREE,
        columns=Columns(**where, probabilities=hm.PredictionColumns(**case.words)),
        most_rows=10,
        n_partitions=2,
    )


def audit(source):
    return source.audit(
        *DAY,
        as_of=None,
        utilities=UTILITIES,
        subgroups=hm.Subgroups.whole(),
        options=AuditOptions(n_draws=30),
    )


@pytest.mark.parametrize("name", READ_BY_SOURCE)
def test_a_form_in_a_log_on_spark_is_audited_as_it_was_logged(name, spark, tmp_path):
    case = CASES[name]
    same(audit(source_of(spark, case, tmp_path)), local(case))


def test_a_map_needs_no_column_of_ids(spark, tmp_path):
    case = CASES["map"]
    source = source_of(spark, case, tmp_path, id=None)
    found = audit(source)
    assert list(found.candidates.moment) == list(local(case).candidates.moment)
    # Multipliers go by a hash of the row, so that radii are the same each time.
    assert list(found.radii) == list(audit(source).radii)
    assert 0 < source._sampled(0.5).log.df.count() < 60


def deeper(case, rng):
    """The same log with every third label at an inner node, and a user for every row."""
    labels = [
        TREE.parent(name) if k % 3 == 0 else name for k, name in enumerate(case.frame["y"].tolist())
    ]
    users = [f"u{k}" for k in rng.integers(0, 25, len(labels))]
    table = case.table.set_column(case.table.column_names.index("y"), "y", pa.array(labels))
    return dataclasses.replace(case, table=table.append_column("user", pa.array(users)))


@pytest.mark.parametrize("name", ["columns", "top-k lists"])
def test_labels_at_inner_nodes_and_clusters_are_counted_on_spark_as_in_memory(
    name, spark, tmp_path
):
    case = deeper(CASES[name], np.random.default_rng(0))
    rows = hm.read_predictions(case.frame, tree=TREE, **case.words)
    what = {"tree": TREE, "utilities": UTILITIES, "n_draws": 30}
    given = rows, list(case.frame["y"])
    apart = hm.audit(*given, **what)
    assert (apart.to_frame()["label_coverage"] < 1).any()
    found = audit(source_of(spark, case, tmp_path))
    same(found, apart)
    assert list(found.candidates.label_coverage) == list(apart.candidates.label_coverage)
    together = hm.audit(*given, clusters=case.frame["user"], **what)
    found = audit(source_of(spark, case, tmp_path, cluster="user"))
    same(found, together)
    assert found.design == together.design
    blocks = pd.to_datetime(case.frame["at"]).dt.floor("10min")
    found = audit(source_of(spark, case, tmp_path, cluster_block="10m"))
    assert found.design.n_clusters == blocks.nunique() > 1
    where = hm.PredictionColumns(**case.words)
    direct = {"probabilities": where, "labels": "y", "row_id": "id", "clusters": "user"}
    same(huc_spark.audit(on(spark, case, tmp_path), n_partitions=2, **direct, **what), together)
