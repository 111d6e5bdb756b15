"""What a changed configuration takes over from the monitor before it."""

from __future__ import annotations

import pytest
from support.production_log import after, make_log
from support.watched import UTILITIES, Ear, by_protocol, make

import huc_monitor as hm
from huc_monitor.monitor.messages import NextSteps
from huc_monitor.monitor.ports import FilesTracker, MonitorInfo


def by_another_name(features):
    rule = {"column": "protocol", "op": "==", "value": "udp"}
    return hm.Subgroups.from_reference(features, predicates={"datagrams": rule})


@pytest.fixture(scope="module")
def log():
    return make_log(6, 3000, broken_from=4)


@pytest.fixture
def opened(log, tmp_path):
    """Make monitors of one name; the first has alerts of all rows and of udp, and mutes."""

    def one(letter, **given):
        tracker = FilesTracker(MonitorInfo("intrusion", letter * 16), tmp_path)
        return make(*log, tracker=tracker, identity=letter * 16, **given)

    first = one("a")
    found = first.check(after(5.5))
    assert {alert.subgroup for alert in found.alerts} == {"all", "protocol=udp"}
    mutes = [{"subgroup": "protocol=udp"}, {"utility": "status"}, {"branch": "probe"}]
    for names in mutes:
        first.actions.mute(until="30d", now=after(5.5), **names)
    return one


def test_alerts_of_a_subgroup_that_is_not_watched_any_more_are_told_to_have_ended(opened):
    ear = Ear()
    changed = opened("b", subgroups=by_another_name, notifiers={"ear": ear})
    assert "protocol=udp" in {alert.subgroup for alert in changed.alerts}, "nothing is known yet"
    result = changed.check(after(5.5))
    assert {alert.subgroup for alert in result.alerts} == {"all", "datagrams"}
    (message,) = ear.heard
    ended = [step for step in message.data["transitions"] if step["kind"] == "resolved"]
    assert {step["subgroup"] for step in ended} == {"protocol=udp"}
    assert "protocol=udp, utility *family*): no longer tested as it was: its subgroup" in (
        message.text.replace("\\", "")
    )
    assert "ended because nothing watches their subgroup any more: protocol=udp" in message.text
    assert [mute.branch or mute.utility for mute in changed.actions.mutes(after(5.6))] == [
        "status",
        "probe",
    ]
    assert opened("b", subgroups=by_another_name).check(after(5.6)).message is None, "once"


def test_alerts_of_a_utility_that_is_gone_are_told_to_have_ended(opened):
    changed = opened("b", utilities=UTILITIES[:1])
    result = changed.check(after(5.5))
    ended = [step for step in result.message.data["transitions"] if step["kind"] == "resolved"]
    assert {step["utility"] for step in ended} == {"family"}
    assert "its branch or utility is gone" in result.message.text
    unchanged = opened("c", utilities=[*UTILITIES, hm.TopK(1)]).check(after(5.5))
    kinds = {step["kind"] for step in unchanged.message.data["transitions"]}
    assert "resolved" not in kinds


def test_windows_that_are_audited_again_do_not_have_alerts_that_opened_later(opened):
    result = opened("b", audit={"n_draws": 120}).check(after(5.5))
    levels = {record.ordinal: record.level for record in result if record.status == "audited"}
    assert levels == {1: None, 2: None, 3: None, 4: None, 5: "critical"}


def test_what_is_left_of_the_monitor_before_survives_a_killed_check(opened, monkeypatch):
    changed = opened("b", subgroups=by_another_name)
    monkeypatch.setattr(FilesTracker, "record", _die)
    with pytest.raises(KeyboardInterrupt):
        changed.check(after(5.5))
    monkeypatch.undo()
    result = changed.check(after(5.5))
    ended = [step for step in result.message.data["transitions"] if step["kind"] == "resolved"]
    assert {step["subgroup"] for step in ended} == {"protocol=udp"}


def _die(*_):
    raise KeyboardInterrupt


def test_another_file_of_the_same_model_name_takes_nothing_over(log, tmp_path):
    def one(letter, file):
        info = MonitorInfo("intrusion", letter * 16, file=file)
        tracker = FilesTracker(info, tmp_path)
        return make(*log, tracker=tracker, identity=info.identity, place=NextSteps(file))

    eu = one("a", "eu.yaml")
    assert eu.check(after(5.5)).alerts
    eu.actions.mute(until="30d", now=after(5.5))
    us = one("b", "us.yaml")
    assert (us.alerts, us.status, us.actions.mutes(after(5.5))) == ((), "ok", ())
    (said,) = us.check(after(2.5), dry_run=True).preview
    assert said.startswith("Another file, eu.yaml, has a monitor of the same model name here. Its ")
    assert us.check(after(2.5)).message.data["notes"] == [said]
    assert us.check(after(3.5)).message is None, "once"
    changed = one("c", "eu.yaml")
    assert {alert.candidate for alert in changed.alerts} == {a.candidate for a in eu.alerts}
    assert changed.actions.mutes(after(5.5)), "its own file's, though the other's is newer"
    assert one("d", None).check(after(2.5)).status == "ok", "of no file: the newest"


def test_a_state_that_names_no_file_is_taken_over_and_named_from_then_on(opened, log, tmp_path):
    assert "file" not in opened("a").tracker.load_state(), "as earlier versions wrote it"
    tracker = FilesTracker(MonitorInfo("intrusion", "b" * 16, file="eu.yaml"), tmp_path)
    changed = make(*log, tracker=tracker, identity="b" * 16, place=NextSteps("in/eu.yaml"))
    assert changed.alerts
    changed.check(after(5.5))
    assert tracker.load_state()["file"] == "eu.yaml"


def test_subgroups_that_are_still_watched_keep_their_alerts(opened):
    before = opened("a").alerts
    changed = opened("b", subgroups=by_protocol)
    changed.check(after(5.5))
    kept = {alert.candidate: alert.first_seen for alert in changed.alerts}
    assert kept == {alert.candidate: alert.first_seen for alert in before}
