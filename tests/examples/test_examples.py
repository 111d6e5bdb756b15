"""Each example, run as a reader would run it, from a folder of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parents[2] / "examples"
TOOLS = {"draw_cancellation"}  # writes a picture of the documentation
# What a reader must find in the output.
FINDINGS = {
    "quickstart.py": r"worst: 'cat', moment -0\.\d+, at least 0\.1\d",
    "medical_triage.py": r"'major' for 'age>=70'(.*\n)*repaired branches: \['major'\]",
    "ticket_intents.py": r"delivery: -0\.\d\d EUR a ticket, shown to be overstated",
    "intrusion_detection.py": r"made-up(.*\n)*batch \d+: alarm\. 'family' .* at 'attack'",
    "custom_utility.py": r"saved trip, engine: -0\.0\d+ \(-\d+\.\d EUR a repair\)",
    "sklearn_pipeline.py": r"plain: accuracy 0\.9.*\n *wrapped: accuracy 0\.\d",
    "fastapi_logging.py": r"100 predictions logged: id, time, model_version, p_setosa",
    "fleet/check_fleet.py": r"tickets: critical at technical\ntriage: ok",
}


def run(name: str, folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", str(FOLDER / name), *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("name", FINDINGS)
def test_an_example_ends_with_its_finding(name, tmp_path):
    out = run(name, tmp_path)
    assert re.search(FINDINGS[name], out), out
    if name == "sklearn_pipeline.py":
        plain, wrapped = (float(x) for x in re.findall(r"HUC (\S+)", out))
        before, after = (float(x) for x in re.findall(r"log loss (\S+),", out))
        assert wrapped < plain / 1.5
        assert after < before / 2
    if name == "medical_triage.py":
        found = re.search(r"HUC of new patients: (\S+) before, (\S+) after", out)
        assert found is not None
        assert float(found[2]) < 0.6 * float(found[1])


def test_every_example_is_tested_and_begins_with_three_lines_on_who_needs_it():
    scripts = [path for path in FOLDER.glob("*.py") if path.stem not in TOOLS]
    scripts += (FOLDER / "fleet").glob("*.py")
    assert {path.relative_to(FOLDER).as_posix() for path in scripts} == set(FINDINGS)
    for path in scripts:
        first, *more, docstring = path.read_text("utf-8").splitlines()[:4]
        assert first.startswith("# For ")
        assert all(line.startswith("# ") for line in more)
        assert docstring.startswith('"""')


def test_intrusion_detection_reads_connections_from_a_folder(tmp_path):
    rng = np.random.default_rng(1)
    n = 9_000
    attack = rng.choice(["normal", "neptune", "ipsweep", "satan"], n, p=[0.5, 0.25, 0.1, 0.15])
    looks = pd.Series(attack).map({"normal": 0, "neptune": 3, "ipsweep": -3, "satan": 3})
    names = ["src_bytes", "dst_bytes", "count", "srv_count", "same_srv_rate", "dst_host_count"]
    frame = pd.DataFrame({name: looks + rng.normal(size=n) for name in names})
    frame = frame.assign(attack=attack, protocol_type=rng.choice(["tcp", "udp"], n), flag="SF")
    frame.to_parquet(tmp_path / "nsl_kdd_train20.parquet")
    out = run("intrusion_detection.py", tmp_path, str(tmp_path))
    assert "made-up" not in out
    assert re.search(r"alarm\. '(family|status)' cannot be trusted at 'attack'", out)
