"""A base that knows fewer, more or other classes than the tree: wrapped, or refused at once."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import huc_mlflow
import mlflow
import numpy as np
import pandas as pd
import pytest
from huc_mlflow import _recalibration_host
from huc_mlflow._rows import RowReader
from sklearn.ensemble import RandomForestClassifier
from support.deployment import World, a_trigger
from support.forests import FEATURES, log_forest

import huc_monitor as hm
from huc_monitor.cli import main
from huc_monitor.config import load_config

PROBA = {"predict_method": "predict_proba"}
NEW = hm.LabelTree.from_nested(
    {
        "survived": {"milder": ["none", "assisted"], "major": ["limited", "stroke", "coma"]},
        "died": None,
    }
)


@pytest.fixture
def wider(story):
    """The story after its tree got a leaf that the forest does not know."""
    known = pd.DataFrame(story.probabilities, columns=list(story.tree.leaves))
    p = known.reindex(columns=list(NEW.leaves), fill_value=0.0).to_numpy()
    labels = np.where(np.random.default_rng(3).random(len(p)) < 0.2, "stroke", story.labels)
    return dataclasses.replace(story, tree=NEW, probabilities=p, labels=labels)


def relabelled(story, names):
    """The story with a forest that calls its classes otherwise."""
    labels = pd.Series(story.labels).replace(names).to_numpy()
    forest = RandomForestClassifier(5, random_state=0).fit(story.frame[FEATURES], labels)
    return dataclasses.replace(story, forest=forest)


@pytest.mark.parametrize("initial", [None, "vector"])
def test_a_leaf_that_the_base_does_not_know_has_probability_0(wider, store, initial):
    boost = wider.boost(initial=initial)
    huc_mlflow.save_model(store / "saved", log_forest(wider), boost)
    model = mlflow.pyfunc.load_model(str(store / "saved"))
    answer = model.predict(wider.frame, PROBA)
    assert list(answer.columns) == [*wider.forest.classes_, "stroke"]
    expected = boost.predict_proba(wider.probabilities, features=wider.frame)
    np.testing.assert_array_equal(answer[list(NEW.leaves)].to_numpy(), expected)
    assert (answer["stroke"].mean() > 0.1) == (initial == "vector")
    labels = model.predict(wider.frame)
    np.testing.assert_array_equal(labels, np.array(NEW.leaves)[expected.argmax(axis=1)])
    base = huc_mlflow.load_model(store / "saved").base_probabilities(wider.frame)
    np.testing.assert_array_equal(base, wider.probabilities)


def test_a_base_that_answers_with_probabilities_gets_a_column_for_it(wider, store):
    boost = wider.boost()
    base = log_forest(wider, pyfunc_predict_fn="predict_proba")
    huc_mlflow.save_model(store / "saved", base, boost)
    answer = mlflow.pyfunc.load_model(str(store / "saved")).predict(wider.frame)
    order = [NEW.leaf_index(leaf) for leaf in [*wider.forest.classes_, "stroke"]]
    expected = boost.predict_proba(wider.probabilities, features=wider.frame)
    np.testing.assert_array_equal(answer, expected[:, order])


def test_wrapping_again_keeps_the_leaf(wider, store):
    huc_mlflow.save_model(store / "one", log_forest(wider), wider.boost())
    huc_mlflow.save_model(store / "two", store / "one", wider.boost(max_updates=1))
    once, twice = (huc_mlflow.load_model(store / name) for name in ("one", "two"))
    assert once.classes == twice.classes
    assert once.base.n_classes == twice.base.n_classes == 5
    assert twice.predict_proba(wider.frame).shape == (len(wider.frame), 6)


def test_classes_that_are_no_leaves_are_refused(story, store):
    smaller = hm.LabelTree.from_nested(
        {"survived": {"milder": ["none", "assisted"], "major": ["limited"]}, "died": None}
    )
    scaling = hm.recalibration.TemperatureScaling().fit(
        np.full((40, 4), 0.25), np.arange(40) % 4, tree=smaller
    )
    with pytest.raises(hm.InvalidInputError, match="no leaf is called 'coma'"):
        huc_mlflow.save_model(store / "saved", log_forest(story), scaling, tree=smaller)
    renamed = log_forest(relabelled(story, {"coma": "comma"}))
    with pytest.raises(hm.InvalidInputError, match=r"called 'comma'\. Did you mean 'coma'\?"):
        huc_mlflow.save_model(store / "saved", renamed, story.boost())
    leaves = story.tree.leaves
    with pytest.raises(hm.InvalidInputError, match="a leaf for each of the base's 5 classes"):
        huc_mlflow.save_model(store / "saved", renamed, story.boost(), classes=leaves[:4])
    twice = [*leaves[:4], leaves[0]]
    with pytest.raises(hm.InvalidInputError, match="is named twice"):
        huc_mlflow.save_model(store / "saved", renamed, story.boost(), classes=twice)
    assert not (store / "saved").exists()


def test_renamed_classes_are_wrapped_where_their_leaves_are_given(story, store):
    renamed = relabelled(story, {"coma": "comma"})
    classes = ["coma" if name == "comma" else str(name) for name in renamed.forest.classes_]
    huc_mlflow.save_model(store / "saved", log_forest(renamed), story.boost(), classes=classes)
    model = mlflow.pyfunc.load_model(str(store / "saved"))
    assert set(model.predict(story.frame)) <= set(renamed.forest.classes_)


def test_a_champion_of_the_tree_before_answers_0_for_a_new_leaf(wider, story, store):
    log_forest(story, "triage")
    huc_mlflow.register_recalibrated("triage", story.boost(), recalibration_id="first")
    registry = huc_mlflow.Registry("triage")
    world = World(wider, store, mlflow.get_tracking_uri(), enabled=False)
    reader = RowReader(load_config(world.config), registry)
    rows = SimpleNamespace(probabilities=wider.probabilities, features=wider.frame)
    replayed = reader.replay(registry.version("2"), rows)
    expected = story.boost().predict_proba(story.probabilities, features=story.frame)
    known = [NEW.leaf_index(leaf) for leaf in story.tree.leaves]
    np.testing.assert_array_equal(replayed[:, known], expected)
    assert (replayed[:, NEW.leaf_index("stroke")] == 0).all()


class WiderWorld(World):
    """A log with a column for the new leaf, which the base leaves at 0."""

    def base(self, frame):
        return super().base(frame).assign(stroke=0.0)


def diagnosis(world, capsys, check="recalibration"):
    capsys.readouterr()
    code = main(["doctor", "--json", "--config", str(world.config)])
    findings = json.loads(capsys.readouterr().out)["findings"]
    (found,) = [item for item in findings if item["check"] == check]
    return code, found


def test_the_doctor_shows_the_registry(story, store, capsys):
    log_forest(story, "triage")
    world = World(story, store, mlflow.get_tracking_uri(), enabled=False)
    world.serve(drift=0.0)
    code, found = diagnosis(world, capsys, "registry")
    assert (code, found["outcome"], found["text"]) == (0, "note", "triage: version 1; no champion")
    assert main(["promote", "--version", "1", "--config", str(world.config)]) == 0
    _, found = diagnosis(world, capsys, "registry")
    assert found["outcome"] == "ok"
    assert found["text"] == "triage: version 1; champion is version 1"


def test_the_doctor_tells_a_base_that_cannot_be_recalibrated_from_one_that_lacks_a_leaf(
    story, wider, store, capsys
):
    log_forest(story, "triage")
    world = WiderWorld(wider, store, mlflow.get_tracking_uri())
    world.serve(drift=0.0)
    _, found = diagnosis(world, capsys)
    assert found["outcome"] == "ok"
    assert "it does not know 'stroke', whose probability counts as 0" in found["text"]
    log_forest(relabelled(story, {"coma": "comma"}), "triage")
    code, found = diagnosis(world, capsys)
    assert (code, found["outcome"]) == (2, "wrong")
    assert "no leaf is called 'comma'. Did you mean 'coma'?" in found["text"]


@pytest.mark.slow
def test_a_tree_with_a_new_leaf_is_recalibrated_registered_and_served(wider, store):
    log_forest(wider, "triage")
    world = WiderWorld(wider, store, mlflow.get_tracking_uri(), enabled=False)
    for _ in range(2):
        world.serve(drift=1.0)
    world.check()
    host, trigger = a_trigger(world)
    assert "it does not know 'stroke', whose probability counts as 0" in host.ping()
    outcome = host.act(trigger)
    assert (outcome.version, outcome.promoted) == ("2", True), outcome.reasons
    world.serve(drift=1.0)
    (record,) = world.check().records
    assert (record.model_version, record.status) == ("2", "audited")


@pytest.mark.slow
def test_a_base_with_other_classes_is_refused_before_fitting(story, store, monkeypatch):
    log_forest(relabelled(story, {"coma": "comma"}), "triage")
    world = World(story, store, mlflow.get_tracking_uri(), enabled=False)
    world.serve(drift=1.0)
    world.check()
    monkeypatch.setattr(_recalibration_host, "find_recalibration", None)  # calling it would fail
    host, trigger = a_trigger(world)
    outcome = host.act(trigger)
    assert outcome.result == "refused"
    assert "no leaf is called 'comma'. Did you mean 'coma'?" in outcome.reasons[0]
    with pytest.raises(hm.InvalidInputError, match="no leaf is called 'comma'"):
        host.ping()
