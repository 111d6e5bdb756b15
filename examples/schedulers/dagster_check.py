"""Check the triage model after its predictions are written; a critical alert fails the check."""

import json
import os
import subprocess

import dagster as dg

FOLDER = os.environ.get("HUC_FOLDER", "/srv/triage")


@dg.asset
def predictions() -> None:
    """Stands for the asset that writes the log of predictions."""


@dg.asset_check(asset=predictions, blocking=False)
def calibration() -> dg.AssetCheckResult:
    """Audit every window that is due."""
    command = ["venv/bin/huc-monitor", "check", "--config", "huc.yaml", "--wait", "10m", "--json"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # not an alert: the check itself failed
        raise dg.Failure(done.stderr[-2000:])
    found = json.loads(done.stdout)
    return dg.AssetCheckResult(
        passed=done.returncode == 0,
        severity=dg.AssetCheckSeverity.ERROR,
        metadata={"status": found["status"], "alerts": dg.MetadataValue.json(found["alerts"])},
    )


hourly = dg.ScheduleDefinition(
    job=dg.define_asset_job("check_triage", dg.AssetSelection.checks(calibration)),
    cron_schedule="7 * * * *",
)
defs = dg.Definitions(assets=[predictions], asset_checks=[calibration], schedules=[hourly])
