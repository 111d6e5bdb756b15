"""What `engine: spark` in a configuration opens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from huc_monitor.errors import InvalidInputError, MissingExtraError
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.sources import Table
from huc_monitor.sources._spec import FILES
from huc_spark._table import SparkTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from huc_spark._source import SparkSource


class SparkEngine:
    """Opens tables of the running Spark session, or of one that it starts.

    Parameters
    ----------
    info : MonitorInfo, optional
        The first argument of every plugin; not used.
    master : str, optional
        Where spark-submit or the environment does not say.
    options : dict of str to str, optional
        Spark's own settings, for a session that is not running yet.
    partitions : int, optional
        Ranges of score that are scanned apart.
    """

    def __init__(
        self,
        info: MonitorInfo | None = None,  # noqa: ARG002 - as every plugin is called
        *,
        master: str | None = None,
        options: Mapping[str, str] | None = None,
        partitions: int | None = None,
    ) -> None:
        try:
            from pyspark.sql import SparkSession
        except ImportError as error:
            missing = MissingExtraError.of("pyspark")
            raise missing from error
        session = SparkSession.getActiveSession()
        if session is None:
            builder = SparkSession.builder.appName("huc-monitor")
            builder = builder if master is None else builder.master(master)
            for name, value in (options or {}).items():
                builder = builder.config(name, value)
            session = builder.getOrCreate()
        self._session, self._partitions = session, partitions

    def table(
        self,
        *,
        path: str | None,
        table: str | None,
        format: str = FILES.format,  # noqa: A002 - the word people type
    ) -> SparkTable:
        """Open files or a folder of them, a Delta table by its path, or a table by its name."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        if (path is None) == (table is None):
            msg = f"`path` or `table` must be given, and not both; got {path!r} and {table!r}."
            raise InvalidInputError(msg)
        try:
            if table is not None:
                return self._opened(self._session.table(table), f"the Spark table {table!r}")
            kind = self._kind(str(path)) if format == "auto" else format
            reader = self._session.read.format(kind)
            if kind == "csv":
                reader = reader.option("header", "true").option("inferSchema", "true")
            return self._opened(reader.load(str(path)), f"the {kind} log {path!r}")
        except (PySparkException, Py4JJavaError) as error:
            # A format whose package is missing fails in Java before Spark can say so.
            plain = getattr(error, "java_exception", error)
            reason = str(plain).strip().splitlines()[0]
            msg = f"Spark could not open {(table or path)!r}: {reason}"
            raise InvalidInputError(msg) from error

    def _opened(self, df: DataFrame, name: str) -> SparkTable:
        table = SparkTable(df, name)
        table.columns()  # with Spark Connect, nothing before asks whether it is there
        return table

    def _kind(self, path: str) -> str:
        """Tell a Delta table from plain Parquet: its folder also holds files it has replaced."""
        from pyspark.errors import AnalysisException

        entries = [f"{path.rstrip('/')}/_delta_log/*.json"]
        try:
            # Twice: of a single path that is not there, Spark complains in its log.
            found = self._session.read.format("binaryFile").load(entries * 2).select("path").head(1)
        except AnalysisException:
            return "parquet"
        return "delta" if found else "parquet"

    def source(self, log: Table, **settings: Any) -> SparkSource:
        """Open a source whose larger windows are audited by Spark."""
        from huc_spark._source import SparkSource

        return SparkSource(log, n_partitions=self._partitions, **settings)
