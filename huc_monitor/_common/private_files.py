"""Files and folders that other users of the machine can neither read nor redirect.

Nothing here follows a symbolic link in the last part of a path, and nothing overwrites a file in
place: a file is written beside its target under a name that must be new, and renamed.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from huc_monitor.errors import HUCError

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)  # Windows has no such flag; links need a privilege there
_PLAIN = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class UnsafePathError(HUCError, OSError):
    """Somebody else could have put this file or folder here."""


def private_opener(path: str, flags: int) -> int:
    """Open a file for the built-in `open`; a new one is for this user alone (mode 0600)."""
    return os.open(path, flags, 0o600)


def make_private_folder(path: Path) -> None:
    """Make a folder and its missing parents for this user alone (mode 0700).

    Folders that exist keep their mode: somebody may have chosen it.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)


def is_writable(folder: Path) -> bool:
    """Whether a file can be made in a folder, or the folder itself where it is missing."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return False
    try:
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


def state_folder() -> Path:
    """Return this user's own folder for locks, made when missing.

    It is ``huc-monitor`` in ``$XDG_STATE_HOME`` or ``~/.local/state``. Where there is no home to
    write to, as in a container with a random user, it lies in the temporary directory. Not in
    ``$XDG_RUNTIME_DIR``: cron has none, and must meet the locks of a terminal.

    Raises
    ------
    UnsafePathError
        If the folder in the temporary directory belongs to somebody else.
    """
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111
    user = os.getuid() if hasattr(os, "getuid") else "user"
    places = [Path(tempfile.gettempdir()) / f"huc-monitor-{user}"]
    if os.path.isabs(home):  # noqa: PTH117 - "~" stays where there is no home
        places.insert(0, Path(home) / "huc-monitor")
    why = ""
    for place in places:
        try:
            make_private_folder(place)
        except OSError as error:
            why = f"{str(place)!r} cannot be made ({error.strerror})"
            continue
        fault = _fault(place)
        if fault is None:
            return place
        why = f"{str(place)!r} {fault}"
    msg = (
        f"No safe folder for locks: {why}. It must be a folder of this user with mode 0700. Look "
        "who made it, remove it, or set XDG_STATE_HOME to a folder of your own."
    )
    raise UnsafePathError(msg)


def _fault(folder: Path) -> str | None:
    """Say why a folder cannot be trusted; None if it can."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return "is a link or a file"
    if not hasattr(os, "geteuid"):
        return None
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}"
    mode = stat.S_IMODE(found.st_mode)
    return f"has mode {mode:04o}" if mode & 0o077 else None


def open_lock_file(path: Path) -> int:
    """Open a file to lock, made when missing, and return its descriptor.

    Raises
    ------
    UnsafePathError
        If it is a link, not a plain file, or known by a second name: writing to it would
        overwrite something else.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINKS | _PLAIN, 0o600)
    except OSError as error:
        if path.is_symlink():
            raise UnsafePathError(_refusal(path, "is a symbolic link")) from error
        raise
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(handle)
        raise UnsafePathError(_refusal(path, "is not a plain file with one name"))
    return handle


def _refusal(path: Path, fault: str) -> str:
    return (
        f"The lock {str(path)!r} {fault}: somebody may want it to overwrite another file. Nothing "
        "was written. Look who made it, remove it, and run again."
    )


def write_atomically(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file so that it has the old content or the new, whatever happens in between.

    Parameters
    ----------
    path : Path
        Missing folders are made, for this user alone.
    content : bytes
    mode : int, default 0o600
        Who may read it; the process's umask applies.
    """
    make_private_folder(path.parent)
    # One name per file: what a crash leaves behind is removed by the next attempt. There is one
    # writer at a time, who holds the monitor's lock.
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS | _PLAIN, mode)
    with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return  # a folder cannot be opened there, and renames are journalled
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
