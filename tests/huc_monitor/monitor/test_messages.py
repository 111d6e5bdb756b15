"""Golden messages: what people read, word for word."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import huc_monitor as hm
from huc_monitor.monitor.change import CandidateChange
from huc_monitor.monitor.describing import describe, say_gains
from huc_monitor.monitor.messages import NextSteps, compose
from huc_monitor.monitor.ports.notifier import Message
from huc_monitor.monitor.records import AlertState, AlertTransition, DriftFinding
from huc_monitor.tree import LabelTree

GOLDEN = Path(__file__).parents[1] / "golden"
UNTIL = datetime(2024, 3, 6, tzinfo=UTC)

CRITICAL = AlertTransition(
    kind="escalated",
    level="critical",
    utility="family",
    subgroup="protocol=udp",
    node="attack",
    announced=True,
    moment=-0.0431,
    lower=0.0312,
    upper=0.0550,
    tolerance=0.02,
    interval_low=0.6172,
    interval_high=0.8091,
    units=None,
    scale=1.0,
    reasons=("estimate", "bound"),
    uc=0.0061,
    cancels_node="root",
    cancels_moment=0.0382,
    first_seen=datetime(2024, 3, 3, tzinfo=UTC),
    n_windows=3,
    hints=(
        "In this range, of the cases under *attack*, *dos* was predicted in 61% and seen in 38%.",
        "The inputs moved since the reference: subgroup protocol=udp from 12% to 31% of the rows.",
    ),
    window_id="5f",
    window_end=UNTIL,
)
WARNING = dataclasses.replace(
    CRITICAL,
    kind="opened",
    level="warning",
    utility="cost",
    subgroup="all",
    node="root",
    moment=0.0431,
    lower=0.0112,
    upper=0.0750,
    units="EUR",
    scale=200.0,
    reasons=("estimate",),
    cancels_node=None,
    cancels_moment=None,
    first_seen=datetime(2024, 3, 5, 6, 30, tzinfo=UTC),
    n_windows=1,
    hints=(),
)
RESOLVED = dataclasses.replace(
    CRITICAL,
    kind="resolved",
    node="probe",
    moment=-0.0113,
    lower=0.0,
    upper=0.0232,
    n_windows=6,
    hints=(),
)
QUIET = dataclasses.replace(RESOLVED, reasons=("suspected",), n_windows=4)
TREE = {"attack": ["dos", "probe"], "normal": None}
MOVED = CandidateChange(
    utility="family",
    subgroup="protocol=udp",
    node="attack",
    before=-0.0021,
    after=-0.0452,
    difference=-0.0431,
    lower=-0.0604,
    upper=-0.0258,
    interval_low=0.6172,
    interval_high=0.8091,
    n_windows=4,
    share=0.31,
    onset_first=datetime(2024, 3, 3, tzinfo=UTC),
    onset_last=datetime(2024, 3, 4, tzinfo=UTC),
)


def changed(subgroup, node, size, share):
    """Return a step of a candidate that changed by so much."""
    change = dataclasses.replace(MOVED, subgroup=subgroup, node=node, difference=-size, share=share)
    return dataclasses.replace(
        CRITICAL,
        kind="opened",
        subgroup=subgroup,
        node=node,
        reasons=("estimate", "changed"),
        hints=CRITICAL.hints[:1],
        change=change,
    )


CHANGED = (
    changed("all", "attack", 0.0452, 1.0),
    changed("protocol=udp", "attack", 0.0431, 0.31),
    changed("all", "root", 0.0301, 1.0),
)
STANDING = ("normal", "attack", "root", "dos")  # the same message says that two of them changed
DRIFT = (
    DriftFinding(
        kind="branch",
        name="attack",
        distance=0.18,
        lower=0.141,
        drifted=True,
        before={"dos": 0.6, "probe": 0.4},
        after={"dos": 0.42, "probe": 0.58},
    ),
    DriftFinding(
        kind="scores",
        name="family",
        distance=0.3,
        lower=0.27,
        drifted=True,
        before={"quarter": 0.4, "median": 0.55, "three_quarters": 0.7},
        after={"quarter": 0.5, "median": 0.66, "three_quarters": 0.8},
    ),
    DriftFinding(
        kind="subgroup",
        name="protocol=udp",
        distance=0.19,
        lower=0.16,
        drifted=True,
        before={"share": 0.12},
        after={"share": 0.31},
    ),
)


def grouped(*steps, **more):
    message = compose(steps, monitor="intrusion", identity="d41b", until=UNTIL, **more)
    assert message is not None
    return message


MESSAGES = {
    "critical": grouped(CRITICAL),
    "warning": grouped(WARNING),
    "resolved": grouped(RESOLVED),
    "quiet": grouped(QUIET),
    "changed": grouped(*CHANGED, standing=STANDING, tree=LabelTree.from_nested(TREE)),
    "grouped": grouped(
        WARNING,
        RESOLVED,
        CRITICAL,
        drift=DRIFT,
        notes=["Recalibration requested: alarm of the e-detector."],
    ),
    "many": grouped(
        *(dataclasses.replace(CRITICAL, node=f"n{k}", moment=-0.03 - k / 100) for k in range(8))
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_reads_as_agreed(name):
    message = MESSAGES[name]
    expected = (GOLDEN / f"message_{name}.txt").read_text("utf-8")
    assert f"{message.title}\n\n{message.text}\n" == expected


def test_the_sentence_names_branch_subgroup_utility_size_bounds_tolerance_and_cancellation():
    assert describe(CRITICAL) == (
        "Branch *attack* (subgroup protocol=udp, utility *family*): predicted utility 0.62 to 0.81 "
        "is overstated by 0.043 [0.031, 0.055] per prediction (tolerance 0.02). Branch *root* errs "
        "the other way (+0.038), so the sum over all branches (UC) shows only 0.006. First seen "
        "2024-03-03, open for 3 windows."
    )


def test_all_times_of_a_message_are_those_of_the_windows_time_zone():
    night = datetime(2024, 3, 30, 23, tzinfo=UTC)  # Sunday's midnight; the clocks change at 2:00
    day = night + timedelta(hours=23)
    seen = dataclasses.replace(CRITICAL, first_seen=night, window_end=day)
    moved = dataclasses.replace(MOVED, onset_first=night, onset_last=day)
    both = [dataclasses.replace(WARNING, first_seen=day + timedelta(hours=6)), seen]
    given = {"monitor": "m", "identity": "d", "until": day, "place": NextSteps(page="there")}
    local = compose(both, **given, zone="Europe/Berlin")
    assert local.title == "m: 1 critical, 1 warning (data to 2024-04-01 00:00 CEST)"
    assert "First seen 2024-03-31, open for 3 windows." in local.text
    assert "First seen 2024-04-01 06:00 CEST, open for 1 window." in local.text
    assert "Look at rows of protocol=udp in the window to 2024-03-31 with" in local.text
    step = dataclasses.replace(CHANGED[1], change=moved, window_end=day)
    assert "It began between 2024-03-31 and 2024-04-01 (90 % confidence)." in (
        compose([step], **given, zone="Europe/Berlin").text
    )
    plain = compose(both, **given)
    assert "First seen 2024-03-30 23:00 UTC" in plain.text
    assert "First seen 2024-04-01 04:00 UTC" in plain.text
    assert (local.key, local.data) == (plain.key, plain.data), "what is stored is in UTC"


def test_a_branch_that_changed_is_not_also_said_to_stand():
    text = MESSAGES["changed"].text
    assert "Branch *attack*, protocol=udp" in text
    assert "Standing since the reference: normal and dos are beyond" in text
    only = grouped(*CHANGED, standing=["root", "attack"], tree=LabelTree.from_nested(TREE))
    assert "Standing" not in only.text


def test_nothing_to_tell_but_what_stands_is_a_note():
    message = grouped(standing=["root"])
    assert (message.level, "root is beyond the tolerance" in message.text) == ("note", True)


def test_a_tiny_moment_beside_others_is_shown_with_as_many_digits():
    tiny = dataclasses.replace(CHANGED[0].change, before=-2.5e-05)
    text = grouped(dataclasses.replace(CHANGED[0], change=tiny)).text
    assert "was 0.000 then and is " in text


def test_amounts_are_in_the_users_units():
    assert "understated by 8.62 EUR [2.24, 15.0] per prediction (tolerance 4 EUR)" in describe(
        WARNING
    )


def test_a_candidate_without_bounds_is_described_without_them():
    bare = dataclasses.replace(WARNING, lower=None, upper=None)
    assert "by 8.62 EUR per prediction" in describe(bare)


def test_evidence_over_time_is_said_to_be_that():
    slow = dataclasses.replace(CRITICAL, reasons=("estimate", "detector"))
    assert "all windows so far together are not" in describe(slow)


def test_an_unnamed_alarm_is_said_to_be_a_suspicion():
    suspect = dataclasses.replace(WARNING, reasons=("suspected",))
    assert "raised an alarm and suspects this branch most" in describe(suspect)


def test_what_was_never_outside_the_tolerance_is_not_said_to_be_back():
    assert "back within" not in describe(QUIET)
    both = dataclasses.replace(RESOLVED, reasons=("estimate", "detector"))
    assert "back within the tolerance of 0.02, now 0.011 [0, 0.023] per prediction; the " in (
        describe(both)
    )
    assert "e-detector" not in describe(RESOLVED)


@pytest.mark.parametrize("reasons", [(), ("estimate",)])
def test_a_level_that_only_earlier_windows_justify_is_said_to_rest_on_them(reasons):
    kept = dataclasses.replace(CRITICAL, kind="repeated", reasons=reasons)
    assert "raised an alarm earlier, and this window adds to its evidence" in describe(kept)
    sure = dataclasses.replace(kept, reasons=("estimate", "bound"))
    assert "earlier" not in describe(sure)


def test_of_several_steps_of_one_alert_the_last_is_told():
    reopened = dataclasses.replace(CRITICAL, kind="opened", level="warning", announced=False)
    gone = dataclasses.replace(CRITICAL, kind="resolved")
    message = grouped(CRITICAL, gone, reopened)
    assert message.level == "warning"
    assert "RESOLVED" not in message.text


def test_the_end_of_a_branch_is_told_by_what_people_heard_of_and_with_what_is_still_open():
    told = dataclasses.replace(RESOLVED, reasons=("changed",), subgroup="protocol=udp")
    everyone = dataclasses.replace(told, subgroup="all")
    led = dataclasses.replace(told, led_at=UNTIL)
    alert = AlertState(
        utility="cost",
        subgroup="protocol=tcp",
        node="probe",
        level="critical",
        first_seen=UNTIL,
        last_seen=UNTIL,
        first_ordinal=1,
        last_ordinal=1,
        n_windows=1,
    )
    other = dataclasses.replace(alert, node="dos")
    text = grouped(everyone, led, alerts=[alert, other]).text
    assert "(subgroup protocol=udp, " in text
    assert "(whole population, " not in text
    assert "It ended in 1 more subgroup too." in text
    assert text.endswith("Still open of this branch: protocol=tcp (cost, critical).")


def test_what_is_not_announced_makes_no_message():
    quiet = dataclasses.replace(CRITICAL, announced=False)
    assert compose([quiet], monitor="m", identity="d", until=UNTIL) is None


def test_the_same_news_have_the_same_key_and_other_news_another():
    keys = [grouped(*steps).key for steps in ([CRITICAL], [CRITICAL], [WARNING], [RESOLVED])]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_a_message_survives_its_json_form():
    message = MESSAGES["grouped"]
    assert Message.from_dict(message.to_dict()) == message


def test_names_that_look_like_markup_stay_text():
    odd = dataclasses.replace(CRITICAL, node="<script>alert(1)</script>")
    assert "*<script>alert(1)</script>*" in describe(odd)


def test_candidates_that_say_the_same_are_one_finding_led_by_the_most_specific():
    (finding,) = MESSAGES["changed"].data["findings"]
    assert (finding["node"], finding["kind"], finding["above"]) == ("attack", "changed", ["root"])
    assert finding["subgroups"] == ["protocol=udp", "all"]
    # Half of the change for a third of the rows: not theirs alone.
    half = changed("protocol=udp", "attack", 0.0226, 0.31)
    (shared,) = grouped(CHANGED[0], half).data["findings"]
    assert shared["subgroups"][0] == "all"


def test_a_change_on_top_of_what_stood_before_is_both():
    change = dataclasses.replace(MOVED, before=-0.03, after=-0.0731)
    step = dataclasses.replace(CHANGED[1], change=change)
    message = grouped(step)
    assert message.data["findings"][0]["kind"] == "both"
    assert "The reference was beyond the tolerance there already." in message.text


def test_gains_are_told_in_money_of_each_utility_that_has_units():
    tree = hm.LabelTree.flat(["a", "b"])
    labels = ["a", "b", "b", "b"] * 50
    utilities = [
        hm.Payoff("cost", {"a": 40}, units="EUR", scale=40),
        hm.LevelCorrectness(level=1),
        hm.Payoff("time", {"b": 10}, units="h", scale=10),
    ]
    before, after = (np.tile([share, 1 - share], (200, 1)) for share in (0.75, 0.3))
    found = hm.compare(
        (before, labels), (after, labels), tree=tree, utilities=utilities, paired=True, n_draws=30
    )
    assert say_gains(found, utilities) == (
        "HUC of utility cost: 20.0 EUR before, 2.00 EUR after; "
        "HUC of utility time: 5.00 h before, 0.500 h after"
    )
    assert say_gains(found, utilities[1:2]) == say_gains(None, utilities) == ""
