"""Recalibration of rows that Spark holds: fitted on a sample, replayed everywhere."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from huc_monitor._common.checks import check_whole
from huc_monitor.audit import audit as audit_locally
from huc_monitor.audit.result import AuditResult
from huc_monitor.errors import InvalidInputError
from huc_monitor.recalibration import HUCBoost
from huc_monitor.sources._rows import column_kinds, read_chunk
from huc_monitor.sources._table import as_chunk
from huc_monitor.subgroups import Subgroups
from huc_monitor.utilities.program import Floats
from huc_spark._audit import audit, reader_of
from huc_spark._table import SparkTable
from huc_spark._worker import Step, gathered

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

_ROWS_AT_A_TIME = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class SampledFit:
    """A recalibrator that was fitted on a sample, and how far the sample is from all rows.

    Attributes
    ----------
    recalibrator : HUCBoost
        Fitted.
    n_rows, n_sample : int
        Rows there are, and rows it was fitted on.
    sampling_error : float
        Largest difference, over all candidates, between the absolute moment in the sample and that
        in all rows: measured on both, not estimated. An update smaller than this may be one that
        all rows would not have asked for.
    radius : float
        Largest sharp radius of the sample: what the error could have been, at `confidence_level`.
    before : AuditResult
        All rows, before recalibration.
    sample : AuditResult
        The sample, before recalibration.
    """

    recalibrator: HUCBoost
    n_rows: int
    n_sample: int
    sampling_error: float
    radius: float
    before: AuditResult
    sample: AuditResult

    @property
    def confidence_level(self) -> float:
        """Of `radius`."""
        return self.sample.confidence_level

    def __repr__(self) -> str:
        """One line."""
        return (
            f"SampledFit(n_sample={self.n_sample:,} of {self.n_rows:,}, "
            f"sampling_error={self.sampling_error:.2g}, radius={self.radius:.2g})"
        )


def fit_on_sample(
    df: DataFrame,
    boost: HUCBoost,
    *,
    row_id: str,
    rows: int = 200_000,
    probabilities: str | Mapping[str, str] = "{leaf}",
    labels: str = "label",
    **options: Any,
) -> SampledFit:
    """Fit HUC-Boost on a sample of the rows, and measure what sampling costs.

    HUC-Boost passes over its rows hundreds of times, so it runs on the driver. The sample is
    chosen by a hash of `row_id`: the same rows each time, and without regard to labels.

    Parameters
    ----------
    df : DataFrame
        Labelled predictions, as in `huc_spark.audit`.
    boost : HUCBoost
        Not fitted yet; it is fitted in place.
    row_id : str
        Column that tells rows apart.
    rows : int, default 200_000
        Rows of the sample, about.
    probabilities, labels
        As in `huc_spark.audit`.
    **options
        Handed on to ``boost.fit``, such as ``validation=...``.
    """
    check_whole("rows", rows, least=1)
    if isinstance(boost.subgroups, str):
        msg = (
            f"`subgroups` must be a family of subgroups on Spark; got {boost.subgroups!r}. Pass "
            "the one of `huc_monitor.discover(...).make_subgroups(features)` of a sample."
        )
        raise InvalidInputError(msg)
    what: dict[str, Any] = {"tree": boost.tree, "utilities": boost.utilities}
    what |= {"subgroups": boost.subgroups, "bounds": "sharp"}
    before = audit(df, probabilities=probabilities, labels=labels, **what)
    table = SparkTable(df).sampled(rows / before.n, [row_id])
    where = reader_of(boost.tree, probabilities)
    features = [] if boost.subgroups is None else list(boost.subgroups.columns)
    wanted = column_kinds(where)
    kinds = {**wanted, labels: "any", **dict.fromkeys(features, "any")}
    found = table.df.select(*table.expressions(kinds)).toArrow().combine_chunks()  # type: ignore[arg-type]
    if not found.num_rows:
        msg = f"`rows` must leave rows in the sample; got none of {before.n:g}. Raise it."
        raise InvalidInputError(msg)
    matrix = read_chunk(where, as_chunk(found.to_batches()[0], wanted)).rows
    y = found.column(labels).to_pandas().to_numpy()
    frame: pd.DataFrame | None = found.select(features).to_pandas() if features else None
    sample = audit_locally(matrix, y, features=frame, **what)
    boost.fit(matrix, y, features=frame, **options)
    error = np.abs(np.abs(sample.candidates.moment) - np.abs(before.candidates.moment))
    return SampledFit(
        boost,
        int(before.n),
        int(sample.n),
        float(error.max(initial=0.0)),
        float(sample.radii.max(initial=0.0)),
        before,
        sample,
    )


def predict_proba(
    df: DataFrame,
    boost: HUCBoost,
    *,
    probabilities: str | Mapping[str, str] = "{leaf}",
    output: str = "recalibrated",
) -> DataFrame:
    """Replay a fitted recalibrator on every row, where the row is.

    Parameters
    ----------
    df : DataFrame
        Predictions, with the columns that the recalibrator's subgroups need.
    boost : HUCBoost
        Fitted.
    probabilities : str or mapping, default "{leaf}"
        As in `huc_spark.audit`.
    output : str, default "recalibrated"
        New array column, in the order of ``tree.leaves``.

    Returns
    -------
    DataFrame
        All columns of `df` and the new one.
    """
    from pyspark.sql import types as t

    if output in df.columns:
        msg = f"`output` must name a new column; {output!r} is there already."
        raise InvalidInputError(msg)
    new = t.StructField(output, t.ArrayType(t.DoubleType()))
    return df.mapInArrow(
        _replay(json.dumps(boost.to_dict()), probabilities), t.StructType([*df.schema.fields, new])
    )


@lru_cache(maxsize=4)
def _read(text: str) -> HUCBoost:
    return HUCBoost.from_dict(json.loads(text))


def _replay(text: str, probabilities: str | Mapping[str, str]) -> Step:
    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.environ.setdefault("HUC_NUM_THREADS", "1")
        boost = _read(text)
        where = reader_of(boost.tree, probabilities)
        columns = column_kinds(where)
        # A recalibrator that was read back has the family it was fitted with.
        features = list(cast(Subgroups, boost.subgroups or Subgroups.whole()).columns)
        for batch in gathered(batches, _ROWS_AT_A_TIME):
            read = read_chunk(where, as_chunk(batch.select(list(where.names)), columns))
            frame = batch.select(features).to_pandas() if features else None
            answer: Floats = boost.predict_proba(read.rows, features=frame)
            ends = np.arange(len(answer) + 1, dtype=np.int32) * answer.shape[1]
            column = pa.ListArray.from_arrays(pa.array(ends), pa.array(answer.ravel()))
            yield batch.append_column("out", column)

    return step
