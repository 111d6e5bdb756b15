"""Turn descriptions of a label tree into names and parent positions in preorder.

Every function here is iterative and linear in its input: trees may be thousands of levels deep,
and descriptions may come from untrusted files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from huc_monitor.errors import InvalidTreeError

SCHEMA_VERSION = 1
MAX_NODES = 1_000_000
MAX_NAME_LEVELS = 64

# Line breaks and escape codes would corrupt every table and terminal a name is printed in;
# lone surrogates cannot be stored as UTF-8.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Preorder(NamedTuple):
    """A rooted tree: the names of all nodes in preorder and the position of each one's parent."""

    names: tuple[str, ...]
    parents: tuple[int, ...]


def check_name(value: object, where: str) -> str:
    """Return `value` as a node name; whole numbers become strings, anything else is refused."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value))
    if not isinstance(value, str):
        hint = "Quote it."
        if isinstance(value, bool):
            hint = "Quote it: YAML reads a bare yes, no, on, off, true or false as a boolean."
        msg = f"{where} must name nodes by strings; got {_show(value)}. {hint}"
        raise InvalidTreeError(msg)
    if not value.strip():
        msg = f"{where} must not contain empty names; got {value!r}. Give the node a name."
        raise InvalidTreeError(msg)
    if _UNPRINTABLE.search(value):
        msg = (
            f"{where} must use printable names; got {_show(value)}. "
            "Remove control characters and line breaks."
        )
        raise InvalidTreeError(msg)
    return str(value)


def from_nested(nested: object, *, root: str | None, sep: str, where: str) -> Preorder:
    """Walk nested mappings and lists; `sep` joins the path of names that clash."""
    if not _is_container(nested):
        msg = (
            f"{where} must be a mapping or a list of names; got {_show(nested)}. "
            f"Write for example {{'animal': ['cat', 'dog']}}."
        )
        raise InvalidTreeError(msg)
    top = list(_children(nested, None, where))
    if not top:
        msg = f"{where} must contain at least one leaf; got an empty tree. Add one."
        raise InvalidTreeError(msg)
    if root is not None:
        labels, parents = _walk(check_name(root, "`root`"), nested, where)
    elif len(top) == 1 and top[0][0] is not None:
        labels, parents = _walk(top[0][0], top[0][1], where)
    else:
        shown = ", ".join(repr(name) for name, _ in top[:5])
        msg = (
            f"{where} must have exactly one top node when `root` is None; "
            f"got {len(top)}: {shown}. Pass a name as `root`."
        )
        raise InvalidTreeError(msg)
    return Preorder(_unique_names(_name_anonymous(labels, parents), parents, sep, where), parents)


def from_paths(paths: object, *, sep: str, root: str | None, where: str) -> Preorder:
    """Merge root-to-leaf paths, given as strings joined by `sep` or as sequences of names."""
    if isinstance(paths, str | bytes) or not isinstance(paths, Iterable):
        msg = f"{where} must be a collection of paths; got {_show(paths)}. Put it in a list."
        raise InvalidTreeError(msg)
    if not sep:
        msg = f"`sep` must be a non-empty string; got {sep!r}. Use '/'."
        raise InvalidTreeError(msg)
    trie: dict[str, object] = {}
    for row, path in enumerate(paths):
        parts = path.split(sep) if isinstance(path, str) else path
        if not isinstance(parts, Sequence) or isinstance(parts, bytes) or not parts:
            msg = (
                f"{where} must hold strings or sequences of names; got {_show(path)} "
                f"(row {row}). Write for example 'animal{sep}cat'."
            )
            raise InvalidTreeError(msg)
        _add_path(trie, [check_name(part, f"{where} (row {row})") for part in parts], row, where)
    return from_nested(trie, root=root, sep=sep, where=where)


def _add_path(trie: dict[str, object], parts: Sequence[str], row: int, where: str) -> None:
    node = trie
    for part in parts[:-1]:
        below = node.setdefault(part, {})
        if not isinstance(below, dict):
            raise _leaf_and_internal(where, part, f" (row {row})")
        node = below
    leaf = parts[-1]
    if isinstance(node.get(leaf), dict):
        raise _leaf_and_internal(where, leaf, f" (row {row})")
    if leaf in node:
        msg = (
            f"{where} must not repeat a path; got {'/'.join(parts)!r} again (row {row}). "
            "Remove one."
        )
        raise InvalidTreeError(msg)
    node[leaf] = None


def from_leaves(leaves: object, *, root: str, where: str) -> Preorder:
    """Put every leaf directly below the root."""
    if isinstance(leaves, str | bytes | Mapping) or not isinstance(leaves, Iterable):
        msg = f"{where} must be a collection of names; got {_show(leaves)}. Put them in a list."
        raise InvalidTreeError(msg)
    names = [check_name(leaf, where) for leaf in leaves]
    return from_nested(names, root=check_name(root, "`root`"), sep="/", where=where)


def from_parents(parents: object, *, where: str) -> Preorder:
    """Join a mapping of each node to its parent."""
    if not isinstance(parents, Mapping):
        msg = f"{where} must map each node to its parent; got {_show(parents)}. Pass a dict."
        raise InvalidTreeError(msg)
    return from_links(parents.items(), where=where)


def from_dict(data: object, *, where: str) -> tuple[Preorder, Sequence[str]]:
    """Read the form that ``LabelTree.to_dict`` writes: the tree and its level names."""
    version = data.get("schema_version") if isinstance(data, Mapping) else data
    if not isinstance(data, Mapping) or version != SCHEMA_VERSION:
        msg = (
            f"{where} must be a tree with schema_version {SCHEMA_VERSION}; got {_show(version)}. "
            "Use LabelTree.from_nested for a plain mapping, or update huc-monitor."
        )
        raise InvalidTreeError(msg)
    children, level_names = data.get("children"), data.get("level_names", [])
    if not isinstance(children, Mapping) or not all(
        isinstance(below, list | tuple) for below in [*children.values(), level_names]
    ):
        msg = (
            f"{where} must hold 'children', a mapping of each internal node to the list of its "
            "children, and a list of 'level_names'; got something else. "
            "Compare it with LabelTree.to_dict()."
        )
        raise InvalidTreeError(msg)
    links = [(child, parent) for parent, below in children.items() for child in below]
    return from_links([(data.get("root"), None), *links], where=where), level_names


def check_level_names(level_names: object, height: int) -> tuple[str, ...]:
    """Return the names of depths 1 to `height`, or none at all."""
    if isinstance(level_names, str) or not isinstance(level_names, Iterable):
        msg = f"`level_names` must be a list of names; got {_show(level_names)}. Use a list."
        raise InvalidTreeError(msg)
    names = tuple(check_name(name, "`level_names`") for name in level_names)
    if names and (len(names) != height or len(set(names)) < len(names)):
        msg = (
            f"`level_names` must be {height} different names, one per level below the root; "
            f"got {list(names)}. Name every level once."
        )
        raise InvalidTreeError(msg)
    return names


def from_links(links: Iterable[tuple[object, object]], *, where: str) -> Preorder:
    """Join (child, parent) pairs; a parent of None marks the root, otherwise it is inferred."""
    parent_of: dict[str, str | None] = {}
    children: dict[str, list[str]] = {}
    for raw_child, raw_parent in links:
        child = check_name(raw_child, where)
        parent = None if raw_parent is None else check_name(raw_parent, where)
        if child in parent_of:
            msg = (
                f"{where} must give each node one parent; got {child!r} under "
                f"{parent_of[child]!r} and {parent!r}. Names are unique in a tree: rename one."
            )
            raise InvalidTreeError(msg)
        parent_of[child] = parent
        if parent is not None:
            children.setdefault(parent, []).append(child)
    roots = [name for name, parent in parent_of.items() if parent is None]
    roots += [name for name in children if name not in parent_of]
    if len(roots) > 1:
        shown = ", ".join(repr(name) for name in roots[:5])
        msg = (
            f"{where} must have one root; got {len(roots)}: {shown}. "
            "Give all but one of them a parent."
        )
        raise InvalidTreeError(msg)
    if not parent_of:
        msg = f"{where} must contain at least one leaf; got an empty tree. Add one."
        raise InvalidTreeError(msg)
    if not roots:
        raise _cycle(parent_of, next(iter(parent_of)), where)
    tree = _grow(roots[0], children)
    if len(tree.names) < len(parent_of):
        reached = set(tree.names)
        raise _cycle(parent_of, next(name for name in parent_of if name not in reached), where)
    return tree


def _grow(root: str, children: Mapping[str, Sequence[str]]) -> Preorder:
    """Return the preorder of everything reachable from `root`; each node has one parent."""
    names: list[str] = []
    parents: list[int] = []
    stack = [(root, -1)]
    while stack:
        name, parent = stack.pop()
        position = len(names)
        names.append(name)
        parents.append(parent)
        stack.extend((child, position) for child in reversed(children.get(name, ())))
    return Preorder(tuple(names), tuple(parents))


def _is_container(value: object) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, Sequence) and not isinstance(value, str | bytes)
    )


def _children(value: object, parent: str | None, where: str) -> Iterator[tuple[str | None, object]]:
    """Yield (label, value below) of each child; the label of a list inside a list is None."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield check_name(key, where), below
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for item in value:
            if isinstance(item, Mapping):
                yield from _children(item, parent, where)
            elif _is_container(item):
                if not item:
                    msg = (
                        f"{where} must not contain an empty list inside a list; got one under "
                        f"{parent!r}. Remove it."
                    )
                    raise InvalidTreeError(msg)
                yield None, item
            else:
                yield check_name(item, where), None
    elif value is not None:
        msg = (
            f"{where} must hold a mapping, a list or None below each name; got {_show(value)} "
            f"below {parent!r}. Write it as a list."
        )
        raise InvalidTreeError(msg)


def _walk(root: str, value: object, where: str) -> tuple[list[str | None], tuple[int, ...]]:
    labels: list[str | None] = []
    parents: list[int] = []
    stack: list[tuple[str | None, object, int, int]] = [(root, value, -1, 0)]
    # Containers between the root and the current node: meeting one again means it holds itself.
    open_ids: list[int] = []
    open_set: set[int] = set()
    while stack:
        label, below, parent, depth = stack.pop()
        position = len(labels)
        labels.append(label)
        parents.append(parent)
        if len(labels) + len(stack) > MAX_NODES:
            msg = (
                f"{where} must have at most {MAX_NODES:,} nodes; got more. "
                "Check it for repeated aliases."
            )
            raise InvalidTreeError(msg)
        if below is None:
            continue
        while len(open_ids) > depth:
            open_set.discard(open_ids.pop())
        if id(below) in open_set:
            msg = (
                f"{where} must not contain itself; got a cycle through {label or 'a list'!r}. "
                "Remove the alias that points back up."
            )
            raise InvalidTreeError(msg)
        open_ids.append(id(below))
        open_set.add(id(below))
        found = list(_children(below, label, where))
        _check_siblings(found, label, where)
        stack.extend((name, under, position, depth + 1) for name, under in reversed(found))
    return labels, tuple(parents)


def _check_siblings(
    found: Sequence[tuple[str | None, object]], parent: str | None, where: str
) -> None:
    seen: dict[str, object] = {}
    for name, below in found:
        if name is None:
            continue
        if name in seen:
            if bool(below) != bool(seen[name]):
                raise _leaf_and_internal(where, name, f" (under {parent!r})")
            msg = (
                f"{where} must not repeat a name under one parent; "
                f"got {name!r} twice under {parent!r}. Rename or remove one."
            )
            raise InvalidTreeError(msg)
        seen[name] = below


def _name_anonymous(labels: Sequence[str | None], parents: Sequence[int]) -> list[str]:
    """Name a list inside a list after its first and last leaf: ``'cat..dog'``."""
    first = list(labels)
    last: list[str | None] = list(labels)
    has_child = bytearray(len(labels))
    for position in range(len(labels) - 1, 0, -1):
        parent = parents[position]
        first[parent] = first[position]
        if not has_child[parent]:
            has_child[parent] = 1
            last[parent] = last[position]
    return [
        label if label is not None else f"{low}..{high}"
        for label, low, high in zip(labels, first, last, strict=True)
    ]


def _unique_names(
    labels: Sequence[str], parents: Sequence[int], sep: str, where: str
) -> tuple[str, ...]:
    """Lengthen clashing names by their ancestors' labels, one level at a time.

    The root's label is never used, so a name is at most the path below the root.
    """
    names = list(labels)
    above = list(parents)
    for _ in range(MAX_NAME_LEVELS):
        count = Counter(names)
        if len(count) == len(names):
            return tuple(names)
        clashing = [position for position, name in enumerate(names) if count[name] > 1]
        extensible = [position for position in clashing if above[position] > 0]
        if not extensible:
            raise InvalidTreeError(
                f"{where} must have unique names; got {names[clashing[0]]!r} twice. "
                + (
                    "Rename one."
                    if clashing[0]
                    else "Pass another `root`, or None to use it as root."
                )
            )
        for position in extensible:
            names[position] = f"{labels[above[position]]}{sep}{names[position]}"
            above[position] = parents[above[position]]
    msg = (
        f"{where} must not repeat a name on more than {MAX_NAME_LEVELS} levels; "
        f"got {_show(labels[extensible[-1]])}. Rename some of them."
    )
    raise InvalidTreeError(msg)


def _leaf_and_internal(where: str, name: str, place: str) -> InvalidTreeError:
    return InvalidTreeError(
        f"{where} must use each name either as a leaf or as an internal node; "
        f"got {name!r} as both{place}. Rename one, or add a leaf such as '{name} (other)'."
    )


def _cycle(parent_of: Mapping[str, str | None], start: str, where: str) -> InvalidTreeError:
    seen: dict[str, None] = {}
    name: str | None = start
    while name is not None and name not in seen:
        seen[name] = None
        name = parent_of[name]
    loop = list(seen)
    loop = [*loop[loop.index(str(name)) :], str(name)]
    shown = " -> ".join([*map(repr, loop[:6]), *(["..."] if len(loop) > 6 else [])])
    return InvalidTreeError(
        f"{where} must not contain a cycle; got {shown} (child -> parent). "
        "Give one of them another parent."
    )


def _show(value: object, limit: int = 60) -> str:
    if not isinstance(value, str | bytes | int | float | None):
        return f"a value of type {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
