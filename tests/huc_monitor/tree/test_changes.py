"""Versions of a tree: what the nodes of one became in the next."""

from __future__ import annotations

import numpy as np
import pytest

import huc_monitor as hm
from huc_monitor.errors import InvalidTreeError
from huc_monitor.tree.changes import TreeChanges

OLD = {"goods": {"drinks": ["tea", "juice"], "phone": None, "pager": None, "nuts": None}}
OLD["goods"]["crisps"] = None
NEW = {"goods": {"beverages": ["tea", "juice"], "phone": ["mobile", "landline"], "snack": None}}
NEW["garden"] = ["rake", "hose"]
STEP = """
versions:
  - tree: old.json
    until: 2026-03-01
    renamed: {drinks: beverages}
    split: {phone: [mobile, landline]}
    merged: {snack: [nuts, crisps]}
    retired: {pager: goods}
    added: [garden]
"""


def read(tmp_path, text=STEP, *, new=NEW, old=OLD):
    import json

    (tmp_path / "old.json").write_text(json.dumps(old))
    (tmp_path / "changes.yaml").write_text(text)
    return TreeChanges.from_file(tmp_path / "changes.yaml", hm.LabelTree.from_nested(new))


def test_every_kind_of_change_leads_labels_and_probabilities_to_the_new_tree(tmp_path):
    (version,) = read(tmp_path).versions
    old, new = version.tree, version.newest
    assert version.names["drinks"] == "beverages"
    assert version.leaves["phone"] == ("mobile", "landline")
    assert version.leaves["nuts"] == version.leaves["crisps"] == ("snack",)
    p = np.array([0.1, 0.2, 0.3, 0.2, 0.1, 0.1])
    q = dict(zip(new.leaves, p @ version.spread, strict=True))
    assert q["tea"] == pytest.approx(0.1 + 0.2 / 5)
    assert q["mobile"] == q["landline"] == pytest.approx(0.15 + 0.2 / 5)
    assert q["snack"] == pytest.approx(0.2 + 0.2 / 5)
    assert q["rake"] == 0
    assert sum(q.values()) == pytest.approx(1)
    names = [*new.leaves, *new.branches]
    became = {
        node: names[code]
        for node, code in zip((*old.leaves, *old.branches), version.codes, strict=True)
    }
    assert became == {
        "tea": "tea",
        "juice": "juice",
        "phone": "phone",
        "pager": "goods",
        "nuts": "snack",
        "crisps": "snack",
        "goods": "goods",
        "drinks": "beverages",
    }


def test_a_branch_is_comparable_where_it_chooses_among_the_same_things(tmp_path):
    (version,) = read(tmp_path).versions
    assert version.comparable == {"beverages"}
    # "goods" had other children, and the root a single one, which is no choice.
    assert version.to_dict()["not_comparable"] == ["root", "goods"]


def test_names_that_are_numbers_in_the_file_are_names_in_every_kind_of_change(tmp_path):
    text = """
    versions:
      - tree: old.json
        until: 2026-03-01
        renamed: {1: 10}
        split: {4: [5, 6]}
        merged: {7: [2, 3]}
        retired: {8: 9}
    """
    old = {"1": ["x", "y"], "2": None, "3": None, "4": None, "8": None, "9": None}
    new = {"10": ["x", "y"], "5": None, "6": None, "7": None, "9": None}
    (version,) = read(tmp_path, text, old=old, new=new).versions
    assert version.names["1"] == "10"
    assert version.leaves["4"] == ("5", "6")
    assert version.leaves["2"] == version.leaves["3"] == ("7",)
    assert version.leaves["8"] == ("9",)


@pytest.mark.parametrize("word", ["renamed", "retired", "split", "merged"])
def test_a_change_that_is_no_mapping_is_refused(tmp_path, word):
    text = f"versions:\n- {{tree: old.json, until: 2026-03-01, {word}: [tea]}}"
    with pytest.raises(InvalidTreeError, match=f"`{word}` must lead from nodes to nodes"):
        read(tmp_path, text)


def test_splitting_a_leaf_changes_nothing_above_it(tmp_path):
    text = "versions:\n- {tree: old.json, until: 2026-03-01, split: {b: [b1, b2]}}"
    plain, split = {"a": ["x", "y"], "b": None}, {"a": ["x", "y"], "b": ["b1", "b2"]}
    (version,) = read(tmp_path, text, old=plain, new=split).versions
    assert version.comparable == {"root", "a"}
    assert version.to_dict()["not_comparable"] == []


def test_versions_chain_to_the_newest(tmp_path):
    import json

    (tmp_path / "mid.json").write_text(json.dumps({"g": {"d": ["tea", "juice"], "x": None}}))
    text = """
versions:
  - {tree: old.json, until: 2026-01-01, renamed: {drinks: d}}
  - {tree: mid.json, until: 2026-02-01, renamed: {d: e}, split: {x: [x1, x2]}}
"""
    old = {"g": {"drinks": ["tea", "juice"], "x": None}}
    new = {"g": {"e": ["tea", "juice"], "x": ["x1", "x2"]}}
    first, second = read(tmp_path, text, old=old, new=new).versions
    assert first.names["drinks"] == second.names["d"] == "e"
    assert first.leaves["x"] == ("x1", "x2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must have `versions`"),
        ("versions: []", "must have a `tree` and `until`"),
        (STEP.replace("split", "spilt"), "must not have 'spilt'"),
        (STEP.replace("    renamed: {drinks: beverages}\n", ""), "node 'drinks' is gone"),
        (STEP.replace("    added: [garden]\n", ""), "leaf 'rake' is new"),
        (STEP.replace("    retired: {pager: goods}\n", ""), "leaf 'pager' is gone"),
        (STEP.replace("[nuts, crisps]", "[nuts, crips]"), "'crips' must be a node of the tree"),
        (STEP.replace("[mobile, landline]", "[mobile, landlin]"), "Did you mean 'landline'"),
        (STEP.replace("2026-03-01", "soon"), "`until` must be a date or time; got 'soon'"),
        (STEP.replace("split: {phone:", "split: {drinks:"), "from a leaf to leaves"),
    ],
)
def test_what_does_not_add_up_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text)


def test_times_must_grow(tmp_path):
    entry = STEP.strip().removeprefix("versions:\n")
    with pytest.raises(InvalidTreeError):
        read(tmp_path, f"versions:\n{entry}\n{entry}")
