"""MLflow's client, made quiet and discreet: no progress bars, no secrets in what it raises.

MLflow puts the address of a request into its errors, and an address may hold a password. Errors
leave here as `TrackingError`, in words that say what to do, with everything secret masked.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from huc_monitor.errors import HUCError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Name and password in an address, as in a tracking URI.
_CREDENTIALS = re.compile(r"://[^/@\s\"']+@")
_SECRET_VARIABLES = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
# Progress bars, and addresses on standard output, where they would spoil a JSON document.
_QUIET = {
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_LONGEST = 500


class TrackingError(HUCError, MlflowException):
    """The tracking server or the registry refused, failed, or does not answer."""

    def __init__(self, message: str, error_code: str = "INTERNAL_ERROR") -> None:
        Exception.__init__(self, message)
        self.message = message
        self.error_code = error_code
        self.json_kwargs: dict[str, Any] = {}


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
def discreetly(address: str) -> Iterator[None]:
    """Turn MLflow's errors into ours, and what it prints off, inside the block."""
    before = {name: os.environ.get(name) for name in _QUIET}
    os.environ.update(_QUIET)
    try:
        yield
    except TrackingError:
        raise
    except MlflowException as error:
        code = str(getattr(error, "error_code", ""))
        raise TrackingError(_explain(str(error), code, masked(address)), code) from None
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


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
    if "Max retries exceeded" in text or "Connection refused" in text:
        return (
            f"The tracking server at {address} does not answer. Check the address and that it is "
            "running: huc-monitor doctor."
        )
    said = masked(" ".join(text.split()))
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."


class Client:
    """`MlflowClient` with `discreetly` around every call."""

    def __init__(self, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        self._client = MlflowClient(tracking_uri, registry_uri)

    @property
    def tracking_uri(self) -> str:
        """Where it speaks to; may hold a password."""
        return str(self._client.tracking_uri)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._wrapped(found) if callable(found) else found

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def discreet(*args: Any, **kwargs: Any) -> Any:
            with discreetly(self.tracking_uri):
                return call(*args, **kwargs)

        return discreet
