"""What changed since the reference, apart from what was always so."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor._common.arrays import arrays_from_bytes, arrays_to_bytes
from huc_monitor.config import init_config
from huc_monitor.detection import history
from huc_monitor.monitor import Monitor
from huc_monitor.monitor._state import MonitorState
from huc_monitor.monitor.policy import Policy
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.monitor.ports.tracker import FilesTracker, MemoryTracker
from huc_monitor.monitor.records import WindowRecord
from huc_monitor.monitor.windows import TimeWindows
from huc_monitor.sources import Columns, FrameTable, TableSource

NESTED = {"billing": ["refund", "charge"], "other": ["login", "spam"]}
TREE = hm.LabelTree.from_nested(NESTED)
DAY = pd.Timestamp("2024-03-01", tz="UTC")


def make_stream(*, days=6, rows=600, fault_from=None, seed=0):
    """Overconfident from the start; a fault swaps refund and charge for channel=app."""
    rng = np.random.default_rng(seed)
    n = days * rows
    split = np.stack([rng.uniform(0.05, 0.95, n) for _ in range(3)])
    told = np.clip(split + 0.4 * (split - 0.5), 0.02, 0.98)  # more extreme than the truth
    channel = np.where(rng.random(n) < 0.33, "app", "web")
    at = DAY + pd.to_timedelta(np.arange(n) * 86400.0 / rows, unit="s")
    draws = rng.random((2, n))
    billing = draws[0] < split[0]
    first = draws[1] < np.where(billing, split[1], split[2])
    if fault_from is not None:
        late = np.arange(n) >= fault_from * rows
        first = first ^ (late & billing & (channel == "app"))
    label = np.select(
        [billing & first, billing, ~billing & first], ["refund", "charge", "login"], "spam"
    )
    frame = pd.DataFrame({"at": at, "channel": channel, "y": label})
    frame["refund"], frame["charge"] = told[0] * told[1], told[0] * (1 - told[1])
    frame["login"], frame["spam"] = (1 - told[0]) * told[2], (1 - told[0]) * (1 - told[2])
    return frame


def make_new_class(*, days=6, rows=600, seen_from=3, share=0.03, seed=0):
    """A stream in which `spam` has no mass and never happens, until it does."""
    log = make_stream(days=days, rows=rows, seed=seed)
    log.loc[log["y"] == "spam", "y"] = "login"
    log["login"], log["spam"] = log["login"] + log["spam"], 0.0
    rng = np.random.default_rng([seed, 1])
    new = (np.arange(len(log)) >= seen_from * rows) & (rng.random(len(log)) < share)
    log.loc[new, "y"] = "spam"
    return log


def watch(log, **more):
    policy = {"tolerance": 0.02, "audit": {"n_draws": 200}, **more.pop("policy", {})}
    policy["change"] = {"alerts": "change", **policy.get("change", {})}
    named = {"model_version": more.pop("version", None)}
    named["label_probability"] = more.pop("chance", None)
    columns = Columns(time="at", label="y", features=("channel",), **named)
    return Monitor(
        source=TableSource(FrameTable(log), tree=TREE, columns=columns),
        windows=more.pop("windows", TimeWindows(length="1d")),
        tree=TREE,
        utilities=[hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2)],
        subgroups=lambda rows: hm.Subgroups.from_reference(rows, {"channel": "each"}),
        reference=(day(0), day(2)),
        policy=Policy(**policy),
        **more,
    )


def day(k):
    return (DAY + pd.Timedelta(days=k)).to_pydatetime()


def changed(record):
    return {(item.subgroup, item.node) for item in record.change.changes}


def test_what_was_always_so_is_no_change():
    records = watch(make_stream()).check(day(6)).records
    assert [record.change is None for record in records] == [True, True, False, False, False, False]
    assert all(record.level is not None for record in records[2:])  # it is beyond the tolerance
    assert [record.change.changes for record in records[2:]] == [()] * 4
    assert [record.change.pools for record in records[2:]] == [(1,), (1, 2), (1, 3), (1, 4)]
    assert records[-1].change.n_after == (600.0, 2400.0)


def test_a_fault_is_found_in_its_branch_and_subgroup_and_dated():
    records = watch(make_stream(fault_from=4)).check(day(6)).records
    assert changed(records[3]) == set()
    assert ("channel=app", "billing") in changed(records[4])
    assert {node for _, node in changed(records[5])} == {"billing"}
    first = records[5].change.changes[0]
    assert first.lower > 0 or first.upper < 0
    assert first.onset_first <= day(4) <= first.onset_last
    assert first.onset_first >= day(3)


def test_a_change_that_may_be_older_than_the_kept_windows_began_then_or_earlier():
    log = make_stream(days=8, fault_from=4)
    monitor = watch(log, policy={"change": {"windows": [1, 2]}})
    monitor.check(day(7))
    plain = monitor.tracker.load_state()
    monitor.tracker.save_state({**plain, "onsets": {}})  # as earlier versions wrote it
    record = monitor.check(day(8)).records[-1]
    assert record.change.changes[0].onset_first == day(6)
    assert record.change.changes[0].or_earlier
    earliest = watch(make_stream(fault_from=2)).check(day(6)).records[-1].change.changes[0]
    assert earliest.onset_first == day(2)
    assert not earliest.or_earlier, "the reference ends there"


def test_an_alert_keeps_the_onset_that_was_told_when_the_windows_are_gone():
    monitor = watch(make_stream(days=9, fault_from=4), policy={"change": {"windows": [1, 2]}})
    records = [record for k in range(1, 10) for record in monitor.check(day(k)).records]
    began = [record.change.changes[0] for record in records[4:]]
    assert [one.node for one in began] == ["billing"] * 5
    assert [one.onset for one in began] == [day(4)] * 5
    assert not any(one.or_earlier for one in began)
    assert [one.track[0][0] for one in began] == [day(3), day(4), day(5), day(6), day(7)]
    assert set(monitor.tracker.load_state()["onsets"]) == {"billing"}


def test_onsets_of_branches_without_a_critical_alert_are_forgotten():
    log, healed = make_stream(days=12, fault_from=4), make_stream(days=12)
    late = log["at"] >= day(7)
    log.loc[late] = healed.loc[late]
    monitor = watch(log, policy={"change": {"windows": [1, 2]}})
    monitor.check(day(7))
    assert set(monitor.tracker.load_state()["onsets"]) == {"billing"}
    monitor.check(day(12))
    state = monitor.tracker.load_state()
    assert "billing" in {one["node"] for one in state["alerts"] if one["level"] == "warning"}
    assert not state.get("onsets")


def test_a_change_for_the_better_is_marked():
    log = make_stream(fault_from=0)
    healed = make_stream()
    late = log["at"] >= day(3)
    log.loc[late] = healed.loc[late]
    record = watch(log).check(day(6)).records[-1]
    billing = [item for item in record.change.changes if item.subgroup == "channel=app"]
    assert billing
    assert all(item.better for item in billing)


def test_records_with_and_without_a_change_are_read_back():
    records = watch(make_stream(fault_from=4)).check(day(6)).records
    for record in records:
        assert WindowRecord.from_json(record.to_json()) == record
    plain = records[-1].to_dict()
    del plain["change"]  # as earlier versions wrote it
    assert WindowRecord.from_dict(plain).change is None


def test_a_class_the_model_never_saw_is_told_of_its_branch_on_the_first_day():
    result = watch(make_new_class()).check(day(4))
    (finding,) = [one for one in result.records[-1].findings if one.change is not None]
    assert (finding.kind, finding.node, finding.subgroups[0]) == ("changed", "other", "all")
    found = finding.change.unforeseen
    assert (found.name, found.n_reference, found.n_reference_rows) == ("spam", 0, 1200)
    assert found.n_seen == round(600 * finding.change.after) >= 10
    assert 0 < finding.change.lower < finding.change.difference < finding.change.upper
    assert finding.change.onset_first == finding.change.onset_last == day(3)
    text = result.message.text
    rows = f"{found.n_seen} of 600 rows in which *spam* had a probability below 1 %"
    told = f"Branch *other*, everywhere: {rows} turned out to be *spam* (0 expected)"
    assert f"{told}; in the reference 0 of 1,200." in text
    (taken,) = finding.causes
    assert taken.startswith(f"Of the {found.n_seen} in this window the likeliest was *")
    assert taken in text
    assert WindowRecord.from_json(result.records[-1].to_json()) == result.records[-1]


def test_a_class_that_the_model_never_saw_in_the_reference_either_stands():
    result = watch(make_new_class(seen_from=0)).check(day(6))
    assert not any(record.change and record.change.changes for record in result.records)


@pytest.mark.parametrize("damage", [None, "removed", "overwritten"])
def test_daily_checks_find_what_one_check_finds_whatever_becomes_of_the_kept_rows(damage, tmp_path):
    log = make_stream(fault_from=4)
    new = make_new_class(seen_from=4, share=0.05)["y"] == "spam"
    log.loc[new, "y"] = "spam"
    once = watch(log).check(day(6)).records
    tracker = FilesTracker(MonitorInfo("calls", "5f"), folder=tmp_path)
    for k in range(1, 7):
        watch(log, tracker=tracker, identity="5f").check(day(k))
        rows = list((tracker.folder / "rows").rglob("*.rows"))
        assert damage or len(rows) == max(0, k - 1)  # the reference, and the windows after it
        if damage == "removed":
            shutil.rmtree(tracker.folder / "rows", ignore_errors=True)
        elif damage == "overwritten":
            for path in rows:
                path.write_bytes(b"\x00" * 40)
    assert [record.change for record in tracker.records()] == [record.change for record in once]


def test_daily_checks_that_pool_windows_read_every_row_once(tmp_path, monkeypatch):
    log, read = make_stream(days=7, rows=200), []

    def counting(self, *where, labelled=TableSource.labelled, **more):
        found = labelled(self, *where, **more)
        read.append((*where[:2], found.n))
        return found

    monkeypatch.setattr(TableSource, "labelled", counting)
    tracker = FilesTracker(MonitorInfo("calls", "5f"), folder=tmp_path)
    checks = [watch(log, tracker=tracker, identity="5f").check(day(k)) for k in range(3, 8)]
    assert checks[-1].records[0].change.n_after == (200, 800, 1000)
    # Days after the reference; it is read for its features, its moments and as two windows.
    assert sorted(item for item in read if item[0] >= day(2)) == [
        (day(k), day(k + 1), 200) for k in range(2, 7)
    ]


def test_kept_rows_are_for_this_user_alone(tmp_path):
    tracker = FilesTracker(MonitorInfo("calls", "5f"), folder=tmp_path)
    watch(make_stream(), tracker=tracker, identity="5f").check(day(4))
    paths = list((tracker.folder / "rows").rglob("*.rows"))
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}


def test_a_dry_run_reads_kept_rows_and_writes_none(tmp_path):
    log = make_stream(fault_from=4)
    tracker = FilesTracker(MonitorInfo("calls", "5f"), folder=tmp_path)
    watch(log, tracker=tracker, identity="5f").check(day(5))
    before = sorted((tracker.folder / "rows").rglob("*.rows"))
    dry = watch(log, tracker=tracker, identity="5f").check(day(6), dry_run=True)
    assert sorted((tracker.folder / "rows").rglob("*.rows")) == before
    assert dry.records[0].change == watch(log).check(day(6)).records[-1].change


def test_rows_kept_before_their_label_probability_was_are_read_again(tmp_path, monkeypatch):
    def without_chance(sample, write=history.sample_to_bytes):
        arrays = arrays_from_bytes(write(sample))
        return arrays_to_bytes({name: arrays[name] for name in arrays.keys() - {"evenly"}})

    log = make_stream(fault_from=3)
    log["chance"] = np.where(log["at"] < day(5), 0.1, 0.5)
    tracker = FilesTracker(MonitorInfo("calls", "5f"), folder=tmp_path)
    given = {"chance": "chance", "identity": "5f"}
    with monkeypatch.context() as patch:
        patch.setattr(history, "sample_to_bytes", without_chance)
        watch(log, tracker=tracker, **given).check(day(5))
    later = watch(log, tracker=tracker, **given).check(day(6))
    assert later.records[0].change == watch(log, **given).check(day(6)).records[-1].change
    state = MonitorState.from_dict(tracker.load_state())
    kept = list((tracker.folder / "rows").rglob(f"{state.reference_rows}.rows"))
    assert [history.knows_chances(path.read_bytes()) for path in kept] == [True]


def test_rolling_windows_pool_those_without_common_rows():
    windows = TimeWindows(length="2d", stride="1d")
    records = watch(make_stream(days=8), windows=windows).check(day(8)).records
    sizes = [record.change.n_after for record in records if record.change is not None]
    assert sizes[0] == (1200.0,)
    assert sizes[-1] == (1200.0, 3600.0)


def test_the_change_test_can_be_turned_off():
    records = watch(make_stream(), policy={"change": {"enabled": False}}).check(day(4)).records
    assert all(record.change is None for record in records)


def revise(log, *, late, newest, pools):
    """Check until the day `newest`, at whose check labels of the day `late` arrive."""
    more = {"windows": TimeWindows(length="1d", revisit="90d"), "tracker": MemoryTracker()}
    more |= {"policy": {"change": {"windows": pools}}}
    missing = log["at"].between(day(late), day(late + 1), "left") & (log.index % 20 == 0)
    watch(log.assign(y=log["y"].mask(missing)), **more).check(day(newest - 1))
    before = more["tracker"].load_state()
    found = watch(log, **more).check(day(newest)).records
    assert [(r.ordinal, r.revision) for r in found] == [(newest, 0), (late + 1, 1)]
    return found[-1], before, more["tracker"].load_state()


def nodes_changed(record):
    return [one.node for one in record.findings if one.change is not None]


def test_a_revision_of_an_older_window_keeps_what_changed_as_of_then():
    log, pools = make_stream(days=9, fault_from=4), (1, 4, 16)
    again, *_ = revise(log, late=5, newest=9, pools=pools)
    assert again.change == watch(log).check(day(6)).records[-1].change
    assert nodes_changed(again) == ["billing"]
    assert again.transitions == ()
    assert not any("alone" in note for note in again.notes)


def test_a_revision_of_a_window_whose_rows_are_no_longer_kept_is_judged_by_itself():
    again, *_ = revise(make_stream(days=9, fault_from=4), late=5, newest=9, pools=(1, 2))
    assert again.change.n_after == (600,)
    assert any("judged by it alone: earlier rows" in note for note in again.notes)
    assert nodes_changed(again) == ["billing"]


def test_a_revision_of_an_older_window_leaves_the_date_of_the_change_to_the_newest():
    log, mended = make_stream(days=9, fault_from=4), make_stream(days=9)
    log = log.assign(y=log["y"].where(log["at"] < day(7), mended["y"]))
    again, before, after = revise(log, late=5, newest=9, pools=(1,))
    assert nodes_changed(again) == ["billing"]
    assert before["changed_since"] is None
    assert after["changed_since"] is None


def test_small_changes_are_not_told_where_a_least_one_is_set():
    log = make_stream(fault_from=4)
    records = watch(log, policy={"change": {"min_change": 0.9}}).check(day(6)).records
    assert records[-1].change.changes == ()


def messages_of(log, days):
    """Ask every day from the end of the reference on, and return what people were told."""
    monitor = watch(log)
    return [monitor.check(day(k)).message for k in range(2, days + 1)]


def test_standing_error_is_told_exactly_once_and_is_never_critical():
    monitor = watch(make_stream(days=8))
    results = [monitor.check(day(k)) for k in range(2, 9)]
    told = [result.message for result in results if result.message is not None]
    assert len(told) == 1
    assert told[0].level == "note"
    assert "Standing since the reference: root, billing and other are" in told[0].text
    assert "other are beyond 0.02 (tolerance), about as far" in told[0].text
    assert "huc-monitor recalibrate" in told[0].text
    assert {result.status for result in results} == {"warning"}


def test_what_stands_is_told_with_the_tolerance_that_it_exceeds():
    policy = {"tolerance": 0.3, "sequential": {"tolerance": 0.01}}
    told = watch(make_stream(), policy=policy).check(day(6)).message
    assert "beyond 0.01 (sequential.tolerance), about as far" in told.text
    assert "or raise that tolerance" in told.text


def test_all_tolerances_that_what_stands_exceeds_are_to_be_raised():
    policy = {"tolerance": 0.02, "sequential": {"tolerance": 0.01}}
    told = watch(make_stream(), policy=policy).check(day(6)).message
    assert "beyond 0.01 (sequential.tolerance), about as far" in told.text
    assert "or raise both that and tolerance (0.02): the largest moment is 0." in told.text


def test_a_dry_run_says_what_another_tolerance_of_the_e_detector_does(tmp_path):
    def monitor(tolerance):
        tracker = FilesTracker(MonitorInfo("monitor", "a" * 16), tmp_path)
        policy = {"tolerance": 0.02, "sequential": {"tolerance": tolerance}}
        return watch(make_stream(), policy=policy, tracker=tracker, identity="a" * 16)

    monitor(0.01).check(day(6))
    assert monitor(0.01).check(day(6), dry_run=True).preview == ()
    (said,) = monitor(0.5).check(day(6), dry_run=True).preview
    assert said.startswith("The e-detector's tolerance changed for ")
    assert " 0 are above the new one and " in said
    assert said.endswith("It starts afresh, without the evidence so far.")


def test_a_dry_run_measures_another_tolerance_by_the_newest_window_without_maintenance(tmp_path):
    def monitor(tolerance):
        tracker = FilesTracker(MonitorInfo("monitor", "a" * 16), tmp_path)
        maintenance = [{"start": "2024-03-06", "end": "2024-03-07", "purpose": "load test"}]
        policy = {"tolerance": tolerance, "maintenance": maintenance}
        return watch(make_stream(), policy=policy, tracker=tracker, identity="a" * 16)

    records = monitor(0.02).check(day(6)).records
    assert [record.ordinal for record in records if record.maintenance] == [6]
    (said,) = monitor(0.03).check(day(6), dry_run=True).preview
    assert said.startswith("The tolerance changed for ")
    assert "in the newest audited window (5), " in said


def test_a_fault_is_one_finding_that_names_branch_and_subgroup():
    told = messages_of(make_stream(fault_from=4), 6)
    assert "Standing" in told[0].text
    assert told[1:3] == [None] * 2
    assert told[3].level == "critical"
    (finding,) = told[3].data["findings"]
    assert (finding["node"], finding["subgroups"][0]) == ("billing", "channel=app")
    assert told[3].text.startswith("CRITICAL\nBranch *billing*, channel=app (utility *")
    assert "It began " in told[3].text
    assert "labels lie under this branch" in told[3].text
    assert told[3].title.startswith("monitor: 1 critical")


def test_a_change_that_goes_on_is_told_again_after_the_cool_down_and_once_per_branch():
    log = make_stream(days=8, fault_from=4)
    monitor = watch(log, policy={"alerts": {"cool_down": "2d"}})
    told = [monitor.check(day(k)).message for k in range(1, 9)]
    assert [item is not None for item in told[4:]] == [True, False, True, False]
    assert len(told[6].data["findings"]) == 1


def everywhere(log, since):
    """The same fault for the other channel too, from a day on."""
    swap = (log["at"] >= since) & (log["channel"] == "web") & log["y"].isin(["refund", "charge"])
    swapped = log["y"].map({"refund": "charge", "charge": "refund"})
    return log.assign(y=log["y"].where(~swap, swapped))


def test_a_change_is_told_again_after_its_cool_down_whoever_joined_it_meanwhile():
    log = everywhere(make_stream(days=11, fault_from=4), day(6))
    monitor = watch(log, policy={"alerts": {"cool_down": "3d"}})
    told = [
        k
        for k in range(3, 12)
        if (result := monitor.check(day(k))).message is not None
        and any(item["node"] == "billing" for item in result.message.data.get("findings", ()))
    ]
    assert told == [5, 8, 11]


@pytest.mark.parametrize("muted", [False, True])
def test_a_branch_is_told_by_what_leads_its_finding_though_that_was_acknowledged(muted):
    monitor = watch(make_stream(days=8, fault_from=4), policy={"alerts": {"cool_down": "2d"}})
    assert monitor.check(day(5)).message.level == "critical"
    if muted:
        about = {"branch": "billing", "subgroup": "channel=app"}
        monitor.actions.mute(until=day(30), by="ann", now=day(5), **about)
    else:
        monitor.actions.ack(by="ann", branch="billing", subgroup="channel=app")
    assert monitor.check(day(6)).message is None
    result = monitor.check(day(7))
    (finding,) = [one for one in result[0].findings if one.node == "billing"]
    assert finding.subgroups[0] == "channel=app"
    (told,) = result.message.data["findings"]
    assert (told["subgroups"][0] == "channel=app") is not muted
    lead = result.message.text.startswith("CRITICAL\nBranch *billing*, channel=app (")
    assert lead is not muted
    if not muted:
        assert told["subgroups"] == list(finding.subgroups)
        assert "ann" in result.message.text


def test_the_subgroup_of_a_fault_leads_every_day_and_everyone_where_it_is_everyone():
    log = make_stream(days=8, rows=600, fault_from=4)
    for record in watch(log).check(day(8)).records[4:]:
        assert [one.subgroups[0] for one in record.findings if one.node == "billing"] == [
            "channel=app"
        ]
    for record in watch(everywhere(log, day(4))).check(day(8)).records[4:]:
        assert [one.subgroups[0] for one in record.findings if one.node == "billing"] == ["all"]


def test_a_fault_that_is_mended_is_called_off_and_what_stood_before_stands():
    log = make_stream(days=9, fault_from=4)
    late = log["at"] >= day(6)
    log.loc[late] = make_stream(days=9).loc[late]
    monitor = watch(log, policy={"change": {"windows": [1]}})
    results = [monitor.check(day(k)) for k in range(1, 10)]
    assert [result.status for result in results[3:6]] == ["warning", "critical", "critical"]
    assert results[-1].status == "warning"


def test_a_tolerance_relative_to_the_reference_is_how_far_it_may_move():
    log = make_stream(fault_from=4)
    for value, changed_nodes in ((0.01, {"billing"}), (0.5, set())):
        tolerance = {"value": value, "relative_to": "reference"}
        record = watch(log, policy={"tolerance": tolerance}).check(day(6)).records[-1]
        assert {item.node for item in record.change.changes} == changed_nodes


def test_a_tolerance_relative_to_the_reference_leaves_alerts_to_the_change_test():
    tolerance = {"value": 0.01, "relative_to": "reference"}
    policy = {"tolerance": tolerance, "change": {"alerts": "tolerance"}}
    monitor = watch(make_stream(fault_from=4), policy=policy)
    results = [monitor.check(day(k)) for k in range(1, 6)]
    assert {result.status for result in results[:4]} <= {"ok", "warning"}
    assert results[4].status == "critical"
    (finding,) = results[4].message.data["findings"]
    assert finding["node"] == "billing"
    texts = [result.message.text for result in results if result.message is not None]
    assert sum("is the change test: an alert" in text for text in texts) == 1


def wrong_both_ways(days, rows=400, seed=5):
    """More often right than it says where it doubts, less often where it is sure."""
    rng = np.random.default_rng(seed)
    n = days * rows
    told = rng.uniform(0.5, 1.0, n)
    right = rng.random(n) < told + 0.12 * np.sin(4 * np.pi * (told - 0.5))
    frame = pd.DataFrame({"at": DAY + pd.to_timedelta(np.arange(n) * 86400.0 / rows, unit="s")})
    frame["channel"], frame["y"] = "web", np.where(right, "refund", "login")
    frame["refund"], frame["charge"] = told, 0.0
    frame["login"], frame["spam"] = 1 - told, 0.0
    return frame


def test_a_stationary_model_that_is_wrong_both_ways_is_not_critical_relative_to_the_reference():
    relative = {"value": 0.01, "relative_to": "reference"}
    change = {"alerts": "tolerance"}  # as a file of an earlier version leaves it
    monitor = watch(wrong_both_ways(16), policy={"tolerance": relative, "change": change})
    result = monitor.check(day(16))
    audits = [record.audit["candidates"] for record in result.records]
    signs = {np.sign(candidates[0]["moment"]) for candidates in audits}
    assert signs == {-1.0, 1.0}, "the same candidate is worst on either side"
    assert {record.level for record in result.records} == {None}
    assert result.message.text.count("is the change test: an alert") == 1
    assert monitor.check(day(16)).message is None


def test_alerts_follow_the_tolerance_unless_the_change_is_asked_for():
    log = make_stream(days=4)
    result = watch(log, policy={"change": {"alerts": "tolerance"}}).check(day(4))
    assert result.status == "critical"
    assert "Standing" not in result.message.text


@pytest.mark.seconds
def test_the_configuration_that_init_writes_names_the_fault_on_its_first_day(tmp_path):
    log = make_stream(days=10, rows=2000, fault_from=7).rename(columns={"at": "time", "y": "label"})
    log.to_parquet(tmp_path / "log.parquet")
    (tmp_path / "tree.json").write_text(json.dumps(NESTED), "utf-8")
    text = init_config(tmp_path / "log.parquet", tmp_path / "tree.json", folder=tmp_path)
    (tmp_path / "huc.yaml").write_text(text, "utf-8")
    monitor = hm.open_monitor(tmp_path / "huc.yaml")
    start, end = monitor.reference
    assert (start, end) == (day(0), day(3))
    told = [monitor.check(day(k)).message for k in range(1, 9)]
    assert all(item is None or item.level == "note" for item in told[:7])
    assert told[7].level == "critical"
    (finding,) = told[7].data["findings"]
    assert (finding["node"], finding["subgroups"][0]) == ("billing", "channel=app")


def make_promotion(*, at=8, repaired=True, days=14):
    """A stream with a fault from day 4 on; from day `at` on version 2 answers.

    Repaired, it knows of the fault, and says what is true of the confidence as well.
    """
    log = make_stream(days=days, fault_from=4)
    log["version"] = np.where(log["at"] >= day(at), "2", "1")
    if repaired:
        new = log["version"] == "2"
        truth = make_truth(log)
        log.loc[new, list(truth)] = truth[new]
    return log


def make_truth(log):
    """Probabilities by which labels of the stream with its fault are drawn."""
    rng = np.random.default_rng(0)  # as in `make_stream`
    b, r, other = (rng.uniform(0.05, 0.95, len(log)) for _ in range(3))
    r = np.where(log["channel"] == "app", 1 - r, r)
    parts = {"refund": b * r, "charge": b * (1 - r), "login": (1 - b) * other}
    return pd.DataFrame(parts | {"spam": (1 - b) * (1 - other)})


def by_version(log, **policy):
    """Watch as `init` writes it: an alarm ends after six windows without new evidence."""
    alerts = {"quiet_after": 6, **policy}
    return watch(log, policy={"alerts": alerts}, version="version")


def test_a_version_that_repairs_a_fault_ends_its_alerts_with_its_first_windows():
    monitor = by_version(make_promotion())
    assert monitor.check(day(8)).status == "critical"
    first = monitor.check(day(9))
    assert first.records[-1].change.pools == (1,), "windows of the version before are not pooled"
    assert [item for item in first.records[-1].change.changes if not item.better] == []
    second = monitor.check(day(10))
    assert second.status == "ok", second.alerts
    # By the name under which people heard of it; and what was told to stand is called off.
    assert (
        "Branch *billing* (subgroup channel=app, utility *level2*): no long" in second.message.text
    )
    assert "It ended in 2 more subgroups too." in second.message.text
    assert "Branch *root* (whole population, utility *level1*)" in second.message.text
    assert second.message.title.startswith("monitor: 2 resolved")
    assert second.records[-1].change.pools == (1, 2)
    assert {step.kind for record in second.records for step in record.transitions} == {"resolved"}
    assert monitor.check(day(14)).status == "ok", "and stays so"


def test_when_the_version_that_serves_took_over_outlives_the_windows_that_are_kept():
    log, few = make_promotion(at=4, repaired=False, days=9), {"change": {"windows": (1, 2)}}
    monitor = watch(log, policy=few, version="version")
    states = []
    for k in (4, 5, 8):
        monitor.check(day(k))
        states.append(MonitorState.from_dict(monitor.tracker.load_state()))
    assert [state.replaced_at for state in states] == [None, day(4), day(4)]
    assert len({kept.version for kept in states[-1].compared}) == 1
    older = states[-1].to_dict()
    del older["replaced"]
    assert MonitorState.from_dict(older).replaced_at is None
    log["version"] = np.where(log["at"] >= day(8), "3", log["version"])
    again = watch(log, policy=few, version="version", tracker=monitor.tracker)
    again.check(day(9))
    assert MonitorState.from_dict(again.tracker.load_state()).replaced_at == day(8)


def test_two_versions_that_share_the_rows_are_pooled():
    log = make_stream(days=8)
    log["version"] = np.random.default_rng(3).choice(["1", "2"], len(log))
    result = by_version(log).check(day(8))
    assert result.records[-1].change.pools == (1, 4, 6), "all windows after the reference"


def test_a_version_that_repairs_nothing_keeps_the_alert_and_its_day():
    monitor = by_version(make_promotion(repaired=False))
    monitor.check(day(8))
    last = monitor.check(day(12))
    assert last.status == "critical"
    (record,) = [record for record in last.records if record.ordinal == 12]
    lead = record.findings[0].change
    assert lead.onset_first <= day(4) <= lead.onset_last, "older windows still date it"
    assert lead.track[0][0] == day(2)


def test_an_alert_of_the_same_version_waits_for_as_long_as_before():
    log = make_stream(days=14, fault_from=4)
    well = make_stream(days=14)
    late = log["at"] >= day(8)
    log.loc[late] = well.loc[late]
    log["version"] = "1"
    monitor = by_version(log)
    monitor.check(day(8))
    assert monitor.check(day(10)).status == "critical"


def test_drift_that_comes_with_another_version_says_so_once():
    log = make_promotion()
    windows = TimeWindows(length="1d", label_lag="2d")
    policy = {"alerts": {"cool_down": "1d"}}
    monitor = watch(log, policy=policy, version="version", windows=windows)
    assert "Version" not in str(monitor.check(day(8)).message.text)
    told = monitor.check(day(9)).message.text
    assert "Version 2 answers now, and the reference is of version 1." in told
    assert "DRIFT" in told
    assert "without any fault: each of these is told once.\n" in told, (
        "not all of it: more may come"
    )
    later = [monitor.check(day(k)).message for k in (10, 11)]
    assert not any("DRIFT" in message.text for message in later if message is not None)
