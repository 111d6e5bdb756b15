"""Check the triage model every hour; a run fails while a critical alert is open."""

import os
import subprocess

from prefect import flow, task

FOLDER = os.environ.get("HUC_FOLDER", "/srv/triage")


@task
def check(fail_on: str) -> str:
    """Audit every window that is due; return what there is to tell."""
    command = ["venv/bin/huc-monitor", "check", "--config", "huc.yaml", "--wait", "10m"]
    command += ["--fail-on", fail_on]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stdout}{done.stderr[-2000:]}")
    return done.stdout


@flow(name="huc-monitor", timeout_seconds=3600)
def calibration(fail_on: str = "critical") -> str:
    """Check once."""
    return check(fail_on)


if __name__ == "__main__":
    calibration.serve(name="triage", cron="7 * * * *", limit=1)
