from __future__ import annotations

import json

import huc_mlflow
import mlflow
import numpy as np
import pandas as pd
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
    key = f"huc_branches/{expected.worst.node} - {expected.worst.utility}"
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


def evaluate_column(frame, tree, **settings):
    with mlflow.start_run() as run:
        result = mlflow.models.evaluate(
            data=frame,
            targets="label",
            predictions="answer",
            model_type="classifier",
            evaluators=["huc"],
            evaluator_config={"huc": {"tree": tree, **QUICK, **settings}},
        )
    return result.metrics, mlflow.MlflowClient().get_run(run.info.run_id)


def some_answers(tree, n=400, seed=3):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(tree.n_leaves), n)
    labels = np.array(tree.leaves)[rng.integers(0, tree.n_leaves, n)]
    return p, labels, rng


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("form", ["lists", "mappings", "pairs", "best two"])
def test_a_column_of_predictions_may_hold_lists_mappings_or_the_best_classes(story, form):
    p, labels, _ = some_answers(story.tree)
    leaves = story.tree.leaves
    rest = None
    if form == "lists":
        answers = [list(row) for row in p]
    elif form == "best two":
        answers = [{leaves[k]: float(row[k]) for k in np.argsort(-row)[:2]} for row in p]
        rest = "uniform"
    else:
        answers = [dict(zip(leaves, map(float, row), strict=True)) for row in p]
    if form == "pairs":
        answers = [list(map(list, row.items())) for row in answers]
    frame = pd.DataFrame({"answer": pd.Series(answers, dtype=object), "label": labels})
    settings = {"classes": list(leaves)} if form == "lists" else {"rest": rest}
    metrics, _ = evaluate_column(frame, story.tree.to_dict(), **settings)
    given = p
    if form == "best two":
        classes = [list(row) for row in answers]
        scores = [list(row.values()) for row in answers]
        given = hm.TopKPredictions(classes, scores, rest="uniform")
    expected = hm.audit(given, labels, tree=story.tree, **QUICK)
    assert metrics["huc/huc"] == pytest.approx(expected.huc)


@pytest.mark.usefixtures("store")
def test_weights_and_clusters_count_as_in_an_audit(story):
    p, labels, rng = some_answers(story.tree)
    frame = pd.DataFrame(
        {"answer": list(map(list, p)), "label": labels, "user": np.arange(400) // 8}
    )
    weights = rng.integers(1, 4, 400)
    about = {"classes": list(story.tree.leaves)}
    tree = story.tree.to_dict()
    metrics, _ = evaluate_column(frame, tree, sample_weights=weights, clusters="user", **about)
    expected = hm.audit(
        p, labels, tree=story.tree, weights=weights, clusters=frame["user"], **QUICK
    )
    assert metrics["huc/huc"] == pytest.approx(expected.huc)
    assert metrics["huc/huc_upper"] == pytest.approx(expected.huc_upper)
    with pytest.raises(hm.InvalidInputError, match="`clusters` must name a column of the data"):
        evaluate_column(frame, tree, clusters="users", **about)


@pytest.mark.usefixtures("store")
def test_a_thousand_classes_stay_below_the_limits_of_mlflow():
    paths = {f"b{k}": [f"b{k} x", f"b{k} y"] for k in range(500)}
    tree = hm.LabelTree.from_nested(paths)
    p, labels, _ = some_answers(tree, 300)
    frame = pd.DataFrame({"answer": list(map(list, p)), "label": labels})
    metrics, run = evaluate_column(frame, tree, classes=list(tree.leaves))
    assert metrics["huc/huc"] > 0
    assert len(run.data.metrics) == 100
    assert any(key.startswith("huc_branches/b") for key in run.data.metrics)


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
