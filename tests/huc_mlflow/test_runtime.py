"""The numpy runtime against the compiled recalibrator, bit by bit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import huc_monitor as hm
from huc_monitor.recalibration import (
    DirichletScaling,
    HUCBoost,
    TemperatureScaling,
    UCBoost,
    Update,
    VectorScaling,
    runtime,
    stage_of,
)
from huc_monitor.recalibration.runtime.rules import Rules
from huc_monitor.recalibration.runtime.stage import SWITCH, Stage, choose_engine

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


def numpy_stage(recalibrator, tree=None):
    """The stage as a process without huc-monitor would run it."""
    return Stage(json.loads(json.dumps(stage_of(recalibrator, tree))))


def compiled_stage(recalibrator):
    stage = numpy_stage(recalibrator)
    assert choose_engine([stage]) == "compiled"
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


def test_compiled_stages_give_the_same_bits_for_one_row_and_for_many():
    rng = np.random.default_rng(11)
    boost = random_boost(rng, UTILITIES, TemperatureScaling, FAMILY)
    p, frame = predictions(600, rng), people(600, rng)
    expected = boost.predict_proba(p, features=frame)
    stage = compiled_stage(boost)
    by_row = [stage.apply(p[i : i + 1], frame.iloc[i : i + 1])[0] for i in range(40)]
    np.testing.assert_array_equal(by_row, expected[:40])
    np.testing.assert_array_equal(stage.apply(p[:5], frame[:5]), expected[:5])
    np.testing.assert_array_equal(stage.apply(p, frame), expected)


def test_the_engine_is_decided_once_and_logged(monkeypatch, caplog):
    rng = np.random.default_rng(12)
    boost = random_boost(rng, UTILITIES[:2], None, FAMILY)
    with caplog.at_level("INFO", "huc_monitor"):
        compiled_stage(boost)
        assert "served by compiled code (ready after" in caplog.text
        monkeypatch.setenv(SWITCH, "off")
        stage = numpy_stage(boost)
        assert choose_engine([stage]) == "numpy"
        assert f"served by numpy code ({SWITCH} is off)" in caplog.text
    assert stage.update == stage.replay.apply


def test_kernels_that_answer_otherwise_or_cannot_read_the_model_are_not_used(monkeypatch, caplog):
    boost = random_boost(np.random.default_rng(13), UTILITIES[:1], None, FAMILY)
    with caplog.at_level("INFO", "huc_monitor"):
        monkeypatch.setattr("huc_monitor.recalibration.compiled_updates", lambda _: lambda p, _: p)
        assert choose_engine([numpy_stage(boost)]) == "numpy"
        assert "the installed huc-monitor gives other answers" in caplog.text
        monkeypatch.undo()
        stage = numpy_stage(boost)
        stage.plain["schema_version"] = 99
        assert choose_engine([stage]) == "numpy"
        assert "must be a HUCBoost of schema version 1" in caplog.text


def test_a_scaling_alone_has_nothing_to_compile():
    rng = np.random.default_rng(14)
    p = predictions(50, rng)
    scaling = TemperatureScaling().fit(p, p.argmax(axis=1), tree=TREE)
    stage = numpy_stage(scaling, TREE)
    assert choose_engine([stage]) == "numpy"
    np.testing.assert_array_equal(stage.apply(p, None), scaling.predict_proba(p))


def test_one_row_is_weighed_as_in_a_table():
    for family in (FAMILY, hm.Subgroups.from_reference(PEOPLE, {}, predicates=PREDICATES)):
        names = list(family.names)
        rules = Rules(family.to_dict(), names)
        many = rules.weights(PEOPLE, len(PEOPLE))
        for i in range(len(PEOPLE)):
            one = rules.weights(PEOPLE.iloc[i : i + 1], 1)
            np.testing.assert_array_equal(one[:, 0], many[:, i])
    outside = PEOPLE.head(1).assign(lean=2.0)
    with pytest.raises(ValueError, match=r"The column 'lean' must be in \[-1, 1\]"):
        Rules(FAMILY.to_dict(), list(FAMILY.names)).weights(outside, 1)


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
    rules = Rules(family.to_dict(), ["group"])
    for frame in (PEOPLE, PEOPLE.iloc[:1], PEOPLE.iloc[3:4], PEOPLE.iloc[::-1]):
        n = len(frame)
        expected = family.weights(frame, n)[1]
        np.testing.assert_array_equal(rules.weights(frame, n)[0], expected)


def one_rule(name, rule, kinds):
    return Rules({"subgroups": [{"name": name, "rule": rule}], "columns": kinds}, [name])


def test_a_weight_column_out_of_range_is_named():
    rules = one_rule("lean", {"weight": "lean"}, {"lean": "number"})
    with pytest.raises(ValueError, match=r"'lean' must be in \[-1, 1\].*got 3.0 \(row 1\)"):
        rules.weights(pd.DataFrame({"lean": [0.5, 3.0]}), 2)


def test_a_column_of_another_kind_is_named():
    rule = {"column": "sex", "op": "==", "value": "f"}
    rules = one_rule("women", rule, {"sex": "text"})
    with pytest.raises(ValueError, match=r"'sex' must hold text.*got numbers \(row 0: 1\)"):
        rules.weights(pd.DataFrame({"sex": [1, 2]}), 2)


def test_requests_may_bring_categories_times_as_text_and_numbers_as_objects():
    women = one_rule("women", {"column": "sex", "op": "==", "value": "f"}, {"sex": "text"})
    categories = pd.DataFrame({"sex": pd.Categorical(["f", "m", None])})
    np.testing.assert_array_equal(women.weights(categories, 3)[0], [1, 0, 0])
    late = {"column": "seen", "op": ">=", "value": "2024-03-01"}
    text = pd.DataFrame({"seen": ["2024-02-01", "2024-03-02"]})
    np.testing.assert_array_equal(one_rule("l", late, {"seen": "time"}).weights(text, 2)[0], [0, 1])
    old = one_rule("old", {"column": "age", "op": ">", "value": 65}, {"age": "number"})
    objects = pd.DataFrame({"age": pd.Series([70, 60.5, None], dtype=object)})
    np.testing.assert_array_equal(old.weights(objects, 3)[0], [1, 0, 0])
    np.testing.assert_array_equal(old.weights(pd.DataFrame({"age": ["70", "6"]}), 2)[0], [1, 0])
    with pytest.raises(ValueError, match="'age' must hold numbers"):
        old.weights(pd.DataFrame({"age": ["x", "6"]}), 2)


SPELT = {  # two before the cut, two after
    "time": ["2024-03-30", "2024-03-30T12:00:00", "2024-04-01T00:00:00.000500", "2024-04-01 01:00"],
    "zoned time": [
        "2024-03-30T12:00:00Z",
        "2024-03-31T00:30:00+01:00",
        "2024-03-31T02:30:00.5+02:00",
        "2024-04-01 01:00:00+0200",
    ],
}


@pytest.mark.parametrize("kind", SPELT)
def test_times_of_one_batch_may_be_spelt_differently(kind):
    value = "2024-03-31" + ("T00:00:00+00:00" if kind == "zoned time" else "")
    late = one_rule("late", {"column": "t", "op": ">=", "value": value}, {"t": kind})
    found = late.weights(pd.DataFrame({"t": [*SPELT[kind], None]}), 5)[0]
    np.testing.assert_array_equal(found, [0, 0, 1, 1, 0])
    for text, held in zip(SPELT[kind], found, strict=False):
        assert late.weights(pd.DataFrame({"t": [text]}), 1)[0, 0] == held
    apart = pd.DataFrame({"t": [pd.Timestamp(text) for text in SPELT[kind]]}, dtype=object)
    np.testing.assert_array_equal(late.weights(apart, 4)[0], [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("time", [1_711_756_800, 1_711_929_600]),
        ("time", ["2024-03-30T12:00:00Z", "2024-04-01T12:00:00Z"]),
        ("zoned time", [1_711_756_800_000, 1_711_929_600_000]),
        ("zoned time", ["2024-03-30T12:00:00Z", "2024-04-01T12:00:00"]),
        ("zoned time", ["2024-03-30", "2024-04-01"]),
        ("number", [True, False]),
    ],
)
def test_what_could_mean_several_things_is_refused(kind, values):
    cut = {"number": 0, "time": "2024-03-31", "zoned time": "2024-03-31T00:00:00+00:00"}[kind]
    late = one_rule("late", {"column": "t", "op": ">=", "value": cut}, {"t": kind})
    for n in (1, 2):
        with pytest.raises(ValueError, match="'t' must hold"):
            late.weights(pd.DataFrame({"t": values[-n:]}), n)


def test_the_runtime_imports_nothing_but_numpy_pandas_and_the_standard_library(tmp_path):
    folder = Path(runtime.__path__[0])
    shutil.copytree(folder, tmp_path / "served")
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); before = set(sys.modules)\n"
        "import served.model\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in set(sys.modules) - before})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert "served" in loaded
    assert not loaded & {"huc_monitor", "huc_mlflow", "mlflow", "numba", "sklearn", "scipy"}
