from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.patients import one

from huc_monitor.subgroups import Subgroups

VALUES = {
    "number": st.one_of(st.none(), st.integers(-3, 3), st.floats(-3, 3, width=16)),
    "text": st.one_of(st.none(), st.sampled_from(["a", "b", "", "c=d", "é"])),
    "boolean": st.one_of(st.none(), st.booleans()),
}
# A loaded machine must not turn a slow example into a failure.
RELAXED = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
WEIGHT = st.one_of(st.none(), st.floats(-1, 1))


@st.composite
def frames(draw, min_size=1):
    n = draw(st.integers(min_size, 30))
    columns = {
        kind: pd.Series(draw(st.lists(values, min_size=n, max_size=n)), dtype=object)
        for kind, values in VALUES.items()
    }
    columns["weight"] = pd.Series(draw(st.lists(WEIGHT, min_size=n, max_size=n)), dtype="float64")
    return pd.DataFrame(columns)


def leaf(kind, values):
    equal = st.tuples(st.sampled_from(["==", "!="]), values)
    inside = st.tuples(st.sampled_from(["in", "not in"]), st.lists(values, min_size=1, max_size=3))
    pairs = equal | inside
    if kind == "number":
        pairs |= st.tuples(st.sampled_from(["<", "<=", ">", ">="]), values)
    known = pairs.map(lambda pair: {"column": kind, "op": pair[0], "value": pair[1]})
    absent = st.sampled_from(["is missing", "is present"])
    return known | absent.map(lambda op: {"column": kind, "op": op})


LEAVES = st.one_of(
    *(leaf(kind, values.filter(lambda v: v is not None)) for kind, values in VALUES.items())
)
PREDICATES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=6,
)


def oracle(predicate, row):
    """Three-valued logic on one row, written the slow way: True, False or None."""
    if "and" in predicate or "or" in predicate:
        key, decisive = ("and", False) if "and" in predicate else ("or", True)
        parts = [oracle(part, row) for part in predicate[key]]
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    if "not" in predicate:
        part = oracle(predicate["not"], row)
        return None if part is None else not part
    value, op = row[predicate["column"]], predicate["op"]
    if op.startswith("is "):
        return (value is None) == (op == "is missing")
    if value is None:
        return None
    other = predicate["value"]
    return {
        "==": lambda: value == other,
        "!=": lambda: value != other,
        "<": lambda: value < other,
        "<=": lambda: value <= other,
        ">": lambda: value > other,
        ">=": lambda: value >= other,
        "in": lambda: value in other,
        "not in": lambda: value not in other,
    }[op]()


@RELAXED
@given(frames(), PREDICATES)
def test_predicates_equal_three_valued_logic_row_by_row(frame, predicate):
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    assert one(frame, predicate) == [int(oracle(predicate, row) is True) for row in rows]


@st.composite
def families(draw):
    frame = draw(frames())
    spec = {}
    if frame["number"].notna().any():
        cuts = st.lists(st.floats(-3, 3), min_size=1, max_size=3, unique=True).map(sorted)
        levels = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=3, unique=True).map(sorted)
        rules = st.one_of(
            st.sampled_from(["each", "median", {"median": "below"}, {"each": {"top": 2}}]),
            cuts,
            levels.map(lambda q: {"quantiles": q}),
        )
        spec["number"] = draw(rules)
    spec |= {kind: "each" for kind in ("text", "boolean") if frame[kind].notna().any()}
    predicates = draw(st.dictionaries(st.sampled_from(["p", "q"]), PREDICATES, max_size=2))
    min_size = draw(st.integers(0, 4))
    groups = Subgroups.from_reference(
        frame, spec, predicates=predicates, weights={"w": "weight"}, min_size=min_size
    )
    return frame, groups


@pytest.mark.seconds
@RELAXED
@given(families(), frames(min_size=0))
def test_a_round_trip_through_json_gives_identical_weights(family, later):
    frame, groups = family
    again = Subgroups.from_dict(json.loads(json.dumps(groups.to_dict(), allow_nan=False)))
    assert again == groups
    assert again.dropped == groups.dropped
    for data in (frame, later):
        for a, b in zip(
            groups.weights(data, len(data)), again.weights(data, len(data)), strict=True
        ):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@RELAXED
@given(families(), st.randoms(use_true_random=False))
def test_weights_follow_their_rows(family, rng):
    frame, groups = family
    order = list(range(len(frame)))
    rng.shuffle(order)
    shuffled = groups.weights(frame.iloc[order], len(frame))
    for a, b in zip(groups.weights(frame, len(frame)), shuffled, strict=True):
        np.testing.assert_array_equal(a[order], b)


@RELAXED
@given(families(), st.randoms(use_true_random=False))
def test_the_family_does_not_depend_on_the_order_of_reference_rows(family, rng):
    frame, _ = family
    present = [kind for kind in ("number", "text", "boolean") if frame[kind].notna().any()]
    spec = dict.fromkeys(present, "each")
    order = list(range(len(frame)))
    rng.shuffle(order)
    shuffled = Subgroups.from_reference(frame.iloc[order], spec)
    assert shuffled == Subgroups.from_reference(frame, spec)


@RELAXED
@given(families())
def test_inputs_are_left_unmodified(family):
    frame, groups = family
    before = frame.copy(deep=True)
    weights = groups.weights(frame, len(frame))
    for w in weights:
        w[:] = 0
    groups.describe(frame)
    groups.restrict(frame, min_size=2)
    pd.testing.assert_frame_equal(frame, before)


@RELAXED
@given(frames(), st.lists(st.floats(-3, 3), min_size=1, max_size=4, unique=True).map(sorted))
def test_cut_groups_partition_the_rows_that_have_a_value(frame, cuts):
    groups = Subgroups.from_reference(frame, {"number": cuts})
    assert len(groups) == len(cuts) + 2
    total = np.sum(groups.weights(frame, len(frame))[1:], axis=0)
    np.testing.assert_array_equal(total, frame["number"].notna())


@RELAXED
@given(frames(), st.sampled_from(["number", "text", "boolean"]))
def test_each_groups_partition_the_rows_that_have_a_value(frame, column):
    if frame[column].isna().all():
        frame.loc[0, column] = {"number": 1, "text": "a", "boolean": True}[column]
    groups = Subgroups.from_reference(frame, {column: "each"})
    assert len(groups) == 1 + frame[column].nunique()
    total = np.sum(groups.weights(frame, len(frame))[1:], axis=0)
    np.testing.assert_array_equal(total, frame[column].notna())


@pytest.mark.seconds
@RELAXED
@given(families(), frames(), st.integers(0, 5))
def test_restrict_equals_counting_in_every_frame(family, other, min_size):
    frame, groups = family
    kept = groups.restrict(frame, other, min_size=min_size)
    counts = {
        name: min(np.count_nonzero(groups.weights(f, len(f))[i]) for f in (frame, other))
        for i, name in enumerate(groups.names)
    }
    expected = tuple(name for name in groups.names if name == "all" or counts[name] >= min_size)
    assert kept.names == expected
