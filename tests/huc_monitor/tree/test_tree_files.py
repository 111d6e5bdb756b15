from __future__ import annotations

import json

import pytest

from huc_monitor.errors import InvalidTreeError
from huc_monitor.tree import LabelTree, _files

TOY = {"survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]}, "died": None}


@pytest.fixture
def write(tmp_path):
    def _write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return _write


YAML_MAPPINGS = """
survived:
  milder: [none, assisted]
  major:
    - limited
    - coma
died:
"""
YAML_LISTS = """
- survived:
  - milder: [none, assisted]
  - major: [limited, coma]
- died
"""
CSV_LINKS = """child,parent
root,
survived,root
milder,survived
none,milder
assisted,milder
major,survived
limited,major
coma,major
died,root
"""
CSV_PATHS = """note,path
,survived/milder/none
,survived/milder/assisted

a comment,survived/major/limited
,survived/major/coma
,died
"""
AS_DICT = json.dumps(LabelTree.from_nested(TOY).to_dict())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tree.yaml", YAML_MAPPINGS),
        ("tree.YML", YAML_LISTS),
        ("tree.yaml", AS_DICT),
        ("tree.json", json.dumps(TOY)),
        ("tree.json", AS_DICT),
        ("tree.csv", CSV_LINKS),
        ("tree.csv", "\ufeff" + CSV_LINKS.replace("child,parent", "Child, Parent")),
        ("tree.csv", CSV_LINKS.replace("\n", "\r\n")),
        ("tree.csv", CSV_PATHS),
    ],
)
def test_every_format_gives_the_same_tree(write, name, text):
    assert LabelTree.from_file(write(name, text)) == LabelTree.from_nested(TOY)


def test_one_column_per_level_gives_the_levels_their_names(write):
    text = "status, severity ,state\nsurvived,milder,none\nsurvived,major,coma\ndied\n"
    tree = LabelTree.from_file(write("tree.csv", text))
    assert tree.leaves == ("none", "coma", "died")
    assert tree.level("severity") == ("milder", "major", "died")


def test_the_root_can_be_named_or_taken_from_the_file(write):
    path = write("tree.yaml", "animal: [cat, dog]")
    assert LabelTree.from_file(str(path), root="all").nodes == ("all", "animal")
    assert LabelTree.from_file(path, root=None).nodes == ("animal",)


def test_numbers_in_yaml_stay_as_typed(write):
    path = write("tree.yaml", f"codes: [1, 010, 0x1F, 12:30, 1_000, {'9' * 5000}]")
    leaves = LabelTree.from_file(path).leaves
    assert leaves == ("1", "010", "0x1F", "12:30", "1_000", "9" * 5000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("answer: [yes, no]", "by strings; got True. Quote it: YAML reads a bare yes"),
        ("a: [1.5, x]", "by strings; got 1.5. Quote it"),
        ("a: [null, x]", "by strings; got None. Quote it"),
        ("a: [2024-01-31]", "by strings; got a value of type date. Quote it"),
        ("a: [x]\nb: [y]\na: [z]", "not repeat a name under one parent; got 'a' twice"),
        ("1: [x]\n'1': [y]", "not repeat a name under one parent; got '1' twice"),
        ("a: &loop [b, *loop]", "contain itself; got a cycle through 'a list'"),
        ("a: &loop {b: *loop}", "contain itself; got a cycle through 'b'"),
        ("a: !!python/object/apply:os.getcwd []", "be valid YAML; got 'tree.yaml': could not"),
        ("a: [b", "be valid YAML; got 'tree.yaml': while parsing a flow sequence"),
        ("? [a, b]\n: c", "be valid YAML; .*found unhashable key"),
        ("", "be a mapping or a list of names; got None"),
        ("--- a\n--- b", "be valid YAML; .*expected a single document"),
        ("[" * 5000, "not nest thousands of brackets"),
        ("a: 2024-99-99", "be valid YAML; got 'tree.yaml': month must be in"),
        ("schema_version: 7", "be a tree with schema_version 1; got 7"),
    ],
)
def test_bad_yaml(write, text, message):
    with pytest.raises(InvalidTreeError, match=f"^`path`.* must .*{message}"):
        LabelTree.from_file(write("tree.yaml", text))


@pytest.mark.seconds
def test_aliases_that_multiply_end_in_an_error_not_in_memory(write):
    lines = ["a0: &a0 [x, y, z, w, v, u, t, s]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]" for i in range(1, 12)]
    with pytest.raises(InvalidTreeError, match=r"at most 1,000,000 nodes; got more. .*aliases"):
        LabelTree.from_file(write("tree.yaml", "\n".join(lines)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": ["x"], "b": ["y"], "a": ["z"]}', "got 'a' twice"),
        ("{", "be valid JSON; got 'tree.json': Expecting property name"),
        ("[" * 100_000, "not nest thousands of brackets"),
        ('["' + "\\ud800" + '"]', "printable names"),
    ],
)
def test_bad_json(write, text, message):
    with pytest.raises(InvalidTreeError, match=f"^`path`.* must .*{message}"):
        LabelTree.from_file(write("tree.json", text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a header and at least one row"),
        ("path\n", "a header and at least one row"),
        ("child,parent\na,b\nb,a\n", "a cycle; got 'a' -> 'b' -> 'a'"),
        ("child,parent\na,r\na,s\n", "one parent; got 'a' under 'r' and 's'"),
        ("child,parent\n,r\n", "empty names"),
        ("one,two\na,,\n", "2 cells a row; got 3 in 'tree.csv' .row 0."),
        ("one,two,three\na,,c\n", "no gap between levels; got .'a', '', 'c'."),
        ("one,two\na,b\na\n", "got 'a' as both .row 1."),
        ("path\na/b\na/b\n", "repeat a path; got 'a/b' again .row 1."),
        ('path\n"a\nb"\n', "printable names"),
        (
            "status;severity\na;x\n",
            "separated by commas; got 'status;severity' in 'tree.csv'. Save",
        ),
        ("child\tparent\na\tr\n", "commas instead of '.*t'"),
        ("path\n" + "x" * 200_000, "valid CSV; got 'tree.csv': field larger than"),
    ],
)
def test_bad_csv(write, text, message):
    with pytest.raises(InvalidTreeError, match=f"^`path`.* must .*{message}"):
        LabelTree.from_file(write("tree.csv", text))


def test_an_unknown_suffix_lists_the_known_ones(write):
    with pytest.raises(InvalidTreeError, match=r".yaml, .yml, .json, .csv; got 'tree.toml'"):
        LabelTree.from_file(write("tree.toml", ""))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidTreeError, match=r"an existing file; got .*absent.yaml"):
        LabelTree.from_file(tmp_path / "absent.yaml")


def test_text_that_is_not_utf8_says_where(write):
    with pytest.raises(InvalidTreeError, match=r"UTF-8 text; got 'tree.csv' \(byte 6\)"):
        LabelTree.from_file(write("tree.csv", b"path\na\xff"))


def test_a_file_that_is_too_large_is_not_parsed(write, monkeypatch):
    monkeypatch.setattr(_files, "MAX_BYTES", 2**20)
    with pytest.raises(InvalidTreeError, match=r"at most 1 MiB; got 'tree.json', which is larger"):
        LabelTree.from_file(write("tree.json", " " * (2**20 + 1)))


def test_a_deep_chain_fits_in_csv(write):
    rows = "\n".join(f"n{i + 1},n{i}" for i in range(5000))
    assert LabelTree.from_file(write("tree.csv", f"child,parent\n{rows}")).height == 5000
