"""Trees that change: versions of a taxonomy, and what the nodes of one became in the next.

A file of changes lists the earlier versions, oldest first, each with the time until which the log
was written by it and with what became of its nodes in the next one::

    versions:
      - tree: tree-2025.yaml
        until: 2026-03-01
        renamed: {soft-drinks: beverages}          # any node
        split: {phone: [smartphone, landline]}     # a leaf, into leaves
        merged: {snack: [crisps, nuts]}            # leaves, into one leaf
        added: [drone]                             # nodes that have no past
        retired: {pager: electronics}              # a node, and where its rows count now

Nodes that are not named keep their name. Nothing is guessed: a leaf that is gone or new without
being named is refused.

Rows of an earlier version are read in the newest tree. A label becomes the node that says as much:
the leaf it was split into is not known, so it stops at the lowest node above those leaves. The
probability of a split leaf is spread evenly over what it was split into; branches below the label
do not see the row, so that their moments do not depend on how it is spread. A utility whose choice
depends on single leaves may, for rows of that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from huc_monitor._common.times import get_zone, to_utc
from huc_monitor.errors import InvalidTreeError, did_you_mean
from huc_monitor.tree._files import read_content
from huc_monitor.tree._tree import LabelTree
from huc_monitor.tree.shape import IntArray

_WORDS = ("renamed", "split", "merged", "added", "retired")


@dataclass(frozen=True, eq=False)
class TreeVersion:
    """An earlier tree, and what its nodes are in the newest one.

    Attributes
    ----------
    tree, newest : LabelTree
    until : datetime
        Rows before this time were written by this tree.
    leaves : dict of str to tuple of str
        The newest leaves that each of its leaves became.
    names : dict of str to str
        The newest name of each of its inner nodes that is there still.
    classes : tuple of str or None
        Order of a list column at that time, where it is not the tree's.
    """

    tree: LabelTree
    newest: LabelTree
    until: datetime
    leaves: Mapping[str, tuple[str, ...]]
    names: Mapping[str, str]
    classes: tuple[str, ...] | None = None

    @cached_property
    def spread(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Share of each newest leaf in each of its leaves; shape (leaves, newest leaves)."""
        shares = np.zeros((self.tree.n_leaves, self.newest.n_leaves))
        for row, leaf in enumerate(self.tree.leaves):
            became = [self.newest.leaf_index(name) for name in self.leaves[leaf]]
            shares[row, became] = 1.0 / len(became)
        return shares

    @cached_property
    def codes(self) -> IntArray:
        """Newest code of every code of a label, of leaves and of inner nodes."""
        nodes = (*self.tree.leaves, *self.tree.branches)
        became = [self.names.get(node) or self._under(node) for node in nodes]
        return self.newest.label_encoder().find(np.array(became, dtype=object))

    @cached_property
    def comparable(self) -> frozenset[str]:
        """Newest branches that choose among the same things as before, under whatever names."""
        kept = []
        for old, new in self.names.items():
            if old not in self.tree.branches or new not in self.newest.branches:
                continue
            before = {self._under(child) for child in self.tree.children(old)}
            after = {
                frozenset(self.newest.leaves_under(child)) for child in self.newest.children(new)
            }
            if before == after:
                kept.append(new)
        return frozenset(kept)

    def _under(self, node: str) -> frozenset[str]:
        return frozenset(new for leaf in self.tree.leaves_under(node) for new in self.leaves[leaf])

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form of what readers of records need: names, and what cannot be compared."""
        moved = {old: new for old, new in self.names.items() if old != new}
        known = [node for node in self.newest.branches if node in set(self.names.values())]
        return {
            "from": self.tree.fingerprint,
            "to": self.newest.fingerprint,
            "renamed": moved,
            "not_comparable": [node for node in known if node not in self.comparable],
        }


@dataclass(frozen=True, slots=True, eq=False)
class TreeChanges:
    """The earlier versions of a tree, oldest first.

    Attributes
    ----------
    versions : tuple of TreeVersion
    monitor : str or None
        Identity of the monitor that goes on, where it cannot be told from the first tree.
    """

    versions: tuple[TreeVersion, ...]
    monitor: str | None = None

    @classmethod
    def from_file(cls, path: str | Path, newest: LabelTree) -> TreeChanges:
        """Read a file of changes; trees in it are relative to it."""
        content = read_content(path)
        if not isinstance(content, Mapping) or not isinstance(content.get("versions"), list):
            msg = "A file of changes must have `versions`, a list of earlier trees, oldest first."
            raise InvalidTreeError(msg)
        entries = content["versions"]
        odd = [entry for entry in entries if not isinstance(entry, Mapping) or "tree" not in entry]
        if odd or not entries:
            msg = f"Each of `versions` must have a `tree` and `until`; got {odd[:1] or 'none'!r}."
            raise InvalidTreeError(msg)
        trees = [LabelTree.from_file(Path(path).parent / str(e["tree"])) for e in entries]
        found: list[TreeVersion] = []
        later: TreeVersion | None = None
        pairs = list(zip(entries, trees, [*trees[1:], newest], strict=True))
        for entry, old, new in reversed(pairs):
            later = _version(entry, old, new, newest, later)
            if found and later.until >= found[0].until:
                msg = f"`until` must grow from version to version; got {entry.get('until')!r}."
                raise InvalidTreeError(msg)
            found.insert(0, later)
        monitor = content.get("monitor")
        return cls(tuple(found), None if monitor is None else str(monitor))

    @property
    def first(self) -> LabelTree:
        """The oldest tree."""
        return self.versions[0].tree

    def incomparable(self, since: datetime) -> frozenset[str]:
        """Newest branches that chose among other things in some row since then."""
        kept = [version.comparable for version in self.versions if version.until > since]
        every = frozenset(self.versions[-1].newest.branches)
        return every - frozenset.intersection(every, *kept)

    def find(self, fingerprint: str | None) -> TreeVersion | None:
        """Return the version with this tree."""
        return next((v for v in self.versions if v.tree.fingerprint == fingerprint), None)


def _version(
    entry: Mapping[str, Any],
    old: LabelTree,
    new: LabelTree,
    newest: LabelTree,
    later: TreeVersion | None,
) -> TreeVersion:
    """Say what nodes became in the next version, and through the later ones in the newest."""
    leaves, names = _Step(entry, old, new).solve()
    if later is not None:
        leaves = {
            leaf: tuple(dict.fromkeys(n for name in became for n in later.leaves[name]))
            for leaf, became in leaves.items()
        }
        names = {
            name: later.names[became] for name, became in names.items() if became in later.names
        }
    until = entry.get("until")
    if not isinstance(until, str | datetime) and not hasattr(until, "isoformat"):
        msg = f"`until` must be a time; got {until!r}. Write the day the next tree came into use."
        raise InvalidTreeError(msg)
    text = until if isinstance(until, str | datetime) else until.isoformat()  # type: ignore[union-attr]
    classes = entry.get("classes")
    return TreeVersion(
        old,
        newest,
        to_utc(text, argument="until", zone=get_zone("UTC")),
        leaves,
        names,
        None if classes is None else tuple(map(str, classes)),
    )


class _Step:
    """From one version to the next: every node of the old tree is accounted for."""

    def __init__(self, entry: Mapping[str, Any], old: LabelTree, new: LabelTree) -> None:
        unknown = sorted(set(entry) - {"tree", "until", "classes", *_WORDS})
        if unknown:
            msg = f"A version must not have {unknown[0]!r}; it has {', '.join(_WORDS)}."
            raise InvalidTreeError(msg)
        self.old, self.new = old, new
        self.every_old = {*old.leaves, *old.nodes}
        self.every_new = {*new.leaves, *new.nodes}
        self.renamed = self._pairs(entry, "renamed")
        self.retired = self._pairs(entry, "retired")
        self.split = self._lists(entry, "split")
        self.merged = self._lists(entry, "merged")
        self.added = set(_names(entry.get("added") or [], "added"))

    def _pairs(self, entry: Mapping[str, Any], word: str) -> dict[str, str]:
        return {name: str(to) for name, to in _mapping(entry, word).items()}

    def _lists(self, entry: Mapping[str, Any], word: str) -> dict[str, tuple[str, ...]]:
        return {name: _names(to, word) for name, to in _mapping(entry, word).items()}

    def solve(self) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
        """Return the new leaves of every old leaf, and the new names of inner nodes."""
        self._check_names()
        into = {old: new for new, merged in self.merged.items() for old in merged}
        leaves = {}
        for leaf in self.old.leaves:
            if leaf in self.split:
                leaves[leaf] = self.split[leaf]
            else:
                became = into.get(leaf) or self.renamed.get(leaf) or self.retired.get(leaf) or leaf
                if became not in self.every_new:
                    msg = (
                        f"The leaf {leaf!r} is gone from the next tree. Say what became of it: "
                        "renamed, split, merged or retired."
                    )
                    raise InvalidTreeError(msg)
                leaves[leaf] = self.new.leaves_under(became)
        names = {}
        for node in self.old.nodes:
            became = self.renamed.get(node, node)
            if became in self.new.nodes:
                names[node] = became
            elif node not in self.retired:
                msg = f"The node {node!r} is gone from the next tree. Say so: renamed or retired."
                raise InvalidTreeError(msg)
        self._check_new({name for became in leaves.values() for name in became})
        return leaves, names

    def _check_names(self) -> None:
        olds = [*self.renamed, *self.retired, *self.split]
        olds += [name for merged in self.merged.values() for name in merged]
        for name in olds:
            if name not in self.every_old:
                msg = f"{name!r} must be a node of the tree before. "
                raise InvalidTreeError(msg + did_you_mean(name, self.every_old))
        news = [*self.renamed.values(), *self.retired.values(), *self.merged, *self.added]
        news += [name for parts in self.split.values() for name in parts]
        for name in news:
            if name not in self.every_new:
                msg = f"{name!r} must be a node of the tree after. "
                raise InvalidTreeError(msg + did_you_mean(name, self.every_new))
        for name in self.split:
            odd = [part for part in self.split[name] if part not in self.new.leaves]
            if name not in self.old.leaves or odd:
                msg = f"`split` must lead from a leaf to leaves; {name!r} does not."
                raise InvalidTreeError(msg)

    def _check_new(self, reached: set[str]) -> None:
        below_added = {leaf for name in self.added for leaf in self.new.leaves_under(name)}
        lost = [leaf for leaf in self.new.leaves if leaf not in reached | below_added]
        if lost:
            msg = f"The leaf {lost[0]!r} is new. Say where it is from, or list it under `added`."
            raise InvalidTreeError(msg)


def _mapping(entry: Mapping[str, Any], word: str) -> dict[str, Any]:
    found = entry.get(word) or {}
    if not isinstance(found, Mapping):
        msg = f"`{word}` must lead from nodes to nodes; got {found!r:.80}."
        raise InvalidTreeError(msg)
    return {str(name): to for name, to in found.items()}


def _names(value: Any, word: str) -> tuple[str, ...]:
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        msg = f"`{word}` must hold lists of names; got {value!r:.80}. Put it in a list."
        raise InvalidTreeError(msg)
    return tuple(map(str, value))
