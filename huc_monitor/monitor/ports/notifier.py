"""Notifiers: how a message reaches people."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic
from typing import Any, Final, Protocol, runtime_checkable

from huc_monitor._common.forms import Form
from huc_monitor.errors import HUCError

log = logging.getLogger("huc_monitor")

# A check waits this many seconds for its channels, whatever they do.
LONGEST_DELIVERY: Final = 30.0


@dataclass(frozen=True, slots=True)
class Message(Form):
    """One grouped message of a check.

    Attributes
    ----------
    key : str
        The same message has the same key, also when it is sent again after a failure: a notifier
        that can, uses it to deliver once.
    level : {"critical", "warning", "resolved", "drift", "note"}
        The most severe thing the message speaks of.
    title : str
        One line.
    text : str
        Plain text with light Markdown (``*name*``).
    data : dict
        The transitions as JSON-safe data, for machines; ``status`` is where the monitor stands.
    """

    key: str
    level: str
    title: str
    text: str
    data: Mapping[str, Any]


class NotSentError(HUCError):
    """A channel cannot be reached for now; its text holds no address and no secret."""


class RejectedError(NotSentError):
    """A channel answers but refuses this message; others may pass."""


def message_key(identity: str, parts: Sequence[str]) -> str:
    """Name a message by what it speaks of.

    Examples
    --------
    >>> message_key("triage", ["opened 5f attack"])
    'ed7c6bfede6a28d3'
    """
    return hashlib.sha256(
        "\n".join([identity, *parts]).encode("utf-8", "backslashreplace")
    ).hexdigest()[:16]


@runtime_checkable
class Notifier(Protocol):
    """Delivers messages. Raising means "not delivered": the message is kept and sent again later.

    A failure never fails a check. A message may arrive twice if a process dies right after
    sending it; `Message.key` tells the second from a new one. What a notifier raises is logged by
    its type alone, since its text may hold an address with a token in it; a `NotSentError` is
    logged with its text.
    """

    def send(self, message: Message) -> None:
        """Deliver a message, or raise."""


def deliver(
    unsent: Sequence[Mapping[str, Any]],
    notifiers: Mapping[str, Notifier],
    *,
    longest: float = LONGEST_DELIVERY,
) -> list[dict[str, Any]]:
    """Send what is unsent, every channel by itself, and return what is still unsent.

    Channels work side by side, each in the order of the messages. A channel that cannot be reached
    is not tried again in the same call, so that messages stay in order and an outage costs one
    attempt; a message that a channel refuses is passed over. After `longest` seconds nobody is
    waited for any more.

    Parameters
    ----------
    unsent : list of dict
        ``{"message": Message.to_dict(), "left": [channel, ...]}``, oldest first.
    notifiers : dict of str to Notifier
        By channel. Messages for a channel that is not there are dropped: nobody listens.
    """
    runs = []
    for name, notifier in notifiers.items():
        queue = [Message.from_dict(item["message"]) for item in unsent if name in item["left"]]
        if queue:
            runs.append(_Delivery(name, notifier, queue))
    for run in runs:
        run.thread.start()
    until = monotonic() + longest
    for run in runs:
        run.finish(until)
    done = {run.name: run.done for run in runs}
    out = []
    for item in unsent:
        key = item["message"]["key"]
        left = [name for name in item["left"] if key not in done.get(name, {key})]
        if left:
            out.append({"message": item["message"], "left": left})
    return out


class _Delivery:
    """One channel's queue in its own thread: an address that hangs does not delay the others."""

    def __init__(self, name: str, notifier: Notifier, queue: Sequence[Message]) -> None:
        self.name, self.notifier, self.queue = name, notifier, queue
        self.done: set[str] = set()
        self.thread = Thread(target=self._run, name=f"huc-notify-{name}", daemon=True)
        self._error: BaseException | None = None
        self._stop = Event()

    def finish(self, until: float) -> None:
        """Wait for the thread, but not for ever."""
        self.thread.join(max(0.0, until - monotonic()))
        if self.thread.is_alive():
            self._stop.set()
            self._tell("took too long")
        # What arrives from now on was not seen here, and is sent again with the same key.
        self.done = set(self.done)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        for message in self.queue:
            if self._stop.is_set() or not self._try(message):
                return

    def _try(self, message: Message) -> bool:
        """Send one message; False if the channel needs no second one now."""
        try:
            self.notifier.send(message)
        except RejectedError as error:
            self._tell(str(error))
            return True
        except NotSentError as error:
            self._tell(str(error))
        except Exception as error:  # noqa: BLE001 - a channel must not fail a check
            self._tell(type(error).__name__)
        except BaseException as error:  # noqa: BLE001 - raised again where the check waits
            self._error = error
        else:
            self.done.add(message.key)
            return True
        return False

    def _tell(self, why: str) -> None:
        log.warning(
            "message not sent to %s (%s); it is kept for the next check",
            self.name,
            why,
            extra={"huc": {"event": "message_not_sent", "channel": self.name, "reason": why}},
        )
