from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from huc_monitor.errors import InvalidInputError
from huc_monitor.tree import LabelTree
from huc_monitor.tree.labels import LeafCodes

TREE = LabelTree.from_nested({"survived": ["none", "coma", "limited"], "died": None})


@given(st.lists(st.integers(0, 3), max_size=30))
def test_every_container_of_names_or_codes_gives_the_same_codes(codes):
    names = [TREE.leaves[code] for code in codes]
    forms = [
        names,
        tuple(names),
        np.array(names, dtype=str),
        np.array(names, dtype=object),
        pd.Series(names, dtype="str", index=range(5, 5 + len(names))),
        pd.Series(names, dtype=object),
        pd.Index(names, dtype=object),
        pd.Categorical(names, categories=["died", "unused", *TREE.leaves[:3]]),
        pd.Series(names, dtype="string"),
        codes,
        np.array(codes, dtype=np.uint8),
        np.array(codes, dtype=object),
        pd.Series(codes, dtype="int32"),
        pd.array(codes, dtype="Int64"),
        pd.Categorical(codes, categories=[3, 9, 2, 1, 0]),
    ]
    for form in forms:
        encoded = TREE.encode(form)
        assert encoded.dtype == np.int64
        assert encoded.tolist() == codes


@pytest.mark.parametrize("container", [list, np.array, pd.Series, pd.Categorical])
def test_an_unknown_name_is_shown_with_its_row_and_a_close_match(container):
    message = (
        r"^`labels` must be names of nodes of the tree; got 'comma' \(row 17\)\. "
        r"Did you mean 'coma'\?$"
    )
    with pytest.raises(InvalidInputError, match=message):
        TREE.encode(container(["none"] * 17 + ["comma", "zzz"]))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["none", None], r"not be missing; got a missing value \(row 1\). Drop the row"),
        (["none", float("nan")], r"not be missing; got a missing value \(row 1\)"),
        ([0.0, np.nan], r"not be missing; got a missing value \(row 1\)"),
        (pd.Series(["none", None], dtype="str"), r"not be missing; got a missing value \(row 1\)"),
        (pd.Categorical([None, "none"]), r"not be missing; got a missing value \(row 0\)"),
        (pd.array([1, None], dtype="Int64"), r"not be missing; got a missing value \(row 1\)"),
        (np.ma.array([1, 2], mask=[False, True]), r"not be missing; got a missing value \(row 1\)"),
        ([0, 4], r"leaf codes from 0 to 3; got 4 \(row 1\). Pass leaf names"),
        ([0, -1], r"leaf codes from 0 to 3; got -1 \(row 1\)"),
        ([0, 2**80], r"leaf codes from 0 to 3; got 1208925819614629174706176 \(row 1\)"),
        (np.array([2**63], dtype=np.uint64), r"codes from 0 to 3; got 9223372036854775808"),
        ([True, False], r"names or integer codes; got True of type bool \(row 0\). Use labels.as"),
        (np.array([True]), r"integer codes; got np.True_ of type bool \(row 0\)"),
        ([1, True], r"integer codes; got True of type bool \(row 1\). Use labels.astype\(int\)"),
        ([0.0, 1.5], r"got 1.5 of type float \(row 1\). Use a string in every row"),
        (["none", "9"], r"names of nodes of the tree; got '9' \(row 1\)"),
        (["none", "01"], r"names of nodes of the tree; got '01' \(row 1\)"),
        ([b"none"], r"got b'none' of type bytes \(row 0\). Decode them"),
        ([dt.date(2024, 1, 1)], r"got datetime.date\(2024, 1, 1\) of type date \(row 0\)"),
        (["survived"], r"reach a leaf here; got the inner node 'survived' \(row 0\)"),
        ("none", "one-dimensional; got a str. Pass one label per row"),
        (3, "one-dimensional; got a int"),
        ([["none"], ["coma"]], r"one-dimensional; got shape \(2, 1\)"),
        (pd.DataFrame({"y": ["none"]}), r"one-dimensional; got shape \(1, 1\)"),
    ],
)
def test_bad_labels(labels, message):
    with pytest.raises(InvalidInputError, match=f"^`labels` must .*{message}"):
        TREE.encode(labels)


def test_unused_categories_do_not_matter():
    assert TREE.encode(pd.Categorical(["coma"], categories=[2.5, "coma"])).tolist() == [1]


def test_no_labels_give_no_codes():
    assert TREE.encode([]).tolist() == []


def test_integers_are_names_where_any_leaf_is_called_by_a_number():
    tree = LabelTree.from_nested({"even": [0, 2], "odd": [1, 3]})
    for labels in ([0, 1, 2, 3], ["0", "1", "2", "3"], [0.0, 1.0, 2.0, 3.0]):
        assert tree.encode(labels).tolist() == [0, 2, 1, 3]
    message = r"names where leaves are called by numbers; got 4 \(row 0\). Use numpy.array\(tree"
    with pytest.raises(InvalidInputError, match=message):
        tree.encode([4])


def test_codes_by_declaration_are_codes_whatever_leaves_are_called():
    tree = LabelTree.from_nested({"even": [0, 2], "odd": [1, 3]})
    assert tree.encode(LeafCodes(np.array([0, 1, 2, 3]))).tolist() == [0, 1, 2, 3]
    with pytest.raises(InvalidInputError, match=r"got 7 \(row 1\)"):
        tree.encode(LeafCodes(np.array([0, 7])))
    assert tree.encode(LeafCodes(np.array([0, 4])), any_depth=True).tolist() == [0, 4]


def test_integers_are_fine_where_names_and_codes_agree():
    assert LabelTree.flat(range(10)).encode([7, 0]).tolist() == [7, 0]


def test_the_input_is_left_as_it_was():
    labels = np.array([0, 1, 2])
    TREE.encode(labels)[0] = 3
    assert labels.tolist() == [0, 1, 2]
