from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor._common.times import (
    Span,
    epoch_bound,
    from_wall,
    get_zone,
    say_span,
    say_time,
    to_utc,
    utc_column,
    wall_bound,
)

# Half-hour changes, a negative "summer" time, midnight changes, and a day that never was.
ZONES = ("UTC", "Europe/Berlin", "Europe/Dublin", "Australia/Lord_Howe", "America/Sao_Paulo",
         "Pacific/Apia")  # fmt: skip
WALLS = st.datetimes(datetime(2009, 1, 1), datetime(2025, 1, 1))  # noqa: DTZ001
APIA_SKIPS = datetime(2011, 12, 30, 12)  # noqa: DTZ001


@given(WALLS, st.sampled_from(ZONES))
@settings(max_examples=200, deadline=None)
def test_a_wall_time_that_comes_once_means_that_moment(wall, zone):
    moment = from_wall(wall, ZoneInfo(zone))
    if moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0) == wall:
        assert moment == wall.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    else:  # skipped: the moment of the jump, when the clocks already show more
        before = (moment - timedelta(microseconds=1)).astimezone(ZoneInfo(zone))
        after = moment.astimezone(ZoneInfo(zone))
        assert before.replace(tzinfo=None) < wall < after.replace(tzinfo=None)


@given(WALLS, st.timedeltas(timedelta(0), timedelta(days=2)), st.sampled_from(ZONES))
@settings(max_examples=200, deadline=None)
def test_later_wall_times_never_come_earlier(wall, later, zone):
    assert from_wall(wall, ZoneInfo(zone)) <= from_wall(wall + later, ZoneInfo(zone))


@given(WALLS, WALLS, st.sampled_from(ZONES))
@settings(max_examples=100, deadline=None)
def test_a_filter_on_wall_times_selects_exactly_the_moments_not_before_the_bound(a, b, zone):
    moment = a.replace(tzinfo=UTC)
    bound = wall_bound(moment, ZoneInfo(zone))
    near = [bound, bound - timedelta(microseconds=1), b, a, a + timedelta(hours=1)]
    for wall in near:
        assert (wall >= bound) == (from_wall(wall, ZoneInfo(zone)) >= moment)


@given(st.lists(WALLS, min_size=1, max_size=20), st.sampled_from(ZONES))
@settings(max_examples=100, deadline=None)
def test_a_column_of_wall_times_is_read_like_its_entries(walls, zone):
    walls = [*walls, APIA_SKIPS]
    expected = [from_wall(wall, ZoneInfo(zone)).replace(tzinfo=None) for wall in walls]
    for values in (pd.Series(walls), pd.Series(walls, dtype=object), pd.Series(map(str, walls))):
        assert utc_column(values, ZoneInfo(zone)).tolist() == expected


def test_a_day_that_the_calendar_skips_is_one_moment():
    assert from_wall(APIA_SKIPS, ZoneInfo("Pacific/Apia")) == datetime(2011, 12, 30, 10, tzinfo=UTC)


def test_what_is_no_time_is_not_a_time():
    values = pd.Series(["2024-01-01T06:00+02:00", "soon", None, date(2024, 1, 1), pd.NaT])
    found = utc_column(values, ZoneInfo("Europe/Berlin"))
    assert [str(time) for time in found] == [
        "2024-01-01T04:00:00.000000",
        "NaT",
        "NaT",
        "2023-12-31T23:00:00.000000",
        "NaT",
    ]
    zoned = pd.Series(pd.to_datetime(["2024-01-01T06:00+02:00", None]))
    assert str(utc_column(zoned, ZoneInfo("UTC"))[0]) == "2024-01-01T04:00:00.000000"


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)])
def test_numbers_are_counts_since_1970(unit, per_second):
    moment = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    count = int(moment.timestamp() * per_second)
    assert epoch_bound(moment, unit) == count
    assert epoch_bound(moment + timedelta(microseconds=1), unit) > count - 1
    read = utc_column(pd.Series([count, None], dtype=object), ZoneInfo("UTC"), unit)
    assert read[0].item() == moment.replace(tzinfo=None)
    assert np.isnat(read[1])


def test_a_bound_between_two_counts_is_rounded_up():
    assert epoch_bound(datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC), "s") == 2
    assert epoch_bound(datetime(1969, 12, 31, 23, 59, 58, 1, tzinfo=UTC), "s") == -1


@pytest.mark.parametrize("text", ["1", "d", "1.5h", "-1d", "1y", "", None, 3, "1d 2h", "9999999d"])
def test_a_span_is_a_number_and_a_unit(text):
    with pytest.raises(hm.InvalidInputError, match=r"`lag` must be a whole number and one of the"):
        Span.parse(text, argument="lag")


def test_days_follow_the_calendar_and_hours_the_clock():
    berlin = get_zone("Europe/Berlin")
    evening = datetime(2024, 10, 26, 20, tzinfo=UTC)  # 22:00 in Berlin
    assert Span.parse("1d").after(evening, berlin) - evening == timedelta(hours=25)
    assert Span.parse("24h").after(evening, berlin) - evening == timedelta(hours=24)
    assert Span.parse("1w").after(evening, berlin) - evening == timedelta(days=7, hours=1)
    assert str(Span.parse(" 2 w ")) == "2w"


@pytest.mark.parametrize("name", ["Mars/Base", "", None, 3, "../etc/passwd", "/etc/passwd"])
def test_what_is_no_zone_is_refused(name):
    with pytest.raises(hm.InvalidInputError, match="`time_zone` must be an IANA time zone"):
        get_zone(name)


def test_a_time_needs_a_zone_unless_one_is_implied():
    naive = datetime(2024, 1, 1)  # noqa: DTZ001
    with pytest.raises(hm.InvalidInputError, match="`now` must be a datetime with a time zone"):
        to_utc(naive, argument="now")
    # What is advised is accepted, by the same call.
    remedy = "Write it as 2024-03-31T06:00:00[+]02:00[.]$"
    with pytest.raises(hm.InvalidInputError, match=f"zone; got '2024-01-02'[.] {remedy}"):
        to_utc("2024-01-02", argument="now")
    with pytest.raises(
        hm.InvalidInputError, match=f"`now` must be a date or time; got 'noon'[.] {remedy}"
    ):
        to_utc("noon", argument="now")
    with pytest.raises(hm.InvalidInputError, match="Write it as 2024-03-31 or 2024-03-31T06:00:00"):
        to_utc("noon", argument="now", zone=get_zone("UTC"))
    assert to_utc("2024-03-31T06:00:00+02:00", argument="now").hour == 4
    berlin = get_zone("Europe/Berlin")
    assert (
        to_utc("2024-01-01", argument="x", zone=berlin).isoformat() == "2023-12-31T23:00:00+00:00"
    )
    assert to_utc(pd.Timestamp(naive, tz="UTC"), argument="x") == naive.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "utc", "berlin"),
    [
        ("2024-03-01T00:00", "2024-03-01", "2024-03-01 01:00 CET"),
        ("2024-03-30T23:00", "2024-03-30 23:00 UTC", "2024-03-31"),
        ("2024-03-31T00:30", "2024-03-31 00:30 UTC", "2024-03-31 01:30 CET"),
        ("2024-03-31T01:00", "2024-03-31 01:00 UTC", "2024-03-31 03:00 CEST"),
        ("2024-03-31T22:00", "2024-03-31 22:00 UTC", "2024-04-01"),
        ("2024-10-27T00:30", "2024-10-27 00:30 UTC", "2024-10-27 02:30 CEST"),
        ("2024-10-27T01:30", "2024-10-27 01:30 UTC", "2024-10-27 02:30 CET"),
    ],
)
def test_a_time_is_told_as_clocks_show_it_and_midnight_as_a_date(moment, utc, berlin):
    time = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    assert (say_time(time), say_time(time, "Europe/Berlin")) == (utc, berlin)
    assert say_time(time, exact=True) == f"{time:%Y-%m-%d %H:%M} UTC"


def test_a_span_is_told_in_dates_only_where_both_ends_are_midnights():
    change = [datetime(2024, 3, 30, 23, tzinfo=UTC), datetime(2024, 3, 31, 22, tzinfo=UTC)]
    assert say_span(*change, "Europe/Berlin") == "2024-03-31 to 2024-04-01"
    assert say_span(*change) == "2024-03-30 23:00 to 2024-03-31 22:00 UTC"
    noon = change[0] + timedelta(hours=12)
    assert say_span(change[0], noon, "Europe/Berlin") == (
        "2024-03-31 00:00 CET to 2024-03-31 13:00 CEST"
    )
    days = [datetime(2024, 3, day, tzinfo=UTC) for day in (1, 3)]
    assert say_span(*days) == "2024-03-01 to 2024-03-03"
    assert say_span(*days, exact=True) == "2024-03-01 00:00 to 2024-03-03 00:00 UTC"
