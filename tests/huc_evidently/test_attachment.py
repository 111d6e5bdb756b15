"""Did the inputs move too? The answer beside a window that alerts, in a real check."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import yaml
from support.pages import blocks
from support.production_log import after, make_log, write_project
from typer.testing import CliRunner

from huc_monitor.cli import app
from huc_monitor.config import load_config
from huc_monitor.config.opening import open_monitor
from huc_monitor.errors import InvalidInputError

pytest.importorskip("evidently", reason="needs evidently")


def project(folder, *, moved, columns=("bytes", "port"), **settings):
    """Attacks on udp are of another kind on the third day, on which `bytes` may be larger too."""
    log, labels = make_log(3, 1500, broken_from=2)
    rng = np.random.default_rng(0)
    log["bytes"] = rng.lognormal(6, 1, len(log))
    log["port"] = rng.integers(0, 5, len(log)).astype(str)
    if moved:
        log.loc[log["at"] >= after(2), "bytes"] *= 8
    host = {"name": "evidently", "settings": {"columns": list(columns), **settings}}
    more = yaml.safe_dump({"attachments": {"drift": host}})
    return write_project(folder, log, labels, more=more)


def check(config):
    monitor = open_monitor(config)
    result = monitor.check(now=after(3.6))
    folder = monitor.tracker.folder / "artifacts"
    found = {f"{path.parent.name[:6]}/{path.name}": path for path in folder.glob("*/*")}
    return result, found


@pytest.mark.parametrize("moved", [True, False])
def test_an_alerting_window_gets_a_drift_report_that_answers_the_question(tmp_path, moved):
    result, files = check(project(tmp_path, moved=moved))
    assert [bool(record.transitions) for record in result] == [False, False, True]
    assert set(files) == {"000003/evidently-drift.html", "000003/evidently-drift.json"}
    found = json.loads(files["000003/evidently-drift.json"].read_text("utf-8"))
    assert found["n_drifted"] == (1 if moved else 0)
    assert set(found["columns"]) == {"bytes", "port"}
    assert found["reference"] == ["2024-03-01T00:00:00+00:00", "2024-03-02T00:00:00+00:00"]
    assert found["window"][0] == "2024-03-03T00:00:00+00:00"
    assert (found["columns"]["bytes"]["value"] > found["columns"]["bytes"]["threshold"]) == moved
    page = files["000003/evidently-drift.html"].read_text("utf-8")
    assert "bytes" in page
    assert page.lstrip().lower().startswith("<!doctype html>")


def test_large_windows_are_thinned_out(tmp_path):
    _, files = check(project(tmp_path, moved=True, max_rows=500))
    found = json.loads(files["000003/evidently-drift.json"].read_text("utf-8"))
    assert (found["n_rows"], found["n_drifted"]) == ([500, 500], 1)


def test_a_report_that_cannot_be_made_fails_no_check_and_says_why_beside_the_window(tmp_path):
    result, files = check(project(tmp_path, moved=True, columns=["bites"]))
    assert [record.status for record in result] == ["audited"] * 3
    assert result.status == "critical"
    (path,) = files.values()
    assert path.name == "drift-failed.txt"
    assert "'bites'" in path.read_text("utf-8")


def test_without_subgroups_the_columns_must_be_given(tmp_path):
    config = project(tmp_path, moved=False)
    text = config.read_text("utf-8").replace("subgroups: {by: {protocol: each}}\n", "")
    plain = yaml.safe_load(text)
    plain["attachments"]["drift"].pop("settings")
    config.write_text(yaml.safe_dump(plain), "utf-8")
    with pytest.raises(InvalidInputError, match="`columns` must name the inputs to compare"):
        open_monitor(config)


def test_without_columns_those_of_the_subgroups_are_compared(tmp_path):
    config = project(tmp_path, moved=False)
    plain = yaml.safe_load(config.read_text("utf-8"))
    plain["attachments"] = {"drift": "evidently"}
    config.write_text(yaml.safe_dump(plain), "utf-8")
    assert load_config(config).settings.attachments["drift"].name == "evidently"
    _, files = check(config)
    found = json.loads(files["000003/evidently-drift.json"].read_text("utf-8"))
    assert set(found["columns"]) == {"protocol"}


def test_the_report_leaves_the_output_of_a_check_as_it_is(tmp_path):
    config = project(tmp_path, moved=True)
    done = CliRunner().invoke(app, ["check", "--json", "--config", str(config)])
    assert json.loads(done.stdout)["status"] == "critical"
    assert list(tmp_path.glob("huc-state/*/artifacts/*/evidently-drift.html"))


def doctor(config):
    done = CliRunner().invoke(app, ["doctor", "--json", "--config", str(config)])
    return {item["check"]: item for item in json.loads(done.stdout)["findings"]}


def test_doctor_looks_at_the_attachment(tmp_path):
    config = project(tmp_path, moved=False)
    found = doctor(config)["attachment drift"]
    assert (found["outcome"], found["text"]) == ("ok", "evidently compares bytes, port")
    config.write_text(config.read_text("utf-8").replace("name: evidently", "name: evidentia"))
    found = doctor(config)["attachment drift"]
    assert found["outcome"] == "wrong"
    assert found["text"].endswith("Did you mean 'evidently'?")
    assert found["fix"] == "correct attachments.drift in the file"


@pytest.mark.slow
def test_evidently_is_loaded_by_nothing_but_an_alert(tmp_path):
    config = project(tmp_path, moved=False)
    code = (
        "import sys, json, huc_evidently\n"
        "from huc_monitor.config.opening import open_monitor\n"
        f"monitor = open_monitor({str(config)!r})\n"
        "seen = []\n"
        "for day in ('2024-03-03T15:00Z', '2024-03-04T15:00Z'):\n"
        "    monitor.check(now=day)\n"
        "    seen.append('evidently' in sys.modules)\n"
        "print(json.dumps(seen))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [False, True]


def test_the_recipe_of_the_page_is_a_setting(tmp_path):
    (recipe,) = blocks("evidently.md", "yaml")
    config = write_project(tmp_path, *make_log(1, 100), more=recipe)
    monitor = open_monitor(config)
    assert set(monitor.hosts.attachments) == {"drift"}
