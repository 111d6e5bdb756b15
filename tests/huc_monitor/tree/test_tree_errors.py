from __future__ import annotations

import pytest

from huc_monitor.errors import InvalidInputError, InvalidTreeError, UnknownNameError
from huc_monitor.tree import LabelTree

TOY = {"survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]}, "died": None}


@pytest.fixture
def toy():
    return LabelTree.from_nested(TOY, level_names=["status", "severity", "state"])


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
        with pytest.raises(
            InvalidInputError, match=f"depth from 1 to 3; got {level}.*root, which is level 0"
        ):
            toy.level(level)

    @pytest.mark.parametrize("level", ["sverity", 1.0, True, None])
    def test_a_level_that_is_neither_a_depth_nor_a_name(self, toy, level):
        with pytest.raises(
            UnknownNameError, match=r"1 to 3 or one of .'status', 'severity', 'state'."
        ):
            toy.level_codes(level)
