"""Lists, pairs and maps of a column as flat arrays, whatever type the column has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd

from huc_monitor.utilities.program import Floats, Ints

MISSING: Final = -1
_SCORE_WORDS: Final = ("score", "probability", "prob", "p", "value", "logprob", "log_prob", "logit")


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """The entries of all rows, one row after the other.

    ``lengths`` is -1 where a row has no list; ``classes`` is None for lists of numbers alone.
    """

    lengths: Ints
    classes: Any
    scores: Floats

    @property
    def counts(self) -> Ints:
        """Entries of each row."""
        return np.maximum(self.lengths, 0)


def unpack_list(values: Any) -> Flat:
    """Read a column of lists of numbers."""
    lengths, flat = _lists(values)
    return Flat(lengths, None, _numbers(flat))


def unpack_two_lists(classes: Any, scores: Any) -> Flat:
    """Read a column of lists of classes and one of lists of numbers; both must be as long.

    Rows whose lists differ in length are taken as missing.
    """
    (n_classes, names), (n_scores, numbers) = _lists(classes), _lists(scores)
    if np.array_equal(n_classes, n_scores):
        return Flat(n_scores, names, _numbers(numbers))
    same = n_classes == n_scores
    mine = np.repeat(same, np.maximum(n_classes, 0)), np.repeat(same, np.maximum(n_scores, 0))
    kept = pd.Series(_plain(names), dtype=object)[mine[0]].to_numpy()
    return Flat(np.where(same, n_scores, MISSING), kept, _numbers(numbers)[mine[1]])


def unpack_pairs(values: Any) -> Flat:
    """Read a column of lists of {class, score}, or of [class, score]."""
    if _is_arrow(values) and not _is_text(values):
        lengths, flat = _lists(values)
        if hasattr(flat, "field"):  # structs
            at = _score_place(flat.type.names, [str(field.type) for field in flat.type])
            return Flat(lengths, flat.field(1 - at), _numbers(flat.field(at)))
        values = values.to_pylist()
    rows = [_pairs_of(value) for value in _objects(values)]
    return _joined(rows)


def unpack_map(values: Any) -> Flat:
    """Read a column of maps or structs from class to number; a null number was not logged."""
    if _is_arrow(values) and not _is_text(values):
        if hasattr(values, "keys"):
            offsets = values.offsets.to_numpy()
            lengths = np.where(_nulls(values), MISSING, np.diff(offsets))
            first, n = int(offsets[0]), int(offsets[-1] - offsets[0])
            scores = _numbers(values.items.slice(first, n))
            return Flat(lengths, values.keys.slice(first, n), scores)
        if hasattr(values, "field") and hasattr(values.type, "names"):
            return _struct(values)
        values = values.to_pylist()
    return _joined([_map_of(value) for value in _objects(values)])


def _struct(values: Any) -> Flat:
    names = np.array(values.type.names, dtype=object)
    fields = values.flatten()
    matrix = np.column_stack([_numbers(one) for one in fields])
    there = ~np.column_stack([_nulls(one) for one in fields])
    none = _nulls(values)
    there[none] = False
    lengths = np.where(none, MISSING, there.sum(axis=1))
    return Flat(lengths, names[np.nonzero(there)[1]], matrix[there])


def _pairs_of(value: Any) -> tuple[list[Any], list[Any]] | None:
    value = _parsed(value)
    if value is None or isinstance(value, dict | str) or not np.iterable(value):
        return None
    classes, scores = [], []
    for pair in value:
        if isinstance(pair, dict):
            if len(pair) != 2:
                return None
            at = _score_place(list(pair), [type(item).__name__ for item in pair.values()])
            items = list(pair.values())
            classes.append(items[1 - at])
            scores.append(items[at])
        elif np.ndim(pair) == 1 and len(pair) == 2:
            classes.append(pair[0])
            scores.append(pair[1])
        else:
            return None
    return classes, scores


def _map_of(value: Any) -> tuple[list[Any], list[Any]] | None:
    value = _parsed(value)
    if isinstance(value, list | tuple | np.ndarray) and all(len(item) == 2 for item in value):
        value = dict(value)  # as Arrow hands maps over
    if not isinstance(value, dict):
        return None
    kept = {key: number for key, number in value.items() if number is not None}
    return list(kept), list(kept.values())


def _score_place(names: Sequence[str], kinds: Sequence[str]) -> int:
    """Say which of two fields is the score: by name, else the one that is a fractional number."""
    for at, name in enumerate(names):
        if name.lower() in _SCORE_WORDS:
            return at
    fractional = [any(word in kind for word in ("float", "double", "dec")) for kind in kinds]
    return 0 if fractional[0] and not fractional[1] else 1


def _joined(rows: list[tuple[list[Any], list[Any]] | None]) -> Flat:
    lengths = np.array([MISSING if row is None else len(row[0]) for row in rows], dtype=np.int64)
    kept = [row for row in rows if row is not None]
    classes = list(chain.from_iterable(row[0] for row in kept))
    scores = list(chain.from_iterable(row[1] for row in kept))
    return Flat(lengths, _object_array(classes), _numbers(scores))


def _lists(values: Any) -> tuple[Ints, Any]:
    """Return the length of every list, and all entries one after the other."""
    if _is_arrow(values) and not _is_text(values):
        import pyarrow.compute as pc

        lengths = pc.list_value_length(values).fill_null(MISSING).to_numpy(zero_copy_only=False)
        return lengths.astype(np.int64), values.flatten()
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return np.full(len(values), values.shape[1], dtype=np.int64), values.ravel()
    rows = [_list_of(value) for value in _objects(values)]
    lengths = np.array([MISSING if row is None else len(row) for row in rows], dtype=np.int64)
    kept = [row for row in rows if row is not None]
    if kept and all(isinstance(row, np.ndarray) and row.dtype.kind in "fiu" for row in kept):
        return lengths, np.concatenate(kept)
    return lengths, _object_array(list(chain.from_iterable(kept)))


def _list_of(value: Any) -> Any:
    value = _parsed(value)
    if isinstance(value, np.ndarray):
        return value if value.ndim == 1 else None
    return value if isinstance(value, list | tuple) else None


def _parsed(value: Any) -> Any:
    """Return what JSON text says, None where it is none; everything else as it is."""
    if not isinstance(value, str | bytes):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None


def _objects(values: Any) -> Any:
    if _is_arrow(values):
        return values.to_pylist()
    return values.tolist() if isinstance(values, pd.Series | pd.Index) else values


def _object_array(values: list[Any]) -> Any:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _numbers(values: Any) -> Floats:
    """Numbers as float64, NaN where there is none; float32 keeps its own bits."""
    if _is_arrow(values):
        plain = values.to_numpy(zero_copy_only=False)
    else:
        plain = np.asarray(values, dtype=None if hasattr(values, "dtype") else object)
    if plain.dtype.kind in "fiu":
        numbers: Floats = plain.astype(np.float64, copy=False)
        return numbers
    return np.array([_number(value) for value in plain], dtype=np.float64)


def _number(value: Any) -> float:
    if isinstance(value, bool | np.bool_ | str | bytes) or value is None:
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


def _plain(values: Any) -> Any:
    return values.to_numpy(zero_copy_only=False) if _is_arrow(values) else values


def _nulls(values: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False), dtype=bool)


def _is_arrow(values: Any) -> bool:
    return hasattr(values, "to_pylist") and hasattr(values, "type")


def _is_text(values: Any) -> bool:
    return str(values.type) in {"string", "large_string", "string_view", "null"}
