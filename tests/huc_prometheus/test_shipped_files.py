"""Alert rules and the dashboard, read by the tools they are written for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import huc_prometheus
import pytest
import yaml
from huc_prometheus._series import CANDIDATE, CHANGE, CHECK, WINDOW

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs promtool on PATH")
METRICS = {**CHECK, **WINDOW, **CHANGE, **CANDIDATE}


def promtool(*arguments, folder=None):
    done = subprocess.run(
        [PROMTOOL, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def expressions():
    panels = json.loads(huc_prometheus.dashboard())["panels"]
    rules = yaml.safe_load(huc_prometheus.rules())["groups"][0]["rules"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    return found + [rule["expr"] for rule in rules]


@needs_promtool
def test_promtool_accepts_the_rules(tmp_path):
    (tmp_path / "rules.yaml").write_text(huc_prometheus.rules(), "utf-8")
    code, text = promtool("check", "rules", "--lint-fatal", "rules.yaml", folder=tmp_path)
    assert code == 0, text
    assert "SUCCESS: 10 rules found" in text


@needs_promtool
def test_the_rules_fire_when_they_should_and_say_what_is_wrong(tmp_path):
    (tmp_path / "rules.yaml").write_text(huc_prometheus.rules(), "utf-8")
    shutil.copy(Path(__file__).with_name("rules_cases.yaml"), tmp_path)
    code, text = promtool("test", "rules", "rules_cases.yaml", folder=tmp_path)
    assert code == 0, text


@needs_promtool
@pytest.mark.parametrize("metric", METRICS)
def test_promtool_has_nothing_against_the_names(metric):
    text = f"# HELP {metric} {METRICS[metric][0]}\n# TYPE {metric} gauge\n{metric} 1\n"
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_rules_and_panels_speak_of_metrics_and_labels_there_are():
    used = set()
    for text in expressions():
        for name in re.findall(r"\bhuc_\w+", text):
            assert name in METRICS, text
            used.add(name)
        for labels in re.findall(r"by \(([^)]*)\)", text):
            known = {label for name in re.findall(r"\bhuc_\w+", text) for label in METRICS[name][1]}
            assert {label.strip() for label in labels.split(",")} <= known | {"monitor"}, text
    assert len(used) >= 20


def test_the_dashboard_is_what_grafana_describes_to_the_last_key():
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    given = json.loads(huc_prometheus.dashboard())
    # A key that Grafana does not know, or a value of a wrong form, is lost on the way.
    known = json.loads(JSONEncoder().encode(Dashboard.from_json(given)))
    assert_part_of(given, known)
    ids = [panel["id"] for panel in given["panels"]]
    assert len(set(ids)) == len(ids)


def assert_part_of(given, known, path="dashboard"):
    assert type(given) is type(known), path
    if isinstance(given, dict):
        for key, value in given.items():
            assert key in known, f"{path}.{key}"
            assert_part_of(value, known[key], f"{path}.{key}")
    elif isinstance(given, list):
        assert len(given) == len(known), path
        for i, (value, other) in enumerate(zip(given, known, strict=True)):
            assert_part_of(value, other, f"{path}[{i}]")
    else:
        assert given == known, path


def test_panels_do_not_lie_on_one_another():
    taken = set()
    for panel in json.loads(huc_prometheus.dashboard())["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
