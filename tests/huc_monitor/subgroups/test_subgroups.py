from __future__ import annotations

import copy
import datetime as dt
import json
import logging
import pickle

import numpy as np
import pandas as pd
import pytest
import yaml
from support.patients import members, one, patients

from huc_monitor.errors import InvalidInputError
from huc_monitor.subgroups import Subgroups

# --- Worked by hand ----------------------------------------------------------------------------


def test_the_whole_population_is_always_first():
    assert Subgroups.whole().names == ("all",)
    groups = Subgroups.from_reference(patients(), {"sex": "each"})
    assert groups.names[0] == "all"
    assert groups.weights(patients(), 5)[0].tolist() == [1, 1, 1, 1, 1]
    assert len(groups) == 3


def test_cut_points_include_their_lower_end_and_missing_age_is_in_no_group():
    groups = Subgroups.from_reference(patients(), {"age": [65, 80]})
    assert members(groups, patients()) == {
        "all": [1, 1, 1, 1, 1],
        "age<65": [1, 0, 0, 0, 0],
        "65<=age<80": [0, 1, 1, 0, 0],
        "age>=80": [0, 0, 0, 1, 0],
    }


def test_each_makes_a_group_per_value_in_value_order():
    groups = Subgroups.from_reference(patients(), {"sex": "each", "icu": "each"})
    assert members(groups, patients()) == {
        "all": [1, 1, 1, 1, 1],
        "sex=female": [1, 0, 1, 0, 0],
        "sex=male": [0, 1, 0, 0, 1],
        "icu=false": [0, 1, 0, 0, 1],
        "icu=true": [1, 0, 1, 1, 0],
    }


def test_top_keeps_the_most_frequent_values_and_breaks_ties_by_value():
    frame = {"service": ["http", "smtp", "ftp", "http", "dns", "dns", "ftp", "x"]}
    groups = Subgroups.from_reference(frame, {"service": {"each": {"top": 2}}})
    assert groups.names == ("all", "service=dns", "service=ftp")


def test_listed_values_are_kept_even_when_the_reference_lacks_them():
    groups = Subgroups.from_reference({"p": ["tcp"]}, {"p": {"each": ["udp", "tcp"]}})
    assert members(groups, {"p": ["tcp", "udp", "icmp"]}, 3) == {
        "all": [1, 1, 1],
        "p=udp": [0, 1, 0],
        "p=tcp": [1, 0, 0],
    }


def test_median_splits_at_most_and_above_as_for_massive_and_nsl_kdd():
    frame = {"words": [1, 7, 7, 9, 30]}
    groups = Subgroups.from_reference(frame, {"words": "median"})
    assert members(groups, frame, 5)["words<=7"] == [1, 1, 1, 0, 0]
    assert members(groups, frame, 5)["words>7"] == [0, 0, 0, 1, 1]
    assert groups == Subgroups.from_reference(frame, {"words": {"median": "at most"}})


def test_median_splits_below_and_at_least_as_for_inaturalist():
    frame = {"brightness": [1, 7, 7, 9, 30]}
    groups = Subgroups.from_reference(frame, {"brightness": {"median": "below"}})
    assert members(groups, frame, 5)["brightness<7"] == [1, 0, 0, 0, 0]
    assert members(groups, frame, 5)["brightness>=7"] == [0, 1, 1, 1, 1]


def test_quantiles_become_cut_points_and_coinciding_ones_count_once():
    frame = {"bytes": [0, 0, 0, 0, 4, 8]}
    groups = Subgroups.from_reference(frame, {"bytes": {"quantiles": [0.1, 0.5, 0.9]}})
    assert groups.names == ("all", "bytes<0", "0<=bytes<6", "bytes>=6")


def test_the_median_ignores_missing_values():
    groups = Subgroups.from_reference({"x": [1.0, np.nan, 3.0]}, {"x": "median"})
    assert groups.names == ("all", "x<=2", "x>2")


def test_the_ten_support2_candidates_have_readable_names():
    frame = pd.DataFrame(
        {
            "age": [60.0, 70.0, 90.0, 50.0],
            "sex": ["female", "male", "male", "male"],
            "dzclass": ["ARF/MOSF", "COPD/CHF/Cirrhosis", "Coma", "Cancer"],
        }
    )
    groups = Subgroups.from_reference(frame, {"age": [65, 80], "sex": "each", "dzclass": "each"})
    assert groups.names == (
        "all",
        "age<65",
        "65<=age<80",
        "age>=80",
        "sex=female",
        "sex=male",
        "dzclass=ARF/MOSF",
        "dzclass=COPD/CHF/Cirrhosis",
        "dzclass=Cancer",
        "dzclass=Coma",
    )


def test_groups_with_identical_values_are_not_merged():
    frame = {"device": ["cam", "cam"], "x": [1.0, 1.0]}
    groups = Subgroups.from_reference(frame, {"device": "each", "x": "median"})
    assert members(groups, frame, 2) == {
        "all": [1, 1],
        "device=cam": [1, 1],
        "x<=1": [1, 1],
        "x>1": [0, 0],
    }


def test_cut_points_are_frozen_from_the_reference():
    groups = Subgroups.from_reference({"x": [1, 2, 3]}, {"x": "median"})
    assert members(groups, {"x": [100, 200, 2]}, 3)["x>2"] == [1, 1, 0]


def test_a_value_first_seen_later_belongs_to_no_each_group():
    groups = Subgroups.from_reference({"sex": ["f", "m"]}, {"sex": "each"})
    later = {"sex": ["x", "f", None]}
    assert members(groups, later, 3) == {"all": [1, 1, 1], "sex=f": [0, 1, 0], "sex=m": [0, 0, 0]}


def test_time_cut_points_are_iso_dates():
    groups = Subgroups.from_reference(
        patients(), {"admitted": [dt.date(2024, 1, 1), pd.Timestamp("2024-07-01")]}
    )
    assert groups.names[1:] == (
        "admitted<2024-01-01",
        "2024-01-01<=admitted<2024-07-01",
        "admitted>=2024-07-01",
    )
    got = members(groups, patients())
    assert list(got.values())[1:] == [[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0]]


# --- Predicates --------------------------------------------------------------------------------


AGE = {"age": [64.0, 65.0, None]}


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("==", 65, [0, 1, 0]),
        ("!=", 65, [1, 0, 0]),
        ("<", 65, [1, 0, 0]),
        ("<=", 65, [1, 1, 0]),
        (">", 64, [0, 1, 0]),
        (">=", 64, [1, 1, 0]),
        ("in", [64, 1], [1, 0, 0]),
        ("not in", [64, 1], [0, 1, 0]),
    ],
)
def test_every_operator_leaves_out_missing_values_and_so_does_its_negation(op, value, expected):
    predicate = {"column": "age", "op": op, "value": value}
    assert one(AGE, predicate) == expected
    assert one(AGE, {"not": predicate}) == [1 - expected[0], 1 - expected[1], 0]


@pytest.mark.parametrize("op", ["!=", "not in"])
@pytest.mark.parametrize(
    ("values", "value"),
    [
        (["a", "b", None], "a"),
        ([True, False, None], True),
        (pd.to_datetime(["2024-01-01", "2024-01-02", None]), "2024-01-01"),
        (
            pd.to_datetime(["2024-01-01T00:00Z", "2024-01-02T00:00Z", None]),
            "2024-01-01T01:00:00+01:00",
        ),
        (pd.Series([1, 2, None], dtype="Int64"), 1),
    ],
)
def test_unequal_leaves_out_missing_values_of_every_kind(op, values, value):
    predicate = {"column": "x", "op": op, "value": [value] if op == "not in" else value}
    assert one(pd.DataFrame({"x": values}), predicate) == [0, 1, 0]


def test_missingness_itself_is_known():
    assert one(AGE, {"column": "age", "op": "is missing"}) == [0, 0, 1]
    assert one(AGE, {"not": {"column": "age", "op": "is missing"}}) == [1, 1, 0]
    assert one(AGE, {"column": "age", "op": "is present"}) == [1, 1, 0]


def test_missingness_can_be_asked_of_columns_that_cannot_be_compared():
    assert one({"x": [1, "a", None]}, {"column": "x", "op": "is missing"}) == [0, 0, 1]


def test_where_only_missing_matters_a_column_may_become_of_another_kind():
    rule = {"absent": {"column": "age", "op": "is missing"}}
    family = Subgroups.from_reference({"age": [1.0, 2.0, None]}, predicates=rule)
    assert family.weights({"age": ["old", None, "young"]}, 3)[1].tolist() == [0, 1, 0]


def test_and_or_decide_as_soon_as_their_known_parts_do():
    frame = {"a": [1, 1, 0, 0, None, None, None], "b": [1, 0, 1, 0, 1, 0, None]}
    a = {"column": "a", "op": "==", "value": 1}
    b = {"column": "b", "op": "==", "value": 1}
    assert one(frame, {"and": [a, b]}) == [1, 0, 0, 0, 0, 0, 0]
    assert one(frame, {"or": [a, b]}) == [1, 1, 1, 0, 1, 0, 0]
    assert one(frame, {"not": {"and": [a, b]}}) == [0, 1, 1, 1, 0, 1, 0]
    assert one(frame, {"not": {"or": [a, b]}}) == [0, 0, 0, 1, 0, 0, 0]


def test_a_predicate_is_data_and_never_code():
    with pytest.raises(InvalidInputError, match=r"predicates\['it'\]` must be"):
        one(AGE, "__import__('os').system('true')")
    assert one({"x": ["a", "1 == 1"]}, {"column": "x", "op": "==", "value": "1 == 1"}) == [0, 1]


def test_the_specification_reads_the_same_from_yaml():
    text = """
    spec:
      age: [65, 80]
      sex: each
      risk: {median: below}
    predicates:
      recent women:
        and:
          - {column: sex, op: ==, value: female}
          - {column: admitted, op: ">=", value: 2024-01-01}
    weights:
      by risk: risk
    min_size: 1
    """
    groups = Subgroups.from_reference(patients(), **yaml.safe_load(text))
    got = members(groups, patients())
    assert got["recent women"] == [0, 0, 1, 0, 0]
    assert got["by risk"] == [-1.0, 0.0, 0.5, 1.0, 0.0]
    assert groups.columns == ("age", "sex", "risk", "admitted")
    assert Subgroups.from_dict(yaml.safe_load(yaml.safe_dump(groups.to_dict()))) == groups


# --- Weights, sizes, identity ------------------------------------------------------------------


def test_real_valued_weights_are_float64_and_indicators_uint8():
    groups = Subgroups.from_reference(
        patients(), {"sex": "each"}, weights={"w": {"weight": "risk"}}
    )
    weights = groups.weights(patients(), 5)
    assert [w.dtype for w in weights] == [np.uint8, np.uint8, np.uint8, np.float64]
    assert all(w.shape == (5,) and w.flags.c_contiguous for w in weights)


@pytest.mark.parametrize("bad", [1.0000001, -2.0, np.inf, -np.inf])
def test_a_weight_outside_its_range_is_refused_with_its_row(bad):
    with pytest.raises(
        InvalidInputError, match=r"`frame\['r'\]` must be finite and in \[-1, 1\].*'w'.*row 1"
    ):
        Subgroups.from_reference({"r": [0.0, bad]}, weights={"w": "r"})
    groups = Subgroups.from_reference({"r": [0.0, 1.0]}, weights={"w": "r"})
    with pytest.raises(InvalidInputError, match=r"`features\['r'\]` must be finite.*row 0"):
        groups.weights({"r": [bad, 0.0]}, 2)


def test_small_groups_are_dropped_and_recorded():
    groups = Subgroups.from_reference(
        patients(), {"age": [65, 80], "sex": "each"}, weights={"w": "risk"}, min_size=2
    )
    assert groups.names == ("all", "65<=age<80", "sex=female", "sex=male", "w")
    assert groups.dropped == {"age<65": 1, "age>=80": 1}
    assert Subgroups.from_reference({"x": [1]}, {"x": "each"}, min_size=9).names == ("all",)


def test_a_column_is_not_needed_once_its_groups_are_dropped():
    groups = Subgroups.from_reference(patients(), {"age": [65], "sex": "each"}, min_size=3)
    assert groups.columns == ("age",)
    assert groups.weights(patients()[["age"]], 5)[1].tolist() == [0, 1, 1, 1, 0]


def test_restrict_keeps_groups_that_are_large_enough_in_every_frame():
    groups = Subgroups.from_reference(patients(), {"sex": "each", "icu": "each"})
    calibration, validation = patients().iloc[:3], patients().iloc[2:]
    kept = groups.restrict(calibration, validation, min_size=1)
    assert kept.names == ("all", "sex=female", "sex=male", "icu=false", "icu=true")
    kept = groups.restrict(calibration, validation, min_size=2)
    assert kept.names == ("all", "icu=true")
    assert kept.dropped == {"sex=female": 1, "sex=male": 1, "icu=false": 1}
    assert groups.dropped == {}


def test_describe_tells_each_rule_in_words_with_its_size():
    either = {
        "or": [
            {"column": "icu", "op": "==", "value": True},
            {"column": "sex", "op": "in", "value": ["male", "x"]},
        ]
    }
    both = {"and": [either, {"not": {"column": "age", "op": "is missing"}}]}
    groups = Subgroups.from_reference(
        patients(), {"age": [65, 80]}, predicates={"both": both}, weights={"w": "risk"}
    )
    table = groups.describe(patients())
    assert table.columns.tolist() == ["name", "rule", "n", "share"]
    assert table["rule"].tolist() == [
        "every row",
        "age is below 65",
        "age is at least 65 and age is below 80",
        "age is at least 80",
        "(icu is true or sex is one of male, x) and not (age is missing)",
        "weight risk",
    ]
    assert table["n"].tolist() == [5, 1, 2, 1, 4, 3]
    assert table["share"].tolist() == [1.0, 0.2, 0.4, 0.2, 0.8, 0.6]


def test_a_family_without_columns_needs_no_features():
    assert [w.tolist() for w in Subgroups.whole().weights(None, 2)] == [[1, 1]]
    assert [w.tolist() for w in Subgroups.whole().weights(np.zeros((2, 3)), 2)] == [[1, 1]]
    assert Subgroups.whole().describe(None, n=4)["n"].tolist() == [4]


def test_equality_is_by_content():
    a = Subgroups.from_reference({"x": [1, 2]}, {"x": [1]})
    b = Subgroups.from_reference({"x": [5.5, 0.25]}, {"x": [1.0]})
    c = Subgroups.from_reference({"x": [1, 2]}, {"x": [2]})
    assert a == b
    assert hash(a) == hash(b)
    assert a != c
    assert a != "x"


def test_true_is_not_one():
    a = Subgroups.from_reference({"x": [1]}, {"x": "each"})
    b = Subgroups.from_reference({"x": [True]}, {"x": "each"})
    assert a != b


def test_a_family_is_immutable_but_can_be_copied():
    groups = Subgroups.from_reference(patients(), {"sex": "each"}, min_size=1)
    with pytest.raises(AttributeError):
        groups._rules = ()
    groups.dropped["sex=x"] = 3
    assert groups.dropped == {}
    assert copy.deepcopy(groups) == groups
    assert pickle.loads(pickle.dumps(groups)) == groups  # noqa: S301 - our own bytes


def test_repr_is_one_short_line():
    groups = Subgroups.from_reference({"x": list(range(20))}, {"x": "each"})
    assert repr(groups) == "Subgroups(21: all, x=0, x=1, x=2, x=3, x=4, x=5, x=6, ...)"
    eight = Subgroups.from_reference({"x": list(range(7))}, {"x": "each"})
    assert repr(eight) == "Subgroups(8: all, x=0, x=1, x=2, x=3, x=4, x=5, x=6)"


def test_serialised_values_are_plain_json():
    frame = {
        "n": np.array([1, 2], dtype=np.int8),
        "f": np.array([0.5, 1.5], dtype=np.float32),
        "b": np.array([True, False]),
        "t": pd.to_datetime(
            ["2024-01-01T00:00:00.0", "2024-01-02T03:04:05.000000006"], format="ISO8601"
        ),
        "z": pd.to_datetime(["2024-01-01T00:00+09:00", "2024-01-02T00:00+09:00"]),
        "s": np.array(["u", "v"]),
    }
    groups = Subgroups.from_reference(frame, dict.fromkeys(frame, "each"))
    data = json.loads(json.dumps(groups.to_dict(), allow_nan=False))
    assert data["schema_version"] == 1
    assert data["columns"] == {
        "n": "number", "f": "number", "b": "boolean", "t": "time", "z": "zoned time", "s": "text",
    }  # fmt: skip
    again = Subgroups.from_dict(data)
    assert again == groups
    assert members(again, frame, 2) == members(groups, frame, 2)
    assert all(
        sum(weights) == 1 for name, weights in members(again, frame, 2).items() if name != "all"
    )


def test_a_column_of_very_many_values_is_doubted_aloud(caplog, monkeypatch):
    """800 towns are 800 subgroups; a smallest size, or the most frequent ones, are no doubt."""
    towns = {"town": [f"t{i % 800}" for i in range(2000)], "sex": ["f", "m"] * 1000}
    logger = logging.getLogger("huc_monitor")
    monkeypatch.setattr(logger, "propagate", True)  # a command of another test may have ended it
    with caplog.at_level(logging.WARNING, logger="huc_monitor"):
        Subgroups.from_reference(towns, {"town": "each"}, min_size=3)
        Subgroups.from_reference(towns, {"town": {"each": {"top": 20}}, "sex": "each"})
        Subgroups.from_reference(towns, {"town": "each"}, min_size=4)
    # Commands of other tests may have left handlers and threads that speak too.
    (told,) = {text for text in caplog.messages if "subgroups" in text}
    assert told.startswith("401 subgroups, 400 of them with fewer than 50 rows")
    assert "by the column 'town'" in told
    assert told.endswith(
        "a column's most frequent values with {'each': {'top': 20}}, in huc.yaml or Python "
        "(--subgroup cannot), or leave out small subgroups with min_size."
    )


def test_very_many_weights_are_doubted_without_advice_that_is_for_small_subgroups(
    caplog, monkeypatch
):
    frame = {f"w{k}": np.linspace(0.1, 1, 60) for k in range(120)}
    monkeypatch.setattr(logging.getLogger("huc_monitor"), "propagate", True)
    with caplog.at_level(logging.WARNING, logger="huc_monitor"):
        Subgroups.from_reference(frame, weights={f"by {name}": name for name in frame})
    assert (
        "121 subgroups: with each of them bounds get wider and audits slower. "
        "Leave out those that nobody acts on."
    ) in caplog.messages
