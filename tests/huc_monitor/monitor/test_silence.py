from __future__ import annotations

import pandas as pd
import pytest
from support.production_log import after, make_log
from support.watched import Ear, make, revisited

from huc_monitor.monitor.muting import Maintenance
from huc_monitor.monitor.windows import CountWindows, TimeWindows

ROWS, LABELS = "The log has no rows since", "No labels have come for the newest"


@pytest.fixture(scope="module")
def fine():
    return make_log(12, 400)


def without_days(log, *days):
    """Leave out the rows of some days, counted from 0."""
    day = (log["at"] - pd.Timestamp(after(0))) // pd.Timedelta("1D")
    return log[~day.isin(days)]


def heard(monitor, days):
    """Check on several days; return the first words of warning of each."""
    said = []
    for day in days:
        message = monitor.check(after(day)).message
        warnings = [] if message is None else message.data.get("warnings", [])
        said.append(" ".join(text.split(":")[0].split(". ")[0] for text in warnings))
    return said


def test_a_log_that_ended_is_told_once_and_is_a_warning_until_rows_come(fine):
    log, labels = fine
    ear = Ear()
    monitor = make(without_days(log, *range(3, 12)), labels, notifiers={"ear": ear})
    assert heard(monitor, [3.6, 4.6, 5.6, 6.6, 7.6, 400.6])[:3] == ["", "", ""]
    (message,) = [message for message in ear.heard if message.data.get("warnings")]
    assert message.level == "warning"
    assert f"{ROWS} 2024-03-03 23:5" in message.text
    assert "the 3 windows that are due since then are empty" in message.text
    assert "1 warning (data to" in message.title
    assert (monitor.status, dict(monitor.check(after(401)).silences).keys()) == (
        "warning",
        {"rows"},
    )
    again = make(without_days(log, 3, 4, 5, 6), labels, tracker=monitor.tracker)
    result = again.check(after(8.6))
    assert "The log has rows again." in result.message.text
    assert result.silences == {}


def test_a_log_that_had_ended_before_the_first_check_is_told_when_it_ends_again(fine):
    log, labels = fine
    monitor = make(without_days(log, *range(3, 12)), labels)
    assert heard(monitor, [30.6, 31.6]) == ["", ""]
    assert monitor.check(after(31.7)).silences == {}
    again = make(without_days(log, *range(3, 10)), labels, tracker=monitor.tracker)
    assert heard(again, [31.8])[0].startswith(ROWS)


def test_a_log_that_stops_again_is_told_again(fine):
    log, labels = fine
    monitor = make(without_days(log, *range(3, 12)), labels)
    assert heard(monitor, [3.6, 6.6])[1].startswith(ROWS)
    longer = make(without_days(log, 3, 4, 5, *range(7, 12)), labels, tracker=monitor.tracker)
    assert heard(longer, [7.6, 10.6, 11.6, 12.6]) == ["", "", f"{ROWS} 2024-03-07 23", ""]


def test_a_gap_as_long_as_an_earlier_one_is_not_told(fine):
    log, labels = fine
    monitor = make(without_days(log, 2, 3, 4, *range(7, 12)), labels)
    assert heard(monitor, [7.6, 10.6]) == ["", ""]
    assert heard(monitor, [11.6])[0].startswith(ROWS)


def test_windows_in_maintenance_are_not_missed(fine):
    log, labels = fine
    closed = Maintenance(start=f"{after(3):%Y-%m-%d}", end=f"{after(6):%Y-%m-%d}")
    monitor = make(without_days(log, *range(3, 12)), labels, maintenance=(closed,))
    assert heard(monitor, [6.6, 8.6]) == ["", ""]
    assert heard(monitor, [9.6])[0].startswith(ROWS)


def test_windows_of_rows_count_silent_days(fine):
    log, labels = fine
    monitor = make(without_days(log, *range(5, 12)), labels, windows=CountWindows(n_rows=300))
    assert heard(monitor, [5, 7.9]) == ["", ""]
    result = monitor.check(after(8.1))
    assert "the 3 days that are due since then are empty" in result.message.text


def test_labels_that_stop_are_told_once_and_their_return_as_well(fine):
    log, labels = fine
    early = labels[labels["id"] < 4 * 400]
    monitor = make(log, early)
    said = heard(monitor, [4.6, 5.6, 6.6, 7.6, 8.6])
    assert said == [
        "",
        "",
        "",
        f"{LABELS} 3 windows that are due and have rows, since that of 2024-03-05",
        "",
    ]
    assert monitor.status == "warning"
    later = make(log, labels[~labels["id"].between(4 * 400, 9 * 400 - 1)], tracker=monitor.tracker)
    result = later.check(after(10.6))
    assert "Labels come again." in result.message.text
    assert result.silences == {}


def test_labels_that_come_late_for_earlier_windows_end_the_silence(fine):
    log, labels = fine
    monitor = make(log, labels[labels["id"] < 400], windows=revisited("30d"))
    assert heard(monitor, [4.6])[0].startswith(LABELS)
    monitor = make(log, labels, windows=revisited("30d"), tracker=monitor.tracker)
    assert "Labels come again." in monitor.check(after(5.6)).message.text


def test_days_without_rows_say_nothing_of_labels(fine):
    log, labels = fine
    monitor = make(without_days(log, 1, 2), labels[~labels["id"].between(1200, 1999)])
    assert heard(monitor, [5.6]) == [""]


@pytest.mark.seconds
def test_nights_that_every_day_has_are_not_told_and_a_longer_one_is(fine):
    log, labels = fine
    by_day = log[log["at"].dt.hour.between(8, 19)]
    hours = TimeWindows(length="2h", label_lag="1h")
    before = make(by_day, labels, windows=hours)
    before.check(after(2.5))
    ended = without_days(by_day, *range(3, 12))
    monitor = make(ended, labels, windows=hours, tracker=before.tracker)
    assert heard(monitor, [3.3, 3.6]) == ["", f"{ROWS} 2024-03-03 19"]
