"""A monitor that looks for subgroups nobody named, and watches them in later windows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.monitor.windows import TimeWindows
from huc_monitor.sources import Columns, FrameTable, TableSource
from huc_monitor.subgroups import Subgroups

START = datetime(2026, 3, 1, tzinfo=UTC)
TREE = hm.LabelTree.from_nested({"billing": ["refund", "charge"], "other": None})
PAY = hm.Payoff("billing", {"refund": 1.0, "charge": 1.0})
CONFIG = """
version: 1
model: shop
tree: tree.json
source: {log: {path: log.parquet}}
columns: {time: at, id: id, label: y, probabilities: "{leaf}"}
utilities: [{type: Payoff, name: billing, payoffs: {refund: 1, charge: 1}}]
windows: {length: 1d}
reference: {start: 2026-03-01, end: 2026-03-03}
subgroups: {discover: {columns: [channel, age], every: 2}}
state: state
"""


def make_log(days=8, per_day=800, *, off=0.35, seed=0):
    """Draw days of rows; from the third on, billing is likelier for the app's users from 60 on."""
    rng = np.random.default_rng(seed)
    n = days * per_day
    log = pd.DataFrame({"at": pd.date_range(START, periods=n, freq=pd.Timedelta(days=1) / per_day)})
    log["id"] = np.arange(n)
    log["channel"] = rng.choice(["app", "web"], n)
    log["age"] = rng.integers(18, 90, n)
    p = rng.dirichlet(np.ones(3), n)
    late = np.arange(n) >= 2 * per_day
    inside = late & ((log["channel"] == "app") & (log["age"] >= 60)).to_numpy()
    share = p[:, :2].sum(axis=1)
    moved = np.where(inside, np.clip(share + off, 0, 1), share)
    scale = np.stack([moved / share, moved / share, (1 - moved) / p[:, 2]], axis=1)
    truth = p * scale
    codes = (truth.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1).clip(0, 2)
    log[list(TREE.leaves)] = p
    return log.assign(y=np.array(TREE.leaves)[codes])


def make_monitor(log, tracker=None, *, every=2, **more):
    policy = hm.DiscoveryPolicy(columns=("channel", "age"), every=every, **more)
    columns = Columns(time="at", id="id", label="y", features=["channel", "age"])
    options = {} if tracker is None else {"tracker": tracker}
    return hm.Monitor(
        source=TableSource(FrameTable(log), tree=TREE, columns=columns),
        windows=TimeWindows(length="1d"),
        tree=TREE,
        utilities=[PAY],
        subgroups=hm.GrowingSubgroups(policy, Subgroups.whole()),
        reference=(START, START + timedelta(days=2)),
        **options,
    )


def day(number):
    return START + timedelta(days=number, minutes=1)


@pytest.fixture(scope="module")
def daily():
    """One check a day."""
    monitor = make_monitor(make_log())
    return monitor, [monitor.check(now=day(k)) for k in range(1, 9)]


def subgroups_of(record):
    return set(hm.AuditResult.from_dict(record.audit).to_frame()["subgroup"])


def test_what_is_found_is_told_and_watched_from_the_next_window_on(daily):
    _, checks = daily
    told = [note for note in checks[3].message.data["notes"] if "New subgroup" in note]
    assert len(told) == 1
    assert "channel=app" in told[0]
    assert "2026-03-03 to 2026-03-05" in told[0]
    for check in checks[:4]:
        assert {name for r in check.records for name in subgroups_of(r)} == {"all"}
    (new,) = subgroups_of(checks[4].records[0]) - {"all"}
    assert new.startswith("channel=app and age>=")


def test_a_new_subgroup_is_tested_on_rows_that_did_not_choose_it(daily):
    _, checks = daily
    change = checks[4].records[0].change
    assert change.pools == (1,), "windows that chose it are not pooled"
    (new,) = subgroups_of(checks[4].records[0]) - {"all"}
    assert new in {item.subgroup for item in change.changes}
    assert change.n_before == 1600
    alerts = {alert.subgroup for alert in checks[4].alerts}
    assert new in alerts


def test_checking_once_gives_what_checking_daily_gives(daily):
    monitor, _ = daily
    once = make_monitor(make_log())
    once.check(now=day(8))
    assert [r.to_dict() | {"timings": 0} for r in once.records()] == [
        r.to_dict() | {"timings": 0} for r in monitor.records()
    ]


def test_nothing_is_added_where_nothing_is_wrong():
    monitor = make_monitor(make_log(off=0.0, seed=3))
    result = monitor.check(now=day(8))
    assert all(subgroups_of(record) == {"all"} for record in result)


def test_the_file_asks_for_it(tmp_path):
    make_log().to_parquet(tmp_path / "log.parquet")
    (tmp_path / "tree.json").write_text('{"billing": ["refund", "charge"], "other": null}')
    (tmp_path / "huc.yaml").write_text(CONFIG)
    monitor = hm.open_monitor(tmp_path / "huc.yaml")
    result = monitor.check(now=day(8))
    assert any("channel=app" in name for name in subgroups_of(result[-1]))
