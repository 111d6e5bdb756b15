"""Checks whether the log can be read and whether its labels arrive."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from huc_monitor._common.times import Span, say_span
from huc_monitor.cli.doctor.findings import Diagnosis, guarded
from huc_monitor.config.opening import open_tracker
from huc_monitor.monitor._standards import first_rows, require_labels, say_waiting
from huc_monitor.monitor._state import MonitorState, open_state
from huc_monitor.monitor.messages import count_repeats, say_repeats, say_untimed
from huc_monitor.monitor.silence import LATE
from huc_monitor.monitor.windows import TimeWindows, iter_due_windows
from huc_monitor.subgroups._outcome import doubt_outcome

if TYPE_CHECKING:
    from huc_monitor.config import Config


def look_at_log(config: Config) -> Iterator[Diagnosis]:
    """Say how far the log reaches, and how many labels its newest predictions have."""
    source = config.open_source()
    span = source.time_range()
    if span is None:
        yield Diagnosis("log", "wrong", "has no rows", "point source.log at the predictions")
        return
    zone = config.windows.time_zone
    text = f"predictions from {say_span(span.first, span.last, zone, exact=True)}"
    age = datetime.now(UTC) - span.last
    if age < -timedelta(days=1):
        fix = "rows lie in the future: repair their time, or check columns.time and time_unit"
        yield Diagnosis("log", "wrong", text, fix)
    elif age > LATE * _window(config):
        fix = f"none for {age.days} days: is this the log that is written to?"
        yield Diagnosis("log", "note", text, fix)
    else:
        yield Diagnosis("log", "ok", text)
    if span.n_untimed:
        fix = "check columns.time, time_unit and time_zone, or repair these rows"
        yield Diagnosis("times", "note", say_untimed(span.n_untimed), fix)
    yield from guarded("times", lambda: _strays(config, source, span), "see the reason")
    fresh = _freshness(config, source, span)
    yield fresh
    if fresh.outcome != "ok" and source.labels is not None:
        yield from guarded("join", lambda: _join(source), "see the reason")
    state = _state(config)
    if config.feature_columns:
        fix = "correct subgroups in the file"
        yield from guarded("subgroups", lambda: _subgroups(config, source, span, state), fix)
    if not state.reference:
        fix = "correct reference.start and reference.end in the file"
        yield from guarded("reference", lambda: _reference(config, source), fix)
    yield from guarded("rows", lambda: _dependence(config, span), "see the reason")
    if config.settings.columns.id is not None:
        yield from guarded("ids", lambda: _repeats(config, source, span), "see the reason")


def _state(config: Config) -> MonitorState:
    """Return what the last check left; an empty one where `look_at_plugins` says what is wrong."""
    try:
        tracker = open_tracker(config)
        return open_state(tracker, config.identity, config.tree, config.utilities)
    except Exception:  # noqa: BLE001 - any plugin may raise anything
        return MonitorState(config.identity)


def _reference(config: Config, source: Any) -> Iterator[Diagnosis]:
    """Whether the reference has labelled rows, if it is complete by now."""
    waiting = say_waiting(config.reference, config.windows, datetime.now(UTC))
    if waiting is not None:
        text, _, fix = waiting.partition(". ")
        yield Diagnosis("reference", "note", text, fix)
    elif config.reference is not None:
        start, end = config.reference
        counts = source.counts(start, end, as_of=config.windows.due_at(end))
        require_labels(counts.n_labelled, start, end)


def _subgroups(config: Config, source: Any, span: Any, state: MonitorState) -> Iterator[Diagnosis]:
    """Whether a check could freeze the subgroups, on the rows that a first check takes."""
    now = datetime.now(UTC)
    due = iter_due_windows(config.windows, source, now=now, identity=config.identity)
    windows = ((window, window.due_at) for window in due)
    read = first_rows(source, config.windows, config.reference, windows)
    rows = next(iter(read.values()), None)
    if rows is None:  # no window can be audited yet
        rows = source.labelled(span.first, span.first + _window(config))
    if rows.n:
        found = config.make_subgroups(rows.features)
        yield Diagnosis("subgroups", "ok", f"{len(found)}: {', '.join(found.names)}"[:200])
        if state.discovered:
            text = f"found by subgroups.discover and watched too: {'; '.join(state.discovered)}"
            yield Diagnosis("discovered", "ok", text)
        for said in doubt_outcome(rows.features, config.feature_columns, rows.labels, config.tree):
            text, _, fix = said.partition(" Then ")
            yield Diagnosis("outcome", "note", text, fix)


def _strays(config: Config, source: Any, span: Any) -> Iterator[Diagnosis]:
    """Whether a few rows lie long before the rest, and windows begin with them."""
    from huc_monitor.config._inspect import find_start

    windows = config.windows
    start, said = find_start(source.log, source.time, span, windows.time_zone)
    if said and (windows.begin is None or windows.begin <= span.first):
        day = f"{start.astimezone(windows.zone):%Y-%m-%d}"
        fix = f"repair their time, check columns.time, or set windows.begin: {day}"
        yield Diagnosis("times", "note", said, fix)


def _window(config: Config) -> timedelta:
    """Length of a window; a day where windows count rows."""
    windows = config.windows
    return Span.parse(windows.length if isinstance(windows, TimeWindows) else "1d").nominal


def _join(source: Any) -> Iterator[Diagnosis]:
    """Whether the ids of the log are those of the labels."""
    from huc_monitor.config._inspect import SAMPLE_ROWS, head, say_unmet
    from huc_monitor.sources import DuckTable, SQLTable

    if not isinstance(source.log, DuckTable | SQLTable):
        return
    ids = head(source.log, SAMPLE_ROWS)[source.columns.id]
    said = say_unmet(source.log.name, ids, source.labels)
    if said is not None:
        text, _, fix = said.partition("; ")
        yield Diagnosis("join", "note", text, fix)


def _repeats(config: Config, source: Any, span: Any) -> Iterator[Diagnosis]:
    """Whether ids come more than once in the newest window whose labels are due."""
    due = span.last - _lag(config) + timedelta(microseconds=1)
    if due <= span.first:
        return
    data = source.labelled(max(due - _window(config), span.first), due)
    said = say_repeats(data)
    if said is None:
        yield Diagnosis("ids", "ok", "each comes once in the newest window")
    elif data.n_changed_labels and len(count_repeats(data)) == 1:
        text = f"newest window: {said} Labels were corrected: the latest of each id counts"
        yield Diagnosis("ids", "ok", text)
    else:
        yield Diagnosis("ids", "note", f"newest window: {said}", "write each prediction once")


def _dependence(config: Config, span: Any) -> Iterator[Diagnosis]:
    """Whether rows of the newest window whose labels are due depend on each other."""
    from huc_monitor.config._inspect import find_dependent, find_short_blocks
    from huc_monitor.monitor.noticing import say_blocks, say_dependence

    given = config.settings
    due = span.last - _lag(config) + timedelta(microseconds=1)
    if given.columns.cluster or due <= span.first:
        return
    newest = max(due - _window(config), span.first), due
    if given.clusters.block:
        short = find_short_blocks(config, *newest)
        said = None if short is None else say_blocks(short)
        fine = "clusters.block is not seen to be too short"
    else:
        found = find_dependent(config, *newest)
        said = None if found is None else say_dependence(*found)
        fine = "nothing says that they depend on each other"
    if said is None:
        yield Diagnosis("rows", "ok", f"newest window: {fine}")
    else:
        text, _, fix = said.partition("; ")
        yield Diagnosis("rows", "note", f"newest window: {text}", fix)


def _lag(config: Config) -> timedelta:
    return Span.parse(config.settings.windows.label_lag, argument="label_lag").nominal


def _freshness(config: Config, source: Any, span: Any) -> Diagnosis:
    """How many of the newest predictions whose labels are due have one."""
    lag = _lag(config)
    window = _window(config)
    due = span.last - lag + timedelta(microseconds=1)
    counts = source.counts(max(due - window, span.first), due) if due > span.first else None
    if counts is None or counts.n_predictions == 0:
        return Diagnosis("labels", "note", "none is due yet", f"they are due after {lag}")
    share, least = counts.coverage, config.settings.windows.min_coverage
    text = f"{share:.0%} of the newest {counts.n_predictions:,} predictions due have a label"
    if counts.n_labelled == 0:
        older = source.counts(max(due - LATE * (window + lag), span.first), due)
        fix = (
            "check source.labels, columns.id and columns.label"
            if older.n_labelled == 0
            else "labels stopped coming, or take longer: raise windows.label_lag"
        )
        return Diagnosis("labels", "wrong", text, fix)
    if counts.n_labelled < config.settings.windows.min_labelled or share < least:
        fix = "lower windows.min_labelled or min_coverage, or lengthen windows.length"
        return Diagnosis("labels", "note", f"{text}: too few for an audit", fix)
    return Diagnosis("labels", "ok", text)
