"""One check: every due window in turn, then late labels, then drift where labels are missing.

The order of saving is what makes a crash harmless. After each window the new state is saved with
the window's record inside it, in one atomic step; then the record is handed to the tracker. At the
next start a record that is still in the state is handed over first (trackers are idempotent). In
the same way messages, the published status and a retraining trigger are decided and saved first,
and carried out afterwards. All of it depends on the data, the state and `now` alone.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from huc_monitor._times import to_column
from huc_monitor.attaching import attach
from huc_monitor.drift import compare
from huc_monitor.errors import InvalidInputError
from huc_monitor.exporting import Standing
from huc_monitor.messages import compose
from huc_monitor.monitor._ahead import ReadAhead
from huc_monitor.monitor._examine import Examination, Reference, reconcile
from huc_monitor.monitor._rows import RowCache, decompose_each
from huc_monitor.monitor._state import MonitorState, Visited
from huc_monitor.notifying import Message, deliver
from huc_monitor.records import DriftFinding, WindowRecord
from huc_monitor.sequential import EDetector
from huc_monitor.sources import RowCounts, TooManyBadRowsError
from huc_monitor.subgroups import Subgroups
from huc_monitor.windows import Window, due_windows, next_revision, pending_windows, readiness

if TYPE_CHECKING:
    from collections.abc import Callable

    from huc_monitor._program import Ints
    from huc_monitor.monitor._parts import Parts
    from huc_monitor.monitor._rows import Decomposed
    from huc_monitor.records import AlertTransition
    from huc_monitor.sequential import EDetectorStep
    from huc_monitor.tracking import Tracker

log = logging.getLogger("huc_monitor")

_MOST_UNSENT = 50
_NO_ROWS = RowCounts(0, 0)


@dataclass(slots=True, eq=False)
class Check:
    """The work of one call of `Monitor.check`."""

    parts: Parts
    tracker: Tracker
    state: MonitorState
    now: datetime
    progress: Callable[[int, int, str], None] | None = None
    records: list[WindowRecord] = field(default_factory=list)
    message: Message | None = None
    _subgroups: Subgroups = field(default_factory=Subgroups.whole)
    _cache: RowCache = field(init=False)
    _detector: EDetector | None = None
    _reset: str | None = None
    _saved: str = ""
    _newest_before: str | None = None

    def run(self, since: datetime | None, until: datetime | None) -> None:
        """Deal with everything that is due."""
        parts, state = self.parts, self.state
        self._saved = state.to_json()
        self._newest_before = state.newest
        self._hand_over()
        common: dict[str, Any] = {"now": self.now, "identity": parts.identity, "last": state.last}
        due = due_windows(parts.windows, parts.source, since=since, until=until, **common)
        pending = [] if until is not None else self._pending(common)
        total = len(due) + len(pending)
        if total or self._late_possible():
            self._prepare(due)
        if due:
            with ReadAhead(self._cache, due, aside=parts.read_ahead) as ahead:
                for done, window in enumerate(due):
                    self._tell(done, total, window)
                    self._visit(window, ahead)
        self._revisit()
        for done, window in enumerate(pending, start=len(due)):
            self._tell(done, total, window)
            self._look_early(window)
        if total and self.progress is not None:
            self.progress(total, total, "")
        self._finish()

    def _tell(self, done: int, total: int, window: Window) -> None:
        if self.progress is not None:
            self.progress(done, total, f"{window.start:%Y-%m-%d %H:%M}")

    # Before the windows: what must be known first.

    def _pending(self, common: dict[str, Any]) -> list[Window]:
        if self.parts.drift is None:
            return []
        found = pending_windows(self.parts.windows, self.parts.source, **common)
        return [window for window in found if window.id not in self.state.early_drift]

    def _late_possible(self) -> bool:
        return any(self._may_revisit(item.window) for item in self.state.visited)

    def _prepare(self, due: list[Window]) -> None:
        """Freeze subgroups and the reference, and load the detector."""
        self._freeze_subgroups(due)
        parts = self.parts
        self._cache = RowCache(
            parts.source, tree=parts.tree, utilities=parts.utilities, subgroups=self._subgroups
        )
        self._cache.plan(due)
        if parts.reference is not None and self.state.reference is None:
            self._freeze_reference(*parts.reference)
        self._load_detector()

    def _freeze_subgroups(self, due: list[Window]) -> None:
        parts, state = self.parts, self.state
        if state.subgroups is not None:
            self._subgroups = Subgroups.from_dict(state.subgroups)
            return
        if isinstance(parts.subgroups, Subgroups):
            self._subgroups = parts.subgroups
        else:
            features = self._reference_features(due)
            if features is None:
                return
            self._subgroups = parts.subgroups(features)
        state.subgroups = self._subgroups.to_dict()

    def _reference_features(self, due: list[Window]) -> pd.DataFrame | None:
        """Features of the reference, or of the first window that has labels."""
        source, windows = self.parts.source, self.parts.windows
        if self.parts.reference is not None:
            start, end = self.parts.reference
            return source.labelled(start, end, as_of=windows.due_at(end)).features
        for window in due:
            data = source.labelled(window.start, window.end, as_of=window.due_at)
            if readiness(windows, data.counts) == "ready" and data.n:
                return data.features
        return None

    def _freeze_reference(self, start: datetime, end: datetime) -> None:
        due_at = self.parts.windows.due_at(end)
        found = self._cache.window(start, end, due_at)
        if found.data.n == 0:
            msg = (
                f"`reference` must hold labelled rows; between {start.isoformat()} and "
                f"{end.isoformat()} there are none. Choose a time the log covers."
            )
            raise InvalidInputError(msg)
        window = Window(0, start, end, due_at, "reference")
        examined = Examination.of(self.parts, self._subgroups, window, found, None)
        self.state.reference = _frozen(examined.as_reference(), window)

    @property
    def _reference(self) -> Reference | None:
        return None if self.state.reference is None else Reference.from_dict(self.state.reference)

    def _load_detector(self) -> None:
        """Make or continue the e-detector; another tolerance starts it afresh."""
        parts, state = self.parts, self.state
        if parts.average_run_length is None or state.subgroups is None:
            return
        values = parts.tolerance.values(parts.tree, parts.utilities, self._subgroups)
        if parts.detector_tolerance is not None:
            values = np.full(values.size, parts.detector_tolerance)
        if parts.tolerance.relative:
            if self._reference is None:
                return
            values = values + np.abs(self._reference.moments)
        if not values.size:
            return
        kept = state.detector
        if kept is not None:
            wanted = (values.tolist(), float(parts.average_run_length))
            if (kept["tolerance"], kept["average_run_length"]) == wanted:
                self._detector = EDetector.from_dict(kept)
                return
            self._reset = "the tolerance or the average run length changed"
        self._detector = EDetector(
            tree=parts.tree,
            utilities=parts.utilities,
            subgroups=self._subgroups,
            tolerance=values.tolist(),
            average_run_length=parts.average_run_length,
        )

    # Each window.

    def _visit(self, window: Window, ahead: ReadAhead) -> None:
        last = self.state.last
        fed_from = window.start if last is None else max(window.start, last.end)
        visited = Visited(window, 0, window.due_at, _NO_ROWS, fed_from, None)
        self.state.last = window
        record = self._record(visited, window.due_at, partial(ahead.take, window))
        self.state.visited = [item for item in self.state.visited if self._may_revisit(item.window)]
        if self._may_revisit(window):
            self.state.visited.append(visited)
        self._commit(record)

    def _revisit(self) -> None:
        """Audit windows again whose rows or labels have changed since; each is a revision."""
        for visited in self.state.visited:
            window = visited.window
            # Asked as of an earlier time than before, fewer labels are no news.
            if not self._may_revisit(window) or self.now <= visited.as_of:
                continue
            now = self.parts.source.counts(window.start, window.end, as_of=self.now)
            revision = next_revision(visited.revision, visited.counts, now)
            if revision is not None:
                visited.revision, visited.as_of = revision, self.now
                self._commit(self._record(visited, self.now, partial(self._again, visited)))

    def _again(self, visited: Visited) -> Decomposed:
        return self._cache.window(visited.window.start, visited.window.end, self.now)

    def _may_revisit(self, window: Window) -> bool:
        return window.end + self.parts.revisit_for >= self.now

    def _record(
        self, visited: Visited, as_of: datetime, read: Callable[[], Decomposed]
    ) -> WindowRecord:
        """Read, audit and judge one window; update the state, but save nothing yet."""
        started, window = perf_counter(), visited.window
        try:
            found = read()
        except TooManyBadRowsError as error:
            visited.counts = self.parts.source.counts(window.start, window.end, as_of=as_of)
            when = f"{window.start:%Y-%m-%d %H:%M}"
            self.state.notes.append(f"The window of {when} UTC was not audited: {error}")
            facts = _facts_of(visited.counts)
            return self._base(visited, "failed", reason=str(error), **facts)
        data = found.data
        visited.counts = data.counts
        waited = perf_counter() - started
        facts = _facts_of(data.counts) | {
            "n_quarantined": data.n_quarantined,
            "quarantine": dict(data.bad_reasons),
            "model_versions": data.versions,
        }
        step = self._feed(visited, found, as_of)
        ready = readiness(self.parts.windows, data.counts)
        if ready == "ready" and data.n_usable < max(1, self.parts.windows.min_labelled):
            ready = "few labels"
        if ready != "ready":
            status = "empty" if ready == "empty" else "thin"
            self.state.early_drift.pop(window.id, None)
            return self._base(visited, status, reason=ready, detector=step, **facts)
        return self._audited(visited, found, step, facts, {"read": waited})

    def _base(self, visited: Visited, status: Any, **facts: Any) -> WindowRecord:
        window, state = visited.window, self.state
        detector = facts.pop("detector", None)
        plain = None if detector is None else {**detector.to_dict(), "reset": self._reset}
        if detector is not None:
            self._reset = None
        return WindowRecord(
            monitor=self.parts.name,
            identity=self.parts.identity,
            model=self.parts.model,
            window_id=window.id,
            ordinal=window.ordinal,
            start=window.start,
            end=window.end,
            due_at=window.due_at,
            revision=visited.revision,
            status=status,
            detector=plain,
            **{"model_version": state.model_version, "alerts": state.open_alerts, **facts},
        )

    def _audited(
        self,
        visited: Visited,
        found: Decomposed,
        step: EDetectorStep | None,
        facts: dict[str, Any],
        timings: dict[str, float],
    ) -> WindowRecord:
        parts, state, window = self.parts, self.state, visited.window
        reference = self._reference
        examined = Examination.of(parts, self._subgroups, window, found, reference)
        judgements = examined.judgements(step)
        notes: list[str] = []
        transitions: list[AlertTransition] = []
        if reference is None:
            state.reference = _frozen(examined.as_reference(), window)
            notes.append("This window is the reference that later windows are compared with.")
        is_accepted = reference is None and parts.tolerance.relative
        if is_accepted:
            self._load_detector()
        elif window.ordinal >= state.last_judged:
            state.last_judged = window.ordinal
            state.alerts, transitions = examined.advance(state.alerts, judgements)
            state.transitions += transitions
        else:
            notes.append("A newer window was judged already: this revision changes no alert.")
        early = [DriftFinding.from_dict(x) for x in state.early_drift.pop(window.id, [])]
        notes += reconcile(early, judgements)
        if found.data.sampled_from is not None:
            notes.append(
                f"The audit is of all rows; causes, drift, pictures and the e-detector are of a "
                f"sample of {found.data.n:,} of {found.data.sampled_from:,} labelled rows."
            )
        record = self._base(
            visited,
            "audited",
            detector=step,
            audit=examined.result.to_dict(),
            tolerances=tuple(examined.tolerances.tolist()),
            levels=tuple(None if is_accepted else item.level for item in judgements),
            transitions=tuple(transitions),
            drift=examined.drift,
            curve=examined.curve(),
            frequencies=examined.frequencies(),
            notes=tuple(notes),
            timings={**timings, "audit": examined.seconds},
            **facts,
        )
        return self._with_trigger(record)

    def _with_trigger(self, record: WindowRecord) -> WindowRecord:
        policy, state = self.parts.retraining, self.state
        if policy is None or record.ordinal < state.last_judged:
            return record
        trigger = policy.decide(record, state.last_trigger)
        if trigger is None:
            return record
        state.last_trigger = state.trigger = trigger
        state.notes.append(f"Recalibration requested: {trigger.reason}.")
        return dataclasses.replace(record, retraining=trigger)

    def _feed(self, visited: Visited, found: Decomposed, as_of: datetime) -> EDetectorStep | None:
        """Give the e-detector the rows it has not seen: batches in the order labels came."""
        data = found.data
        fresh = data.times >= to_column(visited.fed_from)
        self._note_version(data.model_versions[fresh] if data.model_versions is not None else None)
        if self._detector is None:
            return None
        if visited.fed_until is not None:
            if data.label_times is None:
                return None  # without times, late labels cannot be told from those seen before
            fresh &= data.label_times > to_column(visited.fed_until)
        chosen = np.flatnonzero(fresh)
        visited.fed_until = as_of
        if not chosen.size:
            return None
        step = self._detector.update_rows(*found.take(_ints(chosen)))
        self.state.detector = self._detector.to_dict()
        return step

    def _note_version(self, versions: Any) -> None:
        """Follow the version that serves most rows; the evidence against another one is void."""
        if versions is None or not len(versions):
            return
        counts = pd.Series(versions, dtype=object).dropna().value_counts()
        if counts.empty:
            return
        current = min(str(v) for v in counts.index[counts == counts.iloc[0]])
        before = self.state.model_version
        if before is not None and before != current and self._detector is not None:
            self._reset = f"model version {before} became {current}"
            self._detector.reset(self._reset)
        self.state.model_version = current

    # Before the labels are there.

    def _look_early(self, window: Window) -> None:
        parts, reference = self.parts, self._reference
        if parts.drift is None or reference is None:
            return
        data = parts.source.predictions(window.start, window.end)
        if not data.n:
            return
        unknown = np.full(data.n, -1, dtype=np.int64)
        rows = decompose_each(parts.utilities, data.probabilities, unknown, tree=parts.tree)
        weights = self._subgroups.weights(data.features, data.n)
        drift = compare(
            reference.drift,
            data.probabilities,
            rows,
            weights,
            tree=parts.tree,
            subgroups=self._subgroups,
            policy=parts.drift,
        )
        drifted = [item for item in drift if item.drifted]
        self.state.early_drift[window.id] = [item.to_dict() for item in drifted]
        for item in drifted:
            key = f"{item.kind}:{item.name}"
            told = self.state.drift_told.get(key)
            if told is None or window.end - pd.Timestamp(told) >= parts.alerts.pause:
                self.state.drift_told[key] = window.end.isoformat()
                self.state.drift.append(item)
        visited = Visited(window, 0, window.due_at, _NO_ROWS, window.start, None)
        record = self._base(
            visited,
            "pending",
            reason="labels have not matured",
            n_predictions=data.n_predictions,
            n_quarantined=data.n_quarantined,
            quarantine=dict(data.bad_reasons),
            model_versions=data.versions,
            drift=drift,
        )
        self._commit(record)

    # Saving and delivering.

    def _commit(self, record: WindowRecord) -> None:
        state = self.state
        state.until = record.end if state.until is None else max(state.until, record.end)
        state.record = record.to_dict()
        if record.status != "pending":
            state.newest = record.key
        self._save()
        self._hand_over(record)
        self.records.append(record)
        log.info("window", extra={"huc": _summary(record)})

    def _hand_over(self, record: WindowRecord | None = None) -> None:
        """Give the tracker the record that was saved last, also if that was before a crash."""
        if self.state.record is not None:
            record = record or WindowRecord.from_dict(self.state.record)
            self.tracker.record(record, self._files(record))
            self.state.record = None

    def _files(self, record: WindowRecord) -> dict[str, bytes] | None:
        """Files that go with a record."""
        made = None if self.parts.artifacts is None else self.parts.artifacts(record)
        frozen = self.state.reference
        span = None
        if frozen is not None and "start" in frozen:  # older states do not say when it was
            span = datetime.fromisoformat(frozen["start"]), datetime.fromisoformat(frozen["end"])
        files = attach(self.parts.attachments, record, span)
        return {**(made or {}), **files} if made is not None or files else None

    def _save(self) -> None:
        self.tracker.save_state(self.state.to_dict())

    def _save_if_changed(self) -> None:
        text = self.state.to_json()
        if text != self._saved:
            self._save()
            self._saved = text

    def _finish(self) -> None:
        """Decide on one message and save it; then publish, send and retrain."""
        state = self.state
        if state.until is not None:
            self.message = compose(
                state.transitions,
                drift=state.drift,
                notes=state.notes,
                monitor=self.parts.name,
                identity=self.parts.identity,
                until=state.until,
                status=state.status,
            )
            state.transitions, state.drift, state.notes, state.until = [], [], [], None
        if self.message is not None and self.parts.notifiers:
            entry = {"message": self.message.to_dict(), "left": sorted(self.parts.notifiers)}
            state.messages = [*state.messages, entry][-_MOST_UNSENT:]
        self._save_if_changed()
        if state.status != state.published:
            self.tracker.set_alert_status(state.status, state.open_alerts)
            state.published = state.status
        state.messages = deliver(state.messages, self.parts.notifiers)
        self._save_if_changed()  # what was delivered is not sent again by a check that dies later
        self._export()
        self._retrain()
        self._follow()
        self._save_if_changed()

    def _export(self) -> None:
        """Show where things stand; who did not get all of it gets all of it the next time."""
        state = self.state
        for name, exporter in self.parts.exporters.items():
            try:
                is_current = state.exported.get(name) == self._newest_before
                records = tuple(self.records if is_current else self.tracker.records())
                alerts, n_unsent = state.open_alerts, len(state.messages)
                exporter.export(
                    Standing(state.status, alerts, n_unsent, records, self.tracker.records)
                )
            except Exception as error:  # an exporter that fails must not fail a check
                log.warning("exporter %s failed; it is tried again next time: %s", name, error)
                log.debug("traceback", exc_info=True)
            else:
                state.exported[name] = state.newest

    def _retrain(self) -> None:
        trigger, retrain = self.state.trigger, self.parts.retrain
        if trigger is None or retrain is None:
            self.state.trigger = None
            return
        try:
            retrain(trigger)
        except Exception:  # the next check tries again
            log.warning("retraining failed; it is kept for the next check", exc_info=True)
            return
        self.state.trigger = None

    def _follow(self) -> None:
        """Let the retrainer go on with what takes several windows."""
        follow = getattr(self.parts.retrain, "follow", None)
        if follow is None or self.state.last is None:
            return
        try:
            said = follow(self.state.last)
        except Exception:  # the next check goes on from where it stopped
            log.warning("the trial of a new version failed; the next check goes on", exc_info=True)
            return
        if said is not None:
            self.state.notes.append(said)


def _frozen(reference: Reference, window: Window) -> dict[str, Any]:
    """Return what later windows are compared with, and when it was."""
    span = {"start": window.start.isoformat(), "end": window.end.isoformat()}
    return {**reference.to_dict(), **span}


def _facts_of(counts: RowCounts) -> dict[str, Any]:
    return {
        "n_predictions": counts.n_predictions,
        "n_labelled": counts.n_labelled,
        "coverage": counts.coverage,
        "latest_label": counts.latest_label,
    }


def _ints(values: Any) -> Ints:
    return np.asarray(values, dtype=np.int64)


def _summary(record: WindowRecord) -> dict[str, Any]:
    return {
        "event": "window_checked",
        "monitor": record.monitor,
        "window.id": record.window_id,
        "window.ordinal": record.ordinal,
        "window.start": record.start.isoformat(),
        "window.end": record.end.isoformat(),
        "window.revision": record.revision,
        "window.status": record.status,
        "labels": record.n_labelled,
        "value": None if record.audit is None else record.audit["huc"],
        "alert.level": record.level,
    }
