"""Beside MLflow's basic authentication: it works with credentials, and they are kept secret."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import mlflow
import pandas as pd
import pytest
from support.deployment import World
from support.forests import log_forest
from support.forked import Processes
from support.mlflow_servers import mlflow_server

from huc_monitor.monitor.ports import MonitorInfo

pytestmark = pytest.mark.slow

PASSWORD, DATABASE_PASSWORD, TOKEN = "hush-4711-tracking", "hush-0815-database", "hush-token-0042"
SECRETS = (PASSWORD, DATABASE_PASSWORD, TOKEN)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, _empty_database):
    """A tracking server that asks who one is."""
    pytest.importorskip("flask_wtf", reason="MLflow's basic-auth needs Flask-WTF")
    folder = tmp_path_factory.mktemp("guarded")
    shutil.copy(_empty_database, folder / "mlflow.db")
    with mlflow_server(f"sqlite:///{folder}/mlflow.db", folder, password=PASSWORD) as address:
        yield address, folder


@pytest.fixture
def world(story, guarded, postgres, tmp_path, monkeypatch):
    """A deployment whose log lies in a database that is reached with a password too."""
    import sqlalchemy

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    address, _ = guarded
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(address)
    mlflow.set_experiment("triage")
    log_forest(story, "triage")
    made = World(story, tmp_path, address, enabled=False)
    for _ in range(2):
        made.serve(drift=1.0)
    log = pd.concat([pd.read_parquet(path) for path in sorted((tmp_path / "log").iterdir())])
    engine = sqlalchemy.create_engine(postgres)
    log.to_sql("served", engine, index=False, if_exists="replace")
    engine.dispose()
    url = postgres.replace("tester@", f"tester:{DATABASE_PASSWORD}@")
    monkeypatch.setenv("LOG_URL", url)
    made.settings["source"] = {"log": {"url": "${LOG_URL}", "table": "served"}}
    made.configure()
    yield made
    mlflow.set_tracking_uri(before)


def run(world, *arguments, **environ):
    """Run the command in a process of its own; return its exit code and all it said."""
    environ = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", **environ}
    whole = [*arguments, "--config", world.config]
    return Processes().command(*whole, folder=world.folder, **environ)


def assert_nobody_tells(world, server_folder, said):
    """Search everything that was said, logged, tagged or stored for the secrets."""
    for secret in SECRETS:
        for text in said:
            assert secret not in text
        files = [*server_folder.rglob("*"), *world.folder.rglob("*")]
        for path in files:
            if path.is_file():
                assert secret.encode() not in path.read_bytes(), (secret, path)


def test_check_and_recalibrate_work_with_credentials_and_keep_them(world, guarded):
    address, folder = guarded
    now = world.now.isoformat()
    said = []
    code, text = run(world, "check", "--now", now, "--log-format", "json", "--json")
    said.append(text)
    assert code == 1, text  # an alert
    assert json.loads(text[: text.index("\n")])["status"] == "critical"
    code, text = run(world, "recalibrate")
    said.append(text)
    assert code == 0, text
    assert text.startswith("Registered version 2")  # and no address before it
    for command, expected in (("status", 1), ("promote", 0), ("rollback", 0)):
        code, text = run(world, command)
        said.append(text)
        assert code == expected, text  # the alert is open still
    # Name and password in the address itself, as some people write it.
    inside = address.replace("http://", f"http://admin:{PASSWORD}@")
    world.settings["tracker"] = {"name": "mlflow", "secrets": {"tracking_uri": "${TRACKING}"}}
    world.configure(gate={"min_improvement": 0.0, "max_accuracy_drop": 0.2})
    nobody = {"MLFLOW_TRACKING_USERNAME": "", "MLFLOW_TRACKING_PASSWORD": ""}
    for command, expected in (("status", 1), ("recalibrate", 0)):
        code, text = run(world, command, TRACKING=inside, **nobody)
        said.append(text)
        assert code == expected, text
    assert "Registered version 3" in text
    gone = f"http://admin:{PASSWORD}@127.0.0.1:9"
    code, text = run(world, "check", TRACKING=gone, HUC_MONITOR_DEBUG="1", **nobody)
    said.append(text)
    assert code not in (0, 1) or "does not answer" in text
    assert "does not answer" in text
    assert_nobody_tells(world, folder, said)


@pytest.mark.parametrize("command", ["check", "status", "recalibrate", "promote"])
def test_wrong_credentials_are_a_clear_error(world, guarded, command):
    wrong = "hush-token-0042"
    code, text = run(world, command, MLFLOW_TRACKING_PASSWORD=wrong)
    assert code == 2, text
    assert "does not accept the credentials (401)" in text
    assert "MLFLOW_TRACKING_PASSWORD" in text
    assert "Traceback" not in text
    assert_nobody_tells(world, guarded[1], [text])


def test_a_wrong_password_of_the_log_is_not_shown(world, guarded):
    code, text = run(world, "check", LOG_URL=f"postgresql+psycopg://u:{DATABASE_PASSWORD}@[bad/x")
    assert code == 2
    assert_nobody_tells(world, guarded[1], [text])


def test_settings_and_doctor_hide_an_address_with_a_password(store):
    from huc_mlflow._tracker import MLflowTracker

    uri = f"sqlite:///{store}/mlflow.db"
    settings = {"tracker": {"tracking_uri": f"https://anna:{PASSWORD}@mlflow.example/x"}}
    mine = MLflowTracker(MonitorInfo("triage", "00ff", settings=settings), tracking_uri=uri)
    assert PASSWORD not in str(mine._client.get_run(mine.run_id).data.tags)
    assert PASSWORD.encode() not in Path(store / "mlflow.db").read_bytes()
