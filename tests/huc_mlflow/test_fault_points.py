"""A check with its recalibration, killed before and after remote writes, then run again."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3

import huc_mlflow
import mlflow
import pytest
import yaml
from support import mortal_check
from support.deployment import World
from support.forests import log_forest
from support.forked import Processes

from huc_monitor.config import load_config
from huc_monitor.config.opening import open_tracker

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _no_kept_connections(monkeypatch):
    """The database is put back by copying its file, and a kept connection would not notice."""
    monkeypatch.setenv("MLFLOW_SQLALCHEMYSTORE_POOLCLASS", "NullPool")


def points_of(store):
    """Every metric point of every run by name of run, as the database has it."""
    with sqlite3.connect(store / "mlflow.db") as database:
        rows = database.execute(
            "select r.name, m.key, m.step, m.value from metrics m join runs r "
            "on r.run_uuid = m.run_uuid where r.lifecycle_stage = 'active'"
        ).fetchall()
    return sorted(rows)


def assert_one_of_everything(world, store, expected):
    tracker = open_tracker(load_config(world.config))
    records = tracker.records()
    assert [record.ordinal for record in records] == [1, 2]
    kinds = {
        kind: len(list(tracker.runs.search(kind))) for kind in ("monitor", "window", "retraining")
    }
    assert kinds == {"monitor": 1, "window": 2, "retraining": 1}
    assert points_of(store) == expected
    registry = huc_mlflow.Registry(world.name)
    assert [str(version.version) for version in registry.versions()] == ["1", "2"]
    assert str(registry.at("champion").version) == "2"
    assert registry.version("2").tags["huc.previous_champion"] == "1"
    assert registry.lease._held() is None
    assert tracker.load_state()["trigger"] is None


def chosen_points(names):
    """Every kind of write, before or after, and some more in between: at least 20."""
    first = {name: place for place, name in reversed(list(enumerate(names, 1)))}
    places = {(place, bool(k % 2)) for k, place in enumerate(sorted(first.values()))}
    step = max(1, len(names) // 6)
    places |= {(k * step, bool(k % 2)) for k in range(1, len(names) // step + 1)}
    return sorted(places | {(len(names), False), (len(names), True)})


def test_killed_anywhere_and_run_again_leaves_one_of_everything(story, store):
    log_forest(story, "triage")
    world = World(story, store, mlflow.get_tracking_uri())
    world.settings["sequential"] = {"enabled": False}
    world.settings["bounds"] = {"draws": 100}
    world.configure(critical_windows=2)
    for _ in range(2):
        world.serve(drift=1.0)
    clean = store.parent / f"{store.name}-clean"
    shutil.copytree(store, clean)
    told = store / "told.json"

    def fresh():
        for name in ("artifacts", "mlruns"):
            shutil.rmtree(store / name, ignore_errors=True)
            if (clean / name).is_dir():
                shutil.copytree(clean / name, store / name)
        shutil.copy(clean / "mlflow.db", store / "mlflow.db")

    processes = Processes()
    arguments = (mortal_check.check, str(world.config), world.now, str(told))
    assert processes.run(*arguments) == 0
    names = json.loads(told.read_text())
    expected = points_of(store)
    assert len(expected) > 100
    assert_one_of_everything(world, store, expected)
    places = chosen_points(names)
    assert len(places) >= 20
    for at, after in places:
        fresh()
        place = f"{'after' if after else 'before'} write {at} of {len(names)}: {names[at - 1]}"
        assert processes.run(*arguments, at, after) == -signal.SIGKILL, place
        assert processes.run(*arguments) == 0, place
        try:
            assert_one_of_everything(world, store, expected)
        except Exception as error:
            error.add_note(place)
            raise


@pytest.mark.parametrize("settle", [0.3, 0.0], ids=["in time", "too slow to see each other"])
def test_two_monitors_that_trigger_at_once_make_one_version(story, store, settle):
    log_forest(story, "triage")
    world = World(story, store, mlflow.get_tracking_uri())
    world.settings["sequential"] = {"enabled": False}
    world.settings["bounds"] = {"draws": 100}
    world.configure(critical_windows=2)
    for _ in range(2):
        world.serve(drift=1.0)
    # Another monitor of the same model: it has triggers of its own.
    other = store / "other.yaml"
    utilities = [utility.to_dict() for utility in story.utilities[1:]]
    other.write_text(yaml.safe_dump({**world.settings, "utilities": utilities}))
    configs = [str(world.config), str(other)]
    assert len({load_config(config).identity for config in configs}) == 2
    processes = Processes()
    barrier = processes.context.Barrier(2)
    running = [
        processes.start(mortal_check.check_together, config, world.now, barrier, settle)
        for config in configs
    ]
    for process in running:
        process.join(120)
        assert process.exitcode == 0
    registry = huc_mlflow.Registry("triage")
    assert [str(version.version) for version in registry.versions()] == ["1", "2"]
    for config in configs:  # what was put off is decided now, and changes nothing
        told = str(store / "told.json")
        assert processes.run(mortal_check.check, config, world.now, told) == 0
    assert [str(version.version) for version in registry.versions()] == ["1", "2"]
    assert str(registry.at("champion").version) == "2"
    assert registry.lease._held() is None
    made = [
        run.data.tags["huc.gate"]
        for config in configs
        for run in open_tracker(load_config(config)).runs.search("retraining")
    ]
    assert sorted(made) == ["passed", "refused"]
