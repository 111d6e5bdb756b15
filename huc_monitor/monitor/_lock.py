"""One check at a time: a lock that the operating system releases when its holder dies."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from filelock import lock_descriptor

from huc_monitor._common.private_files import (
    UnsafePathError,
    make_private_folder,
    open_lock_file,
    state_folder,
)
from huc_monitor._common.safe_text import file_name
from huc_monitor.errors import HUCError

_PAUSE = 0.1
_BRIEF = 2.0  # seconds: what a person does to an alert takes less
_LONGEST = 64


class CheckInProgressError(HUCError, RuntimeError):
    """Another check of the same monitor is running."""


@contextlib.contextmanager
def hold(path: Path, *, wait: float = 0.0, what: str = "check") -> Iterator[None]:
    """Hold a lock file, waiting for at most some seconds.

    The file stays behind, which is harmless: what counts is the lock on it, and that ends with the
    process, however it ends. It holds the process's number, and nothing else is ever overwritten.
    """
    make_private_folder(path.parent)
    with open(open_lock_file(path), "r+b", buffering=0) as file:  # noqa: PTH123 - a descriptor
        deadline = time.monotonic() + max(wait, _BRIEF)
        while not lock_descriptor(file.fileno(), blocking=False):
            if time.monotonic() >= deadline:
                raise CheckInProgressError(_busy(file, path, wait, what))
            time.sleep(_PAUSE)
        _sign(file, path)
        yield


def watch_lock(config: Path) -> contextlib.AbstractContextManager[None]:
    """Let one watch run per configuration file."""
    name = hashlib.sha256(str(Path(config).resolve()).encode()).hexdigest()[:16]
    return hold(default_path(f"watch-{name}"), what="watch")


def default_path(identity: str) -> Path:
    """Where a monitor is locked whose tracker has no folder of its own."""
    return state_folder() / f"{file_name(identity)}.lock"


def _sign(file: FileIO, path: Path) -> None:
    """Write this process's number, unless the file holds something that no lock has written."""
    if not re.fullmatch(rb"[0-9]*\s*", file.read(_LONGEST)):
        msg = (
            f"The lock {str(path)!r} holds something other than a process number, so it was left "
            "alone. Move it away, and run again."
        )
        raise UnsafePathError(msg)
    file.seek(0)
    file.truncate()
    file.write(f"{os.getpid()}\n".encode())


def _busy(file: FileIO, path: Path, wait: float, what: str) -> str:
    holder = b""
    with contextlib.suppress(OSError):  # Windows lets nobody read what is locked
        holder = file.read(_LONGEST).strip()
    pid = holder.decode() if holder.isdigit() else "unknown"
    after = f", after waiting {wait:g} seconds" if wait else ""
    remedy = "Wait, or pass --wait 10m." if what == "check" else "Stop it first."
    return f"Another {what} is running (pid {pid}, lock {str(path)!r}){after}. {remedy}"
