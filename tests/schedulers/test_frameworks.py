"""Dagster and Prefect run their recipes for real, where they are installed; Databricks' is read.

``HUC_DAGSTER`` and ``HUC_PREFECT`` name environments that have them.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.production_log import make_log, write_project

ENVIRONMENTS = {name: os.environ.get(f"HUC_{name}") for name in ("DAGSTER", "PREFECT")}
FOLDER = Path(__file__).parents[2] / "examples" / "schedulers"

DAGSTER = """
import dagster as dg
import dagster_check as recipe
with dg.DagsterInstance.ephemeral() as instance:
    job = recipe.defs.resolve_job_def("check_triage")
    done = job.execute_in_process(instance=instance, raise_on_error=True)
    (found,) = done.get_asset_check_evaluations()
    print("passed" if found.passed else "failed", found.metadata["status"].value)
    print(found.metadata["alerts"].value)
"""
PREFECT = """
import prefect_flow as recipe
print("passed", recipe.calibration("never"))
try:
    recipe.calibration()
except RuntimeError as error:
    print("failed", error)
"""


@pytest.fixture
def make_project(tmp_path):
    def make(name, *, broken):
        folder = tmp_path / name
        log, labels = make_log(3, 1000, broken_from=1 if broken else None)
        write_project(folder, log, labels)
        (folder / "venv" / "bin").mkdir(parents=True)
        command = Path(sys.executable).parent / "huc-monitor"
        (folder / "venv" / "bin" / "huc-monitor").symlink_to(command)
        return folder

    return make


def run(environment, script, folder):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    settings = {
        "HUC_FOLDER": str(folder),
        "PYTHONPATH": str(FOLDER),
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
        "DO_NOT_TRACK": "1",
    }
    command = [Path(ENVIRONMENTS[environment]) / "bin" / "python", "-c", script]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=kept | settings, cwd=folder
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


# Not skipped without them: nothing here installs them.
if ENVIRONMENTS["DAGSTER"]:

    @pytest.mark.slow
    def test_dagster_fails_the_asset_check_on_an_alert(make_project):
        # A warning is open: 1,000 rows a day leave the tolerance within chance. It fails nothing.
        assert "passed warning" in run("DAGSTER", DAGSTER, make_project("calm", broken=False))
        found = run("DAGSTER", DAGSTER, make_project("wrong", broken=True))
        assert "failed critical" in found
        assert "attack" in found


if ENVIRONMENTS["PREFECT"]:

    @pytest.mark.slow
    def test_prefect_fails_the_run_on_an_alert_if_it_is_asked_to(make_project):
        found = run("PREFECT", PREFECT, make_project("wrong", broken=True))
        assert "passed" in found
        assert "failed exit code 1" in found


def test_databricks_knows_every_field_of_the_job():
    from databricks.sdk.service.jobs import JobSettings

    text = (FOLDER / "databricks_job.yaml").read_text("utf-8")
    (job,) = yaml.safe_load(text)["resources"]["jobs"].values()
    assert JobSettings.from_dict(job).as_dict() == job
    wrong = {**job, "max_concurent_runs": 1}
    assert JobSettings.from_dict(wrong).as_dict() != wrong


def test_the_script_of_databricks_raises_on_an_alert(make_project, monkeypatch):
    script = FOLDER / "databricks_check.py"
    for broken in (False, True):
        folder = make_project(f"broken {broken}", broken=broken)
        monkeypatch.setattr(sys, "argv", ["check", str(folder / "huc.yaml")])
        if not broken:
            runpy.run_path(str(script))
            continue
        with pytest.raises(RuntimeError, match="exit code 1"):
            runpy.run_path(str(script))
