"""Damaged artifacts of the MLflow tracker: named, and the rest is read."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from huc_mlflow._tracker import MLflowTracker

from huc_monitor.monitor._state import MonitorState, read_state
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.monitor.ports.stored import DamagedError
from huc_monitor.monitor.records import WindowRecord

DAY = datetime(2024, 3, 1, tzinfo=UTC)
INFO = MonitorInfo("triage", "0123456789abcdef", model="triage")
DAMAGE = {
    "empty": b"",
    "cut off": b'{"schema_version": 1, "mon',
    "a list": b"[1]",
    "no text": b"\xff",
}


@pytest.fixture
def tracker(store):
    mine = MLflowTracker(INFO, tracking_uri=f"sqlite:///{store}/mlflow.db")
    mine.load_state()
    mine.save_state(MonitorState(INFO.identity).to_dict())
    for ordinal in (1, 2):
        start = DAY + timedelta(days=ordinal)
        mine.record(
            WindowRecord(
                monitor="triage",
                identity=INFO.identity,
                window_id=f"{ordinal:04x}",
                ordinal=ordinal,
                start=start,
                end=start,
                due_at=start,
                status="empty",
            )
        )
    return mine


def artifact(tracker, run_id, name):
    uri = tracker._client.get_run(run_id).info.artifact_uri
    return Path(urlsplit(uri).path) / name


@pytest.mark.parametrize("how", [*DAMAGE, "missing"])
def test_a_damaged_record_is_left_out_and_told_of(tracker, caplog, how):
    run = next(iter(tracker.runs.search("window", "000001-%")))
    path = artifact(tracker, run.info.run_id, "record-r0.json")
    path.unlink() if how == "missing" else path.write_bytes(DAMAGE[how])
    with caplog.at_level(logging.WARNING, "huc_monitor"):
        assert [record.ordinal for record in tracker.records()] == [2]
    assert f"'record-r0.json' of run {run.info.run_id} cannot be read" in caplog.text


@pytest.mark.parametrize("how", [*DAMAGE, "missing"])
def test_a_damaged_state_names_its_artifact(tracker, how):
    path = artifact(tracker, tracker.run_id, "state/a.json")
    path.unlink() if how == "missing" else path.write_bytes(DAMAGE[how])
    with pytest.raises(DamagedError, match=r"state/a.json.*of run .*Restore the artifact store"):
        tracker.load_state()


def test_a_state_of_another_version_says_where_it_is(tracker):
    state = MonitorState(INFO.identity).to_dict() | {"schema_version": 99}
    tracker.save_state(state)
    with pytest.raises(DamagedError, match=r"answers at sqlite.*schema_version"):
        read_state(tracker.load_state(), tracker)


def test_a_pointer_that_makes_no_sense_is_damage(tracker):
    tracker._client.set_tag(tracker.run_id, "huc.state", "nonsense")
    with pytest.raises(DamagedError, match="Restore the artifact store"):
        tracker.load_state()
