"""Which messages a channel wants."""

from __future__ import annotations

from typing import Final

from huc_monitor.errors import UnknownNameError, did_you_mean
from huc_monitor.monitor.ports.notifier import Message

LEVELS: Final = {"note": 0, "warning": 1, "critical": 2}


def check_level(name: str) -> str:
    """Return a level's name if it is one."""
    if name not in LEVELS:
        msg = f"`min_level` must be a level; got {name!r}. {did_you_mean(name, list(LEVELS))}"
        raise UnknownNameError(msg)
    return name


def is_wanted(message: Message, min_level: str) -> bool:
    """Tell whether a channel with this `min_level` hears of a message.

    The end of an alert is always told, or a pager would never fall silent.

    Examples
    --------
    >>> from huc_monitor.monitor.ports.notifier import Message
    >>> levels = ("critical", "warning", "resolved", "drift", "note")
    >>> messages = [Message("k", level, "", "", {}) for level in levels]
    >>> [is_wanted(message, "critical") for message in messages]
    [True, False, True, False, False]
    """
    return message.level == "resolved" or LEVELS.get(message.level, 0) >= LEVELS[min_level]
