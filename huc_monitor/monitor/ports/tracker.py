"""Trackers: where a monitor keeps its records and its state. The library's own is a folder."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from huc_monitor._common.private_files import is_writable, write_atomically
from huc_monitor._common.safe_text import file_name
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.ports.info import MonitorInfo
from huc_monitor.monitor.ports.stored import (
    RESTORE_STATE,
    choose_keys,
    choose_previous,
    in_order,
    read_stored,
    readable_records,
)
from huc_monitor.monitor.records import AlertState, WindowRecord


@runtime_checkable
class Tracker(Protocol):
    """Keeps the records and the state of one monitor (one `MonitorInfo`).

    The monitor saves the state first, with the new record inside it, and then hands the record
    over; what a crash leaves undone is handed over at the next start. So `record` may be called
    again with a record it already has, always with the same content, and must then do nothing, or
    complete what is missing. Calls come from one process at a time: the monitor holds a lock.
    """

    @property
    def lock_path(self) -> Path | None:
        """File to hold while writing here; None where one of the user's own state folder serves."""

    def load_state(self) -> dict[str, Any] | None:
        """Return what was saved last, None at the beginning."""

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Replace the state, all or nothing."""

    def previous_state(self) -> dict[str, Any] | None:
        """Return the newest state of a monitor of the same name and another identity, if any.

        One whose ``file`` is `MonitorInfo.file`, or that has none, comes before those of other
        files, of which the monitor takes nothing over.
        """

    def record(self, record: WindowRecord, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Store a record, and files that go with it by name. Idempotent by ``record.key``."""

    def remark(self, record: WindowRecord) -> str | None:
        """Say what only the host knows about a record that is about to be saved; None if nothing.

        The same sentence is told once, in the record and the next message.
        """

    def records(self, last: int | None = None, until: int | None = None) -> Sequence[WindowRecord]:
        """Return records in order of ordinal and revision, pending ones first.

        All of them, or those of the `last` windows up to the ordinal `until`, without reading the
        others.
        """

    def set_alert_status(self, status: str, alerts: Sequence[AlertState]) -> None:
        """Publish "ok", "warning", "failed" or "critical"; may repeat the last value."""

    def close(self) -> None:
        """Let go of connections."""

    def ping(self) -> str:
        """Say in a few words where it keeps things, or raise why it cannot; change nothing."""


class FilesTracker:
    """Records and state as JSON files in a folder, one file per record.

    Every write goes to a temporary file, is flushed to the disk and renamed, so that a reader, or
    the next run after a crash, sees the old content or the new one and never a part. Files are
    for this user alone (mode 0600), and so are folders that it makes (0700).

    Parameters
    ----------
    info : MonitorInfo
    folder : path, optional
        Created when missing; relative to the configuration file. The setting `state` when left
        out. Each identity has its own folder in it: a changed configuration starts afresh and
        leaves the old records in place.

    Examples
    --------
    >>> import tempfile
    >>> from huc_monitor.monitor.ports import MonitorInfo
    >>> tracker = FilesTracker(MonitorInfo("triage", "5f"), folder=tempfile.mkdtemp())
    >>> tracker.save_state({"schema_version": 1})
    >>> tracker.load_state(), tracker.records()
    ({'schema_version': 1}, [])
    """

    def __init__(self, info: MonitorInfo, folder: str | os.PathLike[str] | None = None) -> None:
        chosen = (info.settings or {}).get("state", "huc-state") if folder is None else folder
        self.folder = info.folder / chosen / folder_name(info)
        self._info = info

    @property
    def lock_path(self) -> Path:
        """File to hold while writing here."""
        return self.folder / "lock"

    def load_state(self) -> dict[str, Any] | None:
        """Return what was saved last, None at the beginning."""
        path = self.folder / "state.json"
        return _read_state(path) if path.exists() else None

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Replace the state, all or nothing."""
        write_atomically(self.folder / "state.json", _encode(state))

    def previous_state(self) -> dict[str, Any] | None:
        """Return the state that was written last in a folder of the same name, of this file."""
        # All identities are of one length, so a longer folder is that of a longer name.
        others = [
            path
            for path in self.folder.parent.glob(f"{file_name(self._info.name)}-*/state.json")
            if path.parent != self.folder and len(path.parent.name) == len(self.folder.name)
        ]
        others.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return choose_previous(map(_read_state, others), self._info.file)

    def record(self, record: WindowRecord, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Store a record; an artifact is a file in a folder of the record's name."""
        key = file_name(record.key)
        for name, content in (artifacts or {}).items():
            write_atomically(self.folder / "artifacts" / key / file_name(name), content)
        write_atomically(self._path(record), _encode(record.to_dict()))

    def files(self, record: WindowRecord) -> list[Path]:
        """Return the files that were stored with a record."""
        return sorted((self.folder / "artifacts" / file_name(record.key)).glob("*"))

    def size(self, *records: WindowRecord) -> int:
        """Bytes of records and of their files."""
        paths = [path for record in records for path in (*self.files(record), self._path(record))]
        return sum(path.stat().st_size for path in paths if path.exists())

    def drop_files(self, record: WindowRecord) -> None:
        """Remove the files that were stored with a record."""
        for path in self.files(record):
            path.unlink()
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "artifacts" / file_name(record.key)).rmdir()

    def remove(self, record: WindowRecord) -> None:
        """Remove a record and its files."""
        self.drop_files(record)
        self._path(record).unlink(missing_ok=True)

    def _path(self, record: WindowRecord) -> Path:
        return self.folder / "records" / f"{file_name(record.key)}.json"

    def remark(self, record: WindowRecord) -> None:
        """Nothing: a folder knows no versions."""

    def records(self, last: int | None = None, until: int | None = None) -> list[WindowRecord]:
        """Return records in order: all, or those of the `last` windows up to an ordinal."""
        paths = {path.stem: path for path in (self.folder / "records").glob("*.json")}
        return readable_records(
            (f"The record in {str(paths[key])!r}", paths[key].read_bytes)
            for key in choose_keys(paths, last, until)
        )

    def set_alert_status(self, status: str, alerts: Sequence[AlertState]) -> None:
        """Write ``status.json``, for anything that polls a file."""
        content = {
            "monitor": self._info.name,
            "status": status,
            "alerts": [alert.to_dict() for alert in alerts],
        }
        write_atomically(self.folder / "status.json", _encode(content))

    def close(self) -> None:
        """Nothing to let go of."""

    def ping(self) -> str:
        """Say where the folder is; raise if nothing can be written there."""
        if not is_writable(self.folder):
            msg = f"`folder` must be one that can be written to; cannot write to {self.folder}."
            raise InvalidInputError(msg)
        return f"in {self.folder}"


class MemoryTracker:
    """Keeps records and state as JSON text in memory: for tests, notebooks and dry runs."""

    lock_path = None

    def __init__(self) -> None:
        self._state: str | None = None
        self._records: dict[str, str] = {}
        self.artifacts: dict[str, dict[str, bytes]] = {}
        self.status: str | None = None

    def load_state(self) -> dict[str, Any] | None:
        """Return what was saved last, None at the beginning."""
        return None if self._state is None else json.loads(self._state)

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Replace the state."""
        self._state = json.dumps(state, allow_nan=False)

    def previous_state(self) -> dict[str, Any] | None:
        """None: it holds one monitor."""
        return None

    def record(self, record: WindowRecord, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Store a record by its key."""
        self._records[record.key] = record.to_json()
        self.artifacts[record.key] = dict(artifacts or {})

    def remark(self, record: WindowRecord) -> None:
        """Nothing: it knows no versions."""

    def records(self, last: int | None = None, until: int | None = None) -> list[WindowRecord]:
        """Return records in order: all, or those of the `last` windows up to an ordinal."""
        keys = choose_keys(self._records, last, until)
        return in_order(WindowRecord.from_json(self._records[key]) for key in keys)

    def set_alert_status(self, status: str, alerts: Sequence[AlertState]) -> None:  # noqa: ARG002
        """Remember the status."""
        self.status = status

    def close(self) -> None:
        """Nothing to let go of."""

    def ping(self) -> str:
        """Say where: nowhere that lasts."""
        return "in memory"


def folder_name(info: MonitorInfo) -> str:
    """Name of a monitor's folder: readable, and unique by the identity.

    Examples
    --------
    >>> from huc_monitor.monitor.ports import MonitorInfo
    >>> folder_name(MonitorInfo("nsl kdd/<prod>", "5f1c33aa90b2c1d0e4"))
    'nsl-kdd-prod-5f1c33aa90b2'
    """
    return f"{file_name(info.name)}-{file_name(info.identity)[:12]}"


def _read_state(path: Path) -> dict[str, Any]:
    where = f"The state in {str(path)!r}"
    return read_stored(path.read_bytes(), dict, where=where, remedy=RESTORE_STATE)


def _encode(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, allow_nan=False, ensure_ascii=False).encode()
