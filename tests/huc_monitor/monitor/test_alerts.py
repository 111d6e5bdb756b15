from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.alerts import AlertPolicy, Judgement, advance

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


def test_windows_before_an_alert_opens_are_counted_even_without_a_cool_down():
    story, _ = live(["warning"] * 3, min_windows=3, cool_down="0s")
    assert story == ["", "", "opened"]


def test_critical_windows_in_a_row_are_counted_for_the_retraining_policy():
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
