"""A real Airflow, in an environment of its own, runs the graph on the data of the demo.

``HUC_AIRFLOW=/path/to/environment`` is used instead of a new one; what it lacks is installed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
import yaml
from support.receiver import free_port

from huc_monitor.cli import main

pytestmark = pytest.mark.airflow
GRAPH = Path(__file__).parents[2] / "examples" / "schedulers" / "airflow_dag.py"
AIRFLOW = "apache-airflow>=3.1,<4"
CALM_DAYS, DRIFTED_DAYS = 5, 8


@pytest.fixture(scope="module")
def installing(tmp_path_factory):
    """Install Airflow aside, while the demo writes its data."""
    given = os.environ.get("HUC_AIRFLOW")
    folder = Path(given) if given else tmp_path_factory.mktemp("airflow") / "venv"
    if not given:
        venv.create(folder, with_pip=True)
    command = [folder / "bin" / "python", "-m", "pip", "install", "--no-compile", "--quiet"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, AIRFLOW], **pipes) as process:
        process.folder = folder
        yield process
        process.kill()


@pytest.fixture(scope="module")
def environment(installing, projects):  # noqa: ARG001 - the demo is what the wait is used for
    """The bin folder of a virtual environment with Airflow in it."""
    _, error = installing.communicate(timeout=600)
    if installing.returncode:
        pytest.skip(f"apache-airflow cannot be installed: {error[-300:]}")
    return installing.folder / "bin"


@pytest.fixture(scope="module")
def projects(tmp_path_factory):
    """The demo's log up to the end of its calm days, and up to the end of the drift."""
    folder = tmp_path_factory.mktemp("demo")
    demo = folder / "demo"
    assert main(["demo", "--fast", "--dir", str(demo)]) == 0
    settings = yaml.safe_load((demo / "huc.yaml").read_text("utf-8"))
    settings = {**settings, "tracker": "files", "recalibration": {"enabled": False}}
    found = {}
    for name, n_days in (("calm", CALM_DAYS), ("drifted", DRIFTED_DAYS)):
        found[name] = folder / name
        for day in sorted((demo / "log").iterdir())[:n_days]:
            shutil.copytree(day, found[name] / "log" / day.name)
        for file in ("labels.parquet", "tree.json"):
            shutil.copy(demo / file, found[name])
        (found[name] / "huc.yaml").write_text(yaml.safe_dump(settings), "utf-8")
        (found[name] / "venv" / "bin").mkdir(parents=True)
        command = Path(sys.executable).parent / "huc-monitor"
        (found[name] / "venv" / "bin" / "huc-monitor").symlink_to(command)
    return found


class Airflow:
    """Airflow's public API over loopback."""

    def __init__(self, port, home):
        self.url, self.home = f"http://127.0.0.1:{port}/api/v2", home

    def ask(self, path, content=None, method=None):
        data = None if content is None else json.dumps(content).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        request = Request(self.url + path, data, headers, method=method)  # noqa: S310
        with urlopen(request, timeout=20) as answer:  # noqa: S310
            return json.load(answer)

    def wait(self, what, seconds=240):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(URLError, ConnectionError, TimeoutError):
                found = what()
                if found:
                    return found
            time.sleep(0.5)
        pytest.fail(f"nothing came of it within {seconds} s")

    def is_up(self):
        health = self.ask("/monitor/health")
        parts = ("metadatabase", "scheduler", "dag_processor")
        return all(health[part]["status"] == "healthy" for part in parts)

    def runs(self):
        return self.ask("/dags/huc_monitor/dagRuns")["dag_runs"]

    def trigger(self, **conf):
        content = {"logical_date": None, "conf": conf}
        return self.ask("/dags/huc_monitor/dagRuns", content)["dag_run_id"]

    def outcome(self, run_id):
        def ended():
            (run,) = [run for run in self.runs() if run["dag_run_id"] == run_id]
            return run["state"] in {"success", "failed"} and run["state"]

        return self.wait(ended)

    def log(self, run_id):
        path = f"/dags/huc_monitor/dagRuns/{run_id.replace('+', '%2B')}/taskInstances/check/logs/1"
        return json.dumps(self.ask(f"{path}?full_content=true"))

    def all_said(self, run_id):
        """Everything that may tell why a run ended as it did."""
        return f"{self.log(run_id)}\n{(self.home / 'standalone.log').read_text()[-20_000:]}"


@pytest.fixture(scope="module")
def airflow(environment, projects, tmp_path_factory):
    """``airflow standalone`` with the local executor; `served` is what it checks."""
    home = tmp_path_factory.mktemp("home")
    (home / "dags").mkdir()
    shutil.copy(GRAPH, home / "dags")
    served = home / "triage"
    served.symlink_to(projects["calm"])
    port = free_port()
    settings = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db?timeout=60",
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        # A server that is slow to answer, on a machine at work, is not a task that failed.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "30",
        "DO_NOT_TRACK": "1",
        "HUC_FOLDER": str(served),
        "PATH": f"{environment}{os.pathsep}{os.environ['PATH']}",
        "SCARF_ANALYTICS": "false",
    }
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "PYTHON"))}
    with (home / "standalone.log").open("w") as log:
        process = subprocess.Popen(
            [environment / "airflow", "standalone"],
            env={**inherited, **settings},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    found = Airflow(port, home)
    found.served = served
    try:
        found.wait(lambda: process.poll() is None and found.is_up())
        yield found
    finally:
        stop(process)


def stop(process):
    """End Airflow with all its children; they are one session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)


def test_a_run_turns_red_on_an_alert_if_it_is_asked_to(airflow, projects):
    airflow.wait(lambda: airflow.ask("/dags")["dags"])
    assert airflow.ask("/importErrors")["import_errors"] == []
    # Only now: the scheduler of `standalone` may be up before the server that its tasks report to.
    airflow.ask("/dags/huc_monitor", {"is_paused": False}, "PATCH")
    (first, *_) = airflow.wait(airflow.runs)
    assert first["run_type"] == "scheduled"
    assert airflow.outcome(first["dag_run_id"]) == "success", airflow.all_said(first["dag_run_id"])

    airflow.served.unlink()
    airflow.served.symlink_to(projects["drifted"])
    red = airflow.trigger()
    assert airflow.outcome(red) == "failed"
    log = airflow.log(red)
    assert "CRITICAL" in log
    assert "login" in log
    assert "exit code 1" in log

    calm = airflow.trigger(fail_on="never")
    assert airflow.outcome(calm) == "success", "the alert is open, and this run did not ask"
    assert airflow.outcome(airflow.trigger(fail_on="warning")) == "failed"


def test_a_level_that_there_is_not_is_refused_before_anything_runs(airflow):
    with pytest.raises(URLError, match=r"400|422"):
        airflow.trigger(fail_on="never; rm -rf /")
