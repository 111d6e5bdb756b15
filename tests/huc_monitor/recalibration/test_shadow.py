from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.recalibration.choosing import Figures, Gate
from huc_monitor.recalibration.shadow import ShadowTrial, ShadowWindow

NOW = Figures(100, 0.10, None, None, 0.0, 1.0, 0.60)
BETTER = dataclasses.replace(NOW, huc=0.05, log_loss=0.9)
WORSE = dataclasses.replace(NOW, huc=0.11, log_loss=0.9)


def trial(*challengers, n_windows=None):
    made = ShadowTrial(version="2", champion="1", upto=7, n_windows=n_windows or len(challengers))
    for place, figures in enumerate(challengers):
        made = made.add(ShadowWindow.of(8 + place, NOW, figures))
    return made


@cache
def compared(n, *, after=0.8):
    """A champion that says even, of labels that are four to one, and a challenger on n rows."""
    tree = hm.LabelTree.flat(["a", "b"])
    labels = np.where(np.arange(n) % 5 == 0, "b", "a")
    sides = [([[p, 1 - p]] * n, labels) for p in (0.5, after)]
    return hm.compare(*sides, paired=True, tree=tree, utilities=hm.Payoff("pay", {"a": 1}))


def test_a_challenger_that_is_shown_better_over_all_windows_passes():
    decided = trial(BETTER, BETTER, WORSE).decide(Gate(), compared(1000))
    assert (decided.result, decided.reasons, decided.upto) == ("passed", (), 10)
    assert decided.difference[1] < 0
    assert ", over all rows -" in str(decided)


def test_better_in_every_window_is_not_enough_if_it_may_be_chance():
    decided = trial(BETTER, BETTER).decide(Gate(), compared(10))
    assert decided.result == "refused"
    assert "HUC on 2 windows" in decided.reasons[0]
    assert "which may be chance" in decided.reasons[0]


def test_being_a_little_better_is_not_enough():
    decided = trial(BETTER, BETTER).decide(Gate(min_improvement=0.1), compared(1000, after=0.52))
    assert decided.reasons == (
        "HUC on 2 windows is 0.3000 before, 0.2800 after; it must fall by at least 10%",
    )


@pytest.mark.parametrize(
    ("changes", "word"), [({"log_loss": 1.1}, "log loss"), ({"accuracy": 0.5}, "accuracy")]
)
def test_what_the_gate_forbids_is_refused_in_the_shadow_too(changes, word):
    decided = trial(*[dataclasses.replace(BETTER, **changes)] * 3).decide(Gate(), compared(1000))
    assert decided.result == "refused"
    assert decided.reasons[0].startswith(word)


def test_nothing_is_decided_before_the_last_window():
    assert trial(BETTER, BETTER, n_windows=3).decide(Gate(), compared(1000)).result == "running"
    assert trial(BETTER, n_windows=2).skip(12).upto == 12
    ended = trial(BETTER).end("the champion is version 3 now")
    assert ended.decide(Gate(), compared(1000)) is ended


def test_windows_count_by_their_rows():
    large = dataclasses.replace(NOW, n=900, huc=0.2)
    both = trial(BETTER).add(ShadowWindow.of(9, large, large))
    assert both.mean(0).huc == pytest.approx(0.19)
    assert both.mean(0).n == 1000


numbers = st.floats(0.1, 1).map(lambda x: x / 3)
figures = st.builds(
    Figures,
    st.integers(1, 10_000),
    numbers,
    st.none(),
    st.none(),
    numbers,
    numbers,
    numbers,
)


@given(st.lists(figures, min_size=1, max_size=50))
def test_a_trial_survives_being_written_and_fits_into_a_tag(challengers):
    decided = trial(*challengers).decide(Gate(), compared(10))
    assert ShadowTrial.from_json(decided.to_json()) == decided
    assert str(decided).startswith("version 2 beside champion 1: ")


def test_fifty_windows_fit_into_a_tag():
    long = [
        dataclasses.replace(NOW, huc=k / 7, log_loss=k / 13, accuracy=k / 70) for k in range(50)
    ]
    assert len(trial(*long).decide(Gate(), compared(10)).to_json()) <= 8_000


def test_figures_are_kept_to_nine_decimals():
    third = dataclasses.replace(NOW, huc=1 / 3)
    assert ShadowWindow.of(1, third, third).huc == (0.333333333, 0.333333333)


def test_a_trial_in_one_line_has_the_means_of_both_and_the_reasons():
    assert str(trial(BETTER)) == (
        "version 2 beside champion 1: running, 1 of 1 windows, mean HUC 0.0500 for 0.1000"
    )
    ended = ShadowTrial(version="2", champion="1", upto=7, n_windows=3).end("over")
    assert str(ended) == "version 2 beside champion 1: ended, 0 of 3 windows (over)"


def test_a_window_that_was_looked_at_again_does_not_turn_the_clock_back():
    assert trial(BETTER).skip(3).upto == 8
    assert trial(BETTER).add(ShadowWindow.of(2, NOW, BETTER)).upto == 8


def test_a_figure_that_is_no_number_is_not_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        trial(dataclasses.replace(NOW, huc=float("nan"))).to_json()
