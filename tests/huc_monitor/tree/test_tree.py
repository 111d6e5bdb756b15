from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from huc_monitor.errors import InvalidTreeError, UnknownNameError
from huc_monitor.tree import LabelTree

TOY = {"survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]}, "died": None}
TOY_PATHS = [
    "survived/milder/none",
    "survived/milder/assisted",
    "survived/major/limited",
    "survived/major/coma",
    "died",
]


@pytest.fixture
def toy():
    return LabelTree.from_nested(TOY, level_names=["status", "severity", "state"])


@st.composite
def trees(draw, max_nodes=25):
    """Random shapes, unary and multiway, built from a random parent for each node."""
    n = draw(st.integers(1, max_nodes))
    parent_of = {"n0": None}
    for i in range(1, n):
        parent_of[f"n{i}"] = f"n{draw(st.integers(0, i - 1))}"
    return LabelTree.from_parents(parent_of)


class TestTheToyTree:
    def test_leaves_and_branches_are_in_depth_first_order(self, toy):
        assert toy.leaves == ("none", "assisted", "limited", "coma", "died")
        assert toy.branches == toy.nodes == ("root", "survived", "milder", "major")
        assert (toy.root, toy.n_leaves, toy.height) == ("root", 5, 3)

    def test_relations_between_names(self, toy):
        assert toy.children("survived") == ("milder", "major")
        assert toy.children("coma") == ()
        assert toy.parent("milder") == "survived"
        assert toy.parent("root") is None
        assert toy.ancestors("coma") == ("root", "survived", "major")
        assert toy.ancestors("root") == ()
        assert [toy.depth(name) for name in ("root", "died", "coma")] == [0, 1, 3]
        assert toy.leaves_under("major") == ("limited", "coma")
        assert toy.leaves_under("died") == ("died",)
        assert toy.leaf_index("coma") == 3
        assert toy.branch_index("major") == 3

    def test_levels_count_a_shallow_leaf_as_its_own_group(self, toy):
        assert toy.level(0) == ("root",)
        assert toy.level(1) == ("survived", "died")
        assert toy.level("severity") == ("milder", "major", "died")
        assert toy.level(3) == toy.leaves
        assert toy.level_codes("severity").tolist() == [0, 0, 1, 1, 2]
        assert toy.level_codes(2).dtype == np.int64

    def test_arrays_by_hand(self, toy):
        arrays = toy.arrays
        assert (arrays.n_leaves, arrays.n_branches) == (5, 4)
        assert arrays.start.tolist() == [0, 0, 0, 2]
        assert arrays.stop.tolist() == [5, 4, 2, 4]
        assert arrays.depth.tolist() == [0, 1, 2, 2]
        assert arrays.parent.tolist() == [-1, 0, 1, 1]
        assert arrays.child_ptr.tolist() == [0, 2, 4, 6, 8]
        assert arrays.child_code.tolist() == [1, -5, 2, 3, -1, -2, -3, -4]
        assert arrays.path_ptr.tolist() == [0, 3, 6, 9, 12, 13, 13, 14, 16, 18]
        assert arrays.path_branch.tolist()[:13] == [0, 1, 2, 0, 1, 2, 0, 1, 3, 0, 1, 3, 0]
        assert arrays.path_branch.tolist()[13:] == [0, 0, 1, 0, 1]
        assert arrays.path_child.tolist()[:13] == [0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 1]
        assert arrays.path_child.tolist()[13:] == [0, 0, 0, 0, 1]

    def test_render_counts_leaves_below_the_depth_asked_for(self, toy):
        expected = "root\n├── survived (4 leaves)\n└── died"
        assert toy.render(max_depth=1) == expected

    def test_repr_is_one_short_line(self, toy):
        assert repr(toy) == "LabelTree(root='root', n_leaves=5, n_branches=4, height=3)"
        assert repr(toy.arrays) == "TreeArrays(n_leaves=5, n_branches=4)"


class TestConstruction:
    @pytest.mark.parametrize(
        "same",
        [
            LabelTree.from_nested(
                [
                    {
                        "survived": [
                            {"milder": ["none", "assisted"]},
                            {"major": ["limited", "coma"]},
                        ]
                    },
                    "died",
                ]
            ),
            LabelTree.from_nested(
                {
                    "survived": {
                        "milder": {"none": {}, "assisted": []},
                        "major": ("limited", "coma"),
                    },
                    "died": [],
                }
            ),
            LabelTree.from_nested({"root": TOY}, root=None),
            LabelTree.from_paths(TOY_PATHS),
            LabelTree.from_paths([path.split("/") for path in TOY_PATHS]),
            LabelTree.from_parents(
                {
                    "survived": "root",
                    "milder": "survived",
                    "none": "milder",
                    "assisted": "milder",
                    "major": "survived",
                    "limited": "major",
                    "coma": "major",
                    "died": "root",
                }
            ),
        ],
    )
    def test_every_way_of_writing_the_toy_gives_the_same_tree(self, same):
        toy = LabelTree.from_nested(TOY)
        assert same == toy
        assert hash(same) == hash(toy)
        assert same.fingerprint == toy.fingerprint

    def test_children_follow_first_mention_even_when_paths_are_interleaved(self):
        assert LabelTree.from_paths(["b/x", "a/y", "b/z"]).leaves == ("x", "z", "y")

    def test_a_single_top_key_stays_below_the_implicit_root(self):
        tree = LabelTree.from_nested({"animal": ["cat", "dog"]})
        assert tree.nodes == ("root", "animal")
        assert tree.branches == ("animal",)

    def test_whole_numbers_become_strings(self):
        assert LabelTree.from_nested({1: [2, np.int64(3)]}).leaves == ("2", "3")

    def test_lists_inside_lists_are_named_after_their_leaves(self):
        tree = LabelTree.from_nested([["a", "b"], ["c", ["d", "e"]]])
        assert tree.branches == ("root", "a..b", "c..e", "d..e")

    def test_a_tree_may_be_one_leaf(self):
        for tree in (LabelTree.flat(["only"]), LabelTree.from_parents({"only": None})):
            assert tree.leaves == ("only",)
            assert tree.branches == ()
            assert tree.arrays.path_ptr.tolist() == [0, 0]
            assert LabelTree.from_dict(tree.to_dict()) == tree
            assert tree.encode(["only"]).tolist() == [0]

    def test_a_flat_tree_takes_any_collection(self):
        assert LabelTree.flat(np.array(["a", "b"])).arrays.child_code.tolist() == [-1, -2]
        assert LabelTree.flat(name for name in "ab").leaves == ("a", "b")


class TestSerialisation:
    @given(trees())
    def test_a_tree_survives_json(self, tree):
        assert LabelTree.from_dict(json.loads(json.dumps(tree.to_dict()))) == tree

    def test_level_names_survive(self, toy):
        again = LabelTree.from_dict(toy.to_dict())
        assert again == toy
        assert again.level_names == ("status", "severity", "state")

    def test_the_schema_is_versioned_and_readable(self, toy):
        assert toy.to_dict() == {
            "schema_version": 1,
            "root": "root",
            "level_names": ["status", "severity", "state"],
            "children": {
                "root": ["survived", "died"],
                "survived": ["milder", "major"],
                "milder": ["none", "assisted"],
                "major": ["limited", "coma"],
            },
        }

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"schema_version": 2}, "schema_version 1; got 2"),
            ({"children": ["a"]}, "hold 'children'"),
            ({"children": {"root": "ab"}}, "hold 'children'"),
            ({"level_names": "abc"}, "hold 'children'.* and a list of 'level_names'"),
            ({"root": None}, "name nodes by strings; got None"),
            ({"root": "elsewhere"}, "one root; got 2: 'elsewhere', 'root'"),
            ({"children": {"root": ["root"]}}, "one parent; got 'root' under None and 'root'"),
            ({"children": {"root": ["a"], "b": ["c"], "c": ["b"]}}, "cycle; got 'c' -> 'b' -> 'c'"),
        ],
    )
    def test_foreign_data_is_refused(self, toy, change, message):
        with pytest.raises(InvalidTreeError, match=f"^`data` must .*{message}"):
            LabelTree.from_dict(toy.to_dict() | {"level_names": []} | change)

    def test_something_else_altogether_is_refused(self):
        with pytest.raises(InvalidTreeError, match="schema_version 1; got a value of type list"):
            LabelTree.from_dict([])

    @given(trees(), st.data())
    def test_the_fingerprint_changes_with_a_name(self, tree, data):
        old = data.draw(st.sampled_from((*tree.nodes, *tree.leaves)))
        text = json.dumps(tree.to_dict()).replace(f'"{old}"', '"renamed"')
        assert LabelTree.from_dict(json.loads(text)).fingerprint != tree.fingerprint

    @given(trees(), st.data())
    def test_the_fingerprint_changes_with_the_order_of_children(self, tree, data):
        if tree.branches:
            node = data.draw(st.sampled_from(tree.branches))
            changed = tree.to_dict()
            changed["children"][node].reverse()
            other = LabelTree.from_dict(changed)
            assert other.fingerprint != tree.fingerprint
            assert other != tree

    def test_the_fingerprint_is_the_same_in_every_process_and_release(self, toy):
        assert toy.fingerprint == "c0ac7b92274b7fe4"

    def test_copies_are_equal_and_their_arrays_stay_read_only(self, toy):
        _ = toy.arrays
        for again in (copy.deepcopy(toy), pickle.loads(pickle.dumps(toy))):  # noqa: S301
            assert again == toy
            assert not again.arrays.start.flags.writeable


class TestImmutability:
    def test_attributes_cannot_be_set(self, toy):
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'level_names'"):
            toy.level_names = ()

    def test_arrays_cannot_be_written(self, toy):
        with pytest.raises(ValueError, match="read-only"):
            toy.arrays.start[0] = 7

    def test_the_description_is_not_kept(self):
        nested = {"a": ["x", "y"]}
        tree = LabelTree.from_nested(nested)
        nested["a"].append("z")
        assert tree.leaves == ("x", "y")


class TestShape:
    @given(trees())
    def test_children_partition_the_contiguous_slice_of_their_branch(self, tree):
        arrays = tree.arrays
        for b, name in enumerate(tree.branches):
            assert tree.leaves[arrays.start[b] : arrays.stop[b]] == tree.leaves_under(name)
            edges = [arrays.start[b]]
            for code in arrays.child_code[arrays.child_ptr[b] : arrays.child_ptr[b + 1]]:
                low, high = (
                    (arrays.start[code], arrays.stop[code]) if code >= 0 else (-1 - code, -code)
                )
                assert low == edges[-1]
                edges.append(high)
            assert edges[-1] == arrays.stop[b]
            assert all(low < high for low, high in pairwise(edges))

    @given(trees())
    def test_children_of_a_branch_are_the_displayed_ones(self, tree):
        arrays = tree.arrays
        for b, name in enumerate(tree.branches):
            codes = arrays.child_code[arrays.child_ptr[b] : arrays.child_ptr[b + 1]]
            ends = [tree.branches[code] if code >= 0 else tree.leaves[-1 - code] for code in codes]
            assert [
                child in (*tree.ancestors(end), end)
                for child, end in zip(tree.children(name), ends, strict=True)
            ] == [True] * len(ends)
            assert arrays.depth[b] == tree.depth(name)

    @given(trees())
    def test_paths_agree_with_ancestors(self, tree):
        arrays = tree.arrays
        for k, end in enumerate((*tree.leaves, *tree.branches)):
            path = slice(arrays.path_ptr[k], arrays.path_ptr[k + 1])
            names = [tree.branches[b] for b in arrays.path_branch[path]]
            assert names == [node for node in tree.ancestors(end) if node in tree.branches]
            for name, rank in zip(names, arrays.path_child[path], strict=True):
                below = tree.leaves_under(tree.children(name)[rank])
                assert set(tree.leaves_under(end)) <= set(below)

    @given(trees())
    def test_parent_is_the_nearest_branch_above(self, tree):
        for b, name in enumerate(tree.branches):
            above = [node for node in tree.ancestors(name) if node in tree.branches]
            expected = tree.branch_index(above[-1]) if above else -1
            assert tree.arrays.parent[b] == expected

    @given(trees(), st.data())
    def test_level_codes_name_the_ancestor_at_that_depth(self, tree, data):
        level = data.draw(st.integers(0, tree.height))
        groups = tree.level(level)
        for leaf, code in zip(tree.leaves, tree.level_codes(level), strict=True):
            assert groups[code] == (*tree.ancestors(leaf), leaf)[: level + 1][-1]

    @given(trees())
    def test_every_node_is_drawn_once_at_its_depth(self, tree):
        drawn = [line.replace("─", " ").split() for line in tree.render().splitlines()]
        names = [words[-1] for words in drawn]
        assert sorted(names) == sorted((*tree.nodes, *tree.leaves))
        for line in tree.render().splitlines():
            name = line.split()[-1]
            assert line.index(name) == 4 * tree.depth(name)

    def test_unary_nodes_are_displayed_but_do_not_compute(self):
        tree = LabelTree.from_nested({"only": {"again": ["x", {"y": ["z"]}]}})
        assert tree.nodes == ("root", "only", "again", "y")
        assert tree.branches == ("again",)
        assert tree.arrays.depth.tolist() == [2]
        assert tree.arrays.child_code.tolist() == [-1, -2]
        with pytest.raises(UnknownNameError, match="got 'only', which has a single child"):
            tree.branch_index("only")


class TestScale:
    def test_twenty_thousand_leaves(self):
        tree = LabelTree.from_nested(
            {f"s{i}": {f"g{j}": list(range(20)) for j in range(20)} for i in range(50)}
        )
        assert tree.n_leaves == 20_000
        assert tree.leaves[-1] == "s49/g19/19"
        assert tree.arrays.path_ptr[tree.n_leaves] == 60_000
        assert LabelTree.from_paths(tree.to_paths()) == tree

    def test_a_chain_of_five_thousand_unary_nodes(self):
        nested = ["x", "y"]
        for i in range(5000):
            nested = {f"n{i}": nested}
        tree = LabelTree.from_nested(nested)
        assert tree.height == 5001
        assert tree.arrays.depth.tolist() == [5000]
        assert LabelTree.from_dict(json.loads(json.dumps(tree.to_dict()))) == tree
        assert LabelTree.from_paths(tree.to_paths()) == tree
        assert tree.render().count("\n") == 5002
        assert len(tree.ancestors("x")) == 5001

    def test_paths_too_long_for_memory_are_refused(self):
        parents = {}
        for i in range(12_000):
            parents[f"leaf{i}"] = f"n{i}"
            parents[f"n{i + 1}"] = f"n{i}"
        tree = LabelTree.from_parents(parents)
        with pytest.raises(
            InvalidTreeError, match=r"at most 67,108,864 branches .* shallower tree"
        ):
            _ = tree.arrays
