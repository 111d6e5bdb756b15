"""The audit on real Spark against the audit in memory."""

from __future__ import annotations

import gc

import huc_spark
import numpy as np
import pandas as pd
import pytest
from support.spark_cases import N_WINDOWS, SAME, TREE, UTILITIES, assert_same, n_same, window
from support.spark_sessions import shuffled_bytes

import huc_monitor as hm
from huc_monitor.errors import InvalidInputError, UnknownNameError


@pytest.mark.parametrize("seed", [3, 4])
def test_an_audit_on_spark_is_the_local_audit(spark, seed):
    rows = window(seed, skewed=seed % 2 == 0)
    found = rows.spark(rows.on(spark, 3), n_partitions=5 * seed)
    assert_same(found, rows.local())


@pytest.mark.parametrize("chances", [[0.25, 0.5, 1.0], [0.5]])
def test_dependent_rows_and_chosen_labels_on_spark_are_counted_as_in_memory(spark, chances):
    rows = window(2, n=400)
    p = rows.frame[[f"p_{leaf}" for leaf in TREE.leaves]].to_numpy()
    rng = np.random.default_rng(0)
    frame = rows.frame.assign(
        user=[f"u{k}" for k in rng.integers(0, 40, 400)], chosen=rng.choice(chances, 400)
    )
    what = {"tree": TREE, "utilities": UTILITIES, "n_draws": 64}
    local = hm.audit(
        p, frame["label"], clusters=frame["user"], label_probability=frame["chosen"], **what
    )
    found = huc_spark.audit(
        spark.createDataFrame(frame).repartition(3),
        probabilities="p_{leaf}",
        clusters="user",
        label_probability="chosen",
        n_partitions=4,
        **what,
    )
    assert_same(found, local)
    assert found.design == local.design


@pytest.mark.slow
def test_two_hundred_windows_come_out_as_in_memory(spark):
    assert n_same(spark) == N_WINDOWS


def test_the_number_of_partitions_and_their_order_change_nothing(spark):
    rows = window(2, n=700)
    one = rows.spark(rows.on(spark, 1), n_partitions=1)
    shuffled = rows.on(spark, 4).orderBy("w")
    # More than 32 runs are merged on executors before the driver merges the rest.
    many = rows.spark(shuffled, n_partitions=64)
    np.testing.assert_array_equal(one.candidates.moment, many.candidates.moment)
    np.testing.assert_array_equal(one.radii, many.radii)
    pd.testing.assert_frame_equal(
        one.to_frame(all_columns=True), many.to_frame(all_columns=True), **SAME
    )


def test_an_array_column_in_another_order_and_codes_as_labels_do_as_well(spark):
    rows = window(2, n=200)
    classes = list(reversed(TREE.leaves))
    frame = pd.DataFrame({"p": list(rows.frame[[f"p_{c}" for c in classes]].to_numpy())})
    frame["y"] = [classes.index(leaf) for leaf in rows.frame["label"]]
    found = huc_spark.audit(
        spark.createDataFrame(frame),
        tree=TREE,
        utilities=UTILITIES,
        probabilities="p",
        classes=classes,
        labels="y",
        bounds="sharp",
    )
    assert_same(found, rows.local(subgroups=None, bounds="sharp", confidence_level=0.95))


def test_a_utility_of_the_users_own_travels_to_executors(spark):
    rows = window(2, n=100)
    mine = [hm.CustomUtility("half", lambda p: 2 * p**2 - 1)]
    found = rows.spark(rows.on(spark, 2), utilities=mine)
    assert_same(found, rows.local(utilities=mine))


@pytest.mark.slow
def test_text_ids_draw_as_well_and_the_same_each_time(spark):
    rows = window(3, n=100)
    df = rows.on(spark, 2).selectExpr("*", "concat('row ', row) AS name")
    audit = {"probabilities": "p_{leaf}", **rows.options, "row_id": "name"}
    one, two = huc_spark.audit(df, **audit), huc_spark.audit(df.orderBy("w"), **audit)
    np.testing.assert_allclose(one.radii, two.radii, rtol=1e-12)
    # Other multipliers, the same law.
    np.testing.assert_allclose(one.radii, rows.local(weights=None).radii, rtol=0.5)


def test_the_garbage_collector_is_kept_off_what_a_worker_has_loaded(spark):
    import pyarrow as pa

    rows = window(3, n=50)
    for _ in range(2):
        rows.spark(rows.on(spark, 2))

    def ask(_):
        counts = [gc.get_freeze_count()], [len(gc.get_objects())]
        yield pa.RecordBatch.from_arrays([*map(pa.array, counts)], names=["aside", "looked_at"])

    found = spark.range(2, numPartitions=2).mapInArrow(ask, "aside long, looked_at long").collect()
    assert max(row.aside / row.looked_at for row in found) > 2


def test_a_row_that_is_no_distribution_is_named_before_anything_is_moved(spark):
    rows = window(2, n=50)
    broken = rows.frame.copy()
    broken.loc[7, "p_a"] = -0.5
    with pytest.raises(InvalidInputError, match=r"got bad probabilities: -0.5 for .* \(row \d+\)"):
        rows.spark(spark.createDataFrame(broken))


def test_a_label_that_is_missing_or_unknown_is_named(spark):
    rows = window(2, n=50)
    df = rows.on(spark, 1)
    with pytest.raises(InvalidInputError, match="none in 50 rows"):
        rows.spark(
            df.selectExpr("*", "cast(NULL AS string) AS y")
            .drop("label")
            .withColumnRenamed("y", "label")
        )
    with pytest.raises(InvalidInputError, match="'zebra'"):
        rows.spark(df.selectExpr("*", "'zebra' AS y").drop("label").withColumnRenamed("y", "label"))


def test_what_cannot_be_audited_is_refused_with_a_remedy(spark):
    rows = window(2, n=20)
    df = rows.on(spark, 1)
    with pytest.raises(InvalidInputError, match="Name one, or choose bounds='sharp'"):
        huc_spark.audit(df, probabilities="p_{leaf}", **{**rows.options, "bounds": "bootstrap"})
    with pytest.raises(
        UnknownNameError, match=r"`labels` must name columns of `df`; got 'labl'\. Did"
    ):
        huc_spark.audit(df, probabilities="p_{leaf}", labels="labl", **rows.options)
    with pytest.raises(InvalidInputError, match="`df` must have at least one row"):
        rows.spark(df.where("false"))


def test_the_shuffle_is_what_the_calculation_says(spark):
    rows = window(2, n=20_000, ties=False)
    df = rows.on(spark, 2).persist()
    df.count()
    before = shuffled_bytes(spark)
    rows.spark(df, n_partitions=4)
    moved = (shuffled_bytes(spark) - before) / 20_000
    calculated = huc_spark.shuffle_bytes_per_row(
        TREE, UTILITIES, subgroups=rows.options["subgroups"], bounds="sharp"
    )
    # A score, a label, contributions along the path; a byte of indicators, a real weight.
    assert calculated == (8 + 1 + 2 * 8 + 1 + 8) + (8 + 1 + 1 * 8 + 1 + 8)
    assert 0.5 * calculated < moved < 1.02 * calculated
    df.unpersist()
