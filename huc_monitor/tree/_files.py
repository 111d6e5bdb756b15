"""Read a label tree from a YAML, JSON or CSV file that nobody has checked yet."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from huc_monitor.errors import InvalidTreeError
from huc_monitor.tree import _building

# The safe YAML reader is plain Python: the largest file allowed takes it some ten seconds.
MAX_BYTES = 4 * 2**20
_PLAIN_INTEGER = re.compile("0|[1-9][0-9]{0,17}")
SUFFIXES = (".yaml", ".yml", ".json", ".csv")


def read(path: str | Path, *, root: str | None) -> tuple[_building.Preorder, Sequence[str]]:
    """Read `path` by its suffix: the tree and its level names."""
    file = Path(path)
    where = f"`path` ({file.name})"
    text = _read_text(file)
    if file.suffix.lower() == ".csv":
        return _parse_csv(text, file.name, root, where)
    content = _parse(text, file)
    if isinstance(content, Mapping) and "schema_version" in content:
        return _building.from_dict(content, where=where)
    return _building.from_nested(content, root=root, sep="/", where=where), ()


def read_content(path: str | Path) -> object:
    """Read a YAML or JSON file."""
    file = Path(path)
    return _parse(_read_text(file), file)


def read_mapping(mapping: Mapping[str, str] | str | Path) -> dict[str, str]:
    """Return what other spellings of labels mean, read from a file where a path is given.

    A CSV file has a header and two columns: the spelling, and the node it means.
    """
    content: Any = mapping
    if isinstance(mapping, str | Path):
        file = Path(mapping)
        text = _read_text(file)
        if file.suffix.lower() == ".csv":
            rows = [[cell.strip() for cell in row] for row in _csv_cells(text, file.name) if row]
            odd = [row for row in rows if len(row) != 2]
            if odd:
                msg = (
                    f"`mapping` must have two columns, spelling and node; got {odd[0][:3]} in "
                    f"{file.name!r}. Quote cells that contain a comma."
                )
                raise InvalidTreeError(msg)
            content = _unique_pairs([(spelling, node) for spelling, node in rows[1:]])
        else:
            content = _parse(text, file)
    if not isinstance(content, Mapping):
        msg = (
            f"`mapping` must be spellings with the node each means, or the path of a file of them; "
            f"got {type(content).__name__}. Write for example {{'Katze': 'cat'}}."
        )
        raise InvalidTreeError(msg)
    odd = [node for node in content.values() if not isinstance(node, str | int)]
    if odd or not all(isinstance(label, str | int) for label in content):
        msg = f"`mapping` must lead from text to text; got {(odd or list(content))[0]!r}. Quote it."
        raise InvalidTreeError(msg)
    return {str(label): str(node) for label, node in content.items()}


def _parse(text: str, file: Path) -> object:
    suffix = file.suffix.lower()
    try:
        return _parse_json(text) if suffix == ".json" else _parse_yaml(text)
    except InvalidTreeError:
        raise
    except RecursionError:
        msg = (
            f"`path` must not nest thousands of brackets; got {file.name!r}. "
            "Write the tree as a CSV file of child and parent."
        )
        raise InvalidTreeError(msg) from None
    except ValueError as error:
        reason = " ".join(str(error).split())
        msg = (
            f"`path` must be valid {suffix[1:].upper()}; got {file.name!r}: {reason}. "
            "Correct the file."
        )
        raise InvalidTreeError(msg) from error


def _read_text(file: Path) -> str:
    if file.suffix.lower() not in SUFFIXES:
        msg = (
            f"`path` must end in one of {', '.join(SUFFIXES)}; got {file.name!r}. "
            "Rename or convert the file."
        )
        raise InvalidTreeError(msg)
    if not file.is_file():
        msg = f"`path` must be an existing file; got {str(file)!r}. Check the spelling."
        raise InvalidTreeError(msg)
    # One byte more than allowed is enough to know, even of a file that grows or lies.
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        msg = (
            f"`path` must be at most {MAX_BYTES // 2**20} MiB; got {file.name!r}, which is larger. "
            "Keep only the tree in it."
        )
        raise InvalidTreeError(msg)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = (
            f"`path` must be UTF-8 text; got {file.name!r} (byte {error.start}). Save it as UTF-8."
        )
        raise InvalidTreeError(msg) from error


def _parse_json(text: str) -> object:
    return json.loads(text, object_pairs_hook=_unique_pairs)


def _unique_pairs(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _repeated(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return found


def _repeated(key: object) -> InvalidTreeError:
    return InvalidTreeError(
        f"`path` must not repeat a name under one parent; got {key!r} twice. Rename or remove one."
    )


def _parse_yaml(text: str) -> object:
    import yaml

    class Loader(yaml.SafeLoader):
        """The safe loader, except that it refuses repeated keys and keeps numbers as written."""

        def construct_mapping(
            self,
            node: yaml.MappingNode,
            deep: bool = False,  # noqa: FBT001, FBT002 - as in the base class
        ) -> dict[Hashable, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        raise _repeated(key.value)
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

        def construct_number(self, node: yaml.ScalarNode) -> int | str:
            # YAML 1.1 reads 010 as 8 and 12:30 as 750; a label must stay what its author typed.
            return int(node.value) if _PLAIN_INTEGER.fullmatch(node.value) else str(node.value)

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_number)
    loader = Loader(text)
    try:
        return loader.get_single_data()
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    finally:
        loader.dispose()


def _csv_cells(text: str, name: str) -> list[list[str]]:
    try:
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        msg = f"`path` must be valid CSV; got {name!r}: {error}. Correct the file."
        raise InvalidTreeError(msg) from error
    header = rows[0] if rows else []
    other = next((mark for mark in ";\t" if len(header) == 1 and mark in header[0]), None)
    if other is not None:
        msg = (
            f"`path` must have its columns separated by commas; got {header[0]!r} in {name!r}. "
            f"Save it with commas instead of {other!r}."
        )
        raise InvalidTreeError(msg)
    return rows


def _parse_csv(
    text: str, name: str, root: str | None, where: str
) -> tuple[_building.Preorder, Sequence[str]]:
    cells = _csv_cells(text, name)
    rows = [row for row in ([cell.strip() for cell in line] for line in cells) if any(row)]
    if len(rows) < 2:
        msg = (
            f"`path` must have a header and at least one row; got {name!r}. "
            "Use the columns child,parent, or path, or one column per level."
        )
        raise InvalidTreeError(msg)
    header, body = rows[0], rows[1:]
    for index, row in enumerate(body):
        if len(row) > len(header):
            msg = (
                f"`path` must have {len(header)} cells a row; got {len(row)} in {name!r} "
                f"(row {index}). Quote cells that contain a comma."
            )
            raise InvalidTreeError(msg)
    padded = [row + [""] * (len(header) - len(row)) for row in body]
    columns = [column.lower() for column in header]
    if {"child", "parent"} <= set(columns):
        child, parent = columns.index("child"), columns.index("parent")
        links = [(row[child], row[parent] or None) for row in padded]
        return _building.from_links(links, where=where), ()
    by_level = "path" not in columns
    paths = [_trim(row, name) if by_level else row[columns.index("path")] for row in padded]
    found = _building.from_paths(paths, sep="/", root=root, where=where)
    return found, header if by_level else ()


def _trim(row: list[str], name: str) -> list[str]:
    """Drop the empty cells after the leaf of a short branch."""
    end = len(row)
    while end and not row[end - 1]:
        end -= 1
    if "" in row[:end]:
        msg = (
            f"`path` must leave no gap between levels; got {row} in {name!r}. "
            "Fill the empty cell, or move the later cells left."
        )
        raise InvalidTreeError(msg)
    return row[:end]
