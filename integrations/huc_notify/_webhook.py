"""A webhook of one's own: JSON, signed, repeated with back-off, recognisable by its key."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from huc_monitor import __version__
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.ports import Message, MonitorInfo
from huc_monitor.monitor.ports.notifier import NotSentError, RejectedError
from huc_notify._levels import check_level, is_wanted
from huc_notify._signing import KEY, check_secret, sign

# A receiver that is busy, starting, or still at work on the same key.
_TRY_AGAIN: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 8.0


class WebhookNotifier:
    """Post messages to an address, signed with a secret that the receiver knows.

    The body is `Message.to_dict` as JSON. A receiver that answers 2xx has the message. On 408, 409,
    425, 429, 5xx and broken connections it is sent again after a pause that doubles, varies at
    random and is never shorter than what ``Retry-After`` asks for. Any other answer, a redirect
    too, is a refusal. What could not be delivered within `budget` is tried again by the next check.

    Parameters
    ----------
    info : MonitorInfo or None
        The first argument of every plugin; messages name their monitor themselves.
    url : str
        http or https. Neither it nor the secret is ever logged.
    secret : str
        At least 16 characters; see `verify`.
    timeout : float, default 5
        Seconds to wait for one answer.
    budget : float, default 15
        Seconds for one message, pauses included.
    min_level : {"note", "warning", "critical"}
        What the channel hears of, besides the end of alerts.
    """

    def __init__(
        self,
        info: MonitorInfo | None,  # noqa: ARG002 - as every plugin is called
        url: str,
        secret: str,
        *,
        timeout: float = 5.0,
        budget: float = 15.0,
        min_level: str = "note",
    ) -> None:
        self._url = _check_url(url)
        check_secret(secret)
        self._secret = secret
        self._timeout = _positive("timeout", timeout)
        self._budget = _positive("budget", budget)
        self._min_level = check_level(min_level)
        self._opener = build_opener(_NoRedirects)

    def __repr__(self) -> str:
        """Leave out address and secret."""
        return f"WebhookNotifier(min_level={self._min_level!r})"

    def send(self, message: Message) -> None:
        """Deliver a message within the budget, or raise."""
        if not is_wanted(message, self._min_level):
            return
        body = json.dumps(message.to_dict(), allow_nan=False, ensure_ascii=False).encode()
        until = time.monotonic() + self._budget
        pause, attempt = _FIRST_PAUSE, 1
        while True:
            failure = self._post(body, message.key, min(self._timeout, until - time.monotonic()))
            if failure is None:
                return
            wait = max(pause * random.uniform(0.5, 1.0), failure.retry_after)  # noqa: S311
            if time.monotonic() + wait >= until:
                times = "once" if attempt == 1 else f"{attempt} times"
                msg = f"{failure.reason}, tried {times}"
                raise NotSentError(msg)
            time.sleep(wait)
            pause, attempt = min(2.0 * pause, _LONGEST_PAUSE), attempt + 1

    def _post(self, body: bytes, key: str, timeout: float) -> _Failure | None:
        # Signed anew each time: the receiver's clock runs on while we wait.
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": f"huc-monitor/{__version__}",
            KEY: key,
            **sign(body, self._secret, timestamp=int(time.time())),
        }
        request = Request(self._url, data=body, headers=headers, method="POST")  # noqa: S310 - checked
        try:
            with self._opener.open(request, timeout=max(timeout, 0.1)):
                return None
        except HTTPError as answer:
            with answer:
                if answer.code in _TRY_AGAIN:
                    return _Failure(
                        f"answered {answer.code}", _retry_after(answer.headers["Retry-After"])
                    )
                msg = f"answered {answer.code}"
            raise RejectedError(msg) from None
        except (OSError, HTTPException) as error:
            # Its text may show the address, so its kind has to do.
            cause = error.reason if isinstance(error, URLError) else error
            kind = type(cause).__name__ if isinstance(cause, Exception) else "URLError"
            return _Failure(f"could not be reached: {kind}", 0.0)


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str
    retry_after: float


class _NoRedirects(HTTPRedirectHandler):
    """Refuse redirects: the POST would lose its body, or go to another server."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


def _retry_after(text: str | None) -> float:
    """Seconds that the receiver asks for, given as such or as a date; 0 if it does not.

    Examples
    --------
    >>> [_retry_after(text) for text in ("3", "soon", "Fri, 01 Mar 2024 00:00:00 GMT", None)]
    [3.0, 0.0, 0.0, 0.0]
    """
    text = (text or "").strip()
    if text.isdigit():
        return float(text)
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    is_plain = isinstance(url, str) and url.isascii() and url.isprintable() and " " not in url
    has_user = "@" in parts.netloc
    if parts.scheme not in {"http", "https"} or not parts.hostname or has_user or not is_plain:
        msg = (
            "`url` must be an address like https://host/path, without a user name; it is not shown "
            "here. Look at the environment variable it comes from."
        )
        raise InvalidInputError(msg)
    return url


def _positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 3600:
        msg = f"`{name}` must be a number of seconds above 0; got {value!r}."
        raise InvalidInputError(msg)
    return float(value)
