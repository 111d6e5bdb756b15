"""Reading what was stored: what is damaged is named, with its place and what to do about it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from huc_monitor._common.safe_text import line, plain
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.records import WindowRecord

log = logging.getLogger("huc_monitor")

_Read = TypeVar("_Read")
RESTORE_STATE = "Restore it from a backup, or move it away to start afresh: records stay."
_RESTORE_RECORD = "Restore it from a backup, or move it away."


class DamagedError(InvalidInputError):
    """Something that was stored cannot be read; the message says where it is and what is wrong."""


def read_stored(
    given: str | bytes | Mapping[str, Any],
    read: Callable[[Mapping[str, Any]], _Read],
    *,
    where: str | Callable[[], str],
    remedy: str,
) -> _Read:
    """Read stored JSON, or content that was read already.

    Raises
    ------
    DamagedError
        If it is cut off, empty, of another kind or from a version that is not known.

    Examples
    --------
    >>> read_stored('{"a": ', dict, where="'state.json'", remedy="Restore it.")
    Traceback (most recent call last):
    huc_monitor.monitor.ports.stored.DamagedError: 'state.json' cannot be read: it is no JSON
    (Expecting value: line 1 column 7 (char 6)). Restore it.
    """
    try:
        return read(given if isinstance(given, Mapping) else _object(given))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        place = where if isinstance(where, str) else where()
        msg = f"{place} cannot be read: {_fault(error, given)}. {remedy}"
        raise DamagedError(msg) from error


def _object(text: str | bytes) -> Mapping[str, Any]:
    content = json.loads(text)
    if not isinstance(content, Mapping):
        msg = f"it holds a {type(content).__name__} in place of an object"
        raise TypeError(msg)
    return content


def _fault(error: Exception, given: object) -> str:
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "it is empty" if not given else f"it is no JSON ({line(error)})"
    if isinstance(error, InvalidInputError):
        return line(error).rstrip(".")
    return f"it lacks {plain(error)}" if isinstance(error, KeyError) else line(error)


def readable_records(
    stored: Iterable[tuple[str, Callable[[], str | bytes]]],
) -> list[WindowRecord]:
    """Read records in order of ordinal and revision; damaged ones are left out, and told of.

    Parameters
    ----------
    stored : iterable of (str, callable)
        Where a record is, and what reads its text.
    """
    found = []
    for where, fetch in stored:
        try:
            found.append(read_stored(fetch(), _record, where=where, remedy=_RESTORE_RECORD))
        except DamagedError as error:
            log.warning(
                "a record is left out: %s", error, extra={"huc": {"event": "record_damaged"}}
            )
    return in_order(found)


def _record(content: Mapping[str, Any]) -> WindowRecord:
    record = WindowRecord.from_dict(content)
    n = 0 if record.audit is None else len(record.audit["candidates"])
    if record.audit is not None and len(record.tolerances) != n:
        msg = f"it has {n} candidates and {len(record.tolerances)} tolerances"
        raise ValueError(msg)
    return record


def in_order(records: Iterable[WindowRecord]) -> list[WindowRecord]:
    """Sort records by ordinal and revision, a pending one before the first revision."""
    return sorted(
        records, key=lambda r: (r.ordinal, -1 if r.status == "pending" else r.revision, r.window_id)
    )


def choose_previous(states: Iterable[dict[str, Any]], file: str | None) -> dict[str, Any] | None:
    """Return the first state that the same file left, or an unknown one; else the first of all.

    Examples
    --------
    >>> choose_previous([{"file": "eu.yaml"}, {"file": "us.yaml"}], "us.yaml")
    {'file': 'us.yaml'}
    >>> choose_previous([{"file": "eu.yaml"}], "us.yaml")
    {'file': 'eu.yaml'}
    """
    first = None
    for state in states:
        if None in {file, state.get("file")} or state["file"] == file:
            return state
        first = state if first is None else first
    return first


def choose_keys(keys: Iterable[str], last: int | None, until: int | None) -> list[str]:
    """Return the keys of records of the `last` windows up to the ordinal `until`; None: no limit.

    Examples
    --------
    >>> keys = ["000001-a-r0", "000002-b-pending", "000002-b-r0", "000003-c-r0"]
    >>> choose_keys(keys, 1, 2), choose_keys(keys, 2, None) == keys[1:]
    (['000002-b-pending', '000002-b-r0'], True)
    """
    if last is None and until is None:
        return list(keys)
    by_window: dict[int, list[str]] = {}
    for key in keys:
        head = key.partition("-")[0]
        if head.isdigit() and (until is None or int(head) <= until):
            by_window.setdefault(int(head), []).append(key)
    kept = sorted(by_window)[-last:] if last else sorted(by_window)
    return [key for window in kept for key in by_window[window]]
