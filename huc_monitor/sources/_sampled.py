"""Reading a part of a log: rows chosen by a hash, or all rows some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor.audit.sparse_rows import Rows, join
from huc_monitor.sources._labels import latest_labels
from huc_monitor.sources._reading import Reading
from huc_monitor.sources._repeats import hash_ids
from huc_monitor.sources._table import PREDICTIONS, Chunk, ColumnKind, TimeColumn


def sample_of(
    chunk: Chunk, share: float, columns: Mapping[str, ColumnKind], time: TimeColumn, key: str | None
) -> Chunk:
    """Return the rows whose hash falls into a share of all hashes.

    The same rows each time, and chosen without regard to their labels: by id, or where there is
    none by time and probabilities.
    """
    hashes = _hashes(chunk, columns, time) if key is None else hash_ids(chunk.frame[key])
    chosen = np.flatnonzero(hashes <= np.uint64(share * (2.0**64 - 2**11)))
    arrays = {name: array.take(chosen) for name, array in chunk.arrays.items()}
    return Chunk(chunk.frame.iloc[chosen], arrays)


def _hashes(
    chunk: Chunk, columns: Mapping[str, ColumnKind], time: TimeColumn
) -> NDArray[np.uint64]:
    moments = time.read(chunk.frame[time.name]).astype(np.int64)
    found = pd.util.hash_array(moments)
    for name, kind in [pair for pair in columns.items() if pair[1] in PREDICTIONS][:8]:
        values = chunk.arrays[name] if name in chunk.arrays else chunk.frame[name]
        found = pd.util.hash_array(found ^ pd.util.hash_array(_plain(values, kind)))
    return found


def _plain(values: Any, kind: ColumnKind) -> NDArray[Any]:
    if isinstance(values, pd.Series):
        return values.astype(str).to_numpy(dtype=object)
    if kind == "number":
        return np.asarray(values.to_numpy(zero_copy_only=False))
    return np.array([str(value) for value in values.to_pylist()], dtype=object)


class Streaming(Reading):
    """One pass over a range that keeps nothing: usable rows are handed on as they come.

    Labels in a table of their own are looked up for some rows at a time.
    """

    def _read(self) -> None:
        """Wait for `pieces`."""

    def pieces(self, repeated: NDArray[np.uint64]) -> Iterator[tuple[Any, ...]]:
        """Yield probabilities, leaf codes, features, clusters and label probabilities.

        Rows whose id is among the `repeated` (hashes) are held back until all of them are there.
        """
        source = self.source
        held: tuple[list[Rows], list[pd.DataFrame]] = [], []
        for chunk in self._chunks():
            if source.labels is not None:
                ids = chunk.frame[str(source.columns.id)]
                self.labels = latest_labels(source.labels, ids, self.as_of)
            self._add(chunk)
            matrix, kept = self.matrices.pop(), self.frames.pop()
            if repeated.size and len(kept):
                again = np.isin(hash_ids(kept["id"]), repeated)
                held[0].append(matrix[again])
                held[1].append(kept[again])
                matrix, kept = matrix[~again], kept[~again]
            if len(kept):
                yield self._piece(matrix, kept)
        self.matrices, self.frames = held
        self.settle()
        if self.frames and len(self.frames[0]):
            yield self._piece(join(self.matrices), self.frames[0])

    def _piece(self, matrix: Rows, kept: pd.DataFrame) -> tuple[Any, ...]:
        features = {
            name: kept[f"feature {i}"].array for i, name in enumerate(self.source.columns.features)
        }
        codes = kept["code"].to_numpy(dtype=np.int64)
        clusters = kept["cluster"].to_numpy() if "cluster" in kept else None
        chosen = kept["label probability"].to_numpy() if "label probability" in kept else None
        return matrix, codes, pd.DataFrame(features, index=range(len(kept))), clusters, chosen
