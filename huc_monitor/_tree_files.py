"""Read a label tree from a YAML, JSON or CSV file that nobody has checked yet."""

from __future__ import annotations

import csv
import json
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from huc_monitor.errors import InvalidTreeError

MAX_BYTES = 16 * 2**20
SUFFIXES = (".yaml", ".yml", ".json", ".csv")


class Described(NamedTuple):
    """What a file holds: the kind of description, its content and the names of its levels."""

    kind: str  # "dict", "nested", "paths" or "links"
    content: Any
    level_names: tuple[str, ...] = ()


def read(path: str | Path) -> Described:
    """Read `path` by its suffix; the content is not yet known to be a tree."""
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidTreeError(
            f"`path` must end in one of {', '.join(SUFFIXES)}; got {file.name!r}. "
            "Rename or convert the file."
        )
    text = _read_text(file)
    if suffix == ".csv":
        return _parse_csv(text, file.name)
    try:
        content = _parse_json(text) if suffix == ".json" else _parse_yaml(text)
    except InvalidTreeError:
        raise
    except RecursionError:
        raise InvalidTreeError(
            f"`path` must not nest thousands of brackets; got {file.name!r}. "
            "Write the tree as a CSV file of child and parent."
        ) from None
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise InvalidTreeError(
            f"`path` must be valid {suffix[1:].upper()}; got {file.name!r}: {reason}. "
            "Correct the file."
        ) from error
    described = isinstance(content, Mapping) and "schema_version" in content
    return Described("dict" if described else "nested", content)


def _read_text(file: Path) -> str:
    if not file.is_file():
        raise InvalidTreeError(
            f"`path` must be an existing file; got {str(file)!r}. Check the spelling."
        )
    # One byte more than allowed is enough to know, even of a file that grows or lies.
    with file.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InvalidTreeError(
            f"`path` must be at most {MAX_BYTES // 2**20} MiB; got {file.name!r}, which is larger. "
            "Keep only the tree in it."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidTreeError(
            f"`path` must be UTF-8 text; got {file.name!r} (byte {error.start}). Save it as UTF-8."
        ) from error


def _parse_json(text: str) -> object:
    return json.loads(text, object_pairs_hook=_unique_pairs)


def _unique_pairs(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        raise _repeated(next(key for key, _ in pairs if key in seen or seen.add(key)))
    return found


def _repeated(key: object) -> InvalidTreeError:
    return InvalidTreeError(
        f"`path` must not repeat a name under one parent; got {key!r} twice. Rename or remove one."
    )


def _parse_yaml(text: str) -> object:
    import yaml  # noqa: PLC0415 - only needed for files

    class Loader(yaml.SafeLoader):
        """The safe loader, except that it refuses the repeated keys YAML forbids."""

        def construct_mapping(
            self, node: yaml.MappingNode, deep: bool = False
        ) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        raise _repeated(key.value)
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _parse_csv(text: str, name: str) -> Described:
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if any(row)]
    if len(rows) < 2:  # noqa: PLR2004 - a header and something below it
        raise InvalidTreeError(
            f"`path` must have a header and at least one row; got {name!r}. "
            "Use the columns child,parent, or path, or one column per level."
        )
    header, body = rows[0], rows[1:]
    for line, row in enumerate(body, start=2):
        if len(row) > len(header):
            raise InvalidTreeError(
                f"`path` must have {len(header)} cells a row; got {len(row)} in {name!r} "
                f"(row {line}). Quote cells that contain a comma."
            )
    padded = [row + [""] * (len(header) - len(row)) for row in body]
    columns = [column.lower() for column in header]
    if {"child", "parent"} <= set(columns):
        child, parent = columns.index("child"), columns.index("parent")
        return Described("links", [(row[child], row[parent] or None) for row in padded])
    if "path" in columns:
        return Described("paths", [row[columns.index("path")] for row in padded])
    return Described("paths", [_trim(row, name) for row in padded], tuple(header))


def _trim(row: list[str], name: str) -> list[str]:
    """Drop the empty cells after the leaf of a short branch."""
    end = len(row)
    while end and not row[end - 1]:
        end -= 1
    if "" in row[:end]:
        raise InvalidTreeError(
            f"`path` must leave no gap between levels; got {row} in {name!r}. "
            "Fill the empty cell, or move the later cells left."
        )
    return row[:end]
