"""Quieting an alert: overrides reach every test, and what closes is closed for a true reason."""

from __future__ import annotations

import numpy as np
import pytest
from support.production_log import after, make_log
from support.watched import make

from huc_monitor.monitor.ports.tracker import MemoryTracker
from huc_monitor.monitor.tolerance import Tolerance, ToleranceRule


@pytest.fixture(scope="module")
def slightly_broken():
    """A fault that no single window shows, but all together do."""
    return make_log(10, 600, broken_from=0, seed=3)


FEW = {"audit": {"bounds": None}, "drift": {"enabled": False}}


def quiet(value=0.03, node="attack"):
    return Tolerance(value=value, overrides=[ToleranceRule(value=1.0, node=node)])


def test_an_override_reaches_the_e_detector_that_has_a_tolerance_of_its_own(slightly_broken):
    settings = {**FEW, "sequential": {"tolerance": 0.03}, "identity": "same"}
    tracker = MemoryTracker()
    loud = make(*slightly_broken, tolerance=0.2, tracker=tracker, **settings).check(after(6.5))
    assert {alert.node for alert in loud.alerts} == {"attack"}
    assert all(set(alert.reasons) <= {"detector", "suspected"} for alert in loud.alerts)
    again = make(*slightly_broken, tolerance=quiet(0.2), tracker=tracker, **settings)
    result = again.check(after(10.5))
    assert result.alerts == ()
    assert "no longer tested as it was: the tolerance was raised from 0.2 to 1." in (
        result.message.text
    )


def test_an_alert_that_closes_because_the_e_detector_is_off_says_so(slightly_broken):
    settings = {**FEW, "tolerance": 0.06, "identity": "same", "tracker": MemoryTracker()}
    on, off = {"tolerance": 0.03}, {"enabled": False}
    loud = make(*slightly_broken, sequential=on, **settings).check(after(6.5))
    opened = [a for a in loud.alerts if "detector" in a.reasons or "suspected" in a.reasons]
    assert opened
    quieted = make(*slightly_broken, sequential=off, **settings)
    text = quieted.check(after(10.5)).message.text
    assert "no longer tested as it was: `sequential.enabled` is false." in text
    assert "no longer grows" not in text


def test_an_estimate_that_falls_back_is_not_put_down_to_a_raised_tolerance():
    log, labels = make_log(4, 3000, broken_from=1)
    healed = make_log(4, 3000)[1]
    labels = labels.sort_values("id").reset_index(drop=True)
    healed = healed.sort_values("id").reset_index(drop=True)
    labels.loc[labels["id"] >= 6000, "label"] = healed.loc[healed["id"] >= 6000, "label"]
    tracker = MemoryTracker()
    settings = {"tracker": tracker, "identity": "same", "sequential": {"enabled": False}}
    assert make(log, labels, **settings).check(after(2.5)).alerts
    text = make(log, labels, tolerance=0.035, **settings).check(after(4.5)).message.text
    assert "back within the tolerance of 0.035" in text
    assert "raised" not in text


def test_drift_of_a_branch_that_nobody_wants_to_hear_of_is_not_told():
    log, labels = make_log(4, 3000)
    columns = [f"p_{leaf}" for leaf in ("neptune", "smurf", "satan", "nmap")]
    late = log["id"] >= 6000
    moved = log.loc[late, columns].to_numpy()
    total = moved.sum(axis=1, keepdims=True)
    log.loc[late, columns] = total * np.array([[0.05, 0.05, 0.45, 0.45]])
    labels = labels[labels["id"] < 6000]

    def told(tolerance):
        result = make(log, labels, tolerance=tolerance).check(after(4.1))
        found = [] if result.message is None else result.message.data["drift"]
        return {(item["kind"], item["name"]) for item in found}

    assert ("branch", "attack") in told(0.03)
    assert ("branch", "attack") not in told(quiet())


def test_after_catching_up_the_message_tells_the_window_that_opened_and_the_newest():
    log, labels = make_log(5, 3000, broken_from=1)
    settings = {"drift": {"enabled": False}, "alerts": {"cool_down": "7d"}}
    result = make(log, labels, **settings).check(after(5.5))
    (alert,) = [a for a in result.alerts if a.candidate == ("family", "protocol=udp", "attack")]
    assert (alert.first_ordinal, alert.last_ordinal) == (2, 5)
    (line,) = [x for x in result.message.text.splitlines() if "udp" in x and "utility *family" in x]
    size = f"{abs(alert.opened_moment):.3f}"
    assert f"by {size}" in line
    newest = f"{'+' if alert.moment > 0 else '-'}{abs(alert.moment):.3f}"
    assert "That is the window to 2024-03-02, in which the alert opened" in line
    assert f"in the newest one, to 2024-03-05, it is {newest}, after 4 windows (critical)" in line
    one_window = make(log, labels, **settings).check(after(2.5))
    assert "in the newest one" not in one_window.message.text
