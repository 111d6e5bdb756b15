"""Bits of subgroups against the arrays that they stand for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.subgroups import Memberships


def some_weights(rng, n, n_indicators=130):
    weights = [rng.integers(0, 2, n, dtype=np.uint8) for _ in range(n_indicators)]
    weights.insert(3, rng.uniform(-1, 1, n))
    return [*weights, rng.uniform(-1, 1, n)]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("n", [0, 1, 50])
def test_bits_give_back_the_arrays_they_were_made_of(n):
    weights = some_weights(np.random.default_rng(0), n)
    found = Memberships.of(weights)
    assert found.n_rows == n
    assert_same(found, weights)
    assert_same([found[-1], *found[2:5]], [weights[-1], *weights[2:5]])
    with pytest.raises(IndexError, match="out of range"):
        found[len(weights)]


def test_rows_can_be_taken_joined_and_stored():
    rng = np.random.default_rng(1)
    first, second = some_weights(rng, 20), some_weights(rng, 30)
    both = Memberships.joined([Memberships.of(first), Memberships.of(second)])
    together = [np.concatenate(pair) for pair in zip(first, second, strict=True)]
    assert_same(both, together)
    rows = np.array([40, 2, 2, 11])
    assert_same(both.take(rows), [weights[rows] for weights in together])
    stored = both.to_bytes()
    assert stored.shape == (50, 17)  # 130 bits
    assert_same(Memberships.from_bytes(stored, both.real.tolist(), both.values), together)


def test_windows_with_the_same_cells_are_joined_without_more_of_them():
    frame = pd.DataFrame({"channel": ["app", "web", None, "app"]})
    groups = hm.Subgroups.from_reference(frame, {"channel": "each"}, min_size=0)
    first, second = (groups.memberships(part, len(part)) for part in (frame, frame[::-1]))
    both = Memberships.joined([first, second, Memberships.of(list(first))])
    assert_same(both, [np.concatenate([f, f[::-1], f]) for f in first])
    assert both.table.shape[1] == first.table.shape[1] + len({*zip(*first, strict=True)})


def test_only_real_weights_need_no_bits():
    values = [np.array([0.5, -1.0]), np.array([0.0, 1.0])]
    found = Memberships.of(values)
    assert found.table.shape[0] == 0
    assert_same(found, values)


# Of 60 values, four columns have more combinations than are listed: only those of rows are.
@pytest.mark.parametrize(("n_values", "n_columns"), [(2, 3), (60, 1), (60, 4), (3_000, 2)])
def test_rules_on_combinations_equal_rules_on_rows(n_values, n_columns):
    rng = np.random.default_rng(n_values)
    names = [f"c{k}" for k in range(n_columns)]
    kinds = (lambda v: v.astype(float), lambda v: v, lambda v: np.array([f"v{x}" for x in v]))
    frame = pd.DataFrame(
        {name: kinds[k % 3](rng.integers(0, n_values, 500)) for k, name in enumerate(names)}
    )
    frame.loc[::7, "c0"] = np.nan
    predicates, expected = {}, [np.ones(500, dtype=bool)]
    for k in range(n_values):
        name = names[k % n_columns]
        value = frame[name].dropna().iloc[k % 400]
        value = value if isinstance(value, str) else float(value)
        op = "==" if isinstance(value, str) or k % 2 else "<="
        also = {"not": {"column": "c0", "op": "==", "value": 0.0}}
        predicates[f"g{k}"] = {"and": [{"column": name, "op": op, "value": value}, also]}
        holds = frame[name] == value if op == "==" else frame[name] <= value
        expected.append((holds & frame["c0"].notna() & (frame["c0"] != 0)).to_numpy(dtype=bool))
    found = hm.Subgroups.from_reference(frame, predicates=predicates, min_size=0)
    for later in (frame, frame[::-1], frame[:1], frame[:0]):
        chosen = later.index.to_numpy()
        weights = found.weights(later, len(later))
        assert_same(weights, [rows[chosen].astype(np.uint8) for rows in expected])


@pytest.mark.parametrize("n", [1, 40])
def test_some_subgroups_alone_have_the_weights_they_have_among_all(n):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"age": rng.normal(size=n), "to": rng.choice(list("ab"), n), "w": 0.25})
    groups = hm.Subgroups.from_reference(
        frame, {"age": [0.0], "to": "each"}, weights={"heavy": "w"}, min_size=0
    )
    places = [len(groups.names) - 1, 0, 2, 1]
    found = groups.weights_in(places, frame, n)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, [groups.weights(frame, n)[place] for place in places])


def test_text_that_no_file_can_hold_equals_no_row():
    frame = pd.DataFrame({"channel": ["app", "web", "app"]})
    lone = {"column": "channel", "op": "in", "value": ["\ud800", "app"]}
    groups = hm.Subgroups.from_reference(frame, predicates={"odd": lone}, min_size=0)
    assert groups.weights(frame, 3)[1].tolist() == [1, 0, 1]


TEXTS = st.text("ab\0é", max_size=3) | st.sampled_from(["automobile", "automobils", "automatic"])


@given(st.lists(TEXTS | st.none(), min_size=1), st.lists(TEXTS, min_size=1, unique=True), st.data())
def test_text_is_matched_as_python_compares_it(texts, values, data):
    """Also in a part of a longer array, in chunks, and with 32-bit offsets."""
    kind = data.draw(st.sampled_from([pa.string(), pa.large_string()]))
    start = data.draw(st.integers(0, len(texts) - 1))
    cut = data.draw(st.integers(start, len(texts)))
    whole = pa.array(texts, kind)
    chunks = pa.chunked_array([whole[start:cut], whole[cut:]], kind)
    series = pd.Series(pd.array(chunks, dtype=pd.StringDtype("pyarrow")))
    predicates = {f"g{k}": {"column": "t", "op": "==", "value": v} for k, v in enumerate(values)}
    groups = hm.Subgroups.from_reference({"t": ["x"]}, predicates=predicates, min_size=0)
    weights = groups.weights({"t": series}, len(series))[1:]
    expected = [[text == value for text in texts[start:]] for value in values]
    assert [found.tolist() for found in weights] == expected
