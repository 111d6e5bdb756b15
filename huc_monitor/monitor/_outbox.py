"""What a check leaves behind: records, state, messages, and what others are told.

The order of saving is what makes a crash harmless. After each window the new state is saved with
the window's record inside it, in one atomic step; then the record is handed to the tracker. At the
next start a record that is still in the state is handed over first (trackers are idempotent). In
the same way messages, the published status and a recalibration trigger are decided and saved first,
and carried out afterwards.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from huc_monitor.monitor.messages import compose
from huc_monitor.monitor.ports.attachment import attach
from huc_monitor.monitor.ports.exporter import Standing
from huc_monitor.monitor.ports.notifier import Message, deliver
from huc_monitor.monitor.records import WindowRecord

if TYPE_CHECKING:
    from huc_monitor.monitor._monitor import Monitor
    from huc_monitor.monitor._state import MonitorState

log = logging.getLogger("huc_monitor")

_MOST_UNSENT = 50


@dataclass(slots=True, eq=False)
class Outbox:
    """Saves what a check finds, and tells everyone who waits for it."""

    monitor: Monitor
    state: MonitorState
    records: list[WindowRecord] = field(default_factory=list)
    message: Message | None = None
    newest_row: datetime | None = None
    _saved: str = ""
    _newest_before: str | None = None

    def open(self) -> None:
        """Hand over what an earlier check could not."""
        self._saved = self.state.to_json()
        self._newest_before = self.state.newest
        self._hand_over()

    def commit(self, record: WindowRecord) -> None:
        """Save a window with the state, then hand it to the tracker."""
        state = self.state
        said = self.monitor.tracker.remark(record)
        if said is None and state.remark in state.notes:  # true of earlier windows of this check
            state.notes.remove(state.remark)
            state.remark = None
        if said is not None and said != state.remark:
            record = dataclasses.replace(record, notes=(*record.notes, said))
            state.notes.append(said)
            state.remark = said
        # The newest window with labels; where none is new, the newest that waits for them.
        labelled = state.until and state.last and state.until <= state.last.end
        if record.status != "pending" or not labelled:
            state.until = max(record.end, state.until or record.end)
        state.record = record.to_dict()
        if record.status != "pending":
            state.newest = record.key
            state.follow_trend(record)
        self._save()
        self._hand_over(record)
        self.records.append(record)
        log.info("window", extra={"huc": _summary(record)})

    def _hand_over(self, record: WindowRecord | None = None) -> None:
        """Give the tracker the record that was saved last, also if that was before a crash."""
        if self.state.record is not None:
            record = record or WindowRecord.from_dict(self.state.record)
            span = self.state.reference_times
            files = attach(self.monitor.hosts.attachments, record, span)
            self.monitor.tracker.record(record, files or None)
            self.state.record = None

    def _save(self) -> None:
        self.monitor.tracker.save_state(self.state.to_dict())

    def _save_if_changed(self) -> None:
        text = self.state.to_json()
        if text != self._saved:
            self._save()
            self._saved = text

    def finish(self) -> None:
        """Decide on one message and save it; then publish, send and recalibrate."""
        state = self.state
        early = max((r.end for r in self.records if r.status == "pending"), default=None)
        if state.until is not None:
            self.message = compose(
                state.transitions,
                drift=state.drift,
                warnings=state.warnings,
                notes=state.notes,
                standing=state.standing_untold,
                limits=self.monitor.policy.limits,
                alerts=state.open_alerts,
                monitor=self.monitor.name,
                identity=self.monitor.identity,
                until=state.until,
                early=early,
                status=state.status,
                tree=self.monitor.tree,
                place=self.monitor.hosts.place,
                zone=self.monitor.windows.time_zone,
            )
            state.transitions, state.drift, state.notes, state.until = [], [], [], None
            state.standing_untold, state.warnings = [], []
        if self.message is not None and self.monitor.hosts.notifiers:
            left = sorted(self.monitor.hosts.notifiers)
            entry = {"message": self.message.to_dict(), "left": left}
            state.messages = [*state.messages, entry][-_MOST_UNSENT:]
        self._save_if_changed()
        if state.status != state.published:
            self.monitor.tracker.set_alert_status(state.status, state.open_alerts)
            state.published = state.status
        state.messages = deliver(state.messages, self.monitor.hosts.notifiers)
        self._save_if_changed()  # what was delivered is not sent again by a check that dies later
        self._export()
        self._recalibrate()
        self._follow()
        self._save_if_changed()

    def _export(self) -> None:
        """Show where things stand; who did not get all of it gets all of it the next time."""
        state = self.state
        for name, exporter in self.monitor.hosts.exporters.items():
            try:
                is_current = state.exported.get(name) == self._newest_before
                records = tuple(self.records if is_current else self.monitor.tracker.records())
                alerts, n_unsent = state.open_alerts, len(state.messages)
                history, newest = self.monitor.tracker.records, self.newest_row
                exporter.export(
                    Standing(state.status, alerts, n_unsent, records, history, newest_row=newest)
                )
            except Exception as error:  # an exporter that fails must not fail a check
                log.warning("exporter %s failed; it is tried again next time: %s", name, error)
                log.debug("traceback", exc_info=True)
            else:
                state.exported[name] = state.newest

    def _recalibrate(self) -> None:
        trigger, recalibrate = self.state.trigger, self.monitor.hosts.recalibrate
        if trigger is None or recalibrate is None:
            self.state.trigger = None
            return
        try:
            recalibrate(trigger)
        except Exception:  # the next check tries again
            log.warning("recalibrating failed; it is kept for the next check", exc_info=True)
            return
        self.state.trigger = None

    def _follow(self) -> None:
        """Let the recalibration host go on with what takes several windows."""
        follow = self.monitor.hosts.follow
        if follow is None or self.state.last is None:
            return
        try:
            said = follow(self.state.last)
        except Exception:  # the next check goes on from where it stopped
            log.warning("the trial of a new version failed; the next check goes on", exc_info=True)
            return
        if said is not None:
            self.state.notes.append(said)


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
