"""The files that schedulers read, held against what those schedulers accept."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from support.pages import blocks
from support.production_log import make_log, write_project

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "schedulers"
FILES = sorted(path for path in FOLDER.iterdir() if path.is_file())  # not __pycache__
LANGUAGES = {".py": "py", ".service": "ini", ".timer": "ini", ".yaml": "yaml", "": "crontab"}


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def needed(name):
    """Find a program of the system; a Debian package has it."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_what_the_page_shows(path):
    assert path.read_text("utf-8") in blocks("schedulers.md", LANGUAGES[path.suffix])


@pytest.fixture(scope="module")
def cron_job():
    return yaml.safe_load((FOLDER / "kubernetes_cronjob.yaml").read_text("utf-8"))


@pytest.mark.parametrize("place", [0, -1], ids=["oldest", "newest"])
def test_kubernetes_accepts_the_cron_job_and_nothing_misspelt(cron_job, place):
    version = sorted(kubernetes_validate.utils.all_versions(), key=_numbers)[place]
    kubernetes_validate.validate(cron_job, version, strict=True)
    wrong = copy.deepcopy(cron_job)
    wrong["spec"]["jobTemplate"]["spec"]["backofLimit"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="backofLimit"):
        kubernetes_validate.validate(wrong, version, strict=True)


def _numbers(version):
    return [int(part) for part in version.split(".")]


def test_github_accepts_the_workflow_and_nothing_misspelt(tmp_path):
    def check(path):
        tool = (sys.executable, "-m", "check_jsonschema")
        return run(*tool, "--builtin-schema", "vendor.github-workflows", str(path))

    found = check(FOLDER / "github_actions.yaml")
    assert found.returncode == 0, found.stdout
    text = (FOLDER / "github_actions.yaml").read_text("utf-8")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text.replace("runs-on:", "run-on:"), "utf-8")
    assert check(wrong).returncode == 1


@pytest.fixture(scope="module")
def triage(tmp_path_factory):
    """The folder that the recipes call /srv/triage, with an alert to be found."""
    folder = tmp_path_factory.mktemp("srv") / "triage"
    log, labels = make_log(5, 1000, broken_from=2)
    write_project(folder, log, labels)
    (folder / "venv" / "bin").mkdir(parents=True)
    command = Path(sys.executable).parent / "huc-monitor"
    (folder / "venv" / "bin" / "huc-monitor").symlink_to(command)
    return folder


def installed(name, triage, folder):
    """Copy a unit with the folder's real place in it."""
    text = (FOLDER / name).read_text("utf-8").replace("/srv/triage", str(triage))
    (folder / name).write_text(text, "utf-8")
    return folder / name


def test_systemd_accepts_the_units_and_nothing_misspelt(triage, tmp_path):
    analyze = needed("systemd-analyze")
    units = [installed(f"huc-monitor.{kind}", triage, tmp_path) for kind in ("service", "timer")]
    found = run(analyze, "verify", *map(str, units))
    assert (found.returncode, found.stderr) == (0, "")
    timer = units[1].read_text("utf-8").replace("OnCalendar=hourly", "OnCalendar=hourlyish")
    units[1].write_text(timer, "utf-8")
    assert "calendar specification" in run(analyze, "verify", str(units[1])).stderr


def test_systemd_would_start_a_check_that_finds_the_alert(triage, tmp_path):
    text = installed("huc-monitor.service", triage, tmp_path).read_text("utf-8")
    settings = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    bare = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    command = settings["ExecStart"].split()
    found = run(*command, cwd=settings["WorkingDirectory"], env=bare)
    assert found.returncode == 1, found.stderr
    assert "CRITICAL" in found.stdout
    assert '"event": "huc.window_checked"' in found.stderr


def test_cron_accepts_the_line_and_nothing_misspelt(tmp_path):
    crontab = needed("crontab")
    assert run(crontab, "-n", str(FOLDER / "crontab")).returncode == 0
    text = (FOLDER / "crontab").read_text("utf-8").replace("7 *", "77 *", 1)
    (tmp_path / "wrong").write_text(text, "utf-8")
    assert "bad minute" in run(crontab, "-n", str(tmp_path / "wrong")).stderr


def test_cron_would_start_a_check_that_tells_only_what_is_new(triage, tmp_path):
    project = tmp_path / "triage"
    shutil.copytree(triage, project, symlinks=True, ignore=shutil.ignore_patterns("huc-state"))
    line = (FOLDER / "crontab").read_text("utf-8").splitlines()[-1].split(maxsplit=5)[-1]
    bare = {"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"], "SHELL": "/bin/sh"}
    command = line.replace("/srv/triage", str(project))
    first, second = (run("/bin/sh", "-c", command, env=bare) for _ in range(2))
    assert (first.returncode, second.returncode) == (1, 1), "as long as the alert is open"
    assert "CRITICAL" in first.stdout
    assert second.stdout == second.stderr == "", "no mail without news"
