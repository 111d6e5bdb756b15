"""Notes that all monitors of one model share, and a lease: one recalibration at a time.

Both live in tags of a run in an experiment of their own, where nobody edits; earlier versions kept
them in tags of the registered model, which are still read.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlflow.exceptions import MlflowException

from huc_mlflow._client import Client
from huc_monitor.errors import HUCError

_TAG = "huc.lease"
_SETTLE_SECONDS = 0.3
LAST = "huc.last_retraining"  # as earlier versions wrote it


class BusyError(HUCError, RuntimeError):
    """Another process is recalibrating the same model."""


class Notes:
    """Notes about one registered model, by key."""

    def __init__(self, client: Client, model: str) -> None:
        self._client, self._model = client, model

    @property
    def _run_id(self) -> str:
        # Searched for each time: two may make one at once, and all must then see the same.
        experiment = find_experiment(self._client, f"huc-monitor/notes/{self._model}")
        found = self._client.search_runs([experiment])
        if not found:
            tags = {"mlflow.note.content": "Notes of the monitors of this model. Not for editing."}
            self._client.create_run(experiment, tags=tags, run_name="notes")
            found = self._client.search_runs([experiment])
        return min(str(run.info.run_id) for run in found)

    def read(self, key: str) -> str:
        """Return a note, "" where there is none."""
        noted = self._client.get_run(self._run_id).data.tags.get(key)
        if noted is None:
            noted = self._client.get_registered_model(self._model).tags.get(key)
        return noted or ""

    def write(self, key: str, text: str) -> None:
        """Replace a note; "" is none."""
        self._client.set_tag(self._run_id, key, text)


def find_experiment(client: Client, name: str) -> str:
    """Return the id of an experiment, made if there is none."""
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name))
        except MlflowException:
            # Made by somebody else, or by a first try whose answer was lost.
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    return str(found.experiment_id)


class Lease:
    """The right to recalibrate one model; it expires by itself."""

    def __init__(self, notes: Notes, model: str) -> None:
        self._notes = notes
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
                self._notes.write(_TAG, "")

    def release(self, owner: str) -> None:
        """End a lease that a process left when it died after its work was done."""
        held = self._held()
        if held is not None and held["owner"] == owner:
            self._notes.write(_TAG, "")

    def _take(self, owner: str, ticket: str, seconds: float) -> None:
        self.confirm(owner)
        mine = {"owner": owner, "ticket": ticket, "expires": time.time() + seconds}
        self._notes.write(_TAG, json.dumps(mine))
        time.sleep(_SETTLE_SECONDS)
        self.confirm(owner)

    def confirm(self, owner: str) -> None:
        """Refuse to go on if another process has the lease: two may have begun at once."""
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
        text = self._notes.read(_TAG)
        try:
            held = None if not text else dict(json.loads(text))
        except ValueError:
            return None
        return held if held and {"owner", "ticket", "expires"} <= set(held) else None
