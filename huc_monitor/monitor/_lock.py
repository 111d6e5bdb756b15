"""One check at a time: a lock that the operating system releases when its holder dies."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from huc_monitor.errors import HUCError
from huc_monitor.monitor.ports.tracker import safe_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

_PAUSE = 0.1


class CheckInProgressError(HUCError, RuntimeError):
    """Another check of the same monitor is running."""


@contextlib.contextmanager
def hold(path: Path, *, wait: float = 0.0, what: str = "check") -> Iterator[None]:
    """Hold a lock file, waiting for at most some seconds.

    The file stays behind, which is harmless: what counts is the lock on it, and that ends with the
    process, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        deadline = time.monotonic() + wait
        while not _try_lock(file):
            if time.monotonic() >= deadline:
                raise CheckInProgressError(_busy(file, path, wait, what))
            time.sleep(_PAUSE)
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def watch_lock(config: Path) -> contextlib.AbstractContextManager[None]:
    """Let one watch run per configuration file."""
    name = hashlib.sha256(str(Path(config).resolve()).encode()).hexdigest()[:16]
    return hold(default_path(f"watch-{name}"), what="watch")


def default_path(identity: str) -> Path:
    """Where a monitor is locked whose tracker has no folder of its own."""
    folder = Path(tempfile.gettempdir()) / f"huc-monitor-{safe_name(_user())}"
    return folder / f"{safe_name(identity)}.lock"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user: a container with a random id
        return str(os.getuid()) if hasattr(os, "getuid") else "user"


def _busy(file: IO[str], path: Path, wait: float, what: str) -> str:
    file.seek(0)
    holder = file.read().strip()
    who = f"process {holder}" if holder.isdigit() else "another process"
    after = f" for {wait:g} seconds" if wait else ""
    return (
        f"`{what}` must run once at a time for a monitor; {who} has held {str(path)!r}{after}. "
        + ("Let it finish, or pass a time to wait (--wait 10m)." if what == "check" else "Stop it.")
    )


def _try_lock(file: IO[str]) -> bool:
    if os.name == "nt":
        import msvcrt

        try:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
