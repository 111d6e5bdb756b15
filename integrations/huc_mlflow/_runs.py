"""The runs of one monitor: found or made by kind and key, their files, what they are linked with.

Every create is looked up by a tag first and again afterwards, and of several runs with one tag the
same one always wins: MLflow's client repeats a request whose answer was lost, so one call may
leave two runs.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelInput
from mlflow.exceptions import MlflowException
from mlflow.tracking.context.registry import resolve_tags

from huc_mlflow._client import Client, TrackingError, filter_text, logged_model_of, masked
from huc_mlflow._lease import find_experiment
from huc_monitor._common.safe_text import file_name
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.monitor.ports.stored import DamagedError

if TYPE_CHECKING:
    from mlflow.entities import Run

RECALIBRATION = "retraining"  # the kind of its runs, as earlier versions wrote it
_PAGE = 1_000


class Runs:
    """Runs of a monitor in one experiment.

    Parameters
    ----------
    client : Client
    info : MonitorInfo
    experiment : str
        Its name; created when missing.
    """

    def __init__(self, client: Client, info: MonitorInfo, experiment: str) -> None:
        self.client = client
        self._info = info
        self.experiment_name = experiment
        self._models: dict[str, str | None] = {}

    @cached_property
    def experiment(self) -> str:
        """Id of the experiment, made if there is none."""
        return find_experiment(self.client, self.experiment_name)

    # Finding.

    def places(self) -> list[str]:
        """Return the experiments to search in; none where nothing was written yet."""
        if "experiment" not in vars(self):
            found = self.client.get_experiment_by_name(self.experiment_name)
            if found is None:
                return []
            self.experiment = str(found.experiment_id)
        return [self.experiment]

    def search(
        self, kind: str, key: str | None = None, *, newest: int | None = None
    ) -> Iterator[Run]:
        """Find runs of this monitor by kind, and by key where one is given.

        With `newest`, those with the highest key come first, and as many are asked for at a time.
        """
        identity = filter_text(self._info.identity)
        wanted = f"tags.`huc.kind` = '{kind}' and tags.`huc.identity` = {identity}"
        if key is not None:
            sign = "LIKE" if key.endswith("%") else "="
            wanted += f" and tags.`huc.key` {sign} {filter_text(key)}"
        places = self.places()
        token = None
        while places:
            page = self.client.search_runs(
                places,
                wanted,
                max_results=newest or _PAGE,
                order_by=["tags.`huc.key` DESC"] if newest else None,
                page_token=token,
            )
            yield from page
            token = page.token
            if not token:
                return

    def find_or_make(self, kind: str, key: str, name: str, tags: Mapping[str, str]) -> Run:
        """Return the one run of this monitor with that kind and key; made if there is none."""
        found = list(self.search(kind, key))
        if not found:
            mine = {"huc.kind": kind, "huc.key": key, "huc.identity": self._info.identity}
            given = {**self._context, **tags, **mine}
            self.client.create_run(self.experiment, tags=given, run_name=name)
            found = list(self.search(kind, key))
        kept, *spare = sorted(found, key=lambda run: str(run.info.run_id))
        for run in spare:
            self.client.set_tag(run.info.run_id, "huc.kind", "duplicate")
            self.client.delete_run(run.info.run_id)
        return kept

    @cached_property
    def _context(self) -> dict[str, str]:
        """Who runs the monitor from where, as MLflow itself notes it of runs."""
        return dict(
            resolve_tags({"mlflow.source.name": "huc-monitor", "mlflow.source.type": "JOB"})
        )

    def find(self, kind: str, key: str) -> Run | None:
        """Return the one run of this monitor with that kind and key, if there is one."""
        found = sorted(self.search(kind, key), key=lambda run: str(run.info.run_id))
        return found[0] if found else None

    # Links.

    def logged_model(self, version: str | None) -> str | None:
        """Return the id of the logged model behind a version, None where it cannot be known."""
        if self._info.model is None or version is None:
            return None
        if version not in self._models:
            self._models[version] = logged_model_of(self.client, self._info.model, version)
        return self._models[version]

    def dataset(self, key: str, start: datetime, end: datetime, **profile: int | None) -> Dataset:
        """Describe rows of the log: when they were, where they are, how many."""
        source = {
            "start": start.isoformat(),
            "end": end.isoformat(),
            "log": ((self._info.settings or {}).get("source") or {}).get("log"),
        }
        return Dataset(
            name=file_name(self._info.name),
            digest=checksum(key)[:12],
            source_type="huc_monitor",
            source=masked(json.dumps(source, default=str)),
            profile=json.dumps(profile),
        )

    def log_inputs(self, run_id: str, dataset: Dataset, context: str, *models: str | None) -> None:
        """Link a run with the data it used, and for what, and with logged models."""
        inputs = [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])]
        known = [LoggedModelInput(model) for model in models if model is not None]
        self.client.log_inputs(run_id, inputs, known)

    # Files.

    def log_files(self, run_id: str, artifacts: Mapping[str, bytes]) -> None:
        """Write files into a run, by their names."""
        with tempfile.TemporaryDirectory() as folder:
            for name, content in artifacts.items():
                path = Path(folder) / file_name(name)
                path.write_bytes(content)
                self.client.log_artifact(run_id, str(path))

    def read(self, run_id: str, artifact: str) -> str:
        """Read a text file of a run; what is missing is told from a store that is silent."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                path = self.client.download_artifacts(run_id, artifact, folder)
                return Path(path).read_bytes().decode()
            except (MlflowException, OSError, UnicodeDecodeError) as error:
                if isinstance(error, TrackingError) and not self._is_missing(run_id, artifact):
                    raise
                msg = (
                    f"{artifact!r} of run {run_id} cannot be read: it is missing or damaged. "
                    "Restore the artifact store."
                )
                raise DamagedError(msg) from error

    def _is_missing(self, run_id: str, artifact: str) -> bool:
        """Tell a file that is not there from a store that does not answer."""
        folder = artifact.rpartition("/")[0] or None
        return artifact not in {f.path for f in self.client.list_artifacts(run_id, folder)}


def checksum(text: str) -> str:
    """Hash a text, to notice another one."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
