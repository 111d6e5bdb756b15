"""Identities as they were before settings were declared once: state folders must go on."""

from __future__ import annotations

from datetime import UTC, datetime

import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.config import parse_config
from huc_monitor.sources import Columns, FrameTable, TableSource

TREE = "{survived: {milder: [none, assisted], major: [limited, coma]}, died: null}"
LOG = """
model: triage
tree: tree.yaml
source: {log: {path: log.parquet}}
columns: {time: ts, label: y, id: id, probabilities: "p_{leaf}"}
"""
SHORT = (
    LOG
    + """
windows: {length: 1d, time_zone: Europe/Berlin, label_lag: 2d}
tolerance: 0.02
"""
)
BOUNDS = "bounds: {method: sharp, confidence_level: 0.9, draws: 500, seed: 3}"
ROLLING = (
    LOG
    + """
windows: {length: " 7 d", stride: 1d, min_labelled: 9, revisit: 3d}
tolerance: {value: 1, unit: money}
utilities: [{type: TopK, k: 2, units: EUR, scale: 20}]
"""
    + BOUNDS
)
COUNTED = (
    LOG
    + """
windows: {rows: 500, stride: 100}
tolerance: {value: 0.1, overrides: [{node: major, value: 9}]}
subgroups: {by: {age: [65, 80], sex: each}, weights: {risk: score}, min_size: 20}
reference: {start: 2024-03-31, end: 2024-04-01T12:00:00+00:00}
utilities: [{type: TopK, k: 2}]
retraining:
  enabled: true
  promotion: shadow
  gate: {min_improvement: 0.01}
  on_sequential_alarm: false
alerts: {cool_down: 3d, min_windows: 2}
"""
)
JOINED = """
model: triage
tree: tree.yaml
source:
  log: {path: log.parquet}
  labels: {path: l.csv, id: id, label: y, time: at}
  sum_tolerance: 0.01
  max_bad_share: 0.2
columns:
  time: ts
  id: id
  time_unit: ms
  probabilities: {list: p, classes: [none, assisted, limited, coma, died]}
windows: {length: 6h, begin: 2024-01-01}
tolerance: 0.05
sequential: {tolerance: 0.01, average_run_length: 50}
drift: {enabled: false}
"""
NEW_WORDS = "audit: {bounds: sharp, confidence_level: 0.9, n_draws: 500, rng: 3}"


@pytest.mark.parametrize(
    ("text", "hashes"),
    [
        (SHORT, ("81641115d014e300", "9f3dd90330b7812b")),
        (ROLLING, ("3ae8afa7d6a4a2a5", "e5691cdb009e0dc6")),
        (ROLLING.replace(BOUNDS, NEW_WORDS), ("3ae8afa7d6a4a2a5", "e5691cdb009e0dc6")),
        (COUNTED, ("aca1a567454e8e26", "ca9cfe4ff2a80819")),
        (COUNTED.replace("rows:", "n_rows:"), ("aca1a567454e8e26", "ca9cfe4ff2a80819")),
        (COUNTED.replace("retraining", "recalibration"), ("aca1a567454e8e26", "ca9cfe4ff2a80819")),
        (JOINED, ("ac7b024e2cf77375", "b3db008fae047fb9")),
    ],
)
def test_the_identities_of_a_file_are_those_of_the_version_before(text, hashes, tmp_path):
    (tmp_path / "tree.yaml").write_text(TREE)
    config = parse_config(text, folder=tmp_path, environ={})
    assert (config.identity, config.policy_identity) == hashes


WEEKS = hm.TimeWindows(
    length="7d",
    stride="1d",
    time_zone="Europe/Berlin",
    begin="2024-01-03",
    min_labelled=5,
    min_coverage=0.5,
    label_lag="2d",
)


@pytest.mark.parametrize(
    ("windows", "hashes"),
    [
        (hm.TimeWindows(length="1d"), ("e03de40b88c1edce", "56470cd10e27700d")),
        (WEEKS, ("10441485a2fe057c", "c3ebe287999bcbac")),
        (hm.CountWindows(n_rows=500), ("2c8a93bc41ed6a5e", "757750a4a364f9ef")),
        (hm.CountWindows(n_rows=500, stride=100), ("2852149d16a3e3e8", "cb266a1cdb4601c9")),
    ],
)
def test_the_identities_of_monitors_made_in_python_are_those_of_the_version_before(windows, hashes):
    tree = hm.LabelTree.flat(["a", "b"])
    times = pd.date_range("2024-01-01", periods=4, freq="h", tz="UTC")
    log = pd.DataFrame({"at": times, "a": 0.5, "b": 0.5, "y": list("abab")})
    common = {
        "source": TableSource(FrameTable(log), tree=tree, columns=Columns(time="at", label="y")),
        "windows": windows,
        "tree": tree,
        "utilities": [hm.TopK(1)],
    }
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    options = hm.AuditOptions(bounds="sharp", confidence_level=0.9, n_draws=50, rng=3)
    special = hm.Monitor(
        **common,
        subgroups=lambda _: hm.Subgroups.whole(),
        reference=(moment, moment),
        policy=hm.Policy(audit=options),
    )
    assert (hm.Monitor(**common).identity, special.identity) == hashes
