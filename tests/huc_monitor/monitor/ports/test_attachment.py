from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from support.production_log import FIRST_DAY, after, make_log
from support.watched import make

from huc_monitor.monitor.ports.attachment import Attachment
from huc_monitor.monitor.ports.tracker import MemoryTracker


class Camera:
    """Takes a picture of a window, or fails to."""

    def __init__(self, error=None):
        self.error, self.seen = error, []

    def files(self, record, reference):
        if self.error is not None:
            raise self.error
        self.seen.append((record.ordinal, reference))
        return {"picture.txt": b"smile"}

    def ping(self):
        return "ready"


@pytest.fixture(scope="module")
def log():
    return make_log(4, 1000, broken_from=2)


def test_a_window_that_alerts_gets_the_files_and_the_others_none(log):
    camera, tracker = Camera(), MemoryTracker()
    assert isinstance(camera, Attachment)
    monitor = make(
        *log,
        tracker=tracker,
        tolerance=0.04,
        alerts={"cool_down": "7d"},
        attachments={"camera": camera},
    )
    records = monitor.check(now=after(4.6)).records
    alerting = [r.ordinal for r in records if any(s.kind == "opened" for s in r.transitions)]
    assert [ordinal for ordinal, _ in camera.seen] == alerting == [3]
    found = {record.ordinal: tracker.artifacts[record.key] for record in records}
    assert found == {1: {}, 2: {}, 3: {"picture.txt": b"smile"}, 4: {}}


def test_the_reference_is_the_first_window_or_the_one_asked_for(log):
    day = timedelta(days=1)
    for given in (None, (FIRST_DAY + day, FIRST_DAY + 2 * day)):
        camera = Camera()
        monitor = make(*log, tolerance=0.04, reference=given, attachments={"camera": camera})
        monitor.check(now=after(4.6))
        assert camera.seen[0][1] == (given or (FIRST_DAY, FIRST_DAY + day))


def test_an_attachment_that_fails_fails_no_check_and_the_failure_is_kept_with_the_window(
    log, caplog
):
    tracker = MemoryTracker()
    broken = Camera(OSError("cannot reach postgresql://me:secret@db/log"))
    monitor = make(*log, tracker=tracker, tolerance=0.04, attachments={"camera": broken})
    with caplog.at_level(logging.DEBUG, "huc_monitor"):
        result = monitor.check(now=after(4.6))
    assert [record.status for record in result] == ["audited"] * 4
    kept = tracker.artifacts[result[2].key]["camera-failed.txt"].decode()
    assert kept == "OSError: cannot reach postgresql://...@db/log\n"
    assert "attachment camera failed" in caplog.text
