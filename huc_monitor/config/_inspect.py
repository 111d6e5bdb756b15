"""Look at a log before there is a configuration: a sample, its volume, its folders, its labels."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from huc_monitor._common.times import from_column, say_time, to_column
from huc_monitor.audit.decomposition import UtilityRows
from huc_monitor.audit.dependence import Dependence, ShortBlocks
from huc_monitor.config._guess import (
    TIME_WORDS,
    Guess,
    TableSample,
    best_name,
    find_label,
    has_clock,
    possible_ids,
    refuse_unreadable,
    repeated_ids,
    say_spelling,
)
from huc_monitor.config._ids import HARDLY, find_difference
from huc_monitor.errors import InvalidInputError
from huc_monitor.sources import DuckTable, LabelTable, SQLTable, Table, TimeRange, WindowData
from huc_monitor.sources._keys import likely_keys, repeated_columns
from huc_monitor.sources._labels import latest_labels
from huc_monitor.sources._table import TimeColumn
from huc_monitor.tree import LabelTree

if TYPE_CHECKING:
    import pandas as pd

    from huc_monitor.config._config import Config

SAMPLE_ROWS: Final = 20_000
_KEY_ROWS: Final = 5_000
_FEWEST_ROWS: Final = 50
_TRIED_IDS: Final = 2_000
_SHARE_OF_IDS: Final = 0.2  # a table of labels may hold several of one id
_PARTS: Final = {r"\d{4}-\d\d-\d\d": "%Y-%m-%d", r"\d{8}": "%Y%m%d"}
_NAMED: Final = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H"}
_STRAY_SHARE: Final = 0.01
_STRAY_GAP: Final = np.timedelta64(30, "D")
_DATABASES: Final = (".duckdb", ".ddb", ".db")
_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


@dataclass(frozen=True, slots=True, eq=False)
class TablePlace:
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
    future : str
        Which rows lie in the future and are in none of these numbers; empty if none does.
    past : str
        The same of rows long before the rest.
    """

    extent: TimeRange
    n_rows: int
    per_day: float
    coverage: float
    future: str = ""
    past: str = ""


def open_place(given: str, table: str | None, folder: Path, *, argument: str) -> TablePlace:
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
        table = _named(table, argument)
        return TablePlace({"url": given, "table": table}, SQLTable(url, table))
    path = relative_path(given, folder)
    if given.lower().endswith(_DATABASES):
        table = _named(table, argument)
        return TablePlace({"database": path, "table": table}, DuckTable.database(given, table))
    files = DuckTable.files(given)
    preset = files.find_preset()
    if preset is not None:
        return TablePlace({"path": path, "preset": preset}, DuckTable.files(given, preset=preset))
    return TablePlace({"path": path}, files)


def _named(table: str | None, argument: str) -> str:
    if table is None:
        msg = f"`{argument}` is a database: name the table to read, with --table."
        raise InvalidInputError(msg)
    return table


def relative_path(given: str, folder: Path) -> str:
    """Write a path as seen from the file's folder, where it is below it."""
    if "://" in given:
        return given
    path = Path(given).absolute()
    try:
        return path.relative_to(folder.absolute()).as_posix()
    except ValueError:
        return path.as_posix()


def take_sample(place: TablePlace) -> TableSample:
    """Read some rows of every column."""
    table = place.table
    types = table.columns()
    return TableSample(table.name, types, head(table, SAMPLE_ROWS))


def head(table: Table, n_rows: int) -> pd.DataFrame:
    """Read the first rows of a table, all columns."""
    if isinstance(table, DuckTable | SQLTable):
        return table.head(n_rows)
    msg = f"`log` must be files or a database; got {table.name}."
    raise InvalidInputError(msg)


def find_dependent(config: Config, start: datetime, end: datetime) -> tuple[str, Dependence] | None:
    """Test whether rows of a range depend on each other, within columns that may be keys.

    Those that sound like keys, and those whose values come again, as far as some rows show.
    """
    from huc_monitor.monitor.noticing import find_dependence

    source = config.open_source(keys=())
    used = source.used_columns()
    keys = likely_keys(source.log.columns(), used)
    if isinstance(source.log, DuckTable | SQLTable):
        keys += repeated_columns(source.log.head(_KEY_ROWS), used)
    data = config.open_source(keys=list(dict.fromkeys(keys))).labelled(start, end)
    if data.n < _FEWEST_ROWS or data.sampled_from is not None:
        return None
    columns = {str(name): data.keys[name].to_numpy() for name in data.keys}
    rows = _decompose(config, data)
    return find_dependence(rows, data.probabilities, columns, data.features)


def find_short_blocks(config: Config, start: datetime, end: datetime) -> ShortBlocks | None:
    """Test whether the blocks of time that are clusters are too short."""
    from huc_monitor.monitor import noticing

    data = config.open_source(keys=()).labelled(start, end)
    if data.clusters is None or data.n < _FEWEST_ROWS or data.sampled_from is not None:
        return None
    return noticing.find_short_blocks(_decompose(config, data), data.clusters)


def _decompose(config: Config, data: WindowData) -> list[UtilityRows]:
    from huc_monitor.audit.decomposition import decompose

    utilities = list(config.utilities)
    return decompose(data.probabilities, data.codes, tree=config.tree, utilities=utilities)


def measure(
    table: Table, time: TimeColumn, label: str | None, labels: LabelTable | None, key: str | None
) -> Volume:
    """Count a log's rows, and the labels in its older half."""
    extent = table.time_range(time)
    if extent is None:
        msg = f"`log` must have rows with a time; {table.name} has none in {time.name!r}."
        raise InvalidInputError(msg)
    extent, future = _until_now(table, time, extent)
    begin, past = find_start(table, time, extent)
    past += past and " and are left out by windows.begin: repair their time, or check columns.time"
    extent = TimeRange(begin, extent.last, extent.n_untimed)
    after = extent.last + timedelta(microseconds=1)
    n_rows, n_labelled = table.count(time, extent.first, after, label)
    span = max((after - extent.first) / timedelta(days=1), 1e-9)
    if labels is not None and key is not None:
        coverage = _late_coverage(table, time, extent, labels, key)
    else:
        middle = extent.first + (after - extent.first) / 2
        older, known = table.count(time, extent.first, middle, label)
        coverage = known / older if older else n_labelled / max(n_rows, 1)
    return Volume(extent, n_rows, n_rows / span, coverage, future, past)


def _until_now(table: Table, time: TimeColumn, extent: TimeRange) -> tuple[TimeRange, str]:
    """Leave out rows that lie more than a day in the future, and say which."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    if not extent.first < tomorrow < extent.last:
        return extent, ""
    n_past, _ = table.count(time, extent.first, tomorrow)
    n_future, _ = table.count(time, tomorrow, extent.last + timedelta(microseconds=1))
    last = max(
        from_column(np.nanmax(time.read(chunk.frame[time.name])))
        for chunk in table.scan({time.name: "any"}, time, extent.first, tomorrow)
        if len(chunk)
    )
    return TimeRange(extent.first, last, extent.n_untimed), (
        f"{n_future:,} of {n_past + n_future:,} rows lie in the future (the last: "
        f"{say_time(extent.last, exact=True)}) and are left out here: repair their time, or "
        "check columns.time and time_unit"
    )


def find_start(
    table: Table, time: TimeColumn, extent: TimeRange, zone: str = "UTC"
) -> tuple[datetime, str]:
    """Find where a log begins; if a few rows lie before a gap longer than all the rest, say so."""
    first, last = extent.first, extent.last
    middle = first + (last - first) / 2
    n_rows, _ = table.count(time, first, last + timedelta(microseconds=1))
    n_early, _ = table.count(time, first, middle)
    later = table.advance(time, first, n_early) if 0 < n_early <= _STRAY_SHARE * n_rows else None
    if later is None:
        return first, ""
    chunks = table.scan({time.name: "any"}, time, first, later + timedelta(microseconds=1))
    times = np.sort(np.concatenate([time.read(chunk.frame[time.name]) for chunk in chunks]))
    gaps, rest = np.diff(times), to_column(last) - times[1:]
    long = np.flatnonzero(gaps > np.maximum(rest, _STRAY_GAP))
    if not len(long):
        return first, ""
    begin, n_before = from_column(times[long[-1] + 1]), long[-1] + 1
    return begin, (
        f"{n_before:,} of {n_rows:,} rows lie {gaps[long[-1]] / np.timedelta64(1, 'D'):,.0f} days "
        f"and more before the rest, which begins {say_time(begin, zone, exact=True)} "
        f"(the first: {say_time(first, zone, exact=True)})"
    )


def _late_coverage(
    table: Table, time: TimeColumn, extent: TimeRange, labels: LabelTable, key: str
) -> float:
    ids = next(iter(table.scan({key: "any"}, time, extent.first, extent.last)), None)
    if ids is None or not len(ids):
        return 0.0
    column = ids.frame[key].head(SAMPLE_ROWS)
    return float((latest_labels(labels, column, None).find(column) >= 0).mean())


def guess_labels(
    place: TablePlace,
    sample: TableSample,
    guess: Guess,
    log: TableSample,
    tree: LabelTree,
    named: Mapping[str, str],
) -> dict[str, Any]:
    """Guess the columns of a table of labels: id, label, and when the label became known.

    Where names do not tell which columns hold the ids, the pair whose values meet does; it also
    settles ``guess.id``. `named` are columns that the user named: "label" and "labels_id".
    """
    given = {key: sample.check(key, column) for key, column in named.items()}
    seen = Guess()
    label = given.get("label") or find_label(sample, tree, seen, None)
    if label is None and len(seen.proposed) == 1:
        label = seen.proposed[0]  # what a table of labels was given for
    if label is None:
        held = " or ".join(f"--label {name}" for name in seen.proposed)
        msg = (
            f"`labels` must hold one column whose values are leaves of the tree; {sample.name} has "
            f"{len(seen.proposed)}. {say_spelling(sample, tree)}Its columns: {sample.listed()}. "
            f"Say which is meant: {held or '--label'}."
        )
        raise InvalidInputError(msg)
    key = given.get("labels_id") or (guess.id if guess.id in sample.types else None)
    if key is None or guess.id is None:
        mine = [guess.id] if guess.id else possible_ids(log, guess.used)
        theirs = [key] if key else possible_ids(sample, {label}, _SHARE_OF_IDS)
        guess.id, key = _meeting(place, label, log, mine, sample, theirs)
    found: dict[str, Any] = {**place.settings, "id": key, "label": label}
    times = [n for n, k in sample.types.items() if "TIMESTAMP" in k.upper()]
    times = [name for name in times if name not in {key, label}]
    if times:
        found["time"] = times[0]
    else:
        odd = [n for n in sample.types if n not in {key, label} and has_clock(sample.frame[n])]
        likeliest = best_name(odd, TIME_WORDS, lambda _: True)
        if likeliest is not None:
            refuse_unreadable(sample, likeliest, ", or leave it out of the labels' table")
    return found


def say_unmet(log: str, ids: pd.Series[Any], labels: LabelTable) -> str | None:
    """Say that hardly any id of the log is among the labels, and how the ids of both differ."""
    ids = ids.dropna().head(_TRIED_IDS)
    theirs = head(labels.table, SAMPLE_ROWS)[labels.id].dropna()
    n_found = int((latest_labels(labels, ids, None).find(ids) >= 0).sum())
    if ids.empty or theirs.empty or n_found > HARDLY * len(ids):
        return None
    found = find_difference(ids, theirs)
    mine, other, names = found or (str(ids.iloc[0]), str(theirs.iloc[0]), "")
    why = (
        f": they differ in {names}; write them alike in both, they are not joined as they are"
        if found
        else "; check which columns hold the ids: columns.id and source.labels.id"
    )
    return (
        f"{n_found:,} of {len(ids):,} ids in {log} (such as {mine!r}) have a label in "
        f"{labels.table.name} (such as {other!r}){why}"
    )


def _meeting(
    place: TablePlace,
    label: str,
    log: TableSample,
    mine: list[str],
    sample: TableSample,
    theirs: list[str],
) -> tuple[str, str]:
    """Return the columns of the log and of the labels that share most values."""
    best: tuple[float, str, str] | None = None
    for theirs_name in theirs:
        table = LabelTable(table=place.table, id=theirs_name, label=label)
        for name in mine:
            ids = log.frame[name].head(_TRIED_IDS)
            share = float((latest_labels(table, ids, None).find(ids) >= 0).mean())
            if share > (best[0] if best else HARDLY):
                best = (share, name, theirs_name)
    if best is None:
        repeated = repeated_ids(log, set(mine))
        if repeated is not None:
            msg = (
                f"`log` must have a column of ids, another one in each row of {log.name}; "
                f"{repeated[1]}. Write each prediction once, give each an id of its own, or, where "
                f"these are retries, say --id {repeated[0]}: an id then counts once in a window."
            )
            raise InvalidInputError(msg)
        for name, theirs_name in itertools.product(mine, theirs):
            found = find_difference(log.frame[name], sample.frame[theirs_name])
            if found is not None:
                msg = (
                    f"`labels` must hold ids as the log has them; got {found[1]!r} in the column "
                    f"{theirs_name!r} of {sample.name} for {found[0]!r} in {name!r} of {log.name}: "
                    f"they differ in {found[2]}. Write them alike in both."
                )
                raise InvalidInputError(msg)
        msg = (
            f"`labels` must hold ids that the log has too; no column of {sample.name} meets one of "
            f"{log.name}. Columns of the labels: {sample.listed()}. Columns of the log: "
            f"{log.listed()}. Say which with --id and --labels-id."
        )
        raise InvalidInputError(msg)
    return best[1], best[2]


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
    waited = (known - made)[~np.isnat(known)] / np.timedelta64(1, "s")
    if not len(waited):
        return None
    return timedelta(seconds=max(0.0, float(np.quantile(waited, 0.95))))


def find_partition(table: DuckTable, time: str) -> Mapping[str, str] | None:
    """Return the partition columns that follow the time column, checked on the whole log."""
    folders = table.partition_columns()
    if not folders:
        return None
    formats: dict[str, str] = {}
    for name, value in folders.items():
        for rule, form in _PARTS.items():
            if re.fullmatch(rule, value):
                formats[name] = form
        if name.lower() in _NAMED and name not in formats:
            formats[name] = _NAMED[name.lower()]
    if not formats or not table.follows(time, formats):
        return None
    return formats
