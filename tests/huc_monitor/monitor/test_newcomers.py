"""Values that came after subgroups were frozen: told once, where there are enough rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.production_log import after, make_log
from support.watched import Ear, make

import huc_monitor as hm
from huc_monitor.monitor._state import MonitorState
from huc_monitor.monitor.muting import Maintenance
from huc_monitor.monitor.newcomers import find_unnamed

SAID = "No subgroup has the new values"


@pytest.fixture
def log_of():
    """Four days; from the third on, a share of the rows has a value that was not there before."""

    def log_of(share, value="icmp"):
        log, labels = make_log(4, 400)
        rng = np.random.default_rng(1)
        late = (log["at"] >= after(2)) & (rng.random(len(log)) < share)
        return log.assign(protocol=log["protocol"].mask(late, value)), labels

    return log_of


def notes_of(monitor, days):
    """Check on several days; return how often each told of new values."""
    found = []
    for day in days:
        message = monitor.check(after(day)).message
        notes = [] if message is None else message.data["notes"]
        found.append([note for note in notes if SAID in note])
    return found


def test_a_value_that_comes_later_is_told_once_with_its_share(log_of):
    ear = Ear()
    log, labels = log_of(0.25)
    monitor = make(log, labels, notifiers={"ear": ear})
    said = notes_of(monitor, [2.6, 3.6, 4.6])
    assert [len(notes) for notes in said] == [0, 1, 0]
    share = (log["protocol"][log["at"].between(after(2), after(3))] == "icmp").mean()
    assert f"'protocol=icmp' ({share:.0%} of the rows)" in said[1][0]
    assert "subgroups.predicates" in said[1][0]
    assert sum(SAID in message.text for message in ear.heard) == 1
    third, fourth = monitor.records()[2:]
    assert any(SAID in note for note in third.notes)
    assert not any(SAID in note for note in fourth.notes)


def test_checking_once_tells_what_checking_daily_tells(log_of):
    daily = make(*log_of(0.25))
    notes_of(daily, [2.6, 3.6, 4.6])
    once = make(*log_of(0.25))
    assert [len(notes) for notes in notes_of(once, [4.6])] == [1]
    for one, other in zip(once.records(), daily.records(), strict=True):
        assert one.notes == other.notes


def test_a_column_that_is_not_filled_any_more_has_no_new_values(log_of):
    log, labels = log_of(1.0, None)
    monitor = make(log, labels)
    assert notes_of(monitor, [2.6, 3.6, 4.6]) == [[], [], []]
    assert [record.status for record in monitor.records()] == ["audited"] * 4


@pytest.mark.parametrize("share", [0.0, 0.02])
def test_a_value_with_few_rows_is_not_told(log_of, share):
    assert notes_of(make(*log_of(share)), [2.6, 3.6, 4.6]) == [[], [], []]


def some(features):
    return hm.Subgroups.from_reference(features, {"protocol": {"each": ["udp"]}})


def top(features):
    return hm.Subgroups.from_reference(features, {"protocol": {"each": {"top": 1}}})


def given(_):
    predicate = {"column": "protocol", "op": "==", "value": "udp"}
    return hm.Subgroups.from_reference({"protocol": ["udp"]}, predicates={"datagram": predicate})


@pytest.mark.parametrize("make_subgroups", [some, top, given])
def test_where_some_values_were_left_out_on_purpose_no_other_is_told(log_of, make_subgroups):
    monitor = make(*log_of(0.25), subgroups=make_subgroups)
    assert notes_of(monitor, [2.6, 4.6]) == [[], []]


def test_a_value_that_was_too_small_for_a_group_is_not_new(log_of):
    def large(features):
        return hm.Subgroups.from_reference(features, {"protocol": "each"}, min_size=200)

    log, labels = log_of(0.25)
    assert large(log[["protocol"]].iloc[:400]).names == ("all", "protocol=tcp")
    grown = log.assign(protocol=log["protocol"].mask(log["at"] >= after(3), "udp"))
    said = notes_of(make(grown, labels, subgroups=large), [2.6, 3.6, 4.6])
    assert [len(notes) for notes in said] == [0, 1, 0]
    assert "udp" not in said[1][0]


def test_a_value_in_maintenance_is_told_when_it_is_over(log_of):
    quiet = [Maintenance(start=str(after(2)), end=str(after(3)))]
    said = notes_of(make(*log_of(0.25), maintenance=quiet), [2.6, 3.6, 4.6])
    assert [len(notes) for notes in said] == [0, 0, 1]


def test_a_hostile_value_is_told_as_text(log_of):
    ear = Ear()
    monitor = make(*log_of(0.25, "<b>\x1b[31m@here"), notifiers={"ear": ear})
    (note,) = notes_of(monitor, [4.6])[0]
    assert "\x1b" not in note
    assert "\x1b" not in ear.heard[0].text


def test_values_of_every_type_go_by_the_name_of_their_group():
    first = pd.DataFrame({"n": [1, 2], "b": [True, True], "x": [0.5, 1.5], "t": ["a", None]})
    later = pd.DataFrame({"n": [3, 1], "b": [False, None], "x": [0.5, np.nan], "t": ["", "b"]})
    groups = hm.Subgroups.from_reference(first, dict.fromkeys(first, "each"))
    assert find_unnamed(groups, first) == {"n": {}, "b": {}, "x": {}, "t": {}}
    found = find_unnamed(groups, later)
    assert found == {"n": {"n=3": 1}, "b": {"b=false": 1}, "x": {}, "t": {'t=""': 1, "t=b": 1}}


def test_no_more_than_fifty_values_are_remembered(log_of):
    log, labels = log_of(0.0)
    late = log["at"] >= after(2)
    names = np.char.add("p", (np.arange(len(log)) % 4).astype(str))
    monitor = make(log.assign(protocol=log["protocol"].mask(late, names)), labels)
    state = monitor._load()
    state.drift_told = {f"subgroups:new:protocol=x{k}": "40" for k in range(47)}
    monitor.tracker.save_state(state.to_dict())
    (note,) = notes_of(monitor, [4.6])[0]
    assert note.count("protocol=p") == 3


def test_a_state_from_before_is_read_and_tells_nothing(log_of):
    monitor = make(*log_of(0.25))
    monitor.check(after(2.6))
    plain = monitor.tracker.load_state()
    assert plain.pop("by_value") == ["protocol"]
    assert MonitorState.from_dict(plain).by_value == []
    monitor.tracker.save_state(plain)
    assert notes_of(monitor, [4.6]) == [[]]
