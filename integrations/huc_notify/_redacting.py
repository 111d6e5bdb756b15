"""Keeping tokens out of logs: apprise puts them into URLs, and speaks of URLs when it fails."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final
from urllib.parse import unquote, urlsplit

HIDDEN: Final = "***"
# Shorter parts, such as a slash or a port, would tear holes into every sentence.
_SHORTEST: Final = 3
_LOGGERS: Final = ("apprise", "urllib3.connectionpool", "requests")
_said: ContextVar[list[str] | None] = ContextVar("huc_notify_said", default=None)


class Redactor:
    """Hides every part of a URL in other texts, host included: it may be a token.

    Examples
    --------
    >>> redactor = Redactor("slack://hunter2@T1JJ3T3L2/A1BRTD4JD/TIia%2Fjkd/?to=ops")
    >>> redactor.redact("cannot send to T1JJ3T3L2 with TIia/jkd: error=403.")
    'cannot send to *** with ***: error=403.'
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        pieces = re.split(r"[/?&=#@:,]+", url.partition("://")[2])
        pieces += [parts.netloc, parts.path, parts.query, url]
        found = {text for piece in pieces for text in (piece, unquote(piece))}
        chosen = sorted((text for text in found if len(text) >= _SHORTEST), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, chosen)) or r"(?!)", re.IGNORECASE)

    def redact(self, text: str) -> str:
        """Return the text with every part of the URL hidden."""
        return self._pattern.sub(HIDDEN, text)


class _Ear(logging.Filter):
    """Takes records out of the log while a message is being sent, and keeps the warnings."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = _said.get()
        if said is None:
            return True
        if record.levelno >= logging.WARNING:
            said.append(record.getMessage())
        return False


_EAR: Final = _Ear()


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Hold back what apprise and its HTTP client log, because it names whole URLs; yield it."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_EAR)  # once: a filter that is there is not added again
    said: list[str] = []
    token = _said.set(said)
    try:
        yield said
    finally:
        _said.reset(token)
