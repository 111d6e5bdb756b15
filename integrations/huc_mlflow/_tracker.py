"""The MLflow tracker: a run per monitor, a child run per window, the monitor's state beside them.

Every create is looked up by a tag first and again afterwards, and of several runs with one tag the
same one always wins: MLflow's client repeats a request whose answer was lost, so one call may
leave two runs. Everything else is written so that writing it again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import tempfile
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow.entities import Dataset, DatasetInput, Metric, RunTag
from mlflow.exceptions import MlflowException

from huc_mlflow._client import DEADLINE, Client, TrackingError, masked
from huc_mlflow._pages import report_files
from huc_monitor._common.safe_text import file_name, metric_key, plain
from huc_monitor.errors import HUCError
from huc_monitor.monitor.ports.stored import (
    RESTORE_STATE,
    DamagedError,
    choose_keys,
    read_stored,
    readable_records,
)
from huc_monitor.monitor.records import WindowRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mlflow.entities import Run

    from huc_monitor.monitor.ports import MonitorInfo
    from huc_monitor.monitor.records import AlertState

log = logging.getLogger("huc_monitor")

# What MLflow takes in one request.
_MOST_METRICS = 1_000
_MOST_TAG_CHARACTERS = 5_000
RECALIBRATION = "retraining"  # the kind of its runs, as earlier versions wrote it
_STATE_SLOTS = ("state/a.json", "state/b.json")
_VERSION = "huc.model_version"
_PAGE = 1_000
_MOST_CHANGES = 10
_IMPATIENT = 5.0


class MLflowTracker:
    """Records and state of a monitor in an MLflow tracking store.

    The monitor run carries all node metrics, one step per window: ``huc/<utility>/<subgroup>/
    <node>`` is the moment, and ``huc_lower``, ``huc_upper`` and ``huc_ratio`` (absolute moment
    over tolerance) go with it. Of the branches that changed by more than chance since the
    reference, the ten clearest have ``change/<node>``, ``change_lower`` and ``change_upper``. Each
    window has a child run with its record, pictures, summary metrics and the tags ``huc.status``,
    ``huc.level`` and ``huc.changed`` (the branches that changed). The alert status is a tag of the
    model version, written only when it changes, so that the registry's webhooks fire once.

    Parameters
    ----------
    info : MonitorInfo
    tracking_uri : str, optional
        As for `mlflow.set_tracking_uri`; MLflow's own setting when left out.
    registry_uri : str, optional
    experiment : str, optional
        ``huc-monitor/<monitor's name>`` when left out; created when missing.
    deadline : float, default 30
        Seconds after which a call to a server or database that does not answer is given up.
    """

    def __init__(
        self,
        info: MonitorInfo,
        tracking_uri: str | None = None,
        registry_uri: str | None = None,
        experiment: str | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        self._info = info
        self._client = Client(tracking_uri, registry_uri, deadline)
        self._experiment_name = experiment or f"huc-monitor/{info.name}"
        self._run_id: str | None = None
        self._seen_state: str | None = None
        self._model_version: str | None = None

    def ping(self) -> str:
        """Ask the tracking store for anything, impatiently; say where it answered."""
        self._client.hurried(_IMPATIENT).search_experiments(max_results=1)
        return f"answers at {masked(self._client.tracking_uri)}"

    # Runs.

    lock_path = None  # the store has none; a file on this machine keeps two checks apart

    @property
    def run_id(self) -> str:
        """Id of the monitor run, made at the first use."""
        if self._run_id is None:
            settings = json.dumps(self._info.settings or {}, sort_keys=True, default=str)
            tags = {
                "huc.kind": "monitor",
                "huc.monitor": self._info.name,
                "huc.identity": self._info.identity,
                "huc.model": self._info.model or "",
                "huc.settings": masked(settings)[:_MOST_TAG_CHARACTERS],
                "mlflow.note.content": f"Utility calibration of {self._info.name}, by branch.",
            }
            kept = self.find_or_make("monitor", self._info.identity, self._info.name, tags)
            self._run_id = str(kept.info.run_id)
        return self._run_id

    @cached_property
    def _experiment(self) -> str:
        """Id of the experiment, made at the first use."""
        name = self._experiment_name
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(self._client.create_experiment(name))
        except MlflowException:
            # Made by somebody else, or by a first try whose answer was lost.
            found = self._client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)

    def _search(
        self, kind: str, key: str | None = None, *, newest: int | None = None
    ) -> Iterator[Run]:
        """Find runs of this monitor by kind, and by key where one is given.

        With `newest`, those with the highest key come first, and as many are asked for at a time.
        """
        wanted = f"tags.`huc.kind` = '{kind}' and tags.`huc.identity` = '{self._info.identity}'"
        if key is not None:
            sign = "LIKE" if key.endswith("%") else "="
            wanted += f" and tags.`huc.key` {sign} '{key}'"
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment],
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
        found = list(self._search(kind, key))
        if not found:
            given = {**tags, "huc.kind": kind, "huc.key": key, "huc.identity": self._info.identity}
            self._client.create_run(self._experiment, tags=given, run_name=name)
            found = list(self._search(kind, key))
        kept, *spare = sorted(found, key=lambda run: str(run.info.run_id))
        for run in spare:
            self._client.set_tag(run.info.run_id, "huc.kind", "duplicate")
            self._client.delete_run(run.info.run_id)
        return kept

    def find(self, kind: str, key: str) -> Run | None:
        """Return the one run of this monitor with that kind and key, if there is one."""
        found = sorted(self._search(kind, key), key=lambda run: str(run.info.run_id))
        return found[0] if found else None

    # State.

    def load_state(self) -> dict[str, Any] | None:
        """Read the state that the monitor run's tag points at, to go on from it."""
        self._seen_state = self._client.get_run(self.run_id).data.tags.get("huc.state")
        return self._state_at(self._seen_state)

    def peek_state(self) -> dict[str, Any] | None:
        """Read the state only to look: `save_state` still minds what others did meanwhile."""
        return self._state_at(self._client.get_run(self.run_id).data.tags.get("huc.state"))

    def previous_state(self) -> dict[str, Any] | None:
        """Read the state of the newest other monitor run in the experiment."""
        wanted = "tags.`huc.kind` = 'monitor'"
        order = ["attributes.start_time DESC"]
        for run in self._client.search_runs([self._experiment], wanted, order_by=order):
            pointer = run.data.tags.get("huc.state")
            if run.data.tags.get("huc.identity") != self._info.identity and pointer is not None:
                return self._state_at(pointer, str(run.info.run_id))
        return None

    def _state_at(self, pointer: str | None, run_id: str | None = None) -> dict[str, Any] | None:
        if pointer is None:
            return None
        run_id = run_id or self.run_id
        slot, _, digest = pointer.partition(" ")
        where = f"The state of monitor {self._info.name!r} ({slot!r} of run {run_id})"
        text = self._read(run_id, slot)
        if _digest(text) != digest:
            msg = (
                f"{where} is damaged: its checksum does not match. Restore the artifact store, or "
                "delete the run's tag 'huc.state' to start afresh."
            )
            raise DamagedError(msg)
        return read_stored(text, dict, where=where, remedy=RESTORE_STATE)

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Write the state beside the current one, then move the pointer: all or nothing."""
        current = self._client.get_run(self.run_id).data.tags.get("huc.state")
        if current != self._seen_state:
            msg = (
                f"Another process moved the state of monitor {self._info.name!r} meanwhile. "
                "Nothing was overwritten; run the check again."
            )
            raise HUCError(msg)
        text = json.dumps(state, allow_nan=False, ensure_ascii=False)
        used = None if current is None else current.split(" ")[0]
        slot = _STATE_SLOTS[1] if used == _STATE_SLOTS[0] else _STATE_SLOTS[0]
        self._client.log_text(self.run_id, text, slot)
        pointer = f"{slot} {_digest(text)}"
        self._client.set_tag(self.run_id, "huc.state", pointer)
        self._seen_state = pointer

    # Records.

    def record(self, record: WindowRecord, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Log a window: node metrics on the monitor run, everything else on its child run."""
        tags = {
            "mlflow.parentRunId": self.run_id,
            "huc.monitor": self._info.name,
            "huc.window": record.window_id,
            "huc.status": "alert" if record.level else record.status,
            "huc.level": record.level or "none",
            "huc.changed": _changed_nodes(record),
        }
        name = f"{record.start:%Y-%m-%d %H:%M} #{record.ordinal}"
        child = self.find_or_make("window", record.key, name, tags)
        self._note_version(record.model_version)
        if child.data.tags.get("huc.complete") == "1":
            return
        child_id = str(child.info.run_id)
        self._log(self.run_id, record, node_metrics(record))
        self._log(child_id, record, summary_metrics(record))
        self._log_dataset(child_id, record)
        self._client.log_text(child_id, record.to_json(), "record.json")
        self._log_files(child_id, self._pages(record) | dict(artifacts or {}))
        done = [RunTag(key, value) for key, value in {**tags, "huc.complete": "1"}.items()]
        self._client.log_batch(child_id, tags=done)
        self._client.set_terminated(child_id)

    def remark(self, record: WindowRecord) -> str | None:
        """Say that rows were served by another version than the registry's champion."""
        served = record.model_version
        if self._info.model is None or served is None or self._champion in {None, served}:
            return None
        return (
            f"The log's rows were served by version {served}, and the champion of "
            f"{self._info.model!r} is version {self._champion}: deploy it, or promote the other."
        )

    @cached_property
    def _champion(self) -> str | None:
        """Version that is champion as the check begins, None where the registry has none."""
        try:
            found = self._client.get_model_version_by_alias(self._info.model, "champion")
        except MlflowException as error:
            if getattr(error, "is_passing", False):
                raise
            return None
        return str(found.version)

    def _note_version(self, version: str | None) -> None:
        """Keep on the monitor run which version served last: reading it back costs no search."""
        if version is not None and version != self._model_version:
            self._client.set_tag(self.run_id, _VERSION, version)
            self._model_version = version

    def _pages(self, record: WindowRecord) -> dict[str, bytes]:
        if record.audit is None:
            return {}
        return report_files(record, self._info.tree)

    def _log(self, run_id: str, record: WindowRecord, values: Mapping[str, float]) -> None:
        # A revision keeps its step and comes a moment later, so that it is the step's last word.
        when = int(record.end.timestamp() * 1000) + record.revision
        metrics = [Metric(key, value, when, record.ordinal) for key, value in values.items()]
        for first in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(run_id, metrics=metrics[first : first + _MOST_METRICS])

    def _log_dataset(self, run_id: str, record: WindowRecord) -> None:
        source = {
            "window": record.window_id,
            "start": record.start.isoformat(),
            "end": record.end.isoformat(),
            "revision": record.revision,
        }
        profile = {"n_predictions": record.n_predictions, "n_labelled": record.n_labelled}
        dataset = Dataset(
            name=file_name(self._info.name),
            digest=_digest(record.key)[:12],
            source_type="huc_monitor",
            source=json.dumps(source),
            profile=json.dumps(profile),
        )
        self._client.log_inputs(run_id, [DatasetInput(dataset=dataset, tags=[])])

    def _log_files(self, run_id: str, artifacts: Mapping[str, bytes]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in artifacts.items():
                path = Path(folder) / file_name(name)
                path.write_bytes(content)
                self._client.log_artifact(run_id, str(path))

    def _read(self, run_id: str, artifact: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            try:
                path = self._client.download_artifacts(run_id, artifact, folder)
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
        return artifact not in {f.path for f in self._client.list_artifacts(run_id, folder)}

    def records(self, last: int | None = None, until: int | None = None) -> list[WindowRecord]:
        """Return complete records in order: all, or of the `last` windows up to an ordinal."""
        ids: dict[str, str] = {}
        windows: set[int] = set()
        for run in self._search("window", newest=last and 2 * last):
            if run.data.tags.get("huc.complete") != "1":
                continue
            key = str(run.data.tags["huc.key"])
            ordinal = int(key.partition("-")[0])
            if until is None or ordinal <= until:
                windows.add(ordinal)
            if last is not None and len(windows) > last:
                break  # the newest come first
            ids[key] = str(run.info.run_id)
        return readable_records(
            (f"'record.json' of run {ids[key]}", partial(self._read, ids[key], "record.json"))
            for key in choose_keys(ids, last, until)
        )

    def window(self, ordinal: int) -> WindowRecord | None:
        """Return the first complete record of one window, without reading any other."""
        runs = [
            run
            for run in self._search("window", f"{ordinal:06d}-%")
            if run.data.tags.get("huc.complete") == "1"
        ]
        keys = {str(run.data.tags["huc.key"]): str(run.info.run_id) for run in runs}
        audited = sorted(key for key in keys if not key.endswith("-pending"))
        if not audited:
            return None
        return WindowRecord.from_json(self._read(keys[audited[0]], "record.json"))

    # Alerts.

    def set_alert_status(self, status: str, alerts: Sequence[AlertState]) -> None:
        """Tag the monitor run, the model version and the registered model."""
        worst = ", ".join(
            f"{plain(a.node)} ({plain(a.subgroup)}, {plain(a.utility)}){_people(a)}"
            for a in alerts[:5]
        )
        self._client.log_batch(
            self.run_id, tags=[RunTag("huc.status", status), RunTag("huc.alerts", worst)]
        )
        model, version = self._info.model, self._version()
        if model is None or version is None:
            return
        try:
            if self._client.get_model_version(model, version).tags.get("huc.status") != status:
                self._client.set_model_version_tag(model, version, "huc.alerts", worst)
                self._client.set_model_version_tag(model, version, "huc.status", status)
            self._client.set_registered_model_tag(model, "huc.status", status)
        except MlflowException as error:
            # A log may name models that live elsewhere; the status is then on the run alone.
            log.warning("alert status not written to model %r: %s", model, error.error_code)

    def _version(self) -> str | None:
        """Return the version that the log named last, or else the champion."""
        if self._info.model is None:
            return None
        known = self._model_version or self._client.get_run(self.run_id).data.tags.get(_VERSION)
        if known is None:
            try:
                found = self._client.get_model_version_by_alias(self._info.model, "champion")
            except MlflowException:
                return None
            known = str(found.version)
        return str(known)

    def close(self) -> None:
        """Nothing to let go of."""


def _people(alert: AlertState) -> str:
    """Say who muted or acknowledged an alert, if anyone did."""
    if alert.muted is not None:
        return f", muted {plain(alert.muted)}"
    return "" if alert.acked is None else f", {plain(str(alert.acked))}"


def node_metrics(record: WindowRecord) -> dict[str, float]:
    """Every candidate's moment, bounds and share of its tolerance, by metric key.

    Values that are not finite are left out, and counted in ``monitor/undefined``: on a logged
    model MLflow would store them as zero, which reads as perfect.
    """
    found: dict[str, float | None] = {
        "monitor/n_labelled": float(record.n_labelled),
        "monitor/coverage": float(record.coverage),
        "monitor/n_quarantined": float(record.n_quarantined),
    }
    for item in record.forecasts:
        place = metric_key(item.utility)
        found |= {
            f"forecast/{place}": item.value,
            f"forecast_lower/{place}": item.lower,
            f"forecast_upper/{place}": item.upper,
            f"realised/{place}": item.realised,
        }
    result = record.result
    if result is None:
        return {key: float(value) for key, value in found.items() if value is not None}
    figures = ("huc", "uc", "huc_lower", "huc_upper")
    found |= {f"monitor/{name}": getattr(result, name) for name in figures}
    if record.detector is not None:
        found["monitor/e_detector"] = record.detector.get("value")
    found |= _change_metrics(record)
    table = result.candidates
    lower, upper = table.lower, table.upper
    for row, tolerance in enumerate(record.tolerances):
        names = table.utility[row], table.subgroup[row], table.node[row]
        place, moment = "/".join(map(metric_key, names)), table.moment[row]
        found[f"huc/{place}"] = moment
        found[f"huc_lower/{place}"] = lower[row]
        found[f"huc_upper/{place}"] = upper[row]
        found[f"huc_ratio/{place}"] = abs(moment) / tolerance if tolerance else None
        if table.label_coverage[row] < 1:
            found[f"huc_label_coverage/{place}"] = table.label_coverage[row]
    finite = {
        key: float(value)
        for key, value in found.items()
        if value is not None and math.isfinite(value)
    }
    return finite | {"monitor/undefined": float(len(found) - len(finite))}


def _changed_nodes(record: WindowRecord) -> str:
    """Name the branches that changed, the surest first; "none" if none did."""
    nodes = [one.node for one in record.findings if one.change is not None]
    return plain(", ".join(nodes[:_MOST_CHANGES]))[:500] or "none"


def _change_metrics(record: WindowRecord) -> dict[str, float | None]:
    """How many branches changed or stand, and how far the surest of them moved.

    ``windows_since_onset`` counts the windows from the likeliest onset of the first on.
    """
    if record.change is None and not record.findings:
        return {}
    found: dict[str, float | None] = {
        "monitor/n_changed": float(sum(one.change is not None for one in record.findings)),
        "monitor/n_standing": float(sum(one.kind == "standing" for one in record.findings)),
    }
    changed = [one for one in record.findings if one.change is not None]
    for rank, one in enumerate(changed[:_MOST_CHANGES]):
        change: Any = one.change
        figures = {"": change.difference, "_lower": change.lower, "_upper": change.upper}
        for suffix, value in figures.items():
            found[f"change{suffix}/{metric_key(one.node)}"] = value
            if rank == 0:
                found[f"monitor/change{suffix}"] = value
        if rank == 0 and change.onset is not None:
            since = [start for start, _ in change.track if start >= change.onset]
            found["monitor/windows_since_onset"] = float(len(since))
    return found


def summary_metrics(record: WindowRecord) -> dict[str, float]:
    """Return the dozen numbers a child run shows in a table of runs."""
    prefix = "monitor/"
    found = node_metrics(record).items()
    return {key.removeprefix(prefix): value for key, value in found if key.startswith(prefix)}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
