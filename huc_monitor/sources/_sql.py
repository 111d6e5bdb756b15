"""Tables of any SQL database, through SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from huc_monitor._common.times import EPOCH, get_zone, wall_bound
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean
from huc_monitor.sources._data import TimeRange
from huc_monitor.sources._table import Chunk, ColumnKind, Lookup, TimeColumn, chunk_rows

if TYPE_CHECKING:
    import sqlalchemy as sa

# How many ids fit into one statement; others get what every database takes.
_IDS_PER_QUERY: Final = {"sqlite": 30_000, "postgresql": 30_000}
_ISO: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:([T ])(\d\d:\d\d)(:\d\d(?:\.(\d{1,9}))?)?)?(Z|[+-]00:?00)?"
)


@dataclass(frozen=True, eq=False, repr=False)
class SQLTable:
    """A table or view of an SQL database.

    Parameters
    ----------
    url : str
        As SQLAlchemy writes it: ``postgresql+psycopg://user:password@host/database``. It is never
        shown in messages.
    table : str
        Its name; `schema` where it is not in the default one.
    schema : str, optional

    Notes
    -----
    Names are quoted and values are bound by SQLAlchemy. Filters on time and id are those of the
    database, so an index on the time column of the log and on the id of the labels is what makes
    windows cheap. SQLite has no type for times: text in one ISO form, the same in all rows, or
    numbers.
    """

    url: str
    table: str
    schema: str | None = None
    _forms: dict[str, Any] = field(default_factory=dict, init=False)

    @property
    def name(self) -> str:
        """What to call it in messages; without the URL, which may hold a password."""
        return f"the SQL table {self._full!r}"

    @property
    def _full(self) -> str:
        return self.table if self.schema is None else f"{self.schema}.{self.table}"

    def columns(self) -> Mapping[str, str]:
        """Names of the columns, with the database's types."""
        return {column.name: str(column.type) for column in self._reflected.columns}

    def time_range(self, time: TimeColumn) -> TimeRange | None:
        """First and last time; rows without a time belong to no window."""
        import sqlalchemy as sa

        column, form = self._column(time.name), self._form(time)
        timed = column.is_not(None)
        if isinstance(form, str):
            _text_bound(form, EPOCH, time, self.name)  # refused if it is no ISO time
            timed = column.like("____-__-__%")
        counting = sa.select(sa.func.count()).select_from(self._reflected)
        with self._connect() as connection:
            ends = sa.select(sa.func.min(column), sa.func.max(column)).where(timed)
            row = connection.execute(ends).one()
            untimed = sa.or_(column.is_(None), sa.not_(timed))
            n_untimed = connection.execute(counting.where(untimed)).scalar_one()
            if isinstance(form, str):
                other = sa.select(column).where(timed, _other_offset(column, form)).limit(1)
                self._refuse_other(time, form, connection.execute(other).scalar())
        first, last = (self._moment(value, time) for value in row)
        return time.extent(self.name, first, last, n_untimed)

    def count(
        self, time: TimeColumn, start: datetime, end: datetime, column: str | None = None
    ) -> tuple[int, int]:
        """Count the rows, and those with a value in `column`."""
        import sqlalchemy as sa

        present = sa.func.count() if column is None else sa.func.count(self._column(column))
        query = sa.select(sa.func.count(), present).select_from(self._reflected)
        with self._connect() as connection:
            n_rows, n_present = connection.execute(
                query.where(*self._between(time, start, end))
            ).one()
        return n_rows, n_present

    def advance(self, time: TimeColumn, start: datetime, n_rows: int) -> datetime | None:
        """Return the smallest time such that at least `n_rows` lie between `start` and it."""
        import sqlalchemy as sa

        column = self._column(time.name)
        nth = (
            sa.select(column)
            .where(column >= self._bound(time, start))
            .order_by(column)
            .offset(n_rows - 1)
            .limit(1)
            .scalar_subquery()
        )
        with self._connect() as connection:
            value = connection.execute(sa.select(sa.func.min(column)).where(column > nth)).scalar()
        return self._moment(value, time)

    def scan(
        self, columns: Mapping[str, ColumnKind], time: TimeColumn, start: datetime, end: datetime
    ) -> Iterator[Chunk]:
        """Read columns of the rows in a range, some rows at a time."""
        import sqlalchemy as sa

        selected = [self._column(name) for name in columns]
        query = sa.select(*selected).where(*self._between(time, start, end))
        size = chunk_rows(columns)
        with self._connect() as connection:
            streaming = connection.execution_options(stream_results=True, max_row_buffer=size)
            for rows in streaming.execute(query).partitions(size):
                yield Chunk(_frame(rows, columns))

    def lookup(self, wanted: Lookup) -> pd.DataFrame:
        """Read columns of the rows that have one of some values."""
        import sqlalchemy as sa

        query = sa.select(*(self._column(name) for name in wanted.columns))
        query = query.where(self._column(wanted.key).in_(sa.bindparam("ids", expanding=True)))
        time = wanted.time
        if time is not None and wanted.until is not None:
            bound = self._bound(time, wanted.until + timedelta(microseconds=1))
            column = self._column(time.name)
            query = query.where(sa.or_(column < bound, column.is_(None)))
        ids = [value.item() if isinstance(value, np.generic) else value for value in wanted.among]
        found: list[Any] = []
        with self._connect() as connection:
            size = _IDS_PER_QUERY.get(connection.dialect.name, 1_000)
            for lo in range(0, len(ids), size):
                found += connection.execute(query, {"ids": ids[lo : lo + size]}).all()
        return _frame(found, wanted.columns)

    def head(self, n_rows: int) -> pd.DataFrame:
        """Read the first rows, all columns."""
        import sqlalchemy as sa

        columns = self.columns()
        query = sa.select(*(self._column(name) for name in columns)).limit(n_rows)
        with self._connect() as connection:
            rows = connection.execute(query).all()
        return _frame(rows, dict.fromkeys(columns, "any"))

    @cached_property
    def _engine(self) -> sa.Engine:
        import sqlalchemy as sa

        # No pool: between checks, which may be a day apart, no connection is held.
        return sa.create_engine(self.url, poolclass=sa.pool.NullPool)

    @contextmanager
    def _connect(self) -> Iterator[sa.Connection]:
        import sqlalchemy as sa

        try:
            with self._engine.connect() as connection:
                yield connection
        except (sa.exc.SQLAlchemyError, ImportError) as error:
            # The text of SQLAlchemy's own errors may hold the URL or values; the driver's does not.
            cause = getattr(error, "orig", None) or error
            reason = str(cause).strip().splitlines()[0] if str(cause).strip() else ""
            if isinstance(error, sa.exc.ArgumentError):
                reason = "its URL cannot be parsed; write dialect+driver://user:password@host/name"
            msg = f"The SQL table {self._full!r} could not be read: {reason}"
            raise InvalidInputError(msg) from None

    @cached_property
    def _reflected(self) -> sa.Table:
        import sqlalchemy as sa

        with self._connect() as connection:
            try:
                return sa.Table(
                    self.table,
                    sa.MetaData(),
                    schema=self.schema,
                    autoload_with=connection,
                    resolve_fks=False,
                )
            except sa.exc.NoSuchTableError:
                inspector = sa.inspect(connection)
                known = inspector.get_table_names(self.schema)
                known += inspector.get_view_names(self.schema)
                msg = (
                    f"`table` must be a table or view of the database; got {self._full!r}. "
                    f"{did_you_mean(self.table, known)}"
                )
                raise UnknownNameError(msg) from None

    def _column(self, name: str) -> Any:
        import sqlalchemy as sa

        column = self._reflected.columns[name]
        if self._engine.dialect.name == "sqlite" and isinstance(column.type, sa.DateTime | sa.Date):
            # SQLAlchemy would expect the one text form that it writes itself.
            return sa.type_coerce(column, sa.types.NullType())
        return column

    def _between(self, time: TimeColumn, start: datetime, end: datetime) -> list[Any]:
        column = self._column(time.name)
        return [column >= self._bound(time, start), column < self._bound(time, end)]

    def _moment(self, value: Any, time: TimeColumn) -> datetime | None:
        return time.first(pd.Series([value], dtype=None if time.unit else object))

    def _bound(self, time: TimeColumn, moment: datetime) -> Any:
        form = self._form(time)
        if isinstance(form, datetime):
            return moment if form.tzinfo is not None else wall_bound(moment, time.zone)
        if isinstance(form, str):
            return _text_bound(form, moment, time, self.name)
        if isinstance(form, int | float) and not isinstance(form, bool):
            return time.number(moment, self.name, whole=isinstance(form, int))
        if form is None:
            return moment  # an empty table: nothing to compare with
        kind = type(form).__name__
        msg = (
            f"`time` must be a column of times; got {time.name!r}, which holds {kind} in "
            f"{self.name}. Name another column."
        )
        raise InvalidInputError(msg)

    def _refuse_other(self, time: TimeColumn, form: str, other: str | None) -> None:
        """Refuse texts that are not in the order of time."""
        if other is not None:
            msg = (
                f"`time` must have one offset in all rows where it is text, or its order is not "
                f"that of time; got {form!r} and {other!r} (column {time.name!r} of {self.name}). "
                "Store all times in UTC."
            )
            raise InvalidInputError(msg)

    def _form(self, time: TimeColumn) -> Any:
        """Return one value of the time column: it shows how the database stores them."""
        import sqlalchemy as sa

        if self._forms.get(time.name) is None:
            column = self._column(time.name)
            query = sa.select(column).where(column.is_not(None)).limit(1)
            with self._connect() as connection:
                value = connection.execute(query).scalar()
            if value is not None and not isinstance(value, datetime) and hasattr(value, "year"):
                value = datetime(value.year, value.month, value.day)  # noqa: DTZ001 - wall time
            self._forms[time.name] = value
        return self._forms[time.name]


def _other_offset(column: Any, form: str) -> Any:
    """Say which texts end in another offset than `form`."""
    import sqlalchemy as sa

    found = _ISO.fullmatch(form.strip())
    if found is not None and found[5]:
        return sa.not_(column.like(f"%{found[5]}"))
    return sa.or_(*(column.like(end) for end in ("%Z", "%+__:__", "%+____", "%:__-__:__")))


def _text_bound(form: str, moment: datetime, time: TimeColumn, name: str) -> str:
    """Write `moment` in the form of a stored text, so that order of text is order of time."""
    found = _ISO.fullmatch(form.strip())
    if found is None:
        msg = (
            f"`time` must hold ISO times such as 2024-03-31T06:00:00Z, in UTC where they have an "
            f"offset; got {form!r} (column {time.name!r} of {name}). Store them so, or as numbers."
        )
        raise InvalidInputError(msg)
    separator, minutes, seconds, fraction, offset = found.groups()
    wall = wall_bound(moment, get_zone("UTC") if offset else time.zone)
    digits = len(fraction or "")
    step = timedelta(days=1)
    if minutes:
        step = timedelta(minutes=1)
    if seconds:
        step = timedelta(microseconds=10 ** max(0, 6 - digits))
    since = datetime(1, 1, 1)  # noqa: DTZ001 - wall time
    # Up to the next text there can be: a bound between two texts would compare wrongly.
    wall = since + -(-(wall - since) // step) * step
    text = f"{wall:%Y-%m-%d}"
    if minutes:
        text += f"{separator}{wall:%H:%M}"
    if seconds:
        text += f"{wall:%S}".join([":", ""])
        text += "." + f"{wall:%f}".ljust(9, "0")[:digits] if digits else ""
    return text + (offset or "")


def _frame(rows: Any, columns: Mapping[str, ColumnKind]) -> pd.DataFrame:
    # Object columns: pandas must not guess at lists, and None must stay None.
    data = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    frame = {}
    for (name, kind), values in zip(columns.items(), data, strict=True):
        column = pd.Series(list(values), dtype=object)
        frame[name] = column if kind in {"numbers", "nested", "label"} else column.infer_objects()
    return pd.DataFrame(frame)
