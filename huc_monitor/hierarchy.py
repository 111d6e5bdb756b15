"""The immutable label tree: leaves in depth-first order, so that a subtree is a slice of columns.

Names are what people read and type; :attr:`LabelTree.arrays` is what kernels read. Nodes with a
single child make no choice, so the arrays leave them out, while every method that speaks of names
and depths keeps them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from huc_monitor import _label_codes, _tree_building, _tree_files
from huc_monitor.errors import InvalidInputError, InvalidTreeError, UnknownNameError, did_you_mean

__all__ = ["LabelTree", "TreeArrays"]

SCHEMA_VERSION = 1
MAX_PATH_ENTRIES = 2**26

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TreeArrays:
    """A label tree as read-only int64 arrays, nodes with a single child contracted.

    K leaves and M branches (nodes that choose among two or more children), both in depth-first
    order.

    Attributes
    ----------
    n_leaves, n_branches : int
        K and M.
    start, stop : array of shape (M,)
        The leaves under branch b are ``start[b]:stop[b]``.
    depth : array of shape (M,)
        Depth of the branch in the displayed tree; the root has 0.
    parent : array of shape (M,)
        Branch above, -1 for the topmost branch.
    child_ptr : array of shape (M + 1,)
        The children of branch b are ``child_code[child_ptr[b]:child_ptr[b + 1]]``.
    child_code : array of shape (child_ptr[-1],)
        A branch index when >= 0, otherwise ``-1 - leaf``.
    path_ptr : array of shape (K + 1,)
        The branches above leaf k are ``path_branch[path_ptr[k]:path_ptr[k + 1]]``, topmost first.
    path_branch, path_child : array of shape (path_ptr[-1],)
        The branch, and the rank of the child that the path takes there.
    """

    n_leaves: int
    n_branches: int
    start: IntArray
    stop: IntArray
    depth: IntArray
    parent: IntArray
    child_ptr: IntArray
    child_code: IntArray
    path_ptr: IntArray
    path_branch: IntArray
    path_child: IntArray

    def __repr__(self) -> str:
        return f"TreeArrays(n_leaves={self.n_leaves}, n_branches={self.n_branches})"


@dataclass(frozen=True, repr=False)
class LabelTree:
    """A rooted tree whose leaves are the class labels, in depth-first order.

    Build one with a ``from_`` method or :meth:`flat`. Trees are immutable, hashable, and equal when
    names, shape, order of children and level names are equal. Every node has a unique name.

    Examples
    --------
    >>> tree = LabelTree.from_nested(
    ...     {
    ...         "survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]},
    ...         "died": None,
    ...     }
    ... )
    >>> tree.leaves
    ('none', 'assisted', 'limited', 'coma', 'died')
    >>> tree.branches
    ('root', 'survived', 'milder', 'major')
    >>> tree.ancestors("coma")
    ('root', 'survived', 'major')
    """

    _names: tuple[str, ...]
    _parents: tuple[int, ...]
    level_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = self.level_names
        if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
            raise InvalidTreeError(
                f"`level_names` must be non-empty strings; got {names!r}. Name each level below the root."
            )
        if names and (len(names) != self.height or len(set(names)) < len(names)):
            raise InvalidTreeError(
                f"`level_names` must be {self.height} different names, one per level below the root; "
                f"got {list(names)}. Name each level once."
            )

    # -- construction ---------------------------------------------------------------------------

    @classmethod
    def from_nested(
        cls,
        nested: Mapping[Any, Any] | Sequence[Any],
        *,
        root: str | None = "root",
        level_names: Iterable[str] | None = None,
    ) -> Self:
        """Build the tree from nested mappings and lists.

        Parameters
        ----------
        nested : mapping or list
            A mapping gives each name what lies below it: another mapping, a list, or None (or an
            empty container) for a leaf. A list holds leaf names, mappings, or lists; a list inside
            a list becomes a node named after its first and last leaf, ``'a..b'``. Whole numbers
            become strings.
        root : str or None, default "root"
            Name of the node placed on top. With None, the only top name is the root.
        level_names : iterable of str, optional
            Names of depth 1, 2, ... down to the deepest leaf.

        Notes
        -----
        Names that occur under several parents become the shortest path that tells them apart, such
        as ``'mirai/scan'``.

        Examples
        --------
        >>> LabelTree.from_nested({"gafgyt": ["scan", "udp"], "mirai": ["scan", "ack"]}).leaves
        ('gafgyt/scan', 'udp', 'mirai/scan', 'ack')
        """
        found = _tree_building.from_nested(nested, root=root, sep="/", where="`nested`")
        return cls._of(found, level_names)

    @classmethod
    def from_paths(
        cls,
        paths: Iterable[str | Sequence[str]],
        *,
        sep: str = "/",
        root: str | None = "root",
        level_names: Iterable[str] | None = None,
    ) -> Self:
        """Build the tree from one path per leaf: strings joined by `sep`, or sequences of names.

        Children keep the order in which the paths first mention them. Clashing names become the
        shortest path that tells them apart, as in :meth:`from_nested`.

        Examples
        --------
        >>> LabelTree.from_paths(["animal/cat", "animal/dog", "plant"]).branches
        ('root', 'animal')
        """
        found = _tree_building.from_paths(paths, sep=sep, root=root, where="`paths`")
        return cls._of(found, level_names)

    @classmethod
    def from_parents(
        cls, parents: Mapping[str, str | None], *, level_names: Iterable[str] | None = None
    ) -> Self:
        """Build the tree from a mapping of each node to its parent.

        The root is the one node without a parent: left out, or mapped to None.

        Examples
        --------
        >>> LabelTree.from_parents({"cat": "animal", "dog": "animal"}).root
        'animal'
        """
        if not isinstance(parents, Mapping):
            raise InvalidTreeError(
                "`parents` must map each node to its parent; "
                f"got type {type(parents).__name__}. Pass a dict."
            )
        return cls._of(_tree_building.from_links(parents.items(), where="`parents`"), level_names)

    @classmethod
    def flat(cls, leaves: Iterable[str], *, root: str = "root") -> Self:
        """Build the tree whose root chooses among all leaves at once.

        Examples
        --------
        >>> LabelTree.flat(["cat", "dog"]).height
        1
        """
        if isinstance(leaves, str | bytes) or not isinstance(leaves, Iterable):
            raise InvalidTreeError(
                f"`leaves` must be a collection of names; got {leaves!r}. Put it in a list."
            )
        names = [_tree_building.check_name(leaf, "`leaves`") for leaf in leaves]
        return cls._of(_tree_building.from_nested(names, root=root, sep="/", where="`leaves`"))

    @classmethod
    def from_file(cls, path: str | Path, *, root: str | None = "root") -> Self:
        """Read the tree from a YAML, JSON or CSV file.

        YAML and JSON hold what :meth:`from_nested` takes, or what :meth:`to_dict` gave. A CSV file
        has the columns ``child,parent`` (an empty parent marks the root), or a column ``path``, or
        one column per level below the root, whose header becomes the level names. `root` names the
        top node where the file does not.
        """
        kind, content, level_names = _tree_files.read(path)
        where = f"`path` ({Path(path).name})"
        if kind == "dict":
            return cls.from_dict(content)
        if kind == "links":
            return cls._of(_tree_building.from_links(content, where=where))
        if kind == "paths":
            found = _tree_building.from_paths(content, sep="/", root=root, where=where)
            return cls._of(found, level_names)
        return cls._of(_tree_building.from_nested(content, root=root, sep="/", where=where))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a tree from :meth:`to_dict`."""
        if not isinstance(data, Mapping) or data.get("schema_version") != SCHEMA_VERSION:
            got = data.get("schema_version") if isinstance(data, Mapping) else type(data).__name__
            raise InvalidTreeError(
                f"`data` must be a tree with schema_version {SCHEMA_VERSION}; got {got!r}. "
                "Use LabelTree.from_nested for a plain mapping."
            )
        children = data.get("children")
        level_names = data.get("level_names") or ()
        if not isinstance(children, Mapping) or not all(
            isinstance(below, list | tuple) for below in (*children.values(), level_names)
        ):
            raise InvalidTreeError(
                "`data` must map each internal node to the list of its children under 'children', "
                "and list 'level_names'; got something else. Compare with LabelTree.to_dict()."
            )
        links = [(child, parent) for parent, below in children.items() for child in below]
        found = _tree_building.from_links([(data.get("root"), None), *links], where="`data`")
        return cls._of(found, level_names)

    @classmethod
    def _of(cls, found: _tree_building.Preorder, level_names: Iterable[str] | None = None) -> Self:
        names = level_names if isinstance(level_names, str) else tuple(level_names or ())
        return cls(found.names, found.parents, names)  # type: ignore[arg-type] # checked there

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as JSON-safe data, children by parent, whatever its depth.

        Examples
        --------
        >>> LabelTree.flat(["cat", "dog"]).to_dict()["children"]
        {'root': ['cat', 'dog']}
        """
        return {
            "schema_version": SCHEMA_VERSION,
            "root": self.root,
            "level_names": list(self.level_names),
            "children": {node: list(self.children(node)) for node in self.nodes},
        }

    def to_paths(self, *, sep: str = "/") -> tuple[str, ...]:
        """Return one path per leaf, below the root, such that :meth:`from_paths` rebuilds the tree.

        A name that is itself a path (``'mirai/scan'`` below ``'mirai'``) adds only its last part.

        Examples
        --------
        >>> LabelTree.from_nested({"mirai": ["scan", "ack"], "gafgyt": ["scan"]}).to_paths()
        ('mirai/scan', 'mirai/ack', 'gafgyt/scan')
        """
        paths = [""] * len(self._names)
        for position in range(1, len(self._names)):
            above = paths[self._parents[position]]
            label = _last_label(self._names[position], above, sep)
            if sep in label:
                raise InvalidTreeError(
                    f"`sep` must not occur in a name; got {sep!r}, which is in {label!r}. "
                    "Pass another `sep`."
                )
            paths[position] = f"{above}{sep}{label}" if above else label
        return tuple(paths[position] for position in self._leaf_positions)

    # -- names ------------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        """Name of the topmost node."""
        return self._names[0]

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Names of the class labels, depth first: the order of probability columns."""
        return tuple(self._names[position] for position in self._leaf_positions)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Names of all internal nodes in preorder, those with a single child included."""
        return tuple(name for name, below in zip(self._names, self._below, strict=True) if below)

    @cached_property
    def branches(self) -> tuple[str, ...]:
        """Names of the nodes with two or more children, in preorder."""
        return tuple(self._names[position] for position in self._branch_positions)

    @property
    def n_leaves(self) -> int:
        """Number of class labels."""
        return len(self._leaf_positions)

    @cached_property
    def height(self) -> int:
        """Depth of the deepest leaf."""
        return max(self._depths)

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change with any name, order, shape or level name."""
        content = [SCHEMA_VERSION, self._names, self._parents, self.level_names]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def children(self, name: str) -> tuple[str, ...]:
        """Return the children of a node in order; none for a leaf."""
        return tuple(self._names[position] for position in self._below[self._position(name)])

    def parent(self, name: str) -> str | None:
        """Return the node above, or None for the root."""
        above = self._parents[self._position(name)]
        return None if above < 0 else self._names[above]

    def ancestors(self, name: str) -> tuple[str, ...]:
        """Return the nodes above `name`, the root first."""
        found = []
        position = self._parents[self._position(name)]
        while position >= 0:
            found.append(self._names[position])
            position = self._parents[position]
        return tuple(reversed(found))

    def depth(self, name: str) -> int:
        """Return the number of steps from the root, which has depth 0."""
        return self._depths[self._position(name)]

    def leaves_under(self, name: str) -> tuple[str, ...]:
        """Return the leaves of the subtree at `name`, in order; a leaf is under itself."""
        start, stop = self._slices[self._position(name)]
        return self.leaves[start:stop]

    def branch_index(self, name: str) -> int:
        """Return the place of `name` in :attr:`branches`."""
        if name in self._branch_index:
            return self._branch_index[name]
        position = self._position(name)
        kind = "has a single child" if self._below[position] else "is a leaf"
        raise UnknownNameError(
            f"`name` must be a node with two or more children; got {name!r}, which {kind}. "
            + did_you_mean(name, self.branches)
        )

    def leaf_index(self, name: str) -> int:
        """Return the place of `name` in :attr:`leaves`."""
        if name in self._leaf_index:
            return self._leaf_index[name]
        self._position(name)
        raise UnknownNameError(
            f"`name` must be a leaf; got {name!r}, which is an internal node. "
            + did_you_mean(name, self.leaves_under(name))
        )

    def level(self, level: int | str) -> tuple[str, ...]:
        """Return the names of the groups at a depth or level name, in order.

        A leaf that lies higher than the level is a group of its own.

        Examples
        --------
        >>> LabelTree.from_nested({"survived": ["none", "coma"], "died": None}).level(1)
        ('survived', 'died')
        """
        return tuple(self._names[position] for position in self._level_positions(level))

    def level_codes(self, level: int | str) -> IntArray:
        """Return, for each leaf, the index of its group in :meth:`level`; shape (n_leaves,)."""
        sizes = [
            stop - start
            for start, stop in map(self._slices.__getitem__, self._level_positions(level))
        ]
        return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)

    def encode(self, labels: object) -> IntArray:
        """Return the leaf code of each label; shape (n,).

        Parameters
        ----------
        labels : array-like of str or int, shape (n,)
            Leaf names, or integer codes in the order of :attr:`leaves`: a list, array, pandas
            Series or Categorical.

        Examples
        --------
        >>> LabelTree.flat(["cat", "dog"]).encode(["dog", "cat"])
        array([1, 0])
        """
        return _label_codes.encode(labels, self._leaf_index)

    def render(self, *, max_depth: int | None = None) -> str:
        """Return the tree as text, one node per line; below `max_depth` only leaves are counted.

        Examples
        --------
        >>> print(LabelTree.from_nested({"survived": ["none", "coma"], "died": None}).render())
        root
        ├── survived
        │   ├── none
        │   └── coma
        └── died
        """
        lines: list[str] = []
        stack = [(0, "", "")]
        while stack:
            position, lead, indent = stack.pop()
            below = self._below[position]
            line = lead + self._names[position]
            if below and max_depth is not None and self._depths[position] >= max_depth:
                start, stop = self._slices[position]
                line += f" ({stop - start} {'leaf' if stop - start == 1 else 'leaves'})"
                below = []
            lines.append(line)
            for child in reversed(below):
                last = child == below[-1]
                stack.append(
                    (
                        child,
                        indent + ("└── " if last else "├── "),
                        indent + ("    " if last else "│   "),
                    )
                )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"LabelTree(root={self.root!r}, n_leaves={self.n_leaves}, "
            f"n_branches={len(self.branches)}, height={self.height})"
        )

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        # Copies and worker processes get the content, not the caches: a copied array is writable.
        return type(self), (self._names, self._parents, self.level_names)

    # -- positions in preorder -----------------------------------------------------------------------

    def _position(self, name: str) -> int:
        try:
            return self._positions[name]
        except (KeyError, TypeError):
            raise UnknownNameError(
                f"`name` must be a node of the tree; got {name!r}. "
                + did_you_mean(name, self._positions)
            ) from None

    def _level_positions(self, level: int | str) -> list[int]:
        depth = level
        if isinstance(level, str) and level in self.level_names:
            depth = self.level_names.index(level) + 1
        if isinstance(depth, bool) or not isinstance(depth, int | np.integer):
            named = f" or one of {list(self.level_names)}" if self.level_names else ""
            raise UnknownNameError(
                f"`level` must be a depth from 0 to {self.height}{named}; got {level!r}. "
                "Pass the depth as an integer."
            )
        if not 0 <= depth <= self.height:
            raise InvalidInputError(
                f"`level` must be a depth from 0 to {self.height}; got {depth}. "
                "Level 1 is just below the root."
            )
        return [
            position
            for position, (here, below) in enumerate(zip(self._depths, self._below, strict=True))
            if here == depth or (here < depth and not below)
        ]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self._names)}

    @cached_property
    def _leaf_index(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.leaves)}

    @cached_property
    def _branch_index(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.branches)}

    @cached_property
    def _below(self) -> list[list[int]]:
        below: list[list[int]] = [[] for _ in self._names]
        for position, parent in enumerate(self._parents):
            if parent >= 0:
                below[parent].append(position)
        return below

    @cached_property
    def _depths(self) -> list[int]:
        depths: list[int] = []
        for parent in self._parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return depths

    @cached_property
    def _leaf_positions(self) -> list[int]:
        return [position for position, below in enumerate(self._below) if not below]

    @cached_property
    def _branch_positions(self) -> list[int]:
        return [position for position, below in enumerate(self._below) if len(below) > 1]

    @cached_property
    def _slices(self) -> list[tuple[int, int]]:
        size = [0 if below else 1 for below in self._below]
        for position in range(len(size) - 1, 0, -1):
            size[self._parents[position]] += size[position]
        slices: list[tuple[int, int]] = []
        start = 0
        for leaves, below in zip(size, self._below, strict=True):
            slices.append((start, start + leaves))
            start += not below
        return slices

    @cached_property
    def arrays(self) -> TreeArrays:
        """The tree as arrays for kernels, nodes with a single child contracted."""
        return _arrays(self._parents, self._below, self._depths, self._slices)


def _last_label(name: str, above: str, sep: str) -> str:
    """Return what `name` adds to the path `above`, part of which it may repeat."""
    for cut in range(len(name)):
        if name.startswith(sep, cut) and f"{sep}{above}".endswith(f"{sep}{name[:cut]}"):
            return name[cut + len(sep) :]
    return name


def _arrays(
    parents: Sequence[int],
    below: Sequence[Sequence[int]],
    depths: Sequence[int],
    slices: Sequence[tuple[int, int]],
) -> TreeArrays:
    kept = [position for position, children in enumerate(below) if len(children) > 1]
    code = _contracted_codes(below)
    topmost = [-1] * len(below)
    n_above = [0] * len(below)
    for position in range(1, len(below)):
        up = parents[position]
        branching = len(below[up]) > 1
        topmost[position] = code[up] if branching else topmost[up]
        n_above[position] = n_above[up] + branching
    lengths = [n_above[position] for position, children in enumerate(below) if not children]
    path_ptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if path_ptr[-1] > MAX_PATH_ENTRIES:
        raise InvalidTreeError(
            f"the paths of the tree must have at most {MAX_PATH_ENTRIES:,} steps in all; "
            f"got {path_ptr[-1]:,}. Group the labels into a shallower tree."
        )
    path_branch = np.empty(path_ptr[-1], dtype=np.int64)
    path_child = np.empty(path_ptr[-1], dtype=np.int64)
    for branch, position in enumerate(kept):
        start, stop = slices[position]
        here = path_ptr[start:stop] + n_above[position]
        path_branch[here] = branch
        sizes = [slices[child][1] - slices[child][0] for child in below[position]]
        path_child[here] = np.repeat(np.arange(len(sizes)), sizes)
    arrays = {
        "start": [slices[position][0] for position in kept],
        "stop": [slices[position][1] for position in kept],
        "depth": [depths[position] for position in kept],
        "parent": [topmost[position] for position in kept],
        "child_ptr": np.cumsum([0, *(len(below[position]) for position in kept)]),
        "child_code": [code[child] for position in kept for child in below[position]],
        "path_ptr": path_ptr,
        "path_branch": path_branch,
        "path_child": path_child,
    }
    frozen = {name: np.asarray(values, dtype=np.int64) for name, values in arrays.items()}
    for values in frozen.values():
        values.flags.writeable = False
    return TreeArrays(n_leaves=len(lengths), n_branches=len(kept), **frozen)


def _contracted_codes(below: Sequence[Sequence[int]]) -> list[int]:
    """Return, per node, the code of the branch or leaf that its chain of only children ends in."""
    code = [0] * len(below)
    leaf = sum(not children for children in below)
    branch = sum(len(children) > 1 for children in below)
    for position in range(len(below) - 1, -1, -1):
        children = below[position]
        if len(children) == 1:
            code[position] = code[children[0]]
        elif children:
            branch -= 1
            code[position] = branch
        else:
            leaf -= 1
            code[position] = -1 - leaf
    return code
