"""Recognise the form of a log's predictions by looking at its values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from huc_monitor.audit.forms.node_scores import nodes_below_root
from huc_monitor.audit.forms.reader import PredictionReader, ReadRows
from huc_monitor.audit.forms.spec import PredictionColumns
from huc_monitor.audit.inputs import Predictions
from huc_monitor.audit.sparse_rows import Rows, SparseRows
from huc_monitor.errors import InvalidInputError
from huc_monitor.sources._rows import find_patterns, read_chunk
from huc_monitor.sources._table import Chunk
from huc_monitor.tree import LabelTree
from huc_monitor.utilities.program import Ints

if TYPE_CHECKING:
    import pandas as pd

    from huc_monitor.config._guess import TableSample

_ROUNDED: Final = 0.02
# What the numbers may be, the safest reading first: any numbers at all may be logits.
_MEANINGS: Final = (
    ("leaves", "probabilities"),
    ("leaves", "log_probabilities"),
    ("branches", "probabilities"),
    ("levels", "probabilities"),
    ("branches", "log_probabilities"),
    ("levels", "log_probabilities"),
    ("leaves", "logits"),
    ("branches", "logits"),
)
_SAID: Final = {
    "log_probabilities": "they are logarithms: their exponentials sum to 1 or less",
    "logits": "no form of them sums to 1, so they are taken for logits",
    "branches": "numbers of each node's children sum to 1: nodes are given their parent",
    "levels": "numbers of each level sum to 1, and are not sums of the level below",
}


@dataclass(frozen=True, slots=True, eq=False)
class FoundPredictions:
    """Where the predictions are, which leaf is the likeliest in each row, and what to note.

    ``off`` is how far sums are from 1 by rounding, ``unlogged`` the mean mass not logged.
    """

    columns: PredictionColumns
    names: tuple[str, ...]
    top: Ints
    off: float
    unlogged: float
    notes: tuple[str, ...]


def find_predictions(sample: TableSample, tree: LabelTree) -> FoundPredictions | None:
    """Return the first form that most rows of a sample have; None if there is none."""
    for words in _candidates(sample, tree):
        for of, scale in _MEANINGS:
            found = _try(sample, tree, {**words, "of": of, "scale": scale})
            if found is not None:
                return found
    return None


def _try(sample: TableSample, tree: LabelTree, words: dict[str, Any]) -> FoundPredictions | None:
    nodes = words.pop("nodes", False)
    if nodes and words["of"] == "leaves":
        return None
    sparse = "class_column" in words or "pairs" in words or "map" in words
    if sparse and words["of"] == "leaves" and words["scale"] != "logits":
        words["rest"] = "uniform"
    try:
        reader = PredictionReader.of(tree, PredictionColumns(**words)).allowing(_ROUNDED)
    except InvalidInputError:
        return None
    if not set(reader.names) <= set(sample.types):
        return None
    there = sample.frame[list(reader.names)].notna().all(axis=1).to_numpy()
    frame = sample.frame[there].reset_index(drop=True)
    if not len(frame):
        return None
    read = read_chunk(reader, Chunk(frame))
    if read.good.mean() < 0.9 or (words["scale"] == "logits" and not _has_signs(reader, frame)):
        return None
    rows = read.rows[read.good]
    if words["of"] == "levels" and _adds_up(reader, frame):
        return None
    top = np.full(len(there), -1, dtype=np.int64)
    top[np.flatnonzero(there)[read.good]] = Predictions.of(rows).likeliest()
    return _describe(reader, rows, top, _rounding(reader, read))


def _has_signs(reader: PredictionReader, frame: pd.DataFrame) -> bool:
    """Say whether numbers are of both signs: positive ones alone may be anything."""
    plain = [_parsed(value) for name in reader.names for value in frame[name].head(100)]
    numbers = [one for value in plain for one in _numbers_in(value)]
    return min(numbers, default=0.0) < 0.0 < max(numbers, default=0.0)


def _numbers_in(value: Any) -> list[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple | np.ndarray):
        return [number for one in value for number in _numbers_in(one)]
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return [float(value)] if is_number and np.isfinite(value) else []


def _describe(reader: PredictionReader, rows: Rows, top: Ints, off: float) -> FoundPredictions:
    given = reader.given
    notes = [_SAID[word] for word in (given.of, given.scale) if word in _SAID]
    unlogged = float(rows.unlogged.mean()) if isinstance(rows, SparseRows) else 0.0
    rest = "reference" if unlogged > 0 else None
    if unlogged > 0:
        notes.append(
            f"{100 * unlogged:.2g} % of the mass is not logged; `rest` spreads it as the reference "
            "window's predictions are spread"
        )
    columns = given.model_copy(update={"rest": rest})
    return FoundPredictions(columns, reader.names, top, off, unlogged, tuple(notes))


def _rounding(reader: PredictionReader, read: ReadRows) -> float:
    """Return how far from 1 the worst of the 95 % best rows is, where that is rounding."""
    if reader.given.scale == "logits" or reader.given.of != "leaves":
        return 0.0
    off = read.total - 1.0
    if isinstance(read.rows, SparseRows):  # a sum below 1 is what was not logged
        off = np.maximum(off, 0.0)
    return float(np.quantile(np.abs(off[read.good]), 0.95))


def _adds_up(reader: PredictionReader, frame: pd.DataFrame) -> bool:
    """Say whether nodes have the sum of their leaves: then the leaves alone say everything."""
    plain = PredictionReader(reader.tree, reader.given, None, np.inf)
    entries = plain.entries
    if not plain.is_wide:
        return False
    matrix = np.column_stack([frame[name].to_numpy(np.float64) for name in plain.names])
    for name in reader.tree.nodes:
        children = reader.tree.children(name)
        if name == reader.tree.root or not children:
            continue
        parts = matrix[:, [entries.names.index(child) for child in children]].sum(axis=1)
        if np.abs(parts - matrix[:, entries.names.index(name)]).max(initial=0.0) > 1e-3:
            return False
    return True


def _candidates(sample: TableSample, tree: LabelTree) -> Iterator[dict[str, Any]]:
    """Yield where the numbers may be: the forms that say most about themselves first."""
    names = list(sample.types)
    below = nodes_below_root(tree)
    if len(below) > tree.n_leaves:
        yield from ({"pattern": p, "nodes": True} for p in find_patterns(names, tree, below))
    patterns = find_patterns(names, tree)
    yield from ({"pattern": pattern} for pattern in patterns)
    if not patterns:
        yield from ({"columns": columns} for columns in _loose_patterns(names, tree))
    kinds = {name: _kind_of(sample, name) for name in names}
    scores = [name for name, kind in kinds.items() if kind == "numbers"]
    classes = [name for name, kind in kinds.items() if kind in {"names", "numbers"}]
    yield from ({"map": name} for name, kind in kinds.items() if kind == "map")
    yield from ({"pairs": name} for name, kind in kinds.items() if kind == "pairs")
    for named in sorted(classes, key=lambda name: kinds[name] == "numbers"):
        others = [name for name in scores if name != named]
        yield from ({"list": name, "class_column": named} for name in others)
    yield from ({"list": name} for name in scores)


def _kind_of(sample: TableSample, name: str) -> str | None:
    """Say what a column holds: numbers, names, pairs or a map; None for anything else."""
    values = sample.frame[name].dropna()
    first: Any = next((value for value in values if _entries(_parsed(value))), None)
    first = _parsed(first)
    if isinstance(first, dict):
        return "map"
    inside = _entries(first)
    if not inside:
        return None
    one = inside[0]
    if isinstance(one, dict | list | tuple | np.ndarray):
        is_map = sample.types[name].upper().startswith("MAP")
        return "map" if is_map else "pairs" if len(one) == 2 else None
    if isinstance(one, str):
        return "names"
    is_number = isinstance(one, int | float | np.number) and not isinstance(one, bool)
    return "numbers" if is_number else None


def _entries(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value)
    return list(value) if isinstance(value, list | tuple | np.ndarray) else []


def _parsed(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}:
        try:
            return json.loads(value)
        except ValueError:
            return None
    return value


def _loose_patterns(names: Sequence[str], tree: LabelTree) -> Iterable[dict[str, str]]:
    """Match names but for case and punctuation: 'P(Coma)' is the column of the leaf 'coma'."""
    plain = {_plain(name): name for name in names}
    leaves = {leaf: _plain(leaf) for leaf in tree.leaves}
    if len(plain) < len(names) or len(set(leaves.values())) < tree.n_leaves:
        return []
    first = max(leaves.values(), key=len)
    found = []
    for name in plain:
        at = name.find(first)
        if at < 0:
            continue
        before, after = name[:at], name[at + len(first) :]
        wanted = {leaf: f"{before}{text}{after}" for leaf, text in leaves.items()}
        if all(text in plain for text in wanted.values()):
            columns = {leaf: plain[text] for leaf, text in wanted.items()}
            found.append((len(before) + len(after), columns))
    return [columns for _, columns in sorted(found, key=lambda pair: pair[0])]


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())
