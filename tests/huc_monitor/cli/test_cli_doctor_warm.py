"""`huc-monitor doctor --warm`: after it, no command compiles anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from support.production_log import TREE, make_log, write_project

from huc_monitor.cli import main

WORK = """
import sys, warnings
import numpy as np
import huc_monitor as hm
from huc_monitor.cli import main
from huc_monitor.cli.doctor.warming import _counts

warnings.simplefilter("ignore")
audit = ["--tree", "tree.json", "--subgroup", "protocol=each"]
assert main(["audit", "flat.parquet", *audit, "--label", "label"]) in {0, 1}
assert main(["compare", "flat.parquet", "flat.parquet", *audit, "--label", "label"]) in {0, 1}
assert main(["check", "--now", "2024-03-05"]) in {0, 1}
tree = hm.LabelTree.from_file("tree.json")
p = np.random.default_rng(0).dirichlet(np.ones(5), 3000)
labels = np.array(tree.leaves)[np.random.default_rng(1).integers(0, 5, 3000)]
boost = hm.HUCBoost(tree=tree, utilities=[hm.LevelCorrectness(level=2), hm.TopK(3)]).fit(p, labels)
boost.predict_proba(p)
compiled, found = _counts()
print(f"\\ncompiled {compiled}, found {found}")
"""


def test_every_step_says_what_it_compiled_or_found(capsys):
    assert main(["doctor", "--warm", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    warmed = [item for item in findings if item["check"].startswith("warm ")]
    assert len(warmed) == 5
    assert {item["outcome"] for item in warmed} == {"ok"}
    assert all("functions compiled" in item["text"] for item in warmed)


def test_a_step_that_fails_is_told_and_the_others_go_on(capsys, monkeypatch):
    from huc_monitor.cli.doctor import warming

    def broken():
        message = "no compiler"
        raise RuntimeError(message)

    monkeypatch.setattr(warming, "_steps", lambda: {"audit": broken, "compare": lambda: None})
    assert main(["doctor", "--warm"]) == 2
    out = capsys.readouterr().out
    assert "wrong  warm audit" in out
    assert "no compiler" in out
    assert "ok     warm compare" in out


@pytest.mark.slow
def test_no_command_compiles_anything_in_a_warmed_environment(tmp_path):
    log, labels = make_log(3, 400, broken_from=1)
    write_project(tmp_path, log, labels)
    log.merge(labels[["id", "label"]], on="id").to_parquet(tmp_path / "flat.parquet")
    (tmp_path / "tree.json").write_text(json.dumps(TREE), "utf-8")

    def run(code, *arguments):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    entry = "import sys; from huc_monitor.cli import main; sys.exit(main(sys.argv[1:]))"
    said = run(entry, "doctor", "--warm")
    assert re.search(r"warm audit +[1-9]\d* functions compiled, 0 found", said), said
    assert run(WORK).splitlines()[-1].startswith("compiled 0, found ")
