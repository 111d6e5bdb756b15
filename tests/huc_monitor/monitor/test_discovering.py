"""A monitor that looks for subgroups nobody named, and watches them in later windows."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.monitor._state import MonitorState
from huc_monitor.monitor.policy import Policy
from huc_monitor.monitor.ports.tracker import MemoryTracker
from huc_monitor.monitor.windows import TimeWindows
from huc_monitor.sources import Columns, FrameTable, LabelTable, TableSource
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


def make_monitor(
    log, *, every=2, most=8, features=("channel", "age"), labels=None, revisit="0s", **more
):
    policy = hm.DiscoveryPolicy(columns=features, every=every, max_segments=most)
    names = {name: more.pop(name) for name in ("cluster", "label_probability") if name in more}
    given = {} if labels is not None else {"label": "y"}
    columns = Columns(time="at", id="id", features=list(features), **given, **names)
    options = {"policy": Policy(**more)} if more else {}
    return hm.Monitor(
        source=TableSource(FrameTable(log), tree=TREE, columns=columns, labels=labels),
        windows=TimeWindows(length="1d", revisit=revisit),
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
    assert "2026-03-03 to 2026-03-04" in told[0]
    assert not checks[0].records  # the reference has not ended
    for check in checks[1:4]:
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


def test_a_search_that_found_nothing_is_noted_in_its_record_and_not_told():
    monitor = make_monitor(make_log(off=0.0, seed=3))
    result = monitor.check(now=day(8))
    said = [[note for note in record.notes if "searched" in note] for record in result]
    assert [len(notes) for notes in said] == [0, 0, 0, 1, 0, 1, 0, 1]
    searched = "The 1,600 labelled rows of 2026-03-03 to 2026-03-04 were searched for subgroups"
    assert said[3] == [f"{searched}; no new one is watched."]
    assert not any("searched" in note for note in told(result))


def rare(log, *, all_rows=0.0):
    """Let billing of 2 % of the rows never come, and of some of all rows; predictions stay."""
    rng = np.random.default_rng(4)
    log = log.assign(country=rng.choice(["DE", "FR", "US", "PL"], len(log)))
    log = log.assign(seller=rng.choice(["new", "old"], len(log), p=[0.08, 0.92]))
    few = (log["country"] == "DE") & (log["seller"] == "new")
    few &= log["at"] >= START + timedelta(days=2)
    return log.assign(y=log["y"].mask(few | (rng.random(len(log)) < all_rows), "other"))


RARE = {"every": 7, "features": ("country", "seller")}


def test_a_rare_subgroup_is_adopted_where_its_own_rows_are_wrong_by_more_than_the_tolerance():
    log = rare(make_log(9, off=0.0))
    monitor = make_monitor(log, tolerance={"value": 0.054}, **RARE)
    notes = [note for note in told(monitor.check(now=day(9))) if "New subgroup" in note]
    assert any("country=DE and seller=new" in note for note in notes)
    lax = make_monitor(log, tolerance={"value": 0.8}, **RARE).check(now=day(9))
    assert not any("New subgroup" in note for note in told(lax))


def test_branches_that_are_off_for_everyone_leave_room_for_a_subgroup():
    log = rare(make_log(9, off=0.0), all_rows=0.2)
    monitor = make_monitor(log, most=1, tolerance={"value": 0.054}, **RARE)
    assert any("country=DE and seller=new" in note for note in told(monitor.check(now=day(9))))


def test_the_file_asks_for_it(tmp_path):
    make_log().to_parquet(tmp_path / "log.parquet")
    (tmp_path / "tree.json").write_text('{"billing": ["refund", "charge"], "other": null}')
    (tmp_path / "huc.yaml").write_text(CONFIG)
    monitor = hm.open_monitor(tmp_path / "huc.yaml")
    result = monitor.check(now=day(8))
    assert any("channel=app" in name for name in subgroups_of(result[-1]))


def told(result):
    return [] if result.message is None else result.message.data["notes"]


def test_labels_that_were_chosen_by_the_outcome_are_no_new_subgroup():
    log = make_log(off=0.0, per_day=2500)
    chance = np.where(log["channel"] == "app", np.where(log["y"] == "other", 0.9, 0.3), 0.5)
    log["chance"] = chance
    log = log[np.random.default_rng(1).random(len(log)) < chance]
    plain = make_monitor(log).check(now=day(8))
    assert any("New subgroup" in note for note in told(plain))
    weighed = make_monitor(log, label_probability="chance").check(now=day(8))
    assert not any("New subgroup" in note for note in told(weighed))


def test_retries_are_no_new_subgroup_where_they_are_a_cluster():
    once = make_log(per_day=150, off=0.0)
    log = once.loc[once.index.repeat(20)].assign(user=lambda rows: rows["id"])
    log["id"] = np.arange(len(log))
    assert any("New subgroup" in note for note in told(make_monitor(log).check(now=day(8))))
    clustered = make_monitor(log, cluster="user").check(now=day(8))
    assert not any("New subgroup" in note for note in told(clustered))


def test_windows_in_maintenance_are_not_searched():
    log = make_log()
    usual = make_log(off=0.0)
    shut = log["at"].between(START + timedelta(days=4), START + timedelta(days=6), "left")
    log = pd.concat([usual[~shut], log[shut]]).sort_values("id")
    assert any("New subgroup" in note for note in told(make_monitor(log).check(now=day(8))))
    closed = [{"start": "2026-03-05", "end": "2026-03-07"}]
    monitor = make_monitor(log, maintenance=closed)
    checks = [monitor.check(now=day(k)) for k in range(1, 9)]
    assert not any("New subgroup" in note for check in checks for note in told(check))
    assert all(subgroups_of(record) == {"all"} for record in monitor.records())


def late_monitor(log):
    """Labels of the third to the tenth day are all known on the eleventh."""
    in_time = ~log["at"].between(START + timedelta(days=2), START + timedelta(days=10), "left")
    known_at = log["at"].where(in_time, START + timedelta(days=10, seconds=30))
    known = pd.DataFrame({"id": log["id"], "label": log["y"], "time": known_at})
    table = LabelTable(table=FrameTable(known), id="id", label="label", time="time")
    return make_monitor(log.drop(columns="y"), labels=table, revisit="30d")


def test_a_search_of_late_rows_that_finds_nothing_is_in_the_last_of_their_records():
    monitor = late_monitor(make_log(11, off=0.0))
    monitor.check(now=day(8))
    result = monitor.check(now=day(10))
    said = [[note for note in r.notes if "searched" in note] for r in result.records]
    searched = "The 6,400 labelled rows of 2026-03-03 to 2026-03-10 were searched for subgroups"
    assert said == [[]] * (len(said) - 1) + [[f"{searched}; no new one is watched."]]
    assert [r.to_dict() for r in monitor.records()][-1]["notes"] == list(result.records[-1].notes)


def test_windows_whose_labels_come_late_are_searched_then():
    monitor = late_monitor(make_log(11))
    before = monitor.check(now=day(8))
    assert {record.status for record in before.records[2:]} == {"thin"}
    after = monitor.check(now=day(10))
    assert {record.status for record in after.records[2:]} == {"audited"}
    assert any("New subgroup" in note for note in told(after))
    assert all(subgroups_of(r) == {"all"} for r in after.records if r.status == "audited")
    newest = monitor.check(now=day(11)).records[-1]
    assert any(name.startswith("channel=app") for name in subgroups_of(newest))


def test_columns_that_cannot_be_searched_are_told_once():
    log = make_log().assign(note=lambda rows: rows["id"].astype(str))
    monitor = make_monitor(log, features=("channel", "age", "note"))
    notes = [note for k in range(1, 9) for note in told(monitor.check(now=day(k)))]
    (said,) = [note for note in notes if "'note'" in note]
    assert said.startswith("In the search for subgroups, column 'note' has")


def test_windows_in_maintenance_whose_labels_come_late_are_not_searched_either():
    usual, odd = make_log(11, off=0.0), make_log(11)
    shut = odd["at"].between(START + timedelta(days=4), START + timedelta(days=6), "left")
    log = pd.concat([usual[~shut], odd[shut]]).sort_values("id")
    in_time = ~log["at"].between(START + timedelta(days=4), START + timedelta(days=6), "left")
    known_at = log["at"].where(in_time, START + timedelta(days=7, seconds=30))
    known = pd.DataFrame({"id": log["id"], "label": log["y"], "time": known_at})
    table = LabelTable(table=FrameTable(known), id="id", label="label", time="time")
    monitor = make_monitor(
        log.drop(columns="y"),
        labels=table,
        every=4,
        maintenance=[{"start": "2026-03-05", "end": "2026-03-07"}],
        revisit="30d",
    )
    checks = [monitor.check(now=day(k)) for k in range(1, 12)]
    assert not any("New subgroup" in note for check in checks for note in told(check))


def check_after_losing(days):
    """Check before a search, then search in a log whose first days were deleted."""
    log, tracker = make_log(), MemoryTracker()
    left = log[log["at"] >= START + timedelta(days=days)]
    for rows, number in ((log, 3), (left, 4)):
        made = make_monitor(rows[rows["at"] < day(number)])
        result = dataclasses.replace(made, tracker=tracker, identity="5f").check(now=day(number))
        yield result, MonitorState.from_dict(tracker.load_state())


@pytest.mark.parametrize("days", [0.3, 1.9, 2])
def test_nothing_is_adopted_once_the_log_has_lost_more_than_a_tenth_of_the_reference(days):
    (_, before), (result, state) = check_after_losing(days)
    (said,) = [note for note in told(result) if "not watched" in note]
    n = round(1600 - 800 * days)
    assert said.endswith(f"read again, and the log has {n:,} of its labelled rows.")
    assert state.discovered == []
    assert state.reference == before.reference


def test_a_reference_that_lost_a_few_rows_is_read_again_for_a_new_subgroup():
    _, (result, state) = check_after_losing(0.1)
    assert any("New subgroup" in note for note in told(result))
    assert state.discovered


def state_of(monitor):
    return MonitorState.from_dict(monitor.tracker.load_state())


def test_windows_in_maintenance_do_not_fill_the_state():
    daily = [{"start": "2026-03-01T01:00", "end": "2026-03-01T02:00", "repeat_every": "1d"}]
    shut = make_monitor(make_log(), maintenance=daily)
    shut.check(now=day(8))
    assert state_of(shut).unsearchable == [
        (START + timedelta(days=2), START + timedelta(days=8))
    ]  # as one time
    closed = [{"start": f"2026-03-0{k}", "end": f"2026-03-0{k + 1}"} for k in (6, 8)]
    full = make_monitor(make_log(), most=1, maintenance=closed)
    full.check(now=day(8))
    state = state_of(full)
    assert len(state.discovered) == 1
    assert (state.unsearchable, state.unsearched) == ([], 0)
