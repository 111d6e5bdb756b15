"""Records and state over time: shorten old records, back up, restore, move to another tracker.

An archive is a compressed tar file with ``huc-backup.json`` (which monitor, how many records),
``records/``, ``artifacts/`` (files of windows, where the tracker is a folder), ``rows/`` (what the
change test pools) and ``state.json``. It is never unpacked: every member is read by its name, and
written through the tracker, so that no link and no path of an archive is followed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from huc_monitor import __version__
from huc_monitor._common.private_files import private_opener, write_atomically
from huc_monitor._common.safe_text import file_name
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor._lock import default_path, hold
from huc_monitor.monitor._state import MonitorState, read_state
from huc_monitor.monitor.ports.stored import read_stored
from huc_monitor.monitor.ports.tracker import FilesTracker, Tracker
from huc_monitor.monitor.records import WindowRecord

_HEAD: Final = "huc-backup.json"
_FORMAT: Final = 1
_MEMBER: Final = re.compile(
    r"huc-backup\.json|state\.json|records/[\w.-]+\.json|artifacts/[\w.-]+/[\w.-]+|rows/[\w.-]+"
)
_LARGEST: Final = 1 << 30
_REMEDY: Final = "Make another backup."


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many records were made thinner or removed, and how many bytes that freed.

    `n_held` are as old, and stay whole because an alert is open since then.
    """

    n_thinned: int
    n_removed: int
    n_bytes: int
    n_held: int = 0


@dataclass(frozen=True, slots=True)
class Restored:
    """How many records came back; of others, how many were removed, and how many remain."""

    n_records: int
    n_removed: int
    n_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """Keeps one monitor's records and state.

    Parameters
    ----------
    tracker : Tracker
    identity, name : str
        Of the monitor.
    """

    tracker: Tracker
    identity: str
    name: str

    @property
    def _lock(self) -> Path:
        return self.tracker.lock_path or default_path(self.identity)

    @property
    def _rows(self) -> Path:
        return self._lock.parent / "rows" / file_name(self.identity)

    def _state(self) -> MonitorState:
        data = self.tracker.load_state()
        if data is None:
            msg = f"Monitor {self.name!r} has no state yet. Run: huc-monitor check"
            raise InvalidInputError(msg)
        return read_state(data, self.tracker)

    def prune(self, before: datetime, *, wait: float = 0.0, dry_run: bool = False) -> Pruned:
        """Shorten the records of old windows to what trends and alerts need.

        Moments, bounds, tolerances, levels, counts and alerts stay, so that every trend is the same
        as before. Pages, attachments, curves, frequencies, drift and causes go, and so do records
        of windows from before their labels came. Windows since the oldest open alert stay whole.
        """
        if not isinstance(self.tracker, FilesTracker):
            msg = (
                "`prune` works where `tracker` is files. An MLflow server has retention of its "
                "own: delete the runs of old windows there, then run mlflow gc."
            )
            raise InvalidInputError(msg)
        with hold(self._lock, wait=wait):
            first = min((a.first_ordinal for a in self._state().open_alerts), default=None)
            records = self.tracker.records()
            aged = [r for r in records if r.end <= before]
            old = [r for r in aged if first is None or r.ordinal < first]
            held = len(aged) - len(old)
            audited = {r.window_id for r in records if r.status != "pending"}
            gone = [r for r in old if r.status == "pending" and r.window_id in audited]
            kept = [r for r in old if r not in gone]
            thin = [(r, thinned(r)) for r in kept]
            changed = [small for r, small in thin if small != r or self.tracker.files(r)]
            size = self.tracker.size(*old)
            if dry_run:
                return Pruned(len(changed), len(gone), 0, held)
            for record in changed:
                self.tracker.record(record)
                self.tracker.drop_files(record)
            for record in gone:
                self.tracker.remove(record)
            return Pruned(len(changed), len(gone), size - self.tracker.size(*kept), held)

    def backup(self, out: Path, *, wait: float = 0.0) -> int:
        """Write one archive of everything; return the number of records."""
        part = out.with_name(f"{out.name}.part")
        with hold(self._lock, wait=wait):
            state = self._state().to_dict()
            records = self.tracker.records()
            head = {
                "format": _FORMAT,
                "version": __version__,
                "identity": self.identity,
                "name": self.name,
                "n_records": len(records),
            }
            with (
                open(part, "wb", opener=private_opener) as file,
                tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as archive,
            ):
                _add(archive, _HEAD, _encode(head))
                for record in records:
                    for path in self._files(record):
                        _add(
                            archive, f"artifacts/{path.parent.name}/{path.name}", path.read_bytes()
                        )
                    _add(
                        archive, f"records/{file_name(record.key)}.json", _encode(record.to_dict())
                    )
                for path in sorted(self._rows.glob("*")):
                    _add(archive, f"rows/{path.name}", path.read_bytes())
                _add(archive, "state.json", _encode(state))
        os.replace(part, out)  # noqa: PTH105 - all or nothing
        return len(records)

    def _files(self, record: WindowRecord) -> list[Path]:
        return self.tracker.files(record) if isinstance(self.tracker, FilesTracker) else []

    def restore(self, archive: Path, *, replace: bool = False, wait: float = 0.0) -> Restored:
        """Write what an archive holds through the tracker, the state last.

        With `replace`, records that the archive does not have go with the state that is given up,
        where the tracker is a folder. A restore that was killed is run again.

        Raises
        ------
        InvalidInputError
            If the archive is another monitor's or damaged, or if there is a state already and
            `replace` is false. Nothing is written then.
        """
        self._examine(archive)
        with hold(self._lock, wait=wait):
            if self.tracker.load_state() is not None and not replace:
                msg = f"Monitor {self.name!r} has a state. Pass --replace to give it up."
                raise InvalidInputError(msg)
            files: dict[str, bytes] = {}
            keys: set[str] = set()
            state = None
            for name, content in _members(archive):
                folder, _, rest = name.partition("/")
                if folder == "artifacts":
                    files[rest.partition("/")[2]] = content
                elif folder == "records":
                    where = f"{name!r} in {str(archive)!r}"
                    record = read_stored(
                        content, WindowRecord.from_dict, where=where, remedy=_REMEDY
                    )
                    self.tracker.record(record, files or None)
                    keys, files = keys | {record.key}, {}
                elif folder == "rows":
                    write_atomically(self._rows / rest, content)
                elif name == "state.json":
                    state = content
            others = [record for record in self.tracker.records() if record.key not in keys]
            n_removed = self._remove(others) if replace else 0
            self._put(MonitorState.from_dict(json.loads(state or b"{}")))
        return Restored(len(keys), n_removed, len(others) - n_removed)

    def _remove(self, records: Sequence[WindowRecord]) -> int:
        """Remove records where the tracker can; return how many it did."""
        if not isinstance(self.tracker, FilesTracker):
            return 0
        for record in records:
            self.tracker.remove(record)
        return len(records)

    def _examine(self, archive: Path) -> None:
        """Read the whole archive once, before anything is written."""
        head: Mapping[str, Any] = {}
        n = 0
        for name, content in _members(archive):
            where = f"{name!r} in {str(archive)!r}"
            if name == _HEAD:
                head = read_stored(content, dict, where=where, remedy=_REMEDY)
            elif name == "state.json":
                read_stored(content, MonitorState.from_dict, where=where, remedy=_REMEDY)
                n += 1
            n += name.startswith("records/")
        if head.get("format") != _FORMAT or n != head.get("n_records", -2) + 1:
            msg = f"{str(archive)!r} is no whole backup of a monitor. {_REMEDY}"
            raise InvalidInputError(msg)
        if head["identity"] != self.identity:
            msg = (
                f"{str(archive)!r} is of monitor {head['name']!r} ({head['identity'][:12]}), and "
                f"this configuration is {self.name!r} ({self.identity[:12]}): the model, tree, "
                "utilities or windows differ. Use the configuration that made it."
            )
            raise InvalidInputError(msg)

    def copy_to(self, target: Keeper, *, replace: bool = False, wait: float = 0.0) -> int:
        """Write all records and the state through another tracker, in the present format.

        Into the tracker itself, this rewrites what an earlier version wrote.
        """
        if target.identity != self.identity:
            msg = "`to` must be the same monitor with another tracker: only `tracker` may differ."
            raise InvalidInputError(msg)
        with contextlib.ExitStack() as locks:
            for path in dict.fromkeys((self._lock, target._lock)):
                locks.enter_context(hold(path, wait=wait))
            state = self._state()
            same = target.tracker is self.tracker
            if not same and target.tracker.load_state() is not None and not replace:
                msg = "The other tracker has a state already. Pass --replace to give it up."
                raise InvalidInputError(msg)
            records = self.tracker.records()
            for record in records:
                target.tracker.record(record, {p.name: p.read_bytes() for p in self._files(record)})
            for path in [] if same else self._rows.glob("*"):
                write_atomically(target._rows / path.name, path.read_bytes())
            target._put(state)
        return len(records)

    def _put(self, state: MonitorState) -> None:
        self.tracker.save_state(state.to_dict())
        self.tracker.set_alert_status(state.status, state.open_alerts)


def thinned(record: WindowRecord) -> WindowRecord:
    """Return what trends and alerts need of a record."""
    change = record.change
    if change is not None:
        bare = [dataclasses.replace(item, track=()) for item in change.changes]
        change = dataclasses.replace(change, changes=tuple(bare), largest=())
    findings = [
        dataclasses.replace(item, causes=(), change=item.change and _bare(item.change))
        for item in record.findings
    ]
    steps = [
        dataclasses.replace(item, hints=(), change=item.change and _bare(item.change))
        for item in record.transitions
    ]
    return dataclasses.replace(
        record,
        change=change,
        findings=tuple(findings),
        transitions=tuple(steps),
        curve=None,
        frequencies={},
        drift=(),
    )


def _bare(change: Any) -> Any:
    return dataclasses.replace(change, track=())


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Read an archive member by member; anything but a plain file of a known name is refused."""
    try:
        with tarfile.open(archive, mode="r:gz") as tar:
            for member in tar:
                odd = not member.isreg() or not _MEMBER.fullmatch(member.name)
                if odd or ".." in member.name or member.size > _LARGEST:
                    msg = (
                        f"{str(archive)!r} holds {member.name!r:.80}, which no backup does (a "
                        "link, another place or too large). Nothing was written."
                    )
                    raise InvalidInputError(msg)
                file = tar.extractfile(member)
                yield member.name, b"" if file is None else file.read()
            rest: Any = tar.fileobj
            while rest.read(1 << 20):  # to its end, where the checksum is
                pass
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        if isinstance(error, InvalidInputError | FileNotFoundError):
            raise
        msg = f"{str(archive)!r} cannot be read as a backup: {error}. {_REMEDY}"
        raise InvalidInputError(msg) from error


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o600
    archive.addfile(member, io.BytesIO(content))


def _encode(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, allow_nan=False, ensure_ascii=False).encode()
