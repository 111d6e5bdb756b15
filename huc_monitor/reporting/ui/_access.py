"""Who may act on pages: a token to log in, a session cookie, and a CSRF token in every form."""

from __future__ import annotations

import hmac
import secrets
import stat
from pathlib import Path

from huc_monitor.errors import InvalidInputError

COOKIE = "huc_session"
_LEAST = 20
_MOST_SESSIONS = 50


class Access:
    """Lets in who knows the token, and knows forms that this server made for them.

    Without a token nobody is let in, and nothing can be done.

    Examples
    --------
    >>> door = Access("a token of at least 20 characters")
    >>> door.enter("a guess", "eve") is None
    True
    >>> session = door.enter("a token of at least 20 characters", "ann")
    >>> seal = door.seal(session)
    >>> (
    ...     door.is_sealed(session, seal),
    ...     door.is_sealed(session, "x"),
    ...     door.is_sealed("other", seal),
    ... )
    (True, False, False)
    """

    def __init__(self, token: str | None = None) -> None:
        self._token = token
        self._secret = secrets.token_bytes(32)
        self._sessions: dict[str, str] = {}

    @property
    def allowed(self) -> bool:
        """Whether anything can be done at all."""
        return self._token is not None

    def enter(self, token: str, name: str) -> str | None:
        """Return a new session for who brings the right token; `name` stands by what they do."""
        given, wanted = token.encode(), (self._token or "").encode()
        if self._token is None or not hmac.compare_digest(given, wanted):
            return None
        session = secrets.token_urlsafe(32)
        kept = list(self._sessions.items())[1 - _MOST_SESSIONS :]
        self._sessions = dict([*kept, (session, name)])
        return session

    def name(self, session: str | None) -> str | None:
        """Return who a session was opened for; None if it is not open."""
        given = (session or "").encode()
        found = None
        for known, name in self._sessions.items():  # all are compared, found or not
            if hmac.compare_digest(given, known.encode()):
                found = name
        return found

    def leave(self, session: str) -> None:
        """End a session."""
        self._sessions.pop(session, None)

    def seal(self, session: str) -> str:
        """Return what a form of this session carries; no other site can know it."""
        return hmac.new(self._secret, session.encode(), "sha256").hexdigest()

    def is_sealed(self, session: str | None, seal: str) -> bool:
        """Whether a form was made for a session that is open."""
        wanted = self.seal(session or "").encode()
        return self.name(session) is not None and hmac.compare_digest(seal.encode(), wanted)


def read_token(path: Path) -> str:
    """Read a token from a file that is this user's alone.

    Raises
    ------
    InvalidInputError
        If others can read it, or it is too short to be no guess.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        msg = f"`token_file` must be private; {str(path)!r} has mode {mode:04o}. Make it 0600."
        raise InvalidInputError(msg)
    token = path.read_text("utf-8").strip()
    if len(token) < _LEAST:
        msg = (
            f"`token_file` must hold at least {_LEAST} characters; {str(path)!r} has {len(token)}."
        )
        raise InvalidInputError(msg)
    return token
