"""Rows whose id was there before: one prediction counts once.

* The same prediction again (a retry, a log that was loaded twice): the first by time is kept, the
  others are left out and counted.
* Another prediction under the same id: the first by time is kept, the others are set aside as
  unusable. Of equal times, the smaller probabilities come first.
* Different labels in the log: nothing tells which one holds, so all rows of the id are set aside.

Rows without an id are never the same. Labels in a table of their own are settled in `_labels`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor.audit.sparse_rows import Rows, distinct_rows
from huc_monitor.sources._table import ColumnKind

if TYPE_CHECKING:
    from huc_monitor.sources._source import TableSource

KEPT: Final = 0
REPEATED: Final = 1
OTHER_PREDICTION: Final = 2
OTHER_LABEL: Final = 3
REASONS: Final = {
    OTHER_PREDICTION: "repeated id with another prediction",
    OTHER_LABEL: "conflicting labels",
}
REPEAT_REASONS: Final = tuple(REASONS.values())
# Ids whose hashes are compared at a time: some 300 MB with their sorted copy.
_MOST_HASHES: Final = 20_000_000


def settle(
    frame: pd.DataFrame, predictions: Callable[[NDArray[np.int64]], Rows]
) -> NDArray[np.int8]:
    """Say of every row whether it is kept, and if not, why.

    `frame` has the columns "id" and "time", and "code" where labels are known; `predictions`
    returns the probabilities of some rows.
    """
    verdict = np.zeros(len(frame), dtype=np.int8)
    if "id" not in frame:
        return verdict
    ids = frame["id"].infer_objects()
    again = ids.duplicated(keep=False)
    if not again.any():
        return verdict
    rows = np.flatnonzero((again & ids.notna() & (ids != "")).to_numpy())
    if not rows.size:
        return verdict
    group, _ = pd.factorize(ids.iloc[rows])
    same = distinct_rows(predictions(rows))
    order = np.lexsort((same, frame["time"].to_numpy()[rows], group))
    first = order[np.flatnonzero(np.diff(group[order], prepend=-1))]
    verdict[rows] = np.where(same == same[first][group], REPEATED, OTHER_PREDICTION)
    verdict[rows[first]] = KEPT
    if "code" in frame:
        codes = frame["code"].to_numpy()[rows]
        differing = np.unique(group[codes != codes[first][group]])
        verdict[rows[np.isin(group, differing)]] = OTHER_LABEL
    return verdict


def repeated_ids(source: TableSource, start: datetime, end: datetime) -> NDArray[np.uint64]:
    """Return the hashes of ids that occur more than once, in as much memory as is affordable."""
    n, _ = source.log.count(source.time, start, end)
    n_parts = max(1, -(-n // _MOST_HASHES))
    found = []
    for part in range(n_parts):
        hashes = np.sort(np.concatenate([*_hashes(source, start, end, part, n_parts), _NONE]))
        found.append(np.unique(hashes[1:][hashes[1:] == hashes[:-1]]))
    return np.concatenate(found)


_NONE: Final = np.empty(0, dtype=np.uint64)


def _hashes(
    source: TableSource, start: datetime, end: datetime, part: int, n_parts: int
) -> Iterator[NDArray[np.uint64]]:
    if source.columns.id is None:
        return
    columns: dict[str, ColumnKind] = {source.columns.id: "any"}
    for chunk in source.log.scan(columns, source.time, start, end):
        ids = chunk.frame[source.columns.id]
        hashes = hash_ids(ids[ids.notna()])
        yield hashes[hashes % np.uint64(n_parts) == part]


def hash_ids(ids: pd.Series[Any]) -> NDArray[np.uint64]:
    """Return 64 bits of every id; those of equal ids are equal."""
    return pd.util.hash_array(ids.to_numpy(dtype=object))
