"""The MLflow tracker: a run per monitor, a run per window, the monitor's state beside them.

Everything is written so that writing it again changes nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from huc_mlflow._card import alert_lines
from huc_mlflow._client import DEADLINE, UNITY_CATALOG, Client, masked
from huc_mlflow._metrics import (
    FEWEST_KEYS,
    LINKED,
    MOST_KEYS,
    SECTIONS,
    SUMMARY,
    WORST,
    ShownWindow,
    by_importance,
)
from huc_mlflow._pages import report_files
from huc_mlflow._runs import Runs, checksum
from huc_monitor._common.checks import check_whole
from huc_monitor._common.private_files import state_folder
from huc_monitor._common.safe_text import file_name, metric_keys, plain
from huc_monitor._common.times import say_time
from huc_monitor.errors import HUCError
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.monitor.ports.stored import (
    RESTORE_STATE,
    DamagedError,
    choose_keys,
    choose_previous,
    read_stored,
    readable_records,
)
from huc_monitor.monitor.records import AlertState, WindowRecord

if TYPE_CHECKING:
    from mlflow.entities import Run

log = logging.getLogger("huc_monitor")

# What MLflow takes in one request.
_MOST_PARAMETERS = 100
_MOST_TAG_CHARACTERS = 5_000
_SQLITE = "sqlite:///"
_STATE_SLOTS = ("state/a.json", "state/b.json")
_VERSION = "huc.model_version"
_SERVED = "huc.not_champion"  # who served, who was champion, and since when
_COMPLETE = "huc.complete"  # which records of a window its run holds; "1" in earlier versions
_SECTIONS = ("windows", "tolerance", "audit", "alerts", "change", "detector", "subgroups")
_IMPATIENT = 5.0


class MLflowTracker:
    """Records and state of a monitor in an MLflow tracking store.

    The monitor run, ``monitor <name>``, has one step per window: the summary is in ``audit/``,
    the moments of branches that are told of and of the worst ones in ``branches/``, with bounds of
    the former beside them, and of the ten clearest changes since the reference in ``change/``.
    A run never has more than `metric_keys` keys. Each window has a run of its own, with the summary
    metrics linked to the logged model that served and to the window's data, every candidate in
    ``candidates.parquet``, the worst in ``worst.json``, the report, and tags: ``huc.status``,
    ``huc.level``, ``huc.branches`` (with open alerts), ``huc.changed``, ``huc.model_version``. The
    alert status is a tag of the model version, written only when it changes, so that the registry's
    webhooks fire once.

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
    metric_keys : int, default 100
        The most metric keys that a run may have. MLflow's pages draw about a hundred charts.
    champion_windows : int, default 3
        Windows in a row that another version than the champion served before that is told.
    """

    def __init__(
        self,
        info: MonitorInfo,
        tracking_uri: str | None = None,
        registry_uri: str | None = None,
        experiment: str | None = None,
        deadline: float = DEADLINE,
        metric_keys: int = 100,
        champion_windows: int = 3,
    ) -> None:
        self._info = info
        self._most_keys = check_whole("metric_keys", metric_keys, least=FEWEST_KEYS, most=MOST_KEYS)
        self._patience = check_whole("champion_windows", champion_windows, least=1, most=1_000)
        self._client = Client(tracking_uri, registry_uri, deadline)
        self.runs = Runs(self._client, info, experiment or f"huc-monitor/{info.name}")
        self._run_id: str | None = None
        self._seen_state: str | None = None
        self._model_version: str | None = None
        self._keys: set[str] = set()

    def ping(self) -> str:
        """Ask the tracking store for one experiment, with a short deadline; say where it is."""
        self._client.hurried(_IMPATIENT).search_experiments(max_results=1)
        return f"answers at {masked(self._client.tracking_uri)}"

    # Runs.

    @property
    def lock_path(self) -> Path:
        """Lock file in the user's state folder, one for each store and experiment.

        Staging and production may have the same settings, and must not wait for each other.
        """
        store = self._client.tracking_uri
        if store.startswith(_SQLITE):  # else a relative path would name one store in every folder
            store = str(Path(store.removeprefix(_SQLITE)).resolve())
        digest = checksum(f"{store}\n{self.runs.experiment_name}")[:16]
        name = f"{self._info.identity}-{digest}"
        return state_folder() / file_name(name) / "lock"

    @property
    def run_id(self) -> str:
        """Id of the monitor run, made if there is none: what only reads asks `_run`."""
        if self._run_id is None:
            settings = json.dumps(self._info.settings or {}, sort_keys=True, default=str)
            tags = {
                "huc.kind": "monitor",
                "huc.monitor": self._info.name,
                "huc.identity": self._info.identity,
                "huc.model": self._info.model or "",
                "huc.settings": masked(settings)[:_MOST_TAG_CHARACTERS],
                "mlflow.note.content": f"Utility calibration of {plain(self._info.name)}.",
            }
            name = f"monitor {self._info.name}"
            kept = self.runs.find_or_make("monitor", self._info.identity, name, tags)
            self._run_id = str(kept.info.run_id)
            self._keys = {key for key in kept.data.metrics if key.partition("/")[0] in SECTIONS}
        return self._run_id

    # State.

    def _run(self) -> Run | None:
        """Return the monitor run, if there is one."""
        if self._run_id is None:
            return self.runs.find("monitor", self._info.identity)
        found: Run = self._client.get_run(self._run_id)
        return found

    def load_state(self) -> dict[str, Any] | None:
        """Read the state that the monitor run's tag points at, to go on from it."""
        run = self._run()
        self._seen_state = _pointer(run)
        return self._state_of(run)

    def peek_state(self) -> dict[str, Any] | None:
        """Read the state only to look: `save_state` still minds what others did meanwhile."""
        return self._state_of(self._run())

    def previous_state(self) -> dict[str, Any] | None:
        """Read the state of the newest other monitor run in the experiment, of this file."""
        places = self.runs.places()
        wanted = "tags.`huc.kind` = 'monitor'"
        order = ["attributes.start_time DESC"]
        found = self._client.search_runs(places, wanted, order_by=order) if places else ()
        others = (x for x in found if x.data.tags.get("huc.identity") != self._info.identity)
        states = filter(None, map(self._state_of, others))
        return choose_previous(states, self._info.file)

    def _state_of(self, run: Run | None) -> dict[str, Any] | None:
        pointer = _pointer(run)
        if run is None or pointer is None:
            return None
        run_id = str(run.info.run_id)
        slot, _, digest = pointer.partition(" ")
        where = f"The state of monitor {self._info.name!r} ({slot!r} of run {run_id})"
        text = self.runs.read(run_id, slot)
        if checksum(text) != digest:
            msg = (
                f"{where} is damaged: its checksum does not match. Restore the artifact store, or "
                "delete the run's tag 'huc.state' to start afresh."
            )
            raise DamagedError(msg)
        return read_stored(text, dict, where=where, remedy=RESTORE_STATE)

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Write the state beside the current one, then move the pointer: all or nothing."""
        current = _pointer(self._client.get_run(self.run_id))
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
        pointer = f"{slot} {checksum(text)}"
        self._client.set_tag(self.run_id, "huc.state", pointer)
        self._seen_state = pointer

    # Records.

    def record(self, record: WindowRecord, artifacts: Mapping[str, bytes] | None = None) -> None:
        """Log a window: its metrics on the monitor run, everything else on a run of its own.

        A window has one run, whatever comes of it: what it was before its labels came, its audit,
        and what late labels changed are records in that run.
        """
        window, _, stage = record.key.rpartition("-")
        for run in self.runs.search("window", f"{window}-%"):
            # Earlier versions made a run for every record.
            if run.data.tags["huc.key"] == record.key and run.data.tags.get(_COMPLETE) == "1":
                return
        shown = ShownWindow(record)
        tags = self._window_tags(shown)
        child = self.runs.find_or_make("window", window, tags["mlflow.runName"], tags)
        done = child.data.tags.get(_COMPLETE, "").split()
        if record.status != "pending":  # whose alerts are those of an earlier version
            self._note_version(record.model_version)
        if stage in done:
            return
        child_id = str(child.info.run_id)
        values = shown.metrics(self._most_keys, self._keys)
        self._log(self.run_id, record, values)
        self._keys |= values.keys()
        self._log_window(child_id, shown, is_new=not done)
        self._client.log_text(child_id, record.to_json(), f"record-{stage}.json")
        files = self._pages(record) | shown.tables() | dict(artifacts or {})
        self.runs.log_files(child_id, files)
        tags[_COMPLETE] = " ".join([*done, stage])
        if WORST in files:
            tags["mlflow.loggedArtifacts"] = json.dumps([{"path": WORST, "type": "table"}])
        self._client.log_batch(child_id, tags=[RunTag(key, value) for key, value in tags.items()])
        self._client.set_terminated(child_id)

    def _window_tags(self, shown: ShownWindow) -> dict[str, str]:
        record, branches = shown.record, shown.branches
        # What a list of runs cuts off comes last.
        told = f"{record.level}: {branches[:60]} " if record.level else ""
        return {
            "mlflow.runName": f"#{record.ordinal} {told}{say_time(record.start, record.time_zone)}",
            "mlflow.note.content": shown.note()[:_MOST_TAG_CHARACTERS],
            "huc.monitor": self._info.name,
            "huc.monitor_run": self.run_id,
            "huc.model": self._info.model or "",
            "huc.model_version": plain(record.model_version or ""),
            "huc.window": record.window_id,
            "huc.status": "alert" if record.level else record.status,
            "huc.level": record.level or "none",
            "huc.branches": branches,
            "huc.changed": shown.changed,
        }

    def _log_window(self, run_id: str, shown: ShownWindow, *, is_new: bool) -> None:
        """Log a window's own metrics, linked to the model that served, its data and parameters."""
        record = shown.record
        n = {"n_predictions": record.n_predictions, "n_labelled": record.n_labelled}
        dataset = self.runs.dataset(record.key, record.start, record.end, **n)
        served = self.runs.logged_model(record.model_version)
        link = {"dataset_name": dataset.name, "dataset_digest": dataset.digest, "model_id": served}
        summary = shown.summary
        told = shown.metrics(self._most_keys, told=True)
        branches = {key: value for key, value in told.items() if not key.startswith(SUMMARY)}
        self._log(run_id, record, {k: v for k, v in summary.items() if k in LINKED}, **link)
        self._log(run_id, record, {k: v for k, v in summary.items() if k not in LINKED} | branches)
        self.runs.log_inputs(run_id, dataset, "monitoring", served)
        if is_new:  # parameters cannot change
            self._client.log_batch(run_id, params=self._parameters(record))

    def _parameters(self, record: WindowRecord) -> list[Param]:
        settings = {name: (self._info.settings or {}).get(name) for name in _SECTIONS}
        found = {
            "window.start": record.start.isoformat(),
            "window.end": record.end.isoformat(),
            "model": self._info.model,
            "model_version": record.model_version,
            **dict(_flat(settings)),
        }
        kept = [(key, value) for key, value in found.items() if value is not None]
        keys = metric_keys(found)  # users name predicates and columns as they like
        return [
            Param(keys[key], masked(plain(value)) or "''") for key, value in kept[:_MOST_PARAMETERS]
        ]

    def remark(self, record: WindowRecord) -> str | None:
        """Say that another version than the champion served for some windows in a row."""
        served = record.model_version
        if self._info.model is None or served is None or self._champion is None:
            return None
        tags = self._client.get_run(self.run_id).data.tags
        noted = json.loads(tags.get(_SERVED) or "{}")
        now: dict[str, Any] = {"served": served, "champion": self._champion}
        now["since"] = record.ordinal
        first = int(noted.get("since", record.ordinal))
        if {**now, "since": first} == noted:
            now["since"] = min(first, record.ordinal)
        elif noted.get("champion") == self._champion and record.ordinal < first:
            return None  # its labels come late: windows after it had another version
        if now != noted:
            self._client.set_tag(self.run_id, _SERVED, json.dumps(now))
        since = now["since"]
        if served == self._champion or record.ordinal - since + 1 < self._patience:
            return None
        return (
            f"Since window #{since}, version {plain(served)} made the log's predictions, and the "
            f"champion of {self._info.model!r} is version {self._champion}: deploy it, or promote "
            "the other."
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

    def _log(
        self, run_id: str, record: WindowRecord, values: Mapping[str, float], **link: str | None
    ) -> None:
        # A revision keeps its step and comes a moment later, so that it is the step's last word.
        later = -1 if record.status == "pending" else record.revision
        when = int(record.end.timestamp() * 1000) + later
        metrics = [
            Metric(key, value, when, record.ordinal, **link) for key, value in values.items()
        ]
        self._client.log_batch(run_id, metrics=metrics)

    def records(self, last: int | None = None, until: int | None = None) -> list[WindowRecord]:
        """Return complete records in order: all, or of the `last` windows up to an ordinal."""
        files: dict[str, tuple[str, str]] = {}
        windows: set[int] = set()
        for run in self.runs.search("window", newest=last and 2 * last):
            found = _files(run)
            if not found:
                continue
            ordinal = int(str(run.data.tags["huc.key"]).partition("-")[0])
            if until is None or ordinal <= until:
                windows.add(ordinal)
            if last is not None and len(windows) > last:
                break  # the newest come first
            for key, file in found.items():
                files[key] = (str(run.info.run_id), file)
        return readable_records(
            (f"{files[key][1]!r} of run {files[key][0]}", partial(self.runs.read, *files[key]))
            for key in choose_keys(files, last, until)
        )

    def window(self, ordinal: int) -> WindowRecord | None:
        """Return the first complete record of one window, without reading any other."""
        audited = {
            key: (str(run.info.run_id), file)
            for run in self.runs.search("window", f"{ordinal:06d}-%")
            for key, file in _files(run).items()
            if not key.endswith("-pending")
        }
        if not audited:
            return None
        first = min(audited, key=lambda key: int(key.rpartition("-r")[2]))
        return WindowRecord.from_json(self.runs.read(*audited[first]))

    # Alerts.

    def set_alert_status(self, status: str, alerts: Sequence[AlertState]) -> None:
        """Tag the monitor run, the model version and the registered model."""
        first = by_importance(alerts)
        worst = ", ".join(
            f"{plain(a.node)} ({plain(a.subgroup)}, {plain(a.utility)}){_people(a)}"
            for a in first[:5]
        )
        note = "\n".join([f"**{status}**", "", *alert_lines(first, self._info.time_zone)]).strip()
        tags = {"huc.status": status, "huc.alerts": worst, "mlflow.note.content": note}
        self._client.log_batch(self.run_id, tags=[RunTag(*pair) for pair in tags.items()])
        if self._client.registry_uri.startswith(UNITY_CATALOG):
            return  # its tags take no such names
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
        return self._champion if known is None else str(known)

    def close(self) -> None:
        """Nothing to let go of."""


def _pointer(run: Run | None) -> str | None:
    """Where a monitor run's state is, and its checksum."""
    return None if run is None else run.data.tags.get("huc.state")


def _people(alert: AlertState) -> str:
    """Say who muted or acknowledged an alert, if anyone did."""
    if alert.muted is not None:
        return f", muted {plain(alert.muted)}"
    return "" if alert.acked is None else f", {plain(str(alert.acked))}"


def _files(run: Run) -> dict[str, str]:
    """Files of the complete records in a window's run, by the records' keys."""
    done, key = run.data.tags.get(_COMPLETE, ""), str(run.data.tags["huc.key"])
    if done == "1":  # by an earlier version: one run for every record
        return {key: "record.json"}
    return {f"{key}-{stage}": f"record-{stage}.json" for stage in done.split()}


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Name settings by their path, as in ``windows.length``."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        elif value is not None:
            yield f"{before}{name}", value
