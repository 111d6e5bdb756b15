from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.cli import main

TREE = {"survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]}, "died": None}
LEAVES = ["none", "assisted", "limited", "coma", "died"]


@pytest.fixture
def tree_file(tmp_path):
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(hm.LabelTree.from_nested(TREE).to_dict()))
    return path


@pytest.fixture
def frame():
    rng = np.random.default_rng(7)
    probabilities = rng.dirichlet(np.ones(5), size=400)
    data = pd.DataFrame(probabilities, columns=LEAVES)
    data["y"] = [rng.choice(LEAVES, p=row) for row in probabilities]
    data["age"] = rng.integers(20, 95, size=400)
    data["sex"] = rng.choice(["f", "m"], size=400)
    return data


@pytest.fixture
def log(tmp_path, frame):
    path = tmp_path / "predictions.parquet"
    frame.to_parquet(path)
    return path


def audit(capsys, *arguments) -> tuple[int, str, str]:
    code = main(["audit", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def audit_json(capsys, *arguments) -> dict:
    code, out, err = audit(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def assert_one_line_error(outcome: tuple[int, str, str], *parts: str) -> None:
    code, out, err = outcome
    assert (code, out) == (2, "")
    assert err.startswith("huc-monitor: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


def test_the_table_shows_the_numbers_of_the_library(capsys, log, frame, tree_file):
    code, out, err = audit(capsys, log, "--tree", tree_file, "--label", "y", "--utility", "level:1")
    tree = hm.LabelTree.from_nested(TREE)
    result = hm.audit(
        frame[LEAVES],
        frame["y"],
        tree=tree,
        utilities=[hm.LevelCorrectness(level=1)],
        bounds="bootstrap",
    )
    row = result.to_frame(all_columns=True).iloc[0]
    assert (code, err) == (0, "")
    assert f"HUC {result.huc:.4f}  UC {result.uc:.4f}  n = 400" in out
    assert f"{row['moment']:+.4f}" in out
    assert f"[{row['interval_low']:.4g}, {row['interval_high']:.4g}]" in out


def test_json_is_the_result_of_the_library(capsys, log, frame, tree_file):
    document = audit_json(capsys, log, "--tree", tree_file, "--label", "y", "--confidence", "0.9")
    tree = hm.LabelTree.from_nested(TREE)
    levels = [hm.LevelCorrectness(level=depth) for depth in (1, 2, 3)]
    result = hm.audit(
        frame[LEAVES],
        frame["y"],
        tree=tree,
        utilities=levels,
        bounds="bootstrap",
        confidence_level=0.9,
        familiar=True,
    )
    assert document["audit"] == json.loads(json.dumps(result.to_dict()))
    assert (document["status"], document["n_unlabelled"]) == ("ok", 0)


def test_csv_and_parquet_give_the_same_audit(capsys, tmp_path, log, frame, tree_file):
    csv = tmp_path / "predictions.csv"
    frame.to_csv(csv, index=False, float_format="%.17g")
    options = ["--tree", tree_file, "--label", "y", "--subgroup", "sex=each"]
    assert audit_json(capsys, csv, *options) == audit_json(capsys, log, *options)


def test_a_folder_of_parquet_files_is_one_log(capsys, tmp_path, log, frame, tree_file):
    folder = tmp_path / "days"
    folder.mkdir()
    frame[:150].to_parquet(folder / "1.parquet")
    frame[150:].to_parquet(folder / "2.parquet")
    options = ["--tree", tree_file, "--label", "y"]
    assert audit_json(capsys, folder, *options) == audit_json(capsys, log, *options)


def test_probability_columns_may_have_a_prefix(capsys, tmp_path, log, frame, tree_file):
    path = tmp_path / "prefixed.parquet"
    frame.rename(columns={leaf: f"p_{leaf}" for leaf in LEAVES}).to_parquet(path)
    options = ["--tree", tree_file, "--label", "y"]
    with_prefix = audit_json(capsys, path, *options, "--prefix", "p_")
    assert with_prefix == audit_json(capsys, log, *options)
    assert with_prefix == audit_json(capsys, path, *options)  # it is found out
    outcome = audit(capsys, path, *options, "--prefix", "q_")
    assert_one_line_error(outcome, "0 of 5 columns match `q_{leaf}`", "`p_{leaf}`")


@pytest.mark.parametrize("order", [LEAVES, sorted(LEAVES)])
def test_one_column_may_hold_lists(capsys, tmp_path, log, frame, tree_file, order):
    path = tmp_path / "lists.parquet"
    frame[["y"]].assign(p=frame[order].to_numpy().tolist()).to_parquet(path)
    options = ["--tree", tree_file, "--label", "y"]
    found = audit_json(capsys, path, *options, "--list", "p", "--classes", ",".join(order))
    assert found == audit_json(capsys, log, *options)
    assert_one_line_error(audit(capsys, path, *options), "0 of 5", "The column 'p' holds lists")


def test_a_missing_leafs_column_is_named(capsys, tmp_path, frame, tree_file):
    path = tmp_path / "missing.parquet"
    names = {leaf: f"prob_{leaf}" for leaf in LEAVES}
    frame.rename(columns={**names, "coma": "probe_coma"}).to_parquet(path)
    outcome = audit(capsys, path, "--tree", tree_file, "--label", "y")
    assert_one_line_error(outcome, "4 of 5 columns match `prob_{leaf}`; missing: coma.")
    frame.rename(columns={**names, "coma": "prob_comma"}).to_parquet(path)
    outcome = audit(capsys, path, "--tree", tree_file, "--label", "y")
    assert_one_line_error(outcome, "Did you mean 'prob_comma'? Rename the columns, or correct")


def test_audit_and_check_read_the_same_files(capsys, tmp_path, frame, tree_file):
    """The README's shortest configuration, with a prefix and with lists."""
    times = pd.date_range("2024-01-01", periods=400, freq="1min", tz="UTC")
    frame = frame.assign(time=times)
    forms = {
        "prefix": (frame.rename(columns={leaf: f"p_{leaf}" for leaf in LEAVES}), "", []),
        "lists": (
            frame[["y", "time"]].assign(p=frame[LEAVES].to_numpy().tolist()),
            ", probabilities: {list: p}",
            ["--list", "p"],
        ),
    }
    found = []
    for name, (log, more, options) in forms.items():
        folder = tmp_path / name
        folder.mkdir()
        log.to_parquet(folder / "log.parquet")
        (folder / "huc.yaml").write_text(
            f"model: triage\ntree: {tree_file}\nsource: {{log: {{path: log.parquet}}}}\n"
            f"columns: {{time: time, label: y{more}}}\n"
            "windows: {length: 1d, label_lag: 0s}\ntolerance: 0.9\n"
        )
        path = folder / "log.parquet"
        audited = audit_json(capsys, path, "--tree", tree_file, "--label", "y", *options)
        main(["check", "--config", str(folder / "huc.yaml"), "--now", "2024-01-03"])
        capsys.readouterr()
        (record,) = hm.open_monitor(folder / "huc.yaml").records()
        assert record.audit["huc"] == audited["audit"]["huc"]
        found.append(record.audit["huc"])
    assert found[0] == found[1]


def test_accuracy_at_chance_is_noted(capsys, tmp_path, frame, tree_file):
    path = tmp_path / "mixed_up.parquet"
    sure = pd.DataFrame(0.9 * np.eye(5)[[LEAVES.index(y) for y in frame["y"]]] + 0.02)
    sure.columns = [*LEAVES[1:], LEAVES[0]]
    sure.assign(y=frame["y"]).to_parquet(path)
    options = ["--tree", tree_file, "--label", "y"]
    code, out, err = audit(capsys, path, *options)
    assert (code, err) == (0, "")
    assert "Note: accuracy is 0 %, and predictions claim 92 %: is the class order right?" in out
    (note,) = audit_json(capsys, path, *options)["audit"]["notes"]
    assert "class order" in note


def test_rows_without_a_label_are_left_out_and_counted(capsys, tmp_path, log, frame, tree_file):
    options = ["--tree", tree_file, "--label", "y"]
    waiting = frame.sample(30, random_state=1).assign(y=None)
    path = tmp_path / "late.parquet"
    pd.concat([frame, waiting]).astype({"y": "string"}).to_parquet(path)
    document = audit_json(capsys, path, *options)
    assert document["n_unlabelled"] == 30
    assert document["audit"] == audit_json(capsys, log, *options)["audit"]
    _, out, _ = audit(capsys, path, *options)
    assert "30 rows without a label were left out." in out


def test_integer_labels_are_codes_unless_leaves_have_such_names(capsys, tmp_path, log, frame):
    codes = frame.assign(y=[LEAVES.index(label) for label in frame["y"]])
    named = hm.LabelTree.from_nested(TREE)
    digits = hm.LabelTree.flat(["4", "3", "2", "1", "0"])
    documents = {}
    for name, tree, columns in (
        ("codes", named, {}),
        ("names", digits, dict(zip(LEAVES, "01234", strict=True))),
    ):
        tree_file = tmp_path / f"{name}.json"
        tree_file.write_text(json.dumps(tree.to_dict()))
        path = tmp_path / f"{name}.parquet"
        codes.rename(columns=columns).to_parquet(path)
        options = ["--tree", tree_file, "--label", "y", "--utility", "top:1"]
        documents[name] = audit_json(capsys, path, *options)["audit"]
    named_file = tmp_path / "codes.json"
    by_name = audit_json(capsys, log, "--tree", named_file, "--label", "y", "--utility", "top:1")
    assert documents["codes"] == by_name["audit"]
    # On a flat tree the only branch carries the whole residual, whatever the leaves' order.
    assert documents["names"]["uc"] == pytest.approx(by_name["audit"]["uc"], abs=1e-12)


def test_a_leaf_may_be_called_like_a_missing_value_in_a_csv(capsys, tmp_path):
    leaves = ["None", "NA", "null"]
    tree_file = tmp_path / "tree.json"
    tree_file.write_text(json.dumps(hm.LabelTree.flat(leaves).to_dict()))
    path = tmp_path / "log.csv"
    path.write_text("None,NA,null,y\n" + "".join(f"0.5,0.25,0.25,{leaf}\n" for leaf in leaves))
    document = audit_json(capsys, path, "--tree", tree_file, "--label", "y")
    assert (document["audit"]["n"], document["n_unlabelled"]) == (3, 0)


@pytest.mark.parametrize(
    ("command", "option"),
    [("audit", "--subgroup=y=each"), ("plan", "--subgroup=y=each"), ("discover", "--feature=y")],
)
def test_the_label_is_no_subgroup(command, option, capsys, log, tree_file):
    place = [str(log), "--tree", str(tree_file), "--label", "y"]
    assert main([command, *place, option]) == 2
    told = capsys.readouterr().err
    assert "must be known when the model answers; got the label 'y'" in told
    assert "The predicted class may be used instead" in told


def test_an_audit_asks_whether_a_column_is_the_label(capsys, frame, log, tree_file):
    frame.assign(seen=frame["y"].str.upper()).to_parquet(log)
    place = log, "--tree", tree_file, "--label", "y", "--subgroup"
    assert "Is the column 'seen'" in " ".join(audit(capsys, *place, "seen=each")[1].split())
    assert "Is the column" not in audit(capsys, *place, "sex=each")[1]


def test_subgroups_are_cut_as_asked(capsys, log, tree_file):
    options = ["--subgroup", "sex=each", "--subgroup", "age=65,80", "--utility", "level:1"]
    _, out, _ = audit(capsys, log, "--tree", tree_file, "--label", "y", *options, "--top", "99")
    rules = {"sex": "each", "age": [65, 80]}
    frame = pd.read_parquet(log)
    names = hm.Subgroups.from_reference(frame, rules).names
    assert len(names) == 6
    for name in names:
        assert name in out


def test_the_median_splits_in_two(capsys, log, tree_file):
    options = ["--tree", tree_file, "--label", "y", "--utility", "level:1"]
    whole = audit_json(capsys, log, *options)["audit"]
    split = audit_json(capsys, log, *options, "--subgroup", "age=median")["audit"]
    assert len(split["candidates"]) == 3 * len(whole["candidates"])


@pytest.mark.parametrize(
    ("text", "utility"),
    [
        ("level:2", hm.LevelCorrectness(level=2)),
        ("path:2", hm.GreedyPathCorrectness(level=2)),
        ("top:3", hm.TopK(3)),
        ("in:major", hm.SubtreeIndicator(node="major")),
        ('{"type": "TopK", "k": 2}', hm.TopK(2)),
    ],
)
def test_a_utility_can_be_written_in_short(capsys, log, frame, tree_file, text, utility):
    options = ["--tree", tree_file, "--label", "y", "--utility", text]
    document = audit_json(capsys, log, *options)
    tree = hm.LabelTree.from_nested(TREE)
    result = hm.audit(frame[LEAVES], frame["y"], tree=tree, utilities=[utility], familiar=True)
    assert document["audit"] == json.loads(json.dumps(result.to_dict()))


def test_utilities_can_come_from_a_file(capsys, tmp_path, log, tree_file):
    path = tmp_path / "utilities.yaml"
    path.write_text("- {type: TopK, k: 3}\n- {type: LevelCorrectness, level: 1}\n")
    options = ["--tree", tree_file, "--label", "y"]
    from_file = audit_json(capsys, log, *options, "--utility", path)
    in_short = audit_json(capsys, log, *options, "--utility", "top:3", "--utility", "level:1")
    assert from_file == in_short


def test_the_exit_code_is_1_exactly_when_a_moment_exceeds_the_tolerance(capsys, log, tree_file):
    options = [log, "--tree", tree_file, "--label", "y"]
    huc = audit_json(capsys, *options)["audit"]["huc"]
    assert huc > 0
    code, out, _ = audit(capsys, *options, "--tolerance", str(huc * 0.99))
    assert code == 1
    assert "yes" in out
    code, out, _ = audit(capsys, *options, "--tolerance", str(huc * 1.01))
    assert code == 0
    assert "yes" not in out
    code, out, _ = audit(capsys, *options, "--tolerance", str(huc * 0.99), "--json")
    assert (code, json.loads(out)["status"]) == (1, "alert")


def test_top_limits_the_table_and_says_what_is_hidden(capsys, log, tree_file):
    _, out, _ = audit(capsys, log, "--tree", tree_file, "--label", "y", "--top", "1")
    assert "more candidates" in out
    assert out.count("[") == 2  # the interval in the sentence, and that of the only row


def test_names_with_brackets_are_printed_as_they_are(capsys, tmp_path):
    tree_file = tmp_path / "tree.json"
    tree_file.write_text(json.dumps(hm.LabelTree.flat(["a", "b"], root="[red]odd[/]").to_dict()))
    path = tmp_path / "log.csv"
    path.write_text("a,b,y\n0.75,0.25,b\n0.75,0.25,b\n")
    code, out, _ = audit(capsys, path, "--tree", tree_file, "--label", "y")
    assert code == 0
    assert out.count("[red]odd[/]") == 2


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--label", "z"], ["'z'", "By its values it may be: --label y"]),
        (["--label", "y", "--subgroup", "age"], ["--subgroup", "COLUMN=each", "'age'"]),
        (["--label", "y", "--subgroup", "age=old"], ["--subgroup", "'age=old'"]),
        (["--label", "y", "--subgroup", "weight=each"], ["'weight'"]),
        (["--label", "y", "--subgroup", "sex=each", "--subgroup", "sex=each"], ["'sex' twice"]),
        (["--label", "y", "--utility", "best"], ["--utility", "level:", "'best'"]),
        (["--label", "y", "--utility", "top:many"], ["top:K", "'many'"]),
        (["--label", "y", "--utility", "level:9"], ["level"]),
        (["--label", "y", "--utility", "in:nowhere"], ["'nowhere'"]),
        (["--label", "y", "--utility", "nothing.yaml"], ["nothing.yaml"]),
        (["--label", "y", "--utility", "{type: [}"], ["YAML"]),
        (["--label", "y", "--utility", "{type: Best}"], ["'Best'", "TopK"]),
        (["--label", "y", "--tolerance", "-1"], ["--tolerance"]),
        (["--label", "y", "--bounds", "wide"], ["bounds", "theorem", "'wide'"]),
        (["--label", "y", "--confidence", "1.5"], ["confidence_level", "1.5"]),
        (["--label", "sex"], ["'f'"]),
        ([], ["`--label` must name a column", "it may be: --label y"]),
        (["--label", "y", "--list", "sex"], ["unusable", "expected a list of 5 numbers"]),
        (["--label", "y", "--list", "sex", "--classes", "a,b"], ["`classes` must name every"]),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(capsys, log, tree_file, options, parts):
    assert_one_line_error(audit(capsys, log, "--tree", tree_file, *options), *parts)


def test_a_missing_predictions_file_is_named(capsys, tmp_path, tree_file):
    path = tmp_path / "gone.parquet"
    outcome = audit(capsys, path, "--tree", tree_file, "--label", "y")
    assert_one_line_error(outcome, "gone.parquet")


def test_a_missing_tree_file_is_named(capsys, tmp_path, log):
    outcome = audit(capsys, log, "--tree", tmp_path / "gone.yaml", "--label", "y")
    assert_one_line_error(outcome, "gone.yaml")


@pytest.mark.parametrize("name", ["broken.parquet", "broken.csv", "broken.csv.gz", "broken.xlsx"])
def test_an_unreadable_file_is_named(capsys, tmp_path, tree_file, name):
    path = tmp_path / name
    path.write_bytes(b"\xff\x00PAR?")
    assert_one_line_error(audit(capsys, path, "--tree", tree_file, "--label", "y"), name)


def test_an_empty_csv_is_one_line(capsys, tmp_path, tree_file):
    path = tmp_path / "empty.csv"
    path.touch()
    outcome = audit(capsys, path, "--tree", tree_file, "--label", "y")
    assert_one_line_error(outcome, "empty.csv")


def test_bad_probabilities_are_one_line(capsys, tmp_path, frame, tree_file):
    path = tmp_path / "bad.parquet"
    frame.assign(coma=-0.5).to_parquet(path)
    outcome = audit(capsys, path, "--tree", tree_file, "--label", "y")
    assert_one_line_error(outcome, "probabilities", "coma")


def test_few_unusable_rows_are_set_aside_and_told(capsys, tmp_path, frame, tree_file):
    bad = frame.assign(y=frame["y"].where(frame.index != 9, "Died"))
    bad.loc[[3, 7], "none"] += 0.7
    bad.to_parquet(tmp_path / "bad.parquet")
    rest = bad.drop(index=[3, 7, 9])
    rest.to_parquet(tmp_path / "rest.parquet")
    given = "--tree", tree_file, "--label", "y"
    found, plain = (
        audit_json(capsys, tmp_path / f"{name}.parquet", *given) for name in ("bad", "rest")
    )
    (note,) = found["audit"].pop("notes")
    assert found == plain
    said = "3 of 400 labelled rows were set aside (1 unknown label, 2 bad probabilities). First: "
    assert note.startswith(
        f"{said}row 3: bad probabilities: they sum to 1.7. Labels that are no node"
    )
    assert "'Died' (1 rows). Did you mean 'died'? Only the spelling differs" in note
    code, out, err = audit(capsys, tmp_path / "bad.parquet", *given)
    assert (code, err) == (0, "")
    assert f"Note: {said}row 3: bad" in " ".join(out.split())
    with pytest.raises(hm.InvalidInputError, match=r"row 3"):
        hm.audit(bad[LEAVES], bad["y"], tree=hm.LabelTree.from_nested(TREE))


def test_every_command_that_reads_a_file_tells_the_rows_it_set_aside(
    capsys, tmp_path, frame, tree_file
):
    bad, fine = (str(tmp_path / f"{name}.parquet") for name in ("bad", "fine"))
    frame = pd.concat([frame] * 2, ignore_index=True)
    frame.to_parquet(fine)
    frame.loc[3, "none"] += 0.7
    frame.to_parquet(bad)
    given = ["--tree", str(tree_file), "--label", "y"]
    said = "1 of 800 labelled rows were set aside (1 bad probabilities). First: row 3: bad"
    calls = {
        "discover": [bad, "--feature", "sex"],
        "compare": [fine, bad],
        "plan": [bad, "--size", "0.1", "--runs", "0"],
    }
    for command, call in calls.items():
        assert main([command, *call, *given]) == 0
        assert said in " ".join(capsys.readouterr().out.split())
        assert main([command, *call, *given, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        (note,) = (document["discovery"] if command == "discover" else document)["notes"]
        assert said in note
    assert main(["compare", fine, bad, *given, "--paired"]) == 2
    assert "leave them out of the file" in capsys.readouterr().err


def test_many_unusable_rows_are_refused_with_the_remedy(capsys, tmp_path, frame, tree_file):
    frame.loc[:20, "none"] += 0.7
    frame.to_parquet(tmp_path / "bad.parquet")
    outcome = audit(capsys, tmp_path / "bad.parquet", "--tree", tree_file, "--label", "y")
    parts = "21 of 400 labelled rows of ", "are unusable, more than 0.05 of them (21 bad"
    assert_one_line_error(outcome, *parts, "Correct these rows, or leave them out of the file.")


def test_a_log_without_any_label_is_one_line(capsys, tmp_path, frame, tree_file):
    path = tmp_path / "none.parquet"
    frame.assign(y=pd.Series([None] * 400, dtype="string")).to_parquet(path)
    assert_one_line_error(audit(capsys, path, "--tree", tree_file, "--label", "y"), "row")


def test_an_unexpected_error_does_not_look_like_an_alert(capsys, monkeypatch, log, tree_file):
    def fail(*_args, **_kwargs):
        msg = "boom"
        raise RuntimeError(msg)

    monkeypatch.setattr(hm, "audit", fail)
    monkeypatch.delenv("HUC_MONITOR_DEBUG", raising=False)
    outcome = audit(capsys, log, "--tree", tree_file, "--label", "y")
    assert_one_line_error(outcome, "unexpected RuntimeError: boom", "HUC_MONITOR_DEBUG=1")
    monkeypatch.setenv("HUC_MONITOR_DEBUG", "1")
    with pytest.raises(RuntimeError, match="boom"):
        main(["audit", str(log), "--tree", str(tree_file), "--label", "y"])


def test_an_interrupt_ends_with_130(monkeypatch, log, tree_file):
    def interrupt(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(hm, "audit", interrupt)
    assert main(["audit", str(log), "--tree", str(tree_file), "--label", "y"]) == 130


def test_an_unknown_command_is_one_line(capsys):
    code = main(["audits"])
    captured = capsys.readouterr()
    assert_one_line_error((code, captured.out, captured.err), "audits")


def test_version_is_the_packages(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"huc-monitor {hm.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["audit", "--help"], ["demo", "--help"]])
def test_help_is_exit_code_0(capsys, arguments):
    assert main(arguments) == 0
    assert "Usage: huc-monitor" in capsys.readouterr().out


def installed_command() -> str:
    return str(Path(sys.executable).with_name("huc-monitor"))


@pytest.mark.seconds
def test_the_installed_command_prints_no_colour_codes_into_a_pipe(log, tree_file):
    environment = {
        k: v for k, v in os.environ.items() if k not in {"FORCE_COLOR", "TTY_COMPATIBLE"}
    }
    done = subprocess.run(
        [installed_command(), "audit", str(log), "--tree", str(tree_file), "--label", "y"],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert "HUC 0." in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_warnings_of_the_library_are_told_as_notes(tmp_path, frame, tree_file):
    times = pd.date_range("2024-03-01", periods=len(frame), freq="1min")
    times = times.where(times > times[0], pd.Timestamp("2206-03-01"))
    frame.assign(time=times).to_csv(tmp_path / "log.csv", index=False)
    call = ["init", tmp_path / "log.csv", "--tree", tree_file, "--out", tmp_path / "huc.yaml"]
    done = subprocess.run(
        [installed_command(), *call], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told = [text for text in done.stderr.splitlines() if "future" in text]
    assert told[0].startswith(f"huc-monitor: note: 1 of {len(frame):,} rows lie in the future")
    assert ".py" not in done.stderr


def test_a_reader_that_stops_early_is_not_an_alert(tmp_path):
    script = f"'{installed_command()}' plan --candidates 84 | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode in {0, 141}  # 2 would be bad data
    assert done.stderr == ""


def test_a_label_mapping_reads_other_spellings_as_the_nodes_they_mean(
    capsys, tmp_path, frame, log, tree_file
):
    spelled = frame.assign(y=frame["y"].replace({"died": "Exitus", "coma": "K 5"}))
    spelled.to_parquet(tmp_path / "spelled.parquet")
    (tmp_path / "names.csv").write_text("spelling,node\nExitus,died\nK 5,coma\n")
    given = "--tree", tree_file, "--label", "y"
    mapped = tmp_path / "spelled.parquet", *given, "--label-mapping", tmp_path / "names.csv"
    assert audit_json(capsys, *mapped) == audit_json(capsys, log, *given)
    assert_one_line_error(audit(capsys, mapped[0], *given), "Exitus")
    assert main(["compare", str(log), *map(str, mapped)]) == 0
    assert main(["plan", *map(str, mapped), "--size", "0.1", "--runs", "0"]) == 0
    spelled = pd.concat([spelled] * 2, ignore_index=True)
    spelled.to_parquet(tmp_path / "spelled.parquet")
    assert main(["discover", *map(str, mapped), "--feature", "sex"]) == 0
    assert "set aside" not in capsys.readouterr().out


def test_a_label_mapping_that_leads_nowhere_names_the_spelling(capsys, tmp_path, log, tree_file):
    (tmp_path / "names.yaml").write_text("Exitus: dead\n")
    given = log, "--tree", tree_file, "--label", "y", "--label-mapping", tmp_path / "names.yaml"
    assert_one_line_error(audit(capsys, *given), "'Exitus' leads to 'dead'")
