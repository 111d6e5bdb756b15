"""Check the triage model every hour; a run is red while a critical alert is open."""

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Param

with DAG(
    "huc_monitor",
    schedule="@hourly",
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    params={"fail_on": Param("critical", enum=["warning", "critical", "never"])},
):
    BashOperator(
        task_id="check",
        bash_command='venv/bin/huc-monitor check --config huc.yaml --wait 10m --fail-on "$FAIL_ON"',
        cwd=os.environ.get("HUC_FOLDER", "/srv/triage"),
        env={"FAIL_ON": "{{ params.fail_on }}"},
        append_env=True,
        execution_timeout=timedelta(hours=1),
    )
