"""Look at a log before there is a configuration: a sample, its volume, its folders, its labels."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from huc_monitor.config._guess import Guess, Sample, find_id, find_label
from huc_monitor.errors import InvalidInputError
from huc_monitor.sources import DuckTable, LabelTable, SQLTable, Table, TimeRange
from huc_monitor.sources._labels import latest_labels
from huc_monitor.sources._table import TimeColumn

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from huc_monitor.hierarchy import LabelTree

SAMPLE_ROWS: Final = 20_000
_PARTS: Final = (
    ({"date": r"\d{4}-\d\d-\d\d"}, "%Y-%m-%d"),
    ({"compact": r"\d{8}"}, "%Y%m%d"),
)
_NAMED: Final = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H"}
_DATABASES: Final = (".duckdb", ".ddb", ".db")
_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a table is, as the file will say, and the open table."""

    settings: dict[str, Any]
    table: Table


@dataclass(frozen=True, slots=True, eq=False)
class Volume:
    """How much a log holds.

    Attributes
    ----------
    extent : TimeRange
    n_rows : int
        Predictions in it.
    per_day : float
        Predictions a day.
    coverage : float
        Share with a label, over the older half, where labels have had time to arrive.
    """

    extent: TimeRange
    n_rows: int
    per_day: float
    coverage: float


def open_place(given: str, table: str | None, folder: Path, *, argument: str) -> Place:
    """Open what a user typed: a path, a DuckDB file, or ``${VARIABLE}`` with a database URL."""
    if "://" in given and not given.startswith(("s3://", "http://", "https://", "gs://")):
        msg = (
            f"`{argument}` must not be a database URL, which would put its password into the file; "
            "set an environment variable and write its name: '${DATABASE_URL}'."
        )
        raise InvalidInputError(msg)
    if _VARIABLE.fullmatch(given):
        url = os.environ.get(given[2:-1])
        if url is None:
            msg = f"`{argument}` needs the environment variable {given[2:-1]}, which is not set."
            raise InvalidInputError(msg)
        if table is None:
            msg = f"`{argument}` is a database: name the table to read, with --table."
            raise InvalidInputError(msg)
        return Place({"url": given, "table": table}, SQLTable(url, table))
    path = _relative(given, folder)
    if given.lower().endswith(_DATABASES):
        if table is None:
            msg = f"`{argument}` is a database: name the table to read, with --table."
            raise InvalidInputError(msg)
        return Place({"database": path, "table": table}, DuckTable.database(given, table))
    return Place({"path": path}, DuckTable.files(given))


def _relative(given: str, folder: Path) -> str:
    if "://" in given:
        return given
    path = Path(given).absolute()
    try:
        return path.relative_to(folder.absolute()).as_posix()
    except ValueError:
        return path.as_posix()


def take_sample(place: Place) -> Sample:
    """Read some rows of every column."""
    table = place.table
    types = table.columns()
    return Sample(table.name, types, head(table, SAMPLE_ROWS))


def head(table: Table, n_rows: int) -> pd.DataFrame:
    """Read the first rows of a table, all columns."""
    if isinstance(table, DuckTable | SQLTable):
        return table.head(n_rows)
    msg = f"`log` must be files or a database; got {table.name}."
    raise InvalidInputError(msg)


def measure(
    table: Table, time: TimeColumn, label: str | None, labels: LabelTable | None, key: str | None
) -> Volume:
    """Count a log's rows, and the labels in its older half."""
    extent = table.time_range(time)
    if extent is None:
        msg = f"`log` must have rows with a time; {table.name} has none in {time.name!r}."
        raise InvalidInputError(msg)
    after = extent.last + timedelta(microseconds=1)
    n_rows, n_labelled = table.count(time, extent.first, after, label)
    span = max((after - extent.first) / timedelta(days=1), 1e-9)
    if labels is not None and key is not None:
        coverage = _late_coverage(table, time, extent, labels, key)
    else:
        middle = extent.first + (after - extent.first) / 2
        older, known = table.count(time, extent.first, middle, label)
        coverage = known / older if older else n_labelled / max(n_rows, 1)
    return Volume(extent, n_rows, n_rows / span, coverage)


def _late_coverage(
    table: Table, time: TimeColumn, extent: TimeRange, labels: LabelTable, key: str
) -> float:
    ids = next(iter(table.scan({key: "any"}, time, extent.first, extent.last)), None)
    if ids is None or not len(ids):
        return 0.0
    column = ids.frame[key].head(SAMPLE_ROWS)
    return float((latest_labels(labels, column, None).find(column) >= 0).mean())


def guess_labels(place: Place, sample: Sample, guess: Guess, tree: LabelTree) -> dict[str, Any]:
    """Guess the columns of a table of labels: id, label, and when the label became known."""
    blank = Guess()
    label = find_label(sample, tree, blank, None)
    shared = guess.id if guess.id in sample.types else None
    key = shared or find_id(sample, {label or ""})
    key = key or next((n for n in sample.types if n.lower().endswith("id") and n != label), None)
    if label is None or key is None or guess.id is None:
        missing = "labels" if label is None else "ids"
        where = sample.name if label is None or key is None else "the log"
        msg = (
            f"`labels` must hold an id that the log has too, and labels of the tree; found no "
            f"{missing} in {where}. The columns of the labels: {sample.listed()}."
        )
        raise InvalidInputError(msg)
    found: dict[str, Any] = {**place.settings, "id": key, "label": label}
    times = [n for n, k in sample.types.items() if "TIMESTAMP" in k.upper() and n not in found]
    if times:
        found["time"] = times[0]
    return found


def label_lag(sample: pd.DataFrame, guess: Guess, labels: LabelTable) -> timedelta | None:
    """Measure how long after a prediction 95 % of the labels that came were there."""
    if labels.time is None or guess.id is None:
        return None
    ids = sample[guess.id]
    found = latest_labels(labels, ids, None)
    place = found.find(ids)
    if found.times is None or not (place >= 0).any():
        return None
    made = TimeColumn(guess.time, unit=guess.time_unit).read(sample[guess.time])[place >= 0]  # type: ignore[arg-type]
    known = found.times.to_numpy().astype("datetime64[us]")[place[place >= 0]]
    waited = (known - made) / np.timedelta64(1, "s")
    return timedelta(seconds=max(0.0, float(np.quantile(waited, 0.95))))


def find_partition(table: DuckTable, time: str) -> Mapping[str, str] | None:
    """Return the partition columns that follow the time column, checked on the whole log."""
    folders = table.partition_columns()
    if not folders:
        return None
    formats: dict[str, str] = {}
    for name, value in folders.items():
        for rules, form in _PARTS:
            if any(re.fullmatch(rule, value) for rule in rules.values()):
                formats[name] = form
        if name.lower() in _NAMED and name not in formats:
            formats[name] = _NAMED[name.lower()]
    if not formats or not table.follows(time, formats):
        return None
    return formats
