"""``huc-monitor compare`` with two logs."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.cli import main

LEAVES = ["none", "assisted", "coma", "died"]
TREE = hm.LabelTree.from_nested({"survived": ["none", "assisted", "coma"], "died": None})


@pytest.fixture
def place(tmp_path):
    (tmp_path / "tree.json").write_text(json.dumps(TREE.to_dict()))
    return tmp_path


def write(path, *, seed, power=1.0, says=1.0):
    """A log whose labels follow one power of its predictions, and which says another."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(4), 1500) * 0.98 + 0.005
    truth, shown = (p**t / (p**t).sum(axis=1, keepdims=True) for t in (power, says))
    codes = (rng.random((1500, 1)) > truth.cumsum(axis=1)).sum(axis=1).clip(0, 3)
    frame = pd.DataFrame(shown, columns=LEAVES)
    frame["y"] = np.array(LEAVES)[codes]
    frame["sex"] = rng.choice(["f", "m"], 1500)
    frame.to_parquet(path)
    return path


def compare(capsys, place, *arguments):
    options = ["--tree", place / "tree.json", "--label", "y", "--subgroup", "sex=each"]
    code = main(["compare", *map(str, [*arguments, *options])])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_equal_windows_are_fine_and_a_changed_one_is_an_alert(capsys, place):
    one, same = (write(place / f"{k}.parquet", seed=k) for k in (1, 2))
    other = write(place / "3.parquet", seed=3, power=0.3)
    assert compare(capsys, place, one, same)[0] == 0
    code, out, err = compare(capsys, place, one, other)
    assert (code, err) == (1, "")
    sizes = "n = 1,500 before, 1,500 after"
    assert f"candidates differ by more than chance (0.95 confidence)  {sizes}" in out
    code, out, _ = compare(capsys, place, one, other, "--json")
    found = hm.Comparison.from_dict(json.loads(out)["comparison"])
    assert (code, found.kind, found.worst.sure) == (1, "samples", True)


def test_two_models_on_the_same_rows_are_compared_in_pairs(capsys, place):
    old = write(place / "old.parquet", seed=1, power=0.5)
    new = write(place / "new.parquet", seed=1, power=0.5, says=0.5)
    code, out, _ = compare(capsys, place, old, new, "--paired")
    assert code == 0
    assert "HUC 0." in out
    # The way back makes HUC worse by more than chance.
    assert compare(capsys, place, new, old, "--paired")[0] == 1
    other = write(place / "other.parquet", seed=2)
    code, out, err = compare(capsys, place, old, other, "--paired")
    assert (code, out) == (2, "")
    assert "must have the same labels in the same order if paired" in err


def test_a_comparison_is_drawn_by_branch_and_subgroup(capsys, place):
    one = write(place / "1.parquet", seed=1)
    other = write(place / "3.parquet", seed=3, power=0.3)
    assert compare(capsys, place, one, other, "--out", place / "change.svg")[0] == 1
    drawn = (place / "change.svg").read_text("utf-8")
    assert "Change of moments, after minus before, with bounds (0.95 together)" in drawn
    assert "Largest difference by branch and subgroup" in drawn
    assert "sex=f" in drawn
    code, out, err = compare(capsys, place, one, other, "--out", place / "change.pdf")
    assert (code, out) == (2, "")
    assert "must end in .svg or .png; got '.pdf'" in err
