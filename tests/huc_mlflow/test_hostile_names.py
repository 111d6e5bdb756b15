"""Hostile names in metrics, tags, artifacts and cards."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import pytest
from huc_mlflow._card import _change, alert_lines
from huc_mlflow._evaluator import _csv
from huc_mlflow._metrics import ShownWindow
from huc_mlflow._tracker import MLflowTracker
from mlflow.utils.validation import _validate_metric_name
from support.hostile import NAMES, NODES, UTILITIES, assert_clean

import huc_monitor as hm
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.monitor.records import AlertState, WindowRecord

DAY = datetime(2024, 3, 1, tzinfo=UTC)


def audited():
    tree = hm.LabelTree.from_nested({NODES["attack"]: ["=1+1", "@b"], NODES["dos"]: ["c", "d"]})
    rng = np.random.default_rng(0)
    utilities = [hm.TopK(1, name=UTILITIES[1]), hm.LevelCorrectness(1, name="=cmd|' /C calc'!A0")]
    p = rng.dirichlet(np.ones(4), 200)
    return hm.audit(p, rng.integers(0, 4, 200), tree=tree, utilities=utilities, n_draws=50)


def a_record(result):
    return WindowRecord(
        monitor="tri*age",
        identity="0123456789abcdef",
        window_id="5f",
        ordinal=1,
        start=DAY,
        end=DAY,
        due_at=DAY,
        status="audited",
        model_version="1\n::error::\x1b[2J",
        audit=result.to_dict(),
        tolerances=(0.02,) * result.candidates.n,
        levels=(None,) * result.candidates.n,
    )


def alert(name):
    times = {"first_seen": DAY, "last_seen": DAY, "first_ordinal": 1, "last_ordinal": 1}
    return AlertState(
        utility=name, subgroup=name, node=name, level="critical", n_windows=1, **times
    )


def test_records_with_hostile_names_are_logged_and_read_back(store):
    info = MonitorInfo("tri*age\u202e", "0123456789abcdef", model=None)
    mine = MLflowTracker(info, tracking_uri=f"sqlite:///{store}/mlflow.db")
    record = a_record(audited())
    mine.record(record)
    assert mine.records() == [record]
    mine.set_alert_status("critical", [alert(name) for name in NAMES[:-2]])
    tags = mine._client.get_run(mine.run_id).data.tags
    assert_clean(tags["huc.alerts"])


def test_every_candidate_has_a_metric_of_its_own():
    result = audited()
    found = ShownWindow(a_record(result)).metrics(1000)
    keys = [key for key in found if key.startswith("branches/")]
    assert len(keys) == result.candidates.n
    assert all(len(key) < 250 for key in keys)
    for key in keys:
        _validate_metric_name(key)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_card_shows_names_as_code_and_nothing_else(name):
    (line,) = alert_lines((alert(name),))
    assert_clean(line)
    assert line.count("`") == 6
    update = SimpleNamespace(node=name, subgroup=name)
    assert _change(SimpleNamespace(updates_=[update])).count("`") == 4


def test_a_table_holds_no_formula():
    rows = list(csv.DictReader(io.StringIO(_csv(audited()))))
    for name in ("utility", "subgroup", "node"):
        assert not {row[name][0] for row in rows} & set("=+-@")
