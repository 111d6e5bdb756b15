"""Which columns are searched, however they are stored, and where they are cut."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm

TREE = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
N = 3000


def search(values, off):
    """Search one column, where lion and lynx are swapped in some rows."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet([2, 2, 2], N)
    truth = np.where(np.asarray(off)[:, None], p[:, [1, 0, 2]], p)
    y = (truth.cumsum(axis=1) < rng.uniform(size=(N, 1))).sum(axis=1)
    frame = pd.DataFrame({"x": values})
    found = hm.discover(p, y, tree=TREE, features=frame)
    groups = found.make_subgroups(frame).weights(frame, N)[1:]
    return found, [group.astype(bool) for group in groups]


AGES = np.random.default_rng(1).integers(18, 90, N)
STORED = {
    "int64": AGES,
    "Int64": pd.array(AGES, dtype="Int64"),
    "objects": pd.Series(AGES.tolist(), dtype=object),
    "decimals": pd.Series([Decimal(int(age)) for age in AGES], dtype=object),
    "categories": pd.Categorical(AGES),
}


@pytest.mark.parametrize("stored", STORED)
def test_numbers_are_cut_alike_however_they_are_stored(stored):
    found, _ = search(STORED[stored], AGES < 40)
    assert [one.name for one in found.certified] == ["x<40"]
    assert found.notes == ()


@pytest.mark.parametrize("kind", ["objects", "dates"])
def test_numbers_and_dates_with_missing_values_are_cut_too(kind):
    made = {"objects": int, "dates": lambda age: dt.date(1900 + int(age), 1, 1)}[kind]
    values = [None if k % 10 == 0 else made(age) for k, age in enumerate(AGES)]
    found, _ = search(pd.Series(values, dtype=object), AGES < 40)
    (best,) = found.certified
    assert best.rule["op"] == "<"
    assert found.notes == ()


def close(off, low, high):
    """Draw whole numbers: the first half of a range where something is off, else the second."""
    rng = np.random.default_rng(2)
    middle = (low + high) // 2
    return np.where(off, rng.integers(low, middle, N), rng.integers(middle, high, N))


OFF = np.random.default_rng(3).random(N) < 0.3
LARGE = {
    "months": 202401 + close(OFF, 0, 12),
    "seconds since 1970": 1_711_756_800 + close(OFF, 0, 2 * 86_400),
    "identities": 10**15 + close(OFF, 0, 1000),
    "half a minute": pd.Timestamp("2026-01-01") + pd.to_timedelta(close(OFF, 0, 30), unit="s"),
    "fractions": 0.25 + close(OFF, 0, 1000) / 1e9,
}


@pytest.mark.parametrize("what", LARGE)
def test_values_that_are_close_together_are_told_apart(what):
    found, groups = search(LARGE[what], OFF)
    assert len(found.certified) == 1
    assert (groups[0] & OFF).sum() / (groups[0] | OFF).sum() > 0.9


def test_whole_numbers_are_cut_at_whole_numbers():
    found, _ = search(close(OFF, 0, 40), OFF)
    assert {float(one.rule["value"]).is_integer() for one in found.certified} == {True}


def test_times_that_stand_for_never_are_searched():
    times = np.where(OFF, np.datetime64("2030-01-01"), np.datetime64("9999-12-31"))
    column = pd.Series(times).astype("datetime64[us]")
    column[:50] = pd.Timestamp("2027-05-01")
    found, groups = search(column, OFF)
    assert len(found.certified) == 1
    assert (groups[0] & OFF).sum() > 0.9 * OFF.sum()


def test_a_column_that_divides_off_too_few_rows_is_left_out_with_a_note():
    found, _ = search(np.where(np.arange(N) < 5, "rare", "common"), OFF)
    (note,) = found.notes
    assert note.startswith("column 'x' was left out: no value or range of it has at least 15 of")
