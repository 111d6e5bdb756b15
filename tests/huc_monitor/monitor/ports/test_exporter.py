from __future__ import annotations

import logging

import pytest
from support.production_log import after, make_log
from support.watched import make

from huc_monitor.monitor.ports import MemoryTracker
from huc_monitor.monitor.ports.exporter import Exporter, serve


class Shelf:
    """Keeps what it is shown, or fails to."""

    def __init__(self, *, broken=False):
        self.broken, self.shown, self.serving = broken, [], False

    def export(self, standing):
        if self.broken:
            raise ConnectionError(111)
        self.shown.append(standing)

    def serve(self):
        if self.broken:
            raise OSError(98, "Address already in use")
        self.serving = True

    def close(self):
        self.serving = False

    def ping(self):
        return "in memory"


@pytest.fixture(scope="module")
def log():
    return make_log(4, 1000, broken_from=2)


def ordinals(standing):
    return [record.ordinal for record in standing.records if record.status != "pending"]


def test_a_check_shows_each_exporter_the_new_records_and_where_things_stand(log):
    shelf = Shelf()
    monitor = make(*log, exporters={"shelf": shelf})
    assert isinstance(shelf, Exporter)
    monitor.check(now=after(3))
    result = monitor.check(now=after(4.6))
    monitor.check(now=after(4.6))
    assert [ordinals(standing) for standing in shelf.shown] == [[1, 2], [3, 4], []]
    assert shelf.shown[-1].status == result.status == "critical"
    assert shelf.shown[-1].alerts == result.alerts
    assert [record.ordinal for record in shelf.shown[-1].history()] == [1, 2, 3, 3, 4]


def test_an_exporter_that_fails_fails_no_check_and_gets_everything_the_next_time(log, caplog):
    shelf, tracker = Shelf(broken=True), MemoryTracker()
    with caplog.at_level(logging.WARNING, "huc_monitor"):
        result = make(*log, exporters={"shelf": shelf}, tracker=tracker).check(now=after(3))
    assert [r.status for r in result] == ["audited", "audited", "pending"]
    assert "exporter shelf failed" in caplog.text
    shelf.broken = False
    make(*log, exporters={"shelf": shelf}, tracker=tracker).check(now=after(3))
    assert [ordinals(standing) for standing in shelf.shown] == [[1, 2]]


def test_a_check_that_dies_while_exporting_exports_the_next_time(log):
    class Deadly(Shelf):
        def export(self, standing):
            super().export(standing)
            raise KeyboardInterrupt

    tracker = MemoryTracker()
    with pytest.raises(KeyboardInterrupt):
        make(*log, exporters={"shelf": Deadly()}, tracker=tracker).check(now=after(3))
    shelf = Shelf()
    make(*log, exporters={"shelf": shelf}, tracker=tracker).check(now=after(3))
    assert [ordinals(standing) for standing in shelf.shown] == [[1, 2]]


def test_an_exporter_that_comes_later_gets_what_was_recorded_before(log):
    tracker = MemoryTracker()
    make(*log, tracker=tracker).check(now=after(3))
    shelf = Shelf()
    make(*log, exporters={"shelf": shelf}, tracker=tracker).check(now=after(4.6))
    assert ordinals(shelf.shown[0]) == [1, 2, 3, 4]


def test_a_dry_run_shows_nothing(log):
    shelf = Shelf()
    make(*log, exporters={"shelf": shelf}).check(now=after(3), dry_run=True)
    assert shelf.shown == []


def test_one_that_cannot_answer_requests_is_complained_about_and_the_others_do(caplog):
    good, bad = Shelf(), Shelf(broken=True)
    with caplog.at_level(logging.WARNING, "huc_monitor"):
        serve({"bad": bad, "good": good})
    assert good.serving
    assert "exporter bad does not answer requests" in caplog.text
