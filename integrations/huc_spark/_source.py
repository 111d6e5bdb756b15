"""A prediction log in Spark: rows are counted, sampled and audited there."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from huc_monitor._common.times import to_utc
from huc_monitor.audit.comparison import Comparison
from huc_monitor.audit.forms.reader import PredictionReader
from huc_monitor.audit.forms.spec import PredictionColumns
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.result import AuditResult
from huc_monitor.audit.runs.changes import PieceChange
from huc_monitor.audit.runs.pieces import PieceAudit
from huc_monitor.audit.sparse_rows import Rest, Rows, SparseRows
from huc_monitor.errors import InvalidInputError
from huc_monitor.sources import RowCounts, TableSource
from huc_monitor.sources._data import Known
from huc_monitor.sources._labels import label_time
from huc_monitor.sources._rows import add_design, column_kinds, read_chunk
from huc_monitor.sources._table import ColumnKind, as_chunk
from huc_monitor.sources.large import LargeSource
from huc_spark._audit import SparkAudit
from huc_spark._change import compare_frame
from huc_spark._table import WHOLE, SparkTable, on_disk, quoted
from huc_spark._worker import Job, Step, gathered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LABEL, _KNOWN, _ROW, _CONFLICT = "huc_label", "huc_label_time", "huc_row", "huc_conflict"
_P, _C, _Y, _SAMPLE = "huc_probabilities", "huc_classes", "huc_code", "huc_sample"
_CLUSTER, _CHOSEN = "huc_cluster", "huc_label_probability"
_ROWS_AT_A_TIME = 1 << 15


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparkSource(LargeSource):
    """Predictions and labels in Spark tables.

    A window of at most `most_rows` labelled rows comes to the driver, and everything is as with
    `TableSource`. Of a larger one only a sample of about that many rows comes; the audit of all
    rows runs on the cluster.

    Bootstrap multipliers go by the id of a row, or by a hash of its time and probabilities where
    the log has no id; those of a window in hand by its place in order of time. Radii of the two
    differ by the noise of the bootstrap.
    """

    n_partitions: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        LargeSource.__post_init__(self)
        if self.plan is not None:
            msg = (
                "`plan` must not be given: Spark reads no sampling plans. Join its probabilities "
                "to the log by id, and name that column as `label_probability`."
            )
            raise InvalidInputError(msg)
        found = [self.log] if self.labels is None else [self.log, self.labels.table]
        for table in found:
            if not isinstance(table, SparkTable):
                msg = f"`log` and `labels` must both be Spark tables; got {table.name}."
                raise InvalidInputError(msg)

    def counts(self, start: datetime, end: datetime, *, as_of: datetime | None = None) -> RowCounts:
        """Count predictions and labels on the cluster."""
        if self.labels is None:
            return TableSource.counts(self, start, end, as_of=as_of)
        from pyspark.sql import functions as f

        columns: dict[str, ColumnKind] = {str(self.columns.id): "any"}
        rows = self._joined(columns, start, end, as_of)
        found = rows.agg(
            f.count(f.lit(1)).alias("rows"),
            f.count(_LABEL).alias("labelled"),
            f.max(_KNOWN).alias("latest"),
        ).toArrow()
        latest = None
        when = label_time(self.labels)
        if when is not None:
            latest = when.first(found.column("latest").to_pandas())
        counted = found.to_pylist()[0]
        return RowCounts(int(counted["rows"]), int(counted["labelled"]), latest)

    def _audit(
        self, check: PieceAudit, start: datetime, end: datetime, as_of: datetime | None
    ) -> AuditResult:
        columns = {**self._job_columns(), "row_id": _ROW if check.n_draws else None}
        usable = self.usable(start, end, as_of=as_of).persist(on_disk())
        try:
            return SparkAudit(usable, check, Job.of(check, columns), self.n_partitions).run()
        finally:
            usable.unpersist()

    def compare(
        self, ranges: Sequence[Known], *, plan: AuditPlan, pools: Sequence[int]
    ) -> list[Comparison] | None:
        """Compare all usable labelled rows of the newest windows, pooled, with a reference."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as f

        check = PieceChange.from_plan(plan, len(ranges))
        job = Job.of(check, {**self._job_columns(), "row_id": _ROW, "sample": _SAMPLE})
        parts = [
            self.usable(start, end, as_of=as_of).withColumn(_SAMPLE, f.lit(k).cast("bigint"))
            for k, (start, end, as_of) in enumerate(ranges)
        ]
        usable = functools.reduce(DataFrame.unionByName, parts).persist(on_disk())
        try:
            return compare_frame(usable, check, job, pools, n_partitions=self.n_partitions)
        finally:
            usable.unpersist()

    def usable(self, start: datetime, end: datetime, *, as_of: datetime | None = None) -> DataFrame:
        """Return the labelled rows of a range that can be used, as they are audited.

        Columns: ``huc_probabilities`` in the order of ``tree.leaves``, ``huc_code``, the features,
        and ``huc_row``, by which a row is called.
        """
        from pyspark.sql import types as t

        needed = self.needed_columns(with_labels=False)
        needed.pop(str(self.columns.model_version), None)
        if self.columns.label_probability is not None:
            needed.setdefault(self.columns.label_probability, "any")
        rows = self._joined(needed, start, end, as_of)
        rows = rows.where(f"{_LABEL} IS NOT NULL AND NOT {_CONFLICT}")
        kinds = {field.name: field for field in rows.schema.fields}
        schema = t.StructType(
            [
                t.StructField(_P, t.ArrayType(t.DoubleType())),
                t.StructField(_C, t.ArrayType(t.StringType())),
                t.StructField(_Y, t.LongType()),
                t.StructField(_ROW, t.LongType()),
                *(t.StructField(n, _kinds()[n]) for n in _design(self).values()),
                *(kinds[name] for name in _carried(self)),
            ]
        )
        return self._each_once(rows.mapInArrow(_keep_usable(self), schema))

    def _job_columns(self) -> dict[str, Any]:
        """Say where an audit finds what `usable` returns."""
        reader = self.reader()
        sparse = _is_sparse(reader)
        kept = PredictionColumns(
            list=_P,
            class_column=_C if sparse else None,
            rest=reader.given.rest if sparse else None,
        )
        return {
            "predictions": kept.to_dict(),
            "shares": None if reader.rest is None else reader.rest.shares.tolist(),
            "tolerance": self.sum_tolerance,
            "labels": _Y,
            "coded": True,
            "weights": None,
            **_design(self),
        }

    def _each_once(self, rows: DataFrame) -> DataFrame:
        """Keep one row of every id, as `huc_monitor.sources._repeats` says."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        name = self.columns.id
        if name is None:
            return rows
        same = Window.partitionBy(f.col(quoted(name)).cast("string"))
        first = f.row_number().over(same.orderBy(f.col(quoted(str(self.columns.time))), f.col(_P)))
        alike = f.min(_Y).over(same) == f.max(_Y).over(same)
        judged = rows.withColumns({"huc_first": first == 1, "huc_alike": alike})
        kept = judged.where(f"{quoted(name)} IS NULL OR (huc_first AND huc_alike)")
        return kept.select(
            _P, _C, _Y, _ROW, *_design(self).values(), *map(quoted, self.columns.features)
        )

    @property
    def _log(self) -> SparkTable:
        return cast(SparkTable, self.log)

    def _joined(
        self,
        columns: dict[str, ColumnKind],
        start: datetime,
        end: datetime,
        as_of: datetime | None,
    ) -> DataFrame:
        """Rows of a range with their latest label, and what they are called."""
        from pyspark.sql import functions as f

        given, log = self.columns, self._log
        first, last = to_utc(start, argument="start"), to_utc(end, argument="end")
        rows = log.between(self.time, first, last)
        kind = log.columns()[given.id] if given.id else ""
        called = (
            log.column(str(given.id)).cast("bigint")
            if kind in WHOLE
            else log.hashed(self._row_names())
        )
        chosen = [*log.expressions(columns), called.alias(_ROW)]
        if self.labels is None:
            label = log.column(str(given.label)).alias(_LABEL)
            return rows.select(*chosen, label, f.lit(False).alias(_CONFLICT))  # noqa: FBT003
        found = rows.select(*chosen, log.column(str(given.id)).cast("string").alias("huc_key"))
        joined = found.join(self._latest(as_of), "huc_key", "left").drop("huc_key")
        return joined.withColumn(_CONFLICT, f.coalesce(_CONFLICT, f.lit(False)))  # noqa: FBT003

    def _latest(self, as_of: datetime | None) -> DataFrame:
        """Find the latest label of every id, and whether one of the same time contradicts it."""
        from pyspark.sql import functions as f

        labels = self.labels
        assert labels is not None  # noqa: S101 - asked for by `_joined`
        table, when = cast(SparkTable, labels.table), label_time(labels)
        known = None if as_of is None else to_utc(as_of, argument="as_of")
        label = table.column(labels.label)
        moment = f.lit(None).cast("timestamp") if when is None else table.column(when.name)
        rows = table.until(when, known).where(label.isNotNull())
        key = table.column(labels.id).cast("string").alias("huc_key")
        text = label.cast("string").alias("x")
        each = rows.select(key, moment.alias("t"), text, label.alias("y"))
        # One row per id and time first: what is largest and smallest by text there.
        by_time = each.groupBy("huc_key", "t").agg(
            f.max(f.struct("x", "y")).alias("last"), f.min("x").alias("least")
        )
        found = by_time.groupBy("huc_key").agg(f.max(f.struct("t", "last", "least")).alias("m"))
        return found.select(
            "huc_key",
            f.col("m.last.y").alias(_LABEL),
            f.col("m.t").alias(_KNOWN),
            (f.col("m.least") != f.col("m.last.x")).alias(_CONFLICT),
        )

    def _row_names(self) -> list[str]:
        """Return the columns whose values identify a row."""
        given = self.columns
        return [given.id] if given.id else [str(given.time), *self.probabilities.names]

    def _sampled(self, share: float) -> TableSource:
        return self._with_log(self._log.sampled(share, self._row_names()))


def _design(source: SparkSource) -> dict[str, str]:
    """Columns of usable rows that say which are dependent, and how labels were chosen."""
    found = {"clusters": _CLUSTER} if source.columns.clustered else {}
    return found | ({"label_probability": _CHOSEN} if source.columns.label_probability else {})


def _kinds() -> dict[str, Any]:
    from pyspark.sql import types as t

    return {_CLUSTER: t.LongType(), _CHOSEN: t.DoubleType()}


def _carried(source: SparkSource) -> list[str]:
    """Columns of the log that usable rows keep until each id is there once."""
    own = [source.columns.id, source.columns.time]
    return list(dict.fromkeys([*source.columns.features, *(name for name in own if name)]))


def _keep_usable(source: SparkSource) -> Step:
    """Read rows on executors as `TableSource` does, and leave out what cannot be used."""
    tree, given, encoder = source.tree, source.probabilities.given, source.encoder
    # Rows are kept as they were logged: what is missing is spread where they are audited.
    rest = None if given.rest is None else np.ones(tree.n_leaves)
    where = PredictionReader.of(tree, given, rest).allowing(source.sum_tolerance)
    carried, kinds = _carried(source), column_kinds(source.probabilities)
    columns, time, named = source.columns, source.time, _is_sparse(source.probabilities)
    design = list(_design(source).values())
    asked = (columns.cluster, columns.label_probability, columns.time)

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in gathered(batches, _ROWS_AT_A_TIME):
            read = read_chunk(where, as_chunk(batch, kinds))
            codes = encoder.find(_labels(batch.column(_LABEL)))
            good = read.good & (codes >= 0)
            kept: dict[str, Any] = {}
            if design:
                frame = batch.select([*dict.fromkeys(filter(None, asked))]).to_pandas()
                kept["time"] = time.read(frame[time.name])
                good &= add_design(kept, frame, columns, with_labels=True) == ""
                names = {"cluster": _CLUSTER, "label probability": _CHOSEN}
                kept = {names.get(name, name): values for name, values in kept.items()}
            usable = np.flatnonzero(good)
            others = [batch.column(_ROW).take(usable)]
            others += [pa.array(kept[name][usable]) for name in design]
            others += [batch.column(name).take(usable) for name in carried]
            yield pa.RecordBatch.from_arrays(
                [*_lists(read.rows[usable], tree.leaves, named), pa.array(codes[usable]), *others],
                names=[_P, _C, _Y, _ROW, *design, *carried],
            )

    return step


def _is_sparse(reader: PredictionReader) -> bool:
    return reader.given.is_sparse and not reader.needs_all


def _lists(
    rows: Rows,
    leaves: Sequence[str],
    named: bool,  # noqa: FBT001
) -> tuple[pa.Array, pa.Array]:
    """Write rows as lists of numbers, and of their leaves where these are not all of them."""
    if not isinstance(rows, SparseRows):
        if named:
            return _lists(SparseRows.of_dense(rows, Rest.uniform(len(leaves))), leaves, named)
        ends = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1])
        numbers = pa.ListArray.from_arrays(ends, pa.array(np.ascontiguousarray(rows).ravel()))
        return numbers, pa.nulls(len(rows), pa.list_(pa.string()))
    ends = pa.array(rows.ptr.astype(np.int32))
    names = pa.array(leaves).take(pa.array(rows.leaf))
    return pa.ListArray.from_arrays(ends, pa.array(rows.score)), pa.ListArray.from_arrays(
        ends, names
    )


def _labels(column: pa.Array) -> pd.Series[Any]:
    labels: pd.Series[Any] = column.to_pandas(integer_object_nulls=True).astype(object)
    return labels
