"""The README's commands, run as they stand there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

README = Path(__file__).parents[1] / "README.md"
NESTED = {"sick": {"chest": ["flu", "pneumonia"], "other": ["rash", "sprain"]}, "well": None}
LEAVES = ["flu", "pneumonia", "rash", "sprain", "well"]


def commands(section: str) -> list[str]:
    text = README.read_text("utf-8").split(f"{section}\n", 1)[1]
    block = re.search(r"```console\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return block.group(1).splitlines()


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    name, *arguments = shlex.split(command)
    assert name == "huc-monitor"
    call = [Path(sys.executable).parent / name, *arguments]
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path):
    """A log of thirty days in which one branch is wrong for women, and its tree."""
    rng = np.random.default_rng(0)
    n = 30_000
    p = rng.dirichlet(np.full(5, 0.7), n)
    frame = pd.DataFrame(p, columns=LEAVES)
    frame["id"] = np.arange(n)
    frame["time"] = pd.Timestamp("2024-03-01", tz="UTC") + pd.to_timedelta(
        np.sort(rng.uniform(0, 30 * 86_400, n)), unit="s"
    )
    frame["sex"] = rng.choice(["f", "m"], n)
    frame["age"] = rng.integers(18, 95, n)
    truth = p.copy()
    women = (frame["sex"] == "f").to_numpy()
    truth[women] = truth[women][:, [1, 0, 2, 3, 4]]
    codes = np.minimum((rng.random((n, 1)) > truth.cumsum(axis=1)).sum(axis=1), 4)
    frame["y"] = np.array(LEAVES)[codes]
    frame.to_parquet(tmp_path / "predictions.parquet")
    (tmp_path / "tree.yaml").write_text(yaml.safe_dump(NESTED, sort_keys=False), "utf-8")
    return tmp_path


def test_three_commands_lead_from_a_log_to_a_finding(folder):
    init, check, report = (run(command, folder) for command in commands("## Watch a model"))
    assert init.returncode == 0, init.stderr
    assert check.returncode == 1, check.stderr
    assert "chest" in check.stdout
    assert report.returncode in {0, 1}, report.stderr
    page = (folder / "report.html").read_text("utf-8")
    assert "chest" in page
    again = run(commands("## Watch a model")[1], folder)
    assert "chest" not in again.stdout.split("open", 1)[0]


def test_one_file_is_audited_with_one_command(folder):
    (command,) = commands("### One file")
    found = run(command, folder)
    assert found.returncode == 1, found.stderr
    assert "chest" in found.stdout
