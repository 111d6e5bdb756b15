"""CSV files have no types: times and values whose meaning would be a guess."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.sources import (
    Columns,
    DuckTable,
    LabelTable,
    TableSource,
    TooManyBadRowsError,
)

TREE = hm.LabelTree.flat(["a", "b"])
START = datetime(2026, 1, 1, tzinfo=UTC)
END = START + timedelta(days=99)
DAY_OR_MONTH = r"is the day first, or the month\?"
SNIFFED = 20_480


def rows(n: int, *, step: timedelta = timedelta(hours=1)) -> pd.DataFrame:
    times = pd.date_range(START.replace(tzinfo=None), periods=n, freq=step)
    numbers = np.arange(n)
    return pd.DataFrame({"at": times, "id": numbers, "y": "a", "p_a": 0.5, "p_b": 0.5})


def source_of(path, *, union_by_name=False, **more) -> TableSource:
    columns = Columns(
        time="at", probabilities="p_{leaf}", label=None if more else "y", id="id", features=("f",)
    )
    if more:
        columns = columns.model_copy(update={"features": ()})
    log = DuckTable.files(path, union_by_name=union_by_name)
    return TableSource(log, tree=TREE, columns=columns, **more)


@pytest.mark.parametrize("n_days", [8, 20])
@pytest.mark.parametrize(
    "form", ["%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%m/%d/%y", "%d.%m.%Y", "%d-%m-%y %H:%M"]
)
def test_dates_that_are_not_written_year_first_are_refused(form, n_days, tmp_path):
    frame = rows(24 * n_days).assign(f=1)
    frame["at"] = frame["at"].dt.strftime(form)
    frame.to_csv(tmp_path / "log.csv", index=False)
    source = source_of(tmp_path / "log.csv")
    with pytest.raises(hm.InvalidInputError, match=rf"none of the .* 'at', .*{DAY_OR_MONTH}"):
        source.time_range()
    assert source.labelled(START - timedelta(days=9_999), END).n == 0


def test_a_text_in_place_of_a_time_is_shown_from_its_beginning(tmp_path):
    frame = rows(3).assign(f=1, at="01/02/2026 " + "x" * 100_000)
    frame.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(hm.InvalidInputError, match="such as '01/02/2026 xx") as caught:
        source_of(tmp_path / "log.csv").time_range()
    assert len(str(caught.value)) < 1_000


def test_dates_are_refused_also_where_the_13th_comes_after_what_duckdb_samples(tmp_path):
    frame = rows(SNIFFED + 6_000, step=timedelta(seconds=45)).assign(f=1)
    frame["at"] = frame["at"].dt.strftime("%m/%d/%Y %H:%M:%S")
    frame.to_csv(tmp_path / "log.csv", index=False)
    assert frame["at"].iloc[SNIFFED] < "01/13/2026" < frame["at"].iloc[-1]
    with pytest.raises(hm.InvalidInputError, match=rf"none of the 26,480 rows .*{DAY_OR_MONTH}"):
        source_of(tmp_path / "log.csv").time_range()


@pytest.mark.parametrize(
    "form",
    [
        "%Y-%m-%d %H:%M:%S",
        "%Y-%m-%dT%H:%M:%S",
        "%Y-%m-%dT%H:%M:%SZ",
        "%Y-%m-%d %H:%M:%S.%f",
        "%Y-%m-%d %H:%M:%S.%f+00:00",
        "%Y/%m/%d %H:%M",
    ],
)
def test_times_that_are_written_year_first_are_read_to_the_minute(form, tmp_path):
    frame = rows(240).assign(f=1)
    frame["at"] = frame["at"].dt.strftime(form)
    frame.to_csv(tmp_path / "log.csv", index=False)
    source = source_of(tmp_path / "log.csv")
    extent = source.time_range()
    assert (extent.first, extent.last) == (START, START + timedelta(hours=239))
    assert source.labelled(START + timedelta(days=1), START + timedelta(days=2)).n == 24
    assert source.advance(START, 24) == START + timedelta(days=1)


def test_dates_alone_are_midnights(tmp_path):
    frame = rows(24 * 9).assign(f=1)
    frame["at"] = frame["at"].dt.strftime("%Y-%m-%d")
    frame.to_csv(tmp_path / "log.csv", index=False)
    source = source_of(tmp_path / "log.csv")
    assert source.time_range().last == START + timedelta(days=8)
    assert source.labelled(START + timedelta(days=7), END).n == 48


@pytest.mark.parametrize("odd", ["01/02/2026 00:00:00", "01/02/26", "soon"])
def test_a_time_after_the_sample_that_cannot_be_read_is_counted_and_hides_no_row(odd, tmp_path):
    frame = rows(SNIFFED + 1_000, step=timedelta(minutes=1)).assign(f=1)
    frame["at"] = frame["at"].astype(str)
    frame.loc[SNIFFED + 500, "at"] = odd
    frame.to_csv(tmp_path / "log.csv", index=False)
    source = source_of(tmp_path / "log.csv")
    extent = source.time_range()
    assert (extent.first, extent.n_untimed) == (START, 1)
    assert source.labelled(START, END).n == SNIFFED + 999


@pytest.mark.parametrize("union_by_name", [False, True])
def test_a_file_in_another_order_is_not_read_in_a_guessed_one(union_by_name, tmp_path):
    for name, form in (("a", "%Y-%m-%d %H:%M:%S"), ("b", "%m/%d/%Y %H:%M:%S")):
        frame = rows(48).assign(f=1)
        frame["at"] = (frame["at"] + timedelta(days=2 * (name == "b"))).dt.strftime(form)
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    source = source_of(tmp_path / "*.csv", union_by_name=union_by_name)
    extent = source.time_range()
    assert (extent.last, extent.n_untimed) == (START + timedelta(hours=47), 48)


def test_local_times_are_read_as_the_clocks_showed_them(tmp_path):
    frame = rows(1).assign(f=1).loc[[0] * 3]
    frame["at"] = ["2024-10-27 01:30:00", "2024-10-27 02:30:00", "2024-10-27 03:30:00"]
    frame["id"] = [0, 1, 2]
    frame.to_csv(tmp_path / "log.csv", index=False)
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", time_zone="Europe/Berlin")
    source = TableSource(DuckTable.files(tmp_path / "log.csv"), tree=TREE, columns=columns)
    extent = source.time_range()
    times = source.labelled(extent.first, END).times.astype("datetime64[m]").astype(str)
    assert times.tolist() == ["2024-10-26T23:30", "2024-10-27T00:30", "2024-10-27T02:30"]
    assert extent.last == datetime(2024, 10, 27, 2, 30, tzinfo=UTC)


@pytest.mark.parametrize("ends", [" UTC", " GMT", "Z", "+00:00", "+00"])
@pytest.mark.parametrize("mixed", [None, 0, 1])
def test_a_time_that_names_its_zone_is_no_local_time(ends, mixed, tmp_path):
    texts = [f"2024-03-0{day} 06:00:00{ends}" for day in (1, 2)]
    expected = ["2024-03-01T06:00", "2024-03-02T06:00"]
    if mixed is not None:
        texts[mixed] = texts[mixed].removesuffix(ends)
        expected[mixed] = expected[mixed].replace("06:", "11:")
    rows(2).assign(at=texts).to_csv(tmp_path / "log.csv", index=False)
    columns = Columns(time="at", probabilities="p_{leaf}", label="y", time_zone="America/New_York")
    source = TableSource(DuckTable.files(tmp_path / "log.csv"), tree=TREE, columns=columns)
    times = source.labelled(datetime(2024, 1, 1, tzinfo=UTC), START).times
    assert times.astype("datetime64[m]").astype(str).tolist() == expected
    extent = source.time_range()
    assert [f"{time:%Y-%m-%dT%H:%M}" for time in (extent.first, extent.last)] == expected


def test_dates_that_describe_rows_are_no_times_unless_they_are_written_year_first(tmp_path):
    frame = rows(48).assign(f="01/02/2026", g="2026-02-01")
    frame.to_csv(tmp_path / "log.csv", index=False)
    table = DuckTable.files(tmp_path / "log.csv")
    assert table.columns()["f"] == "VARCHAR" != table.columns()["g"]
    assert set(table.head(9)["f"]) == {"01/02/2026"}
    assert set(source_of(tmp_path / "log.csv").labelled(START, END).features["f"]) == {"01/02/2026"}


def test_a_value_of_another_kind_after_the_sample_is_named_with_its_column(tmp_path):
    frame = rows(SNIFFED + 1_000, step=timedelta(minutes=1)).assign(f="7")
    frame.loc[SNIFFED + 500, "f"] = "A7"
    frame.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(
        hm.InvalidInputError, match=r"line 20982 holds 'A7' in the column \"f\", .* type BIGINT"
    ):
        source_of(tmp_path / "log.csv").labelled(START, END)


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "sqlite"])
@pytest.mark.parametrize("form", ["%m/%d/%Y %H:%M:%S", "%m/%d/%y %H:%M"])
def test_times_of_labels_that_cannot_be_read_are_not_taken_for_none(
    kind, form, make_table, tmp_path
):
    log = rows(48)
    labels = log[["id", "y"]].assign(known=log["at"].dt.strftime(form))
    log.drop(columns="y").to_parquet(tmp_path / "log.parquet")
    table = make_table(kind, labels, "known")
    given = LabelTable(table=table, id="id", label="y", time="known")
    source = source_of(tmp_path / "log.parquet", labels=given)
    for as_of in (None, START):
        with pytest.raises(hm.InvalidInputError, match=rf"(ISO.*'known'|'known'.*{DAY_OR_MONTH})"):
            source.labelled(START, END, as_of=as_of)


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
@pytest.mark.parametrize("none", [None, "n/a"])
def test_labels_without_a_time_are_known_from_the_beginning(kind, none, make_table, tmp_path):
    log = rows(48)
    labels = log[["id", "y"]].assign(known=log["at"].dt.strftime("%Y-%m-%dT%H:%M:%SZ"))
    labels.loc[5, "known"] = none
    log.drop(columns="y").to_parquet(tmp_path / "log.parquet")
    table = make_table(kind, labels, "known")
    given = LabelTable(table=table, id="id", label="y", time="known")
    source = source_of(tmp_path / "log.parquet", labels=given)
    assert source.labelled(START, END, as_of=START).ids.tolist() == [0, 5]


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "sqlite"])
@pytest.mark.parametrize("as_of", [None, START + timedelta(days=80)])
def test_a_label_whose_time_cannot_be_read_is_set_aside(kind, as_of, make_table, tmp_path):
    log = rows(48)
    labels = log[["id", "y"]].assign(known=log["at"].dt.strftime("%Y-%m-%dT%H:%M:%SZ"))
    labels.loc[5, "known"] = "2026-02-30T10:00:00Z"
    earlier = pd.DataFrame({"id": [5], "y": "b", "known": "2026-01-01T05:00:00Z"})
    log.drop(columns="y").to_parquet(tmp_path / "log.parquet")
    table = make_table(kind, pd.concat([labels, earlier]), "known")
    given = LabelTable(table=table, id="id", label="y", time="known")
    source = source_of(tmp_path / "log.parquet", labels=given)
    window = source.labelled(START, END, as_of=as_of)
    assert (window.n, 5 in window.ids) == (47, False)
    assert dict(window.bad_reasons) == {"label time that cannot be read": 1}
    assert (window.n_labelled, window.n_changed_labels) == (48, 0)
    assert window.counts == source.counts(START, END, as_of=as_of)
    strict = source_of(tmp_path / "log.parquet", labels=given, max_bad_share=0.02)
    with pytest.raises(TooManyBadRowsError, match=r"First: id 5, .*'2026-02-30T10:00:00Z'"):
        strict.labelled(START, END, as_of=as_of)
