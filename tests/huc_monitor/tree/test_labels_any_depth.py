"""Labels at inner nodes, paths, sets and other spellings, through the one encoder."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import huc_monitor as hm
from huc_monitor.errors import InvalidInputError, InvalidTreeError

TREE = hm.LabelTree.from_nested(
    {
        "billing": {"refund": ["partial", "full"], "invoice": None},
        "shipping": ["late", "lost"],
        "only": {"chain": ["end"]},
    }
)
K = TREE.n_leaves


def node_of(code):
    return TREE.leaves[code] if code < K else TREE.branches[code - K]


@pytest.mark.parametrize(
    ("label", "node"),
    [
        ("partial", "partial"),
        ("refund", "refund"),
        ("root", "root"),
        ("billing/refund", "refund"),
        ("billing > refund > full", "full"),
        ("root/billing/refund/full", "full"),
        ("billing/full", "full"),
        ("/shipping/lost", "lost"),
        ("shipping::late", "late"),
        ("billing|invoice", "invoice"),
        ("only", "end"),
        ("only/chain", "end"),
        ({"partial", "full"}, "refund"),
        ({"partial", "late"}, "root"),
        ({"full"}, "full"),
        ({"partial", "refund"}, "refund"),
        ('["partial", "invoice"]', "billing"),
        (np.array(["late", "lost"], dtype=object), "shipping"),
        (3, "late"),
    ],
)
def test_a_label_is_the_node_it_says(label, node):
    labels = np.empty(1, dtype=object)
    labels[0] = label
    (code,) = TREE.encode(labels, any_depth=True)
    assert node_of(code) == node


@pytest.mark.parametrize(
    "label",
    ["refund/billing", "shipping/full", "billing/", "billing/none", "[", "[]", '["full", "zzz"]',
     "[[1]]", frozenset(), 6, "billing/refund/full/more"],
)  # fmt: skip
def test_what_is_no_node_is_found_nowhere(label):
    labels = np.empty(1, dtype=object)
    labels[0] = label
    if label == "billing/":
        assert node_of(TREE.label_encoder().find(labels)[0]) == "billing"
    else:
        assert TREE.label_encoder().find(labels).tolist() == [-1]


def test_numbers_stay_leaf_codes_where_an_inner_node_is_called_by_one():
    tree = hm.LabelTree.from_nested({"1": ["a", "b"], "c": None})
    assert tree.encode([1, "1"], any_depth=True).tolist() == [1, 1]


@given(st.lists(st.integers(0, K - 1), min_size=1, max_size=4))
def test_a_set_is_the_lowest_node_above_its_leaves(codes):
    names = [TREE.leaves[code] for code in codes]
    labels = np.empty(1, dtype=object)
    labels[0] = set(names)
    found = node_of(TREE.encode(labels, any_depth=True)[0])
    above = [{*TREE.ancestors(name), name} for name in names]
    common = set.intersection(*above)
    assert found == max(common, key=TREE.depth)


def test_a_mapping_brings_other_spellings_in_every_function():
    mapping = {"Erstattung": "billing/refund", "verloren": "lost", "7": "late"}
    labels = hm.Labels(pd.Series(["Erstattung", "verloren", "late", 7]), mapping=mapping)
    names = [node_of(code) for code in TREE.encode(labels, any_depth=True)]
    assert names == ["refund", "lost", "late", "late"]
    p = np.full((4, K), 1 / K)
    assert hm.audit(p, labels, tree=TREE).n == 4


def test_a_mapping_may_be_a_file(tmp_path):
    files = {
        "map.csv": 'spelling,node\nErstattung,refund\n"a, b",lost\n',
        "map.json": json.dumps({"Erstattung": "refund", "a, b": "lost"}),
        "map.yaml": "Erstattung: refund\n'a, b': lost\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        labels = hm.Labels(["Erstattung", "a, b"], mapping=tmp_path / name)
        assert [node_of(c) for c in TREE.encode(labels, any_depth=True)] == ["refund", "lost"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("map.csv", "a,b,c\n1,2,3\n", r"two columns, spelling and node; got \['a', 'b', 'c'\]"),
        ("map.csv", "a,b\nx,lost\nx,late\n", "must not repeat a name"),
        ("map.json", "[1]", "`mapping` must be spellings .* got list"),
        ("map.yaml", "a: [lost]", r"from text to text; got \['lost'\]"),
        ("map.txt", "", "must end in one of"),
    ],
)
def test_a_mapping_file_that_is_none_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidTreeError, match=message):
        TREE.encode(hm.Labels(["late"], mapping=tmp_path / name))


def test_a_mapping_to_no_node_is_refused_by_name():
    with pytest.raises(InvalidInputError, match=r"'x' leads to 'losst'\. Did you mean 'lost'\?"):
        TREE.encode(hm.Labels(["late"], mapping={"x": "losst"}))
