"""One recalibration of a model at a time: a lease kept in a tag of the registered model."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from huc_monitor.errors import HUCError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from huc_mlflow._client import Client

_TAG = "huc.lease"
_SETTLE_SECONDS = 0.3


class BusyError(HUCError, RuntimeError):
    """Another process is recalibrating the same model."""


class Lease:
    """The right to recalibrate one model; it expires by itself."""

    def __init__(self, client: Client, model: str) -> None:
        self._client = client
        self._model = model

    @contextmanager
    def hold(self, owner: str, *, seconds: float = 3600.0) -> Iterator[None]:
        """Hold the right to recalibrate the model; it expires by itself.

        Whoever has the same `owner`, a recalibration's id, may enter: that is a process going on
        with what another one left. A tag knows no compare-and-set, so both of two simultaneous
        writers wait a moment and look again: the last one has it.
        """
        ticket = uuid.uuid4().hex
        self._take(owner, ticket, seconds)
        try:
            yield
        finally:
            held = self._held()
            if held is not None and held["ticket"] == ticket:
                self._client.delete_registered_model_tag(self._model, _TAG)

    def confirm(self, owner: str) -> None:
        """Refuse to go on if another process took the lease since: two may have begun at once."""
        self._refuse_if_taken(owner)

    def release(self, owner: str) -> None:
        """End a lease that a process left when it died after its work was done."""
        held = self._held()
        if held is not None and held["owner"] == owner:
            self._client.delete_registered_model_tag(self._model, _TAG)

    def _take(self, owner: str, ticket: str, seconds: float) -> None:
        self._refuse_if_taken(owner)
        mine = {"owner": owner, "ticket": ticket, "expires": time.time() + seconds}
        self._client.set_registered_model_tag(self._model, _TAG, json.dumps(mine))
        time.sleep(_SETTLE_SECONDS)
        self._refuse_if_taken(owner)

    def _refuse_if_taken(self, owner: str) -> None:
        held = self._held()
        if held is None or held["owner"] == owner or held["expires"] <= time.time():
            return
        left = held["expires"] - time.time()
        msg = (
            f"Model {self._model!r} is being recalibrated by another process (recalibration "
            f"{held['owner']}); its lease ends in {left:.0f} s at the latest. Try again later."
        )
        raise BusyError(msg)

    def _held(self) -> dict[str, Any] | None:
        text = self._client.get_registered_model(self._model).tags.get(_TAG)
        try:
            held = None if not text else dict(json.loads(text))
        except ValueError:
            return None
        return held if held and {"owner", "ticket", "expires"} <= set(held) else None
