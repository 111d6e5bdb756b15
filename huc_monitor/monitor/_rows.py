"""Decomposed rows of windows: every row is decomposed once, however many windows it lies in.

Time is cut where any window begins or ends. Each piece is read and decomposed once and kept while
windows need it. A later window may see labels that an earlier one did not, so a piece that is used
again is counted again, and read again if the counts differ; rows it already had are not decomposed
a second time. What a row's scores and contributions are depends on that row alone, never on which
others it was read with: a run that is interrupted and repeated gets the same numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import numpy as np
import pandas as pd

from huc_monitor.audit.decomposition import UtilityRows, iter_decomposed
from huc_monitor.audit.inputs import Predictions
from huc_monitor.audit.scan import Groups
from huc_monitor.audit.sparse_rows import Rows, same_rows
from huc_monitor.monitor.windows import Window
from huc_monitor.sources import PredictionSource, WindowData, concatenate
from huc_monitor.subgroups import Memberships, Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Decomposed:
    """The labelled rows of a range with their scores, contributions and subgroup weights."""

    data: WindowData
    rows: tuple[UtilityRows, ...]
    weights: Memberships

    @property
    def interiorized(self) -> bool:
        """Whether any row had a zero probability, and was mixed with a little of the uniform."""
        return Predictions.of(self.data.probabilities).any_zero

    def groups(self) -> Groups:
        """Subgroup weights as an audit takes them, and how rows count."""
        data = self.data
        return Groups.of(self.weights, None, data.label_probability, data.clusters)

    def take(self, chosen: Ints) -> tuple[list[UtilityRows], Groups]:
        """Return some rows, in the given order, as the e-detector takes them."""
        if chosen.size == self.data.n:
            return list(self.rows), self.groups()
        rows = [item.take(chosen) for item in self.rows]
        return rows, self.groups().take(chosen)


# Start and end of a range, and as of when its labels were asked for.
Asked = tuple[datetime, datetime, datetime | None]


class RowCache:
    """Reads and decomposes the rows of windows, and keeps what the next windows need.

    `read` are ranges that were read already; each is let go of when it is used.
    """

    def __init__(
        self,
        source: PredictionSource,
        *,
        tree: LabelTree,
        utilities: Sequence[Utility],
        subgroups: Subgroups,
        read: Mapping[Asked, WindowData] | None = None,
    ) -> None:
        self._source = source
        self._read = dict(read or {})
        self._tree = tree
        self._utilities = tuple(utilities)
        self._subgroups = subgroups
        self._pieces: dict[tuple[datetime, datetime], tuple[datetime | None, Decomposed]] = {}
        self._cuts: list[datetime] = []
        self.n_decomposed = 0

    def plan(self, windows: Sequence[Window]) -> None:
        """Say which windows will be asked for, so that pieces can be shared."""
        if self._source.auditor is not None:
            return  # samples of pieces would not add up to a sample of the window
        self._cuts = sorted({time for window in windows for time in (window.start, window.end)})

    def window(self, start: datetime, end: datetime, as_of: datetime | None) -> Decomposed:
        """Return the labelled rows of a range, with the labels known at a time."""
        inner = [cut for cut in self._cuts if start < cut < end]
        edges = [start, *inner, end]
        pieces = [self._piece(lo, hi, as_of) for lo, hi in pairwise(edges)]
        return pieces[0] if len(pieces) == 1 else _join(pieces)

    def forget(self, before: datetime) -> None:
        """Drop pieces that end by a time: no later window reaches back to them."""
        self._pieces = {key: kept for key, kept in self._pieces.items() if key[1] > before}
        self._read = {key: data for key, data in self._read.items() if key[1] > before}

    def _piece(self, start: datetime, end: datetime, as_of: datetime | None) -> Decomposed:
        kept = self._pieces.get((start, end))
        if kept is not None:
            known, piece = kept
            if known == as_of or self._unchanged(piece, as_of):
                return piece
        data = self._read.pop((start, end, as_of), None)
        if data is None:
            data = self._source.labelled(start, end, as_of=as_of)
        old = kept[1] if kept is not None else None
        piece = self._decompose(data, old)
        self._pieces[start, end] = as_of, piece
        return piece

    def _unchanged(self, piece: Decomposed, as_of: datetime | None) -> bool:
        data = piece.data
        return self._source.counts(data.start, data.end, as_of=as_of) == data.counts

    def _decompose(self, data: WindowData, old: Decomposed | None) -> Decomposed:
        weights = self._subgroups.memberships(data.features, data.n)
        at = _same_rows(old, data)
        fresh = np.flatnonzero(at < 0)
        self.n_decomposed += fresh.size
        if fresh.size == data.n:
            return Decomposed(data, self._rows(data.probabilities, data.labels), weights)
        assert old is not None  # noqa: S101 - rows that are not new were there before
        new = self._rows(data.probabilities[fresh], data.labels[fresh])
        known = np.flatnonzero(at >= 0)
        merged = []
        for before, after in zip(old.rows, new, strict=True):
            scores = np.empty(data.n)
            contributions = np.empty((data.n, before.contributions.shape[1]))
            scores[known], scores[fresh] = before.scores[at[known]], after.scores
            contributions[known] = before.contributions[at[known]]
            contributions[fresh] = after.contributions
            merged.append(
                dataclasses.replace(
                    before, scores=scores, contributions=contributions, labels=data.labels
                )
            )
        return Decomposed(data, tuple(merged), weights)

    def _rows(self, probabilities: Rows, labels: Ints) -> tuple[UtilityRows, ...]:
        predictions = Predictions.of(probabilities)
        return tuple(iter_decomposed(self._utilities, predictions, labels, tree=self._tree))


def _same_rows(old: Decomposed | None, data: WindowData) -> Ints:
    """Where each row was before, -1 if it is new or has another label."""
    at = np.full(data.n, -1, dtype=np.int64)
    if old is None or old.data.ids is None or data.ids is None or not old.data.n:
        return at
    index = pd.Index(old.data.ids)
    if not index.is_unique:
        return at
    at = index.get_indexer(pd.Index(data.ids)).astype(np.int64)
    before = old.data
    same = (
        (at >= 0)
        & (before.labels[at] == data.labels)
        & (before.times[at] == data.times)
        & same_rows(before.probabilities[at], data.probabilities)
    )
    return np.where(same, at, -1)


def _join(pieces: Sequence[Decomposed]) -> Decomposed:
    rows = tuple(
        dataclasses.replace(
            items[0],
            scores=np.concatenate([item.scores for item in items]),
            contributions=np.concatenate([item.contributions for item in items]),
            labels=np.concatenate([item.labels for item in items]),
        )
        for items in zip(*(piece.rows for piece in pieces), strict=True)
    )
    weights = Memberships.joined([piece.weights for piece in pieces])
    return _once(Decomposed(concatenate([piece.data for piece in pieces]), rows, weights))


def _once(found: Decomposed) -> Decomposed:
    """Leave out rows whose id was in an earlier piece: each piece alone has every id once."""
    data = found.data
    if data.ids is None:
        return found
    ids = pd.Series(data.ids).infer_objects()
    chosen = np.flatnonzero((~ids.duplicated() | ids.isna()).to_numpy()).astype(np.int64)
    if chosen.size == data.n:
        return found
    n_repeated = data.n_duplicate_ids + data.n - chosen.size
    return Decomposed(
        dataclasses.replace(data.take(chosen), n_duplicate_ids=n_repeated),
        tuple(rows.take(chosen) for rows in found.rows),
        found.weights.take(chosen),
    )
