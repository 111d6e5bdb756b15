from __future__ import annotations

import json

import huc_mlflow
import mlflow
import numpy as np
import pytest
from support.forests import FEATURES, log_forest

import huc_monitor as hm

QUICK = {"n_draws": 50}


def evaluate(model, story, frame, **settings):
    config = {"tree": story.tree.to_dict(), **QUICK, **settings}
    with mlflow.start_run() as run:
        result = mlflow.models.evaluate(
            model,
            frame.assign(label=story.labels),
            targets="label",
            model_type="classifier",
            evaluators=["huc"],
            evaluator_config={"huc": config},
        )
    return result, mlflow.MlflowClient().get_run(run.info.run_id)


@pytest.mark.usefixtures("store")
def test_a_classifier_is_audited_by_name(story):
    info = log_forest(story)
    utilities = [utility.to_dict() for utility in story.utilities]
    result, run = evaluate(
        info.model_uri, story, story.frame[FEATURES], utilities=utilities, tolerance=0.01
    )
    expected = hm.audit(
        story.probabilities,
        story.labels,
        tree=story.tree,
        utilities=story.utilities,
        n_draws=50,
    )
    assert result.metrics["huc/huc"] == pytest.approx(expected.huc)
    assert result.metrics["huc/n_violations"] == len(expected.violations(0.01))
    assert run.data.metrics["huc/huc"] == pytest.approx(expected.huc)
    key = f"huc_moment/{expected.worst.utility}/all/{expected.worst.node}"
    assert run.data.metrics[key] == pytest.approx(expected.worst.moment)
    names = {f.path for f in mlflow.MlflowClient().list_artifacts(run.info.run_id, "huc")}
    assert {"huc/audit.json", "huc/candidates.csv", "huc/report.html", "huc/icicle.svg"} <= names
    assert result.artifacts["huc_audit"].content["huc"] == pytest.approx(expected.huc)


def test_a_recalibrated_model_is_audited_with_subgroups(story, store):
    boost = story.boost()
    huc_mlflow.save_model(store / "saved", log_forest(story), boost)
    result, _ = evaluate(
        str(store / "saved"), story, story.frame, subgroups={"sex": "each"}, bounds="theorem"
    )
    expected = hm.audit(
        boost.predict_proba(story.probabilities, features=story.frame),
        story.labels,
        tree=story.tree,
        utilities=[hm.LevelCorrectness(level=depth) for depth in (1, 2, 3)],
        subgroups=hm.Subgroups.from_reference(story.frame, {"sex": "each"}),
        features=story.frame,
        bounds="theorem",
    )
    assert result.metrics["huc/huc"] == pytest.approx(expected.huc)


@pytest.mark.usefixtures("store")
def test_a_wrong_setting_is_named(story):
    info = log_forest(story)
    with pytest.raises(hm.InvalidInputError, match=r"got 'utilitys'. Did you mean 'utilities'"):
        evaluate(info.model_uri, story, story.frame[FEATURES], utilitys=[])


@pytest.mark.usefixtures("store")
def test_classes_are_asked_for_where_the_model_does_not_say(story):
    def codes(frame):
        return np.full((len(frame), story.tree.n_leaves), 1 / story.tree.n_leaves)

    with pytest.raises(hm.InvalidInputError, match="the model names none"):
        evaluate(codes, story, story.frame[FEATURES])


def test_other_evaluations_are_left_alone():
    from huc_mlflow._evaluator import HUCEvaluator

    assert not HUCEvaluator.can_evaluate(model_type="classifier", evaluator_config={})
    assert not HUCEvaluator.can_evaluate(model_type="regressor", evaluator_config={"tree": {}})
    assert HUCEvaluator.can_evaluate(model_type="classifier", evaluator_config={"tree": {}})


def test_metrics_are_finite_and_undefined_ones_counted(story):
    from huc_mlflow._evaluator import metrics_of

    result = hm.audit(
        story.probabilities, story.labels, tree=story.tree, utilities=story.utilities, bounds=None
    )
    metrics = metrics_of(result, None)
    assert np.isfinite(list(metrics.values())).all()
    assert metrics["huc/n_undefined"] == 2
    assert json.dumps(metrics)
