"""Trackers: where a monitor keeps its records and its state.

Hosts register a factory in the entry point group ``huc_monitor.trackers``; it is called as
``factory(info, **options)``. The library itself has one, ``files``: a folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from huc_monitor._common.private_files import write_atomically
from huc_monitor._common.safe_text import file_name
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean
from huc_monitor.monitor.records import WindowRecord

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from huc_monitor.monitor.records import AlertState

__all__ = ["FilesTracker", "MemoryTracker", "MonitorInfo", "Tracker", "make_tracker"]

GROUP = "huc_monitor.trackers"


@dataclass(frozen=True, slots=True)
class MonitorInfo:
    """Who is asking: what a tracker keeps apart.

    Attributes
    ----------
    name : str
        The monitor's name, chosen by the user.
    identity : str
        Hash of what its results depend on; a changed tree or utility is another monitor.
    model : str or None
        Name of the (registered) model.
    settings : dict
        The configuration as JSON-safe data without secrets, to show and to log.
    """

    name: str
    identity: str
    model: str | None = None
    settings: Mapping[str, Any] | None = None


@runtime_checkable
class Tracker(Protocol):
    """Keeps the records and the state of one monitor (one `MonitorInfo`).

    The monitor saves the state first, with the new record inside it, and then hands the record
    over; what a crash leaves undone is handed over at the next start. So `record` may be called
    again with a record it already has, always with the same content, and must then do nothing, or
    complete what is missing. Calls come from one process at a time: the monitor holds a lock.
    """

    def load_state(self) -> dict[str, Any] | None:
        """Return what was saved last, None at the beginning."""
        ...

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Replace the state, all or nothing."""
        ...

    def record(self, record: WindowRecord, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Store a record, and files that go with it by name. Idempotent by ``record.key``."""
        ...

    def records(self) -> Sequence[WindowRecord]:
        """Return all records, in order of ordinal and revision, pending ones first."""
        ...

    def set_alert_status(self, status: str, alerts: Sequence[AlertState]) -> None:
        """Publish "ok", "warning", "failed" or "critical"; may repeat the last value."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


def make_tracker(name: str, info: MonitorInfo, options: Mapping[str, Any] | None = None) -> Tracker:
    """Make the tracker registered under `name`.

    Parameters
    ----------
    name : str
        "files", or one that an installed package provides.
    info : MonitorInfo
    options : dict, optional
        The tracker's own settings.
    """
    if name == "files":
        return FilesTracker(info, **(options or {}))
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        remedy = did_you_mean(name, ["files", *sorted(found)])
        msg = f"`tracker` must be an installed tracker; got {name!r}. {remedy}"
        raise UnknownNameError(msg)
    tracker: Tracker = found[name].load()(info, **(options or {}))
    return tracker


class FilesTracker:
    """Records and state as JSON files in a folder, one file per record.

    Every write goes to a temporary file, is flushed to the disk and renamed, so that a reader, or
    the next run after a crash, sees the old content or the new one and never a part. Files are
    for this user alone (mode 0600), and so are folders that it makes (0700).

    Parameters
    ----------
    info : MonitorInfo
    folder : path, default "huc-state"
        Created when missing. Each identity has its own folder in it: a changed configuration
        starts afresh and leaves the old records in place.

    Examples
    --------
    >>> import tempfile
    >>> tracker = FilesTracker(MonitorInfo("triage", "5f"), folder=tempfile.mkdtemp())
    >>> tracker.save_state({"schema_version": 1})
    >>> tracker.load_state(), tracker.records()
    ({'schema_version': 1}, [])
    """

    def __init__(self, info: MonitorInfo, folder: str | os.PathLike[str] = "huc-state") -> None:
        self.folder = Path(folder) / folder_name(info)
        self._info = info

    @property
    def lock_path(self) -> Path:
        """File to hold while writing here."""
        return self.folder / "lock"

    def load_state(self) -> dict[str, Any] | None:
        """Return what was saved last, None at the beginning."""
        try:
            text = (self.folder / "state.json").read_text("utf-8")
        except FileNotFoundError:
            return None
        try:
            state: dict[str, Any] = json.loads(text)
        except ValueError as error:
            msg = (
                f"`state` must be JSON; {str(self.folder / 'state.json')!r} is not ({error}). "
                "Restore it from a backup, or remove the folder to start afresh."
            )
            raise InvalidInputError(msg) from error
        return state

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Replace the state, all or nothing."""
        write_atomically(self.folder / "state.json", _encode(state))

    def record(self, record: WindowRecord, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Store a record; an artifact is a file in a folder of the record's name."""
        key = file_name(record.key)
        for name, content in (artifacts or {}).items():
            write_atomically(self.folder / "artifacts" / key / file_name(name), content)
        write_atomically(self.folder / "records" / f"{key}.json", _encode(record.to_dict()))

    def records(self) -> list[WindowRecord]:
        """Return all records, in order of ordinal and revision, pending ones first."""
        paths = (self.folder / "records").glob("*.json")
        return in_order(WindowRecord.from_json(path.read_text("utf-8")) for path in paths)

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


class MemoryTracker:
    """Keeps records and state as JSON text in memory: for tests, notebooks and dry runs."""

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

    def record(self, record: WindowRecord, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Store a record by its key."""
        self._records[record.key] = record.to_json()
        self.artifacts[record.key] = dict(artifacts or {})

    def records(self) -> list[WindowRecord]:
        """Return all records, in order."""
        return in_order(WindowRecord.from_json(text) for text in self._records.values())

    def set_alert_status(self, status: str, alerts: Sequence[AlertState]) -> None:  # noqa: ARG002
        """Remember the status."""
        self.status = status

    def close(self) -> None:
        """Nothing to let go of."""


def in_order(records: Any) -> list[WindowRecord]:
    """Sort records by ordinal and revision, a pending one before the first revision."""
    return sorted(
        records, key=lambda r: (r.ordinal, -1 if r.status == "pending" else r.revision, r.window_id)
    )


def folder_name(info: MonitorInfo) -> str:
    """Name of a monitor's folder: readable, and unique by the identity.

    Examples
    --------
    >>> folder_name(MonitorInfo("nsl kdd/<prod>", "5f1c33aa90b2c1d0e4"))
    'nsl-kdd-prod-5f1c33aa90b2'
    """
    return f"{file_name(info.name)}-{file_name(info.identity)[:12]}"


def _encode(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, allow_nan=False, ensure_ascii=False).encode()
