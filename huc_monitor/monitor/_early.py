"""Before labels are there: what predictions alone say of a window, and what came of it later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from huc_monitor.audit.decomposition import UtilityRows
from huc_monitor.audit.forecast import Forecast, score_rows
from huc_monitor.audit.inputs import Predictions
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.monitor._reference import measure_drift
from huc_monitor.monitor.alerts import Judgement
from huc_monitor.monitor.records import DriftFinding
from huc_monitor.monitor.tolerance import ignored
from huc_monitor.monitor.windows import Window, pending_windows
from huc_monitor.sources import PredictionData, TooManyBadRowsError

if TYPE_CHECKING:
    from huc_monitor.monitor._monitor import Monitor
    from huc_monitor.monitor._standards import Standards
    from huc_monitor.monitor._state import MonitorState
    from huc_monitor.monitor._telling import Telling
    from huc_monitor.monitor.forecasting import Forecasting

_ABOUT = {"branch": "branch", "scores": "utility", "subgroup": "subgroup"}
_UNREAD = "rows:unread"
_PLACES = {"scores": 0, "subgroup": 1, "branch": 2}  # in the names of a candidate


@dataclass(frozen=True, slots=True, eq=False)
class Early:
    """Drift and forecasts of windows whose labels are missing."""

    monitor: Monitor
    state: MonitorState
    standards: Standards
    forecasting: Forecasting
    telling: Telling

    def pending(self, now: datetime) -> list[Window]:
        """List the windows that wait for labels and were not looked at yet."""
        monitor, policy = self.monitor, self.monitor.policy
        if not policy.drift.enabled and not policy.forecast.enabled:
            return []
        found = pending_windows(
            monitor.windows,
            monitor.source,
            now=now,
            identity=monitor.identity,
            last=self.state.last,
        )
        return [window for window in found if window.id not in self.state.early_drift]

    def look(self, window: Window) -> dict[str, Any] | None:
        """Measure drift, tell of it, and forecast; return what its record says, if anything."""
        monitor, reference = self.monitor, self.standards.reference
        if reference is None:
            return None
        try:
            data = monitor.source.predictions(window.start, window.end)
        except TooManyBadRowsError as error:
            return self._unread(window, str(error))
        if not data.n:
            return None
        rows = score_rows(monitor.utilities, Predictions.of(data.probabilities), tree=monitor.tree)
        subgroups = self.standards.subgroups
        weights = subgroups.weights(data.features, data.n)
        drift = measure_drift(monitor, subgroups, reference, data, rows, weights)
        drifted = list(self._heard(drift))
        self.state.early_drift[window.id] = [item.to_dict() for item in drifted]
        for item in drifted:
            # That predictions of another version are others is told once.
            key = f"{item.kind}:{item.name}" + "".join(f" by {x}" for x in item.versions[1:])
            known = item.versions and key in self.state.drift_told
            about = {_ABOUT[item.kind]: item.name}
            if not known and self.telling.is_due(window, key, **about):
                self.state.drift.append(item)
        return {
            "reason": "labels have not matured",
            "n_predictions": data.n_predictions,
            "n_quarantined": data.n_quarantined,
            "quarantine": dict(data.bad_reasons),
            "model_version": next(filter(None, data.versions), self.state.model_version),
            "model_versions": data.versions,
            "drift": drift,
            "forecasts": self._forecast(window, rows, data),
        }

    def _unread(self, window: Window, reason: str) -> dict[str, Any]:
        """Say once that a window has too many bad rows to look at before its labels come."""
        self.state.early_drift[window.id] = []
        if not self._left_out(window):
            self.telling.note(
                f"The window of {self.telling.when(window)} waits for labels and was not "
                f"looked at early: {reason}"
            )
        n = self.monitor.source.counts(window.start, window.end).n_predictions
        return {"reason": reason, "n_predictions": n}

    def _heard(self, drift: Sequence[DriftFinding]) -> Iterator[DriftFinding]:
        """Yield what moved, but for what no tolerance lets anybody speak of."""
        monitor, subgroups = self.monitor, self.standards.subgroups
        values = monitor.policy.tolerance.values(monitor.tree, monitor.utilities, subgroups)
        plan = AuditPlan.of(tree=monitor.tree, utilities=monitor.utilities, subgroups=subgroups)
        quiet = ignored(values, plan.names)
        return (item for item in drift if item.drifted and (item.kind, item.name) not in quiet)

    def foresee(self, window: Window, n_predictions: int) -> tuple[Forecast, ...]:
        """Forecast a window that is due and has too few labels."""
        if not n_predictions or not self.forecasting.possible:
            return ()
        monitor = self.monitor
        try:
            data = monitor.source.predictions(window.start, window.end)
        except TooManyBadRowsError as error:  # of rows without labels
            self.telling.say(window, {_UNREAD: f"no forecast; {error}"})
            return ()
        if not data.n:
            return ()
        rows = score_rows(monitor.utilities, Predictions.of(data.probabilities), tree=monitor.tree)
        return self._forecast(window, rows, data)

    def _forecast(
        self, window: Window, rows: Sequence[UtilityRows], data: PredictionData
    ) -> tuple[Forecast, ...]:
        """Forecast a window from its scored rows; one in maintenance has no forecast."""
        if self._left_out(window):
            self.forecasting.drop(window.id)
            return ()
        return self.forecasting.look(window, rows, data)

    def _left_out(self, window: Window) -> bool:
        """Whether a window is in maintenance, and so no evidence of anything."""
        return self.telling.quiet.left_out(window.start, window.end) is not None

    def reconcile(self, window: Window, judgements: Sequence[Judgement]) -> list[str]:
        """Say what the labels made of drift that was seen before they came."""
        early = [DriftFinding.from_dict(x) for x in self.state.early_drift.pop(window.id, [])]
        confirmed, harmless = [], []
        for item in early:
            at = _PLACES[item.kind]
            mine = [j for j in judgements if j.candidate[at] == item.name and j.level]
            worst = max(mine, key=lambda j: abs(j.moment), default=None)
            if worst is None:
                harmless.append(f"*{item.name}*")
            else:
                confirmed.append(f"*{item.name}* (moment {worst.moment:+.3f})")
        notes = []
        if confirmed:
            text = ", ".join(confirmed)
            notes.append(f"Drift seen before the labels came is miscalibration by now: {text}.")
        if harmless:
            text = ", ".join(harmless)
            notes.append(f"Drift seen before the labels came did no harm to calibration: {text}.")
        return notes
