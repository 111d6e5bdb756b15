"""What runs on executors: the steps of `huc_monitor.audit.runs.pieces`, on Arrow batches.

A step travels as plain data (JSON of tree, utilities and subgroups, names of columns), and each
Python worker builds its objects from that once.
"""

from __future__ import annotations

import functools
import gc
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from huc_monitor._common.arrays import pack
from huc_monitor.audit.clusters import ClusterKeys
from huc_monitor.audit.forms.reader import PredictionReader
from huc_monitor.audit.forms.spec import PredictionColumns
from huc_monitor.audit.inputs import Predictions
from huc_monitor.audit.runs.changes import PieceChange
from huc_monitor.audit.runs.packing import Packing
from huc_monitor.audit.runs.pieces import (
    Facts,
    Piece,
    PieceAudit,
    PiecePlan,
    RunSummary,
    ScoredRows,
    merge_runs,
)
from huc_monitor.errors import HUCError, InvalidInputError
from huc_monitor.sources._rows import read_chunk
from huc_monitor.sources._table import Chunk
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.tree.labels import LeafCodes
from huc_monitor.utilities import CustomUtility, Utility
from huc_monitor.utilities.program import Floats, Ints

# What Spark calls on the rows of one partition.
Step = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
# Rows taken at a time: enough to make calls cheap, few enough to stay small.
ROWS_AT_A_TIME = 1 << 16
ROWS_BEFORE_SENDING = 1 << 18
_SAMPLE = 512

FACTS = "error string, facts binary, sample binary, stride long"
RECORDS = "utility int, run int, records binary"
SUMMARIES = "utility int, run int, summary binary"
SUMS = "utility int, n_rows long, sums binary"


@dataclass(frozen=True)
class Job:
    """An audit as plain data, and which columns it reads."""

    text: str
    functions: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, audit: PiecePlan, columns: Mapping[str, Any]) -> Job:
        """Write an audit down; only a user's own functions travel as code."""
        plain = {
            "tree": audit.tree.to_dict(),
            "utilities": [utility.to_dict() for utility in audit.utilities],
            "subgroups": audit.subgroups.to_dict(),
            "method": audit.method,
            "confidence_level": audit.confidence_level,
            "n_draws": audit.n_draws,
            "seed": audit.seed,
            "n_samples": audit.n_samples if isinstance(audit, PieceChange) else None,
            "columns": dict(columns),
        }
        own = {u.name: u.function for u in audit.utilities if isinstance(u, CustomUtility)}
        return cls(json.dumps(plain), own)

    def open(self) -> Worker:
        """Build the audit, once per process."""
        # Spark runs one task per core; threads of our own would compete with them.
        os.environ.setdefault("HUC_NUM_THREADS", "1")
        _set_loaded_aside()
        for name, function in self.functions.items():
            CustomUtility.register(name, function)
        return _worker(self.text)


_opened = itertools.count(1)


def _set_loaded_aside() -> None:
    """Keep the garbage collector off what stays: libraries and compiled code.

    Spark has every object of a Python worker looked at after every task, and loaded libraries are
    most of them: on small windows, that takes longer than the work. Set aside at the 1st, 2nd, 4th,
    8th, ... time, because code is loaded as it is needed, and because what is set aside is freed
    by its last reference only.
    """
    if next(_opened).bit_count() == 1:
        gc.freeze()


@lru_cache(maxsize=8)
def _worker(text: str) -> Worker:
    plain = json.loads(text)
    columns, n_samples = plain.pop("columns"), plain.pop("n_samples")
    audit = PieceAudit(
        LabelTree.from_dict(plain["tree"]),
        tuple(Utility.from_dict(item) for item in plain["utilities"]),
        Subgroups.from_dict(plain["subgroups"]),
        *(plain[n] for n in ("method", "confidence_level", "n_draws", "seed")),
    )
    return Worker(PieceChange.from_plan(audit, n_samples) if n_samples else audit, columns)


@dataclass(frozen=True)
class Worker:
    """An audit and the columns it reads, on an executor."""

    audit: PiecePlan
    columns: Mapping[str, Any]

    @functools.cached_property
    def probabilities(self) -> PredictionReader:
        """Where the predictions are."""
        given = PredictionColumns(**self.columns["predictions"])
        reader = PredictionReader.of(self.audit.tree, given, self.columns["shares"])
        return reader.allowing(self.columns["tolerance"])

    @functools.cached_property
    def packings(self) -> list[Packing]:
        """Layout of every utility's rows."""
        names = ("weights", "sample", "label_probability")
        weighted, sampled, chosen = (self.columns.get(name) is not None for name in names)
        return [
            Packing.of(self.audit, u, weighted=weighted, sampled=sampled, chosen=chosen)
            for u in range(len(self.audit.utilities))
        ]

    def read(self, batch: pa.RecordBatch) -> Piece:
        """Check some rows, as the local audit checks a window."""
        given = self.columns
        arrays = {name: batch.column(name) for name in self.probabilities.names}
        no_others = pd.DataFrame(index=range(batch.num_rows))
        read = read_chunk(self.probabilities, Chunk(no_others, arrays))
        if not read.good.all():
            row = int(np.argmin(read.good))
            msg = (
                f"`probabilities` must be usable in every row; got {read.why(row)} (row {row}). "
                "Repair the row."
            )
            raise InvalidInputError(msg)
        features = None
        if self.audit.subgroups.columns:
            features = batch.select(list(self.audit.subgroups.columns)).to_pandas()
        weights, ids, samples = (
            given.get(name) and batch.column(given[name]).to_numpy(zero_copy_only=False)
            for name in ("weights", "row_id", "sample")
        )
        labels = batch.column(given["labels"])
        if labels.null_count:
            msg = (
                f"`labels` must have a leaf in every row; got none in {labels.null_count} rows "
                f"(column {given['labels']!r}). Filter the rows without a label."
            )
            raise InvalidInputError(msg)
        return self.audit.check(
            read.rows,
            LeafCodes(self._codes(labels)),
            features,
            weights,
            ids,
            () if samples is None else samples,
            *self._design(batch),
        )

    def unpack(self, utility: int, column: Any) -> ScoredRows:
        """Read the rows that `send_rows` sent."""
        packing = self.packings[utility]
        parts = [np.frombuffer(item.as_buffer(), dtype=packing.dtype) for item in column]
        return packing.unpack(np.concatenate(parts))

    def _design(self, batch: pa.RecordBatch) -> tuple[Any, Any]:
        """Return the columns of clusters and label probabilities, where the log has any."""
        clusters, chosen = (self.columns.get(name) for name in ("clusters", "label_probability"))
        found = None if clusters is None else batch.column(clusters).to_pandas()
        if found is not None and self.columns["coded"]:
            found = ClusterKeys(found.to_numpy())
        return found, None if chosen is None else batch.column(chosen).to_pandas().to_numpy()

    def _codes(self, labels: pa.Array) -> Ints:
        if self.columns["coded"]:
            codes: Ints = labels.to_numpy()
            return codes
        order = self.columns["predictions"].get("classes")
        return self.audit.tree.label_encoder(order).encode(labels.to_pandas())


def gathered(batches: Iterable[pa.RecordBatch], at_least: int) -> Iterator[pa.RecordBatch]:
    """Put batches together until there are enough rows."""
    kept: list[pa.RecordBatch] = []
    n = 0
    for batch in batches:
        if batch.num_rows:
            kept.append(batch)
            n += batch.num_rows
        if n >= at_least:
            yield _one(kept)
            kept, n = [], 0
    if kept:
        yield _one(kept)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    columns = zip(*(batch.columns for batch in batches), strict=True)
    arrays = [pa.concat_arrays(parts) for parts in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batches[0].schema)


def find_facts(job: Job) -> Step:
    """Check every row, count, and sample scores; one row per task."""

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = job.open()
        check: Any = worker.audit
        facts, sample, error = check.no_facts, ScoreSample(), None
        try:
            for batch in gathered(batches, ROWS_AT_A_TIME):
                piece = worker.read(batch)
                if piece.labels.size:
                    facts += check.facts(piece)
                    sample.add(piece.predictions)
        except HUCError as problem:
            error = str(problem)
        scores = sample.scores(check) if error is None else b""
        yield make_batch(FACTS, [error], [pack(facts)], [scores], [sample.stride])

    return step


class ScoreSample:
    """Every so many rows of a task, never more than twice `_SAMPLE` of them."""

    def __init__(self) -> None:
        self.stride, self._skip = 1, 0
        self._kept: list[Floats] = []

    def add(self, predictions: Predictions) -> None:
        places = np.arange(self._skip, predictions.n, self.stride)
        self._skip = (self._skip - predictions.n) % self.stride
        # Places are thinned out first: only rows that are kept are written down.
        while len(self._kept) + places.size > 2 * _SAMPLE:
            places = places[len(self._kept) % 2 :: 2]
            self._kept = self._kept[::2]
            self.stride *= 2
        self._kept += list(predictions.take(places).dense())

    def scores(self, audit: PiecePlan) -> bytes:
        """Scores of the sampled rows, utility by utility."""
        from huc_monitor.audit.decomposition import iter_decomposed
        from huc_monitor.audit.inputs import Predictions

        if not self._kept:
            return b""
        predictions = Predictions.of(np.array(self._kept))
        labels = np.zeros(len(self._kept), dtype=np.int64)
        found = iter_decomposed(audit.utilities, predictions, labels, tree=audit.tree)
        return np.array([rows.scores for rows in found]).tobytes()


def send_rows(job: Job, facts: Any, cuts: list[Floats]) -> Step:
    """Score rows, and hand them over by utility and range of score, many rows to a record."""

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = job.open()
        check: Any = worker.audit
        n_utilities = len(check.utilities)
        waiting: list[list[Any]] = [[] for _ in range(n_utilities)]
        n = 0
        for batch in gathered(batches, ROWS_AT_A_TIME):
            piece = worker.read(batch)
            if not piece.labels.size:
                continue
            for u, rows in enumerate(check.rows(piece, facts)):
                waiting[u].append(worker.packings[u].pack(rows))
            n += piece.labels.size
            if n >= ROWS_BEFORE_SENDING:
                yield from cut_records(waiting, cuts)
                waiting, n = [[] for _ in range(n_utilities)], 0
        if n:
            yield from cut_records(waiting, cuts)

    return step


def cut_records(waiting: list[list[Any]], cuts: list[Floats]) -> Iterator[pa.RecordBatch]:
    for u, parts in enumerate(waiting):
        records = np.concatenate(parts)
        # Equal scores have one place among the cuts, whatever the batch: ties stay together.
        run = np.searchsorted(cuts[u], records["score"])
        order = np.argsort(run, kind="stable")
        edges = np.searchsorted(run[order], np.arange(cuts[u].size + 2))
        found = [k for k in range(cuts[u].size + 1) if edges[k] < edges[k + 1]]
        data = [records[order[edges[k] : edges[k + 1]]].tobytes() for k in found]
        yield make_batch(RECORDS, [u] * len(found), found, data)


def summarise(job: Job, facts: Facts) -> Callable[..., pa.Table]:
    """Summarise all rows of a utility in one range of score."""

    def step(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        worker = job.open()
        u, run = (int(item.as_py()) for item in key)
        rows = worker.unpack(u, table.column("records"))
        found = cast(PieceAudit, worker.audit).summarise(u, rows, facts)
        return pa.Table.from_batches([summary_batch(u, run, found)])

    return step


def merge(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
    """Merge the summaries of neighbouring ranges of score."""
    u, run = (int(item.as_py()) for item in key)
    runs = [RunSummary.from_bytes(item.as_py()) for item in table.column("summary")]
    return pa.Table.from_batches([summary_batch(u, run, merge_runs(runs))])


def sum_within(job: Job, facts: Facts, shown: list[Floats]) -> Step:
    """Add up all branches on the intervals that were found; one row per task and utility."""

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = job.open()
        check = cast(PieceAudit, worker.audit)
        sums: list[Ints] = []
        n = 0
        for batch in gathered(batches, ROWS_AT_A_TIME):
            piece = worker.read(batch)
            n += piece.labels.size
            if not piece.labels.size:
                continue
            found = [
                check.within(u, rows, facts, shown[u])
                for u, rows in enumerate(check.rows(piece, facts))
            ]
            sums = [a + b for a, b in zip(sums, found, strict=True)] if sums else found
        if sums:
            data = [item.tobytes() for item in sums]
            yield make_batch(SUMS, list(range(len(sums))), [n] * len(sums), data)

    return step


def summary_batch(utility: int, run: int, found: RunSummary) -> pa.RecordBatch:
    return make_batch(SUMMARIES, [utility], [run], [found.to_bytes()])


_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "long": pa.int64(),
}


def make_batch(schema: str, *columns: list[Any]) -> pa.RecordBatch:
    fields = [part.split() for part in schema.split(", ")]
    arrays = [pa.array(c, _TYPES[kind]) for c, (_, kind) in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in fields])
