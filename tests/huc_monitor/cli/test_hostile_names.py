"""Hostile names from a log, through every command, to what people and machines read."""

from __future__ import annotations

import json
import logging

import pytest
from support.hostile import NODES, UDP, UTILITIES, assert_clean, write_hostile_project
from support.report_page import Page

import huc_monitor as hm
from huc_monitor._common.safe_text import distinct
from huc_monitor.cli import main
from huc_monitor.config.opening import open_monitor
from huc_monitor.errors import InvalidInputError

NOW = "2024-03-04T13:00"


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """A project that was checked, the monitor and what the check found."""
    config = write_hostile_project(tmp_path_factory.mktemp("hostile"))
    monitor = open_monitor(config)
    return config, monitor, monitor.check(f"{NOW}+00:00")


@pytest.fixture
def config(checked):
    return checked[0]


@pytest.fixture(autouse=True)
def _quiet_logger():
    yield
    logger = logging.getLogger("huc_monitor")
    logger.handlers, logger.propagate = [], True


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert_clean(out)
    assert_clean(err)
    return code, out, err


@pytest.mark.parametrize("form", ["text", "json"])
def test_check_prints_one_head_per_level_whatever_names_say(config, capsys, form):
    code, out, err = run(
        capsys, "--log-format", form, "check", "--config", config, "--now", NOW, "--dry-run"
    )
    assert code == 1
    assert out.split("\n").count("CRITICAL") <= 1
    assert form == "text" or all(json.loads(row)["message"] for row in err.splitlines())


def test_a_message_tells_the_asterisks_of_a_name(tmp_path, capsys):
    fresh = write_hostile_project(tmp_path / "again")
    code, out, err = run(capsys, "check", "--config", fresh, "--now", NOW)
    assert code == 1
    assert "Branch att\\u202eack* (" in out
    assert "values are longer than 200 characters and have no subgroups" in err
    assert err.count("longer than 200") == 1, "told once"


def test_the_message_is_one_paragraph_per_finding(checked):
    message = checked[2].message
    assert_clean(message.text)
    assert_clean(message.title)
    assert [row for row in message.text.split("\n") if row == "CRITICAL"] == ["CRITICAL"]
    assert message.text.count("*") % 2 == 0
    steps = message.data["transitions"]
    assert {step["utility"] for step in steps} <= set(UTILITIES), "data keeps names as they are"
    assert NODES["attack"] in {step["node"] for step in steps}


def test_one_endless_value_does_not_fill_the_state(checked):
    _, monitor, result = checked
    text = json.dumps(monitor.tracker.load_state())
    assert len(text) < 1_000_000
    for record in monitor.records():
        assert len(record.to_json()) < 500_000
    names = {row["subgroup"] for row in result.records[0].audit["candidates"]}
    assert names == {"all", "protocol=tcp", f"protocol={distinct(UDP)}"}


def test_status_shows_names_and_nothing_else(config, capsys):
    _, out, _ = run(capsys, "status", "--config", config)
    assert "<script>" in out or "att\\u202eack" in out
    _, out, _ = run(capsys, "status", "--config", config, "--json")
    assert json.loads(out)["alerts"]


def test_a_report_holds_names_as_text(config, capsys, tmp_path):
    run(capsys, "report", "--config", config, "--out", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert_clean(text, is_output=False)
    assert "<script>alert" not in text
    assert any("<script>alert" in node["name"] for node in Page(text).data["nodes"])


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_audit_prints_names_on_one_line(config, capsys, more, tmp_path):
    import pandas as pd

    folder = config.parent
    log = pd.concat(pd.read_parquet(path) for path in sorted((folder / "log").rglob("*.parquet")))
    rows = log.merge(pd.read_parquet(folder / "labels.parquet"), on="id")
    rows = rows[~rows["label"].str.startswith("no such")]
    rows.drop(columns=["day"], errors="ignore").to_parquet(tmp_path / "log.parquet")
    arguments = ("--tree", folder / "tree.json", "--label", "label", "--subgroup", "protocol=each")
    code, out, err = run(capsys, "audit", tmp_path / "log.parquet", *arguments, *more)
    assert code == 0, err
    assert "ack*" in out


def test_a_utility_is_not_named_by_half_a_character():
    with pytest.raises(InvalidInputError, match="text that UTF-8 can hold"):
        hm.TopK(1, name="\ud800")


def test_errors_are_one_short_line(config, capsys, tmp_path):
    bad = tmp_path / "huc.yaml"
    text = config.read_text("utf-8").replace("model: intrusion", 'mo\\ndel: "x\\e[2J"')
    bad.write_text(text + '\n"::error::\\e[2J\\u202e": ' + "z" * 100_000)
    code, _, err = run(capsys, "check", "--config", bad)
    assert code == 2
    assert err.count("\n") == 1
    assert len(err) < 5_000
