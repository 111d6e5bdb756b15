"""The template of a plugin, installed as its page says and used by a check."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import ROOT, blocks
from support.production_log import after, make_log, write_project

import huc_monitor as hm
from huc_monitor.monitor.ports import MonitorInfo, Notifier, check_plugin

pytestmark = pytest.mark.slow  # pip builds and installs a package


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that the template is installed to, without what is in the environment already."""
    folder = tmp_path_factory.mktemp("plugin")
    copy, install = blocks("plugins.md", "sh")[0].splitlines()
    _, _, source, name = shlex.split(copy)
    shutil.copytree(ROOT / source, folder / name)
    assert install == f"pip install ./{name}"
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--target", folder / "site"]
    call = [sys.executable, "-m", "pip", "install", *options, folder / name]
    subprocess.run(call, check=True, capture_output=True, text=True)
    return folder / "site"


def test_the_template_is_installed_and_told_of_an_alert(installed, tmp_path):
    log, labels = make_log(6, 800, broken_from=2)
    (more,) = blocks("plugins.md", "yaml")
    config = write_project(tmp_path, log, labels, more=more.split("\n", 1)[1])
    env = {**os.environ, "PYTHONPATH": str(installed)}
    program = [str(Path(sys.executable).parent / "huc-monitor")]
    options = ["--config", str(config)]
    doctor = subprocess.run(
        [*program, "doctor", *options], env=env, capture_output=True, text=True, check=False
    )
    assert "board" in doctor.stdout, doctor.stdout + doctor.stderr
    assert not (tmp_path / "board.jsonl").exists(), "making a plugin writes nothing"
    now = f"{after(8):%Y-%m-%dT%H:%M}"
    check = [*program, "check", "--now", now, *options]
    done = subprocess.run(check, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    told = [json.loads(line) for line in (tmp_path / "board.jsonl").read_text("utf-8").splitlines()]
    assert told[0]["level"] == "critical"
    subprocess.run(check, env=env, capture_output=True, text=True, check=False)
    again = (tmp_path / "board.jsonl").read_text("utf-8").splitlines()
    assert len(again) == len(told), "once"


def test_the_template_fulfils_its_protocol(installed, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(installed)
    from huc_board import BoardNotifier

    notifier = check_plugin(BoardNotifier(MonitorInfo("m", "0", folder=tmp_path)), Notifier)
    assert notifier is None or isinstance(notifier, Notifier)
    with pytest.raises(hm.HUCError, match="Notifier"):
        check_plugin(object(), Notifier)
