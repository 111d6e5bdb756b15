"""What the demo claims, on the demo's own data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import assert_follows

from huc_monitor.cli import main

# README command one runs the demo as well, on a fresh machine.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    from huc_mlflow._demo import run

    told = []
    return run(tmp_path_factory.mktemp("demo") / "desk", tell=told.append), told


def audits(phase):
    return [record.audit for record in phase.check if record.audit is not None]


def test_the_usual_aggregates_see_little(story):
    demo, _ = story
    assert abs(demo.drifted.accuracy - demo.calm.accuracy) < 0.03
    assert demo.drifted.calibration_error - demo.calm.calibration_error < 0.03
    assert max(audit["uc"] for audit in audits(demo.drifted)) < 0.5 / 40


def test_the_monitor_names_the_branch_and_the_subgroup_beyond_doubt(story):
    demo, _ = story
    assert max(audit["huc"] for audit in audits(demo.calm)) < 0.5 / 40
    assert demo.calm.check.status == "ok"
    assert max(audit["huc_lower"] for audit in audits(demo.drifted)) > 0.5 / 40
    critical = {a.candidate[1:] for a in demo.drifted.check.alerts if a.level == "critical"}
    assert ("channel=app", "login") in critical
    assert not {subgroup for subgroup, _ in critical} & {"channel=web", "channel=phone"}


def test_the_repair_is_version_two_and_holds_on_later_days(story):
    demo, _ = story
    assert demo.version == "2"
    assert demo.repaired.served_by == "2"
    assert max(audit["huc"] for audit in audits(demo.repaired)) < 0.5 / 40
    assert demo.repaired.check.status == "ok"
    assert "RESOLVED" in demo.repaired.check.message.text
    assert demo.repaired.log_loss <= demo.drifted.log_loss


def test_everything_lies_in_the_folder(story):
    demo, told = story
    for name in ("report.html", "mlflow.db", "huc.yaml", "tree.json", "labels.parquet"):
        assert (demo.folder / name).stat().st_size > 0
    assert len(told) >= 6
    document = json.loads(json.dumps(demo.to_dict(), allow_nan=False))
    assert_follows("demo", document)
    assert document["version"] == "2"


def test_a_person_can_recalibrate_from_anywhere(story, tmp_path):
    demo, _ = story
    elsewhere = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_TRACKING")}
    command = [Path(sys.executable).parent / "huc-monitor", "recalibrate", "--config"]
    done = subprocess.run(
        [*command, demo.folder / "huc.yaml", "--json", "--since", "2024-03-11"],
        cwd=tmp_path,
        env=elsewhere,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    assert json.loads(done.stdout)["result"] in {"registered", "refused"}
    assert not list(tmp_path.iterdir())


def test_a_folder_with_other_files_is_refused(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(["demo", "--dir", str(tmp_path)]) == 2
    assert "holds other files" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
