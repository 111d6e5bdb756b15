"""One check: every due window in turn, then late labels, then drift where labels are missing.

All of it depends on the data, the state and `now` alone. What a check is judged by is in
`_standards` and `_detecting`; what it saves and tells, and in which order, in `_outbox`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from huc_monitor._common.stages import listening
from huc_monitor.audit.decomposition import UtilityRows, iter_decomposed
from huc_monitor.audit.forecast import Forecast
from huc_monitor.audit.inputs import Predictions
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.detection import EDetectorStep
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor._ahead import ReadAhead
from huc_monitor.monitor._changing import Changing
from huc_monitor.monitor._detecting import Detecting
from huc_monitor.monitor._examine import Examination, reconcile
from huc_monitor.monitor._outbox import Outbox
from huc_monitor.monitor._rows import Decomposed
from huc_monitor.monitor._samples import SampleFiles
from huc_monitor.monitor._standards import Standards
from huc_monitor.monitor._state import MonitorState, Visited
from huc_monitor.monitor.discovering import Discovering
from huc_monitor.monitor.drift import compare
from huc_monitor.monitor.findings import Finding, say_standing
from huc_monitor.monitor.forecasting import Forecasting
from huc_monitor.monitor.messages import say_repeats, say_unknown, say_untimed, still_there
from huc_monitor.monitor.muting import Quiet
from huc_monitor.monitor.noticing import (
    Selection,
    find_dependence,
    find_short_blocks,
    look_at_labels,
    say_blocks,
    say_dependence,
    say_selection,
)
from huc_monitor.monitor.records import AlertTransition, DriftFinding, WindowRecord
from huc_monitor.monitor.tolerance import ignored
from huc_monitor.monitor.windows import (
    Window,
    due_windows,
    next_revision,
    pending_windows,
    readiness,
)
from huc_monitor.sources import PredictionData, RowCounts, TooManyBadRowsError

if TYPE_CHECKING:
    from huc_monitor.monitor._monitor import Monitor

_NO_ROWS = RowCounts(0, 0)
_DRIFTS = {"branch": "branch", "scores": "utility", "subgroup": "subgroup"}
_REPEATS = "rows:repeated"
_UNKNOWN = "unknown labels"
_UNTIMED = "rows:untimed"
_MANY_WINDOWS = 1_000
# Failed windows that are read again at every check; older ones only when their counts change.
_MOST_RETRIED = 16


@dataclass(slots=True, eq=False)
class Check:
    """The work of one call of `Monitor.check`."""

    monitor: Monitor
    state: MonitorState
    now: datetime
    files: SampleFiles
    progress: Callable[[int, int, str], None] | None = None
    outbox: Outbox = field(init=False)
    _quiet: Quiet = field(init=False)
    _standards: Standards = field(init=False)
    _detecting: Detecting = field(init=False)
    _changing: Changing = field(init=False)
    _forecasting: Forecasting = field(init=False)
    _discovering: Discovering = field(init=False)

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.monitor, self.state)
        given = self.monitor.policy.maintenance
        self._quiet = Quiet(self.state.mutes, given, self.monitor.windows.zone, self.now)
        self._discovering = Discovering(self.monitor, self.state)
        self._begin()

    def _begin(self) -> None:
        self._standards = Standards(self.monitor, self.state)
        self._detecting = Detecting(self.monitor, self.state)
        self._changing = Changing(self.monitor, self.state, self.files)
        policy = self.monitor.policy.forecast
        self._forecasting = Forecasting(self.state, policy, self._changing)

    def run(self, since: datetime | None, until: datetime | None) -> None:
        """Deal with everything that is due."""
        monitor, state = self.monitor, self.state
        self.outbox.open()
        common: dict[str, Any] = {"now": self.now, "identity": monitor.identity, "last": state.last}
        due = due_windows(monitor.windows, monitor.source, since=since, until=until, **common)
        self._refuse_stray_times(due)
        pending = [] if until is not None else self._pending(common)
        total = len(due) + len(pending)
        if total or self._late_possible():
            self._prepare(due)
        rest = due
        if due:
            self._tell_untimed()
        while rest:
            rest = self._visit_all(rest, len(due) - len(rest), total)
        self._revisit()
        for done, window in enumerate(pending, start=len(due)):
            self._tell(done, total, window)
            self._look_early(window)
        self._tell_unmuted()
        if total and self.progress is not None:
            self.progress(total, total, "")
        tell = self.progress
        with listening(None if tell is None else lambda stage: tell(total, total, stage)):
            self.outbox.finish()

    def _visit_all(self, windows: list[Window], done: int, total: int) -> list[Window]:
        """Visit windows until the subgroups change; return those that are left, to be read anew."""
        with ReadAhead(self._standards.cache, windows, aside=self.monitor.read_ahead) as ahead:
            for place, window in enumerate(windows):
                self._tell(done + place, total, window)
                if self._visit(window, ahead):
                    break
            else:
                return []
        left = windows[place + 1 :]
        self._begin()
        self._prepare(left)
        return left

    def _tell(self, done: int, total: int, window: Window) -> None:
        if self.progress is not None:
            self.progress(done, total, f"{window.start:%Y-%m-%d %H:%M}")

    # Before the windows: what must be known first.

    def _refuse_stray_times(self, due: list[Window]) -> None:
        """Refuse to begin with thousands of empty windows for a few rows with an odd time."""
        early = len(due) // 2
        if self.state.last is not None or len(due) < _MANY_WINDOWS:
            return
        start, middle = due[0].start, due[early].start
        n = self.monitor.source.counts(start, middle).n_predictions
        if 10 * n < early:
            msg = (
                f"`windows.begin` must be set for this log: it has {n:,} rows in the {early:,} "
                f"windows from {start:%Y-%m-%d} to {middle:%Y-%m-%d}. Repair the times of these "
                "rows, or name the day of the first window as `begin` or --since."
            )
            raise InvalidInputError(msg)

    def _tell_untimed(self) -> None:
        """Say that rows are in no window for want of a time, and again when there are more."""
        extent, told = self.monitor.source.time_range(), self.state.drift_told
        n = 0 if extent is None else extent.n_untimed
        if n > int(told.get(_UNTIMED, 0)):
            told[_UNTIMED] = str(n)
            self.state.notes.append(f"{say_untimed(n)}: repair their time (`columns.time`).")

    def _pending(self, common: dict[str, Any]) -> list[Window]:
        policy = self.monitor.policy
        if not policy.drift.enabled and not policy.forecast.enabled:
            return []
        found = pending_windows(self.monitor.windows, self.monitor.source, **common)
        return [window for window in found if window.id not in self.state.early_drift]

    def _late_possible(self) -> bool:
        return any(self._may_change(item) for item in self.state.visited)

    def _prepare(self, due: list[Window]) -> None:
        self._standards.prepare(due, [(item.window, self.now) for item in self.state.visited])
        self._load_detector()
        self._changing.load(self._standards.subgroups)
        self._keep_reference()

    def _keep_reference(self) -> None:
        if self._standards.frozen is not None:
            self._changing.freeze(self._standards.frozen)
            self._standards.frozen = None

    def _load_detector(self) -> None:
        self._detecting.load(self._standards.subgroups, self._standards.reference)

    # Each window.

    def _visit(self, window: Window, ahead: ReadAhead) -> bool:
        """Audit a window for the first time; True where later ones have other subgroups."""
        last = self.state.last
        fed_from = window.start if last is None else max(window.start, last.end)
        visited = Visited(window, 0, window.due_at, _NO_ROWS, fed_from, None)
        self.state.last = window
        record = self._record(visited, window.due_at, partial(ahead.take, window))
        kept = [*self.state.visited, visited]
        self.state.visited = [item for item in kept if self._may_change(item)]
        grown = record.status == "audited" and self._discovering.look(window, window.due_at)
        self.outbox.commit(record)
        return grown

    def _revisit(self) -> None:
        """Audit windows again whose rows or labels have changed since; each is a revision.

        A label that is corrected in place changes no count, so the newest failed windows are read
        again in any case.
        """
        failed = [item.window for item in self.state.visited if item.failed is not None]
        for visited in self.state.visited:
            window = visited.window
            # Asked as of an earlier time than before, fewer labels are no news.
            if not self._may_change(visited) or self.now <= visited.as_of:
                continue
            now = self.monitor.source.counts(window.start, window.end, as_of=self.now)
            changed = next_revision(visited.revision, visited.counts, now) is not None
            if changed or window in failed[-_MOST_RETRIED:]:
                self._look_again(visited)

    def _look_again(self, visited: Visited) -> None:
        before, failed = (visited.revision, visited.as_of), visited.failed
        visited.revision, visited.as_of = visited.revision + 1, self.now
        record = self._record(visited, self.now, partial(self._again, visited))
        if failed is not None and visited.failed == failed:
            visited.revision, visited.as_of = before  # as it was: nothing to tell
            return
        if failed is not None and visited.failed is None:
            when = f"{visited.window.start:%Y-%m-%d %H:%M}"
            self.state.notes.append(f"The window of {when} UTC, which had failed, can be read now.")
        self.outbox.commit(record)

    def _again(self, visited: Visited) -> Decomposed:
        return self._standards.cache.window(visited.window.start, visited.window.end, self.now)

    def _may_change(self, visited: Visited) -> bool:
        in_time = visited.window.end + self.monitor.windows.revisit_for >= self.now
        return in_time or visited.failed is not None

    def _record(
        self, visited: Visited, as_of: datetime, read: Callable[[], Decomposed]
    ) -> WindowRecord:
        """Read, audit and judge one window; update the state, but save nothing yet."""
        started, window = perf_counter(), visited.window
        left_out = self._quiet.left_out(window.start, window.end)
        try:
            found = read()
        except TooManyBadRowsError as error:
            visited.counts = self.monitor.source.counts(window.start, window.end, as_of=as_of)
            reason = str(error)
            if left_out is not None:
                visited.failed = None
                return self._base(visited, "failed", reason=reason, **_facts_of(visited.counts))
            if reason != visited.failed:
                when = f"{window.start:%Y-%m-%d %H:%M}"
                self.state.notes.append(f"The window of {when} UTC was not audited: {reason}")
            visited.failed = reason
            return self._base(visited, "failed", reason=reason, **_facts_of(visited.counts))
        data, visited.failed = found.data, None
        visited.counts = data.counts
        waited = perf_counter() - started
        facts = _facts_of(data.counts) | {
            "n_quarantined": data.n_quarantined,
            "quarantine": dict(data.bad_reasons),
            "n_repeated": data.n_duplicate_ids,
            "n_relabelled": data.n_changed_labels,
            "model_versions": data.versions,
        }
        self._tell_once(window, _REPEATS, say_repeats(data))
        self._tell_once(window, _UNKNOWN, say_unknown(data))
        step = self._detecting.feed(visited, found, as_of, counts=left_out is None)
        ready = readiness(self.monitor.windows, data.counts)
        if ready == "ready" and data.n_usable < max(1, self.monitor.windows.min_labelled):
            ready = "few labels"
        selection = self._look_at_choice(window, found) if ready == "ready" else Selection()
        facts["branch_coverage"] = dict(selection.coverage)
        late = selection.late(self.monitor.windows.min_branch_coverage)
        if late is not None:
            ready, facts["notes"] = "low coverage", (late,)
        if ready != "ready":
            status = "empty" if ready == "empty" else "thin"
            self.state.early_drift.pop(window.id, None)
            facts["forecasts"] = self._foresee(window, data.n_predictions)
            return self._base(visited, status, reason=ready, step=step, **facts)
        noted = self._notice(window, found, selection)
        return self._audited(visited, found, step, facts, {"read": waited}, as_of, noted)

    def _look_at_choice(self, window: Window, found: Decomposed) -> Selection:
        """Compare labelled rows with all rows of the window, where some have no label."""
        data, monitor = found.data, self.monitor
        wanted = monitor.policy.noticing.enabled or monitor.windows.min_branch_coverage > 0
        if not wanted or data.n_labelled >= data.n_predictions or data.sampled_from is not None:
            return Selection()
        try:
            everyone = monitor.source.predictions(window.start, window.end)
        except TooManyBadRowsError:
            return Selection()  # of rows without labels; those with labels can be used
        return look_at_labels(
            everyone,
            self._scored(everyone),
            (data.probabilities, found.rows, found.weights),
            tree=monitor.tree,
            subgroups=self._standards.subgroups,
            label_probability=data.label_probability,
        )

    def _notice(self, window: Window, found: Decomposed, selection: Selection) -> list[str]:
        """Say what makes bounds untrue, in the record and, now and then, to people."""
        data = found.data
        if not self.monitor.policy.noticing.enabled or data.sampled_from is not None:
            return []
        said = {"labels:chosen": say_selection(selection)}
        if data.clusters is None:
            keys = {str(name): data.keys[name].to_numpy() for name in data.keys}
            tested = find_dependence(found.rows, data.probabilities, keys, data.features)
            said["rows:dependent"] = None if tested is None else say_dependence(*tested)
        else:
            short = find_short_blocks(found.rows, data.clusters)
            said["rows:dependent"] = None if short is None else say_blocks(short)
        for key, text in said.items():
            self._tell_once(window, key, text)
        return [text for text in said.values() if text is not None]

    def _tell_standing(self, examined: Examination, findings: Sequence[Finding]) -> None:
        """Say once what is beyond tolerance and did not change; again after it had been better.

        People hear of all of it at once, the first time; what joins it later is a warning in status
        and report, and as little a change as the rest.
        """
        change = examined.change
        better = {item.node for item in change.changes if item.better} if change else set()
        told = [node for node in self.state.standing if node not in better]
        nodes = [finding.node for finding in findings if finding.kind == "standing"]
        heard = {alert.node for alert in self.state.open_alerts if alert.muted is None}
        nodes = [node for node in nodes if node in heard]
        if nodes and not told:
            self.state.notes.append(say_standing(nodes))
        self.state.standing = [*told, *(node for node in nodes if node not in told)]

    def _tell_unmuted(self) -> None:
        """Tell of alerts whose mute is over though no window was audited since."""
        state, last = self.state, self.state.last
        state.mutes = [mute for mute in state.mutes if mute.until > self.now]
        if last is None:
            return
        utilities = {utility.name: utility for utility in self.monitor.utilities}
        for alert in state.open_alerts:
            names = {"branch": alert.node, "subgroup": alert.subgroup, "utility": alert.utility}
            if alert.muted is None or self._quiet.why(last.start, last.end, **names) is not None:
                continue
            state.alerts[alert.candidate] = alert.heard(alert.last_seen)
            state.transitions.append(still_there(alert, utilities[alert.utility], last.id))
            state.until = state.until or last.end

    def _tell_once(self, window: Window, key: str, said: str | None) -> None:
        """Say what is odd about a window's rows, and again after the cool-down while it is."""
        told = self.state.drift_told.get(key)
        if said is None or (
            told is not None and window.end - pd.Timestamp(told) < self.monitor.policy.alerts.pause
        ):
            return
        self.state.drift_told[key] = window.end.isoformat()
        self.state.notes.append(f"Window of {window.start:%Y-%m-%d %H:%M} UTC: {said}")

    def _base(self, visited: Visited, status: Any, **facts: Any) -> WindowRecord:
        window, state = visited.window, self.state
        step = facts.pop("step", None)
        return WindowRecord(
            monitor=self.monitor.name,
            identity=self.monitor.identity,
            model=self.monitor.model,
            window_id=window.id,
            ordinal=window.ordinal,
            start=window.start,
            end=window.end,
            due_at=window.due_at,
            revision=visited.revision,
            status=status,
            detector=self._detecting.to_plain(step),
            **{"model_version": state.model_version, "alerts": state.open_alerts, **facts},
        )

    def _audited(
        self,
        visited: Visited,
        found: Decomposed,
        step: EDetectorStep | None,
        facts: dict[str, Any],
        timings: dict[str, float],
        as_of: datetime,
        noted: list[str],
    ) -> WindowRecord:
        monitor, state, window = self.monitor, self.state, visited.window
        reference = self._standards.reference
        examined = Examination.of(monitor, self._standards.subgroups, window, found, reference)
        newest = window.ordinal >= state.last_judged
        left_out = self._quiet.left_out(window.start, window.end)
        change = None
        if left_out is None:
            change = self._changing.look(visited, examined, as_of, newest=newest)
        examined.change = change
        judgements = examined.judgements(step, self._changing.decisive(change))
        findings = examined.findings(judgements)
        notes = list(noted)
        transitions: list[AlertTransition] = []
        if left_out is not None:
            notes.append(f"This window is no evidence for or against anything: muted {left_out}.")
        elif reference is None:
            self._standards.freeze(examined, window)
            self._keep_reference()
            notes.append("This window is the reference that later windows are compared with.")
        is_accepted = reference is None and not left_out and monitor.policy.tolerance.relative
        if is_accepted:
            self._load_detector()
        elif newest:
            state.last_judged = window.ordinal
            state.alerts, transitions = examined.advance(state.alerts, judgements, self._quiet)
            state.transitions += transitions
            if any(item.standing for item in judgements):
                self._tell_standing(examined, findings)
        else:
            notes.append("A newer window was judged already: this revision changes no alert.")
        early = [DriftFinding.from_dict(x) for x in state.early_drift.pop(window.id, [])]
        notes += [*reconcile(early, judgements), *examined.result.notes]
        unknown = say_unknown(found.data)
        if unknown is not None:
            notes.append(unknown)
        if found.data.sampled_from is not None:
            notes.append(
                f"The audit is of all rows; causes, drift, pictures and the e-detector are of a "
                f"sample of {found.data.n:,} of {found.data.sampled_from:,} labelled rows."
            )
        record = self._base(
            visited,
            "audited",
            step=step,
            audit=examined.result.to_dict(),
            tolerances=tuple(examined.tolerances.tolist()),
            levels=tuple(None if is_accepted else item.level for item in judgements),
            transitions=tuple(transitions),
            drift=examined.drift,
            change=change,
            forecasts=self._forecasting.judge(window.id, found),
            findings=findings,
            curve=examined.curve(findings),
            frequencies=examined.frequencies(),
            familiar=examined.familiar(),
            notes=tuple(notes),
            tree_change=state.tree_change,
            timings={**timings, "audit": examined.seconds},
            **facts,
        )
        state.tree_change = None
        return self._with_trigger(record)

    def _with_trigger(self, record: WindowRecord) -> WindowRecord:
        policy, state = self.monitor.policy.recalibration, self.state
        if not policy.enabled or record.ordinal < state.last_judged:
            return record
        trigger = policy.decide(record, state.last_trigger)
        if trigger is None:
            return record
        state.last_trigger = state.trigger = trigger
        state.notes.append(f"Recalibration requested: {trigger.reason}.")
        return dataclasses.replace(record, recalibration=trigger)

    # Before the labels are there.

    def _look_early(self, window: Window) -> None:
        monitor, reference = self.monitor, self._standards.reference
        if reference is None:
            return
        data = monitor.source.predictions(window.start, window.end)
        if not data.n:
            return
        rows = self._scored(data)
        weights = self._standards.subgroups.weights(data.features, data.n)
        drift: tuple[DriftFinding, ...] = ()
        if monitor.policy.drift.enabled:
            drift = compare(
                reference.drift,
                data.probabilities,
                rows,
                weights,
                tree=monitor.tree,
                subgroups=self._standards.subgroups,
                policy=monitor.policy.drift,
            )
        subgroups = self._standards.subgroups
        values = monitor.policy.tolerance.values(monitor.tree, monitor.utilities, subgroups)
        plan = AuditPlan.of(tree=monitor.tree, utilities=monitor.utilities, subgroups=subgroups)
        quiet = ignored(values, plan.names)
        drifted = [item for item in drift if item.drifted and (item.kind, item.name) not in quiet]
        self.state.early_drift[window.id] = [item.to_dict() for item in drifted]
        for item in drifted:
            about = {_DRIFTS[item.kind]: item.name}
            if self._quiet.why(window.start, window.end, **about) is not None:
                continue
            key = f"{item.kind}:{item.name}"
            told = self.state.drift_told.get(key)
            if told is None or window.end - pd.Timestamp(told) >= monitor.policy.alerts.pause:
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
            forecasts=self._forecasting.look(window.id, rows),
        )
        self.outbox.commit(record)

    def _scored(self, data: PredictionData) -> list[UtilityRows]:
        monitor = self.monitor
        unknown = np.full(data.n, -1, dtype=np.int64)
        predictions = Predictions.of(data.probabilities)
        return list(iter_decomposed(monitor.utilities, predictions, unknown, tree=monitor.tree))

    def _foresee(self, window: Window, n_predictions: int) -> tuple[Forecast, ...]:
        """Forecast a window that is due and has too few labels."""
        if not n_predictions or not self._forecasting.possible:
            return ()
        data = self.monitor.source.predictions(window.start, window.end)
        return self._forecasting.look(window.id, self._scored(data)) if data.n else ()


def _facts_of(counts: RowCounts) -> dict[str, Any]:
    return {
        "n_predictions": counts.n_predictions,
        "n_labelled": counts.n_labelled,
        "coverage": counts.coverage,
        "latest_label": counts.latest_label,
    }
