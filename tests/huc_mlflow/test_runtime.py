"""The numpy runtime against the compiled recalibrator, bit by bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import huc_mlflow
import numpy as np
import pandas as pd
import pytest
from huc_mlflow._huc_runtime_1 import compiled
from huc_mlflow._huc_runtime_1.model import Stage
from huc_mlflow._huc_runtime_1.rules import Rules
from huc_mlflow._payload import _groups, stage_of

import huc_monitor as hm
from huc_monitor.recalibration import (
    DirichletScaling,
    HUCBoost,
    TemperatureScaling,
    UCBoost,
    Update,
    VectorScaling,
)

TREE = hm.LabelTree.from_nested(
    {
        "a": {"a1": ["x1", "x2"], "a2": ["x3", "x4", "x5"]},
        "b": ["y1", "y2", "y3"],
        "c": None,
        "d": {"d1": ["z1", "z2"]},
    }
)
UTILITIES = [
    hm.TopK(3),
    hm.LevelCorrectness(level=1),
    hm.LevelCorrectness(level=2),
    hm.GreedyPathCorrectness(level=2),
    hm.GreedyPathCorrectness(level=3),
    hm.SelectiveReport(group_threshold=0.4, leaf_threshold=0.5),
    hm.Payoff("money", {"a": 0.5, "y1": -1}),
    hm.SubtreeIndicator(node="b"),
    hm.BinaryAction("icu", active=["a", "b"], favours=["a1"], threshold=0.25),
    hm.ActionPayoff("plan", {"one": {"a": 1, "b": -1}, "two": {"b": 0.7}, "three": {"c": 1}}),
    hm.RankPayoff("search", payoffs=[1, 0.5, 0.25, 0]),
]
PEOPLE = pd.DataFrame(
    {
        "age": [50.0, 65, 79, 80, np.nan, 70],
        "sex": ["f", "m", "f", None, "m", "f"],
        "vip": [True, False, None, True, False, True],
        "seen": pd.to_datetime(
            ["2024-01-01", None, "2024-03-01", "2024-04-01"] + ["2024-05-01"] * 2
        ),
        "lean": [-1.0, 0.5, 0.25, np.nan, 1.0, 0.0],
    }
)


def predictions(n, rng):
    p = rng.dirichlet(np.full(TREE.n_leaves, 0.5), n)
    p[: n // 4] = np.where(p[: n // 4] < 0.02, 0.0, p[: n // 4])  # zeros, as forests have them
    return p / p.sum(axis=1, keepdims=True)


def random_boost(rng, utilities, initial, subgroups):
    """A recalibrator with random updates, read from JSON."""
    updates = []
    for _ in range(40):
        low, high = sorted(rng.uniform(-0.4, 1.1, 2))
        node = None if rng.random() < 0.15 else str(rng.choice(TREE.branches))
        name = str(rng.choice([u.name for u in utilities]))
        group = str(rng.choice(subgroups.names))
        updates.append(Update(group, name, low, high, node, float(rng.normal())).to_dict())
    scaling = None
    if initial is not None:
        labels = rng.integers(0, TREE.n_leaves, 60)
        scaling = initial().fit(predictions(60, rng), labels, tree=TREE).to_dict()
    plain = {
        "schema_version": 1,
        "type": "HUCBoost",
        "tree": TREE.to_dict(),
        "utilities": [utility.to_dict() for utility in utilities],
        "subgroups": subgroups.to_dict(),
        "initial": scaling,
        "settings": {"interior": 1e-10},
        "updates": updates,
        "checks": None,
    }
    return HUCBoost.from_dict(json.loads(json.dumps(plain)))


def people(n, rng):
    return PEOPLE.iloc[rng.integers(0, len(PEOPLE), n)].reset_index(drop=True)


def numpy_stage(recalibrator):
    """The stage as a process without huc-monitor would run it."""
    stage = Stage(json.loads(json.dumps(stage_of(recalibrator))))
    stage.compiled.ready = lambda _: False
    return stage


PREDICATES = {
    "old or missing": {
        "or": [
            {"column": "age", "op": ">=", "value": 79},
            {"column": "age", "op": "is missing"},
        ]
    },
    "not a woman": {"not": {"column": "sex", "op": "in", "value": ["f"]}},
    "neither": {
        "not": {
            "and": [
                {"column": "age", "op": "<", "value": 70},
                {"column": "sex", "op": "!=", "value": "m"},
            ]
        }
    },
}
FAMILY = hm.Subgroups.from_reference(
    PEOPLE, {"age": [65, 80], "sex": "each", "vip": "each"}, weights={"lean": "lean"}
)


@pytest.mark.parametrize("utility", UTILITIES, ids=lambda utility: utility.name)
def test_numpy_gives_the_compiled_answer_for_every_utility(utility):
    rng = np.random.default_rng(len(utility.name))
    boost = random_boost(rng, [utility], None, FAMILY)
    p, frame = predictions(64, rng), people(64, rng)
    expected = boost.predict_proba(p, features=frame)
    stage = numpy_stage(boost)
    np.testing.assert_array_equal(stage.apply(p, frame), expected)
    by_row = [stage.apply(p[i : i + 1], frame.iloc[i : i + 1])[0] for i in range(12)]
    np.testing.assert_array_equal(by_row, expected[:12])


def test_few_rows_get_the_same_bits_without_asking_for_columns():
    rng = np.random.default_rng(11)
    indicators = hm.Subgroups.from_reference(PEOPLE, {"age": [65, 80], "sex": "each"})
    for family in (indicators, FAMILY):  # weights that are no indicators go the long way
        boost = random_boost(rng, UTILITIES, TemperatureScaling, family)
        p, frame = predictions(40, rng), people(40, rng)
        expected = boost.predict_proba(p, features=frame)
        stage = Stage(json.loads(json.dumps(stage_of(boost))))
        assert stage.compiled.compile()
        by_row = [stage.apply(p[i : i + 1], frame.iloc[i : i + 1])[0] for i in range(40)]
        np.testing.assert_array_equal(by_row, expected)
        np.testing.assert_array_equal(stage.apply(p[:5], frame[:5]), expected[:5])


def test_a_model_compiles_beside_its_requests_once_it_is_busy():
    rng = np.random.default_rng(12)
    boost = random_boost(rng, UTILITIES[:2], None, FAMILY)
    stage = Stage(json.loads(json.dumps(stage_of(boost))))
    p, frame = predictions(60, rng), people(60, rng)
    expected = boost.predict_proba(p, features=frame)
    for i in range(compiled.BUSY_REQUESTS - 1):
        np.testing.assert_array_equal(
            stage.apply(p[i : i + 1], frame.iloc[i : i + 1]), expected[i : i + 1]
        )
    assert stage.compiled._thread is None
    np.testing.assert_array_equal(stage.apply(p[:1], frame[:1]), expected[:1])
    stage.compiled._thread.join(300)
    assert stage.compiled.ready(1)
    np.testing.assert_array_equal(stage.apply(p, frame), expected)


def test_a_scaling_alone_has_nothing_to_compile():
    rng = np.random.default_rng(14)
    p = predictions(50, rng)
    scaling = TemperatureScaling().fit(p, p.argmax(axis=1), tree=TREE)
    stage = Stage(json.loads(json.dumps(stage_of(scaling, TREE))))
    assert not stage.compiled.compile()
    assert np.abs(stage.apply(p, None) - scaling.predict_proba(p)).max() <= 1e-12


def test_a_large_request_waits_for_the_compiled_form():
    rng = np.random.default_rng(13)
    stage = Stage(json.loads(json.dumps(stage_of(random_boost(rng, UTILITIES[:1], None, FAMILY)))))
    assert not stage.compiled.ready(100)
    assert stage.compiled.ready(compiled.LARGE_ROWS)


def test_one_row_is_weighed_as_in_a_table():
    for family in (FAMILY, hm.Subgroups.from_reference(PEOPLE, {}, predicates=PREDICATES)):
        names = list(family.names)
        rules = Rules(_groups(family, names))
        many = rules.weights(PEOPLE, len(PEOPLE))
        for i in range(len(PEOPLE)):
            one = rules.weights(PEOPLE.iloc[i : i + 1], 1)
            np.testing.assert_array_equal(one[:, 0], many[:, i])
    outside = PEOPLE.head(1).assign(lean=2.0)
    with pytest.raises(ValueError, match=r"The column 'lean' must be in \[-1, 1\]"):
        Rules(_groups(FAMILY, list(FAMILY.names))).weights(outside, 1)


@pytest.mark.parametrize("initial", [TemperatureScaling, VectorScaling, DirichletScaling])
def test_numpy_gives_the_compiled_answer_after_every_scaling(initial):
    rng = np.random.default_rng(5)
    boost = random_boost(rng, UTILITIES, initial, FAMILY)
    p, frame = predictions(3000, rng), people(3000, rng)
    expected = boost.predict_proba(p, features=frame)
    np.testing.assert_array_equal(numpy_stage(boost).apply(p, frame), expected)


def test_numpy_gives_the_compiled_answer_for_fitted_boosters(story):
    for kind in (HUCBoost, UCBoost):
        boost = kind(
            tree=story.tree, utilities=story.utilities, subgroups=story.subgroups, max_updates=15
        ).fit(story.probabilities, story.labels, features=story.frame)
        assert boost.updates_
        got = numpy_stage(boost).apply(story.probabilities, story.frame)
        expected = boost.predict_proba(story.probabilities, features=story.frame)
        np.testing.assert_array_equal(got, expected)


def test_a_scaling_alone_is_a_stage():
    rng = np.random.default_rng(1)
    p = predictions(50, rng)
    scaling = TemperatureScaling().fit(p, rng.integers(0, TREE.n_leaves, 50), tree=TREE)
    stage = Stage(stage_of(scaling, TREE))
    np.testing.assert_array_equal(stage.apply(p, None), scaling.predict_proba(p))


@pytest.mark.parametrize(
    "rule",
    [
        {"column": "age", "op": "<", "value": 65},
        {"column": "age", "op": "!=", "value": 65},
        {"column": "age", "op": "in", "value": [65, 80]},
        {"column": "sex", "op": "==", "value": "f"},
        {"column": "sex", "op": "not in", "value": ["f", "x"]},
        {"column": "vip", "op": "==", "value": True},
        {"column": "vip", "op": "!=", "value": True},
        {"column": "seen", "op": ">=", "value": "2024-03-01"},
        {"column": "sex", "op": "is missing"},
        {"column": "sex", "op": "is present"},
        {"not": {"column": "sex", "op": "==", "value": "f"}},
        {
            "and": [
                {"column": "age", "op": ">=", "value": 60},
                {"not": {"column": "vip", "op": "==", "value": True}},
            ]
        },
        {
            "not": {
                "or": [
                    {"column": "age", "op": ">=", "value": 75},
                    {"column": "sex", "op": "==", "value": "m"},
                ]
            }
        },
    ],
    ids=json.dumps,
)
def test_predicates_mean_the_same_in_the_runtime(rule):
    family = hm.Subgroups.from_reference(PEOPLE, predicates={"group": rule})
    plain = family.to_dict()
    rules = Rules({"names": ["group"], "rules": [rule], "columns": plain["columns"]})
    for frame in (PEOPLE, PEOPLE.iloc[:1], PEOPLE.iloc[3:4], PEOPLE.iloc[::-1]):
        n = len(frame)
        expected = family.weights(frame, n)[1]
        np.testing.assert_array_equal(rules.weights(frame, n)[0], expected)


def test_a_weight_column_out_of_range_is_named():
    rules = Rules({"names": ["lean"], "rules": [{"weight": "lean"}], "columns": {"lean": "number"}})
    with pytest.raises(ValueError, match=r"'lean' must be in \[-1, 1\].*got 3.0 \(row 1\)"):
        rules.weights(pd.DataFrame({"lean": [0.5, 3.0]}), 2)


def test_a_column_of_another_kind_is_named():
    rule = {"column": "sex", "op": "==", "value": "f"}
    rules = Rules({"names": ["women"], "rules": [rule], "columns": {"sex": "text"}})
    with pytest.raises(ValueError, match="'sex' must hold a text"):
        rules.weights(pd.DataFrame({"sex": [1, 2]}), 2)


def test_the_runtime_imports_nothing_but_numpy_pandas_and_the_standard_library():
    folder = Path(huc_mlflow.__file__).parent
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); before = set(sys.modules)\n"
        "import _huc_runtime_1\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in set(sys.modules) - before})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert not loaded & {"huc_monitor", "huc_mlflow", "mlflow", "numba", "sklearn", "scipy"}
