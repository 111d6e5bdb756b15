"""Subgroups by the label: refused by its name elsewhere, doubted by its values here."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import huc_monitor as hm
from huc_monitor.subgroups._outcome import doubt_outcome

TREE = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
ASKED = "Is the column "


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([2, 2, 2], 900)
    codes = (p.cumsum(axis=1) < rng.random((900, 1))).sum(axis=1)
    leaves = np.array(TREE.leaves, dtype=object)
    frame = pd.DataFrame(
        {
            "label": leaves[codes],
            "predicted": leaves[p.argmax(axis=1)],
            "branch": np.where(codes == 2, "dog", "cat"),
            "spelled": np.char.upper(leaves[codes].astype(str)),
            "code": codes,
            "site": rng.choice(["east", "west", "north"], 900),
            "age": rng.integers(18, 90, 900),
            "row": np.arange(900),
            "constant": "one",
            "visits": [[1]] * 900,
        }
    )
    return p, codes, frame


def test_columns_that_go_with_the_labels_or_name_nodes_are_doubted_and_no_others(rows):
    _, codes, frame = rows
    (said,) = doubt_outcome(frame, frame.columns, codes, TREE)
    assert said.startswith(
        "Is the column 'label' (it goes with the labels) or 'predicted' (it holds names of the "
        "tree) or 'branch' (it holds names of the tree) or 'spelled' (it goes with the labels) or "
        "'code' (it goes with the labels) the label? Then leave it out of the subgroups: grouped by"
    )
    assert said.endswith("The predicted class is fine.")
    assert doubt_outcome(frame, ["site", "age", "row", "constant", "visits"], codes, TREE) == ()


def test_a_gap_and_a_slip_are_told_apart(rows):
    _, codes, frame = rows
    gap = frame["spelled"].mask(frame.index == 7)
    slip = frame["spelled"].mask(frame.index == 7, "ELK")
    assert doubt_outcome({"x": gap}, ["x"], codes, TREE)
    assert doubt_outcome({"x": slip}, ["x"], codes, TREE) == ()


@pytest.mark.parametrize("form", ["object", "string[pyarrow]", "category"])
def test_gaps_among_several_labels_hide_no_label(rows, form):
    _, codes, frame = rows
    gaps = frame["spelled"].mask(frame.index % 10 == 3).astype(form)
    assert len(set(codes[3:50:10])) > 1
    assert doubt_outcome({"x": gaps}, ["x"], codes, TREE)
    assert doubt_outcome({"x": frame["code"].mask(gaps.isna())}, ["x"], codes, TREE)


def test_few_rows_go_with_the_labels_by_chance():
    frame = pd.DataFrame({"sex": ["f", "m", "f"]})
    assert doubt_outcome(frame, ["sex"], [0, 1, 0], TREE) == ()


@pytest.mark.parametrize("form", [lambda f: f, dict, pl.DataFrame, pa.Table.from_pandas])
def test_an_audit_asks_of_the_columns_that_subgroups_read(form, rows):
    p, codes, frame = rows
    few = frame[["label", "spelled", "site"]]
    for by, n_asked in (({"label": "each", "site": "each"}, 1), ({"site": "each"}, 0)):
        result = hm.audit(
            p,
            codes,
            tree=TREE,
            subgroups=hm.Subgroups.from_reference(frame, by),
            features=form(few),
            bounds=None,
        )
        asked = [note for note in result.notes if note.startswith(ASKED)]
        assert len(asked) == n_asked
        assert not any("spelled" in note for note in asked)


def test_a_search_asks_of_the_columns_that_it_searches(rows):
    p, codes, frame = rows
    for names, n_asked in ((["predicted", "site"], 1), (["site", "age"], 0)):
        found = hm.discover(p, codes, tree=TREE, features=frame[names])
        assert sum(note.startswith(ASKED) for note in found.notes) == n_asked


def test_a_column_that_is_nearly_always_missing_is_not_taken_for_the_label(rows):
    _, codes, _ = rows
    column = pd.Series([None] * len(codes), dtype=object)
    column[int(np.argmax(codes == 0))], column[int(np.argmax(codes == 1))] = "x", "y"
    assert doubt_outcome({"c": column}, ["c"], codes, TREE) == ()
