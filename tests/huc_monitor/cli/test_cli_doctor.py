"""`huc-monitor doctor`, shell completion, and help that shows how."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from huc_monitor.cli import app, main
from huc_monitor.cli.doctor import installation
from huc_monitor.sources import DuckTable

LEAVES = ["lion", "lynx", "dog"]
SETTINGS = {
    "model": "zoo",
    "tree": "tree.yaml",
    "source": {"log": {"path": "log.parquet"}},
    "columns": {"time": "time", "label": "label"},
    "windows": {"length": "1d", "label_lag": "1d"},
    "tolerance": 0.05,
}


@pytest.fixture
def project(tmp_path):
    """Write a project; days of predictions up to now, of which the last day has no labels."""

    def make(*, labelled_until=3.0, end=None, **changes):
        rng = np.random.default_rng(0)
        n, days = 400, np.sort(rng.uniform(0, 4, 400))
        frame = pd.DataFrame(rng.dirichlet(np.ones(3), n), columns=LEAVES)
        begin = (pd.Timestamp.now("UTC") if end is None else end) - pd.Timedelta(days=4)
        frame["time"] = begin + pd.to_timedelta(days, unit="D")
        label = np.array(LEAVES, dtype=object)[rng.integers(0, 3, n)]
        frame["label"] = np.where(days < labelled_until, label, None)
        frame["site"] = np.array(["east", "west", "north"])[rng.integers(0, 3, n)]
        frame.to_parquet(tmp_path / "log.parquet")
        (tmp_path / "tree.yaml").write_text("cat: [lion, lynx]\ndog:\n", "utf-8")
        path = tmp_path / "huc.yaml"
        path.write_text(yaml.safe_dump({**SETTINGS, **changes}), "utf-8")
        return path

    return make


def examine(capsys, *arguments):
    code = main(["doctor", *map(str, arguments), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (code == 2) == (document["status"] == "wrong")
    return code, {finding["check"]: finding for finding in document["findings"]}


def test_a_reference_whose_labels_are_not_due_is_a_note(project, capsys):
    today = pd.Timestamp.now("UTC").normalize()
    days = [f"{today + pd.Timedelta(days=k):%Y-%m-%d}" for k in (-3, 1, 2)]
    _, found = examine(capsys, "--config", project(reference={"start": days[0], "end": days[1]}))
    assert found["reference"]["outcome"] == "note"
    said = f"The reference ends {days[1]} and its labels are due {days[2]}: windows are audited"
    assert found["reference"]["text"].startswith(said)
    assert found["reference"]["fix"] == "To begin earlier, give the reference an earlier end."


@pytest.mark.parametrize("groups", [{}, {"by": {"site": "each"}}])
def test_a_reference_without_a_row_is_wrong_until_one_is_frozen(project, capsys, groups):
    today = pd.Timestamp.now("UTC").normalize()
    days = [f"{today + pd.Timedelta(days=k):%Y-%m-%d}" for k in (-90, -89, -3, -2)]
    given = {"state": "state", "subgroups": groups}
    empty = {"reference": {"start": days[0], "end": days[1]}, **given}
    code, found = examine(capsys, "--config", project(**empty))
    assert (code, found["reference"]["outcome"]) == (2, "wrong")
    assert "must hold labelled rows" in found["reference"]["text"]
    config = project(reference={"start": days[2], "end": days[3]}, **given)
    assert main(["check", "--config", str(config)]) in {0, 1}
    capsys.readouterr()
    log = pd.read_parquet(config.parent / "log.parquet")
    log[log["time"] >= days[3]].to_parquet(config.parent / "log.parquet")
    assert "reference" not in examine(capsys, "--config", config)[1]


def test_a_subgroup_that_a_check_found_is_listed(project, capsys):
    config = project(subgroups={"by": {"site": "each"}}, state="state")
    assert "discovered" not in examine(capsys, "--config", config)[1]
    assert main(["check", "--config", str(config)]) in {0, 1}
    capsys.readouterr()
    (kept,) = (config.parent / "state").rglob("state.json")
    state = json.loads(kept.read_text("utf-8"))
    kept.write_text(json.dumps({**state, "discovered": ["site=east and lion>=0.5"]}), "utf-8")
    found = examine(capsys, "--config", config)[1]["discovered"]
    assert found["outcome"] == "ok"
    assert found["text"].endswith("watched too: site=east and lion>=0.5")


def test_labels_that_were_corrected_are_no_repeats(project, capsys):
    config = project()
    log = pd.read_parquet(config.parent / "log.parquet").assign(id=range(400))
    labels = log[["id", "label"]].assign(at=log["time"] + pd.Timedelta(hours=1)).dropna()
    again = labels.iloc[::10].assign(label="dog", at=log["time"] + pd.Timedelta(hours=2))
    pd.concat([labels, again]).to_parquet(config.parent / "labels.parquet")
    place = {"path": "labels.parquet", "id": "id", "label": "label", "time": "at"}
    given = {
        "source": {"log": {"path": "log.parquet"}, "labels": place},
        "columns": {"time": "time", "id": "id"},
    }
    config.write_text(yaml.safe_dump({**SETTINGS, **given}), "utf-8")
    log = log.drop(columns="label")
    log.to_parquet(config.parent / "log.parquet")
    found = examine(capsys, "--config", config)[1]["ids"]
    assert (found["outcome"], found["fix"]) == ("ok", None)
    said = r"\d labels replaced by later, different ones, .* corrected: the latest of each"
    assert re.search(said, found["text"])
    pd.concat([log, log]).to_parquet(config.parent / "log.parquet")
    found = examine(capsys, "--config", config)[1]["ids"]
    assert (found["outcome"], found["fix"]) == ("note", "write each prediction once")


def test_no_more_windows_of_a_number_of_rows_are_cut_than_are_needed(project, capsys, monkeypatch):
    asked, advance = [], DuckTable.advance

    def counted(*arguments):
        asked.append(arguments)
        return advance(*arguments)

    monkeypatch.setattr(DuckTable, "advance", counted)
    config = project(windows={"rows": 10}, subgroups={"by": {"site": "each"}})
    _, found = examine(capsys, "--config", config)
    assert found["subgroups"]["text"] == "4: all, site=east, site=north, site=west"
    assert len(asked) <= 2  # of 40 windows


def test_a_reference_that_is_complete_is_not_spoken_of(project, capsys):
    today = pd.Timestamp.now("UTC").normalize()
    days = [f"{today + pd.Timedelta(days=k):%Y-%m-%d}" for k in (-3, -2)]
    _, found = examine(capsys, "--config", project(reference={"start": days[0], "end": days[1]}))
    assert "reference" not in found


def test_a_sound_project_passes(capsys, project):
    code, found = examine(capsys, "--config", project())
    assert code == 0
    for check in ("python", "numba", "cache", "config", "log", "labels", "state"):
        assert found[check]["outcome"] == "ok", found[check]
    assert found["config"]["text"].endswith("3 leaves, 2 branches")
    assert found["labels"]["text"].startswith("100% of the newest")


def test_a_tolerance_that_nothing_can_exceed_is_a_note(capsys, project):
    code, found = examine(capsys, "--config", project(tolerance=46))
    assert code == 0
    assert found["tolerance"]["outcome"] == "note"
    assert found["tolerance"]["text"].startswith("No moment of level1, level2 can exceed")
    assert found["tolerance"]["fix"].startswith("lower tolerance.value")


def test_the_file_beside_is_looked_at_unless_told(capsys, project, monkeypatch, tmp_path):
    monkeypatch.chdir(project().parent)
    assert main(["doctor"]) == 0
    assert "\nok     config" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path_without_config(tmp_path))
    assert main(["doctor"]) == 0
    assert "No huc.yaml here" in capsys.readouterr().out


def tmp_path_without_config(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def test_a_missing_extra_is_a_note_with_the_command_that_installs_it(capsys, monkeypatch):
    def version(name):
        if name == "apprise":
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(installation, "version", version)
    monkeypatch.chdir(Path(__file__).parent)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "note   extra notify" in out
    assert "pip install 'huc-monitor[notify]'" in out


def test_a_cache_that_cannot_be_written_is_said(capsys, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(blocked / "cache"))
    code, found = examine(capsys)
    assert code == 0
    assert found["cache"]["outcome"] == "note"
    assert "NUMBA_CACHE_DIR" in found["cache"]["fix"]


def test_subgroups_that_a_check_could_not_freeze_are_wrong(capsys, project):
    twice = {"by": {"site": "each"}, "predicates": {}}
    end = pd.Timestamp.now("UTC").normalize() - pd.Timedelta(hours=12)
    config = project(subgroups=twice, end=end)
    assert examine(capsys, "--config", config)[1]["subgroups"]["text"].startswith(
        "4: all, site=east,"
    )
    twice["predicates"] = {"site=east": {"column": "site", "op": "==", "value": "east"}}
    code, found = examine(capsys, "--config", project(subgroups=twice, end=end))
    assert (code, found["subgroups"]["outcome"]) == (2, "wrong")
    assert "must have unique names" in found["subgroups"]["text"]
    assert main(["check", "--config", str(config)]) == 2


def test_subgroups_are_built_on_the_rows_that_a_check_freezes_them_on(capsys, project):
    by_site = {"by": {"site": "each"}}
    # Windows begin at midnight, so that the first one has the rows of an hour.
    end = pd.Timestamp.now("UTC").normalize() - pd.Timedelta(hours=1)
    config = project(subgroups=by_site, end=end)
    told = examine(capsys, "--config", config)[1]["subgroups"]["text"]
    rows = pd.read_parquet(config.parent / "log.parquet")
    first = rows[rows.time < end - pd.Timedelta(days=4) + pd.Timedelta(hours=1)]
    seen = sorted(first.site[first.label.notna()].unique())
    assert 0 < len(seen) < 3
    assert told == f"{1 + len(seen)}: {', '.join(['all', *(f'site={name}' for name in seen)])}"
    assert main(["check", "--config", str(config)]) < 2
    (state,) = (config.parent / "huc-state").glob("**/state.json")
    frozen = json.loads(state.read_text())["subgroups"]["subgroups"]
    assert [one["name"] for one in frozen] == [f"site={name}" for name in seen]


def test_a_column_that_goes_with_the_labels_is_asked_about_once(capsys, project):
    end = pd.Timestamp.now("UTC").normalize()  # the first window is a whole day at any hour
    config = project(subgroups={"by": {"seen": "each", "site": "each"}}, end=end)
    log = config.parent / "log.parquet"
    rows = pd.read_parquet(log)
    rows.assign(seen=rows["label"].str.upper()).to_parquet(log)
    code, found = examine(capsys, "--config", config)
    assert (code, found["outcome"]["outcome"]) == (0, "note")
    assert found["outcome"]["text"] == "Is the column 'seen' (it goes with the labels) the label?"
    assert "leave it out of the subgroups" in found["outcome"]["fix"]
    assert main(["check", "--config", str(config)]) < 2
    assert capsys.readouterr().out.count("Is the column 'seen'") == 1
    later = str(pd.Timestamp.now("UTC") + pd.Timedelta(days=1))
    assert main(["check", "--config", str(config), "--now", later]) < 2
    assert "Is the column" not in capsys.readouterr().out


def test_the_label_is_no_subgroup_and_no_column_to_search(capsys, project):
    config = project(subgroups={"by": {"label": "each"}})
    code, found = examine(capsys, "--config", config)
    assert (code, found["config"]["outcome"]) == (2, "wrong")
    for command in (["check"], ["discover", "--feature", "label"]):
        changes = {} if command[0] == "discover" else {"subgroups": {"by": {"label": "each"}}}
        assert main([*command, "--config", str(project(**changes))]) == 2
        assert "got the label 'label': grouped by what happened" in capsys.readouterr().err


def test_a_bad_file_is_wrong_and_names_the_line(capsys, project):
    code, found = examine(capsys, "--config", project(tolerance=-1))
    assert code == 2
    assert "huc.yaml:" in found["config"]["text"]
    assert "log" not in found


def test_a_missing_file_is_wrong(capsys, tmp_path):
    code, found = examine(capsys, "--config", tmp_path / "none.yaml")
    assert code == 2
    assert "must be an existing file" in found["config"]["text"]


def test_a_column_that_is_not_there_is_wrong(capsys, project):
    code, found = examine(capsys, "--config", project(columns={"time": "at", "label": "label"}))
    assert code == 2
    assert "'at'" in found["log"]["text"]
    assert "columns" in found["log"]["fix"]


def test_dates_in_an_order_that_would_be_a_guess_are_wrong(capsys, project, tmp_path):
    path = project(source={"log": {"path": "log.csv"}})
    log = pd.read_parquet(tmp_path / "log.parquet")
    log["time"] = log["time"].dt.strftime("%m/%d/%Y %H:%M:%S")
    log.to_csv(tmp_path / "log.csv", index=False)
    code, found = examine(capsys, "--config", path)
    assert (code, found["log"]["outcome"]) == (2, "wrong")
    assert main(["check", "--config", str(path)]) == 2
    for told in (found["log"]["text"], capsys.readouterr().err):
        assert "none of the 400 rows" in told
        assert "is the day first, or the month?" in told
        assert "Write times such as 2024-03-31T06:00:00Z" in told


def test_labels_that_stopped_coming_are_told_from_labels_that_never_came(capsys, project):
    code, found = examine(capsys, "--config", project(labelled_until=1.5))
    assert code == 2
    assert "stopped coming" in found["labels"]["fix"]
    code, found = examine(capsys, "--config", project(labelled_until=0))
    assert code == 2
    assert "columns.label" in found["labels"]["fix"]


def test_ids_that_two_tables_write_differently_are_a_note(capsys, project, tmp_path):
    labels = {"path": "labels.parquet", "id": "case", "label": "label"}
    source = {"log": {"path": "log.parquet"}, "labels": labels}
    path = project(source=source, columns={"time": "time", "id": "case"})
    log = pd.read_parquet(tmp_path / "log.parquet").assign(case=[f"A{i}" for i in range(400)])
    log.drop(columns="label").to_parquet(tmp_path / "log.parquet")
    found = log[["case", "label"]]
    found.assign(case=found["case"].str.lower()).to_parquet(tmp_path / "labels.parquet")
    _, said = examine(capsys, "--config", path)
    assert (said["labels"]["outcome"], said["join"]["outcome"]) == ("wrong", "note")
    assert said["join"]["text"].startswith("0 of 400 ids in ")
    assert said["join"]["text"].endswith("(such as 'a0'): they differ in upper and lower case")
    assert said["join"]["fix"].startswith("write them alike in both")
    found.to_parquet(tmp_path / "labels.parquet")
    assert "join" not in examine(capsys, "--config", path)[1]


def test_too_few_labels_for_an_audit_are_a_note(capsys, project):
    windows = {"length": "1d", "label_lag": "1d", "min_labelled": 5_000}
    code, found = examine(capsys, "--config", project(windows=windows))
    assert code == 0
    assert "too few" in found["labels"]["text"]


def test_labels_that_are_not_due_are_a_note(capsys, project):
    code, found = examine(capsys, "--config", project(windows={"length": "1d", "label_lag": "9d"}))
    assert code == 0
    assert found["labels"]["text"] == "none is due yet"


def test_a_log_that_nobody_writes_to_is_a_note(capsys, project):
    code, found = examine(capsys, "--config", project(end=pd.Timestamp("2024-03-05", tz="UTC")))
    assert code == 0
    assert found["log"]["outcome"] == "note"
    assert "none for" in found["log"]["fix"]


def test_rows_without_a_time_are_a_note_and_a_log_without_any_is_wrong(capsys, project):
    path = project()
    log = pd.read_parquet(path.with_name("log.parquet"))
    for n, code in ((0, 0), (7, 0), (400, 2)):
        log.loc[log.index[:n], "time"] = pd.NaT
        log.to_parquet(path.with_name("log.parquet"))
        got, found = examine(capsys, "--config", path)
        assert got == code
        assert ("times" in found) == (n == 7)
        text = found["times" if n == 7 else "log"]["text"]
        assert f"{n} rows" in text or n == 0
        assert "has no rows" not in text


def test_a_row_long_before_the_rest_is_a_note_until_windows_begin_later(capsys, project, tmp_path):
    path = project()
    log = pd.read_parquet(tmp_path / "log.parquet")
    begin = f"{log['time'].iloc[1]:%Y-%m-%d}"
    log.loc[log.index[0], "time"] = pd.Timestamp(0, tz="UTC")
    log.to_parquet(tmp_path / "log.parquet")
    _, found = examine(capsys, "--config", path)
    assert found["times"]["outcome"] == "note"
    assert found["times"]["text"].startswith("1 of 400 rows lie ")
    assert found["times"]["fix"].endswith(f"or set windows.begin: {begin}")
    later = yaml.safe_dump({**SETTINGS, "windows": {"length": "1d", "begin": begin}})
    path.write_text(later, "utf-8")
    assert "times" not in examine(capsys, "--config", path)[1]


def test_a_state_folder_that_cannot_be_made_is_wrong(capsys, project):
    code, found = examine(capsys, "--config", project(state="log.parquet/state"))
    assert code == 2
    assert "cannot write" in found["state"]["text"]


@pytest.mark.filterwarnings("ignore")  # MLflow and its dependencies warn about themselves
def test_a_tracker_that_does_not_answer_is_wrong_and_its_password_is_not_shown(capsys, project):
    tracker = {"name": "mlflow", "settings": {"tracking_uri": "http://me:hush@127.0.0.1:9"}}
    code, found = examine(capsys, "--config", project(tracker=tracker))
    assert code == 2
    assert found["state"]["outcome"] == "wrong"
    assert "tracking_uri" in found["state"]["fix"]
    assert "hush" not in json.dumps(found)


@pytest.mark.seconds
@pytest.mark.filterwarnings("ignore")  # MLflow and its dependencies warn about themselves
def test_a_tracker_that_answers_is_named_and_nothing_is_recorded(capsys, project, tmp_path):
    import mlflow

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracker = {"name": "mlflow", "settings": {"tracking_uri": uri}}
    code, found = examine(capsys, "--config", project(tracker=tracker))
    assert code == 0, found["state"]
    assert found["state"]["text"] == f"mlflow answers at {uri}"
    assert found["registry"]["outcome"] == "note"
    assert "has no model 'zoo'" in found["registry"]["text"]
    names = [e.name for e in mlflow.MlflowClient(uri).search_experiments()]
    assert names == ["Default"]


def test_a_tracker_or_channel_that_is_not_installed_is_wrong(capsys, project):
    path = project(tracker="mlflw", channels={"ops": "pigeon"}, alerts={"channels": ["ops"]})
    code, found = examine(capsys, "--config", path)
    assert code == 2
    assert found["state"]["text"].endswith("Did you mean 'mlflow'?")
    assert found["channel ops"]["text"].endswith("Choose from 'apprise', 'webhook'.")
    assert "channels.ops" in found["channel ops"]["fix"]


@pytest.mark.seconds
def test_a_channel_whose_address_cannot_be_read_is_wrong_and_not_shown(capsys, project):
    channels = {
        "ops": {"name": "apprise", "secrets": {"url": "slak://token-a/token-b"}},
        "hook": {
            "name": "webhook",
            "settings": {"url": "https://example.invalid/huc"},
            "secrets": {"secret": "a secret of at least thirty-two characters"},
        },
    }
    path = project(channels=channels, alerts={"channels": ["ops", "hook"]})
    code, found = examine(capsys, "--config", path)
    assert code == 2
    assert found["channel ops"]["outcome"] == "wrong"
    assert "must be an apprise URL" in found["channel ops"]["text"]
    assert "token" not in json.dumps(found)
    assert found["channel hook"]["outcome"] == "ok"


def complete(words: str, **environment: str) -> str:
    settings = {
        "_HUC_MONITOR_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run(
        [Path(sys.executable).with_name("huc-monitor")],
        env={**os.environ, **settings, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.seconds
def test_a_shell_completes_commands_and_options():
    assert complete("huc-monitor do").split() == ["doctor"]
    assert "--fail-on" in complete("huc-monitor check --fa").split()


def test_a_shell_can_ask_for_its_completion_script():
    script = complete("", _HUC_MONITOR_COMPLETE="source_bash")
    assert "_HUC_MONITOR_COMPLETE=complete_bash" in script


@pytest.mark.parametrize("command", [command.name for command in app.registered_commands])
def test_the_help_of_every_command_ends_with_an_example_that_parses(capsys, command):
    import typer

    assert main([command, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    example = text.split(f"Example: huc-monitor {command}", 1)[1].split(" Arguments:")[0]
    words = shlex.split(example.split(" Options:")[0])
    group = typer.main.get_command(app)
    parser = group.commands[command]
    parser.make_context(command, words)
