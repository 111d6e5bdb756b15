from __future__ import annotations

import json
import time

import huc_mlflow
import mlflow
import pytest
from mlflow.tracking._model_registry.utils import _get_store_registry
from support.deployment import DAY, World, a_trigger, champion
from support.forests import log_forest, make_rows

import huc_monitor as hm
from huc_monitor.recalibration import TemperatureScaling


@pytest.fixture
def registry(store):  # noqa: ARG001 - the store is what it lives in
    made = huc_mlflow.Registry("triage")
    made.client.create_registered_model("triage")
    for _ in range(3):
        made.client.create_model_version("triage", source="s3://bucket/model")
    return made


def test_promotion_writes_down_what_was_champion_before(registry):
    registry.promote("1")
    move = registry.promote("2")
    assert (move.version, move.previous, champion(registry)) == ("2", "1", "2")
    assert registry.version("2").tags["huc.previous_champion"] == "1"


def test_promoting_twice_does_not_forget_the_version_before(registry):
    registry.promote("1")
    registry.promote("2")
    assert registry.promote("2").previous == "1"
    assert registry.rollback().version == "1"


def test_rollback_restores_and_takes_the_challenger_away(registry):
    registry.promote("1")
    registry.client.set_registered_model_alias("triage", "challenger", "2")
    registry.promote()
    move = registry.rollback()
    assert (move.version, move.previous, champion(registry)) == ("1", "2", "1")
    assert registry.at("challenger") is None
    assert registry.version("2").tags["huc.rolled_back"] == "true"


@pytest.mark.parametrize(
    ("step", "call"),
    [
        ("set_registered_model_alias", 1),
        ("delete_registered_model_alias", 1),
        ("set_model_version_tag", 1),
        ("set_tag", 1),
        ("set_tag", 2),
    ],
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_rollback_that_died_is_completed_by_the_next(registry, monkeypatch, step, call, after):
    registry.promote("1")
    registry.promote("2")
    registry.client.set_registered_model_alias("triage", "challenger", "2")
    original = getattr(registry.client, step)
    calls = []

    def die(*args, **kwargs):
        calls.append(args)
        if len(calls) < call or after:
            original(*args, **kwargs)
        if len(calls) == call:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(registry.client, step, die)
        with pytest.raises(KeyboardInterrupt):
            registry.rollback()
    if not (call == 2 and after):  # then it had ended
        assert registry.rollback().version == "1"
    assert champion(registry) == "1"
    assert registry.at("challenger") is None
    with pytest.raises(hm.InvalidInputError, match=r"has none. Name the version"):
        registry.rollback()


def test_who_is_promoted_is_challenger_no_more(registry):
    registry.promote("1")
    registry.client.set_registered_model_alias("triage", "challenger", "2")
    registry.promote()
    assert champion(registry) == "2"
    assert registry.at("challenger") is None
    registry.client.set_registered_model_alias("triage", "challenger", "2")  # died in between
    assert not registry.promote("2").moved
    assert registry.at("challenger") is None


def test_promoting_another_version_leaves_the_challenger(registry):
    registry.client.set_registered_model_alias("triage", "challenger", "2")
    registry.promote("3")
    assert str(registry.at("challenger").version) == "2"


@pytest.mark.parametrize("name", ["nurse's triage", 'the "new" one', "100%_sure"])
def test_names_with_quotes_are_searched_for(store, name):  # noqa: ARG001
    made = huc_mlflow.Registry(name)
    for other in (name, "another"):
        made.client.create_registered_model(other)
        made.client.create_model_version(other, source="s3://bucket/model")
    assert [version.name for version in made.versions()] == [name]
    with made.lease.hold("x"):
        pass


@pytest.mark.parametrize("name", ["a\\", 'it\'s "it"'])
def test_a_name_that_cannot_be_searched_for_is_refused(name):
    with pytest.raises(hm.InvalidInputError, match="no backslash, and not both kinds of quotes"):
        huc_mlflow.Registry(name)


@pytest.fixture
def unity_catalog(monkeypatch):
    """Its registry, as far as this needs it: it refuses, and every call of it is noted."""
    calls = []

    def refuse(uri):
        calls.append(uri)
        message = "not supported for models in the Unity Catalog"
        raise mlflow.exceptions.MlflowException(message)

    for scheme in ("databricks-uc", "uc"):
        stores = _get_store_registry()._registry
        monkeypatch.setitem(stores, scheme, lambda store_uri, **_: refuse(store_uri))
    return calls


@pytest.mark.parametrize("uri", ["databricks-uc", "databricks-uc://profile", "uc:http://host"])
def test_unity_catalog_is_refused_before_any_work_with_the_reason(story, store, unity_catalog, uri):
    world = World(story, store, f"sqlite:///{store}/mlflow.db")
    world.settings["tracker"]["settings"]["registry_uri"] = uri
    world.configure()
    frame, labels = make_rows(50, 1, story.tree)
    world.base(frame).assign(at=DAY, label=labels, id=range(50), version="1", **frame).to_parquet(
        store / "log" / "1.parquet"
    )
    with pytest.raises(hm.InvalidInputError, match=r"does not search versions by tags.*workspace"):
        world.check()
    assert unity_catalog == []
    with pytest.raises(mlflow.exceptions.MlflowException, match="in the Unity Catalog"):
        mlflow.MlflowClient(registry_uri=uri).get_registered_model("triage")
    assert unity_catalog == [uri]


def test_under_unity_catalog_the_alert_status_is_on_the_run_alone(store, unity_catalog):
    from huc_mlflow._tracker import MLflowTracker

    from huc_monitor.monitor.ports import MonitorInfo

    info = MonitorInfo("triage", "5f", model="main.models.triage")
    uris = {"tracking_uri": f"sqlite:///{store}/mlflow.db", "registry_uri": "databricks-uc"}
    mine = MLflowTracker(info, **uris)
    mine.set_alert_status("critical", ())
    assert mine._client.get_run(mine.run_id).data.tags["huc.status"] == "critical"
    assert unity_catalog == []


def test_there_is_nothing_to_promote_without_a_challenger(registry):
    with pytest.raises(hm.InvalidInputError, match=r"has no challenger. .* \(there are: 1, 2, 3\)"):
        registry.promote()


def test_a_version_that_is_not_there_is_named_with_those_that_are(registry):
    with pytest.raises(hm.UnknownNameError, match=r"got '9'. There are: 1, 2, 3"):
        registry.promote("9")


def test_promoting_the_champion_moves_nothing(registry):
    assert registry.promote("1").moved
    assert not registry.promote("1").moved


def test_without_a_champion_the_newest_version_that_is_no_recalibration_counts(registry):
    registry.client.set_model_version_tag("triage", "3", "huc.recalibration_id", "x")
    assert str(registry.current().version) == "2"


def test_one_process_recalibrates_at_a_time_and_a_lease_expires(registry):
    with registry.lease.hold("one", seconds=1.5):
        with pytest.raises(huc_mlflow.BusyError, match="recalibrated by another process"):
            registry.lease._take("two", "ticket", 10)
        with registry.lease.hold("one"):
            pass  # the same recalibration may go on
    with registry.lease.hold("two"):
        pass
    registry.lease._take("dead", "ticket", 0.5)
    time.sleep(0.6)
    with registry.lease.hold("two"):
        pass


def test_registering_again_finds_the_version(story, store):  # noqa: ARG001
    log_forest(story, "triage")
    scaling = TemperatureScaling().fit(story.probabilities, story.labels, tree=story.tree)
    options = {
        "recalibration_id": "abc",
        "tree": story.tree,
        "description": "card",
        "tags": {"a": 1},
    }
    with mlflow.start_run() as run:
        first = huc_mlflow.register_recalibrated(
            "triage", scaling, run_id=run.info.run_id, **options
        )
        again = huc_mlflow.register_recalibrated(
            "triage", scaling, run_id=run.info.run_id, **options
        )
    assert str(first.version) == str(again.version) == "2"
    registry = huc_mlflow.Registry("triage")
    version = registry.at("challenger")
    assert (str(version.version), version.description) == ("2", "card")
    assert version.tags["huc.base_version"] == "1"
    assert version.tags["a"] == "1"
    # A request that MLflow's client repeated left a second version.
    registry.client.create_model_version(
        "triage", source=version.source, tags=dict(version.tags), model_id=None
    )
    huc_mlflow.register_recalibrated("triage", None, recalibration_id="abc")
    assert [str(v.version) for v in registry.versions()] == ["1", "2"]
    assert str(registry.root(version).version) == "1"


@pytest.mark.slow
def test_a_refused_gate_is_recorded_with_its_reasons_and_does_not_loop(story, store):
    log_forest(story, "triage")
    world = World(story, store, mlflow.get_tracking_uri(), enabled=False)
    world.settings["recalibration"]["gate"]["min_improvement"] = 0.999
    world.config.write_text(json.dumps(world.settings))
    for _ in range(2):
        world.serve(drift=1.0)
    world.check()
    host, trigger = a_trigger(world)
    outcome = host.act(trigger)
    assert outcome.result == "refused"
    assert "it must fall by at least" in outcome.reasons[0]
    assert host.act(trigger) == outcome
    (run,) = host.tracker.runs.search("retraining")
    assert run.data.tags["huc.gate"] == "refused"
    assert "must fall" in run.data.tags["huc.reasons"]
    assert len(huc_mlflow.Registry("triage").versions()) == 1
    _, sooner = a_trigger(world, id="0000000000000001")
    assert "cool-down" in host.act(sooner).reasons[0]
