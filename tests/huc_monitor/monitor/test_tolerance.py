from __future__ import annotations

import numpy as np
import pytest
from support.documented import defaults, documented_defaults

import huc_monitor as hm
from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.monitor.tolerance import Tolerance, ToleranceRule, accepted, ignored

TREE = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": ["pug", "husky"]})
UTILITIES = [hm.LevelCorrectness(level=2, name="kind"), hm.Payoff("cost", {"lynx": -1}, scale=200)]
GROUPS = hm.Subgroups.from_reference({"age": [1, 9]}, {"age": [5]})


def table(tolerance):
    values = iter(tolerance.values(TREE, UTILITIES, GROUPS))
    return {
        (utility.name, subgroup, TREE.branches[v]): next(values)
        for utility in UTILITIES
        for subgroup in GROUPS.names
        for v in utility.relevant_branches(TREE)
    }


def test_without_rules_every_candidate_has_the_same_tolerance():
    assert set(table(Tolerance(value=0.03)).values()) == {0.03}


def test_the_most_specific_rule_decides_and_the_last_of_equals():
    rules = [
        ToleranceRule(value=0.5, utility="kind", node="cat"),
        ToleranceRule(value=0.1, node="cat"),
        ToleranceRule(value=0.2, subgroup="age<5"),
        ToleranceRule(value=0.3, utility="kind"),
    ]
    found = table(Tolerance(value=0.01, overrides=rules))
    assert found["kind", "age<5", "cat"] == 0.5
    assert found["kind", "age<5", "root"] == 0.3
    assert found["cost", "age<5", "cat"] == 0.2
    assert found["cost", "all", "cat"] == 0.1
    assert found["cost", "all", "root"] == 0.01


def test_a_tolerance_in_units_is_divided_by_the_scale_of_each_utility():
    own = [ToleranceRule(value=0.05, utility="kind")]
    found = table(Tolerance(value=4, unit="money", overrides=own))
    assert found["cost", "all", "root"] == 0.02
    assert found["kind", "all", "root"] == 0.05


def test_an_amount_of_money_is_refused_for_a_utility_without_units():
    with pytest.raises(InvalidInputError, match=r"tolerance.unit.*no `units`: kind\. .*overrides"):
        table(Tolerance(value=4, unit="money"))


@pytest.mark.parametrize(
    ("tolerance", "named"),
    [
        (Tolerance(value=46), "kind, cost"),
        (Tolerance(value=1), "kind, cost"),
        (Tolerance(value=0.99), None),
        (Tolerance(value=1, overrides=[ToleranceRule(value=0.1, subgroup="age<5")]), None),
        (Tolerance(value=1, overrides=[ToleranceRule(value=1, utility="kind")]), "cost"),
        (
            Tolerance(value=250, unit="money", overrides=[ToleranceRule(value=1, utility="kind")]),
            "cost",
        ),
    ],
)
def test_a_tolerance_that_no_moment_can_exceed_is_told(tolerance, named):
    cost = hm.Payoff("cost", {"lynx": -200}, scale=200)
    said = tolerance.say_out_of_reach(TREE, [UTILITIES[0], cost])
    assert (said is None) == (named is None)
    assert said is None or f"No moment of {named} can exceed the tolerance" in said


@pytest.mark.parametrize(
    ("field", "name"), [("utility", "knid"), ("subgroup", "age<6"), ("node", "lion")]
)
def test_a_rule_with_an_unknown_name_says_which(field, name):
    tolerance = Tolerance(overrides=[ToleranceRule(value=1, **{field: name})])
    with pytest.raises(UnknownNameError, match=rf"overrides\[0\].{field}` must be .*{name}"):
        tolerance.values(TREE, UTILITIES, GROUPS)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (-0.1, "at least 0; got -0.1"),
        (float("nan"), "a finite number; got nan"),
        (float("inf"), "a finite number; got inf"),
        ("0.1", "a number; got '0.1'"),
        (True, "a number; got True"),
    ],
)
def test_a_tolerance_must_be_a_number_of_at_least_zero(value, rule):
    with pytest.raises(InvalidInputError, match=f"`value` must be {rule}"):
        Tolerance(value=value)


def test_a_reference_allows_as_much_more_whatever_its_sign():
    found = accepted(np.full(3, 0.02), np.array([0.05, -0.05, 0.0]))
    np.testing.assert_allclose(found, [0.07, 0.07, 0.02])


def test_a_tolerance_survives_its_json_form():
    tolerance = Tolerance(value=1, overrides=[ToleranceRule(value=2, node="cat")], unit="money")
    assert Tolerance.from_dict(tolerance.to_dict()) == tolerance


def test_the_json_form_of_earlier_versions_is_still_read():
    rule = {"value": 2, "utility": None, "subgroup": None, "node": "cat"}
    old = {"value": 1, "rules": [rule], "in_units": True, "relative": True}
    assert Tolerance.from_dict(old) == Tolerance(
        value=1,
        overrides=[ToleranceRule(value=2, node="cat")],
        unit="money",
        relative_to="reference",
    )
    assert Tolerance.from_dict({**old, "in_units": False, "relative": False}).unit == "utility"


def test_defaults_are_those_of_the_docstring():
    assert defaults(Tolerance) == documented_defaults(Tolerance) != {}


def test_a_rule_must_name_something():
    with pytest.raises(InvalidInputError, match="must name a utility, a node or a subgroup"):
        ToleranceRule(value=1)


def test_a_default_replaces_the_value_but_no_override():
    tolerance = Tolerance(value=4, unit="money", overrides=[ToleranceRule(value=2, node="cat")])
    found = tolerance.values(TREE, UTILITIES[1:], hm.Subgroups.whole(), default=0.5)
    assert found.tolist() == [0.5, 0.01]


def test_without_a_reference_the_tolerance_is_what_is_accepted():
    values = np.array([0.02])
    assert accepted(values, None) is values
    assert Tolerance(relative_to="reference").relative
    assert not Tolerance().relative


def test_a_name_is_ignored_once_all_its_tolerances_are_one():
    candidates = [("kind", "all", "root"), ("kind", "all", "cat"), ("cost", "old", "cat")]
    assert ignored(np.array([1.0, 0.999, 1.5]), candidates) == {
        ("branch", "root"),
        ("subgroup", "old"),
        ("scores", "cost"),
    }
