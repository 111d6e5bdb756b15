"""Files with the decomposed rows of past windows: a cache, which may be lost at any time.

A file is named by the hash of its content, and the monitor's state says which hash belongs to which
window; what is missing or damaged is read from the source again.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from huc_monitor._common.private_files import write_atomically

log = logging.getLogger("huc_monitor")


@dataclass(frozen=True, slots=True)
class SampleFiles:
    """Keeps bytes by their hash in a folder of this user's own; writes nothing if read-only."""

    folder: Path
    read_only: bool = False

    def read(self, digest: str) -> bytes | None:
        """Return what was kept; None if it is not there or not what it was."""
        try:
            data = self._path(digest).read_bytes()
        except OSError:
            return None
        return data if _digest(data) == digest else None

    def write(self, data: bytes) -> str:
        """Keep bytes and return their hash; a folder that cannot be written to is no error."""
        digest = _digest(data)
        path = self._path(digest)
        if not self.read_only and not path.exists():
            try:
                write_atomically(path, data)
            except OSError as error:
                log.info("rows of a window are not kept, and will be read again: %s", error)
        return digest

    def keep_only(self, digests: set[str]) -> None:
        """Remove the files of windows that are no longer needed."""
        if self.read_only:
            return
        kept = {self._path(digest) for digest in digests}
        for path in set(self.folder.glob("*.rows")) - kept:
            path.unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest}.rows"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
