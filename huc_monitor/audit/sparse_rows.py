"""Predictions of which only some leaves were logged, kept as they were logged.

A row holds the leaves that were logged, in the order of the tree, with their probabilities. The
mass that was not logged is spread over the other leaves by one rule for all rows, a share per leaf
(`Rest`): in proportion to the shares of the leaves that the row did not log. So the completed row
is known leaf by leaf without being written down; `block` writes some rows down where a kernel needs
them. A row that logs all of its mass has nothing to spread: its other leaves have probability 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from huc_monitor.errors import InvalidInputError
from huc_monitor.utilities.program import Floats, Ints

# Rows that log 1 within this have lost nothing.
LOST: Final = 1e-6
_COLUMN_CELLS: Final = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """Where mass goes that was not logged: a share per leaf, or all of it to `one` leaf."""

    shares: Floats
    one: int | None = None

    @classmethod
    def uniform(cls, n_leaves: int) -> Rest:
        """Spread it evenly over the leaves that a row did not log."""
        return cls(np.full(n_leaves, 1.0 / n_leaves))

    @classmethod
    def one_leaf(cls, code: int, n_leaves: int) -> Rest:
        """Give all of it to one leaf, whether the row logged that leaf or not."""
        return cls(np.eye(1, n_leaves, code)[0], code)

    @classmethod
    def in_proportion(cls, shares: Any) -> Rest:
        """Spread it in proportion to shares, a twentieth of them uniform: no leaf is left out."""
        given = np.asarray(shares, dtype=np.float64)
        total = given.sum()
        if not (np.isfinite(given).all() and (given >= 0).all() and total > 0):
            msg = "`rest` must be shares of at least 0 with a positive sum, one per leaf."
            raise InvalidInputError(msg)
        return cls(0.95 * given / total + 0.05 / given.size)


@dataclass(frozen=True, slots=True, eq=False)
class SparseRows:
    """Logged leaves of rows, and how the rest of each row is spread.

    Attributes
    ----------
    ptr : (n + 1,) where each row's entries begin
    leaf : (m,) leaf codes, ascending within a row
    score : (m,) their probabilities
    fill : (n,) what an unlogged leaf gets, as a multiple of its share
    unlogged : (n,) mass that was not logged
    rest : Rest
    """

    ptr: Ints
    leaf: np.ndarray[Any, np.dtype[np.int32]]
    score: Floats
    fill: Floats
    unlogged: Floats
    rest: Rest

    @classmethod
    def complete(cls, lengths: Ints, leaf: Ints, score: Floats, rest: Rest) -> SparseRows:
        """Complete checked rows; `leaf` and `score` may come in any order within a row."""
        n = lengths.size
        row = np.repeat(np.arange(n), lengths)
        if leaf.size and not (np.diff(row * rest.shares.size + leaf) > 0).all():
            order = np.lexsort((leaf, row))
            leaf, score = leaf[order], score[order]
        unlogged = 1.0 - sums_by(row, score, n)
        unlogged[(lengths == rest.shares.size) | (unlogged <= LOST)] = 0.0
        fill = unlogged
        if rest.one is None:
            others = 1.0 - sums_by(row, rest.shares[leaf], n)
            fill = np.divide(unlogged, others, out=np.zeros(n), where=unlogged > 0)
        ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return cls(ptr, leaf.astype(np.int32), np.asarray(score, np.float64), fill, unlogged, rest)

    @classmethod
    def of_dense(cls, matrix: Floats, rest: Rest) -> SparseRows:
        """Write down rows that logged every leaf, to join them with others."""
        n, n_leaves = matrix.shape
        lengths = np.full(n, n_leaves, dtype=np.int64)
        leaf = np.tile(np.arange(n_leaves), n)
        return cls.complete(lengths, leaf, np.ravel(matrix), rest)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and leaves."""
        return self.fill.size, self.rest.shares.size

    @property
    def lengths(self) -> Ints:
        """How many leaves each row logged."""
        return np.diff(self.ptr)

    @property
    def row(self) -> Ints:
        """The row of every entry."""
        return np.repeat(np.arange(self.fill.size), self.lengths)

    @property
    def any_zero(self) -> bool:
        """Whether a leaf of any completed row has probability 0."""
        open_rows = self.lengths < self.shape[1]
        spread = (self.fill > 0) & bool((self.rest.shares > 0).all())
        return bool((open_rows & ~spread).any() or not self.score.all())

    def __len__(self) -> int:
        return int(self.fill.size)

    def __getitem__(self, rows: Any) -> SparseRows:
        """Return some rows: a slice, positions or a mask."""
        if isinstance(rows, slice) and rows.step in {None, 1}:
            lo, hi, _ = rows.indices(len(self))
            first, last = self.ptr[lo], self.ptr[max(lo, hi)]
            return SparseRows(
                self.ptr[lo : max(lo, hi) + 1] - first,
                self.leaf[first:last],
                self.score[first:last],
                self.fill[lo:hi],
                self.unlogged[lo:hi],
                self.rest,
            )
        chosen = np.arange(len(self))[rows]
        lengths = self.lengths[chosen]
        ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        entries = np.arange(ptr[-1]) + np.repeat(self.ptr[chosen] - ptr[:-1], lengths)
        return SparseRows(
            ptr,
            self.leaf[entries],
            self.score[entries],
            self.fill[chosen],
            self.unlogged[chosen],
            self.rest,
        )

    def block(self, lo: int, hi: int) -> Floats:
        """Rows lo..hi-1 completed and written down, a new array."""
        fill, first, last = self.fill[lo:hi], self.ptr[lo], self.ptr[hi]
        if self.rest.one is None and fill.any():
            out = np.multiply.outer(fill, self.rest.shares)
        else:
            out = np.zeros((hi - lo, self.shape[1]))
        row = np.repeat(np.arange(hi - lo), np.diff(self.ptr[lo : hi + 1]))
        out[row, self.leaf[first:last]] = self.score[first:last]
        if self.rest.one is not None:
            out[:, self.rest.one] += fill
        return out

    def dense(self) -> Floats:
        """All rows completed and written down: 8 bytes per row and leaf."""
        return self.block(0, len(self))

    def logged(self) -> Floats:
        """Return the logged mass of every leaf over all rows."""
        return sums_by(self.leaf, self.score, self.shape[1])

    def sum(self, axis: int = 0) -> Floats:
        """Return the mass of every leaf over all rows."""
        assert axis == 0  # noqa: S101 - rows sum to 1
        spread = np.full(self.shape[1], self.fill.sum())
        if self.rest.one is None:
            spread -= sums_by(self.leaf, self.fill[self.row], self.shape[1])
        out: Floats = self.logged() + spread * self.rest.shares
        return out

    def mean(self, axis: int = 0) -> Floats:
        """Return the mean probability of every leaf."""
        return self.sum(axis) / max(1, len(self))

    def keys(self) -> list[tuple[bytes, bytes]]:
        """Return something per row that is equal where rows are."""
        return [
            (self.leaf[lo:hi].tobytes(), self.score[lo:hi].tobytes())
            for lo, hi in pairwise(self.ptr)
        ]


Rows: TypeAlias = "np.ndarray[Any, Any] | SparseRows"


def sums_by(place: Any, values: Any, n: int) -> Floats:
    """Add up values by their place among n."""
    total: Floats = np.bincount(place, weights=values, minlength=n).astype(np.float64, copy=False)
    return total


def as_dense(rows: Rows) -> np.ndarray[Any, Any]:
    """Return rows as a matrix, completed where they are sparse."""
    return rows.dense() if isinstance(rows, SparseRows) else rows


def join(parts: Sequence[Rows]) -> Rows:
    """Put rows one after the other; sparse if any of them is."""
    sparse = [part for part in parts if isinstance(part, SparseRows)]
    if not sparse:
        return np.concatenate([as_dense(part) for part in parts])
    rest = sparse[0].rest
    same = [p if isinstance(p, SparseRows) else SparseRows.of_dense(p, rest) for p in parts]
    starts = np.cumsum([0, *(part.leaf.size for part in same)])
    return SparseRows(
        np.concatenate([[0], *(p.ptr[1:] + at for p, at in zip(same, starts[:-1], strict=True))]),
        np.concatenate([part.leaf for part in same]),
        np.concatenate([part.score for part in same]),
        np.concatenate([part.fill for part in same]),
        np.concatenate([part.unlogged for part in same]),
        rest,
    )


def same_rows(first: Rows, second: Rows) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Say which rows are equal, of two sets of as many rows."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.asarray((first == second).all(axis=1))
    a, b = (rows if isinstance(rows, SparseRows) else None for rows in (first, second))
    if a is None or b is None:
        return np.zeros(len(first), dtype=bool)
    pairs = zip(a.keys(), b.keys(), strict=True)
    return np.array([one == other for one, other in pairs], dtype=bool)


def distinct_rows(rows: Rows) -> Ints:
    """Return a number per row, the same for equal rows, and smaller for smaller ones."""
    if isinstance(rows, np.ndarray):
        return np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    keys = rows.keys()
    places = {key: i for i, key in enumerate(sorted(set(keys)))}
    return np.array([places[key] for key in keys], dtype=np.int64)


def column_sums(rows: Rows, slices: Sequence[slice]) -> Floats:
    """Mass of some ranges of leaves in every row, shape (n, len(slices))."""
    out = np.empty((len(rows), len(slices)))
    step = max(1, _COLUMN_CELLS // max(1, rows.shape[1]))
    for lo in range(0, len(rows), step):
        hi = min(len(rows), lo + step)
        part = rows.block(lo, hi) if isinstance(rows, SparseRows) else rows[lo:hi]
        for k, one in enumerate(slices):
            out[lo:hi, k] = part[:, one].sum(axis=1)
    return out
