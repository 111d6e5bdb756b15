"""A challenger beside the champion: promoted only if it stays better."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta

import huc_mlflow
import mlflow
import pytest
from huc_mlflow import _recalibration_host
from support.deployment import World, a_trigger, champion
from support.forests import log_forest
from support.mortal_check import Faults

import huc_monitor as hm
from huc_monitor.cli import main
from huc_monitor.recalibration.choosing import find_recalibration

pytestmark = pytest.mark.slow  # trials over several windows, on a real registry


@pytest.fixture(autouse=True)
def _no_kept_connections(monkeypatch):
    """The database is put back by copying its file, and a kept connection would not notice."""
    monkeypatch.setenv("MLFLOW_SQLALCHEMYSTORE_POOLCLASS", "NullPool")


class KilledError(BaseException):
    """Not an Exception: nothing may catch it, as nothing catches a kill."""


def die():
    raise KilledError


@pytest.fixture
def world(story, store, monkeypatch):
    """A deployment one drifted day old, whose host finds a known repair at once."""
    log_forest(story, "triage")
    made = World(story, store, mlflow.get_tracking_uri(), promotion="shadow", enabled=False)
    made.configure(shadow_windows=2)
    made.serve(drift=1.0)
    made.check()
    boost = story.boost()

    def known(*args, **kwargs):
        repair = find_recalibration(*args, **{**kwargs, "candidates": ["nothing"]})
        changes = {"name": "known", "recalibrator": boost, "passed": True, "reasons": ()}
        return type(repair)(**{**{n: getattr(repair, n) for n in repair.__slots__}, **changes})

    monkeypatch.setattr(_recalibration_host, "find_recalibration", known)
    return made


def days(world, n, *, drift):
    for _ in range(n):
        world.serve(drift=drift)
        result = world.check()
    return result


def status(world, capsys):
    capsys.readouterr()
    assert main(["status", "--config", str(world.config), "--json"]) in {0, 1}
    return json.loads(capsys.readouterr().out)["shadow"]


def test_a_challenger_that_stays_better_is_promoted(world, capsys):
    host, trigger = a_trigger(world)
    outcome = host.act(trigger)
    assert (outcome.version, outcome.promoted, outcome.shadow_windows) == ("2", False, 2)
    registry = huc_mlflow.Registry("triage")
    assert champion(registry) is None  # version 1 serves without an alias
    assert registry.version("2").tags["huc.shadow"] == "running"
    assert status(world, capsys)["windows"] == []
    days(world, 1, drift=1.0)
    assert world.champion().version in {1, "1"}
    (seen,) = status(world, capsys)["windows"]
    assert seen["ordinal"] == 2
    assert seen["huc"][1] < seen["huc"][0] / 2
    assert main(["status", "--config", str(world.config)]) == 1
    assert "version 2 beside champion 1: running, 1 of 2 windows" in capsys.readouterr().out
    days(world, 1, drift=1.0)
    assert champion(registry) == "2"
    assert registry.version("2").tags["huc.shadow"] == "passed"
    assert registry.version("2").tags["huc.previous_champion"] == "1"
    assert status(world, capsys) is None
    run = host.tracker.runs.find("retraining", trigger.id)
    for role in ("champion", "challenger"):
        history = host.tracker._client.get_metric_history(run.info.run_id, f"shadow/{role}/huc")
        assert [point.step for point in history] == [2, 3]
    message = days(world, 1, drift=1.0).message
    assert "Version 2 is champion" in message.text


def test_a_challenger_that_does_not_stay_better_is_refused_with_reasons(world):
    host, trigger = a_trigger(world)
    host.act(trigger)
    days(world, 3, drift=0.0)
    registry = huc_mlflow.Registry("triage")
    refused = registry.version("2")
    assert champion(registry) is None
    assert refused.tags["huc.shadow"] == "refused"
    assert "log loss rises" in refused.tags["huc.shadow_reasons"]
    assert registry.at("challenger") is None
    with pytest.raises(hm.InvalidInputError, match="nothing to promote"):
        registry.promote()
    assert registry.promote("2").version == "2"  # a person may know better


def test_a_window_in_maintenance_is_no_part_of_a_trial(world, capsys):
    host, trigger = a_trigger(world)
    host.act(trigger)
    start, end = (world.first + timedelta(days=n) for n in (1, 2))
    world.settings["maintenance"] = [{"start": start.isoformat(), "end": end.isoformat()}]
    world.configure()
    days(world, 2, drift=0.0)
    (seen,) = status(world, capsys)["windows"]
    assert seen["ordinal"] == 3


def test_the_answers_of_a_challenger_are_recomputed_exactly(world, story):
    host, trigger = a_trigger(world)
    host.act(trigger)
    version = huc_mlflow.Registry("triage").version("2")
    first = huc_mlflow.Registry("triage").version("1")
    record = host.tracker.window(1)
    rows = host.reader.read(first, record.start, record.end, versions=[version])
    got = host.reader.replay(version, rows)
    expected = story.boost().predict_proba(rows.probabilities, features=rows.features)
    assert abs(got - expected).max() <= 1e-12
    assert host.reader.replay(first, rows) is rows.probabilities


def test_a_trial_ends_when_a_person_decides(world):
    host, trigger = a_trigger(world)
    host.act(trigger)
    registry = huc_mlflow.Registry("triage")
    registry.promote("2")
    days(world, 1, drift=1.0)
    tags = registry.version("2").tags
    assert (tags["huc.shadow"], champion(registry)) == ("ended", "2")
    assert "version 2 became champion meanwhile" in tags["huc.shadow_reasons"]


def test_during_a_trial_only_a_person_starts_another(world):
    host, trigger = a_trigger(world)
    host.act(trigger)
    world.configure(cool_down="0s")
    host, other = a_trigger(world, id="0000000000000002")
    assert "a trial is still going on: version 2" in host.act(other).reasons[0]
    outcome = host.recalibrate("new price list")
    assert outcome.version == "3"
    registry = huc_mlflow.Registry("triage")
    assert registry.version("2").tags["huc.shadow"] == "ended"
    assert host.trial().version == "3"


def test_a_trial_survives_a_kill_at_any_write(world, store, monkeypatch):
    host, trigger = a_trigger(world)
    host.act(trigger)
    world.configure(shadow_windows=2)
    for _ in range(2):
        world.serve(drift=1.0)
    monkeypatch.setattr(_recalibration_host.Shadow, "follow", lambda *_: None)
    world.check()
    monkeypatch.undo()
    monkeypatch.chdir(store)
    clean = store.parent / f"{store.name}-clean"
    shutil.copytree(store, clean)
    faults = Faults(monkeypatch.setattr, die)

    def follow():
        fresh, _ = a_trigger(world)
        return fresh.follow(fresh._state().last)

    faults.arm()
    assert "is champion" in follow()
    total = faults.count
    places = [(k, after) for k in range(1, total + 1) for after in (False, True)]
    assert len(places) >= 16
    for at, after in places:
        shutil.copy(clean / "mlflow.db", store / "mlflow.db")
        faults.arm(at, after=after)
        with pytest.raises(KilledError):
            follow()
        faults.arm()
        follow()
        place = f"{'after' if after else 'before'} write {at} of {total}"
        registry = huc_mlflow.Registry("triage")
        assert champion(registry) == "2", place
        assert registry.version("2").tags["huc.shadow"] == "passed", place
        run = host.tracker.runs.find("retraining", trigger.id)
        client = host.tracker._client
        for name in ("huc", "log_loss"):
            history = client.get_metric_history(run.info.run_id, f"shadow/challenger/{name}")
            assert [point.step for point in history] == [2, 3], place
        assert follow() is None
        # Only a kill between the last word and the end of the lease leaves it to expire.
        assert registry.lease._held() is None or (at, after) == (total, False), place
