from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.cli import main

TREE = {"survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]}, "died": None}


def plan(capsys, *arguments) -> tuple[int, str, str]:
    code = main(["plan", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def pilot(tmp_path):
    rng = np.random.default_rng(7)
    tree = hm.LabelTree.from_nested(TREE)
    p = rng.dirichlet(np.ones(5), size=300)
    frame = pd.DataFrame(p, columns=tree.leaves)
    frame["y"] = [rng.choice(tree.leaves, p=row) for row in p]
    frame["sex"] = rng.choice(["f", "m"], size=300)
    frame.to_parquet(tmp_path / "pilot.parquet")
    (tmp_path / "tree.json").write_text(json.dumps(tree.to_dict()))
    return [tmp_path / "pilot.parquet", "--tree", tmp_path / "tree.json", "--label", "y"]


def test_a_number_of_candidates_is_enough_for_a_plan(capsys):
    code, out, err = plan(capsys, "--candidates", 84, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    at = {row["n"]: row for row in document["detectable"]}
    for bounds in ("theorem", "sharp", "bootstrap"):
        assert at[2_000][bounds] == hm.detectable_size(2_000, bounds=bounds, n_candidates=84)
    needed = {row["size"]: row for row in document["labels_needed"]}
    assert needed[0.05]["sharp"] == hm.labels_needed(0.05, bounds="sharp", n_candidates=84)
    assert "e_detector" not in needed[0.05]


def test_the_table_has_every_bound_and_hides_what_cannot_be_shown(capsys):
    code, out, _ = plan(capsys, "--candidates", 84, "--size", 0.05)
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert lines["n"].split() == ["n", "theorem", "sharp", "bootstrap"]
    assert lines["250"].split()[1] == "-"
    assert lines["100,000"].split()[1:] == ["0.1499", "0.0263", "0.0120"]
    assert lines["0.05"].split()[1] == "899,307"


def test_a_pilot_adds_its_typical_candidate_and_the_e_detector(capsys, pilot):
    options = ["--subgroup", "sex=each", "--size", 0.1, "--runs", 2, "--tolerance", 0.01, "--json"]
    code, out, err = plan(capsys, *pilot, *options)
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["candidate"][1] == "all"
    assert 0 < document["settings"]["mean_square"] < 0.25
    (row,) = document["labels_needed"]
    assert row["e_detector"] % 250 == 0
    code, out, _ = plan(capsys, *pilot, "--size", 0.1, "--runs", 2)
    assert code == 0
    assert "e-detector" in out


def test_a_size_the_pilot_cannot_have_has_no_alarm(capsys, pilot):
    code, out, _ = plan(capsys, *pilot, "--size", 0.9, "--runs", 2, "--json")
    assert code == 0
    assert json.loads(out)["labels_needed"][0]["e_detector"] is None


def test_sizes_beyond_the_range_of_the_utility_are_refused(capsys, pilot, tmp_path):
    code, out, err = plan(capsys, "--candidates", 40, "--size", 5)
    assert (code, out) == (2, "")
    assert "`size` must be at most 1," in err
    assert "Divide a size in money by the utility's `scale`." in err
    (tmp_path / "pay.yaml").write_text("[{type: Payoff, name: pay, payoffs: {coma: 0.06}}]")
    pay = ["--utility", tmp_path / "pay.yaml", "--runs", 0]
    code, out, err = plan(capsys, *pilot, *pay, "--json")
    assert (code, err) == (0, "")
    assert [row["size"] for row in json.loads(out)["labels_needed"]] == [0.02, 0.05]
    code, out, err = plan(capsys, *pilot, *pay, "--size", 0.1)
    assert (code, out) == (2, "")
    assert "`size` must be at most 0.06," in err


def test_a_plan_without_anything_to_plan_for_is_an_error(capsys, pilot):
    assert plan(capsys)[0] == 2
    code, out, err = plan(capsys, pilot[0])
    assert (code, out) == (2, "")
    assert "add --tree and --label" in err
