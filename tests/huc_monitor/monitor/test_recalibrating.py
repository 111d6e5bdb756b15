from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest
from support.documented import defaults, documented_defaults

import huc_monitor as hm
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.recalibrating import RecalibrationPolicy
from huc_monitor.monitor.records import AlertState, RecalibrationTrigger, WindowRecord
from huc_monitor.monitor.windows import TimeWindows
from huc_monitor.sources import Columns, FrameTable, TableSource

WORST = {"utility": "u", "subgroup": "all", "node": "attack"}


def a_record(*, n_critical=0, alarm=False, day=0):
    start = datetime(2024, 3, 1, tzinfo=UTC) + timedelta(days=day)
    alert = AlertState(
        utility="u",
        subgroup="all",
        node="attack",
        level="critical" if n_critical else "warning",
        first_seen=start,
        last_seen=start,
        first_ordinal=1,
        last_ordinal=1,
        n_windows=1,
        n_critical=n_critical,
    )
    return WindowRecord(
        monitor="m",
        identity="d",
        window_id=f"{day}",
        ordinal=day + 1,
        start=start,
        end=start + timedelta(days=1),
        due_at=start + timedelta(days=1),
        status="audited",
        alerts=(alert,),
        detector={"alarm": alarm, "value": 1.0, "named": [], "worst": WORST},
    )


def test_the_same_candidate_must_be_critical_long_enough():
    policy = RecalibrationPolicy(critical_windows=3)
    assert policy.decide(a_record(n_critical=2)) is None
    trigger = policy.decide(a_record(n_critical=3))
    assert "branch 'attack'" in trigger.reason
    assert "critical for 3 windows" in trigger.reason
    assert trigger.candidates == (("u", "all", "attack"),)


def test_an_alarm_is_reason_enough_unless_told_otherwise():
    assert RecalibrationPolicy().decide(a_record(alarm=True)).reason == "alarm of the e-detector"
    assert RecalibrationPolicy(on_sequential_alarm=False).decide(a_record(alarm=True)) is None


def test_either_reason_can_be_left_out():
    assert RecalibrationPolicy(critical_windows=None).decide(a_record(n_critical=99)) is None


def test_there_is_no_trigger_within_the_cool_down_of_the_last():
    policy = RecalibrationPolicy(critical_windows=1, cool_down="3d")
    first = policy.decide(a_record(n_critical=1))
    assert policy.decide(a_record(n_critical=3, day=2), first) is None
    assert policy.decide(a_record(n_critical=4, day=3), first) is not None


def test_the_id_is_that_of_the_window_so_that_acting_on_it_is_idempotent():
    policy = RecalibrationPolicy(critical_windows=1)
    one, two = (policy.decide(a_record(n_critical=1)) for _ in range(2))
    assert one == two
    assert policy.decide(a_record(n_critical=1, day=1)).id != one.id
    assert RecalibrationTrigger.from_dict(one.to_dict()) == one


def test_a_number_of_windows_must_be_at_least_one():
    with pytest.raises(InvalidInputError, match="`critical_windows` must be at least 1; got 0"):
        RecalibrationPolicy(critical_windows=0)


class Follower:
    """A host that says something after every check, or fails to."""

    def __init__(self) -> None:
        self.seen = []
        self.fails = False

    def __call__(self, trigger):
        raise AssertionError(trigger)

    def follow(self, last):
        self.seen.append(last.ordinal)
        if self.fails:
            raise ConnectionError
        return f"Trial: window {last.ordinal} was better."


def a_monitor(host):
    days = pd.date_range("2024-01-01", periods=400, freq="15min", tz="UTC")
    log = pd.DataFrame({"at": days, "a": 0.5, "b": 0.5, "y": ["a", "b"] * 200})
    tree = hm.LabelTree.flat(["a", "b"])
    return hm.Monitor(
        source=TableSource(FrameTable(log), tree=tree, columns=Columns(time="at", label="y")),
        windows=TimeWindows(length="1d"),
        tree=tree,
        utilities=[hm.TopK(1)],
        hosts=hm.Hosts(recalibrate=host, follow=host.follow),
    )


def test_a_host_goes_on_after_every_check_and_is_heard_in_the_next_message():
    follower = Follower()
    monitor = a_monitor(follower)
    assert monitor.check("2024-01-02T00:00Z").message is None
    assert monitor.check("2024-01-02T00:00Z").message is None  # nothing is due, nothing is lost
    said = monitor.check("2024-01-03T00:00Z").message.text
    assert "Trial: window 1 was better." in said
    assert follower.seen == [1, 1, 2]


def test_a_trial_that_fails_does_not_fail_the_check(caplog):
    follower = Follower()
    follower.fails = True
    monitor = a_monitor(follower)
    assert len(monitor.check("2024-01-03T00:00Z")) == 2
    assert "the trial of a new version failed" in caplog.text
    follower.fails = False
    monitor.check("2024-01-03T00:00Z")
    assert follower.seen == [2, 2]


def test_defaults_are_those_of_the_docstring():
    assert defaults(RecalibrationPolicy) == documented_defaults(RecalibrationPolicy) != {}


def test_two_critical_windows_are_no_reason_by_default_and_three_are():
    assert RecalibrationPolicy().decide(a_record(n_critical=2)) is None
    assert RecalibrationPolicy().decide(a_record(n_critical=3)) is not None


def test_the_longest_of_several_alerts_is_named_and_the_others_are_counted():
    record = a_record(n_critical=3)
    (alert,) = record.alerts
    longer = dataclasses.replace(alert, node="probe", n_critical=5)
    short = dataclasses.replace(alert, node="dos", n_critical=1)
    both = dataclasses.replace(record, alerts=(alert, longer, short))
    reason = RecalibrationPolicy().decide(both).reason
    assert "branch 'probe'" in reason
    assert reason.endswith(" and 1 more critical for 5 windows")
    assert "more" not in RecalibrationPolicy().decide(record).reason


def test_without_an_e_detector_nothing_alarms_and_resolved_alerts_are_not_repaired():
    record = dataclasses.replace(a_record(), detector=None)
    assert RecalibrationPolicy().decide(record) is None
    over = dataclasses.replace(record.alerts[0], node="dos", level=None)
    lasting = a_record(n_critical=3)
    trigger = RecalibrationPolicy().decide(
        dataclasses.replace(lasting, alerts=(*lasting.alerts, over), detector=None)
    )
    assert trigger.candidates == (("u", "all", "attack"),)
    assert len(trigger.id) == 16


@pytest.mark.parametrize(("n_windows", "rule"), [(0, "at least 1"), (51, "at most 50")])
def test_a_trial_takes_one_to_fifty_windows(n_windows, rule):
    assert RecalibrationPolicy(shadow_windows=50).shadow_windows == 50
    with pytest.raises(InvalidInputError, match=f"`shadow_windows` must be {rule}"):
        RecalibrationPolicy(shadow_windows=n_windows)
