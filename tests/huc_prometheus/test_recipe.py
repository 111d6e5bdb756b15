"""The page's recipe, and what the command line says of exporters."""

from __future__ import annotations

import json

import pytest
import yaml
from support.mlflow_servers import free_port
from support.pages import blocks
from support.production_log import make_log, write_project
from typer.testing import CliRunner

from huc_monitor.cli import app


@pytest.fixture
def recipe(tmp_path):
    """The recipe's settings, with a folder of our own and ports nobody listens at."""
    (block,) = blocks("prometheus.md", "yaml")
    found = yaml.safe_load(block)
    settings = found["exporters"]["metrics"]["settings"]
    assert set(settings) == {"listen", "textfile", "pushgateway", "max_series"}
    (tmp_path / "text").mkdir()
    settings["textfile"] = str(tmp_path / "text")
    settings["listen"] = f"127.0.0.1:{free_port()}"
    settings["pushgateway"] = f"http://127.0.0.1:{free_port()}"
    return found


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def findings(config):
    done = run("doctor", "--json", "--config", config)
    return {item["check"]: item for item in json.loads(done.stdout)["findings"]}


def test_the_recipe_writes_for_node_exporter_though_no_pushgateway_answers(tmp_path, recipe):
    log = make_log(3, 600, broken_from=2)
    config = write_project(tmp_path / "project", *log, more=yaml.safe_dump(recipe))
    done = run("check", "--config", config, "--fail-on", "never", "--json")
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["records"]) == 3
    written = {path.name for path in (tmp_path / "text").iterdir()}
    assert written == {"huc_intrusion_window.prom", "huc_intrusion_check.prom"}


def test_doctor_says_which_exporter_cannot_work(tmp_path, recipe):
    config = write_project(tmp_path / "project", *make_log(1, 100), more=yaml.safe_dump(recipe))
    found = findings(config)["exporter metrics"]
    assert (found["outcome"], found["fix"]) == ("wrong", "correct exporters.metrics in the file")
    assert "refused" in found["text"]
    del recipe["exporters"]["metrics"]["settings"]["pushgateway"]
    config = write_project(tmp_path / "project", *make_log(1, 100), more=yaml.safe_dump(recipe))
    found = findings(config)["exporter metrics"]
    assert found["outcome"] == "ok"
    assert "listens at 127.0.0.1:" in found["text"]


def test_an_exporter_nobody_installed_is_a_wrong_setting(tmp_path):
    more = yaml.safe_dump({"exporters": {"metrics": "promethus"}})
    config = write_project(tmp_path / "project", *make_log(1, 100), more=more)
    done = run("check", "--config", config)
    assert done.exit_code != 0
    assert "Did you mean 'prometheus'" in str(done.exception)
    assert findings(config)["exporter metrics"]["outcome"] == "wrong"
