"""A recalibration is fitted to what the root base predicted, whatever the log holds."""

from __future__ import annotations

import re
from datetime import timedelta

import huc_mlflow
import mlflow
import numpy as np
import pandas as pd
import pytest
from huc_mlflow import _recalibration_host
from huc_mlflow._rows import NoBaseProbabilitiesError, RowReader
from support.deployment import DAY, World, a_trigger
from support.forests import FEATURES, log_forest

import huc_monitor as hm
from huc_monitor.config import load_config


def boost(story):
    return story.boost(subgroups=hm.Subgroups.from_reference(story.frame, {"sex": "each"}))


@pytest.fixture
def serve(story, store):
    """Serve one day by version 1 and one by version 2, which recalibrates it."""

    def made(*logs):
        log_forest(story, "triage")
        world = World(story, store, mlflow.get_tracking_uri(), enabled=False, logs=logs)
        world.serve(drift=1.0)
        registry = huc_mlflow.Registry("triage")
        registry.promote("1")
        huc_mlflow.register_recalibrated("triage", boost(story), recalibration_id="first")
        registry.promote("2")
        world.serve(drift=1.0)
        return world, registry

    return made


def read(world, registry, *, day):
    start = DAY + timedelta(days=day - 1)
    reader = RowReader(load_config(world.config), registry)
    base, versions = registry.version("1"), [registry.version("2")]
    return reader, reader.read(base, start, start + timedelta(days=1), versions=versions)


def logged(world, day):
    """Return the log of a day, and what was served on it."""
    frame = pd.read_parquet(world.folder / "log" / f"{day:03d}.parquet")
    return frame, frame[list(world.story.tree.leaves)].to_numpy()


def test_columns_of_the_base_are_taken_where_the_log_has_them(serve):
    world, registry = serve("base", "version")
    _, rows = read(world, registry, day=2)
    frame, served = logged(world, 2)
    assert not set(FEATURES) & set(frame.columns)  # nothing to score: only the columns can tell
    expected = frame[[f"base_{leaf}" for leaf in world.story.tree.leaves]].to_numpy()
    assert np.array_equal(rows.probabilities, expected)
    assert np.abs(served - expected).max() > 0.01


def test_rows_that_the_base_served_are_its_own(serve):
    world, registry = serve("version")
    _, rows = read(world, registry, day=1)
    assert np.array_equal(rows.probabilities, logged(world, 1)[1])


def test_other_rows_are_scored_with_the_base(serve):
    world, registry = serve("features", "version")
    reader, rows = read(world, registry, day=2)
    frame, served = logged(world, 2)
    expected = world.base(frame)[list(world.story.tree.leaves)].to_numpy()
    assert np.abs(rows.probabilities - expected).max() <= 1e-12
    replayed = reader.replay(registry.version("2"), rows)
    assert np.abs(replayed - served).max() <= 1e-12
    assert rows.labels.tolist() == world.story.tree.encode(frame["label"]).tolist()


@pytest.mark.parametrize("logs", [("version",), ()], ids=["versions", "no versions"])
def test_without_columns_and_features_a_recalibration_is_refused(serve, logs):
    world, registry = serve(*logs)
    with pytest.raises(NoBaseProbabilitiesError, match=r"`columns.base_probabilities` must say"):
        read(world, registry, day=2)
    world.check()
    host, trigger = a_trigger(world)
    outcome = host.act(trigger)
    assert outcome.result == "refused"
    assert "the log lacks 'f0', 'f1', 'f2', 'f3', which the base reads" in outcome.reasons[0]
    assert len(registry.versions()) == 2
    assert host.act(trigger) == outcome  # recorded, and not tried again


def test_without_versions_the_log_is_the_base_s_until_a_recalibration_was_champion(story, store):
    log_forest(story, "triage")
    world = World(story, store, mlflow.get_tracking_uri(), enabled=False, logs=())
    world.serve(drift=1.0)
    registry = huc_mlflow.Registry("triage")
    huc_mlflow.register_recalibrated("triage", boost(story), recalibration_id="first")
    _, rows = read(world, registry, day=1)
    assert len(rows.labels) == 900
    registry.promote("2")
    registry.rollback()
    with pytest.raises(NoBaseProbabilitiesError, match="perhaps by a recalibrated version"):
        read(world, registry, day=1)


@pytest.mark.slow
def test_a_recalibration_on_a_sample_says_so_on_its_card(story, store):
    log_forest(story, "triage")
    world = World(story, store, mlflow.get_tracking_uri(), enabled=False)
    world.settings["large"] = {"rows": 4_000}
    world.configure()
    for _ in range(6):
        world.serve(drift=1.0)
    world.check()
    host, trigger = a_trigger(world)
    state = host._state()
    first = min(alert.first_seen for alert in state.open_alerts if alert.level == "critical")
    n_rows = 900 * (trigger.window_end - first).days
    outcome = host.act(trigger)
    version = huc_mlflow.Registry("triage").version(outcome.version)
    assert version.tags["huc.sampled_from"] == str(n_rows) == "5400"
    found = re.search(r"judged on ([\d,]+) of 5,400 labelled rows.* further than ([\d.]+) from",
                      version.description)  # fmt: skip
    assert abs(int(found[1].replace(",", "")) - 4_000) < 150
    assert 0 < float(found[2]) < 1


@pytest.mark.slow
def test_a_second_recalibration_is_fitted_to_the_root_and_must_beat_the_first(
    story, store, monkeypatch
):
    log_forest(story, "triage")
    first = hm.TemperatureScaling().fit(story.probabilities, story.labels, tree=story.tree)
    first.theta_ = np.array([4.0])  # far too sure of itself: what comes next surely beats it
    huc_mlflow.register_recalibrated("triage", first, recalibration_id="first", tree=story.tree)
    huc_mlflow.promote("triage", "2")
    world = World(story, store, mlflow.get_tracking_uri(), enabled=False)
    for _ in range(3):
        world.serve(drift=1.0)
    world.check()
    seen = {}
    original = _recalibration_host.find_recalibration

    def find(probabilities, labels, **options):
        repair = original(probabilities, labels, **options)
        seen.update(base=probabilities, current=options["current"], repair=repair)
        return repair

    monkeypatch.setattr(_recalibration_host, "find_recalibration", find)
    host, trigger = a_trigger(world)
    outcome = host.act(trigger)
    frame, served = logged(world, 3)
    expected = world.base(frame)[list(story.tree.leaves)].to_numpy()
    assert np.abs(seen["base"][-900:] - expected).max() <= 1e-12
    assert np.abs(seen["current"][-900:] - served).max() <= 1e-12
    assert outcome.version == "3", outcome.reasons
    version = huc_mlflow.Registry("triage").version("3")
    assert version.tags["huc.base_version"] == "1"
    assert version.tags["huc.previous_champion"] == "2"
    assert len(huc_mlflow.load_model("models:/triage/3").stages) == 1
    card = version.description
    assert "| | base (version 1) | serving (version 2) | candidate (this version) |" in card
    figures = [getattr(seen["repair"], name).log_loss for name in ("base", "before", "after")]
    assert len(set(figures)) == 3
    assert f"| log loss | {' | '.join(f'{value:.4f}' for value in figures)} |" in card
