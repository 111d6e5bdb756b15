"""The signature of a webhook: HMAC-SHA256 over the time of sending and the body.

``X-HUC-Timestamp`` holds seconds since 1970, ``X-HUC-Signature`` holds ``v1=`` and the hexadecimal
HMAC of ``<timestamp>.<body>``, and ``Idempotency-Key`` repeats the message's key, which is part of
the signed body. The time is inside the signature, so that an old request cannot be sent again as a
new one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from typing import Final

from huc_monitor.errors import HUCError, InvalidInputError
from huc_monitor.monitor.ports.notifier import Message

KEY: Final = "Idempotency-Key"
SIGNATURE: Final = "X-HUC-Signature"
TIMESTAMP: Final = "X-HUC-Timestamp"
SHORTEST_SECRET: Final = 16
_VERSION: Final = "v1="


class SignatureError(HUCError, ValueError):
    """A request does not come from whoever holds the secret, or it comes too late."""


def check_secret(secret: str) -> bytes:
    """Return a secret as bytes if it is long enough to be one; it is never shown."""
    if not isinstance(secret, str) or len(secret) < SHORTEST_SECRET:
        got = f"{len(secret)} characters" if isinstance(secret, str) else type(secret).__name__
        msg = (
            f"`secret` must be a text of at least {SHORTEST_SECRET} characters; got {got}. Make "
            "one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
        raise InvalidInputError(msg)
    return secret.encode()


def sign(body: bytes, secret: str, *, timestamp: int) -> dict[str, str]:
    """Return the headers that prove where a body comes from, and when it was sent.

    Parameters
    ----------
    body : bytes
        As it is sent.
    secret : str
        At least 16 characters, known to the receiver.
    timestamp : int
        Seconds since 1970.

    Examples
    --------
    >>> headers = sign(b"{}", "correct horse battery", timestamp=1_710_000_000)
    >>> headers["X-HUC-Timestamp"], headers["X-HUC-Signature"][:12]
    ('1710000000', 'v1=6d492f1e7')
    """
    return {
        TIMESTAMP: str(timestamp),
        SIGNATURE: _VERSION + _digest(body, check_secret(secret), str(timestamp)),
    }


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    max_age: float = 300.0,
    now: float | None = None,
) -> Message:
    """Check that a webhook request is genuine and fresh, and return its message.

    Within `max_age` a request can still be repeated, by the sender after a lost answer or by
    somebody else: remember `Message.key` for that long, answer 200 to a key that is known, and act
    on it once.

    Parameters
    ----------
    body : bytes
        As it arrived, not parsed and written again.
    headers : mapping
        Of the request; case does not matter.
    secret : str or list of str
        Any one of them will do, so that a secret can be replaced without a gap.
    max_age : float, default 300
        Seconds that the clocks and the journey may take, either way.
    now : float, optional
        Seconds since 1970, instead of the clock.

    Raises
    ------
    SignatureError
        The signature is missing or wrong, or the request is too old. Answer 401.

    Examples
    --------
    >>> body = b'{"key": "5f", "level": "note", "title": "t", "text": "x", "data": {}}'
    >>> headers = sign(body, "correct horse battery", timestamp=1_710_000_000)
    >>> verify(body, headers, "correct horse battery", now=1_710_000_060).key
    '5f'
    >>> verify(body + b" ", headers, "correct horse battery", now=1_710_000_060)
    Traceback (most recent call last):
    huc_notify._signing.SignatureError: The signature does not fit the body and the secret.
    """
    given = {name.lower(): value for name, value in headers.items()}
    stamp, signature = given.get(TIMESTAMP.lower(), ""), given.get(SIGNATURE.lower(), "")
    if not stamp or not signature:
        msg = f"The headers {TIMESTAMP} and {SIGNATURE} are missing: this request is not signed."
        raise SignatureError(msg)
    secrets = [secret] if isinstance(secret, str) else list(secret)
    # All are compared in full: the time taken tells nothing about any of them.
    fits = [
        hmac.compare_digest((_VERSION + _digest(body, check_secret(one), stamp)).encode(), sent)
        for sent in [signature.encode()]
        for one in secrets
    ]
    if not any(fits):
        msg = "The signature does not fit the body and the secret."
        raise SignatureError(msg)
    age = (time.time() if now is None else now) - _seconds(stamp)
    if abs(age) > max_age:
        msg = f"The request must be at most {max_age:g} s old; it is {age:.0f} s old."
        raise SignatureError(msg)
    return Message.from_dict(json.loads(body))


def _digest(body: bytes, secret: bytes, stamp: str) -> str:
    return hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _seconds(stamp: str) -> int:
    try:
        return int(stamp)
    except ValueError:
        msg = f"The header {TIMESTAMP} must hold seconds since 1970."
        raise SignatureError(msg) from None
