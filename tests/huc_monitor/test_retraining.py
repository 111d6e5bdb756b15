from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from huc_monitor.errors import InvalidInputError
from huc_monitor.records import AlertState, RetrainingTrigger, WindowRecord
from huc_monitor.retraining import RetrainingPolicy


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
        detector={"alarm": alarm, "value": 1.0},
    )


def test_the_same_candidate_must_be_critical_long_enough():
    policy = RetrainingPolicy(critical_windows=3)
    assert policy.decide(a_record(n_critical=2)) is None
    trigger = policy.decide(a_record(n_critical=3))
    assert "branch 'attack'" in trigger.reason
    assert "critical for 3 windows" in trigger.reason
    assert trigger.candidates == (("u", "all", "attack"),)


def test_an_alarm_is_reason_enough_unless_told_otherwise():
    assert RetrainingPolicy().decide(a_record(alarm=True)).reason == "alarm of the e-detector"
    assert RetrainingPolicy(on_alarm=False).decide(a_record(alarm=True)) is None


def test_either_reason_can_be_left_out():
    assert RetrainingPolicy(critical_windows=None).decide(a_record(n_critical=99)) is None


def test_there_is_no_trigger_within_the_cool_down_of_the_last():
    policy = RetrainingPolicy(critical_windows=1, cool_down="3d")
    first = policy.decide(a_record(n_critical=1))
    assert policy.decide(a_record(n_critical=3, day=2), first) is None
    assert policy.decide(a_record(n_critical=4, day=3), first) is not None


def test_the_id_is_that_of_the_window_so_that_acting_on_it_is_idempotent():
    policy = RetrainingPolicy(critical_windows=1)
    one, two = (policy.decide(a_record(n_critical=1)) for _ in range(2))
    assert one == two
    assert policy.decide(a_record(n_critical=1, day=1)).id != one.id
    assert RetrainingTrigger.from_dict(one.to_dict()) == one


def test_a_number_of_windows_must_be_at_least_one():
    with pytest.raises(InvalidInputError, match="`critical_windows` must be a whole number"):
        RetrainingPolicy(critical_windows=0)
