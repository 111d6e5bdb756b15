"""The model registry: recalibrated versions, and which of them is champion.

MLflow's client repeats a request whose answer was lost, and the registry has no transactions. So
every version carries the id of its recalibration, is looked up by it before and after it is made,
and of several the lowest number always wins; and what an alias pointed at is written down before
it is moved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode

from huc_mlflow._client import DEADLINE, UNITY_CATALOG, Client, discreetly, filter_text
from huc_mlflow._flavor import log_model, new_columns
from huc_mlflow._lease import Lease, Notes
from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.monitor.ports import Move

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

__all__ = ["Move", "Registry", "promote", "register_recalibrated", "rollback"]

CHAMPION, CHALLENGER = "champion", "challenger"
ID_TAG = "huc.recalibration_id"
BASE_TAG = "huc.base_version"
PREVIOUS_TAG = "huc.previous_champion"
_COLUMNS_TAG = "huc.new_columns"
_ROLLBACK_TAG = "huc.rollback"
_NOT_THERE = (ErrorCode.Name(RESOURCE_DOES_NOT_EXIST), "INVALID_PARAMETER_VALUE")
_LONGEST_DESCRIPTION = 5_000


class Registry:
    """One registered model.

    Parameters
    ----------
    model : str
        Its name in the registry.
    tracking_uri, registry_uri : str, optional
        MLflow's own settings when left out.
    deadline : float, default 30
        Seconds after which a call that gets no answer is given up.
    """

    def __init__(
        self,
        model: str,
        *,
        tracking_uri: str | None = None,
        registry_uri: str | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        self.model = model
        self.client = Client(tracking_uri, registry_uri, deadline)
        if self.client.registry_uri.startswith(UNITY_CATALOG):
            msg = (
                f"`registry_uri` must not be that of Unity Catalog ({self.client.registry_uri}) to "
                "recalibrate: it does not search versions by tags, and its tags take no names with "
                "dots. Set `registry_uri: databricks` (the workspace registry), or "
                "`recalibration.enabled: false`; checks and alerts need no registry."
            )
            raise InvalidInputError(msg)
        self._name_filter = f"name = {filter_text(model)}"
        self.notes = Notes(self.client, model)
        self.lease = Lease(self.notes, model)
        self._uris, self._deadline = (tracking_uri, registry_uri), deadline

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let MLflow's module-level functions speak to the same servers."""
        tracking, registry = mlflow.get_tracking_uri(), mlflow.get_registry_uri()
        wanted = self._uris[0] or tracking
        # The registry follows the tracking server unless it was set by itself: keep it that way.
        follows = registry == tracking
        inherited = os.environ.get("MLFLOW_REGISTRY_URI")  # set by MLflow, for child processes
        try:
            mlflow.set_tracking_uri(wanted)
            mlflow.set_registry_uri(self._uris[1] or wanted)
            with discreetly(wanted, seconds=self._deadline):
                yield
        finally:
            mlflow.set_tracking_uri(tracking)
            mlflow.set_registry_uri("" if follows else registry)
            if inherited is None:
                os.environ.pop("MLFLOW_REGISTRY_URI", None)

    # Versions.

    def at(self, alias: str) -> ModelVersion | None:
        """Return the version that an alias points at."""
        try:
            found: ModelVersion = self.client.get_model_version_by_alias(self.model, alias)
        except MlflowException as error:
            if error.error_code in _NOT_THERE:
                return None
            raise
        return found

    def version(self, number: str) -> ModelVersion:
        """Return a version by its number."""
        try:
            found: ModelVersion = self.client.get_model_version(self.model, str(number))
        except MlflowException as error:
            if error.error_code not in _NOT_THERE:
                raise
            known = ", ".join(str(version.version) for version in self.versions()) or "none"
            msg = (
                f"`version` must be a version of {self.model!r}; got {number!r}. "
                f"There are: {known}."
            )
            raise UnknownNameError(msg) from None
        return found

    def versions(self, wanted: str = "") -> list[ModelVersion]:
        """Return versions that match a filter, the lowest number first."""
        query = self._name_filter + (f" and {wanted}" if wanted else "")
        found: list[ModelVersion] = []
        token = None
        while True:
            page = self.client.search_model_versions(query, max_results=200, page_token=token)
            found += page
            token = page.token
            if not token:
                return sorted(found, key=lambda version: int(version.version))

    def current(self) -> ModelVersion:
        """Return the champion; without one, the newest version that is no recalibration."""
        champion = self.at(CHAMPION)
        if champion is not None:
            return champion
        plain = [version for version in self.versions() if ID_TAG not in version.tags]
        if not plain:
            msg = (
                f"`model` must have a version in the registry; got {self.model!r} without one. "
                f"Register the base model first: mlflow.register_model(uri, {self.model!r})."
            )
            raise InvalidInputError(msg)
        return plain[-1]

    def root(self, version: ModelVersion) -> ModelVersion:
        """Return the base version that a version wraps, or the version itself."""
        base = version.tags.get(BASE_TAG)
        return version if base is None else self.version(base)

    def uri(self, version: ModelVersion) -> str:
        """Return where a version is loaded from."""
        return f"models:/{self.model}/{version.version}"

    def new_columns(self, base: ModelVersion, recalibrator: Any, tree: Any = None) -> list[str]:
        """Name what requests must carry for a recalibration of a base and need not for the base."""
        with self.active():
            model = Model.load(self.uri(base))
        return new_columns(model, recalibrator, tree)

    # Registering.

    def register(
        self,
        recalibrator: Any,
        *,
        recalibration_id: str,
        base: ModelVersion,
        run_id: str | None = None,
        description: str = "",
        tags: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ModelVersion:
        """Make the recalibration of a base version the next version, once, as challenger.

        Calling it again with the same id finds the version, or completes what is missing.
        """
        wanted = f"tags.`{ID_TAG}` = {filter_text(recalibration_id)}"
        found = self.versions(wanted)
        if not found:
            model_id, source = self._logged(recalibrator, recalibration_id, base, run_id, options)
            given = {str(key): str(value) for key, value in (tags or {}).items()}
            columns = self.new_columns(base, recalibrator, options.get("tree"))
            given |= {_COLUMNS_TAG: json.dumps(columns)} if columns else {}
            # MLflow looks up a `models:/` source at its global address, whatever the client's is.
            with self.active():
                self.client.create_model_version(
                    self.model,
                    source=source,
                    run_id=run_id,
                    tags={**given, ID_TAG: recalibration_id, BASE_TAG: str(base.version)},
                    description=description[:_LONGEST_DESCRIPTION],
                    model_id=model_id,
                )
            found = self.versions(wanted)
        kept, *spare = found
        for version in spare:
            self.client.delete_model_version(self.model, version.version)
        champion = self.at(CHAMPION)
        if champion is None or not _same(champion, kept):
            self._point(CHALLENGER, kept)
        return kept

    def _logged(
        self,
        recalibrator: Any,
        recalibration_id: str,
        base: ModelVersion,
        run_id: str | None,
        options: Mapping[str, Any],
    ) -> tuple[str, str]:
        """Find the logged model of this recalibration, or log it."""
        given = {"tags": {ID_TAG: recalibration_id}, "run_id": run_id, **options}
        for tries_left in (1, 0):
            ready = self._ready(recalibration_id, run_id)
            if ready is not None:
                return ready, f"models:/{ready}"
            try:
                with self.active():
                    info = log_model(self.uri(base), recalibrator, **given)
                return str(info.model_id), str(info.model_uri)
            except MlflowException:
                # Linking a model to its run is refused the second time, and MLflow's client
                # repeats it when the first answer is lost: begin again, with another model.
                if not tries_left:
                    raise
        raise AssertionError  # unreachable: the last try returns or raises

    def _ready(self, recalibration_id: str, run_id: str | None) -> str | None:
        """Find a model that was logged for this recalibration and not registered yet."""
        if run_id is None:
            return None
        experiment = self.client.get_run(run_id).info.experiment_id
        query = f"tags.`{ID_TAG}` = {filter_text(recalibration_id)}"
        logged = self.client.search_logged_models([experiment], filter_string=query)
        ready = sorted(item.model_id for item in logged if str(item.status) == "READY")
        return str(ready[0]) if ready else None

    def _point(self, alias: str, version: ModelVersion) -> None:
        now = self.at(alias)
        if now is None or not _same(now, version):
            self.client.set_registered_model_alias(self.model, alias, version.version)

    # Moving the champion.

    def promote(self, version: str | None = None) -> Move:
        """Make a version champion, the challenger when none is named.

        What was champion before is written into the tag ``huc.previous_champion`` of the new one
        before the alias moves, so that `rollback` finds it whatever happens in between.
        """
        now = self.at(CHAMPION)
        chosen = self.at(CHALLENGER) if version is None else self.version(version)
        if chosen is None and now is not None and PREVIOUS_TAG in now.tags:
            chosen = now  # asked again, perhaps because the answer was lost
        if chosen is None:
            known = ", ".join(str(version.version) for version in self.versions()) or "none"
            msg = (
                f"There is nothing to promote: {self.model!r} has no challenger. Make one with "
                f"`huc-monitor recalibrate`, or name a version with `--version` (there are: "
                f"{known})."
            )
            raise InvalidInputError(msg)
        if now is not None and _same(now, chosen):
            previous = chosen.tags.get(PREVIOUS_TAG)
            self.withdraw(chosen)
            return Move(self.model, CHAMPION, str(chosen.version), previous, moved=False)
        previous = str(now.version) if now is not None else chosen.tags.get(BASE_TAG)
        if previous is not None:
            self.tag(chosen, PREVIOUS_TAG, previous)
        self.client.set_registered_model_alias(self.model, CHAMPION, chosen.version)
        self.withdraw(chosen)
        return Move(self.model, CHAMPION, str(chosen.version), previous, columns=columns_of(chosen))

    def rollback(self) -> Move:
        """Give the champion alias back to the version that had it before."""
        begun = self.notes.read(_ROLLBACK_TAG)
        if begun:
            plan = json.loads(begun)
            source, target = self.version(plan["from"]), self.version(plan["to"])
        else:
            now = self.at(CHAMPION)
            previous = None if now is None else now.tags.get(PREVIOUS_TAG)
            if now is None or previous is None:
                msg = (
                    f"`model` must have a champion that replaced another version; {self.model!r} "
                    "has none. Name the version to go back to: huc-monitor promote --version N."
                )
                raise InvalidInputError(msg)
            source, target = now, self.version(previous)
            plan = {"from": str(source.version), "to": str(target.version)}
            self.notes.write(_ROLLBACK_TAG, json.dumps(plan))
        self._point(CHAMPION, target)
        self.withdraw(source)
        self.tag(source, "huc.rolled_back", "true")
        self.notes.write(_ROLLBACK_TAG, "")
        return Move(self.model, CHAMPION, str(target.version), str(source.version))

    def withdraw(self, version: ModelVersion) -> None:
        """Take the challenger alias away from a version, if it has it."""
        challenger = self.at(CHALLENGER)
        if challenger is not None and _same(challenger, version):
            self.client.delete_registered_model_alias(self.model, CHALLENGER)

    def tag(self, version: ModelVersion, key: str, value: str) -> None:
        """Write a tag of a version, unless it has that value."""
        # Writing the same value again would fire the registry's webhook again.
        if version.tags.get(key) != value:
            self.client.set_model_version_tag(self.model, version.version, key, value)


def columns_of(version: ModelVersion) -> tuple[str, ...]:
    """Return what requests must carry for a version and need not for its base."""
    return tuple(json.loads(version.tags.get(_COLUMNS_TAG, "[]")))


def _same(one: ModelVersion, other: ModelVersion) -> bool:
    # A number or a text, depending on how the version was found.
    return str(one.version) == str(other.version)


def register_recalibrated(
    model: str,
    recalibrator: Any,
    *,
    recalibration_id: str,
    base_version: str | None = None,
    description: str = "",
    tags: Mapping[str, str] | None = None,
    run_id: str | None = None,
    **options: Any,
) -> ModelVersion:
    """Register a recalibration as the next version of a model, alias ``challenger``.

    Parameters
    ----------
    model : str
        Name in the registry.
    recalibrator : HUCBoost or Scaling
        Fitted on the probabilities of the root base version.
    recalibration_id : str
        Calling it again with the same id gives the same version.
    base_version : str, optional
        The champion's root base when left out.
    description : str
        What people read in the registry.
    tags : dict, optional
    run_id : str, optional
        The run to log the model in; a run of its own when left out.
    **options
        As in `save_model`.
    """
    registry = Registry(model)
    base = registry.root(
        registry.current() if base_version is None else registry.version(base_version)
    )
    return registry.register(
        recalibrator,
        recalibration_id=recalibration_id,
        base=base,
        description=description,
        tags=tags,
        run_id=run_id,
        **options,
    )


def promote(model: str, version: str | None = None) -> Move:
    """Make a version champion: the challenger, or the one named."""
    return Registry(model).promote(version)


def rollback(model: str) -> Move:
    """Restore the version that was champion before."""
    return Registry(model).rollback()
