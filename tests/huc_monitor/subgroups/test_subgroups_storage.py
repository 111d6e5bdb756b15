from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.patients import members, patients

from huc_monitor.subgroups import Subgroups


@pytest.mark.parametrize(
    "stored",
    [
        np.array([1, 2, 3], dtype=np.int8),
        np.array([1, 2, 3], dtype=np.uint64),
        np.array([1, 2, 3], dtype=np.float16),
        [1, 2, 3],
        pd.Series([1, 2, 3], dtype="Int64"),
        pd.Series([1, 2, 3], dtype=pd.ArrowDtype(pa.int32())),
        pd.Series([Decimal(1), Decimal(2), Decimal(3)], dtype=pd.ArrowDtype(pa.decimal128(5, 1))),
        pd.Series([Decimal(1), Decimal(2), Decimal(3)]),
        pd.Series([1, 2.0, np.float32(3)], dtype=object),
        pd.Series([1, 2, 3], dtype="category"),
        pd.Series([1, 2, 3], index=[7, 7, 7]),
    ],
)
def test_numbers_are_numbers_however_they_are_stored(stored):
    groups = Subgroups.from_reference({"x": [1.0, 2.0, 3.0]}, {"x": [2, 70_000]})
    assert members(groups, {"x": stored}, 3) == {
        "all": [1, 1, 1],
        "x<2": [1, 0, 0],
        "2<=x<70000": [0, 1, 1],
        "x>=70000": [0, 0, 0],
    }
    assert Subgroups.from_reference({"x": stored}, {"x": [2, 70_000]}) == groups
    assert Subgroups.from_reference({"x": stored}, {"x": "median"}).names[1] == "x<=2"


@pytest.mark.parametrize(
    "dtype", ["str", object, "category", "string", pd.ArrowDtype(pa.string()),
              pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))]
)  # fmt: skip
def test_text_is_text_however_it_is_stored(dtype):
    groups = Subgroups.from_reference({"x": ["a", "b"]}, {"x": "each"})
    frame = pd.DataFrame({"x": pd.Series(["b", None, "a", "c"], dtype=dtype)})
    assert members(groups, frame) == {"all": [1] * 4, "x=a": [0, 0, 1, 0], "x=b": [1, 0, 0, 0]}
    assert Subgroups.from_reference(frame.iloc[:3], {"x": "each"}) == groups


@pytest.mark.parametrize("dtype", [object, "boolean", "category", pd.ArrowDtype(pa.bool_())])
def test_booleans_are_booleans_however_they_are_stored(dtype):
    groups = Subgroups.from_reference({"x": [True, False]}, {"x": "each"})
    frame = pd.DataFrame({"x": pd.Series([True, None, False], dtype=dtype)})
    assert members(groups, frame) == {"all": [1] * 3, "x=false": [0, 0, 1], "x=true": [1, 0, 0]}


@pytest.mark.parametrize(
    "stored",
    [
        pd.Series([dt.date(2024, 1, 1), None, dt.date(2024, 3, 1)]),
        pd.Series(pd.to_datetime(["2024-01-01", None, "2024-03-01"]), dtype=object),
        pd.Series(
            [dt.date(2024, 1, 1), None, dt.date(2024, 3, 1)], dtype=pd.ArrowDtype(pa.date32())
        ),
        pd.Series(pd.to_datetime(["2024-01-01", None, "2024-03-01"])).astype("category"),
        np.array(["2024-01-01", "NaT", "2024-03-01"], dtype="datetime64[s]"),
        np.array(["2024-01-01", "NaT", "2024-03-01"], dtype="datetime64[ns]"),
    ],
)
def test_times_are_times_however_they_are_stored(stored):
    groups = Subgroups.from_reference(patients(), {"admitted": ["2024-03-01"]})
    assert list(members(groups, {"admitted": stored}, 3).values())[1:] == [[1, 0, 0], [0, 0, 1]]
    again = Subgroups.from_reference({"admitted": stored}, {"admitted": [dt.date(2024, 3, 1)]})
    assert again == groups


def test_zoned_times_compare_as_instants():
    frame = {"t": pd.to_datetime(["2024-01-01T00:30+01:00", "2024-01-01T00:30Z"], utc=True)}
    groups = Subgroups.from_reference(frame, {"t": ["2024-01-01T00:00+00:00"]})
    assert [w.tolist() for w in groups.weights(frame, 2)[1:]] == [[1, 0], [0, 1]]
    categories = {"t": pd.Series(frame["t"]).astype("category")}
    assert members(groups, categories, 2) == members(groups, frame, 2)


@pytest.mark.parametrize(
    "empty", [[None, None], [np.nan, np.nan], pd.Series([None, None], dtype="str")]
)
def test_a_window_without_a_single_value_is_fine_whatever_its_dtype(empty):
    groups = Subgroups.from_reference(
        patients(), {"age": [65], "sex": "each", "admitted": ["2024-01-01"]}, weights={"w": "risk"}
    )
    frame = dict.fromkeys(groups.columns, empty)
    assert all(w == [0, 0] for name, w in members(groups, frame, 2).items() if name != "all")


def test_a_window_without_rows_is_fine():
    groups = Subgroups.from_reference(
        patients(), {"age": [65], "sex": "each"}, weights={"w": "risk"}
    )
    assert [w.shape for w in groups.weights(patients().iloc[:0], 0)] == [(0,)] * 6
