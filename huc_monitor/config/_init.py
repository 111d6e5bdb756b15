"""Write a first configuration file for a log, with what was found out about it."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor._common.times import from_column, to_column
from huc_monitor.config._config import Config, parse_config
from huc_monitor.config._guess import Guess, guess_log, say_spelling
from huc_monitor.config._inspect import (
    Volume,
    find_dependent,
    find_partition,
    guess_labels,
    label_lag,
    measure,
    open_place,
    relative_path,
    say_unmet,
    take_sample,
)
from huc_monitor.config._write import FileContents, write
from huc_monitor.errors import HUCWarning, InvalidInputError
from huc_monitor.monitor.windows import TimeWindows
from huc_monitor.sources import DuckTable, LabelTable, TooManyBadRowsError
from huc_monitor.sources._rows import say_unknown
from huc_monitor.sources._table import TimeColumn
from huc_monitor.tree import LabelTree
from huc_monitor.tree.labels import read_mapping

_LENGTHS: Final = ("1w", "1d", "6h", "1h", "15m")
_ENOUGH: Final = 500  # labels that show moments of a few hundredths
_ROWS_OF_A_WINDOW: Final = 20  # that show whether a column varies in it
_FEWEST: Final = 50  # labels that an audit is worth
_PILOT_ROWS: Final = 20_000
_LEAST: Final = 0.01  # a tolerance below this is a matter of taste, not of noise
_OF_LABELS: Final[tuple[str, ...]] = ("label", "labels_id")
_GENERIC: Final = {"log", "logs", "prediction", "predictions", "data", "parquet", ".", ".."}


def init_config(
    log: str | Path,
    tree: str | Path,
    *,
    labels: str | Path | None = None,
    table: str | None = None,
    labels_table: str | None = None,
    model: str | None = None,
    columns: Mapping[str, str] | None = None,
    label_mapping: str | Path | None = None,
    folder: str | Path = ".",
) -> str:
    """Inspect a log and return the text of a commented, working configuration file.

    Parameters
    ----------
    log : str or Path
        Parquet or CSV file, folder or pattern; a DuckDB file with `table`; or ``${VARIABLE}``, the
        environment variable that holds the URL of an SQL database, with `table`.
    tree : str or Path
        The label tree.
    labels, labels_table : optional
        Where the labels are, if not in the log.
    model : str, optional
        Its name; that of the log's file or table when left out.
    columns : dict, optional
        Columns to take instead of guessing: "time" and "id" of the log, "label" of wherever the
        labels are, "labels_id" of their own table.
    label_mapping : str or Path, optional
        CSV, JSON or YAML file: which node other spellings of labels mean.
    folder : str or Path, default "."
        Where the file will be: paths in it are relative to this folder.

    Notes
    -----
    Found out: the probability columns (by the leaves' names, or a column of lists), label, time,
    id and model version, columns for subgroups, folders that follow the time, how long labels
    take, a window length that gives enough labels, and a tolerance: what chance alone does with so
    many labels, or what the reference window shows and chance on top, whichever is larger.
    Comments say which.

    Raises
    ------
    InvalidInputError
        Where something necessary cannot be found; the message lists what is there.
    """
    home = Path(folder)
    label_tree = LabelTree.from_file(tree)
    place = open_place(str(log), table, home, argument="log")
    sample = take_sample(place)
    if not len(sample.frame):
        msg = f"`log` must have rows to look at; {sample.name} is empty."
        raise InvalidInputError(msg)
    named = dict(columns or {})
    elsewhere = {key: named.pop(key) for key in _OF_LABELS if labels is not None and key in named}
    spellings = None if label_mapping is None else read_mapping(label_mapping)
    guess = guess_log(sample, label_tree, named, spellings)
    time = TimeColumn(guess.time, unit=guess.time_unit)  # type: ignore[arg-type]
    found_labels, late, lag = None, None, "0s"
    if labels is not None:
        other = open_place(str(labels), labels_table, home, argument="labels")
        found_labels = guess_labels(other, take_sample(other), guess, sample, label_tree, elsewhere)
        names = {key: found_labels.get(key) for key in ("id", "label", "time")}
        late = LabelTable(table=other.table, **names)  # type: ignore[arg-type]
        waited = label_lag(sample.frame, guess, late)
        lag = "0s" if waited is None else _span_at_least(waited)
        unmet = say_unmet(sample.name, sample.frame[guess.id], late)
        if unmet is not None:
            guess.notes["unmet"] = unmet
        guess.label = None
    elif guess.label is None:
        held = " or ".join(f"--label {name}" for name in guess.proposed)
        msg = (
            f"`log` must have a column of labels; found none by its name in {sample.name}. "
            + (f"By its values it may be: {held}. " if held else say_spelling(sample, label_tree))
            + f"Its columns: {sample.listed()}. Say which with --label, or, if the labels are "
            "elsewhere, where with --labels."
        )
        raise InvalidInputError(msg)
    volume = measure(place.table, time, guess.label, late, guess.id)
    _require_labels(volume, sample.name, guess.notes.get("unmet"))
    noted = (guess.notes.get(key) for key in ("unmet", "labels_time"))
    for said in filter(None, (*noted, volume.future, volume.past)):
        warnings.warn(said, HUCWarning, stacklevel=2)
    partition = None
    if isinstance(place.table, DuckTable):
        partition = find_partition(place.table, guess.time)
        guess.groups = [name for name in guess.groups if name not in (partition or {})]
    length, n_labels = _window_length(volume)
    n_all = int(volume.n_rows * volume.coverage)
    if n_all < n_labels:
        guess.notes["windows"] = (
            f"The log has about {n_all:,} labels, too few for an audit: the first window ends when "
            f"there are about {n_labels:,}"
        )
        warnings.warn(guess.notes["windows"], HUCWarning, stacklevel=2)
    _leave_out_calendar(guess, sample.frame, time.read(sample.frame[guess.time]), length)
    found = FileContents(
        model=model or _model_name(str(log), table),
        tree=relative_path(str(tree), home),
        log=place,
        guess=guess,
        volume=volume,
        labels=found_labels,
        partition=partition,
        length=length,
        n_labels=n_labels,
        lag=lag,
        reference=_reference(volume, length, n_labels),
        levels=label_tree.height,
        label_mapping=None if label_mapping is None else relative_path(str(label_mapping), home),
    )
    try:
        return _with_tolerance(found, home)
    except TooManyBadRowsError as error:
        msg = f"{error} Or repair these rows: every check would refuse them too."
        raise TooManyBadRowsError(msg) from error


def _require_labels(volume: Volume, log: str, unmet: str | None) -> None:
    if not volume.coverage:
        msg = (
            f"No prediction of the older half of {log} was found to have a label"
            + (f": {unmet}. " if unmet else ". ")
            + "If only newer ones have labels, run init on these alone."
        )
        raise InvalidInputError(msg)


def _window_length(volume: Volume) -> tuple[str | None, int]:
    """Choose a length with enough labels, at least three of them; None: windows by count."""
    labels_per_day = volume.per_day * volume.coverage
    span = volume.extent.last - volume.extent.first
    lengths = {length: TimeWindows(length=length) for length in _LENGTHS}
    nominal = {length: _nominal(spec) for length, spec in lengths.items()}
    fitting = [length for length in _LENGTHS if 3 * nominal[length] <= span]
    enough = [n for n in fitting if labels_per_day * (nominal[n] / timedelta(days=1)) >= _ENOUGH]
    if not enough:
        # Too few labels or too short a log for a calendar: a quarter of what there is.
        return None, max(_FEWEST, int(min(2 * _ENOUGH, volume.n_rows * volume.coverage / 4)))
    chosen = "1d" if "1d" in enough else "1w" if "1w" in enough else enough[0]
    return chosen, int(labels_per_day * (nominal[chosen] / timedelta(days=1)))


def _nominal(spec: TimeWindows) -> timedelta:
    from huc_monitor._common.times import Span

    return Span.parse(spec.length).nominal


def _leave_out_calendar(
    guess: Guess, sample: pd.DataFrame, times: NDArray[Any], length: str | None
) -> None:
    """Propose no subgroup by a column that the window tells, such as weekday in windows of a day.

    All rows of a window are then in one subgroup, and those of the next in another.
    """
    if length is None or np.isnat(times).all():
        return
    spec = TimeWindows(length=length)
    origin = to_column(spec.start_at(from_column(np.nanmin(times))))
    windows = pd.Series((times - origin) / np.timedelta64(_nominal(spec))).floordiv(1)
    windows = windows.where(windows.map(windows.value_counts()) >= _ROWS_OF_A_WINDOW)

    def is_told(name: str) -> bool:
        pairs = [windows.rename("window"), sample[name].rename("value")]
        counts = pd.concat(pairs, axis=1).value_counts(sort=False)
        if counts.empty:
            return False
        rare = counts.sum() - counts.groupby("value", observed=True).sum().max()
        rare_inside = counts.sum() - counts.groupby("window").max().sum()
        return bool(rare and rare_inside <= 0.1 * rare)

    told = [name for name in (*guess.groups, *guess.numbers) if is_told(name)]
    guess.groups = [name for name in guess.groups if name not in told]
    guess.numbers = [name for name in guess.numbers if name not in told]
    if told:
        guess.notes["calendar"] = (
            f"Not by {', '.join(told)}: almost all rows of one window have the same value there."
        )


def _reference(volume: Volume, length: str | None, n_labels: int) -> tuple[datetime, datetime]:
    """Choose the first fifth of the log, in whole windows; three of them if that is no half."""
    first, last = volume.extent.first, volume.extent.last
    if length is None:
        share = max(0.2, min(1.0, n_labels / (volume.n_rows * volume.coverage)))
        end = first + (last - first) * share + timedelta(seconds=1)
        return first.replace(microsecond=0), end.replace(microsecond=0)  # seconds are enough
    spec = TimeWindows(length=length)
    start = spec.start_at(first)
    end = spec.end_of(start)
    three = spec.end_of(spec.end_of(end))
    enough = three if three <= first + (last - first) / 2 else end
    while end < max(enough, first + (last - first) / 5):
        end = spec.end_of(end)
    return start, end


def _span_at_least(waited: timedelta) -> str:
    """Round a length of time up to whole hours or days."""
    hours = waited / timedelta(hours=1)
    return f"{math.ceil(hours)}h" if hours <= 24 else f"{math.ceil(hours / 24)}d"


def _model_name(log: str, table: str | None) -> str:
    if table is not None:
        return table
    parts = [part for part in Path(log).absolute().parts[1:] if not re.search(r"[*?=]", part)]
    names = [re.sub(r"\.(parquet|pq|csv|csv\.gz|tsv)$", "", part) for part in reversed(parts)]
    return next((name for name in names if name.lower() not in _GENERIC), "model")


def _with_tolerance(found: FileContents, folder: Path) -> str:
    """Write the file, audit its reference window by it, and put the tolerance in."""
    config = parse_config(write(found, tolerance=0.1, patient=0.1, why=[]), folder=folder)
    if _note_dependence(config, found):
        config = parse_config(write(found, tolerance=0.1, patient=0.1, why=[]), folder=folder)
    pilot = _pilot(config, found)
    value = _round_up(max(_LEAST, pilot.chance))
    accepted = pilot.lower <= value
    if accepted:
        # An estimate at the tolerance itself is above it in every other window.
        value = max(value, _round_up(pilot.largest + math.hypot(pilot.radius, pilot.chance)))
    chance = (
        f"With about {found.n_labels:,} labels a window, chance alone moves the largest moment by "
        f"up to {pilot.chance:.2g} (95 % confidence); below that, alerts would be noise. A moment "
        f"of {value + 2 * pilot.chance:.2g} or more will be shown to exceed the tolerance."
    )
    normal = f"The reference window: {pilot.finding}."
    if not accepted:
        normal += (
            " That is real and above the tolerance, and checks will say so once: recalibrate, or "
            "raise the tolerance. What changes from now on is told apart from it."
        )
    # Evidence adds up over windows, so the limit is what the reference shows, where that is more
    # than noise. Its lower bound would not do: an accepted error lies above it, and would alarm.
    shown = accepted and pilot.lower > _LEAST
    patient = min(value, _round_up(pilot.largest if shown else _LEAST))
    why = [chance, normal, *filter(None, [pilot.unknown])]
    text = write(found, tolerance=value, patient=patient, why=why)
    parse_config(text, folder=folder)
    return text


def _note_dependence(config: Config, found: FileContents) -> bool:
    """Find the column within which rows depend on each other; True if bounds shall know it."""
    from huc_monitor.monitor.noticing import is_repeat, say_dependence

    guess = found.guess
    tested = find_dependent(config, *found.reference)
    if tested is None:
        return False
    name, size = tested
    if is_repeat(name):
        guess.notes["repeats"] = say_dependence(name, size)
        return False
    guess.cluster = name
    guess.notes["cluster"] = (
        f"rows of one value depend on each other (correlation {size.correlation:.2f}); without "
        f"this, bounds would be {size.too_narrow:.1f} times too narrow"
    )
    return True


@dataclass(frozen=True, slots=True)
class _Pilot:
    """What the reference window shows.

    Attributes
    ----------
    chance : float
        How far chance moves the largest moment of a window.
    largest, lower : float
        The largest moment found, and the largest lower bound.
    radius : float
        How far the largest moment may be off.
    finding : str
        The same in words.
    unknown : str
        Which labels are no node of the tree; empty if all are.
    """

    chance: float
    largest: float
    lower: float
    radius: float
    finding: str
    unknown: str = ""


def _pilot(config: Config, found: FileContents) -> _Pilot:
    from huc_monitor.audit import audit

    simple = 3 * 0.5 / math.sqrt(found.n_labels)
    window = config.open_source().labelled(*found.reference)
    unknown = say_unknown(window.unknown_labels, config.tree) or ""
    if window.n < _FEWEST:
        few = f"only {window.n} labels, too few to audit"
        return _Pilot(simple, 0.0, 0.0, 0.0, few, unknown)
    step = math.ceil(window.n / _PILOT_ROWS)
    if step > 1:
        window = window.take(np.arange(0, window.n, step))
    result = audit(
        window.probabilities,
        window.codes,
        tree=config.tree,
        utilities=config.utilities,
        subgroups=config.make_subgroups(window.features),
        features=window.features,
        clusters=window.clusters,
        bounds="bootstrap",
        n_draws=400,
    )
    frame = result.to_frame(all_columns=True)
    if not len(frame):
        none = "no branch of the tree can change these utilities"
        return _Pilot(simple, 0.0, 0.0, 0.0, none, unknown)
    worst = frame.iloc[int(frame["moment"].abs().argmax())]
    largest = float(abs(worst["moment"]))
    finding = (
        f"the largest moment is {largest:.2g} (branch {worst['node']!r}, utility "
        f"{worst['utility']!r}, subgroup {worst['subgroup']!r}), at least "
        f"{float(worst['lower']):.2g}"
    )
    chance = float(frame["radius"].max()) * math.sqrt(result.n / found.n_labels)
    radius = float(worst["radius"])
    return _Pilot(chance, largest, float(frame["lower"].max()), radius, finding, unknown)


def _round_up(value: float) -> float:
    """Round up to two digits.

    Examples
    --------
    >>> _round_up(0.01234), _round_up(0.5)
    (0.013, 0.5)
    """
    if value <= 0:
        return 0.01
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / step - 1e-9) * step:.2g}")
