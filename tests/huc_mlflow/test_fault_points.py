"""A check and its retraining, killed before and after remote writes, then run again."""

from __future__ import annotations

import shutil

import huc_mlflow
import mlflow
import pytest
from conftest import log_forest
from huc_mlflow import _retrainer
from test_loop import World

from huc_monitor.config import load_config
from huc_monitor.opening import open_tracker

pytestmark = pytest.mark.slow

WRITES = ("create_", "set_", "log_", "update_", "delete_", "finalize_", "record_", "_set_")
N_POINTS = 24


class KilledError(BaseException):
    """Not an Exception: nothing may catch it, as nothing catches a kill."""


class Faults:
    """Counts writes to the stores, and dies at one of them."""

    def __init__(self, monkeypatch) -> None:
        from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
        from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore as RegistryStore
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore as TrackingStore

        self.at, self.after, self.count, self.depth = None, False, 0, 0
        self.names = []
        for kind in (TrackingStore, RegistryStore, LocalArtifactRepository):
            for name in dir(kind):
                if name.startswith(WRITES) and callable(getattr(kind, name)):
                    monkeypatch.setattr(kind, name, self._wrap(getattr(kind, name), name))

    def _wrap(self, original, name):
        def call(*args, **kwargs):
            if self.depth:  # a write inside a write is the same request
                return original(*args, **kwargs)
            self.count += 1
            self.names.append(name)
            if self.count == self.at and not self.after:
                raise KilledError
            self.depth += 1
            try:
                answer = original(*args, **kwargs)
            finally:
                self.depth -= 1
            if self.count == self.at:
                raise KilledError
            return answer

        return call

    def arm(self, at=None, *, after=False):
        self.at, self.after, self.count, self.names = at, after, 0, []


def remember_repair(monkeypatch):
    """Search for the repair once; what is tested here is what happens around it."""
    known = {}
    original = _retrainer.find_repair

    def find(*args, **kwargs):
        if "repair" not in known:
            known["repair"] = original(*args, **kwargs)
        return known["repair"]

    monkeypatch.setattr(_retrainer, "find_repair", find)


def assert_one_of_everything(world):
    tracker = open_tracker(load_config(world.config))
    records = tracker.records()
    assert [record.ordinal for record in records] == [1, 2, 3]
    assert len(list(tracker._search("window"))) == 3
    assert len(list(tracker._search("monitor"))) == 1
    assert len(list(tracker._search("retraining"))) == 1
    metrics = tracker._client.get_run(tracker.run_id).data.metrics
    for key in ("monitor/huc", "huc/level3/all/major", "huc_upper/level1/all/root"):
        assert key in metrics
        history = tracker._client.get_metric_history(tracker.run_id, key)
        assert [point.step for point in history] == [1, 2, 3]
    registry = huc_mlflow.Registry(world.name)
    assert [str(version.version) for version in registry.versions()] == ["1", "2"]
    assert str(registry.at("champion").version) == "2"
    assert registry.version("2").tags["huc.previous_champion"] == "1"
    assert registry._lease() is None


def test_killed_anywhere_and_run_again_leaves_one_of_everything(story, store, monkeypatch):
    log_forest(story, "triage")
    world = World(story, store, mlflow.get_tracking_uri())
    for _ in range(3):
        world.serve(drift=1.0)
    remember_repair(monkeypatch)
    clean = store.parent / f"{store.name}-clean"
    shutil.copytree(store, clean)
    faults = Faults(monkeypatch)

    def fresh():
        for name in ("mlflow.db", "artifacts", "mlruns"):
            target = store / name
            if target.is_dir():
                shutil.rmtree(target)
            if (clean / name).is_dir():
                shutil.copytree(clean / name, target)
            elif (clean / name).is_file():
                shutil.copy(clean / name, target)

    faults.arm()
    world.check()
    total = faults.count
    assert_one_of_everything(world)
    places = [(k, after) for k in range(1, total + 1) for after in (False, True)]
    chosen = places[:: max(1, len(places) // N_POINTS)]
    assert len(chosen) >= 20
    for at, after in chosen:
        fresh()
        faults.arm(at, after=after)
        with pytest.raises(KilledError):
            world.check()
        place = f"{'after' if after else 'before'} write {at} of {total}: {faults.names[-1]}"
        faults.arm()
        try:
            world.check()
            assert_one_of_everything(world)
        except AssertionError as error:
            raise AssertionError(place) from error
