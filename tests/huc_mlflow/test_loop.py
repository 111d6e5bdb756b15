"""The closed loop: a drift is found, repaired, promoted, and the alert goes away."""

from __future__ import annotations

import json

import huc_mlflow
import mlflow
import pytest
from support.deployment import STRICT, World, check_records, check_rollback, check_story, tell
from support.documents import assert_follows
from support.forests import log_forest

from huc_monitor.cli import main


@pytest.mark.slow
def test_the_loop_closes_on_sqlite_without_a_server(story, store, capsys):
    log_forest(story, "triage")
    world = World(story, store, mlflow.get_tracking_uri())
    world.configure(gate=STRICT)
    results = tell(world, days=30, drift_from=15)
    check_story(world, results, 15)
    check_records(world, 30)
    check_rollback(world, capsys)


@pytest.mark.slow
def test_recalibrate_promote_and_rollback_are_commands(story, store, capsys):
    log_forest(story, "triage")
    world = World(story, store, mlflow.get_tracking_uri(), promotion="manual", enabled=False)
    for _ in range(3):
        world.serve(drift=1.0)
    world.check()
    capsys.readouterr()
    config = ["--config", str(world.config)]
    assert main(["recalibrate", *config, "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert_follows("recalibrate", outcome)
    assert (outcome["result"], outcome["version"], outcome["promoted"]) == (
        "registered",
        "2",
        False,
    )
    assert main(["recalibrate", *config]) == 0
    assert "version 2 as challenger" in capsys.readouterr().out
    assert len(huc_mlflow.Registry("triage").versions()) == 2
    assert main(["promote", *config]) == 0
    assert "champion is version 2 instead of version 1" in capsys.readouterr().out
    assert main(["promote", *config]) == 0
    assert "nothing to do, version 2 is champion already" in capsys.readouterr().out
    assert main(["promote", *config, "--version", "9"]) == 2
    said = capsys.readouterr()
    assert "`version` must be a version of 'triage'; got '9'. There are: 1, 2." in said.err
    assert "Downloading" not in said.err + said.out
    assert main(["rollback", *config, "--json"]) == 0
    move = json.loads(capsys.readouterr().out)
    assert_follows("rollback", move)
    assert_follows("promote", move)
    assert move["version"] == "1"
    assert main(["rollback", *config]) == 2
    assert "must have a champion that replaced another" in capsys.readouterr().err
    assert main(["promote", *config]) == 2
    assert "There is nothing to promote: 'triage' has no challenger" in capsys.readouterr().err
