from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from support.patients import patients

from huc_monitor.errors import HUCError, InvalidInputError, UnknownNameError
from huc_monitor.subgroups import Subgroups

SPEC_ERRORS = [
    ({"age": []}, r"`spec\['age'\]` must be at least one cut point"),
    ({"age": [80, 65]}, r"`spec\['age'\]` must be .*strictly increasing; got \[80, 65\]"),
    ({"age": [65, 65]}, "strictly increasing"),
    ({"age": [65, np.nan]}, r"`spec\['age'\]\[1\]` must be a finite number"),
    ({"age": [np.inf]}, r"`spec\['age'\]\[0\]` must be a finite number"),
    ({"age": ["65"]}, r"`frame\['age'\]` must hold text .* '65' in `spec\['age'\]`; got numbers"),
    ({"age": [True]}, "must be cut points of a column of numbers"),
    ({"sex": ["female", "male"]}, r"write \{'each': \['female', 'male'\]\}"),
    ({"admitted": ["yesterday"]}, "'yesterday'.*Compare with times without a time zone"),
    ({"admitted": ["2024-01-01T00:00Z"]}, "must hold times with a time zone to be compared"),
    ({"age": "mean"}, r"`spec\['age'\]` must be 'each'.*got \{'mean': None\}"),
    ({"age": 65}, r"`spec\['age'\]` must be 'each'.*got 65"),
    ({"age": {"quantiles": [0.5], "each": None}}, "must be 'each'"),
    ({"age": {"quantiles": 0.5}}, "must be 'each'"),
    ({"age": {"quantiles": [0, 0.5]}}, r"\['age'\]\['quantiles'\]` must be increasing numbers"),
    ({"age": {"quantiles": [0.5, 0.2]}}, "must be increasing numbers strictly between 0 and 1"),
    ({"age": {"quantiles": []}}, "must be increasing numbers strictly between 0 and 1"),
    ({"age": {"median": "above"}}, r"\['median'\]` must be 'at most' .* or 'below'"),
    ({"age": {"each": {"top": 0}}}, r"\['each'\]` must be \{'top': n\}"),
    ({"age": {"each": {"top": True}}}, r"\['each'\]` must be \{'top': n\}"),
    ({"age": {"each": {"top": 3, "x": 1}}}, r"\['each'\]` must be \{'top': n\}"),
    ({"age": {"each": []}}, r"\['each'\]` must be \{'top': n\}"),
    ({"sex": "median"}, r"`spec\['sex'\]` must name a column of numbers.*text \(row 0: 'female'\)"),
    ({"icu": "median"}, "Use 'each' for text and true/false values"),
    ({"agee": [65]}, r"`frame` must .* which `spec\['agee'\]` needs.*Did you mean 'age'\?"),
    ({3: [65]}, "`spec` must be named by non-empty text; got 3"),
    ([("age", [65])], "`spec` must be a mapping; got list"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), SPEC_ERRORS)
def test_a_wrong_specification_is_refused_with_its_place(spec, message):
    with pytest.raises(InvalidInputError, match=message):
        Subgroups.from_reference(patients(), spec)


PREDICATE_ERRORS = [
    ({"op": "<", "value": 1}, r"`predicates\['p'\]` must be \{'column'"),
    ({"and": []}, r"`predicates\['p'\]\['and'\]` must be a list of at least one predicate"),
    ({"and": [{"or": [7]}]}, r"`predicates\['p'\]\['and'\]\[0\]\['or'\]\[0\]` must be"),
    ({"and": [], "or": []}, "single key 'and', 'or' or 'not'"),
    ({"not": []}, r"`predicates\['p'\]\['not'\]` must be"),
    ({"column": "age", "op": "=>", "value": 1}, r"\['op'\]` must be one of '==', '!='.*got '=>'"),
    ({"column": "age", "op": ["<"], "value": 1}, r"\['op'\]` must be one of"),
    ({"column": "age", "op": "<"}, "must have the keys 'column', 'op' and 'value'"),
    ({"column": "age", "op": "<", "value": 1, "x": 2}, "must have the keys"),
    ({"column": "age", "op": "is missing", "value": 1}, "the keys 'column' and 'op' only"),
    ({"column": "age", "op": "<", "value": None}, r"\['value'\]` must be .*'is missing'"),
    ({"column": "age", "op": "<", "value": pd.NaT}, "must be a finite number"),
    ({"column": "age", "op": "<", "value": [1]}, "must be a finite number"),
    ({"column": "age", "op": "in", "value": 1}, r"\['value'\]` must be a list of at least one"),
    ({"column": "age", "op": "in", "value": [1, None]}, r"\['value'\]\[1\]` must be a finite"),
    ({"column": "age", "op": "in", "value": [1, "x"]}, "must hold text to be compared with 'x'"),
    ({"column": 7, "op": "<", "value": 1}, r"\['column'\]` must be the name of a column; got 7"),
    ({"column": "agee", "op": "<", "value": 1}, r"column 'agee', which the subgroup 'p' needs"),
    (
        {"column": "sex", "op": "==", "value": 1},
        (
            r"`frame\['sex'\]` must hold numbers to be compared with 1 in the subgroup 'p'; got "
            r"text \(row 0: 'female'\). Compare with .* convert: pd.to_numeric\(frame\['sex'\]\)"
        ),
    ),
    ({"column": "sex", "op": "==", "value": False}, "quote words such as 'yes' and 'no'"),
    ({"column": "icu", "op": "==", "value": 1}, r"got true/false values \(row 0: True\)"),
    ({"column": "sex", "op": "<", "value": "m"}, "numbers or times for the operator '<'.*'p'"),
    ({"column": "admitted", "op": "<", "value": "now"}, "compared with 'now'"),
    ({"column": "admitted", "op": "<", "value": "2024-99-01"}, "compared with '2024-99-01'"),
]  # fmt: skip


@pytest.mark.parametrize(("predicate", "message"), PREDICATE_ERRORS)
def test_a_wrong_predicate_is_refused_with_its_place(predicate, message):
    with pytest.raises(InvalidInputError, match=message):
        Subgroups.from_reference(patients(), predicates={"p": predicate})


def test_a_bottomless_predicate_is_refused():
    predicate = {"column": "age", "op": "<", "value": 1}
    for _ in range(5_000):
        predicate = {"not": predicate}
    with pytest.raises(InvalidInputError, match="nested at most 32 deep"):
        Subgroups.from_reference(patients(), predicates={"p": predicate})


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1, "a"], r"mixed types \(row 0: 1, row 1: 'a'\)"),
        ([1j, 2j], "the dtype complex128"),
        (pd.to_timedelta([1, 2], unit="s"), "values of type timedelta"),
        ([b"a", b"b"], "values of type bytes"),
        (pd.Series([1j, 2j]).astype("category"), "the dtype complex128"),
    ],
)
def test_a_column_that_cannot_be_compared_is_refused(column, message):
    with pytest.raises(InvalidInputError, match=message):
        Subgroups.from_reference({"x": column}, {"x": [1]})
    with pytest.raises(InvalidInputError, match=message):
        Subgroups.from_reference({"x": column}, {"x": "each"})
    with pytest.raises(InvalidInputError, match=message):
        Subgroups.from_reference({"x": column}, weights={"w": "x"})
    groups = Subgroups.from_reference({"x": [1, 2]}, {"x": [1]})
    with pytest.raises(
        InvalidInputError,
        match=rf"`features\['x'\]` must hold numbers, as the reference did.*{message}",
    ):
        groups.weights({"x": column}, 2)


def test_a_column_that_changed_its_kind_is_refused():
    groups = Subgroups.from_reference(patients(), {"age": [65], "admitted": "each"})
    frame = patients().assign(age=["a", "b", "c", "d", "e"])
    with pytest.raises(
        InvalidInputError,
        match=r"`features\['age'\]` must hold numbers, as the reference did, for the subgroup "
        r"'age<65'; got text \(row 0: 'a'\). Convert it, for example with pd.to_numeric",
    ):
        groups.weights(frame, 5)
    # Text that looks like the reference's times would otherwise match nothing, silently.
    frame = patients().assign(admitted=["2023-12-31"] * 5)
    with pytest.raises(InvalidInputError, match=r"pd.to_datetime\(features\['admitted'\]\)"):
        groups.weights(frame, 5)
    with pytest.raises(InvalidInputError, match=r"`frames\[1\]\['admitted'\]` must hold times"):
        groups.restrict(patients(), frame, min_size=1)


@pytest.mark.parametrize(("before", "after"), [(None, "Asia/Kolkata"), ("Asia/Kolkata", None)])
def test_a_time_that_got_or_lost_its_zone_can_be_converted_as_advised(before, after):
    known, features = (
        pd.DataFrame({"t": pd.date_range("2024-01-01", periods=4, tz=zone)})
        for zone in (before, after)
    )
    groups = Subgroups.from_reference(known, {"t": ["2024-01-02" + ("T00:00Z" if before else "")]})
    with pytest.raises(InvalidInputError, match="got times with") as caught:
        groups.weights(features, 4)
    (call,) = re.findall(r"for example with (.*)\.$", str(caught.value))
    features["t"] = eval(call)  # noqa: S307
    assert sum(weights.sum() for weights in groups.weights(features, 4)[1:]) == 4


def test_wrong_features_are_refused_with_a_remedy():
    groups = Subgroups.from_reference(patients(), {"age": [65], "sex": "each"})
    with pytest.raises(
        InvalidInputError, match=r"`features` must have the columns 'age', 'sex'.*got None"
    ):
        groups.weights(None, 5)
    with pytest.raises(InvalidInputError, match=r"`features` must have 4 rows; got 5"):
        groups.weights(patients(), 4)
    with pytest.raises(
        InvalidInputError,
        match=r"must have 2 rows; got 1 in the column 'sex' \(the subgroup 'sex=female'\)",
    ):
        groups.weights({"age": [1, 2], "sex": ["female"]}, 2)
    with pytest.raises(
        UnknownNameError,
        match=r"^`features` must have the column 'sex', which the subgroup 'sex=female' needs",
    ):
        groups.weights(patients()[["age"]], 5)
    with pytest.raises(
        InvalidInputError, match=r"`features` must be a DataFrame or a mapping.*got ndarray"
    ):
        groups.weights(np.zeros((5, 2)), 5)
    with pytest.raises(
        InvalidInputError,
        match=r"must have one column 'age'.*shape \(5, 2\).*repeated column names",
    ):
        groups.weights(pd.concat([patients(), patients()[["age"]]], axis=1), 5)
    with pytest.raises(InvalidInputError, match=r"`n` must be a whole number"):
        groups.weights(patients(), -1)
    with pytest.raises(InvalidInputError, match=r"`frame` must be a DataFrame"):
        Subgroups.whole().describe(None)


def test_names_must_be_unique_and_all_is_taken():
    predicate = {"column": "age", "op": "<", "value": 65}
    with pytest.raises(InvalidInputError, match=r"unique names.*got 'all' twice"):
        Subgroups.from_reference(patients(), predicates={"all": predicate})
    with pytest.raises(InvalidInputError, match="got 'age<65' twice"):
        Subgroups.from_reference(patients(), {"age": [65]}, predicates={"age<65": predicate})


def test_a_column_of_identifiers_is_refused_rather_than_split():
    frame = {"id": [f"p{i}" for i in range(1_001)]}
    with pytest.raises(
        InvalidInputError,
        match=r"at most 1,000 subgroups; got 1,001 distinct values. Keep .*--subgroup cannot",
    ):
        Subgroups.from_reference(frame, {"id": "each"})
    assert len(Subgroups.from_reference(frame, {"id": {"each": {"top": 3}}})) == 4


def test_nothing_can_be_split_in_a_column_without_values():
    for rule in ("each", "median"):
        with pytest.raises(InvalidInputError, match="missing values only"):
            Subgroups.from_reference({"x": [None, None]}, {"x": rule})
    with pytest.raises(
        InvalidInputError, match=r"must be finite to take quantiles.*got inf in row 1"
    ):
        Subgroups.from_reference({"x": [np.nan, np.inf, 1]}, {"x": "median"})


@pytest.mark.parametrize("bad", [-1, 2.5, True, "5", None])
def test_sizes_must_be_whole_numbers(bad):
    with pytest.raises(InvalidInputError, match="`min_size` must be a whole number of at least 0"):
        Subgroups.from_reference(patients(), {}, min_size=bad)
    with pytest.raises(InvalidInputError, match="`min_size` must be a whole number"):
        Subgroups.whole().restrict(patients(), min_size=bad)


@pytest.mark.parametrize("bad", [3, "", None, {"weight": 3}, {"column": "risk"}])
def test_a_weight_must_name_a_column(bad):
    with pytest.raises(InvalidInputError, match=r"`weights\['w'\]` must be a column name"):
        Subgroups.from_reference(patients(), weights={"w": bad})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, r"`data\['schema_version'\]` must be 1; got 2"),
        ({"schema_version": True}, "must be 1; got True"),
        ({"subgroups": None}, r"`data\['subgroups'\]` must be a list"),
        (
            {"subgroups": ["age"]},
            r"`data\['subgroups'\]\[0\]` must have the keys 'name' and 'rule'",
        ),
        ({"subgroups": [{"name": 1, "rule": {}}]}, "must be named by non-empty text"),
        (
            {"subgroups": [{"name": "a", "rule": {}}]},
            r"`data\['subgroups'\]\[0\]\['rule'\]` must be",
        ),
        ({"subgroups": [{"name": "all", "rule": {"weight": "x"}}]}, "got 'all' twice"),
        ({"columns": {"age": "int"}}, r"`data\['columns'\]\['age'\]` must be one of 'number'"),
        ({"columns": 3}, r"`data\['columns'\]` must be a mapping"),
        ({"dropped": {"a": -1}}, r"`data\['dropped'\]\['a'\]` must be a whole number"),
    ],
)
def test_damaged_files_are_refused(change, message):
    data = Subgroups.from_reference(patients(), {"age": [65]}).to_dict() | change
    with pytest.raises(HUCError, match=message):
        Subgroups.from_dict(data)
