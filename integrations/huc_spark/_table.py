"""Tables that Spark reads: files of any format it knows, and tables of its catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pandas as pd

from huc_monitor._common.times import EPOCH, wall_bound
from huc_monitor.errors import InvalidInputError
from huc_monitor.sources import TimeRange
from huc_monitor.sources._table import (
    Chunk,
    ColumnKind,
    Lookup,
    TimeColumn,
    as_chunk,
    chunk_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WHOLE = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparkTable:
    """Rows of a Spark DataFrame. Filters and counts run on the cluster.

    Only `scan`, `lookup` and `head` bring rows to the driver; `huc_spark.SparkSource` asks for no
    more than it may hold.
    """

    df: DataFrame
    name: str = "the Spark DataFrame"

    def columns(self) -> Mapping[str, str]:
        """Names of the columns, with Spark's types."""
        return dict(self.df.dtypes)

    def time_range(self, time: TimeColumn) -> TimeRange | None:
        """First and last time; rows without a time belong to no window."""
        from pyspark.sql import functions as f

        column = self.column(time.name)
        n_untimed = f.count(f.lit(1)) - f.count(column)
        ends = f.min(column).alias("f"), f.max(column).alias("l")
        found = self.df.agg(*ends, n_untimed.alias("n")).toArrow()
        first, last = (time.first(found.column(name).to_pandas()) for name in ("f", "l"))
        return time.extent(self.name, first, last, found.column("n")[0].as_py())

    def count(
        self, time: TimeColumn, start: datetime, end: datetime, column: str | None = None
    ) -> tuple[int, int]:
        """Count the rows, and those with a value in `column`."""
        from pyspark.sql import functions as f

        present = f.lit(1) if column is None else self.column(column)
        rows = self.between(time, start, end)
        found = rows.agg(f.count(f.lit(1)), f.count(present)).first()
        return (0, 0) if found is None else (int(found[0]), int(found[1]))

    def advance(self, time: TimeColumn, start: datetime, n_rows: int) -> datetime | None:
        """Return the smallest time such that at least `n_rows` lie between `start` and it."""
        from pyspark.sql import functions as f

        column = self.column(time.name)
        later = self.df.where(column >= self._bound(time, start))
        counts = later.groupBy(column.alias("t")).count().orderBy("t")
        done = 0
        for row in counts.toLocalIterator():
            if done >= n_rows:
                moment = self.df.sparkSession.createDataFrame(
                    [(row["t"],)], counts.select("t").schema
                )
                return time.first(moment.select(f.col("t")).toArrow().column("t").to_pandas())
            done += int(row["count"])
        return None

    def scan(
        self, columns: Mapping[str, ColumnKind], time: TimeColumn, start: datetime, end: datetime
    ) -> Iterator[Chunk]:
        """Bring columns of the rows in a range to the driver, some rows at a time."""
        rows = self.between(time, start, end).select(*self.expressions(columns))
        for batch in rows.toArrow().to_batches(max_chunksize=chunk_rows(columns)):
            yield as_chunk(batch, columns)

    def lookup(self, wanted: Lookup) -> pd.DataFrame:
        """Read columns of the rows that have one of some values."""
        rows = self.until(wanted.time, wanted.until)
        values = pd.DataFrame({"huc_wanted": pd.Series(wanted.among)})
        if values.empty:
            found = rows.limit(0)
        else:
            ids = self.df.sparkSession.createDataFrame(values)
            found = rows.join(ids, self.column(wanted.key) == ids["huc_wanted"], "leftsemi")
        chosen = found.select(*self.expressions(wanted.columns))
        frame: pd.DataFrame = chosen.toArrow().to_pandas(integer_object_nulls=True)
        return frame

    def head(self, n_rows: int) -> pd.DataFrame:
        """Read the first rows, all columns."""
        frame: pd.DataFrame = self.df.limit(n_rows).toArrow().to_pandas(integer_object_nulls=True)
        return frame

    def sampled(self, share: float, keys: list[str]) -> SparkTable:
        """Return the table of a share of the rows, chosen by a hash of some columns."""
        from pyspark.sql import functions as f

        if share >= 1.0:
            return self
        limit = int(share * 2**64) - 2**63
        return SparkTable(self.df.where(self.hashed(keys) <= f.lit(limit)), self.name)

    def hashed(self, names: list[str]) -> Column:
        """Return a hash of some columns; maps, of which Spark makes none, by their text."""
        from pyspark.sql import functions as f

        types = self.columns()
        return f.xxhash64(
            *(
                f.to_json(self.column(name)) if "map<" in types[name] else self.column(name)
                for name in names
            )
        )

    def between(self, time: TimeColumn, start: datetime, end: datetime) -> DataFrame:
        """Rows in a range of time."""
        column = self.column(time.name)
        return self.df.where(
            (column >= self._bound(time, start)) & (column < self._bound(time, end))
        )

    def until(self, time: TimeColumn | None, until: datetime | None) -> DataFrame:
        """Select the rows up to and including a time, and rows that have none."""
        from datetime import timedelta

        if time is None or until is None:
            return self.df
        bound = self._bound(time, until + timedelta(microseconds=1))
        column = self.column(time.name)
        return self.df.where((column < bound) | column.isNull())

    def expressions(self, columns: Mapping[str, ColumnKind]) -> list[Column]:
        """Columns as the audit reads them: probabilities as doubles."""
        casts = {"number": "double", "numbers": "array<double>"}
        types = self.columns()
        return [
            self.column(name).cast(casts[kind]).alias(name)
            if kind in casts and not types[name].startswith("string")
            else self.column(name).alias(name)
            for name, kind in columns.items()
        ]

    def column(self, name: str) -> Column:
        """Return a column by its name, whatever characters that has."""
        return self.df[quoted(name)]

    def _bound(self, time: TimeColumn, moment: datetime) -> Any:
        from pyspark.sql import functions as f

        kind = self.columns()[time.name]
        if kind == "timestamp":
            micros = int((moment - EPOCH).total_seconds() * 1_000_000)
            return f.timestamp_micros(f.lit(micros))
        if kind in {"timestamp_ntz", "date"}:
            return f.lit(wall_bound(moment, time.zone)).cast("timestamp_ntz")
        if kind in WHOLE:
            return f.lit(time.number(moment, self.name))
        msg = (
            f"`time` must be a column of times; got {time.name!r} of type {kind} in {self.name}. "
            "Cast it to a timestamp in a view."
        )
        raise InvalidInputError(msg)


def quoted(name: str) -> str:
    """Write a column's name as Spark's expressions do."""
    return "`" + name.replace("`", "``") + "`"


def on_disk() -> Any:
    """Where rows that are read more than once are kept."""
    from pyspark import StorageLevel

    return StorageLevel.DISK_ONLY
