"""Damaged state and records: which file, what is wrong, what to do; and the rest is shown."""

from __future__ import annotations

import json
import logging
import shutil

import pytest
from support.production_log import make_log, write_project

from huc_monitor.cli import main

NOW = "2024-03-04T13:00"
DAMAGE = {
    "empty": lambda _: b"",
    "cut off": lambda content: content[: len(content) // 2],
    "a list": lambda _: b"[1, 2]",
    "a number": lambda _: b"7",
    "no object inside": lambda _: b'{"schema_version": 1}',
    "another version": lambda content: content.replace(
        b'"schema_version": 1', b'"schema_version": 99', 1
    ),
    "wrong types": lambda content: json.dumps(dict.fromkeys(json.loads(content), 3)).encode(),
    "no text": lambda _: b"\xff\xfe\x00",
    "null": lambda _: b"null",
    "too deep": lambda _: b"[" * 100_000,
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    config = write_project(tmp_path_factory.mktemp("good"), *make_log(3, 400))
    assert main(["check", "--config", str(config), "--now", NOW]) == 0
    return config.parent


@pytest.fixture
def project(checked, tmp_path):
    shutil.copytree(checked, tmp_path / "p", ignore=shutil.ignore_patterns("log"))
    (tmp_path / "p" / "log").symlink_to(checked / "log")
    return tmp_path / "p"


@pytest.fixture(autouse=True)
def _quiet_logger():
    yield
    logger = logging.getLogger("huc_monitor")
    logger.handlers, logger.propagate = [], True


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert "unexpected" not in err
    assert "Traceback" not in err
    return code, out, err


def damage(project, pattern, how):
    path = min((project / "huc-state").rglob(pattern))
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    return path


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_state_is_named_and_windows_are_shown(project, capsys, how):
    path = damage(project, "state.json", how)
    code, out, err = run(capsys, "status", "--config", project / "huc.yaml")
    assert code == 2
    assert str(path.parent) in err
    assert "cannot be read" in err
    assert "Restore it from a backup" in err
    assert out.count("audited") == 3
    code, out, err = run(capsys, "status", "--config", project / "huc.yaml", "--json")
    assert (code, len(json.loads(out)["windows"])) == (2, 3)
    code, _, err = run(capsys, "check", "--config", project / "huc.yaml", "--now", NOW)
    assert code == 2
    assert str(path.parent) in err


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_record_is_left_out_and_told_of(project, capsys, how, tmp_path):
    path = damage(project, "records/*.json", how)
    code, out, err = run(capsys, "status", "--config", project / "huc.yaml")
    assert code == 0
    assert out.count("audited") == 2
    assert f"a record is left out: The record in {str(path)!r} cannot be read" in err
    page = tmp_path / "report.html"
    code, _, err = run(capsys, "report", "--config", project / "huc.yaml", "--out", page)
    assert code == 0
    assert "a record is left out" in err
    assert page.stat().st_size > 10_000


def test_a_record_with_an_audit_of_another_shape_is_left_out(project, capsys):
    path = min((project / "huc-state").rglob("records/*.json"))
    content = json.loads(path.read_text())
    content["audit"]["candidates"] = content["audit"]["candidates"][:1]
    path.write_text(json.dumps(content))
    _, _, err = run(capsys, "status", "--config", project / "huc.yaml")
    assert "1 candidates and" in err
