"""The gate: what stands exactly at a limit passes."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from support.documented import defaults, documented_defaults

import huc_monitor as hm
from huc_monitor.audit.comparison import Comparison, Difference
from huc_monitor.monitor.recalibrating import RecalibrationPolicy
from huc_monitor.recalibration.choosing import Figures
from huc_monitor.recalibration.gate import Gate, shown_better

BEFORE = Figures(100, 0.5, None, None, 0.01, 1.0, 0.75)
BEFORE_REST = (None, None, 0.01, 1.0, 0.75)
GATE = Gate(min_improvement=0.5, max_log_loss_increase=0.25, max_accuracy_drop=0.25)


def first_words(**after):
    return [
        reason.split()[0] for reason in GATE.reasons(BEFORE, dataclasses.replace(BEFORE, **after))
    ]


def test_what_stands_at_every_limit_passes():
    assert first_words(huc=0.25, log_loss=1.25, accuracy=0.5) == []


@pytest.mark.parametrize(
    ("after", "word"),
    [
        ({"huc": 0.2501}, "HUC"),
        ({"huc": float("nan")}, "HUC"),
        ({"huc": 0.1, "log_loss": 1.2501}, "log"),
        ({"huc": 0.1, "accuracy": 0.4999}, "accuracy"),
    ],
)
def test_what_lies_beyond_a_limit_does_not(after, word):
    assert first_words(**after) == [word]


def test_the_gate_says_every_reason():
    before = Figures(100, 0.02, None, None, 0.01, 1.0, 0.8)
    after = Figures(100, 0.019, None, None, 0.01, 1.1, 0.7)
    reasons = Gate().reasons(before, after)
    assert [reason.split()[0] for reason in reasons] == ["HUC", "log", "accuracy"]
    assert (
        Gate(min_improvement=0.05, max_log_loss_increase=0.2, max_accuracy_drop=0.2).reasons(
            before, after
        )
        == ()
    )


def a_comparison(upper):
    huc = SimpleNamespace(lower=-0.3, upper=upper, difference=-0.1)
    return SimpleNamespace(huc=huc, confidence_level=0.95)


def test_an_improvement_is_sure_only_if_zero_lies_above_its_bounds():
    assert shown_better(a_comparison(-0.01).huc)
    assert not shown_better(a_comparison(0.0).huc)
    better = dataclasses.replace(BEFORE, huc=0.1)
    assert GATE.reasons(BEFORE, better, comparison=a_comparison(-0.01)) == ()
    (reason,) = GATE.reasons(BEFORE, better, comparison=a_comparison(0.01))
    assert "between -0.3000 and +0.0100 (95% confidence)" in reason


def test_the_gate_says_how_many_rows_would_show_a_gain_that_may_be_chance():
    before, after = Figures(1637, 0.5, *BEFORE_REST), Figures(1637, 0.1, *BEFORE_REST)
    near = a_comparison(0.05)  # half a width of 0.15 around -0.1: 1.5 ** 2 times the rows
    (reason,) = GATE.reasons(before, after, comparison=near, n_labels=5 * 1637)
    assert reason.endswith(
        "Wait for more labels: about 3,700 held-out rows would show such a gain, 19,000 labels in "
        "all at this division"
    )
    (reason,) = GATE.reasons(before, after, comparison=near, rows="2 windows")
    assert reason.endswith("Wait for more labels: about 3,700 rows would show such a gain")


NAMES = (("pay", "all", "root"), ("pay", "region=east", "carrier"), ("pay", "all", "carrier"))


def two_sizes(after, up, huc=(-0.02, 0.02)):
    """Three candidates, of which the first, which has no alert, is HUC."""
    before = np.array([0.5, 0.3, 0.2])
    after = np.array(after)
    bounds = {"down": np.full(3, 0.05), "up": np.full(3, up)}
    sizes = (before.max(), after.max(), after.max() - before.max())
    return Comparison.of_sizes(
        before,
        after,
        **bounds,
        kind="predictors",
        n_before=100.0,
        n_after=100.0,
        confidence_level=0.95,
        method="bootstrap",
        n_draws=100,
        names=NAMES,
        huc=Difference("", "", "", *sizes, sizes[2] + huc[0], sizes[2] + huc[1]),
    )


def reasons_of(comparison, targets):
    after = dataclasses.replace(BEFORE, huc=comparison.huc.after)
    return GATE.reasons(BEFORE, after, comparison=comparison, targets=targets)


def test_it_is_enough_that_what_has_an_alert_gets_better():
    better = two_sizes([0.5, 0.1, 0.1], up=0.15)
    assert reasons_of(better, NAMES[1:]) == ()
    (reason,) = reasons_of(better, ())
    assert reason.startswith("HUC on 100 held-out rows is 0.5000 before, 0.5000 after; it must")
    assert reasons_of(better, [("pay", "all", "gone")]) == (reason,), "not compared here"


@pytest.mark.parametrize(
    ("after", "up", "words"),
    [
        ([0.5, 0.1, 0.1], 0.25, "0.3000 before, 0.1000 after, which may be chance: the difference"),
        ([0.5, 0.2, 0.1], 0.05, "0.3000 before, 0.2000 after; it must fall by at least 50%"),
        ([0.5, 0.1, 0.2], 0.05, "0.3000 before, 0.2000 after; it must fall by at least 50%"),
    ],
)
def test_a_refusal_names_what_has_an_alert(after, up, words):
    (reason,) = reasons_of(two_sizes(after, up), NAMES[1:])
    start = "the moment of carrier (subgroup region=east, utility pay), which has an alert, on 100 "
    assert reason.startswith(start)
    assert words in reason


def test_a_branch_that_gets_better_does_not_pay_for_another():
    (reason,) = reasons_of(two_sizes([0.6, 0.1, 0.1], up=0.05), NAMES[1:])
    assert reason == "HUC on 100 held-out rows rises from 0.5000 to 0.6000"


def test_defaults_are_those_of_the_docstring_and_of_the_recalibration_policy():
    assert defaults(Gate) == documented_defaults(Gate) != {}
    assert RecalibrationPolicy().gate == Gate()


@pytest.mark.parametrize(
    ("name", "value"),
    [("min_improvement", 1.5), ("max_log_loss_increase", -0.1), ("max_accuracy_drop", 1.5)],
)
def test_wrong_limits_are_refused(name, value):
    with pytest.raises(hm.InvalidInputError, match=rf"`{name}` must be .* got {value}"):
        Gate(**{name: value})
