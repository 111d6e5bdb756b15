"""Repair on Spark: fitted on a sample, replayed on all rows, served through MLflow's UDF."""

from __future__ import annotations

import huc_spark
import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.errors import InvalidInputError
from huc_monitor.recalibration import HUCBoost

TREE = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
UTILITIES = [hm.LevelCorrectness(level=1), hm.Payoff("pay", {"a": -1, "b": 1, "c": 0, "d": 0})]
COLUMNS = [f"p_{leaf}" for leaf in TREE.leaves]


@pytest.fixture(scope="module")
def frame():
    """Rows whose predictions overstate "a" at the cost of "b"."""
    rng = np.random.default_rng(0)
    n = 6_000
    p = rng.dirichlet(np.full(4, 2.0), n)
    sex = rng.choice(["f", "m"], n)
    truth = p.copy()
    moved = 0.8 * truth[:, 0]
    truth[:, 0] -= moved
    truth[:, 1] += moved
    labels = (rng.random(n)[:, None] > truth.cumsum(axis=1)).sum(axis=1).clip(0, 3)
    rows = pd.DataFrame(p, columns=COLUMNS)
    rows["label"], rows["sex"], rows["row"] = np.array(TREE.leaves)[labels], sex, np.arange(n)
    return rows


def new_boost(frame):
    groups = hm.Subgroups.from_reference(frame, {"sex": "each"})
    return HUCBoost(tree=TREE, utilities=UTILITIES, subgroups=groups, mode="paper", max_updates=15)


@pytest.fixture(scope="module")
def fitted(spark, frame):
    df = spark.createDataFrame(frame).repartition(2)
    return df, huc_spark.fit_on_sample(
        df, new_boost(frame), row_id="row", rows=2_000, probabilities="p_{leaf}"
    )


def test_the_sampling_error_is_measured_on_all_rows(frame, fitted):
    _, fit = fitted
    assert fit.n_rows == len(frame)
    assert abs(fit.n_sample - 2_000) < 200
    groups = new_boost(frame).subgroups
    options = {"tree": TREE, "utilities": UTILITIES, "subgroups": groups, "bounds": "sharp"}
    every = hm.audit(frame[COLUMNS].to_numpy(), frame["label"], features=frame, **options)
    np.testing.assert_allclose(fit.before.candidates.moment, every.candidates.moment, atol=1e-12)
    apart = np.abs(fit.sample.candidates.moment) - np.abs(every.candidates.moment)
    assert fit.sampling_error == pytest.approx(np.abs(apart).max(), abs=1e-12)
    assert 0 < fit.sampling_error < fit.radius
    assert "n_sample=" in repr(fit)


def test_replay_on_spark_is_the_local_replay_and_repairs_all_rows(frame, fitted):
    df, fit = fitted
    replayed = huc_spark.predict_proba(df, fit.recalibrator, probabilities="p_{leaf}")
    found = replayed.orderBy("row").toArrow().to_pandas()
    local = fit.recalibrator.predict_proba(frame[COLUMNS].to_numpy(), features=frame)
    np.testing.assert_array_equal(np.stack(found["recalibrated"]), local)
    assert list(found.columns) == [*frame.columns, "recalibrated"]
    after = hm.audit(local, frame["label"], tree=TREE, utilities=UTILITIES, bounds=None)
    assert after.huc < 0.5 * fit.before.huc


def test_what_cannot_be_fitted_or_replayed_is_refused(frame, fitted):
    df, fit = fitted
    with pytest.raises(InvalidInputError, match="`rows` must be a whole number of at least 1"):
        huc_spark.fit_on_sample(df, new_boost(frame), row_id="row", rows=0)
    unnamed = HUCBoost(tree=TREE, utilities=UTILITIES, subgroups="discover")
    with pytest.raises(InvalidInputError, match="a family of subgroups on Spark; got 'discover'"):
        huc_spark.fit_on_sample(df, unnamed, row_id="row", rows=100)
    with pytest.raises(InvalidInputError, match="`output` must name a new column"):
        huc_spark.predict_proba(df, fit.recalibrator, output="sex")


@pytest.mark.slow
def test_a_wrapped_model_scores_as_a_spark_udf(spark, frame, fitted, tmp_path, monkeypatch):
    import huc_mlflow
    import mlflow
    from sklearn.linear_model import LogisticRegression

    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    _, fit = fitted
    base = LogisticRegression(max_iter=50).fit(frame[COLUMNS], frame["label"])
    signature = mlflow.models.infer_signature(frame[COLUMNS], base.predict(frame[COLUMNS]))
    mlflow.sklearn.save_model(
        base,
        tmp_path / "base",
        signature=signature,
        pip_requirements=["scikit-learn", "mlflow"],
        serialization_format="pickle",
    )
    huc_mlflow.save_model(tmp_path / "wrapped", str(tmp_path / "base"), fit.recalibrator)
    udf = mlflow.pyfunc.spark_udf(
        spark,
        str(tmp_path / "wrapped"),
        result_type=", ".join(f"{leaf} double" for leaf in base.classes_),
        env_manager="local",
        params={"predict_method": "predict_proba"},
    )
    some = frame.head(300)
    scored = spark.createDataFrame(some).withColumn("p", udf(*COLUMNS, "sex"))
    found = scored.orderBy("row").select("p.*").toArrow().to_pandas()[list(TREE.leaves)].to_numpy()
    order = [list(base.classes_).index(leaf) for leaf in TREE.leaves]
    expected = fit.recalibrator.predict_proba(
        base.predict_proba(some[COLUMNS])[:, order], features=some
    )
    np.testing.assert_allclose(found, expected, atol=1e-12)
