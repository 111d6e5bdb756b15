"""The one reader of predictions: columns in, rows in the order of the tree out.

Used by the Python API, sources, the command line, Evidently and Spark alike. A row that cannot be
read is marked, never mended: `ReadRows.why` says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from huc_monitor._common.safe_text import quoted
from huc_monitor.audit.forms import flat as unpack
from huc_monitor.audit.forms.flat import MISSING, Flat
from huc_monitor.audit.forms.node_scores import Entries
from huc_monitor.audit.forms.spec import LEAF, PredictionColumns, RestLeaf
from huc_monitor.audit.sparse_rows import LOST, Rest, Rows, SparseRows, sums_by
from huc_monitor.errors import InvalidInputError, did_you_mean
from huc_monitor.tree import LabelTree
from huc_monitor.tree.labels import LabelEncoder
from huc_monitor.utilities.program import Floats, Ints

if TYPE_CHECKING:
    Mask = np.ndarray[Any, np.dtype[np.bool_]]

BAD_PROBABILITIES: Final = "bad probabilities"
SUM_TOLERANCE: Final = 1e-6
# A little less than the audit allows: it may add the numbers in another order.
_LEFT_ALONE: Final = 0.99 * SUM_TOLERANCE
_FINE, _NO_LIST, _UNKNOWN, _TWICE, _NO_NUMBER, _ABOVE_1, _LOST, _ABSENT = range(8)


@dataclass(frozen=True, slots=True, eq=False)
class ReadRows:
    """Rows as they were read: which can be used, what they summed to, and what is wrong."""

    rows: Rows
    good: Mask
    total: Floats
    explain: Callable[[int], str]

    def why(self, row: int) -> str:
        """Say what is wrong with a row."""
        return f"{BAD_PROBABILITIES}: {self.explain(row)}"


@dataclass(frozen=True, eq=False)
class PredictionReader:
    """Where the predictions are, for one tree.

    Attributes
    ----------
    tree : LabelTree
    given : PredictionColumns
    rest : Rest or None
        Where unlogged mass goes; None where nothing says so.
    tolerance : float
        Rows that sum to 1 within this are rescaled.
    """

    tree: LabelTree
    given: PredictionColumns
    rest: Rest | None
    tolerance: float = SUM_TOLERANCE

    @classmethod
    def of(cls, tree: LabelTree, given: PredictionColumns, shares: Any = None) -> PredictionReader:
        """Check what the user says against the tree.

        `shares` are the leaf shares of the rule "reference".
        """
        reader = cls(tree, given, _rest(tree, given, shares))
        # What is wrong is said now, not when the first row is read.
        _ = reader.names, reader._order
        return reader

    def allowing(self, tolerance: float) -> PredictionReader:
        """Return the same reader with another tolerance of sums."""
        return replace(self, tolerance=max(tolerance, SUM_TOLERANCE))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns to read."""
        given = self.given
        if given.pattern is not None:
            return tuple(given.pattern.replace(LEAF, name) for name in self.entries.names)
        if given.columns is not None:
            _check_mapping(given.columns, self.entries.names)
            return tuple(given.columns[name] for name in self.entries.names)
        named = given.list or given.pairs or given.map
        return tuple(name for name in (named, given.class_column) if name is not None)

    @property
    def is_wide(self) -> bool:
        """Whether there is one column per leaf or node."""
        return self.given.form in {"pattern", "columns"}

    @property
    def needs_all(self) -> bool:
        """Whether every class must be in every row."""
        return self.given.scale == "logits" or self.given.of != "leaves"

    @cached_property
    def entries(self) -> Entries:
        """What has a number: leaves, or nodes."""
        return Entries.of(self.tree, self.given.of)

    @cached_property
    def _order(self) -> tuple[str, ...]:
        order = self.entries.names if self.given.classes is None else self.given.classes
        listed = self.given.form == "list" and self.given.class_column is None
        if listed and sorted(order) != sorted(self.entries.names):
            odd = sorted(set(order) ^ set(self.entries.names)) or sorted(order)
            what = "leaf" if self.given.of == "leaves" else "node below the root"
            msg = (
                f"`classes` must name every {what} of the tree once, in the order of the list; "
                f"got {len(order)} names for {len(self.entries.names)}, {odd[0]!r} among the "
                "differences. Write the model's classes, or update the tree."
            )
            raise InvalidInputError(msg)
        return order

    @cached_property
    def _encoder(self) -> LabelEncoder:
        return LabelEncoder(self.entries.names, self._order)

    def read(self, column: Callable[[str], Any], n: int) -> ReadRows:
        """Read n rows; `column` returns a column by its name, of any type."""
        given = self.given
        if self.is_wide:
            # A column is written, and checks add up rows, in one sweep each this way round.
            matrix = np.empty((len(self.names), n)).T
            for k, name in enumerate(self.names):
                matrix[:, k] = column(name)
            return self.of_matrix(matrix)
        if given.form == "list" and given.class_column is None:
            return self._of_lists(unpack.unpack_list(column(self.names[0])))
        if given.class_column is not None:
            found = unpack.unpack_two_lists(column(given.class_column), column(self.names[0]))
        elif given.pairs is not None:
            found = unpack.unpack_pairs(column(given.pairs))
        else:
            found = unpack.unpack_map(column(str(given.map)))
        return self._of_entries(found)

    def of_matrix(self, matrix: Floats) -> ReadRows:
        """Turn numbers of all entries, in their order, into probabilities of the leaves."""
        if self.given.scale == "probabilities" and self.given.of == "leaves":
            found, good, total = check_rows(matrix, self.tolerance)
            return ReadRows(found, good, total, lambda row: _why_bad(matrix[row], self.tree.leaves))
        names, given = self.entries.names, np.ascontiguousarray(matrix)
        rows, known = self.entries.to_leaves(given, self.given.scale, self.tolerance)
        rows, summed, total = check_rows(rows, self.tolerance)
        good = summed & known

        def explain(row: int) -> str:
            scale = self.given.scale
            never = (given[row] == -np.inf) & (scale != "probabilities")
            bad = np.flatnonzero(~(np.isfinite(given[row]) | never))
            if bad.size:
                what = "the logit " if scale == "logits" else ""
                return f"{what}{given[row, bad[0]]:g} for {names[bad[0]]!r}"
            return self.entries.explain(given[row], scale, self.tolerance)

        return ReadRows(rows, good, total, explain)

    def _of_lists(self, found: Flat) -> ReadRows:
        width = len(self._order)
        place = {name: i for i, name in enumerate(self._order)}
        positions = np.array([place[name] for name in self.entries.names], dtype=np.int64)
        matrix = _unflatten(found, width)
        if (positions != np.arange(width)).any():
            matrix = matrix[:, positions]
        read, lengths = self.of_matrix(matrix), found.lengths

        def explain(row: int) -> str:
            if lengths[row] == width:
                return read.explain(row)
            length = "none" if lengths[row] < 0 else f"{lengths[row]}"
            return f"expected a list of {width} numbers, got {length}"

        return ReadRows(read.rows, read.good, read.total, explain)

    def _of_entries(self, found: Flat) -> ReadRows:
        """Read rows that name their own classes."""
        n, width = found.lengths.size, len(self.entries.names)
        codes = self._codes(found.classes)
        row = np.repeat(np.arange(n), found.counts)
        scores = found.scores
        if self.given.scale == "log_probabilities" and not self.needs_all:
            scores = np.exp(scores)
        total = sums_by(row, np.where(np.isfinite(scores), scores, 0.0), n)
        state = self._states(found.lengths, row, codes, scores, total)
        explain = _Explaining(self, found, codes, scores, state)
        good = state == _FINE
        kept = good[row]
        if self.needs_all:
            matrix = np.full((n, width), np.nan)
            matrix[row[kept], codes[kept]] = scores[kept]
            read = self.of_matrix(matrix)
            whole = ReadRows(read.rows, read.good & good, read.total, explain)
            explain.numbers = read
            return whole
        lengths = np.where(good, found.counts, 0)
        score = self._rescaled(row, codes, np.where(kept, scores, 0.0), n)
        rest = self.rest or Rest.uniform(width)  # nothing is spread where there is no rule
        rows = SparseRows.complete(lengths, codes[kept], score[kept], rest)
        if n and (lengths == width).all():
            return ReadRows(rows.dense(), good, total, explain)
        return ReadRows(rows, good, total, explain)

    def _codes(self, classes: Any) -> Ints:
        if hasattr(classes, "dictionary_encode") and len(classes):
            found = classes.dictionary_encode()
            known = self._encoder.find(found.dictionary.to_pandas().astype(object))
            places = found.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
            out: Ints = np.append(known, -1)[places]
            return out
        if isinstance(classes, np.ndarray) and classes.dtype.kind in "iu":
            return self._encoder.find(classes)
        if hasattr(classes, "to_pylist"):
            classes = classes.to_pylist()
        return self._encoder.find(pd.Series(classes, dtype=object))

    def _states(self, lengths: Ints, row: Ints, codes: Ints, scores: Floats, total: Floats) -> Ints:
        """Say of every row what is wrong with it first."""
        n = lengths.size
        state = np.full(n, _FINE, dtype=np.int64)

        def mark(rows: Any, code: int) -> None:
            some = np.zeros(n, dtype=bool)
            some[rows] = True
            state[some & (state == _FINE)] = code

        mark(lengths == MISSING, _NO_LIST)
        mark(row[codes < 0], _UNKNOWN)
        place = np.sort((row * len(self.entries.names) + codes)[codes >= 0])
        mark(place[1:][np.diff(place) == 0] // len(self.entries.names), _TWICE)
        if self.needs_all:
            mark((lengths >= 0) & (lengths != len(self.entries.names)), _ABSENT)
            return state
        with np.errstate(invalid="ignore"):
            mark(row[~(np.isfinite(scores) & (scores >= 0))], _NO_NUMBER)
        mark(total > 1.0 + self.tolerance, _ABOVE_1)
        full = lengths == len(self.entries.names)
        mark(full & (total < 1.0 - self.tolerance), _ABOVE_1)
        if self.rest is None:
            mark(total < 1.0 - max(LOST, self.tolerance), _LOST)
        return state

    def _rescaled(self, row: Ints, codes: Ints, scores: Floats, n: int) -> Floats:
        """Divide rows by their sum where rounding explains that it is not 1, as dense rows are."""
        total = sums_by(row, scores, n)
        off = np.abs(total - 1.0)
        counts = np.bincount(row, minlength=n)
        below = (total < 1.0) & (counts < len(self.entries.names)) & (self.rest is not None)
        rounded = (off > _LEFT_ALONE) & (off <= self.tolerance) & ~below
        if not rounded.any():
            return scores
        # In the order in which dense rows are added up, so that the bits are the same.
        divisor = np.ones(n)
        chosen = np.flatnonzero(rounded)
        places = np.full(n, -1)
        places[chosen] = np.arange(chosen.size)
        for lo in range(0, chosen.size, 256):
            dense = np.zeros((min(256, chosen.size - lo), len(self.entries.names)))
            mine = (places[row] >= lo) & (places[row] < lo + 256)
            dense[places[row[mine]] - lo, codes[mine]] = scores[mine]
            divisor[chosen[lo : lo + 256]] = dense.sum(axis=1)
        return scores / divisor[row]


@dataclass(slots=True, eq=False)
class _Explaining:
    """Says what is wrong with a row that names its own classes."""

    reader: PredictionReader
    found: Flat
    codes: Ints
    scores: Floats
    state: Ints
    numbers: ReadRows | None = None

    def __call__(self, row: int) -> str:
        state, given = self.state[row], self.reader.given
        column = repr(self.reader.names[0])
        if state == _FINE and self.numbers is not None:
            return self.numbers.explain(row)
        if state == _NO_LIST:
            return f"the column {column} holds no {_WHAT[given.form]}"
        first = int(self.found.counts[:row].sum())
        mine = slice(first, first + int(self.found.counts[row]))
        names = [_plain(value) for value in self.found.classes[mine]]
        codes, scores = self.codes[mine], self.scores[mine]
        if state == _UNKNOWN:
            name = names[int(np.argmax(codes < 0))]
            return f"unknown class {quoted(name)} in {column}"
        if state == _TWICE:
            values, counts = np.unique(codes, return_counts=True)
            return f"{self.reader.entries.names[values[counts > 1][0]]!r} more than once"
        if state == _NO_NUMBER:
            at = int(np.argmax(~(np.isfinite(scores) & (scores >= 0))))
            return f"{self.found.scores[mine][at]:g} for {quoted(names[at])}"
        if state == _ABSENT:
            n = len(self.reader.entries.names)
            return f"{len(codes)} of {n} classes, and {given.scale} of {given.of} need all"
        if state == _LOST:
            return f"they sum to {scores.sum():.6g}, and no `rest` says where the others' mass goes"
        return f"they sum to {scores.sum():.6g}"


_WHAT: Final = {"list": "list", "pairs": "list of pairs", "map": "map"}


def _plain(value: Any) -> Any:
    return value.as_py() if hasattr(value, "as_py") else value


def _rest(tree: LabelTree, given: PredictionColumns, shares: Any) -> Rest | None:
    rule = given.rest
    if rule is None or rule == "uniform":
        return None if rule is None else Rest.uniform(tree.n_leaves)
    if rule == "reference":
        if shares is None:
            msg = (
                "`rest` must be 'uniform', a leaf or shares by leaf here; 'reference' is for "
                "monitors, whose configuration has a reference window. `hm.leaf_shares` makes "
                "such shares of predictions."
            )
            raise InvalidInputError(msg)
        return Rest.in_proportion(shares)
    if isinstance(rule, RestLeaf):
        return Rest.one_leaf(tree.leaf_index(rule.leaf), tree.n_leaves)
    assert isinstance(rule, Mapping)  # noqa: S101 - no other type passes the settings
    weights = np.zeros(tree.n_leaves)
    for leaf, share in rule.items():
        weights[tree.leaf_index(leaf)] = share
    return Rest.in_proportion(weights)


def _check_mapping(columns: Mapping[str, str], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in columns]
    unknown = [name for name in columns if name not in set(names)]
    if missing or unknown:
        what = f"misses {missing[0]!r}" if missing else f"has {unknown[0]!r}"
        hint = did_you_mean(unknown[0], names) if unknown and not missing else ""
        shown = f"{', '.join(map(repr, names[:8]))}{', ...' if len(names) > 8 else ''}"
        msg = (
            f"`probabilities` must map every leaf of the tree to a column, and nothing else; it "
            f"{what}. Leaves: {shown}. {hint}".rstrip()
        )
        raise InvalidInputError(msg)


def check_rows(matrix: Floats, tolerance: float) -> tuple[Floats, Mask, Floats]:
    """Rescale rows that are off by rounding, in place if possible.

    Also says which are distributions, and what they summed to.
    """
    with np.errstate(invalid="ignore"):
        total = matrix.sum(axis=1)
        off = np.abs(total - 1.0)
        good = (matrix >= 0).all(axis=1) & (off <= max(tolerance, SUM_TOLERANCE))
    rescale = np.flatnonzero(good & (off > _LEFT_ALONE))
    if len(rescale):
        chosen = np.ascontiguousarray(matrix[rescale])
        matrix = matrix if matrix.flags.writeable else matrix.copy()
        matrix[rescale] = chosen / chosen.sum(axis=1)[:, None]
    return matrix, np.asarray(good), total


def _why_bad(row: Floats, names: Sequence[str]) -> str:
    bad = np.flatnonzero(~(np.isfinite(row) & (row >= 0)))
    if bad.size:
        return f"{row[bad[0]]:g} for {names[bad[0]]!r}"
    return f"they sum to {row.sum():.6g}"


def _unflatten(found: Flat, width: int) -> Floats:
    if (found.lengths == width).all():
        return found.scores.reshape(len(found.lengths), width)
    matrix = np.full((len(found.lengths), width), np.nan)
    fits = found.lengths == width
    matrix[fits] = found.scores[np.repeat(fits, found.counts)].reshape(-1, width)
    return matrix
