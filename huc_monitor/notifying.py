"""Notifiers: how a message reaches people. They come from entry points, as trackers do."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from huc_monitor.errors import UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Message", "Notifier", "make_notifier"]

GROUP = "huc_monitor.notifiers"


@dataclass(frozen=True, slots=True)
class Message:
    """One grouped message of a check.

    Attributes
    ----------
    key : str
        The same message has the same key, also when it is sent again after a failure: a notifier
        that can, uses it to deliver once.
    level : {"critical", "warning", "resolved"}
        The most severe thing the message speaks of.
    title : str
        One line.
    text : str
        Plain text with light Markdown (``*name*``).
    data : dict
        The transitions as JSON-safe data, for machines.
    """

    key: str
    level: str
    title: str
    text: str
    data: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form."""
        return {
            "key": self.key,
            "level": self.level,
            "title": self.title,
            "text": self.text,
            "data": dict(self.data),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """Read what `to_dict` wrote."""
        return cls(data["key"], data["level"], data["title"], data["text"], data["data"])


def message_key(identity: str, parts: Sequence[str]) -> str:
    """Name a message by what it speaks of.

    Examples
    --------
    >>> message_key("triage", ["opened 5f attack"])
    'ed7c6bfede6a28d3'
    """
    return hashlib.sha256("\n".join([identity, *parts]).encode()).hexdigest()[:16]


@runtime_checkable
class Notifier(Protocol):
    """Delivers messages. Raising means "not delivered": the message is kept and sent again later.

    A failure never fails a check. A message may arrive twice if a process dies right after
    sending it; `Message.key` tells the second from a new one.
    """

    def send(self, message: Message) -> None:
        """Deliver a message, or raise."""
        ...


def make_notifier(name: str, options: Mapping[str, Any] | None = None) -> Notifier:
    """Make the notifier that a package registered under `name`, with its own options."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        remedy = (
            did_you_mean(name, sorted(found))
            if found
            else "None is installed: pip install 'huc-monitor[notify]'"
        )
        msg = f"`notifier` must be an installed notifier; got {name!r}. {remedy}"
        raise UnknownNameError(msg)
    notifier: Notifier = found[name].load()(**(options or {}))
    return notifier
