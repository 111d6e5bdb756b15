"""The commands, files and links of README and docs, used as they stand there."""

from __future__ import annotations

import configparser
import contextlib
import dataclasses
import logging
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
import yaml
from support.pages import PAGES, ROOT, blocks, commands, load_script, read_page

import huc_monitor as hm
from huc_monitor.cli import app, main
from huc_monitor.config import config_schema, load_config, parse_config

LANGUAGES = {"sh", "python", "py", "console", "yaml", "json", "toml", "ini", "crontab", "text"}
NESTED = {"sick": {"chest": ["flu", "pneumonia"], "other": ["rash", "sprain"]}, "well": None}
LEAVES = ["flu", "pneumonia", "rash", "sprain", "well"]


def configurations() -> list[str]:
    """Return the whole files of the pages for newcomers."""
    texts = [*blocks("tutorial.md", "yaml"), *blocks("mlflow.md", "yaml")]
    return [text for text in texts if text.startswith("# huc.yaml")]


def assert_valid(command: str) -> None:
    """Parse a command as the program would, without running it."""
    name, subcommand, *arguments = shlex.split(command)
    assert Path(name).name == "huc-monitor"
    typer.main.get_command(app).commands[subcommand].make_context(subcommand, arguments)


def watch_commands() -> list[str]:
    """Return the three commands of the README."""
    return commands("README.md", "## Watch a model")


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    name, *arguments = shlex.split(command)
    assert name == "huc-monitor"
    call = [Path(sys.executable).parent / name, *arguments]
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def call(capsys):
    """Run a command in this process, which has loaded everything already."""

    def run_here(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        name, *arguments = shlex.split(command)
        assert name == "huc-monitor"
        with contextlib.chdir(folder):
            code = main(arguments)
        return subprocess.CompletedProcess(command, code, *capsys.readouterr())

    yield run_here
    logger = logging.getLogger("huc_monitor")
    logger.handlers, logger.propagate = [], True


def write_log(folder: Path, begins: str) -> Path:
    """Write a log of twenty days in which one branch is wrong for women from a day on; its tree."""
    rng = np.random.default_rng(0)
    n = 18_000
    p = rng.dirichlet(np.full(5, 0.7), n)
    frame = pd.DataFrame(p, columns=LEAVES)
    frame["id"] = np.arange(n)
    frame["time"] = pd.Timestamp("2024-03-01", tz="UTC") + pd.to_timedelta(
        np.sort(rng.uniform(0, 20 * 86_400, n)), unit="s"
    )
    frame["sex"] = rng.choice(["f", "m"], n)
    frame["age"] = rng.integers(18, 95, n)
    truth = p.copy()
    women = ((frame["sex"] == "f") & (frame["time"] >= pd.Timestamp(begins, tz="UTC"))).to_numpy()
    truth[women] = truth[women][:, [1, 0, 2, 3, 4]]
    codes = np.minimum((rng.random((n, 1)) > truth.cumsum(axis=1)).sum(axis=1), 4)
    frame["y"] = np.array(LEAVES)[codes]
    frame.to_parquet(folder / "predictions.parquet")
    (folder / "tree.yaml").write_text(yaml.safe_dump(NESTED, sort_keys=False), "utf-8")
    return folder


@pytest.fixture
def folder(tmp_path):
    """A log in which one branch turns wrong for women half-way."""
    return write_log(tmp_path, "2024-03-11")


def test_three_commands_lead_from_a_log_to_a_finding(folder, call):
    init, check, report = (run(command, folder) for command in watch_commands())
    assert init.returncode == 0, init.stderr
    assert check.returncode == 1, check.stderr
    assert "chest" in check.stdout
    assert report.returncode in {0, 1}, report.stderr
    page = (folder / "report.html").read_text("utf-8")
    assert "chest" in page
    again = call(watch_commands()[1], folder)
    assert "chest" not in again.stdout.split("open", 1)[0]


def test_a_fault_that_was_always_there_is_told_once_as_standing(tmp_path, call):
    write_log(tmp_path, "2024-03-01")
    init, check, _ = watch_commands()
    assert call(init, tmp_path).returncode == 0
    first, again = call(check, tmp_path), call(f"{check} --fail-on warning", tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("Standing since the reference: chest") == 1
    assert again.returncode == 1, "it stays open"
    assert "Standing" not in again.stdout


def test_one_file_is_audited_with_one_command(folder, call):
    (command,) = commands("tutorial.md", "## One file")
    found = call(command, folder)
    assert found.returncode == 1, found.stderr
    assert "chest" in found.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_of_a_known_language_and_ends(page):
    text = page.read_text("utf-8")
    opened = re.findall(r"^```(\w+)$", text, re.MULTILINE)
    assert set(opened) <= LANGUAGES
    assert text.count("\n```") == 2 * len(opened)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_valid(page):
    for line in (line for block in blocks(page.name, "console") for line in block.splitlines()):
        assert_valid(line)


def test_the_first_pages_show_commands():
    assert len(watch_commands()) == 3
    assert commands("tutorial.md", "## What is needed") == watch_commands()


def test_the_readme_fits_on_a_few_screens():
    assert len(read_page("README.md").splitlines()) <= 150


def test_the_readme_leads_to_every_page():
    text = read_page("README.md")
    for page in PAGES[1:]:
        assert f"(docs/{page.name})" in text, page.name


def test_doctor_and_status_answer_in_a_fresh_project(folder, call):
    assert call(watch_commands()[0], folder).returncode == 0
    lines = commands("tutorial.md", "## When something is missing")
    doctor, status = (call(line, folder) for line in lines)
    assert doctor.returncode == 0, doctor.stdout
    assert "ok     labels" in doctor.stdout
    assert (status.returncode, status.stdout.split(".")[0]) == (0, "No window was checked yet")


def test_every_configuration_can_be_read(folder):
    texts = configurations()
    assert len(texts) == 3
    for text in texts:
        settings = parse_config(text, folder=folder, environ={"LABELS_URL": "sqlite://"}).settings
        assert settings.model.name == "triage"
    assert settings.tracker.name == "mlflow"
    assert settings.recalibration.promotion == "manual"


def test_the_shortest_configuration_finds_the_wrong_branch(folder, call):
    (folder / "huc.yaml").write_text(configurations()[0], "utf-8")
    found = call("huc-monitor check --now 2024-03-20T12:00", folder)
    assert found.returncode == 1, found.stderr
    assert "chest" in found.stdout


def test_other_column_names_late_labels_and_money_find_the_wrong_branch(folder, call, monkeypatch):
    frame = pd.read_parquet(folder / "predictions.parquet")
    frame["time"] -= pd.Timedelta(days=45)  # from 16 January on, past the end of the reference
    names = {leaf: f"prob_{leaf}" for leaf in LEAVES} | {"time": "scored_at", "id": "case_id"}
    log = frame.drop(columns="y").rename(columns=names).assign(version="3")
    for day, rows in log.groupby(log["scored_at"].dt.strftime("%Y-%m-%d")):
        (folder / "log" / f"day={day}").mkdir(parents=True)
        rows.to_parquet(folder / "log" / f"day={day}" / "part.parquet", index=False)
    recorded = (frame["time"] + pd.Timedelta(days=2)).dt.strftime("%Y-%m-%d %H:%M:%S")
    with sqlite3.connect(folder / "labels.db") as connection:
        labels = pd.DataFrame({"case_id": frame["id"], "outcome": frame["y"], "recorded": recorded})
        labels.to_sql("outcomes", connection, index=False)
    connection.close()
    (folder / "huc.yaml").write_text(configurations()[1], "utf-8")
    monkeypatch.setenv("LABELS_URL", f"sqlite:///{folder / 'labels.db'}")
    found = call("huc-monitor check --since 2024-02-01 --now 2024-02-12", folder)
    assert found.returncode == 1, (found.stdout, found.stderr)
    assert "chest" in found.stdout
    assert "EUR" in found.stdout
    assert call("huc-monitor report --out report.html", folder).returncode == 0
    assert "chest" in (folder / "report.html").read_text("utf-8")


def test_the_cron_job_is_whole():
    (text,) = [text for text in blocks("schedulers.md", "yaml") if "kind: CronJob" in text]
    job = yaml.safe_load(text)
    assert job["apiVersion"] == "batch/v1"
    assert job["metadata"]["name"]
    assert len(job["spec"]["schedule"].split()) == 5
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] in {"Never", "OnFailure"}
    (container,) = pod["containers"]
    assert {"name", "image"} <= set(container)
    assert_valid(shlex.join(container["command"]))
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert Path(container["command"][3]).parent.as_posix() in {
        mount["mountPath"] for mount in container["volumeMounts"]
    }


def test_the_workflow_is_whole_and_its_audit_fails_on_a_wrong_branch(folder, call):
    # YAML 1.1 reads the key `on` as true.
    (text,) = [text for text in blocks("schedulers.md", "yaml") if "runs-on" in text]
    workflow = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - texts only, so as safe
    assert workflow["on"] == ["pull_request"]
    (job,) = workflow["jobs"].values()
    assert job["runs-on"]
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    install, audit = [step["run"] for step in job["steps"] if "run" in step]
    assert install.startswith("pip install huc-monitor")
    found = call(audit, folder)
    assert found.returncode == 1, found.stderr


def test_the_units_of_systemd_are_whole():
    service, timer = (configparser.ConfigParser(interpolation=None) for _ in range(2))
    for unit, text in zip((service, timer), blocks("schedulers.md", "ini"), strict=True):
        unit.optionxform = str
        unit.read_string(text)
    assert service["Service"]["Type"] == "oneshot"
    assert service["Service"]["ExecStart"].startswith("/")
    assert_valid(service["Service"]["ExecStart"])
    assert timer["Timer"]["OnCalendar"]
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_the_line_of_cron_is_whole():
    (text,) = blocks("schedulers.md", "crontab")
    _, line = text.splitlines()
    *times, command = line.split(maxsplit=5)
    assert len(times) == 5
    change, check = command.split(" && ")
    assert change.startswith("cd /")
    assert_valid(check)


def test_the_actions_can_be_read_and_all_fields_are_told():
    (text,) = blocks("utilities.md", "yaml")
    (given,) = yaml.safe_load(text)["utilities"]
    tree = hm.LabelTree.from_nested({"motor": ["engine", "pump"], "brakes": ["disc", "pad"]})
    dispatch = hm.Utility.from_dict(given)
    assert dispatch.values([[0.1, 0.5, 0.2, 0.2]], tree=tree).tolist() == [[-0.25, 0.75, 1, 1]]
    told = set(re.findall(r"^\| `(\w+)` \|", read_page("utilities.md"), re.MULTILINE))
    assert told == {field.name for field in dataclasses.fields(dispatch)} == set(given) - {"type"}


def test_the_channels_can_be_read(folder):
    (text,) = [text for text in blocks("notifications.md", "yaml") if "channels:\n" in text]
    variables = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "x")
    config = parse_config(configurations()[0] + text, folder=folder, environ=variables)
    assert set(config.settings.channels) == set(config.settings.alerts.channels)
    assert len(variables) == 4


def test_the_loop_over_several_models_checks_each(folder):
    (loop,) = blocks("schedulers.md", "sh")
    for name in ("first", "second"):
        (folder / "fleet" / name).mkdir(parents=True)
        for file in ("predictions.parquet", "tree.yaml"):
            (folder / "fleet" / name / file).symlink_to(folder / file)
        text = configurations()[0].replace("triage", name)
        (folder / "fleet" / name / "huc.yaml").write_text(text, "utf-8")
    (folder / "fleet" / "second" / "tree.yaml").unlink()  # one that fails does not stop the other
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", loop],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "chest" in done.stdout
    assert "look at fleet/second/huc.yaml" in done.stdout
    assert "`tree` cannot be read" in done.stderr
    assert load_config(folder / "fleet" / "first" / "huc.yaml").state_folder.is_dir()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_install_lines_need_this_repository_alone():
    for page in PAGES:
        for line in re.findall(r"pip install [^`\n]*", page.read_text("utf-8")):
            assert "huc-monitor[" not in line, (page.name, line)


def test_the_reference_of_the_configuration_is_that_of_the_schema():
    script = load_script("docs/write_configuration.py")
    text = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    assert text == script.render(config_schema())
    settings = {
        key: node
        for part in config_schema()["$defs"].values()
        for key, node in part["properties"].items()
    }
    for setting, node in settings.items():
        assert node.get("deprecated") or re.search(rf"\b{setting}\b", text), setting
