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

from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean
from huc_monitor.tree import _building, _files, _text
from huc_monitor.tree.labels import InnerNodes, LabelEncoder
from huc_monitor.tree.shape import IntArray, Shape, TreeArrays


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

    # -- construction

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
        found = _building.from_nested(nested, root=root, sep="/", where="`nested`")
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
        found = _building.from_paths(paths, sep=sep, root=root, where="`paths`")
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
        return cls._of(_building.from_parents(parents, where="`parents`"), level_names)

    @classmethod
    def flat(cls, leaves: Iterable[str], *, root: str = "root") -> Self:
        """Build the tree whose root chooses among all leaves at once.

        Examples
        --------
        >>> LabelTree.flat(["cat", "dog"]).height
        1
        """
        return cls._of(_building.from_leaves(leaves, root=root, where="`leaves`"))

    @classmethod
    def from_file(cls, path: str | Path, *, root: str | None = "root") -> Self:
        """Read the tree from a YAML, JSON or CSV file.

        YAML and JSON hold what :meth:`from_nested` takes, or what :meth:`to_dict` gave. A CSV file
        has the columns ``child,parent`` (an empty parent marks the root), or a column ``path``, or
        one column per level below the root, whose header becomes the level names. `root` names the
        top node where the file does not.
        """
        return cls._of(*_files.read(path, root=root))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a tree from :meth:`to_dict`."""
        return cls._of(*_building.from_dict(data, where="`data`"))

    @classmethod
    def _of(cls, found: _building.Preorder, level_names: object = None) -> Self:
        tree = cls(*found)
        if level_names is None:
            return tree
        return cls(*found, _building.check_level_names(level_names, tree.height))

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as JSON-safe data, children by parent, whatever its depth.

        Examples
        --------
        >>> LabelTree.flat(["cat", "dog"]).to_dict()["children"]
        {'root': ['cat', 'dog']}
        """
        return {
            "schema_version": _building.SCHEMA_VERSION,
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
        paths = _text.paths(self._names, self._parents, sep)
        return tuple(paths[position] for position in self._shape.leaves)

    # -- names

    @property
    def root(self) -> str:
        """Name of the topmost node."""
        return self._names[0]

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Names of the class labels, depth first: the order of probability columns."""
        return tuple(self._names[position] for position in self._shape.leaves)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Names of all internal nodes in preorder, those with a single child included."""
        return tuple(
            name for name, below in zip(self._names, self._shape.below, strict=True) if below
        )

    @cached_property
    def branches(self) -> tuple[str, ...]:
        """Names of the nodes with two or more children, in preorder."""
        return tuple(self._names[position] for position in self._shape.branches)

    @property
    def n_leaves(self) -> int:
        """Number of class labels."""
        return len(self._shape.leaves)

    @cached_property
    def height(self) -> int:
        """Depth of the deepest leaf."""
        return max(self._shape.depths)

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change with any name, order, shape or level name."""
        content = [self._names, self._parents, self.level_names]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def children(self, name: str) -> tuple[str, ...]:
        """Return the children of a node in order; none for a leaf."""
        return tuple(self._names[position] for position in self._shape.below[self._position(name)])

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
        return self._shape.depths[self._position(name)]

    def leaves_under(self, name: str) -> tuple[str, ...]:
        """Return the leaves of the subtree at `name`, in order; a leaf is under itself."""
        start, stop = self._shape.slices[self._position(name)]
        return self.leaves[start:stop]

    def branch_index(self, name: str) -> int:
        """Return the place of `name` in :attr:`branches`."""
        if name in self._branch_index:
            return self._branch_index[name]
        position = self._position(name)
        kind = "has a single child" if self._shape.below[position] else "is a leaf"
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
        slices = [self._shape.slices[position] for position in self._level_positions(level)]
        sizes = [stop - start for start, stop in slices]
        return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)

    def encode(self, labels: object, *, any_depth: bool = False) -> IntArray:
        """Return the code of each label; shape (n,).

        Parameters
        ----------
        labels : array-like of str or int, shape (n,)
            Leaf names, or codes in the order of :attr:`leaves`: a list, array, pandas Series or
            Categorical. Where any leaf is called by a number, whole numbers are names and never
            codes. Paths such as "billing/refund" count as their last node, sets of labels as the
            lowest node above them. `Labels` bring other spellings, `LeafCodes` are codes.
        any_depth : bool, default False
            Take inner nodes as well: n_leaves + their place in :attr:`branches`.

        Examples
        --------
        >>> LabelTree.flat(["cat", "dog"]).encode(["dog", "cat"])
        array([1, 0])
        >>> LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None}).encode(
        ...     ["dog", "cat", {"lion", "lynx"}, "cat/lion"], any_depth=True
        ... )
        array([2, 4, 4, 0])
        """
        codes = self.label_encoder().encode(labels)
        if not any_depth and (codes >= self.n_leaves).any():
            row = int(np.argmax(codes >= self.n_leaves))
            node = self.branches[codes[row] - self.n_leaves]
            msg = (
                f"`labels` must reach a leaf here; got the inner node {node!r} (row {row}). "
                "Leave out rows whose label stops above the leaves."
            )
            raise InvalidInputError(msg)
        return codes

    def label_encoder(
        self, order: Sequence[str] | None = None, mapping: Mapping[str, str] | None = None
    ) -> LabelEncoder:
        """Return what turns labels into codes of nodes.

        `order` are the classes that whole numbers count, `mapping` says what other spellings mean.
        """
        classes = self.leaves if order is None else tuple(order)
        return LabelEncoder(self.leaves, classes, self._inner_nodes, mapping or {})

    def label_slices(self, codes: IntArray) -> tuple[IntArray, IntArray]:
        """Return the first leaf under the node of each code, and one past the last."""
        arrays, every = self.arrays, np.arange(self.n_leaves)
        start = np.concatenate([every, arrays.start])[codes]
        return start, np.concatenate([every + 1, arrays.stop])[codes]

    @cached_property
    def _inner_nodes(self) -> InnerNodes:
        arrays, n_leaves = self.arrays, self.n_leaves
        above = np.full(n_leaves + arrays.n_branches, -1, dtype=np.int64)
        for branch in range(arrays.n_branches):
            below = arrays.child_code[arrays.child_ptr[branch] : arrays.child_ptr[branch + 1]]
            above[np.where(below >= 0, n_leaves + below, -1 - below)] = n_leaves + branch
        ends = self._shape.contracted_codes()
        code_of = {
            name: n_leaves + end if end >= 0 else -1 - end
            for name, end, below in zip(self._names, ends, self._shape.below, strict=True)
            if below
        }
        return InnerNodes(code_of, above, self.ancestors)

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
        return _text.render(self._names, self._shape, max_depth)

    def __repr__(self) -> str:
        return (
            f"LabelTree(root={self.root!r}, n_leaves={self.n_leaves}, "
            f"n_branches={len(self.branches)}, height={self.height})"
        )

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        # Copies and worker processes get the content, not the caches: a copied array is writable.
        return type(self), (self._names, self._parents, self.level_names)

    # -- positions in preorder

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
            msg = (
                f"`level` must be a depth from 1 to {self.height}{named}; got {level!r}. "
                "Pass the depth as an integer."
            )
            raise UnknownNameError(msg)
        if not 0 <= depth <= self.height:
            msg = (
                f"`level` must be a depth from 1 to {self.height}; got {depth}. "
                "Level 1 is just below the root, which is level 0."
            )
            raise InvalidInputError(msg)
        return self._shape.level(int(depth))

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
    def _shape(self) -> Shape:
        return Shape(self._parents)

    @property
    def arrays(self) -> TreeArrays:
        """The tree as arrays for kernels, nodes with a single child contracted."""
        return self._shape.arrays
