"""One check: every due window in turn, then late labels, then drift where labels are missing.

All of it depends on the data, the state and `now` alone. What a check is judged by is in
`_standards` and `_detecting`; what it says besides alerts in `_telling`; windows without labels in
`_early`; what is saved and sent, and in which order, in `_outbox`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from huc_monitor._common.stages import listening
from huc_monitor._common.times import say_span, say_time
from huc_monitor.detection import EDetectorStep
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor._ahead import ReadAhead
from huc_monitor.monitor._changing import Changing
from huc_monitor.monitor._detecting import Detecting
from huc_monitor.monitor._early import Early
from huc_monitor.monitor._examine import Examination
from huc_monitor.monitor._outbox import Outbox
from huc_monitor.monitor._rows import Decomposed
from huc_monitor.monitor._samples import SampleFiles
from huc_monitor.monitor._standards import Standards, say_waiting
from huc_monitor.monitor._state import MonitorState, Visited
from huc_monitor.monitor._telling import Telling
from huc_monitor.monitor.discovering import Discovering
from huc_monitor.monitor.forecasting import Forecasting
from huc_monitor.monitor.muting import Quiet
from huc_monitor.monitor.noticing import Noticing, Selection
from huc_monitor.monitor.records import AlertTransition, WindowRecord
from huc_monitor.monitor.silence import Silence
from huc_monitor.monitor.windows import (
    TimeWindows,
    Window,
    due_windows,
    next_revision,
    readiness,
)
from huc_monitor.sources import RowCounts, TooManyBadRowsError, WindowData
from huc_monitor.sources._rows import say_unknown
from huc_monitor.tree import LabelTree

if TYPE_CHECKING:
    from huc_monitor.monitor._monitor import Monitor

_NO_ROWS = RowCounts(0, 0)
_SOME_WINDOWS, _MANY_WINDOWS = 100, 1_000
# Failed windows that are read again at every check; older ones only when their counts change.
_MOST_RETRIED = 16
_MOVED = "rows:moved"
_BY_ITSELF = "What changed in this window is judged by it alone: earlier rows are no longer kept."


@dataclass(slots=True, eq=False)
class Check:
    """The work of one call of `Monitor.check`."""

    monitor: Monitor
    state: MonitorState
    now: datetime
    files: SampleFiles
    progress: Callable[[int, int, str], None] | None = None
    outbox: Outbox = field(init=False)
    waiting: str | None = field(init=False, default=None)
    _quiet: Quiet = field(init=False)
    _telling: Telling = field(init=False)
    _silence: Silence = field(init=False)
    _standards: Standards = field(init=False)
    _detecting: Detecting = field(init=False)
    _changing: Changing = field(init=False)
    _early: Early = field(init=False)
    _discovering: Discovering = field(init=False)

    def __post_init__(self) -> None:
        monitor, state = self.monitor, self.state
        self.outbox = Outbox(monitor, state)
        given = monitor.policy.maintenance
        self._quiet = Quiet(state.mutes, given, monitor.windows.zone, self.now)
        self._telling = Telling(monitor, state, self._quiet, self.now)
        first = state.newest is None and state.waiting is None
        self._silence = Silence(monitor, state, self._quiet, self.now, first)
        self._discovering = Discovering(monitor, state)
        self._begin()

    def _begin(self) -> None:
        monitor, state = self.monitor, self.state
        self._standards = Standards(monitor, state)
        self._detecting = Detecting(monitor, state)
        self._changing = Changing(monitor, state, self.files)
        forecasting = Forecasting(state, monitor.policy.forecast, self._changing)
        self._early = Early(monitor, state, self._standards, forecasting, self._telling)

    def run(self, since: datetime | None, until: datetime | None) -> None:
        """Deal with everything that is due."""
        monitor, state = self.monitor, self.state
        self.outbox.open()
        if state.reference is None:
            self.waiting = say_waiting(monitor.reference, monitor.windows, self.now)
        self._telling.waiting(self.waiting)
        total = 0 if self.waiting else self._run_due(since, until)
        self._telling.unmuted()
        self.outbox.newest_row = self._silence.tell()
        if total and self.progress is not None:
            self.progress(total, total, "")
        tell = self.progress
        with listening(None if tell is None else lambda stage: tell(total, total, stage)):
            self.outbox.finish()

    def _run_due(self, since: datetime | None, until: datetime | None) -> int:
        """Audit what is due, then look at what waits for labels; return how many windows."""
        monitor, state = self.monitor, self.state
        asked: dict[str, Any] = {"now": self.now, "since": since, "until": until}
        known: dict[str, Any] = {"identity": monitor.identity, "last": state.last}
        due = due_windows(monitor.windows, monitor.source, **asked, **known)
        self._check_start(due)
        pending = [] if until is not None else self._early.pending(self.now)
        total = len(due) + len(pending)
        if total or self._late_possible():
            self._prepare(due)
        rest = due
        if due:
            self._telling.untimed()
            self._telling.out_of_reach()
            self._say_moved()
        while rest:
            rest = self._visit_all(rest, len(due) - len(rest), total)
        self._revisit()
        for done, window in enumerate(pending, start=len(due)):
            self._tell(done, total, window)
            self._look_early(window)
        return total

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
            self.progress(done, total, self._telling.when(window))

    # Before the windows: what must be known first.

    def _check_start(self, due: list[Window]) -> None:
        """Tell of many empty windows before a log really begins; refuse to record thousands."""
        early = len(due) // 2
        if self.state.last is not None or len(due) < _SOME_WINDOWS:
            return
        source, start, middle = self.monitor.source, due[0].start, due[early].start
        enough = source.advance(start, early)
        if enough is not None and enough <= middle:
            return  # found without counting all rows
        n = source.counts(start, middle).n_predictions
        if 10 * n >= early:
            return
        begin = source.advance(start, max(1, n)) or due[-1].start
        zone = self.monitor.windows.time_zone
        said = (
            f"it has {n:,} rows in the {early:,} windows from {say_span(start, middle, zone)}, and "
            f"the next on {say_time(begin, zone)}. Repair the times of these rows, "
            "or name the day of the first window as `begin`"
        )
        if len(due) >= _MANY_WINDOWS:
            msg = f"`windows.begin` must be set for this log: {said} or --since."
            raise InvalidInputError(msg)
        self._telling.note(f"The log begins with empty windows: {said} in `windows`.")

    def _say_moved(self) -> None:
        """Say that the last window would be cut elsewhere now; the next one starts at its end."""
        last, spec, source = self.state.last, self.monitor.windows, self.monitor.source
        if last is None or isinstance(spec, TimeWindows) or not spec.has_moved(source, last):
            return
        n = source.counts(last.start, last.end).n_predictions
        said = (
            f"rows came late or were deleted after this window was cut at {spec.n_rows:,} rows: it "
            f"holds {n:,} now. The next window starts where this one ends. Late rows are audited "
            "only where `windows.revisit` is set."
        )
        self._telling.say(last, {_MOVED: said})

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
        self._silence.visit(window, visited.counts)
        kept = [*self.state.visited, visited]
        self.state.visited = [item for item in kept if self._may_change(item)]
        searched = self._take_in(record, window)
        return self._commit(record, window.due_at, searched=searched)

    def _commit(self, record: WindowRecord | None, as_of: datetime, *, searched: bool) -> bool:
        """Save a window, after a search for subgroups; True where subgroups are others now."""
        grown = searched and self._discovering.search(as_of)
        if record is not None:
            said = self._discovering.said if searched else ()
            self.outbox.commit(dataclasses.replace(record, notes=(*record.notes, *said)))
        return grown

    def _take_in(self, record: WindowRecord, window: Window) -> bool:
        """Remember a window for discovery; True where its rows are to be searched."""
        counts = self._quiet.left_out(window.start, window.end) is None
        if counts and record.status != "audited":
            return False
        return self._discovering.take_in(window, counts=counts)

    def _revisit(self) -> None:
        """Audit windows again whose rows or labels have changed since; each is a revision.

        A label that is corrected in place changes no count, so the newest failed windows are read
        again in any case.
        """
        failed = [item.window for item in self.state.visited if item.failed is not None]
        late, last = False, None  # the last record waits for what a search says
        for visited in self.state.visited:
            window = visited.window
            # Asked as of an earlier time than before, fewer labels are no news.
            if not self._may_change(visited) or self.now <= visited.as_of:
                continue
            now = self.monitor.source.counts(window.start, window.end, as_of=self.now)
            changed = next_revision(visited.revision, visited.counts, now) is not None
            if changed or window in failed[-_MOST_RETRIED:]:
                self._commit(last, self.now, searched=False)
                last, searchable = self._look_again(visited)
                late |= searchable
        if self._commit(last, self.now, searched=late):
            self._begin()
            self._prepare([])

    def _look_again(self, visited: Visited) -> tuple[WindowRecord | None, bool]:
        """Audit a window again; say whether it is the first time that its rows can be searched."""
        was_ready = readiness(self.monitor.windows, visited.counts) == "ready"
        before, failed = (visited.revision, visited.as_of), visited.failed
        n_labelled = visited.counts.n_labelled
        visited.revision, visited.as_of = visited.revision + 1, self.now
        record = self._record(visited, self.now, partial(self._again, visited))
        if failed is not None and visited.failed == failed:
            visited.revision, visited.as_of = before  # as it was: nothing to tell
            return None, False
        if failed is not None and record.status != "failed":  # in maintenance it may still be
            self._telling.mended(visited.window)
        if visited.counts.n_labelled > n_labelled:
            self._silence.late_labels()
        late = not (was_ready and failed is None) and self._take_in(record, visited.window)
        return record, late

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
            return self._failed(visited, str(error), as_of, muted=left_out is not None)
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
        self._telling.rows(window, data)
        step = self._detecting.feed(visited, found, as_of, counts=left_out is None)
        ready = readiness(self.monitor.windows, data.counts)
        if ready == "ready" and data.n_usable < max(1, self.monitor.windows.min_labelled):
            ready = "few labels"
        noticing = Noticing(self.monitor, self._standards.subgroups)
        look = visited.revision
        selection = noticing.selection(found, look) if ready == "ready" else Selection()
        facts["branch_coverage"] = dict(selection.coverage)
        late = selection.late(self.monitor.windows.min_branch_coverage)
        if late is not None:
            ready, facts["notes"] = "low coverage", (late,)
        if ready != "ready":
            status = "empty" if ready == "empty" else "thin"
            self.state.early_drift.pop(window.id, None)
            facts["forecasts"] = self._early.foresee(window, data.n_predictions)
            return self._base(visited, status, reason=ready, step=step, **facts)
        faults = noticing.faults(found, selection)
        self._telling.say(window, faults)
        noted = [text for text in faults.values() if text is not None]
        if left_out is None:
            noted += self._telling.newcomers(window, self._standards.subgroups, data.features)
        return self._audited(visited, found, step, facts, {"read": waited}, as_of, noted)

    def _failed(
        self, visited: Visited, reason: str, as_of: datetime, *, muted: bool
    ) -> WindowRecord:
        """Record a window whose rows cannot be used."""
        window = visited.window
        visited.counts = self.monitor.source.counts(window.start, window.end, as_of=as_of)
        if not muted and reason != visited.failed:
            self._telling.failed(window, reason)
        visited.failed = None if muted else reason
        return self._base(visited, "failed", reason=reason, **_facts_of(visited.counts))

    def _base(self, visited: Visited, status: Any, **facts: Any) -> WindowRecord:
        window, state = visited.window, self.state
        step = facts.pop("step", None)
        known = state.open_alerts
        if not visited.revision:  # one that was carried over may have opened later
            known = tuple(alert for alert in known if alert.first_seen < window.end)
        return WindowRecord(
            monitor=self.monitor.name,
            identity=self.monitor.identity,
            model=self.monitor.model,
            window_id=window.id,
            ordinal=window.ordinal,
            start=window.start,
            end=window.end,
            due_at=window.due_at,
            time_zone=self.monitor.windows.time_zone,
            maintenance=self._quiet.left_out(window.start, window.end),
            revision=visited.revision,
            status=status,
            detector=self._detecting.to_plain(step),
            **{"model_version": state.model_version, "alerts": known, **facts},
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
        examined = Examination(monitor, self._standards.subgroups, window, found, reference)
        newest = window.ordinal >= state.last_judged
        left_out = self._quiet.left_out(window.start, window.end)
        change = None
        if left_out is None:
            change = self._changing.look(visited, examined, as_of, newest=newest)
        examined.change = change
        judgements = examined.judgements(step, self._changing.decisive(change))
        # Without a comparison all that is large would seem to stand.
        findings = () if left_out is not None else examined.findings(judgements)
        notes = list(noted)
        transitions: list[AlertTransition] = []
        if left_out is not None:
            notes.append(f"This window is no evidence for or against anything: muted {left_out}.")
        elif reference is None:
            self._standards.freeze(examined)
            self._keep_reference()
            notes.append("This window is the reference that later windows are compared with.")
        is_accepted = reference is None and not left_out and monitor.policy.tolerance.relative
        if is_accepted:
            self._load_detector()
        elif newest and left_out is None:
            state.last_judged = window.ordinal
            state.alerts, transitions = examined.advance(state.alerts, judgements, self._quiet)
            state.transitions += transitions
            if any(item.standing for item in judgements):
                self._telling.standing(findings, change)
            self._telling.together(examined.together(), alone=not findings and not state.alerts)
        elif left_out is None:
            notes.append("A newer window was judged already: this revision changes no alert.")
            if change is not None and window.id not in {item.id for item in state.compared}:
                notes.append(_BY_ITSELF)
        notes += [*self._early.reconcile(window, judgements), *examined.result.notes]
        notes += _say_rows(found.data, monitor.tree)
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
            forecasts=self._early.forecasting.judge(window.id, found, counts=left_out is None),
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
        return record if left_out else self._with_trigger(record)

    def _with_trigger(self, record: WindowRecord) -> WindowRecord:
        policy, state = self.monitor.policy.recalibration, self.state
        if not policy.enabled or record.ordinal < state.last_judged:
            return record
        trigger = policy.decide(record, state.last_trigger)
        if trigger is None:
            return record
        state.last_trigger = state.trigger = trigger
        self._telling.note(f"Recalibration requested: {trigger.reason}.")
        return dataclasses.replace(record, recalibration=trigger)

    # Before the labels are there.

    def _look_early(self, window: Window) -> None:
        facts = self._early.look(window)
        if facts is not None:
            visited = Visited(window, 0, window.due_at, _NO_ROWS, window.start, None)
            self.outbox.commit(self._base(visited, "pending", **facts))


def _say_rows(data: WindowData, tree: LabelTree) -> list[str]:
    """Say which labels are none of the tree's, and what is of a sample."""
    notes = [say_unknown(data.unknown_labels, tree)]
    if data.sampled_from is not None:
        notes.append(
            f"The audit is of all rows; causes, drift, pictures and the e-detector are of a "
            f"sample of {data.n:,} of {data.sampled_from:,} labelled rows."
        )
    return [text for text in notes if text is not None]


def _facts_of(counts: RowCounts) -> dict[str, Any]:
    return {**dataclasses.asdict(counts), "coverage": counts.coverage}
