"""The tree as an icicle: the root on the left, each branch coloured by its worst moment.

A large tree is unfolded where it is worst until the rows run out; what stays folded says how much
lies behind it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from huc_monitor.reporting import _words
from huc_monitor.reporting._drawing import Group, Mark, Picture, Rect, Text, fitted, text_width
from huc_monitor.reporting._looks import shade
from huc_monitor.reporting._model import CandidateView, WindowView
from huc_monitor.tree import LabelTree

_ROW = 30.0
_MIN_COLUMN = 132.0
MAX_ROWS = 40
_MAX_LEAVES = 24
_MARKED = 1e6
_FEW = 3
_STATUS_RANK = {"sure": 2, "possible": 1, "within": 0}


@dataclass(slots=True)
class _Cell:
    """A node of the picture: its name, or in `note` what stands for several."""

    name: str | None
    note: str = ""
    children: list[_Cell] = field(default_factory=list)

    def rows(self) -> int:
        return max(1, sum(child.rows() for child in self.children))

    def depth(self) -> int:
        return 1 + max((child.depth() for child in self.children), default=0)


def icicle(
    window: WindowView,
    tree: LabelTree,
    *,
    width: float = 960.0,
    max_rows: int = MAX_ROWS,
    page: Callable[[str], str | None] | None = None,
) -> Picture:
    """Draw the tree with every branch's worst moment against its tolerance.

    With `page`, each branch is a link to the address it returns.
    """
    worst = window.worst_by("node")
    root = _unfold(tree, worst, max_rows)
    columns = root.depth()
    column = max(_MIN_COLUMN, width / columns)
    indices = {name: index for index, name in enumerate(tree.nodes)}

    def about(name: str, level: int, words: str) -> dict[str, str]:
        if page is not None:
            address = page(name)
            return {"class": "node", "aria-label": words} | ({"href": address} if address else {})
        return {
            "class": "node",
            "data-node": str(indices[name]),
            "role": "treeitem",
            "aria-level": str(level),
            "aria-label": words,
            "tabindex": "0" if level == 1 else "-1",
        }

    marks: list[Mark] = []
    for cell, x, y, level in _placed(root, column):
        height = cell.rows() * _ROW
        if cell.name is None:
            label = Text(x + 10, y + height / 2 + 4, fitted(cell.note, column - 20, "note"), "note")
            marks.append(Group((Rect(x, y, column, height, "empty"), label), title=cell.note))
            continue
        found = worst.get(cell.name)
        words = _words.one_line(found) if found else f"{cell.name}: no utility depends on it"
        drawn = tuple(_node(cell.name, found, x, y, column, height))
        marks.append(Group(drawn, title=words, attributes=about(cell.name, level, words)))
    return Picture(
        width=column * columns,
        height=root.rows() * _ROW,
        marks=tuple(marks),
        title="Label tree, each branch coloured by its worst moment",
        description=_describe(worst),
    )


@dataclass(frozen=True, slots=True)
class Twig:
    """A branch in the list of the tree; `more` says what it holds besides `children`."""

    name: str
    found: CandidateView | None
    children: tuple[Twig, ...]
    more: str
    is_open: bool
    fits: bool


def as_list(window: WindowView, tree: LabelTree) -> Twig:
    """Return all branches, opened down to those that are marked; `fits`: the picture shows all."""
    worst = window.worst_by("node")
    rank = _ranks(tree, worst)
    fits = len(tree.nodes) <= MAX_ROWS
    made: dict[str, Twig] = {}
    for name in reversed(tree.nodes):
        below = tree.children(name)
        inner = tuple(made[child] for child in below if child in made)
        classes = [child for child in below if child not in made]
        said = ", ".join(classes) if len(classes) <= _FEW else _count(len(classes), "class", "es")
        is_open = tree.parent(name) is None or any(rank[t.name] >= _MARKED for t in inner)
        made[name] = Twig(name, worst.get(name), inner, said, is_open, fits)
    return made[tree.root]


def _describe(worst: dict[str, CandidateView]) -> str:
    off = [found for found in worst.values() if found.status != "within"]
    if not off:
        return f"None of {len(worst)} branches is marked."
    off.sort(key=lambda found: -abs(found.moment))
    named = "; ".join(
        f"{found.node} {_words.signed(found.moment)}, {_words.status(found)}" for found in off[:5]
    )
    return f"{len(off)} of {len(worst)} branches are marked. {named}."


def _unfold(tree: LabelTree, worst: dict[str, CandidateView], max_rows: int) -> _Cell:
    """Open nodes, the worst subtree first, until the rows are used up."""
    rank = _ranks(tree, worst)
    show_leaves = tree.n_leaves <= _MAX_LEAVES
    roomy = len(tree.nodes) <= max_rows
    root = _Cell(tree.root)
    free = max_rows - 1
    queue: list[tuple[float, int, _Cell]] = [(-rank[tree.root], 0, root)]
    serial = 0
    while queue:
        _, _, cell = heapq.heappop(queue)
        name = str(cell.name)
        inner = [child for child in tree.children(name) if tree.children(child)]
        outer = [child for child in tree.children(name) if not tree.children(child)]
        ranked = sorted(inner, key=lambda child: -rank[child])
        marked = sum(rank[child] >= _MARKED for child in inner)
        most = len(inner) if roomy else max(marked, _FEW) if name != tree.root else max_rows // 2
        kept = set(ranked[: max(0, min(most, free))])
        cell.children = [_Cell(child) for child in inner if child in kept]
        if len(kept) < len(inner):
            cell.children.append(_Cell(None, _folded(tree, ranked[len(kept) :], worst)))
        if outer and show_leaves:
            cell.children += [_Cell(None, child) for child in outer]
        elif outer:
            cell.children.append(_Cell(None, _count(len(outer), "class", "es")))
        free -= cell.rows() - 1
        for child in cell.children:
            if child.name is not None:
                serial += 1
                heapq.heappush(queue, (-rank[child.name], serial, child))
    _order(root, tree)
    return root


def _folded(tree: LabelTree, names: list[str], worst: dict[str, CandidateView]) -> str:
    """Say how many branches are not drawn, and the largest moment among them."""
    tops = set(names)
    hidden = [worst[n] for n in tree.nodes if n in worst and _under(tree, n, tops)]
    largest = max(hidden, key=lambda found: abs(found.moment), default=None)
    if largest is None:
        return _count(len(hidden), "more branch", "es")
    return f"{len(hidden):,} more, up to {_words.signed(largest.moment)}"


def _under(tree: LabelTree, name: str, tops: set[str]) -> bool:
    return name in tops or any(above in tops for above in tree.ancestors(name))


def _ranks(tree: LabelTree, worst: dict[str, CandidateView]) -> dict[str, float]:
    """How bad the worst branch of each subtree is."""
    rank = dict.fromkeys(tree.nodes, 0.0)
    for name in reversed(tree.nodes):
        found = worst.get(name)
        if found is not None:
            rank[name] = max(rank[name], rank_of(found))
        above = tree.parent(name)
        if above is not None:
            rank[above] = max(rank[above], rank[name])
    return rank


def rank_of(found: CandidateView) -> float:
    """Say how bad a candidate is: what is sure comes before what is large."""
    return _MARKED * _STATUS_RANK[found.status] + found.size


def _order(cell: _Cell, tree: LabelTree) -> None:
    """Put children in the tree's order, what stands for several last."""
    if cell.name is not None and cell.children:
        place = {child: i for i, child in enumerate(tree.children(cell.name))}
        cell.children.sort(key=lambda c: place.get(c.name or c.note, len(place)))
        for child in cell.children:
            _order(child, tree)


def _count(count: int, noun: str, plural: str) -> str:
    return f"{count} {noun}{plural if count != 1 else ''}"


def _placed(
    cell: _Cell, width: float, x: float = 0.0, y: float = 0.0, level: int = 1
) -> Iterator[tuple[_Cell, float, float, int]]:
    """Yield all cells, each with its corner and its level."""
    yield cell, x, y, level
    for child in cell.children:
        yield from _placed(child, width, x + width, y, level + 1)
        y += child.rows() * _ROW


def _node(
    name: str, found: CandidateView | None, x: float, y: float, width: float, height: float
) -> list[Mark]:
    middle = y + height / 2
    if found is None:
        return [
            Rect(x, y, width, height, "empty"),
            Text(x + 10, middle + 4, fitted(name, width - 20, "label"), "label"),
        ]
    tone = shade(found.moment, found.scale)
    number = f"{_words.glyph(found)}{_words.signed(found.moment)}"
    marks: list[Mark] = [Rect(x, y, width, height, tone)]
    if found.status != "within":
        marks.append(Rect(x + 1.5, y + 1.5, width - 3, height - 3, found.status, 2))
    if height >= 2 * _ROW:
        marks += [
            Text(x + 10, middle - 4, fitted(name, width - 20, f"name-{tone}"), f"name-{tone}"),
            Text(x + 10, middle + 13, number, f"on-{tone}"),
        ]
    else:
        label = fitted(name, width - 28 - text_width(number, f"on-{tone}"), f"name-{tone}")
        marks += [
            Text(x + 10, middle + 4, label, f"name-{tone}"),
            Text(x + width - 9, middle + 4, number, f"on-{tone}", "end"),
        ]
    return marks
