"""Every command at 80 columns, as on a small terminal or in cron mail; and what --json prints."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import time
from pathlib import Path

import jsonschema
import pandas as pd
import pytest
import typer
from support.documents import assert_follows, output_schema
from support.pages import PAGES, ROOT, blocks
from support.production_log import make_log, write_project

from huc_monitor._common.safe_text import chat
from huc_monitor.cli import app, main
from huc_monitor.cli.documents import DOCUMENTS
from huc_monitor.cli.showing import make_console, print_table, tell, working
from huc_monitor.config.opening import open_monitor

PAGE = ROOT / "docs" / "terminal.md"
NOW = "2024-03-06T14:00"
# In this order: each goes on from what the one before left.
COMMANDS = [
    "huc-monitor init all.parquet --tree tree.json --label label --out new.yaml",
    "huc-monitor audit all.parquet --tree tree.json --label label --subgroup protocol=each",
    "huc-monitor compare first.parquet last.parquet --tree tree.json --label label",
    "huc-monitor discover all.parquet --tree tree.json --label label --feature protocol",
    "huc-monitor plan --candidates 40 --size 0.05",
    f"huc-monitor check --now {NOW}",
    "huc-monitor status",
    "huc-monitor forecast",
    "huc-monitor report --out report.html",
    "huc-monitor doctor --config huc.yaml",
    "huc-monitor sample --budget 50 --window 2024-03-05 --out plan.csv",
    'huc-monitor ack --branch attack --by ann --text "looking into it"',
    'huc-monitor note "new firewall rules since Monday" --branch attack --by ann',
    "huc-monitor mute --branch attack --until 3d --by ann",
    "huc-monitor status --last 2",
    "huc-monitor status --config '*/huc.yaml'",
    "huc-monitor mute --branch attack --until now --by ann",
    f"huc-monitor check --now {NOW} --dry-run",
    "huc-monitor prune --keep 1y --dry-run",
    "huc-monitor backup backup.tar.gz",
    "huc-monitor restore backup.tar.gz --replace",
    "huc-monitor migrate",
    "huc-monitor recalibrate",
    "huc-monitor promote --version 2",
    "huc-monitor rollback",
]
# A browser, a server or a process that goes on; of these the help is looked at.
ELSEWHERE = {"demo", "watch", "ui"}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("narrow")
    log, labels = make_log(5, 600, broken_from=3)
    write_project(folder, log, labels)
    whole = log.merge(labels[["id", "label"]], on="id").drop(columns=["id"])
    whole.to_parquet(folder / "all.parquet", index=False)
    half = whole["at"] < pd.Timestamp("2024-03-04", tz="UTC")
    whole[half].to_parquet(folder / "first.parquet", index=False)
    whole[~half].to_parquet(folder / "last.parquet", index=False)
    for name in ("triage", "tickets"):
        shutil.copytree(folder, folder / name, ignore=shutil.ignore_patterns("triage", "tickets"))
    open_monitor(folder / "triage" / "huc.yaml").check("2024-03-03T14:00+00:00")
    (folder / "tickets" / "huc.yaml").write_text("model: [", "utf-8")
    return folder


@pytest.fixture(scope="module")
def captured(project):
    """Run all commands once, in order, and return what each printed."""
    import contextlib
    import io

    found, before = {}, (Path.cwd(), os.environ.get("COLUMNS"))
    os.chdir(project)
    os.environ["COLUMNS"] = "80"
    try:
        for command in COMMANDS:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(shlex.split(command)[1:])
            found[command] = code, out.getvalue(), err.getvalue()
    finally:
        os.chdir(before[0])
        os.environ["COLUMNS"] = before[1] or "80"
    return found


@pytest.fixture(autouse=True)
def _narrow(monkeypatch, _wide):
    monkeypatch.setenv("COLUMNS", "80")


def too_wide(text):
    """Lines over 80 columns; commands and single words cannot be broken, errors are one line."""
    lines = [line for line in text.splitlines() if len(line) > 80]
    return [x for x in lines if len(x.split()) > 1 and "huc-monitor" not in x]


def test_every_command_fits_80_columns(captured):
    for command, (_, out, err) in captured.items():
        assert not too_wide(out), command
        assert "Traceback" not in err, command
        assert out.strip() or err.strip() or "check" in command, command


def test_commands_end_as_the_page_says(captured):
    codes = {command: code for command, (code, _, _) in captured.items()}
    assert codes["huc-monitor status"] == 1
    assert codes["huc-monitor status --last 2"] == 0, "all is muted"
    assert codes["huc-monitor status --config '*/huc.yaml'"] == 2, "one file is broken"
    assert codes["huc-monitor rollback"] == 2, "files have no versions"
    others = [c for c in codes if not re.search(r"status|audit|check|compare|discover|back$", c)]
    done = [c for c in others if not re.search(r"recalibrate|promote|doctor", c)]
    assert {codes[command] for command in done} == {0}


def test_names_are_not_broken_and_one_branch_is_one_block(captured):
    _, out, _ = captured["huc-monitor status --last 2"]
    assert out.count("Branch attack, since window") == 1
    for name in ("protocol=udp", "utility family", "attack"):
        assert name in out
    for said in ("Acknowledged by ann", "Note by ann", "uted by ann"):
        assert out.count(said) == 1, "said once"


def test_a_message_ends_with_what_to_do(captured):
    _, out, _ = captured[f"huc-monitor check --now {NOW}"]
    tail = out.split("\nNEXT\n")[1]
    assert "Look at rows of protocol=udp in the window to 2024-03-0" in " ".join(tail.split())
    assert "  - Acknowledge it: huc-monitor ack --branch attack" in tail
    assert "  - Mute it: huc-monitor mute --branch attack --until friday" in tail
    assert "  - Look at it: huc-monitor report --open" in tail


def test_titles_of_a_wide_table_break_between_words(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    numbers = ("moment", "at least", "at most", "predicted utility", "rows", "above 0.02")
    cells = ("level1", "crop=wheat", "root", "+0.0123", "0.0123", "0.1234")
    row = ((*cells, "[0.1234, 0.5678]", "123,456", "yes"), "")
    print_table(make_console(), ("utility", "subgroup", "branch"), numbers, [row])
    out = capsys.readouterr().out
    words = {word for line in out.split("\n") for word in line.split()}
    assert {"utility", "subgroup", "branch", "predicted", "crop=wheat", "+0.0123"} <= words
    assert not too_wide(out)


def test_windows_that_wait_for_labels_show_no_count_of_them(project, tmp_path, capsys):
    folder = shutil.copytree(project / "triage", tmp_path / "waiting")
    open_monitor(folder / "huc.yaml").check("2024-03-04T06:00+00:00")
    main(["status", "--config", str(folder / "huc.yaml")])
    (pending,) = [row for row in capsys.readouterr().out.split("\n") if "pending" in row]
    assert pending.split()[2:] == ["pending"]


def test_a_backtick_of_a_name_is_one_on_the_terminal(capsys):
    tell(f"Branch {chat('a`b*c')}")
    assert capsys.readouterr().out == "Branch a`b*c\n"


def test_a_fleet_shows_every_monitor_and_what_is_wrong(captured):
    _, out, _ = captured["huc-monitor status --config '*/huc.yaml'"]
    assert re.search(r"triage/huc.yaml +(ok|warning)", out)
    assert re.search(r"tickets/huc.yaml +error", out)
    assert out.index("tickets") < out.index("triage"), "the worst first"


@pytest.mark.parametrize("name", sorted(typer.main.get_command(app).commands))
def test_help_fits_80_columns(name, capsys):
    assert main([name, "--help"]) == 0
    assert not too_wide(capsys.readouterr().out)


def test_every_command_of_the_pages_is_captured():
    """Which commands the pages name; each is captured, or its help is looked at."""
    named = set()
    for page in PAGES:
        for language in ("console", "sh"):
            for block in blocks(page.name, language):
                named |= set(re.findall(r"^(?:\$ )?huc-monitor ([a-z]+)", block, re.MULTILINE))
    shown = {command.split()[1] for command in COMMANDS}
    assert named - ELSEWHERE <= shown
    assert "status" in named


def test_the_page_of_captures_has_every_command(captured):
    """Run with HUC_WRITE_CAPTURES=1 to write the page anew."""
    if os.environ.get("HUC_WRITE_CAPTURES"):
        parts = ["# Commands at 80 columns\n\nWhat each prints, as a test captured it.\n"]
        for command, (code, out, err) in captured.items():
            said = re.sub(r"(?<=\s)/\S+/", "", f"{out}{err}".rstrip())
            said = "\n".join(row.rstrip() for row in said.splitlines())
            parts.append(f"```text\n$ {command}\n{said}\n(exit code {code})\n```\n")
        PAGE.write_text("\n".join(parts), "utf-8")
    text = PAGE.read_text("utf-8")
    assert not too_wide(text)
    for command in COMMANDS:
        assert f"$ {command}\n" in text


JSON = {
    "check": f"check --now {NOW} --dry-run",
    "status": "status",
    "fleet": "status --config huc.yaml --config tickets/huc.yaml",
    "init": "init all.parquet --tree tree.json --label label --out other.yaml",
    "audit": "audit all.parquet --tree tree.json --label label --tolerance 0.02",
    "compare": "compare first.parquet last.parquet --tree tree.json --label label",
    "discover": "discover all.parquet --tree tree.json --label label --feature protocol",
    "plan": "plan --candidates 40 --size 0.05",
    "forecast": "forecast --config triage/huc.yaml",
    "report": "report --out other.html",
    "doctor": "doctor --config huc.yaml",
    "sample": "sample --budget 50 --window 2024-03-05 --out other.csv",
}
# These need a registry, or go on: tests of MLflow and of `watch` ask for them.
JSON_ELSEWHERE = {"watch", "demo", "recalibrate", "promote", "rollback"}


@pytest.mark.parametrize("name", JSON)
def test_json_documents_follow_their_schema(name, project, capsys, monkeypatch, captured):  # noqa: ARG001
    monkeypatch.chdir(project)
    main([*JSON[name].split(), "--json"])
    assert_follows(name, json.loads(capsys.readouterr().out))
    with pytest.raises(jsonschema.ValidationError):
        assert_follows(name, {})


def test_every_command_with_json_has_a_schema():
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in typer.main.get_command(app).commands.items()
    }
    with_json = {name for name, known in options.items() if "--json" in known}
    assert with_json == set(output_schema()["properties"]) - {"fleet"}
    assert with_json | {"fleet"} == set(JSON) | JSON_ELSEWHERE


def test_the_schema_says_what_every_field_of_a_document_holds():
    schema = output_schema()
    documents = {kind.__name__ for kind in DOCUMENTS.values()}
    for name in documents | {"AuditForm", "WindowRow", "WaitingWindow", "FleetMember", "DemoPhase"}:
        described = schema["$defs"][name]
        assert not described["description"].startswith("Of ``"), name
        for field, about in described["properties"].items():
            assert len(about.get("description", "")) > 5, f"{name}.{field}"


def test_the_schema_in_the_docs_is_that_of_the_documents():
    assert json.loads((ROOT / "docs" / "output.schema.json").read_text()) == output_schema()


def test_a_dry_run_says_what_another_tolerance_and_another_tree_will_do(
    project, tmp_path, capsys, monkeypatch
):
    folder = tmp_path / "project"
    shutil.copytree(project / "triage", folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "10000")
    text = Path("huc.yaml").read_text("utf-8")
    before = Path("huc-state").stat().st_mtime_ns
    Path("huc.yaml").write_text(text.replace("tolerance: 0.03", "tolerance: 0.3"), "utf-8")
    main(["check", "--dry-run", "--now", "2024-03-03T14:00"])
    out = capsys.readouterr().out
    assert re.search(r"The tolerance changed for (\d+) of \1 candidates: in the newest", out)
    assert "0 are above the new one" in out
    assert "The e-detector starts afresh" in out
    changed = text.replace("{type: LevelCorrectness, level: 1, name: status}", "{type: TopK, k: 2}")
    Path("huc.yaml").write_text(changed, "utf-8")
    main(["check", "--dry-run", "--now", "2024-03-03T14:00"])
    out = capsys.readouterr().out
    assert "this is a new monitor, and all windows are audited again" in out
    assert "Audited for the first time: utilities top2.\n" in out
    more = text.replace("protocol: each", "protocol: each, version: each")
    Path("huc.yaml").write_text(more, "utf-8")
    main(["check", "--dry-run", "--now", "2024-03-03T14:00"])
    assert "Audited for the first time: subgroups version=1.\n" in capsys.readouterr().out
    assert Path("huc-state").stat().st_mtime_ns == before, "nothing was written"


@pytest.mark.parametrize(("variable", "coloured"), [("FORCE_COLOR", True), ("NO_COLOR", False)])
def test_levels_have_colours_where_they_are_wanted(
    project, capsys, monkeypatch, variable, coloured
):
    monkeypatch.chdir(project / "triage")
    monkeypatch.setenv(variable, "1")
    main(["status"])
    assert ("\x1b[" in capsys.readouterr().out) == coloured


@pytest.mark.parametrize("terminal", [True, False])
def test_what_takes_longer_than_two_seconds_says_so_on_a_terminal(capsys, monkeypatch, terminal):
    monkeypatch.setattr("huc_monitor.cli.showing._PATIENCE", 0.05)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    with working("huc-monitor backup"):
        time.sleep(0.4)
    with working("huc-monitor prune"):
        pass
    time.sleep(0.2)
    expected = "huc-monitor backup: working ...\n" if terminal else ""
    assert capsys.readouterr().err == expected
