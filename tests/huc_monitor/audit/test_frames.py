"""DataFrames of any library are read by name, everywhere."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import huc_monitor as hm
from huc_monitor.sources import FrameTable

TREE = hm.LabelTree.from_nested({"b": ["x", "a", "z"], "c": ["y", "m"]})
LEAVES = list(TREE.leaves)
UTILITIES = [hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2)]
FORMS = {
    "pandas": lambda frame: frame,
    "pandas with Arrow": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda frame: pl.DataFrame(frame.to_dict("list")),
    "pyarrow": lambda frame: pa.table(frame.to_dict("list")),
    "record batch": lambda frame: pa.RecordBatch.from_pydict(frame.to_dict("list")),
}


def rows(seed, n=80):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(5), n)
    labels = np.array([rng.choice(LEAVES, p=row) for row in p])
    features = pd.DataFrame({"age": rng.integers(20, 90, n), "sex": rng.choice(["f", "m"], n)})
    return p, labels, features, rng


def groups_of(features):
    return hm.Subgroups.from_reference(features, {"age": "median", "sex": "each"})


def bits(result):
    return json.dumps(result.to_dict())


@pytest.mark.seconds
@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 60),
    form=st.sampled_from(sorted(FORMS)),
    order=st.permutations([*LEAVES, "age", "sex", "label"]),
)
def test_every_form_of_the_same_rows_gives_the_same_bits(seed, n, form, order):
    p, labels, features, _ = rows(seed, n)
    options = {"tree": TREE, "utilities": UTILITIES, "n_draws": 100}
    expected = hm.audit(p, labels, subgroups=groups_of(features), features=features, **options)
    whole = pd.DataFrame(p, columns=LEAVES).join(features).assign(label=labels)
    frame = FORMS[form](whole[list(order)])
    label = frame["label"] if form != "record batch" else frame.column("label")
    found = hm.audit(frame, label, subgroups=groups_of(frame), features=frame, **options)
    assert bits(found) == bits(expected)


@pytest.mark.parametrize("form", FORMS)
def test_alphabetical_columns_are_put_in_order_wherever_rows_come_in(form):
    p, labels, features, _ = rows(1, 300)
    frame = FORMS[form](pd.DataFrame(p, columns=LEAVES)[sorted(LEAVES)])
    told = FORMS[form](features)
    what = {"tree": TREE, "utilities": UTILITIES}
    for one, other in zip(
        hm.decompose(p, labels, **what), hm.decompose(frame, labels, **what), strict=True
    ):
        assert np.array_equal(one.contributions, other.contributions)
    boost = hm.HUCBoost(**what, max_updates=3).fit(frame, labels)
    plain = hm.HUCBoost(**what, max_updates=3).fit(p, labels)
    assert np.array_equal(boost.predict_proba(frame), plain.predict_proba(p))
    scaling = hm.TemperatureScaling().fit(frame, labels, tree=TREE)
    expected = hm.TemperatureScaling().fit(p, labels, tree=TREE).predict_proba(p)
    assert np.array_equal(scaling.predict_proba(frame), expected)
    detectors = [
        hm.EDetector(**what, subgroups=groups_of(features), tolerance=0.05) for _ in range(2)
    ]
    detectors[0].update(frame, labels, told)
    detectors[1].update(p, labels, features)
    assert detectors[0].to_dict() == detectors[1].to_dict()
    planned = [hm.pilot_candidates(one, labels, **what) for one in (p, frame)]
    pd.testing.assert_frame_equal(*planned)


@pytest.mark.parametrize("form", ["polars", "pyarrow"])
def test_labels_and_weights_come_in_any_column(form):
    p, labels, _, rng = rows(2)
    weights = rng.integers(1, 4, len(p))
    column = FORMS[form](pd.DataFrame({"label": labels, "weight": weights}))
    what = {"tree": TREE, "utilities": UTILITIES, "bounds": "sharp"}
    found = hm.audit(p, column["label"], weights=column["weight"], **what)
    assert bits(found) == bits(hm.audit(p, labels, weights=weights, **what))
    named = pl.Series(labels.tolist(), dtype=pl.Categorical)
    assert np.array_equal(TREE.encode(named), TREE.encode(labels))


@pytest.mark.parametrize("form", FORMS)
def test_a_missing_leaf_is_refused_in_every_form(form):
    p, labels, _, _ = rows(3)
    frame = FORMS[form](pd.DataFrame(p, columns=[*LEAVES[:4], "other"]))
    with pytest.raises(hm.InvalidInputError, match="a column for every leaf; 'm' is missing"):
        hm.audit(frame, labels, tree=TREE)


def test_a_classifier_reads_subgroups_from_a_polars_frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"u": rng.normal(size=400), "v": rng.normal(size=400)})
    y = np.where(frame["u"] + rng.normal(size=400) > 0, "cat", "dog")
    answers = []
    for table in (frame, pl.DataFrame(frame.to_dict("list"))):
        model = hm.HUCCalibratedClassifier(
            LogisticRegression(), subgroups={"v": "median"}, method="noise_aware"
        )
        answers.append(model.fit(table, y).predict_proba(table))
    assert np.array_equal(*answers)


def test_a_source_takes_frames_of_any_library():
    frame = pl.DataFrame({"b": [1.0], "a": ["x"]})
    assert list(FrameTable(frame).columns()) == ["b", "a"]


def test_a_tree_may_be_a_path_and_utilities_may_be_left_out(tmp_path):
    p, labels, _, _ = rows(4)
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(TREE.to_dict()))
    expected = bits(hm.audit(p, labels, tree=TREE, utilities=UTILITIES))
    for tree in (path, str(path), TREE):
        assert bits(hm.audit(p, labels, tree=tree)) == expected


# Rounding


@pytest.mark.parametrize(("kind", "n_leaves"), [("f4", 2_000), ("f4", 50), ("f2", 5), ("f2", 40)])
def test_rows_that_miss_one_by_their_own_rounding_are_divided_by_their_sum(kind, n_leaves):
    rng = np.random.default_rng(0)
    logits = rng.normal(scale=3, size=(400, n_leaves)).astype(kind)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    total = np.zeros(len(odds), dtype=kind)
    for column in odds.T:
        total += column  # as short numbers add up one by one
    p = (odds / total[:, None]).astype(kind)
    off = np.abs(p.sum(axis=1, dtype=float) - 1)
    assert off.max() > 1e-6 or n_leaves == 50
    tree = hm.LabelTree.flat([f"c{k}" for k in range(n_leaves)])
    labels = np.array(
        [rng.choice(n_leaves, p=row) for row in p.astype(float) / p.sum(1, float)[:, None]]
    )
    what = {"tree": tree, "utilities": [hm.TopK(1)], "bounds": None}
    exact = np.where((off > 0.99e-6)[:, None], p / p.sum(axis=1, dtype=float)[:, None], p)
    expected = bits(hm.audit(exact.astype(float), labels, **what))
    assert bits(hm.audit(p, labels, **what)) == expected
    frame = pd.DataFrame(p, columns=list(tree.leaves))
    assert bits(hm.audit(frame, labels, **what)) == expected


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_rows_that_miss_one_by_more_than_rounding_are_refused(kind):
    p = np.full((3, 4), 0.25)
    p[1, 0] += {"f2": 0.02, "f4": 2e-6, "f8": 2e-6}[kind]
    with pytest.raises(hm.InvalidInputError, match=r"rows that sum to 1 within .* \(row 1\)"):
        hm.audit(p.astype(kind), [0, 1, 2], tree=hm.LabelTree.flat(list("abcd")))


def test_the_input_keeps_its_type_and_numbers():
    p = np.full((2, 40), 1 / 40, dtype=np.float16)
    copy = p.copy()
    hm.audit(p, [0, 1], tree=hm.LabelTree.flat(range(40)))
    assert p.dtype == np.float16
    assert np.array_equal(p, copy)


# The order of classes


def good_model(n, n_leaves, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_leaves, n)
    p = np.full((n, n_leaves), 0.15 / (n_leaves - 1))
    shown = np.where(rng.random(n) < 0.85, labels, rng.integers(0, n_leaves, n))
    p[np.arange(n), shown] = 0.85
    return p, labels


@pytest.mark.parametrize("n_leaves", [2, 3, 10, 100])
def test_columns_in_the_wrong_order_are_noticed_and_told_once(n_leaves):
    p, labels = good_model(1_000, n_leaves)
    what = {"tree": hm.LabelTree.flat([f"c{k:03}" for k in range(n_leaves)]), "bounds": None}
    assert hm.audit(p, labels, **what).notes == ()
    with pytest.warns(hm.HUCWarning, match=r"accuracy is .* %: is the class order right\?") as told:
        result = hm.audit(np.roll(p, 1, axis=1), labels, **what)
    assert len(told) == 1
    assert result.notes == (str(told[0].message),)
    assert hm.AuditResult.from_dict(result.to_dict()).notes == result.notes


@pytest.mark.parametrize("n_leaves", [2, 10, 100])
def test_hard_problems_and_few_rows_raise_no_suspicion(n_leaves):
    rng = np.random.default_rng(1)
    tree = hm.LabelTree.flat([f"c{k}" for k in range(n_leaves)])
    p = rng.dirichlet(np.full(n_leaves, 50.0), 5_000)
    labels = np.array([rng.choice(n_leaves, p=row) for row in p])
    assert hm.audit(p, labels, tree=tree, bounds=None).notes == ()
    p, labels = good_model(10, n_leaves)
    assert hm.audit(np.roll(p, 1, axis=1), labels, tree=tree, bounds=None).notes == ()


@pytest.mark.seconds
def test_calibrated_predictions_are_suspected_in_no_window_of_a_thousand():
    rng = np.random.default_rng(2)
    with warnings.catch_warnings(action="error"):
        for _ in range(1_000):
            n_leaves, n = int(rng.integers(2, 12)), int(rng.integers(1, 200))
            tree = hm.LabelTree.flat([f"c{k}" for k in range(n_leaves)])
            p = rng.dirichlet(np.full(n_leaves, rng.choice([0.05, 0.5, 5.0])), n)
            labels = (p.cumsum(axis=1) < rng.random((n, 1)) * p.sum(axis=1)[:, None]).sum(axis=1)
            found = hm.audit(p, labels, tree=tree, utilities=[hm.TopK(1)], bounds=None)
            assert found.notes == ()
