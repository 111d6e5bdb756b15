"""What requests must carry once a recalibrated version serves: what the base did, and no more."""

from __future__ import annotations

import json
import warnings

import huc_mlflow
import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from support.forests import FEATURES, log_forest
from support.pages import blocks

import huc_monitor as hm

PROBA = {"predict_method": "predict_proba"}


def log_frugal(story, **options):
    """Log a model that was fitted on a frame with one column more than it uses."""
    chosen = ColumnTransformer([("kept", "passthrough", FEATURES[:3])])
    model = make_pipeline(chosen, LogisticRegression()).fit(story.frame[FEATURES], story.labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mlflow.sklearn.log_model(
            model, name="frugal", pip_requirements=["scikit-learn"], **options
        )


def women_off(story):
    """Recalibrate for a subgroup whose column the base does not read."""
    family = hm.Subgroups.from_reference(story.frame, {"sex": "each"})
    return story.boost(subgroups=family)


def load(store, base, recalibrator, **options):
    huc_mlflow.save_model(store / "saved", base, recalibrator, **options)
    return mlflow.pyfunc.load_model(str(store / "saved"))


@pytest.mark.parametrize("recalibrate", ["everyone", "by sex"])
def test_a_base_without_signature_gets_the_columns_that_came(story, store, recalibrate):
    base = log_frugal(story)
    boost = women_off(story) if recalibrate == "by sex" else story.boost(subgroups=None)
    sent = [*FEATURES[:3], "sex"] if recalibrate == "by sex" else FEATURES[:3]
    rows = story.frame[sent]
    mlflow.pyfunc.load_model(base.model_uri).predict(rows)
    model = load(store, base, boost)
    whole = model.predict(story.frame, PROBA)
    pd.testing.assert_frame_equal(model.predict(rows, PROBA), whole)
    pd.testing.assert_frame_equal(model.predict(rows[sent[::-1]], PROBA), whole)
    with pytest.raises(ValueError, match="f2"):
        model.predict(rows.drop(columns="f2"))


def test_an_optional_column_of_the_base_stays_optional(story, store):
    spec = [mlflow.types.ColSpec("double", name, required=name != "f3") for name in FEATURES]
    signature = mlflow.models.ModelSignature(mlflow.types.Schema(spec))
    model = load(store, log_frugal(story, signature=signature), women_off(story))
    rows = story.frame.drop(columns="f3")
    answers = model.predict(rows, PROBA)
    pd.testing.assert_frame_equal(answers, model.predict(story.frame, PROBA))


def test_a_column_that_only_subgroups_read_is_required(story, store):
    model = load(store, log_forest(story), women_off(story), id_column="id")
    inputs = model.metadata.get_input_schema().input_dict()
    required = {name for name, spec in inputs.items() if spec.required}
    assert required == {*FEATURES, "sex"}, "an id is only logged"
    with pytest.raises(mlflow.MlflowException, match=r"missing inputs \['sex'\]"):
        model.predict(story.frame[FEATURES])
    unknown = story.frame.assign(sex=None)
    assert len(model.predict(unknown)) == len(unknown), "it may be missing in a row"


def test_the_input_example_has_what_requests_must_carry(story, store, caplog):
    example = story.frame[FEATURES].head(2)
    base = log_forest(story, input_example=example)
    model = load(store, base, women_off(story))
    shown = model.metadata.load_input_example(str(store / "saved"))
    assert list(shown) == [*FEATURES, "sex"]
    assert set(shown["sex"]) <= {"f", "m"}
    assert not [record for record in caplog.records if "Failed to validate" in record.message]
    served = json.loads(model.metadata.get_serving_input(str(store / "saved")))
    frame = pd.DataFrame(**served["dataframe_split"])
    np.testing.assert_array_equal(model.predict(frame), model.predict(shown))


def test_the_service_of_the_page_answers_for_every_champion(story, store):
    register, serve = blocks("mlflow.md", "py")
    features = story.frame[FEATURES]
    model = LogisticRegression().fit(features, story.labels)
    classes = [str(name) for name in model.classes_]
    names = {"mlflow": mlflow, "hm": hm, "model": model, "X": features}
    names |= {"rows": story.frame, "classes": classes}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(register, names)  # noqa: S102 - our own page
        exec(serve, names)  # noqa: S102
    names["logger"].close()
    p = model.predict_proba(features)
    np.testing.assert_array_equal(names["probabilities"], p)
    boost = women_off(story)
    huc_mlflow.register_recalibrated("triage", boost, recalibration_id="0011223344556677")
    assert huc_mlflow.promote("triage").columns == ("sex",)
    exec(serve, names)  # noqa: S102
    names["logger"].close()
    order = [classes.index(leaf) for leaf in story.tree.leaves]
    expected = boost.predict_proba(p[:, order], features=story.frame)
    np.testing.assert_array_equal(names["probabilities"][:, order], expected)
    logged = pd.read_parquet(store / "log")
    assert logged["model_version"].value_counts().to_dict() == {"1": 1500, "2": 1500}
    with pytest.raises(mlflow.MlflowException, match='does not have the "sklearn" flavor'):
        mlflow.sklearn.load_model("models:/triage@champion")
