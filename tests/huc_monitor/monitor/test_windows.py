from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.documented import defaults, documented_defaults

import huc_monitor as hm
from huc_monitor.monitor.windows import (
    CountWindows,
    TimeWindows,
    Window,
    due_windows,
    next_revision,
    pending_windows,
    readiness,
)
from huc_monitor.sources import RowCounts, TimeRange

FAR = datetime(2030, 1, 1, tzinfo=UTC)


def at(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Log:
    """Rows at given times."""

    def __init__(self, times):
        self.times = sorted(times)

    def time_range(self):
        return TimeRange(self.times[0], self.times[-1]) if self.times else None

    def advance(self, start, n_rows):
        times = [time for time in self.times if time >= start]
        if len(times) < n_rows:
            return None
        return min((time for time in times if time > times[n_rows - 1]), default=None)


def days(first: str, last: str) -> Log:
    return Log([at(first), at(last)])


def listed(spec, log, **options):
    return due_windows(spec, log, **{"now": FAR, "identity": "x", **options})


def ranges(windows):
    return [(f"{w.start:%d.%m. %H:%M}", f"{w.end:%d.%m. %H:%M}") for w in windows]


def test_days_in_berlin_begin_at_midnight_and_are_23_or_25_hours_long_when_the_clocks_change():
    spec = TimeWindows(length="1d", time_zone="Europe/Berlin")
    spring = listed(spec, days("2024-03-30T12:00", "2024-04-01T12:00"))
    autumn = listed(spec, days("2024-10-26T12:00", "2024-10-28T12:00"))
    assert [(w.end - w.start) / timedelta(hours=1) for w in spring] == [24, 23, 24]
    assert [(w.end - w.start) / timedelta(hours=1) for w in autumn] == [24, 25, 24]
    for window in spring + autumn:
        local = window.start.astimezone(ZoneInfo("Europe/Berlin"))
        assert (local.hour, local.minute) == (0, 0)


def test_a_day_whose_midnight_the_clocks_skip_ends_at_the_next_midnight():
    spec = TimeWindows(length="1d", time_zone="Asia/Tehran")
    windows = listed(spec, days("2010-03-21T12:00", "2010-03-23T12:00"))
    local = [w.start.astimezone(ZoneInfo("Asia/Tehran")) for w in windows]
    assert [time.strftime("%d %H:%M") for time in local] == ["21 00:00", "22 01:00", "23 00:00"]
    assert [(w.end - w.start) / timedelta(hours=1) for w in windows] == [24, 23, 24]


@pytest.mark.parametrize("length", ["1d", "2d", "3d", "1w"])
@pytest.mark.parametrize("first", range(20, 30))
def test_a_day_that_a_country_left_out_is_in_no_window(length, first):
    # On Samoa, 29 December 2011 was followed by the 31st.
    spec = TimeWindows(length=length, time_zone="Pacific/Apia")
    windows = listed(spec, days(f"2011-12-{first}T12:00", "2012-01-10T12:00"))
    assert all(a.end == b.start for a, b in pairwise(windows))
    local = [w.start.astimezone(ZoneInfo("Pacific/Apia")) for w in windows]
    assert {time.strftime("%H:%M") for time in local} == {"00:00"}
    assert "2011-12-30" not in {time.strftime("%Y-%m-%d") for time in local}
    one_day_short = timedelta(**{"weeks" if length[-1] == "w" else "days": int(length[:-1])})
    one_day_short -= timedelta(days=1)
    short = [w for w in windows if w.end - w.start == one_day_short]
    assert len(short) == (length != "1d")


def test_hours_are_absolute_when_the_clocks_change():
    spec = TimeWindows(length="24h", stride="6h", time_zone="Europe/Berlin")
    windows = listed(spec, days("2024-03-30T12:00", "2024-04-01T12:00"))
    assert {w.end - w.start for w in windows} == {timedelta(hours=24)}
    assert {b.start - a.start for a, b in pairwise(windows)} == {timedelta(hours=6)}


def test_weeks_begin_on_monday():
    spec = TimeWindows(length="1w", time_zone="America/New_York")
    windows = listed(spec, days("2024-03-06T12:00", "2024-03-20T12:00"))
    local = [w.start.astimezone(ZoneInfo("America/New_York")) for w in windows]
    assert [(time.strftime("%a %d %H:%M")) for time in local] == [
        "Mon 04 00:00",
        "Mon 11 00:00",
        "Mon 18 00:00",
    ]


def test_rolling_windows_overlap_by_length_minus_stride():
    spec = TimeWindows(length="7d", stride="1d")
    windows = listed(spec, days("2024-01-01", "2024-01-03"))
    assert ranges(windows) == [
        ("01.01. 00:00", "08.01. 00:00"),
        ("02.01. 00:00", "09.01. 00:00"),
        ("03.01. 00:00", "10.01. 00:00"),
    ]


@given(
    st.datetimes(datetime(2010, 1, 1), datetime(2024, 1, 1)),  # noqa: DTZ001
    st.integers(0, 60),
    st.sampled_from(["1d", "2d", "3d", "1w", "6h", "45m"]),
    st.sampled_from(["Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Asia/Tehran"]),
)
@settings(max_examples=150, deadline=None)
def test_tumbling_windows_cover_the_log_without_gap_or_overlap(first, length, span, zone):
    begin = first.replace(tzinfo=UTC)
    log = Log([begin, begin + timedelta(days=length if span[-1] in "dw" else length / 30)])
    windows = listed(TimeWindows(length=span, time_zone=zone), log)
    assert windows[0].start <= log.times[0] < windows[0].end
    assert windows[-1].start <= log.times[-1] < windows[-1].end
    assert all(a.end == b.start for a, b in pairwise(windows))
    assert [w.ordinal for w in windows] == list(range(1, len(windows) + 1))
    assert len({w.id for w in windows}) == len(windows)


def test_the_grid_does_not_depend_on_where_the_log_begins():
    spec = TimeWindows(length="3d")
    early = listed(spec, days("2024-01-01", "2024-02-01"))
    late = listed(spec, days("2024-01-17T05:00", "2024-02-01"))
    assert {w.id for w in late} < {w.id for w in early}


def test_a_window_is_due_once_its_end_and_the_label_lag_have_passed():
    spec = TimeWindows(length="1d", label_lag="2d")
    log = days("2024-01-01", "2024-01-09")
    before = due_windows(spec, log, now=at("2024-01-03T23:59:59"), identity="x")
    after = due_windows(spec, log, now=at("2024-01-04"), identity="x")
    assert ranges(before) == []
    assert ranges(after) == [("01.01. 00:00", "02.01. 00:00")]
    assert after[0].due_at == at("2024-01-04")
    waiting = pending_windows(spec, log, now=at("2024-01-04"), identity="x", last=after[0])
    assert ranges(waiting) == [("02.01. 00:00", "03.01. 00:00"), ("03.01. 00:00", "04.01. 00:00")]
    assert [w.ordinal for w in waiting] == [2, 3]
    due_later = due_windows(spec, log, now=at("2024-01-05"), identity="x", last=after[0])
    assert due_later == waiting[:1]


def test_the_label_lag_follows_the_calendar_too():
    spec = TimeWindows(length="1d", label_lag="1d", time_zone="Europe/Berlin")
    (window,) = listed(spec, days("2024-03-30T12:00", "2024-03-30T13:00"))
    assert window.due_at == at("2024-03-31T22:00")
    assert window.due_at - window.end == timedelta(hours=23)


def test_listing_in_two_goes_is_listing_in_one():
    spec = TimeWindows(length="1d", stride="12h")
    log = days("2024-01-01", "2024-01-09")
    everything = listed(spec, log)
    first = due_windows(spec, log, now=at("2024-01-05"), identity="x")
    rest = listed(spec, log, last=first[-1])
    assert first + rest == everything


def test_empty_days_are_windows_but_nothing_is_listed_after_the_last_row():
    spec = TimeWindows(length="1d")
    windows = listed(spec, days("2024-01-01T05:00", "2024-01-05T05:00"))
    assert len(windows) == 5
    assert windows[-1].start == at("2024-01-05")
    assert listed(spec, Log([])) == []
    assert listed(CountWindows(n_rows=3), Log([])) == []


def test_no_window_starts_before_the_configured_beginning():
    log = days("1970-01-01", "2024-01-05T12:00")
    spec = TimeWindows(length="1d", begin="2024-01-03", time_zone="Europe/Berlin")
    windows = listed(spec, log)
    assert ranges(windows)[0] == ("02.01. 23:00", "03.01. 23:00")
    assert windows[0].ordinal == 1
    inside = TimeWindows(length="1d", begin="2024-01-03T07:00")
    assert ranges(listed(inside, log))[0] == ("04.01. 00:00", "05.01. 00:00")


def test_since_and_until_choose_from_the_list_without_renumbering_it():
    spec, log = TimeWindows(length="1d"), days("2024-01-01", "2024-01-09")
    chosen = listed(spec, log, since=at("2024-01-03"), until=at("2024-01-05"))
    assert [(w.ordinal, w.start.day) for w in chosen] == [(3, 3), (4, 4)]


def test_count_windows_hold_their_number_of_rows_and_never_split_equal_times():
    minutes = [0, 1, 2, 2, 2, 3, 4, 5, 6, 7]
    log = Log([at("2024-01-01") + timedelta(minutes=m) for m in minutes])
    windows = listed(CountWindows(n_rows=3), log)
    counts = [sum(w.start <= time < w.end for time in log.times) for w in windows]
    assert counts == [5, 3]
    assert all(a.end == b.start for a, b in pairwise(windows))
    # The last two rows wait for a third, and for a row after it.
    assert windows[-1].end == log.times[8]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(1, 8), st.integers(1, 8))
@settings(max_examples=200, deadline=None)
def test_rolling_count_windows_match_a_walk_over_the_sorted_rows(minutes, n_rows, stride):
    stride = min(n_rows, stride)
    log = Log([at("2024-01-01") + timedelta(minutes=m) for m in minutes])
    windows = listed(CountWindows(n_rows=n_rows, stride=stride), log)
    expected, start = [], log.times[0]
    while start is not None and (end := log.advance(start, n_rows)) is not None:
        expected.append((start, end))
        start = log.advance(start, stride)
    assert [(w.start, w.end) for w in windows] == expected
    for window in windows:
        assert sum(window.start <= time < window.end for time in log.times) >= n_rows
    if len(windows) > 2:
        assert windows[1:] == listed(
            CountWindows(n_rows=n_rows, stride=stride), log, last=windows[0]
        )


@given(
    st.lists(st.integers(0, 60), min_size=12, max_size=60),
    st.lists(st.integers(0, 60), max_size=20),
    st.sets(st.integers(0, 59)),
    st.integers(2, 8),
    st.integers(1, 8),
)
@settings(max_examples=200, deadline=None)
def test_no_row_after_a_count_window_is_left_out_whatever_comes_late_or_goes(
    minutes, late, gone, n_rows, stride
):
    spec = CountWindows(n_rows=n_rows, stride=min(n_rows, stride))
    zero = at("2024-01-01")
    first = listed(spec, Log([zero + timedelta(minutes=m) for m in minutes]))
    if not first:
        return
    kept = [m for place, m in enumerate(sorted(minutes)) if place not in gone]
    log = Log([zero + timedelta(minutes=m) for m in [*kept, *late]])
    later = listed(spec, log, last=first[-1])
    for before, after in pairwise([first[-1], *later]):
        assert before.start < after.start <= before.end
        assert after.start == before.end or spec.step < n_rows
    for window in later:
        assert sum(window.start <= time < window.end for time in log.times) >= n_rows


def test_a_window_is_told_to_be_cut_elsewhere_when_rows_came_late_or_went():
    times = [at("2024-01-01") + timedelta(hours=h) for h in range(10)]
    spec = CountWindows(n_rows=3)
    window = listed(spec, Log(times))[0]
    assert not spec.has_moved(Log(times), window)
    assert not spec.has_moved(Log([*times, times[5]]), window)
    assert spec.has_moved(Log([*times, times[1]]), window)
    assert spec.has_moved(Log(times[1:]), window)


def test_a_count_window_is_due_after_its_lag_as_well():
    log = Log([at("2024-01-01") + timedelta(hours=h) for h in range(10)])
    spec = CountWindows(n_rows=5, label_lag="1d")
    assert due_windows(spec, log, now=at("2024-01-02T04:59"), identity="x") == []
    assert len(due_windows(spec, log, now=at("2024-01-02T05:00"), identity="x")) == 1


def test_the_id_depends_on_the_identity_and_the_range_and_on_nothing_else():
    spec, log = TimeWindows(length="1d"), days("2024-01-01", "2024-01-02")
    first, second = listed(spec, log)
    assert first.id != second.id
    assert listed(spec, log, identity="y")[0].id != first.id
    other = TimeWindows(length="1d", label_lag="3d", min_labelled=9)
    assert listed(other, log)[0].id == first.id
    assert first.id == listed(spec, days("2024-01-01T23:00", "2024-01-09"))[0].id


def test_a_window_survives_json():
    window = listed(TimeWindows(length="1d", label_lag="2h"), days("2024-01-01", "2024-01-02"))[0]
    assert Window.from_dict(json.loads(json.dumps(window.to_dict()))) == window
    with pytest.raises(hm.InvalidInputError, match="`Window` must have schema_version 1; got 7"):
        Window.from_dict({**window.to_dict(), "schema_version": 7})


def test_readiness_says_why_a_window_is_not_audited():
    spec = TimeWindows(length="1d", min_labelled=50, min_coverage=0.5)
    assert readiness(spec, RowCounts(0, 0)) == "empty"
    assert readiness(spec, RowCounts(1000, 49)) == "few labels"
    assert readiness(spec, RowCounts(1000, 499)) == "low coverage"
    assert readiness(spec, RowCounts(1000, 500)) == "ready"
    assert readiness(TimeWindows(length="1d", min_labelled=0), RowCounts(10, 0)) == "few labels"


def test_late_labels_make_a_revision_and_nothing_else_does():
    audited = RowCounts(100, 60, at("2024-01-05"))
    assert next_revision(0, audited, RowCounts(100, 60, at("2024-01-05"))) is None
    assert next_revision(0, audited, RowCounts(100, 61, at("2024-01-06"))) == 1
    assert next_revision(4, audited, RowCounts(101, 60, at("2024-01-05"))) == 5
    # A correction changes no count, but it is later.
    assert next_revision(0, audited, RowCounts(100, 60, at("2024-01-06"))) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": "1x"}, "`length` must be a whole number and one of the units"),
        ({"length": "0d"}, "`length` must be longer than nothing"),
        ({"length": "1d", "stride": "0h"}, "`stride` must be longer than nothing"),
        ({"length": "1d", "stride": "25h"}, "`stride` must not exceed the length '1d'"),
        ({"length": "1d", "label_lag": "soon"}, "`label_lag` must be a whole number"),
        ({"length": "1d", "time_zone": "Mars"}, "`time_zone` must be an IANA time zone"),
        ({"length": "1d", "min_labelled": -1}, "`min_labelled` must be at least 0; got -1"),
        ({"length": "1d", "min_coverage": 1.5}, "`min_coverage` must be at most 1; got 1.5"),
        ({"length": "1d", "begin": "noon"}, "`begin` must be a date or time; got 'noon'"),
    ],
)
def test_wrong_time_windows_are_refused(options, message):
    with pytest.raises(hm.InvalidInputError, match=message):
        TimeWindows(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_rows": 0}, "`n_rows` must be at least 1; got 0"),
        ({"n_rows": True}, "`n_rows` must be a whole number; got True"),
        ({"n_rows": 5, "stride": 6}, "`stride` must not exceed `n_rows`, 5"),
        ({"n_rows": 5, "stride": 0}, "`stride` must be at least 1; got 0"),
    ],
)
def test_wrong_count_windows_are_refused(options, message):
    with pytest.raises(hm.InvalidInputError, match=message):
        CountWindows(**options)


def test_now_needs_a_time_zone():
    naive = datetime(2024, 1, 1)  # noqa: DTZ001
    with pytest.raises(hm.InvalidInputError, match="`now` must be a datetime with a time zone"):
        due_windows(TimeWindows(length="1d"), Log([]), now=naive, identity="x")


def test_defaults_are_those_of_the_docstring():
    assert defaults(TimeWindows) == documented_defaults(TimeWindows) != {}


@pytest.mark.parametrize(("n_labelled", "expected"), [(49, "few labels"), (50, "ready")])
def test_as_many_labels_as_asked_for_are_enough(n_labelled, expected):
    spec = TimeWindows(length="1d", min_labelled=50)
    assert readiness(spec, RowCounts(1000, n_labelled)) == expected


def test_one_label_is_enough_where_nothing_is_asked_for():
    for spec in (TimeWindows(length="1d"), TimeWindows(length="1d", min_labelled=0)):
        assert readiness(spec, RowCounts(10, 1)) == "ready"


def test_names_of_windows_are_those_that_records_on_disk_have():
    (window,) = listed(
        TimeWindows(length="1d"), days("2024-01-01", "2024-01-01"), identity="triage"
    )
    assert window.id == "f90fd8a0a0d92d66"


def test_no_count_window_starts_before_the_configured_beginning():
    log = Log([at("2024-01-01") + timedelta(hours=h) for h in range(10)])
    spec = CountWindows(n_rows=3, begin="2024-01-01T04:00")
    assert ranges(listed(spec, log)) == [("01.01. 04:00", "01.01. 07:00")]
    early = CountWindows(n_rows=6, begin="2023-01-01")
    assert ranges(listed(early, log)) == [("01.01. 00:00", "01.01. 06:00")]
    assert listed(spec, Log([])) == []


def test_a_length_in_hours_is_absolute_though_windows_start_with_the_day():
    spec = TimeWindows(length="24h", stride="1d", time_zone="Europe/Berlin")
    windows = listed(spec, days("2024-03-30T12:00", "2024-04-01T12:00"))
    assert {w.end - w.start for w in windows} == {timedelta(hours=24)}
    assert [(b.start - a.start) / timedelta(hours=1) for a, b in pairwise(windows)] == [24, 23]


def test_windows_of_hours_start_at_multiples_of_their_stride():
    spec = TimeWindows(length="6h")
    assert spec.start_at(at("2024-01-01T13:30")) == at("2024-01-01T12:00")
    assert spec.start_at(at("2024-01-01T12:00")) == at("2024-01-01T12:00")
    assert spec.next_start(at("2024-01-01T12:00")) == at("2024-01-01T18:00")


def test_a_day_that_starts_off_the_grid_ends_at_the_same_time_of_the_next_day():
    spec = TimeWindows(length="1d", time_zone="Europe/Berlin")
    assert spec.end_of(at("2024-03-30T11:00")) == at("2024-03-31T10:00")
