"""Attachments: files that other tools make about a window that alerts."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from huc_monitor.monitor.records import WindowRecord


# Steps in the life of an alert that people are told of; a resolved one needs no explanation.
_TELLING = frozenset({"opened", "escalated", "repeated"})

log = logging.getLogger("huc_monitor")


@runtime_checkable
class Attachment(Protocol):
    """Makes files about one window. Raising leaves a file with the error in their place."""

    def files(
        self, record: WindowRecord, reference: tuple[datetime, datetime] | None
    ) -> Mapping[str, bytes]:
        """Return files by name. `reference`: start and end of what windows are compared with."""

    def ping(self) -> str:
        """Say in a few words what it would do, or raise why it cannot; change nothing."""


def attach(
    attachments: Mapping[str, Attachment],
    record: WindowRecord,
    reference: tuple[datetime, datetime] | None,
) -> dict[str, bytes]:
    """Make all attachments of a window that alerts; none for another.

    One that fails is recorded as the file ``<name>-failed.txt``, and never fails a check.
    """
    files: dict[str, bytes] = {}
    if not any(step.announced and step.kind in _TELLING for step in record.transitions):
        return files
    for name, attachment in attachments.items():
        try:
            files |= attachment.files(record, reference)
        except Exception as error:
            log.warning("attachment %s failed; the window is recorded without it", name)
            log.debug("traceback", exc_info=True)
            # Addresses in messages may hold a password.
            text = re.sub(r"//[^/@\s]*@", "//...@", f"{type(error).__name__}: {error}")
            files[f"{name}-failed.txt"] = f"{text}\n".encode()
    return files
