from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.documented import defaults, documented_defaults

from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.alerts import AlertPolicy, Judgement, advance, judge

CANDIDATE = ("family", "all", "attack")
SIZES = {None: 0.0, "warning": 0.03, "critical": 0.06}


def day(n: int) -> datetime:
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=n)


def judged(level):
    reasons = {None: (), "warning": ("estimate",), "critical": ("estimate", "bound")}[level]
    return [Judgement(0, CANDIDATE, level, reasons, -SIZES[level], SIZES[level] / 2, 0.02)]


def live(levels, *, ordinals=None, **policy):
    """Kinds of steps, window by window, with "~" before those that are not announced."""
    alerts, story, states = {}, [], []
    for n, level in zip(ordinals or range(len(levels)), levels, strict=True):
        alerts, steps = advance(
            alerts,
            judged(level),
            ordinal=n + 1,
            start=day(n),
            end=day(n + 1),
            policy=AlertPolicy(**{"cool_down": "7d", **policy}),
        )
        story.append(" ".join(("" if s.announced else "~") + s.kind for s in steps))
        states.append(alerts.get(CANDIDATE))
    return story, states


def test_an_alert_is_opened_once_and_resolved_once():
    story, states = live([None, "warning", "warning", None, None])
    assert story == ["", "opened", "", "resolved", ""]
    assert [state.n_windows for state in states[1:3]] == [1, 2]
    assert states[2].first_seen == day(1)


def test_a_worse_level_escalates_and_a_better_one_eases():
    story, _ = live(["warning", "critical", "critical", "warning"])
    assert story == ["opened", "escalated", "", "eased"]


def test_a_lasting_alert_is_repeated_after_each_cool_down():
    story, _ = live(["critical"] * 8, cool_down="3d")
    assert story == ["opened", "", "", "repeated", "", "", "repeated", ""]


def test_one_that_comes_back_within_the_cool_down_is_recorded_but_not_announced():
    story, states = live(["warning", None, "warning", None], cool_down="7d")
    assert story == ["opened", "resolved", "~opened", "~resolved"]
    assert states[2].n_windows == 1


def test_one_that_comes_back_worse_is_announced_at_once():
    story, _ = live(["warning", None, "critical", None], cool_down="7d")
    assert story == ["opened", "resolved", "opened", "resolved"]


def test_one_that_comes_back_after_the_cool_down_is_a_new_alert():
    story, _ = live(["warning", None, None, None, None, "warning"], cool_down="2d")
    assert story == ["opened", "resolved", "", "", "", "opened"]


def test_resolving_can_ask_for_several_calm_windows_in_a_row():
    story, states = live(["warning", None, "warning", None, None], resolve_after=2)
    assert story == ["opened", "", "", "", "resolved"]
    assert states[3].n_calm == 1


def test_opening_can_ask_for_several_windows_in_a_row():
    story, states = live(["warning", None, "warning", "critical", "critical"], min_windows=2)
    assert story == ["", "", "", "opened", ""]
    assert states[3].first_seen == day(2)
    assert states[3].n_windows == 2
    assert states[0].level is None
    assert states[1] is None  # what only began to rise is forgotten


def test_windows_before_an_alert_opens_are_counted_even_without_a_cool_down():
    story, _ = live(["warning"] * 3, min_windows=3, cool_down="0s")
    assert story == ["", "", "opened"]


def test_critical_windows_in_a_row_are_counted_for_the_recalibration_policy():
    _, states = live(["warning", "critical", "critical", "warning", "critical"])
    assert [state.n_critical for state in states] == [0, 1, 2, 0, 1]


def test_a_second_look_at_the_same_window_counts_once():
    _, states = live(["critical", "critical", "critical"], ordinals=[0, 1, 1])
    assert [(state.n_windows, state.n_critical) for state in states] == [(1, 1), (2, 2), (2, 2)]


@given(
    st.lists(st.sampled_from([None, "warning", "critical"]), max_size=25),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 9),
)
def test_the_life_of_an_alert_is_always_in_order(levels, min_windows, resolve_after, days):
    story, states = live(
        levels, min_windows=min_windows, resolve_after=resolve_after, cool_down=f"{days}d"
    )
    is_open = told = False
    for kind, state in zip(story, states, strict=True):
        bare = kind.removeprefix("~")
        assert " " not in bare, "one step per window"
        assert (bare == "opened") <= (not is_open)
        assert (bare in {"escalated", "eased", "repeated", "resolved"}) <= is_open
        if bare == "resolved":
            assert told == (kind == "resolved"), "what was announced is called off, nothing else"
        is_open = (is_open or bare == "opened") and bare != "resolved"
        told = is_open and (told or (bool(bare) and not kind.startswith("~")))
        assert is_open == (state is not None and state.level is not None)


def detected(days, **policy):
    """Take one alert through windows that say (reasons, whether the evidence grew)."""
    alerts, story, steps = {}, [], []
    for n, (reasons, gaining) in enumerate(days):
        critical = {"bound", "detector"} & set(reasons)
        level = "critical" if critical else "warning" if reasons else None
        judgement = Judgement(0, CANDIDATE, level, reasons, -0.018, 0.0, 0.02, gaining)
        alerts, found = advance(
            alerts,
            [judgement],
            ordinal=n + 1,
            start=day(n),
            end=day(n + 1),
            policy=AlertPolicy(**{"cool_down": "7d", **policy}),
        )
        story.append(" ".join(step.kind for step in found))
        steps += found
    return story, steps, alerts[CANDIDATE]


ALARM, NAMED = (("suspected",), True), (("detector",), True)
GROWS, QUIET = ((), True), ((), False)


@pytest.mark.parametrize("first", [ALARM, NAMED])
def test_an_alert_of_the_detector_outlives_windows_that_add_to_its_evidence(first):
    story, steps, _ = detected([first, GROWS, QUIET, GROWS, QUIET, QUIET])
    assert story == ["opened", "", "", "", "", "resolved"]
    assert steps[-1].judgement.reasons == first[0], "what is over is told by why it was open"


def test_an_alert_of_the_detector_is_not_eased_by_one_estimate():
    above = (("estimate",), True), (("estimate",), False)
    story, _, state = detected([NAMED, *above, above[1], QUIET])
    assert story == ["opened", "", "", "eased", "resolved"]
    assert state.reasons == ("estimate",), "the warning no longer rests on the detector"


def test_an_alert_that_the_evidence_keeps_is_repeated_after_each_cool_down():
    story, steps, state = detected([NAMED, *[GROWS] * 4], cool_down="2d")
    assert story == ["opened", "", "repeated", "", "repeated"]
    assert [step.level for step in steps] == ["critical"] * 3
    assert state.n_critical == 5


def test_growing_evidence_keeps_no_alert_of_which_the_detector_has_not_spoken():
    story, _, _ = detected([(("estimate",), True), GROWS])
    assert story == ["opened", "resolved"]


def test_a_calm_window_does_not_count_as_critical():
    _, _, state = detected([NAMED, QUIET, NAMED])
    assert state.n_critical == 2


@pytest.mark.parametrize("name", ["min_windows", "resolve_after", "quiet_after"])
def test_counts_of_windows_must_be_at_least_one(name):
    with pytest.raises(InvalidInputError, match=rf"`{name}` must be at least 1; got 0"):
        AlertPolicy(**{name: 0})


ROOT, CAT, DOG = (("family", "all", node) for node in ("root", "cat", "dog"))


def judgements(moments, lowers, detector=None):
    found = judge([ROOT, CAT, DOG], np.array(moments), np.array(lowers), np.full(3, 0.02), detector)
    return [(item.level, item.reasons, item.lower, item.gaining) for item in found]


def detector(*, alarm, named=(), e_values=(0.0, 0.0, 0.0)):
    def shown(triple):
        return SimpleNamespace(utility=triple[0], subgroup=triple[1], node=triple[2])

    return SimpleNamespace(
        names=[ROOT, CAT, DOG],
        e_values=np.array(e_values),
        named=[shown(triple) for triple in named],
        alarm=alarm,
        worst=shown(CAT),
    )


def test_an_estimate_beyond_the_tolerance_warns_and_a_bound_beyond_it_is_critical():
    assert judgements([0.02, -0.021, 0.05], [-np.inf, 0.02, 0.021]) == [
        (None, (), None, False),
        ("warning", ("estimate",), 0.02, False),
        ("critical", ("estimate", "bound"), 0.021, False),
    ]


def test_what_the_detector_names_is_critical_and_only_growing_evidence_gains():
    step = detector(alarm=True, named=[DOG], e_values=[1.0, 1.01, 3.0])
    assert judgements([0.0] * 3, [0.0] * 3, step) == [
        (None, (), 0.0, False),
        (None, (), 0.0, True),
        ("critical", ("detector",), 0.0, True),
    ]


def test_an_alarm_that_names_nobody_makes_the_worst_candidate_a_warning():
    suspected = judgements([0.0] * 3, [0.0] * 3, detector(alarm=True))
    assert [item[:2] for item in suspected] == [(None, ()), ("warning", ("suspected",)), (None, ())]
    calm = judgements([0.0] * 3, [0.0] * 3, detector(alarm=False))
    assert {item[:2] for item in calm} == {(None, ())}


def test_the_cool_down_of_a_resolved_alert_includes_its_last_moment():
    story, states = live(["warning", None, None, "warning"], cool_down="2d")
    assert story == ["opened", "resolved", "", "~opened"]
    assert states[3].announced_at == states[1].announced_at == day(2)


def test_an_alert_that_knows_of_later_windows_is_carried_over_as_it_is():
    _, states = live(["warning"], ordinals=[5])
    alerts, steps = advance(
        {CANDIDATE: states[0]},
        judged(None),
        ordinal=3,
        start=day(2),
        end=day(3),
        policy=AlertPolicy(cool_down="7d"),
    )
    assert (alerts, steps) == ({CANDIDATE: states[0]}, [])


def test_a_second_look_at_a_calm_window_counts_once():
    story, states = live(["warning", None, None], ordinals=[0, 1, 1], resolve_after=2)
    assert story == ["opened", "", ""]
    assert states[2].n_calm == 1


def test_a_second_look_can_take_back_what_the_first_saw():
    assert live(["warning", None], ordinals=[0, 0])[0] == ["opened", "resolved"]
    _, states = live(["warning", "warning", "critical"], ordinals=[0, 1, 1])
    assert [state.n_critical for state in states] == [0, 0, 1]


def test_a_second_look_at_a_rising_window_counts_once():
    story, states = live(["warning", "warning"], ordinals=[0, 0], min_windows=2)
    assert story == ["", ""]
    assert (states[1].n_rising, states[1].n_windows) == (1, 1)


def test_a_resolved_alert_starts_its_counts_afresh_and_knows_when_it_was_called_off():
    _, states = live(["critical", None, "warning", None, "critical"])
    assert (states[1].n_calm, states[1].n_critical, states[1].announced_at) == (0, 0, day(2))
    assert (states[2].first_seen, states[2].first_ordinal) == (day(2), 3)
    assert states[3].announced_at == day(2), "what was not announced is not called off"
    worse = live(["warning", None, "critical"])[1][2]
    assert (worse.announced_at, worse.announced_level) == (day(3), "critical")


def test_windows_above_the_tolerance_must_be_in_a_row_after_an_alert_was_resolved_too():
    story, states = live(["warning", "warning", None, "critical", None, "warning"], min_windows=2)
    assert story == ["", "opened", "resolved", "", "", ""]
    assert (states[3].announced_at, states[3].announced_level) == (day(3), "warning")
    assert (states[3].n_critical, states[3].told) == (0, False)
    assert states[0].announced_at is None


def test_an_alert_that_came_back_unannounced_is_called_off_once_it_escalated():
    story, _ = live(["critical", None, "warning", "critical", None])
    assert story == ["opened", "resolved", "~opened", "escalated", "resolved"]


def test_an_alert_remembers_the_tolerance_that_it_exceeded():
    alerts, exceeded = {}, []
    for n, (level, tolerance) in enumerate([("warning", 0.02), (None, 0.05), ("warning", 0.025)]):
        alerts, _ = advance(
            alerts,
            [dataclasses.replace(judged(level)[0], tolerance=tolerance)],
            ordinal=n + 1,
            start=day(n),
            end=day(n + 1),
            policy=AlertPolicy(resolve_after=2),
        )
        exceeded.append(alerts[CANDIDATE].exceeded_tolerance)
    assert exceeded == [0.02, 0.02, 0.025]


def test_defaults_are_those_of_the_docstring():
    assert defaults(AlertPolicy) == documented_defaults(AlertPolicy) != {}


def standing(moments, lowers, step=None, *, changed=None, reference=None):
    candidates = [ROOT, CAT, DOG]
    limits = np.full(3, 0.02)
    before = None if reference is None else np.array(reference)
    return judge(
        candidates, np.array(moments), np.array(lowers), limits, step, changed or {}, before
    )


def test_what_stands_takes_more_than_an_estimate_of_one_window():
    found = standing([0.03, 0.03, -0.03], [0.0, 0.021, 0.0], reference=[0.02, 0.0, 0.021])
    assert [item.level for item in found] == [None, "warning", "warning"]
    assert [item.stands for item in found] == [False, True, True]
    assert all(item.standing for item in found)
    named = standing([0.0] * 3, [0.0] * 3, detector(alarm=True, named=[DOG]))
    assert [item.level for item in named] == [None, None, "warning"]


def test_only_a_sure_change_for_the_worse_is_critical_where_change_decides():
    found = standing([0.03] * 3, [0.021] * 3, changed={ROOT: False, CAT: True})
    assert [(item.level, item.better, item.reasons) for item in found] == [
        ("critical", False, ("estimate", "bound", "changed")),
        ("warning", True, ("estimate", "bound")),
        ("warning", False, ("estimate", "bound")),
    ]


def go_on(alerts, judgement, n, *, quiet=None, **options):
    """Take alerts through window n, muted where `quiet` says why."""
    return advance(
        alerts,
        [judgement],
        ordinal=n + 1,
        start=day(n),
        end=day(n + 1),
        policy=AlertPolicy(cool_down="7d"),
        quiet=lambda _: quiet,
        **options,
    )


def test_what_was_told_before_a_mute_is_called_off_and_what_was_not_is_not():
    for first, called_off in ((None, True), ("muted", False)):
        alerts, _ = go_on({}, judged("warning")[0], 0, quiet=first)
        alerts, steps = go_on(alerts, judged("warning")[0], 1, quiet="muted")
        assert (alerts[CANDIDATE].told, steps) == (called_off, [])
        _, (step,) = go_on(alerts, judged(None)[0], 2)
        assert (step.kind, step.announced) == ("resolved", called_off)


def test_a_change_that_is_over_ends_though_the_estimate_stays_beyond_the_tolerance():
    changed = Judgement(0, CANDIDATE, "critical", ("estimate", "changed"), -0.03, 0.0, 0.02)
    above = Judgement(0, CANDIDATE, None, ("estimate",), -0.03, 0.0, 0.02, standing=True)
    alerts, _ = go_on({}, changed, 0)
    kinds = []
    for n in range(1, 3):
        alerts, steps = go_on(alerts, above, n, standing_after=9)
        kinds += [step.kind for step in steps]
    assert kinds == ["resolved"]


def test_the_patience_with_what_stands_is_for_what_stands_alone():
    alerts, _ = go_on({}, judged("warning")[0], 0)
    _, (step,) = go_on(alerts, judged(None)[0], 1, standing_after=4)
    assert step.kind == "resolved"


def live_standing(windows, standing_after=4):
    """Steps of one candidate of which each window says: stands, above, within, gaining, better."""
    alerts, story = {}, []
    for n, said in enumerate(windows):
        level = "warning" if said == "stands" else None
        reasons = {"stands": ("estimate", "detector"), "above": ("estimate",)}.get(said, ())
        now = Judgement(0, CANDIDATE, level, reasons, -0.03, 0.0, 0.02, standing=True)
        now = dataclasses.replace(now, gaining=said == "gaining", better=said == "better")
        alerts, steps = advance(
            alerts,
            [now],
            ordinal=n + 1,
            start=day(n),
            end=day(n + 1),
            policy=AlertPolicy(),
            standing_after=standing_after,
        )
        story.append(" ".join(("" if s.announced else "~") + s.kind for s in steps))
    return story


@pytest.mark.parametrize("lasting", ["above", "gaining", "stands"])
def test_what_stands_stays_open_near_its_tolerance(lasting):
    assert live_standing(["stands", *(["within"] * 3 + [lasting]) * 3])[1:] == [""] * 12


def test_what_stands_ends_after_many_windows_within_the_tolerance():
    assert live_standing(["stands", *["within"] * 4]) == ["~opened", "", "", "", "~resolved"]


def test_what_stands_ends_soon_once_it_is_better_for_sure():
    assert live_standing(["stands", "better", "better"]) == ["~opened", "", "~resolved"]


def test_what_is_only_above_the_tolerance_opens_nothing_where_change_decides():
    assert live_standing(["above"] * 5) == [""] * 5
