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

from huc_monitor.errors import InvalidInputError, InvalidTreeError, UnknownNameError
from huc_monitor.hierarchy import LabelTree

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
        assert arrays.path_ptr.tolist() == [0, 3, 6, 9, 12, 13]
        assert arrays.path_branch.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 3, 0, 1, 3, 0]
        assert arrays.path_child.tolist() == [0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 1]

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


class TestClashingNames:
    def test_the_shortest_distinguishing_path_is_used_and_only_where_needed(self):
        tree = LabelTree.from_nested({"gafgyt": ["scan", "udp"], "mirai": ["scan", "udp", "ack"]})
        assert tree.leaves == ("gafgyt/scan", "gafgyt/udp", "mirai/scan", "mirai/udp", "ack")

    def test_names_grow_by_as_many_levels_as_it_takes(self):
        tree = LabelTree.from_paths(["a/x/s", "b/x/s", "c/y/s"])
        assert tree.leaves == ("a/x/s", "b/x/s", "y/s")
        assert tree.nodes == ("root", "a", "a/x", "b", "b/x", "c", "y")

    def test_the_separator_of_the_paths_joins_the_names(self):
        assert LabelTree.from_paths(["a.s", "b.s"], sep=".").leaves == ("a.s", "b.s")

    def test_a_child_named_like_its_parent_takes_the_path(self):
        tree = LabelTree.from_nested({"mirai": ["mirai", "ack"]})
        assert tree.children("mirai") == ("mirai/mirai", "ack")

    def test_a_name_deep_in_the_tree_may_repeat_the_roots(self):
        assert LabelTree.from_nested({"a": ["root", "x"]}).leaves == ("a/root", "x")

    def test_a_top_name_may_not_repeat_the_roots(self):
        with pytest.raises(
            InvalidTreeError, match=r"got 'root' twice. Pass another `root`, or None"
        ):
            LabelTree.from_nested({"root": ["a", "b"]})

    def test_names_that_look_like_a_path_do_not_collide_with_one(self):
        with pytest.raises(InvalidTreeError, match=r"got 'a/b' twice. Rename one"):
            LabelTree.from_nested({"a": ["b"], "a/b": None, "c": ["b"]})

    @pytest.mark.parametrize(
        "nested", [{"a": {"a": ["a", "b"]}, "b": ["a"]}, {"x": [["p"], ["q"]]}]
    )
    def test_paths_rebuild_a_tree_with_clashes(self, nested):
        tree = LabelTree.from_nested(nested)
        assert LabelTree.from_paths(tree.to_paths()) == tree

    def test_paths_refuse_a_separator_that_names_contain(self):
        tree = LabelTree.flat(["a/b", "c"])
        with pytest.raises(InvalidInputError, match=r"got '/', and there is 'a/b'. Pass another"):
            tree.to_paths()
        assert LabelTree.from_paths(tree.to_paths(sep="|"), sep="|") == tree

    def test_one_name_on_every_level_is_refused_quickly(self):
        nested = None
        for _ in range(5000):
            nested = {"a": nested}
        with pytest.raises(InvalidTreeError, match="more than 64 levels; got 'a'"):
            LabelTree.from_nested(nested)


SELF_CONTAINING = {"a": ["b"]}
SELF_CONTAINING["a"].append(SELF_CONTAINING)


class TestWhatIsNotATree:
    @pytest.mark.parametrize(
        ("nested", "message"),
        [
            ({}, "at least one leaf; got an empty tree"),
            ([], "at least one leaf; got an empty tree"),
            (None, "a mapping or a list of names; got None"),
            ("cat", "a mapping or a list of names; got 'cat'"),
            ({"a": "x"}, "below each name; got 'x' below 'a'. Write it as a list"),
            ({"a": 1}, "below each name; got 1 below 'a'"),
            ({"a": ["x", "x"]}, "got 'x' twice under 'a'. Rename or remove"),
            ({"a": ["x", {"x": ["y"]}]}, "got 'x' as both .under 'a'."),
            ({"a": [["x", "y"], ["x", "y"]]}, "unique names; got 'a/x..y' twice"),
            ({"a": ["x", []]}, "an empty list inside a list; got one under 'a'"),
            ({"a": ["x", " "]}, "empty names; got ' '. Give the node a name"),
            ({"": ["x"]}, "empty names; got ''"),
            ({"a": ["x", "y\n"]}, r"printable names; got 'y\\n'"),
            ({"a": ["\ud800"]}, "printable names"),
            ({"a": [True]}, "by strings; got True. Quote it: YAML reads"),
            ({"a": [1.5]}, "by strings; got 1.5. Quote it"),
            ({"a": [None]}, "by strings; got None. Quote it"),
            ({("a", "b"): None}, "by strings; got a value of type tuple"),
            (SELF_CONTAINING, "not contain itself; got a cycle through 'a'"),
        ],
    )
    def test_nested_descriptions(self, nested, message):
        with pytest.raises(InvalidTreeError, match=f"^`nested` must .*{message}"):
            LabelTree.from_nested(nested)

    @pytest.mark.parametrize(
        ("nested", "got"), [({"a": None, "b": None}, "2: 'a', 'b'"), ([["a"]], "1: None")]
    )
    def test_without_a_root_name_there_is_one_named_top_node(self, nested, got):
        with pytest.raises(
            InvalidTreeError, match=f"exactly one top node .* got {got}. Pass a name"
        ):
            LabelTree.from_nested(nested, root=None)

    def test_root_is_a_name_too(self):
        with pytest.raises(InvalidTreeError, match=r"^`root` must not contain empty names"):
            LabelTree.from_nested(TOY, root="")

    @pytest.mark.parametrize(
        ("paths", "message"),
        [
            ([], "got an empty tree"),
            ("a/b", "a collection of paths; got 'a/b'. Put it in a list"),
            (["a/b", "a/b"], r"not repeat a path; got 'a/b' again \(row 1\)"),
            (["a", "a/b"], r"got 'a' as both \(row 1\)"),
            (["a/b", "a"], r"got 'a' as both \(row 1\)"),
            (["a/b", "a//c"], "empty names; got ''"),
            (["a", 3], r"strings or sequences of names; got 3 \(row 1\)"),
            (["a", []], r"strings or sequences of names; got a value of type list \(row 1\)"),
        ],
    )
    def test_paths(self, paths, message):
        with pytest.raises(InvalidTreeError, match=f"^`paths`.* must .*{message}"):
            LabelTree.from_paths(paths)

    def test_an_empty_separator(self):
        with pytest.raises(InvalidTreeError, match="`sep` must be a non-empty string; got ''"):
            LabelTree.from_paths(["a"], sep="")

    @pytest.mark.parametrize(
        ("parents", "message"),
        [
            ({}, "got an empty tree"),
            ({"a": "b", "b": "a"}, "cycle; got 'a' -> 'b' -> 'a'"),
            ({"a": "a"}, "cycle; got 'a' -> 'a'"),
            ({"x": "root", "d": "a", "a": "b", "b": "a"}, "cycle; got 'a' -> 'b' -> 'a'"),
            ({"a": "r", "b": "s"}, "one root; got 2: 'r', 's'. Give all but one"),
            ({"a": None, "b": None}, "one root; got 2: 'a', 'b'"),
            ({1: "r", "1": "r"}, "one parent; got '1' under 'r' and 'r'"),
            ({"a": 1.0}, "by strings; got 1.0"),
            ([("a", "b")], "map each node to its parent; got a value of type list. Pass a dict"),
        ],
    )
    def test_parents(self, parents, message):
        with pytest.raises(InvalidTreeError, match=f"^`parents` must .*{message}"):
            LabelTree.from_parents(parents)

    def test_a_long_cycle_is_shown_in_part(self):
        parents = {f"n{i}": f"n{(i + 1) % 100}" for i in range(100)}
        with pytest.raises(
            InvalidTreeError, match=r"got 'n0' -> .*'n5' -> \.\.\. \(child -> parent\)"
        ):
            LabelTree.from_parents(parents)

    @pytest.mark.parametrize("leaves", ["ab", 3, {"a": None}])
    def test_flat_leaves(self, leaves):
        with pytest.raises(InvalidTreeError, match=r"^`leaves` must be a collection of names"):
            LabelTree.flat(leaves)

    def test_repeated_flat_leaves(self):
        with pytest.raises(InvalidTreeError, match=r"^`leaves` must .* got 'a' twice under 'root'"):
            LabelTree.flat(["a", "b", "a"])

    @pytest.mark.parametrize(
        ("level_names", "message"),
        [
            (["one"], "3 different names, one per level below the root; got .'one'."),
            (["a", "b", "a"], "3 different names"),
            ("abc", "a list of names; got 'abc'"),
            (["a", "b", ""], "empty names"),
        ],
    )
    def test_level_names(self, level_names, message):
        with pytest.raises(InvalidTreeError, match=f"^`level_names` must .*{message}"):
            LabelTree.from_nested(TOY, level_names=level_names)


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
        for k, leaf in enumerate(tree.leaves):
            path = slice(arrays.path_ptr[k], arrays.path_ptr[k + 1])
            names = [tree.branches[b] for b in arrays.path_branch[path]]
            assert names == [node for node in tree.ancestors(leaf) if node in tree.branches]
            for name, rank in zip(names, arrays.path_child[path], strict=True):
                assert leaf in tree.leaves_under(tree.children(name)[rank])

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


class TestUnknownNames:
    @pytest.mark.parametrize(
        "method",
        ["children", "parent", "ancestors", "depth", "leaves_under", "leaf_index", "branch_index"],
    )
    def test_a_misspelt_name_gets_a_suggestion(self, toy, method):
        with pytest.raises(UnknownNameError, match=r"^`name` .* got 'majr'. Did you mean 'major'"):
            getattr(toy, method)("majr")

    def test_an_unhashable_name(self, toy):
        with pytest.raises(UnknownNameError, match=r"`name` must be a node of the tree; got .'a'."):
            toy.depth(["a"])

    def test_a_leaf_is_no_branch_and_a_branch_no_leaf(self, toy):
        with pytest.raises(
            UnknownNameError, match=r"got 'coma', which is a leaf. Choose from 'root'"
        ):
            toy.branch_index("coma")
        with pytest.raises(
            UnknownNameError, match=r"got 'major', .* internal node. Choose from 'limit"
        ):
            toy.leaf_index("major")

    @pytest.mark.parametrize("level", [-1, 4])
    def test_a_level_outside_the_tree(self, toy, level):
        with pytest.raises(InvalidInputError, match=f"depth from 0 to 3; got {level}"):
            toy.level(level)

    @pytest.mark.parametrize("level", ["sverity", 1.0, True, None])
    def test_a_level_that_is_neither_a_depth_nor_a_name(self, toy, level):
        with pytest.raises(
            UnknownNameError, match=r"0 to 3 or one of .'status', 'severity', 'state'."
        ):
            toy.level_codes(level)


class TestScale:
    def test_twenty_thousand_leaves(self):
        tree = LabelTree.from_nested(
            {f"s{i}": {f"g{j}": list(range(20)) for j in range(20)} for i in range(50)}
        )
        assert tree.n_leaves == 20_000
        assert tree.leaves[-1] == "s49/g19/19"
        assert tree.arrays.path_ptr[-1] == 60_000
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
