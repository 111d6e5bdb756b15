from __future__ import annotations

import mlflow
import pytest
from support.production_log import after, make_log, write_project

from huc_monitor.config import load_config
from huc_monitor.config.opening import open_actions, open_monitor, open_tracker
from huc_monitor.monitor.keeping import Keeper

TRACKER = """\
tracker:
  name: mlflow
  settings: {{tracking_uri: "sqlite:///{store}/mlflow.db", experiment: triage}}
"""


@pytest.fixture
def files(tmp_path, store):  # noqa: ARG001 - MLflow is in the same folder
    config = write_project(tmp_path / "project", *make_log(4, 600, broken_from=2))
    open_monitor(config).check(after(3.6))
    return config


def keeper_of(config):
    given = load_config(config)
    return Keeper(tracker=open_tracker(given), identity=given.identity, name="intrusion")


def test_a_monitor_moves_to_mlflow_where_people_go_on(files, store):
    """From files to MLflow with open alerts; ack and mute there; the next check obeys them."""
    moved = files.with_name("mlflow.yaml")
    moved.write_text(files.read_text("utf-8") + TRACKER.format(store=store), "utf-8")
    source, target = keeper_of(files), keeper_of(moved)
    assert source.copy_to(target) == 3
    assert target.tracker.load_state() == source.tracker.load_state()
    assert [r.to_dict() for r in target.tracker.records()] == [
        r.to_dict() for r in source.tracker.records()
    ]

    def tags():
        return mlflow.MlflowClient().get_run(target.tracker.run_id).data.tags

    actions = open_actions(moved)
    assert actions.ack(branch="attack", by="ann", text="looking", now=after(3.6))
    assert "Acknowledged by ann, 2024-03-04 14:24 UTC: looking" in tags()["huc.alerts"]
    actions.mute(until="7d", by="ann", now=after(3.6))
    assert tags()["huc.status"] == "ok"
    assert "muted by ann until 2024-03-11 14:24 UTC" in tags()["huc.alerts"]
    result = open_monitor(moved).check(after(4.6))
    assert (result.status, [record.ordinal for record in result]) == ("ok", [4])
    assert result.alerts
    kept = target.tracker.records()[-1].alerts
    assert {action.by for alert in kept for action in alert.actions} == {"ann"}
