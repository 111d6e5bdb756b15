"""Tables that DuckDB reads: files and folders of them, Delta and Iceberg, and DuckDB databases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from huc_monitor._common.safe_text import quoted
from huc_monitor._common.times import YEAR_FIRST, wall_bound
from huc_monitor.errors import InvalidInputError, nearest
from huc_monitor.sources._data import TimeRange
from huc_monitor.sources._lake import is_delta, is_iceberg, lake_files
from huc_monitor.sources._partition import Partition
from huc_monitor.sources._presets import find_preset, unpacked
from huc_monitor.sources._spec import FILES
from huc_monitor.sources._table import (
    UNREADABLE,
    Chunk,
    ColumnKind,
    Lookup,
    TimeColumn,
    as_chunk,
    chunk_rows,
)

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

_PARQUET: Final = (".parquet", ".pq")
_CSV: Final = (".csv", ".csv.gz", ".tsv")
_JSON: Final = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".json", ".json.gz")
_READERS: Final = {
    "csv": "read_csv(?{options})",
    "jsonl": "read_json(?, format='newline_delimited', sample_size=-1{options})",
    "parquet": "read_parquet(?{options})",
    "delta": "read_parquet(?, hive_partitioning=true{options})",
    "iceberg": "read_parquet(?{options})",
}
_FORMATS: Final = {"csv": "CSV", "jsonl": "JSON lines", "delta": "Delta", "iceberg": "Iceberg"}
_ZONED: Final = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
_WALL: Final = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "DATE")
_WHOLE: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UINTEGER", "UBIGINT", "HUGEINT")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DuckTable:
    """A table read by DuckDB; make it with `files` or `database`.

    A connection of its own, in memory, reads the data and never writes. Times and ids are filtered
    inside the scan, rows are handed over in batches.
    """

    name: str
    _connection: duckdb.DuckDBPyConnection
    _relation: str
    _parameters: tuple[Any, ...] = ()
    _csv: bool = False
    _partition: Partition | None = None
    _list_files: Callable[[], list[str]] | None = None
    preset: str | None = None
    _types: dict[str, str] = field(default_factory=dict, init=False)
    # Columns of a CSV file that DuckDB takes for times, and whether they are written year first.
    _dated: dict[str, bool] = field(default_factory=dict, init=False)

    @classmethod
    def files(
        cls,
        path: str | Path,
        *,
        format: str = FILES.format,  # noqa: A002 - the word people type
        partition: Partition | None = None,
        union_by_name: bool = FILES.union_by_name,
        preset: str | None = FILES.preset,
        memory_limit: str = "512MB",
    ) -> DuckTable:
        """Read Parquet, CSV or JSON lines files, or a Delta or Iceberg table on a disk.

        Parameters
        ----------
        path : str or Path
            A file, a folder (all Parquet files below it; where there are none, all JSON lines), a
            Delta or Iceberg table, or a glob pattern such as ``log/day=*/*.parquet``. Columns in
            folder names (``day=2024-01-01``) are read as well.
        format : {"auto", "parquet", "csv", "jsonl", "delta", "iceberg"}
        partition : Partition, optional
            Lets windows open only the files of their own folders.
        union_by_name : bool, default False
            Accept files with different columns. Every file's header is then read every time.
        preset : {"sagemaker-capture", "databricks-inference"}, optional
            Unpack request and response payloads, as `huc_monitor.sources._presets` says.
        memory_limit : str, default "512MB"
            What DuckDB may use before it spills to disk.
        """
        place, kind = str(path), format
        if Path(place).is_dir():
            kind = _format_of_folder(Path(place)) if format == "auto" else format
            if kind not in {"delta", "iceberg"}:
                place = str(Path(place) / "**" / f"*{_SUFFIX[kind]}")
        kind = _format(place) if kind == "auto" else kind
        table = cls(
            f"the {_FORMATS.get(kind, 'Parquet')} log {str(path)!r}",
            _connect(memory_limit),
            _READERS[kind],
            (place,),
            _csv=kind == "csv",
            _partition=partition,
            _list_files=lake_files(kind, Path(place)) if kind in {"delta", "iceberg"} else None,
            preset=preset,
        )
        union = ", union_by_name=true" if union_by_name else ""
        relation = table._relation.format(options=union + ("{types}" if kind == "csv" else ""))
        if preset is not None:
            with table._explained():
                relation = unpacked(table._connection, relation, table._values(), preset)
        object.__setattr__(table, "_relation", relation)
        return table

    def _explained(self) -> AbstractContextManager[None]:
        return _explained(self.name, self._parameters[0] if self._csv else None)

    def find_preset(self) -> str | None:
        """Say which platform's log this is, by its columns; None where it is none of them."""
        return None if self.preset else find_preset(dict(self.columns()))

    @classmethod
    def database(cls, path: str | Path, table: str, *, memory_limit: str = "512MB") -> DuckTable:
        """Read a table or view of a DuckDB database file, opened read-only.

        Parameters
        ----------
        path : str or Path
        table : str
            Its name, or "schema.name".
        memory_limit : str, default "512MB"
        """
        if not Path(path).is_file():
            msg = f"`database` must be an existing file; got {str(path)!r}. Check the spelling."
            raise InvalidInputError(msg)
        connection = _connect(memory_limit)
        name = f"the table {table!r} of the DuckDB file {str(path)!r}"
        with _explained(name):
            connection.execute(f"ATTACH {_literal(str(path))} AS source (READ_ONLY)")
        found = connection.sql(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_catalog = 'source' ORDER BY ALL"
        ).fetchall()
        for schema, known in found:
            if table in {f"{schema}.{known}", known if schema == "main" else None}:
                return cls(name, connection, f"source.{_quote(schema)}.{_quote(known)}")
        tables = ", ".join(
            repr(known if schema == "main" else f"{schema}.{known}") for schema, known in found
        )
        msg = f"`table` must be a table of {str(path)!r}; got {table!r}. There are: {tables}."
        raise InvalidInputError(msg)

    def columns(self) -> Mapping[str, str]:
        """Names of the columns, with DuckDB's types."""
        if not self._types:
            with self._explained():
                rows = self._sql(f"DESCRIBE SELECT * FROM {self._from()}").fetchall()
            self._types.update({name: kind for name, kind, *_ in rows})
            self._refuse_repeated(set(self._types))
            if self._csv:
                self._read_dates_as_text()
        return self._types

    def _read_dates_as_text(self) -> None:
        """Take times that are not written year first for texts: DuckDB guesses their order."""
        dated = [name for name, kind in self._types.items() if kind in (*_WALL, *_ZONED)]
        if not dated:
            return
        firsts = ", ".join(f"any_value({_quote(name)})" for name in dated)
        raw = self._relation.format(types=", all_varchar=true")
        with self._explained():
            query = f"SELECT {firsts} FROM (SELECT * FROM {raw} LIMIT {_SNIFFED})"
            found = self._sql(query).fetchall()[0]
        for name, text in zip(dated, found, strict=True):
            if isinstance(text, str):  # a column in folder names has a type of its own
                self._dated[name] = YEAR_FIRST.match(text) is not None
                if self._types[name] in _WALL and re.search(_WITH_ZONE, text):
                    self._types[name] = _ZONED[0]  # DuckDB takes "UTC" for no zone
        self._types.update({name: "VARCHAR" for name, known in self._dated.items() if not known})

    def _refuse_repeated(self, names: set[str]) -> None:
        """Refuse two columns of one name: DuckDB numbers the second, and would read the first."""
        numbered = map(_NUMBERED.fullmatch, names)
        if not any(found is not None and found[1] in names for found in numbered):
            return
        written: list[str] = []
        with self._explained():
            if self._csv:
                header = self._relation.format(types=", header=false, all_varchar=true")
                written = list(self._sql(f"SELECT * FROM {header} LIMIT 1").fetchall()[0])
            elif self._relation == _READERS["parquet"].format(options=""):
                schema = "SELECT name, num_children FROM parquet_schema(?)"
                file = self._sql("SELECT file FROM glob(?) LIMIT 1").fetchall()[0]
                written = _outermost(self._connection.sql(schema, params=file).fetchall())
        twice = sorted(name for name in set(written) & names if written.count(name) > 1)
        if twice:
            msg = f"{self.name} must have distinct columns; got {twice[0]!r} more than once."
            raise InvalidInputError(msg)

    def time_range(self, time: TimeColumn) -> TimeRange | None:
        """First and last time; rows without a time belong to no window."""
        column = self._known_time(time)
        found = f"min({column}) AS f, max({column}) AS l, count(*) - count({column}) AS n"
        table = self._table(f"SELECT {found} FROM {self._from(time=time)}")
        first, last = (time.first(table.column(name).to_pandas()) for name in ("f", "l"))
        n_untimed, example = table.column("n")[0].as_py(), None
        if first is None and n_untimed:
            query = f"SELECT any_value({_quote(time.name)}) AS v FROM {self._from(time=time)}"
            example = self._table(query).column("v")[0].as_py()
        return time.extent(self.name, first, last, n_untimed, example)

    def count(
        self, time: TimeColumn, start: datetime, end: datetime, column: str | None = None
    ) -> tuple[int, int]:
        """Count the rows, and those with a value in `column`."""
        where, values = self._between(time, start, end)
        present = "*" if column is None else _quote(column)
        query = f"SELECT count(*), count({present}) FROM {self._from(time=time)} WHERE {where}"
        with self._explained():
            n_rows, n_present = self._sql(query, values).fetchall()[0]
        return n_rows, n_present

    def advance(self, time: TimeColumn, start: datetime, n_rows: int) -> datetime | None:
        """Return the smallest time such that at least `n_rows` lie between `start` and it."""
        column, source = self._time(time), self._from(time=time)
        bound = self._bound(time, start)
        nth = (
            f"SELECT {column} FROM {source} WHERE {column} >= ? "
            f"ORDER BY {column} LIMIT 1 OFFSET {int(n_rows) - 1}"
        )
        query = f"SELECT min({column}) AS t FROM {source} WHERE {column} > ({nth})"
        found = self._table(query, (*self._values(), bound))
        return time.first(found.column("t").to_pandas())

    def scan(
        self, columns: Mapping[str, ColumnKind], time: TimeColumn, start: datetime, end: datetime
    ) -> Iterator[Chunk]:
        """Read columns of the rows in a range, some rows at a time."""
        query, values = self._scan_query(columns, time, start, end)
        with self._explained():
            for batch in self._sql(query, values).arrow(chunk_rows(columns)):
                yield as_chunk(batch, columns)

    def rows(self, columns: Mapping[str, ColumnKind]) -> Iterator[Chunk]:
        """Read columns of all rows, in their order, some rows at a time."""
        selected = ", ".join(self._expression(name, kind, None) for name, kind in columns.items())
        with self._explained():
            found = self._sql(f"SELECT {selected} FROM {self._from(columns)}")
            for batch in found.arrow(chunk_rows(columns)):
                yield as_chunk(batch, columns)

    def lookup(self, wanted: Lookup) -> pd.DataFrame:
        """Read columns of the rows that have one of some values."""
        import pyarrow as pa

        known: list[Any] = []
        when, time, columns = "", wanted.time, wanted.columns
        if time is not None and wanted.until is not None:
            # Up to and including `until` is before the next microsecond.
            known = [self._bound(time, wanted.until + timedelta(microseconds=1))]
            when = f" AND ({self._time(time)} < ? OR {self._time(time)} IS NULL)"
        selected = ", ".join(self._expression(name, kind, time) for name, kind in columns.items())
        if time is not None and self._is_text(time.name):
            text = _quote(time.name)
            odd = f"{self._known_time(time)} IS NULL AND regexp_matches({text}, '[0-9]')"
            selected += f", CASE WHEN {odd} THEN {text} END AS {_quote(UNREADABLE)}"
        query = (
            f"SELECT {selected} FROM {self._from(columns, time)} "
            f"WHERE {_quote(wanted.key)} IN (SELECT v FROM wanted){when}"
        )
        with self._explained():
            self._connection.register("wanted", pa.table({"v": pa.array(wanted.among)}))
            try:
                rows = self._sql(query, known).to_arrow_table()
            finally:
                self._connection.unregister("wanted")
        frame: pd.DataFrame = rows.to_pandas(integer_object_nulls=True)
        return frame

    def head(self, n_rows: int) -> pd.DataFrame:
        """Read the first rows, all columns."""
        self.columns()  # finds which dates are read as text
        rows = self._table(f"SELECT * FROM {self._from()} LIMIT {int(n_rows)}")
        frame: pd.DataFrame = rows.to_pandas(integer_object_nulls=True)
        return frame

    def partition_columns(self) -> dict[str, str]:
        """Return the columns in folder names (``day=2024-01-01``), with a value of each."""
        if self._csv or not self._parameters or self._list_files or self.preset:
            return {}
        with self._explained():
            files = self._connection.sql(
                "SELECT file FROM glob(?) LIMIT 1", params=self._parameters
            )
            found = files.fetchall()
        folders = found[0][0].replace("\\", "/").split("/")[:-1] if found else []
        pairs = (unquote(folder).partition("=") for folder in folders)
        return {name: value for name, sign, value in pairs if sign and name in self.columns()}

    def follows(self, time: str, formats: Mapping[str, str]) -> bool:
        """Say whether partition columns are, in every row, the given forms of the time in UTC."""
        if not self.columns()[time].startswith("TIMESTAMP"):
            return False
        moment = f"{_quote(time)}::TIMESTAMPTZ AT TIME ZONE 'UTC'"
        if self.columns()[time] not in _ZONED:
            moment = f"{_quote(time)}::TIMESTAMP"
        same = " AND ".join(
            f"{_partition_text(name, self.columns()[name])} = strftime({moment}, {_literal(form)})"
            if self.columns()[name] not in _WHOLE
            else f"{_quote(name)} = CAST(strftime({moment}, {_literal(form)}) AS BIGINT)"
            for name, form in formats.items()
        )
        query = f"SELECT count(*) FROM {self._from()} WHERE NOT ({same})"
        with self._explained():
            return bool(self._sql(query).fetchall()[0][0] == 0)

    def _scan_query(
        self, columns: Mapping[str, ColumnKind], time: TimeColumn, start: datetime, end: datetime
    ) -> tuple[str, list[Any]]:
        where, values = self._between(time, start, end)
        selected = ", ".join(self._expression(name, kind, time) for name, kind in columns.items())
        return f"SELECT {selected} FROM {self._from(columns, time)} WHERE {where}", values

    def _values(self) -> list[Any]:
        """Return what stands for ``?`` in the relation: a place, or a table's files of now."""
        return list(self._parameters) if self._list_files is None else [self._list_files()]

    def _sql(self, query: str, values: Any = ()) -> Any:
        return self._connection.sql(query, params=[*self._values(), *values])

    def _table(self, query: str, values: Any = ()) -> pa.Table:
        with self._explained():
            return self._sql(query, values).to_arrow_table()

    def _from(
        self, columns: Mapping[str, ColumnKind] | None = None, time: TimeColumn | None = None
    ) -> str:
        if not self._csv:
            return self._relation
        # Labels stay text, or a leaf named "01" would come back as the number 1; probabilities
        # and times too, or one bad cell would end the whole read.
        as_text = [name for name, kind in (columns or {}).items() if kind != "any"]
        timed = None if time is None else time.name
        as_text += [name for name, known in self._dated.items() if not known or name == timed]
        pairs = ", ".join(f"{_literal(name)}: 'VARCHAR'" for name in dict.fromkeys(as_text))
        return self._relation.format(types=f", types={{{pairs}}}" if pairs else "")

    def _expression(self, name: str, kind: ColumnKind, time: TimeColumn | None) -> str:
        column, declared = _quote(name), self.columns()[name]
        if time is not None and name == time.name:
            return f"{self._time(time)} AS {column}"
        text = self._csv or declared == "VARCHAR"
        if kind == "number":
            # A plain TRY_CAST of a CSV column is turned into a typed read, which fails.
            cast = f"TRY_CAST(concat({column}) AS DOUBLE)" if text else f"CAST({column} AS DOUBLE)"
            return f"{cast} AS {column}"
        if kind == "numbers" and declared.endswith("]") and not self._csv:
            return f"CAST({column} AS DOUBLE[]) AS {column}"
        return column

    def _time(self, time: TimeColumn) -> str:
        column, declared = _quote(time.name), self.columns()[time.name]
        if self._is_text(time.name):
            kinds = ("TIMESTAMP", "TIMESTAMPTZ")
            casts = [f"TRY_CAST(concat({column}) AS {kind})" for kind in kinds]
            mine, other = casts if declared in _WALL else casts[::-1]
            if declared == "VARCHAR":
                self._connection.execute(f"SET TimeZone = {_literal(time.time_zone)}")
            if declared == "VARCHAR" or time.time_zone == "UTC":
                return mine
            # Times with and without a zone in one column: each is what it says.
            alike = f"regexp_matches({column}, '{_WITH_ZONE}') = {declared in _ZONED}"
            other = f"timezone({_literal(time.time_zone)}, {other})"
            return f"CASE WHEN {alike} THEN {mine} ELSE {other} END"
        if declared == "TIMESTAMPTZ_NS":
            # DuckDB refuses to compare nanoseconds with the microseconds of a parameter.
            return f"CAST({column} AS TIMESTAMPTZ)"
        return column

    def _known_time(self, time: TimeColumn) -> str:
        """Leave out 01/02/26, which DuckDB reads as a day of the year 1: before every window."""
        if not self._is_text(time.name):
            return self._time(time)
        known = f"regexp_matches({_quote(time.name)}, '^{YEAR_FIRST.pattern}')"
        return f"CASE WHEN {known} THEN {self._time(time)} END"

    def _is_text(self, name: str) -> bool:
        """Whether a column of times is read as text."""
        return name in self._dated or self.columns()[name] == "VARCHAR"

    def _bound(self, time: TimeColumn, moment: datetime) -> Any:
        kind = self.columns()[time.name]
        if kind in {*_ZONED, "VARCHAR"}:
            return moment.astimezone(UTC)
        if kind in _WALL:
            return wall_bound(moment, time.zone)
        if kind in {*_WHOLE, "DOUBLE", "FLOAT"} or kind.startswith("DECIMAL"):
            return time.number(moment, self.name, whole=kind in _WHOLE)
        msg = (
            f"`time` must be a column of times; got {time.name!r} of type {kind} in {self.name}. "
            "Name another column."
        )
        raise InvalidInputError(msg)

    def _between(self, time: TimeColumn, start: datetime, end: datetime) -> tuple[str, list[Any]]:
        column = self._time(time)
        clauses = [f"{column} >= ?", f"{column} < ?"]
        values = [self._bound(time, start), self._bound(time, end)]
        if self._partition is not None:
            for name, texts in self._partition.values(start, end).items():
                if name not in self.columns():
                    msg = (
                        f"`partition` must name partition columns; {self.name} has no column "
                        f"{name!r}. Its folders look like {name}=..."
                    )
                    raise InvalidInputError(msg)
                clauses.append(f"{_quote(name)} IN ({', '.join('?' * len(texts))})")
                values += [_partition_value(text, self.columns()[name]) for text in texts]
        return " AND ".join(clauses), values


def _connect(memory_limit: str) -> duckdb.DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(":memory:", config={"memory_limit": memory_limit})
    connection.execute("SET TimeZone = 'UTC'")
    # In a notebook without ipywidgets the bar is off, and touching the setting is refused.
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()[0][0]:
        connection.execute("SET enable_progress_bar = false")
    return connection


def _format(place: str) -> str:
    lower = place.lower()
    if lower.endswith(_PARQUET):
        return "parquet"
    if lower.endswith(_CSV):
        return "csv"
    if lower.endswith(_JSON):
        return "jsonl"
    parent, name = Path(place).parent, Path(place).name
    if not Path(place).exists() and parent.is_dir():
        near = nearest(name, [entry.name for entry in parent.iterdir()]) or "Correct the path."
        msg = f"`path` must be a file or folder; there is no {place!r}. {near}"
        raise InvalidInputError(msg)
    msg = (
        f"`path` must end in one of {', '.join((*_PARQUET, *_CSV, *_JSON))}, or be a folder; got "
        f"{place!r}. Otherwise say which with `format`: 'parquet', 'csv' or 'jsonl'."
    )
    raise InvalidInputError(msg)


# So many rows DuckDB looks at to tell the types of a CSV file.
_SNIFFED: Final = 20_480
# A time of day with a zone after it: Z, UTC, Europe/Berlin, +01:00.
_WITH_ZONE: Final = r":\d\d.*([A-Za-z]|[+-]\d\d(:?\d\d)?)\s*$"
_TAIL: Final = 1_000_000  # bytes at the end of a file, for its last line
_BAD_CELL: Final = re.compile(
    r"CSV Error on Line: (\d+).*?converting column (\".*?\")\. Could not convert string "
    r"\"(.*?)\" to \'(.*?)\'",
    re.DOTALL,
)
_NUMBERED: Final = re.compile(r"(.+)_\d+")
_SUFFIX: Final = {"parquet": ".parquet", "csv": ".csv", "jsonl": ".json*"}


def _format_of_folder(folder: Path) -> str:
    """Return the format of a folder: that of a table, else of the files that are in it."""
    if is_delta(folder):
        return "delta"
    if is_iceberg(folder):
        return "iceberg"
    is_json = next(folder.rglob("*.parquet"), None) is None
    return "jsonl" if is_json and next(folder.rglob("*.json*"), None) else "parquet"


def _outermost(schema: list[tuple[str, int | None]]) -> list[str]:
    """Return the names of a Parquet file's columns, without what is nested in them."""
    names, depth = [], 0
    for name, n_inside in schema[1:]:
        if not depth:
            names.append(name)
        depth += (n_inside or 0) - (1 if depth else 0)
    return names


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _partition_value(text: str, kind: str) -> Any:
    if kind == "DATE":
        return date.fromisoformat(text)
    return int(text) if kind in _WHOLE else text


def _partition_text(name: str, kind: str) -> str:
    return f"strftime({_quote(name)}, '%Y-%m-%d')" if kind == "DATE" else _quote(name)


def _find_cut(pattern: str) -> str | None:
    """Name a file that ends within a line, or with one that has fewer fields than the first."""
    for name in glob(pattern, recursive=True):  # noqa: PTH207 - it may begin at the root
        path = Path(name)
        if path.suffix == ".gz" or not path.stat().st_size:
            continue
        with path.open("rb") as file:
            first = file.readline()
            file.seek(max(0, path.stat().st_size - _TAIL))
            tail = file.read()
        between = max((b",", b";", b"\t", b"|"), key=first.count)
        short = tail.splitlines()[-1].count(between) < first.count(between)
        if short or not tail.endswith((b"\n", b"\r")):
            return path.name
    return None


@contextmanager
def _explained(name: str, csv: str | None = None) -> Iterator[None]:
    """Turn DuckDB's errors into ours: what could not be read, and the first line of why."""
    import duckdb

    try:
        yield
    except (duckdb.Error, OSError) as error:  # Arrow hands on a failed batch as an OSError
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        cell = _BAD_CELL.search(str(error))
        if cell is not None:
            reason = (
                f"line {cell[1]} holds {quoted(cell[3])} in the column {cell[2]}, whose first rows "
                f"are of type {cell[4]}. Write values of one kind, or Parquet, which keeps types."
            )
        else:
            cut = None if csv is None else _find_cut(csv)
            if cut is not None:
                reason += (
                    f" The last line of {cut} is not complete: is it still being written? Write "
                    "it under another name, and rename it when it is whole."
                )
        if "No files found that match" in reason:
            reason = "there is no such file. Check the path, and the folder it is seen from."
        msg = f"{name[0].upper()}{name[1:]} could not be read: {reason}"
        raise InvalidInputError(msg) from error
