"""Attachments: files that other tools make about a window that alerts. From entry points.

Hosts register a factory in the group ``huc_monitor.attachments``; it is called as
``factory(config, **options)``.
"""

from __future__ import annotations

import logging
import re
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from huc_monitor.errors import UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from huc_monitor.monitor.records import WindowRecord

__all__ = ["Attachment", "attach", "make_attachment"]

GROUP = "huc_monitor.attachments"
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
        ...


def make_attachment(name: str, config: Any, options: Mapping[str, Any] | None = None) -> Attachment:
    """Make the attachment that a package registered under `name`, with its own options."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        msg = f"`attachment` must be an installed attachment; got {name!r}. "
        raise UnknownNameError(msg + did_you_mean(name, sorted(found)))
    attachment: Attachment = found[name].load()(config, **(options or {}))
    return attachment


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
