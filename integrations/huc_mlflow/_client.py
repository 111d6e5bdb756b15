"""MLflow's client without progress bars, with a deadline, and without secrets in its errors.

MLflow puts the address of a request into its errors, and an address may hold a password. Errors
leave here as `TrackingError`, in words that say what to do, with everything secret masked.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.tracking._model_registry.utils import _resolve_registry_uri
from requests.exceptions import RequestException
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from huc_monitor._common.safe_text import line, quoted
from huc_monitor.errors import HUCError, InvalidInputError

# Name and password in an address, as in a tracking URI.
_CREDENTIALS = re.compile(r"://[^/@\s\"']+@")
_SECRET_VARIABLES = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
# Progress bars, and addresses on standard output, where they would spoil a JSON document.
_QUIET = {
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_LONGEST = 500
_LONGEST_CHAIN = 10
_LOGGED_MODEL = re.compile(r"/(m-[0-9a-f]{32})(?:/|$)")
_VERSION_URI = re.compile(r"models:/(.+)/(\d+)")
UNITY_CATALOG = ("databricks-uc", "uc:")
DEADLINE = 30.0  # seconds for one call, repetitions included
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 4.0
_TIMEOUT, _RETRIES = "MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
_TRY_AGAIN = frozenset({"408", "429", "500", "502", "503", "504"})
_HTTP_ERROR = re.compile(r"(?:too many |error code |^)([45]\d\d)(?: error responses| |\b)")
_NO_ANSWER = re.compile(
    r"Max retries exceeded|Connection (?:refused|aborted|reset)|RemoteDisconnected|timed out|"
    r"IncompleteRead|NameResolution"
)
_DATABASES = ("postgresql", "mysql")  # the dialects that know connect_timeout


class TrackingError(HUCError, MlflowException):
    """The tracking server or the registry refused, failed, or does not answer."""

    def __init__(
        self, message: str, error_code: str = "INTERNAL_ERROR", *, is_passing: bool = False
    ) -> None:
        Exception.__init__(self, message)
        self.message = message
        self.error_code = error_code
        self.json_kwargs: dict[str, Any] = {}
        self.is_passing = is_passing


def masked(text: str) -> str:
    """Hide passwords and tokens: those in addresses, and those in MLflow's variables.

    Examples
    --------
    >>> masked("GET https://anna:s3cret@mlflow.example/x")
    'GET https://***@mlflow.example/x'
    """
    text = _CREDENTIALS.sub("://***@", text)
    for name in _SECRET_VARIABLES:
        secret = os.environ.get(name)
        if secret:
            text = text.replace(secret, "***")
    return text


@contextmanager
def discreetly(address: str, *, seconds: float, once: bool = False) -> Iterator[None]:
    """Turn MLflow's errors into ours, and what it prints off, inside the block.

    No request waits longer than `seconds`. With `once`, it is not repeated: who calls tries again.
    """
    limit = min(seconds, float(os.environ.get(_TIMEOUT) or seconds))
    wanted = {**_QUIET, _TIMEOUT: str(max(1, math.ceil(limit)))}
    # What is in a block of several requests is repeated by MLflow itself, for seconds.
    wanted[_RETRIES] = "0" if once else os.environ.get(_RETRIES) or "3"
    try:
        with environment(**wanted):
            yield
    except TrackingError:
        raise
    except (MlflowException, RequestException) as error:
        code = str(getattr(error, "error_code", "INTERNAL_ERROR"))
        text = str(error)
        raise TrackingError(
            _explain(text, code, masked(address)), code, is_passing=_is_passing(text, code)
        ) from None


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set variables of the environment inside the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _is_passing(text: str, code: str) -> bool:
    """Tell whether the same request may succeed a moment later."""
    found = _HTTP_ERROR.search(text)
    if found is not None:
        return found[1] in _TRY_AGAIN
    return code == "TEMPORARILY_UNAVAILABLE" or _NO_ANSWER.search(text) is not None


def _explain(text: str, code: str, address: str) -> str:
    if code in {"UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED"} or " 401 " in text:
        return (
            f"The tracking server at {address} does not accept the credentials (401). Set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, in "
            "the environment."
        )
    if code == "PERMISSION_DENIED" or " 403 " in text:
        return (
            f"The tracking server at {address} does not allow this (403). Ask for permission to "
            "edit the experiment and the registered model."
        )
    found = _HTTP_ERROR.search(text)
    if found is not None and found[1] in _TRY_AGAIN:
        return (
            f"The tracking server at {address} runs but answers with an error (HTTP {found[1]}). "
            "Look at its log: the database or the artifact store behind it may be down."
        )
    if code == "TEMPORARILY_UNAVAILABLE":
        return f"The database at {address} does not answer. Check that it is running."
    if re.search(r"Read timed out|ReadTimeout", text):
        return (
            f"The tracking server at {address} accepts connections but does not answer in time. "
            "It may be overloaded, or the database behind it may be down: look at its log."
        )
    if _NO_ANSWER.search(text):
        return (
            f"The tracking server at {address} does not answer: {_no_connection(text)}. Check the "
            "address and that it is running: huc-monitor doctor."
        )
    said = masked(" ".join(text.split()))
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."


def _no_connection(text: str) -> str:
    if "Connection refused" in text:
        return "connection refused"
    if re.search(r"NameResolution|Name or service|getaddrinfo|nodename", text):
        return "its name is unknown"
    return "no connection in time" if "timed out" in text else "the connection broke off"


class Client:
    """`MlflowClient` with `discreetly` around every call, and a deadline for each.

    MLflow itself repeats a request for about four minutes. Here it is made once, and repeated
    until `deadline` seconds have passed if what went wrong may pass.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        registry_uri: str | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        if isinstance(deadline, bool) or not isinstance(deadline, int | float) or deadline <= 0:
            msg = f"`deadline` must be a number of seconds above 0; got {deadline!r}."
            raise InvalidInputError(msg)
        self._deadline = float(deadline)
        self._uris = (tracking_uri, registry_uri)
        self._client: MlflowClient | None = None

    @property
    def tracking_uri(self) -> str:
        """Where it speaks to; may hold a password."""
        return str(self._uris[0] or mlflow.get_tracking_uri())

    @property
    def registry_uri(self) -> str:
        """Where the models are registered."""
        return str(_resolve_registry_uri(self._uris[1], self._uris[0]))

    def hurried(self, seconds: float) -> Client:
        """Return a client for the same servers that gives up sooner."""
        return Client(*self._uris, min(seconds, self._deadline))

    def __getattr__(self, name: str) -> Any:
        @wraps(getattr(MlflowClient, name))
        def discreet(*args: Any, **kwargs: Any) -> Any:
            until, pause = time.monotonic() + self._deadline, _FIRST_PAUSE
            while True:
                try:
                    left = until - time.monotonic()
                    with discreetly(self.tracking_uri, seconds=left, once=True):
                        return getattr(self._reached(left), name)(*args, **kwargs)
                except TrackingError as error:
                    if not error.is_passing or time.monotonic() + pause >= until:
                        raise
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

        return discreet

    def _reached(self, seconds: float) -> MlflowClient:
        """Connect to a database once before MLflow does, which would retry for minutes."""
        if self._client is not None:
            return self._client
        if self.tracking_uri.startswith(_DATABASES):
            engine = create_engine(
                self.tracking_uri, connect_args={"connect_timeout": max(1, math.ceil(seconds))}
            )
            try:
                engine.connect().close()
            except OperationalError as error:
                why = masked(line(error.orig))
                msg = (
                    f"The database at {masked(self.tracking_uri)} does not answer: {why}. Check "
                    "the address and that it is running."
                )
                raise TrackingError(msg, "TEMPORARILY_UNAVAILABLE", is_passing=True) from None
            finally:
                engine.dispose()
        self._client = MlflowClient(*self._uris)
        return self._client


def filter_text(text: str) -> str:
    r"""Quote a text for a search filter, which has no escapes: with the quotes it does not hold.

    Examples
    --------
    >>> filter_text("triage"), filter_text("nurse's triage")
    ("'triage'", '"nurse\'s triage"')
    """
    for quote in "'\"":
        if quote not in text and "\\" not in text:
            return f"{quote}{text}{quote}"
    msg = (
        "A name in MLflow must have no backslash, and not both kinds of quotes, to be searched "
        f"for; got {quoted(text)}. Rename it."
    )
    raise InvalidInputError(msg)


def logged_model_of(client: Client, model: str, version: str) -> str | None:
    """Return the id of the logged model that a version was made from, None where there is none.

    Open-source servers do not say it, but a version's source does; that of a copied version is the
    version it was copied from.
    """
    try:
        for _ in range(_LONGEST_CHAIN):
            found = client.get_model_version(model, version)
            source = str(found.source)
            named = found.model_id or (_LOGGED_MODEL.search(source) or (None, None))[1]
            if named:
                return str(client.get_logged_model(named).model_id)
            copied = _VERSION_URI.fullmatch(source)
            if copied is None:
                return None
            model, version = copied.groups()
    except TrackingError as error:
        # A log may name a version that nobody registered, or a model of another server.
        if error.is_passing:
            raise
    return None
