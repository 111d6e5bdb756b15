from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime, timedelta

import pytest
from support.report_cases import audit_dict, candidate, small_tree

from huc_monitor._common.private_files import write_atomically
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.monitor.ports.tracker import (
    FilesTracker,
    MemoryTracker,
    Tracker,
)
from huc_monitor.monitor.records import (
    AlertState,
    AlertTransition,
    DriftFinding,
    RecalibrationTrigger,
    WindowRecord,
)

DAY = datetime(2024, 3, 1, tzinfo=UTC)
INFO = MonitorInfo("intrusion", "d41be8f39c4c00")


def a_record(ordinal=1, **changes) -> WindowRecord:
    alert = AlertState(
        utility="u",
        subgroup="all",
        node='"; DROP TABLE',
        level="critical",
        first_seen=DAY,
        last_seen=DAY,
        first_ordinal=1,
        last_ordinal=1,
        n_windows=1,
    )
    step = AlertTransition(
        kind="opened",
        level="critical",
        utility="u",
        subgroup="all",
        node="<script>",
        announced=True,
        moment=-0.1,
        lower=None,
        upper=None,
        tolerance=0.02,
        interval_low=None,
        interval_high=None,
        units=None,
        scale=1.0,
        reasons=("estimate",),
        uc=0.1,
        cancels_node=None,
        cancels_moment=None,
        first_seen=DAY,
        n_windows=1,
        hints=("a hint",),
        window_id="5f",
        window_end=DAY,
    )
    trigger = RecalibrationTrigger(
        id="1", reason="r", window_id="5f", ordinal=1, window_end=DAY, candidates=(("a", "b", "c"),)
    )
    drift = DriftFinding(
        kind="subgroup", name="s", distance=0.2, lower=0.1, drifted=True, before={"share": 0.1}
    )
    start = DAY + timedelta(days=ordinal - 1)
    fields = {
        "monitor": "intrusion",
        "identity": INFO.identity,
        "window_id": f"{ordinal:x}f",
        "ordinal": ordinal,
        "start": start,
        "end": start + timedelta(days=1),
        "due_at": start + timedelta(days=2),
        "status": "audited",
        "latest_label": DAY,
        "audit": audit_dict([candidate(node="x", moment=0.1)], small_tree()),
        "tolerances": (0.02,),
        "levels": ("critical",),
        "alerts": (alert,),
        "transitions": (step,),
        "drift": (drift,),
        "notes": ("n",),
        "recalibration": trigger,
        "timings": {"audit": 0.1},
    }
    return WindowRecord(**{**fields, **changes})


@pytest.fixture(params=["files", "memory"])
def tracker(request, tmp_path) -> Tracker:
    return FilesTracker(INFO, tmp_path) if request.param == "files" else MemoryTracker()


def test_a_record_survives_its_json_form():
    record = a_record()
    assert WindowRecord.from_json(record.to_json()) == record


def test_timings_do_not_count_in_a_comparison():
    assert a_record() == a_record(timings={})


def test_a_record_of_another_schema_is_refused():
    data = a_record().to_dict() | {"schema_version": 2}
    with pytest.raises(InvalidInputError, match="`WindowRecord` must have schema_version 1; got 2"):
        WindowRecord.from_dict(data)


def test_the_frame_of_a_record_joins_tolerance_and_level():
    frame = a_record().to_frame(all_columns=True)
    assert frame[["tolerance", "level"]].iloc[0].tolist() == [0.02, "critical"]
    assert a_record(audit=None).to_frame(all_columns=True).empty


def test_both_trackers_keep_the_contract(tracker):
    assert isinstance(tracker, Tracker)
    assert tracker.load_state() is None
    tracker.save_state({"a": 1})
    tracker.save_state({"a": 2})
    assert tracker.load_state() == {"a": 2}


def test_recording_twice_leaves_one_record(tracker):
    for _ in range(2):
        tracker.record(a_record(), {"report.html": b"x"})
    assert tracker.records() == [a_record()]


def test_records_come_in_order_whatever_the_order_of_writing(tracker):
    pending = a_record(2, status="pending", audit=None)
    for record in (a_record(10), a_record(2, revision=1), a_record(1), a_record(2), pending):
        tracker.record(record)
    found = [(record.ordinal, record.status, record.revision) for record in tracker.records()]
    assert found == [
        (1, "audited", 0),
        (2, "pending", 0),
        (2, "audited", 0),
        (2, "audited", 1),
        (10, "audited", 0),
    ]


def test_artifacts_are_files_next_to_the_record(tmp_path):
    tracker = FilesTracker(INFO, tmp_path)
    tracker.record(a_record(), {"../../report.html": b"page"})
    (path,) = (tracker.folder / "artifacts").rglob("*.html")
    assert path.read_bytes() == b"page"
    assert path.parent.name == a_record().key


def test_each_identity_has_a_folder_of_its_own(tmp_path):
    FilesTracker(INFO, tmp_path).save_state({"a": 1})
    other = dataclasses.replace(INFO, identity="0000")
    assert FilesTracker(other, tmp_path).load_state() is None


def test_a_write_that_fails_leaves_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    write_atomically(path, b"old")

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_what_a_crash_left_behind_is_overwritten_and_never_read(tmp_path):
    tracker = FilesTracker(INFO, tmp_path)
    tracker.record(a_record())
    torn = tracker.folder / "records" / f".{a_record(2).key}.json.tmp"
    torn.write_text('{"schema_ver', "utf-8")
    assert len(tracker.records()) == 1
    tracker.record(a_record(2))
    assert len(tracker.records()) == 2
    assert not torn.exists()


def test_a_state_that_is_no_json_says_where_it_is(tmp_path):
    tracker = FilesTracker(INFO, tmp_path)
    tracker.save_state({})
    (tracker.folder / "state.json").write_text("{", "utf-8")
    with pytest.raises(InvalidInputError, match=r"state\.json.* is no JSON.*Restore"):
        tracker.load_state()


def test_the_status_is_a_file_that_anything_can_poll(tmp_path):
    tracker = FilesTracker(INFO, tmp_path)
    tracker.set_alert_status("critical", a_record().alerts)
    assert '"status": "critical"' in (tracker.folder / "status.json").read_text("utf-8")


def test_the_state_written_last_under_the_same_name_is_the_previous_one(tmp_path):
    import os

    def of(name, identity):
        return FilesTracker(MonitorInfo(name, identity), folder=tmp_path)

    one, other, new = of("triage", "a" * 16), of("triage", "b" * 16), of("triage", "c" * 16)
    assert new.previous_state() is None
    for age, item in ((3, one), (2, other), (1, of("triage-eu", "d" * 16))):
        item.save_state({"identity": item.folder.name})
        path = item.folder / "state.json"
        os.utime(path, ns=(path.stat().st_mtime_ns - age * 10**9,) * 2)
    assert new.previous_state() == {"identity": other.folder.name}
    assert other.previous_state() == {"identity": one.folder.name}
    (other.folder / "state.json").write_text("{", "utf-8")
    with pytest.raises(InvalidInputError, match=r"state\.json.* is no JSON.*Restore"):
        new.previous_state()


def test_the_state_of_the_same_file_comes_before_a_newer_one_of_another(tmp_path):
    import os

    def of(identity, file):
        return FilesTracker(MonitorInfo("triage", identity * 16, file=file), folder=tmp_path)

    for age, (identity, file) in enumerate([("a", "us.yaml"), ("b", "eu.yaml"), ("c", "eu.yaml")]):
        of(identity, file).save_state({"identity": identity, "file": file})
        path = of(identity, file).folder / "state.json"
        os.utime(path, ns=(path.stat().st_mtime_ns - age * 10**9,) * 2)
    found = {
        file: of("d", file).previous_state() for file in ("us.yaml", "eu.yaml", "x.yaml", None)
    }
    assert {file: state["identity"] for file, state in found.items()} == {
        "us.yaml": "a",
        "eu.yaml": "b",
        "x.yaml": "a",
        None: "a",
    }
