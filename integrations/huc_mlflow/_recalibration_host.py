"""From a trigger to a new version: read rows, fit and judge, register, promote."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from huc_mlflow._bases import UnfitBaseError
from huc_mlflow._card import FittedSample, model_card
from huc_mlflow._client import DEADLINE, filter_text
from huc_mlflow._fit_since import began_under, calm_since, fit_since
from huc_mlflow._lease import LAST
from huc_mlflow._registry import BASE_TAG, CHALLENGER, CHAMPION, ID_TAG, Registry, columns_of
from huc_mlflow._rows import NoBaseProbabilitiesError, RowReader
from huc_mlflow._runs import RECALIBRATION
from huc_mlflow._shadow import Shadow
from huc_mlflow._tracker import MLflowTracker
from huc_monitor._common.safe_text import plain
from huc_monitor._common.stages import begin_stage
from huc_monitor._common.times import Span, say_span, say_time, within
from huc_monitor.audit import audit
from huc_monitor.config import Config
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor import MonitorState, read_state
from huc_monitor.monitor.change import CandidateChange
from huc_monitor.monitor.describing import say_gains
from huc_monitor.monitor.muting import odd_times
from huc_monitor.monitor.ports import MonitorInfo, Move, RecalibrationOutcome, VersionInfo
from huc_monitor.monitor.records import RecalibrationTrigger
from huc_monitor.monitor.windows import Window
from huc_monitor.recalibration.choosing import Recalibration, find_recalibration
from huc_monitor.recalibration.shadow import ShadowTrial
from huc_monitor.sources import WindowData
from huc_monitor.subgroups import Subgroups

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion


log = logging.getLogger("huc_monitor")

_DONE = "huc.outcome"
_ENOUGH_ROWS = 1_000


class MLflowRecalibrationHost:
    """Acts on triggers of a monitor: the entry point ``mlflow`` of ``huc_monitor.recalibrators``.

    Every step can be repeated: a process that dies is followed by one that goes on. A refused
    recalibration is recorded with its reasons, and the same trigger is not tried again.

    Parameters
    ----------
    info : MonitorInfo
        With a configuration and an `MLflowTracker`.
    """

    def __init__(self, info: MonitorInfo) -> None:
        config: Config = info.config
        tracker = info.tracker
        if not isinstance(tracker, MLflowTracker):
            msg = (
                f"`tracker` must be mlflow to recalibrate in its registry; got "
                f"{type(tracker).__name__}. Write `tracker: mlflow` into the configuration."
            )
            raise InvalidInputError(msg)
        options = config.settings.tracker.options()
        self.config = config
        self.tracker = tracker
        self.registry = Registry(
            config.settings.model.name,
            tracking_uri=options.get("tracking_uri"),
            registry_uri=options.get("registry_uri"),
            deadline=options.get("deadline", DEADLINE),
        )
        self.reader = RowReader(config, self.registry)
        self.gate = config.settings.recalibration.gate
        self._shadow = Shadow(config, tracker, self.registry, self.reader, self.gate)

    def ping(self) -> str:
        """Say whether the base could be recalibrated for this tree; raises where it could not."""
        return self.reader.check_base(self.registry.root(self.registry.current()))

    def __call__(self, trigger: RecalibrationTrigger) -> None:
        """Recalibrate, or record why not."""
        outcome = self.act(trigger)
        log.info("recalibration %s: %s", outcome.id, outcome.result)

    def recalibrate(
        self, reason: str = "asked for by a person", since: datetime | None = None
    ) -> RecalibrationOutcome:
        """Recalibrate now, on labels of the windows checked so far.

        Parameters
        ----------
        reason : str
            Kept with the new version.
        since : datetime, optional
            Use rows from this time on; else those since the fault of the newest alert began.
        """
        self.registry.current()  # says what to do where there is none
        state = self._state()
        if state.last is None:
            msg = "`recalibrate` needs a checked window. Run `huc-monitor check` first."
            raise InvalidInputError(msg)
        if since is not None and since >= state.last.end:
            newest = say_time(state.last.end, self.config.windows.time_zone, exact=True)
            msg = f"`since` must be before the end of the newest checked window, {newest}."
            raise InvalidInputError(msg)
        # Asked again with other settings, it is another question: a refusal does not stick.
        base = self.config.settings.columns.base_probabilities
        settings = f"{self.config.policy_identity}/{'' if base is None else base.model_dump_json()}"
        plain = f"{self.config.identity}/{state.last.id}/manual/{settings}"
        plain += "" if since is None else f"/{since.isoformat()}"
        trigger = RecalibrationTrigger(
            id=hashlib.sha256(plain.encode()).hexdigest()[:16],
            reason=reason,
            window_id=state.last.id,
            ordinal=state.last.ordinal,
            window_end=state.last.end,
            candidates=tuple(alert.candidate for alert in state.open_alerts),
            since=since,
        )
        return self.act(trigger, patient=False)

    def act(self, trigger: RecalibrationTrigger, *, patient: bool = True) -> RecalibrationOutcome:
        """Carry one trigger to its end, or go on where another process stopped.

        Parameters
        ----------
        trigger : RecalibrationTrigger
        patient : bool, default True
            Keep the cool-down between two recalibrations of the model.
        """
        run = self.tracker.runs.find_or_make(
            RECALIBRATION,
            trigger.id,
            f"recalibration #{trigger.ordinal}",
            {
                "huc.monitor_run": self.tracker.run_id,
                "mlflow.note.content": plain(trigger.reason),
                "huc.monitor": self.config.settings.model.name,
                "huc.window": trigger.window_id,
                "huc.reason": trigger.reason[:1000],
            },
        )
        done = run.data.tags.get(_DONE)
        if done is not None:
            self.registry.lease.release(trigger.id)
            return RecalibrationOutcome.from_dict(json.loads(done))
        run_id = str(run.info.run_id)
        with self.registry.lease.hold(trigger.id):
            outcome = self._act(trigger, run_id, patient=patient)
            client = self.registry.client
            client.set_tag(run_id, "huc.gate", _gate_tag(outcome))
            client.set_tag(run_id, "huc.reasons", "; ".join(outcome.reasons)[:1000])
            client.set_tag(run_id, _DONE, json.dumps(outcome.to_dict()))
            client.set_terminated(run_id)
        return outcome

    def _act(
        self, trigger: RecalibrationTrigger, run_id: str, *, patient: bool
    ) -> RecalibrationOutcome:
        registry = self.registry
        made = registry.versions(f"tags.`{ID_TAG}` = {filter_text(trigger.id)}")
        if made:
            version = registry.register(
                None, recalibration_id=trigger.id, base=registry.root(made[0]), run_id=run_id
            )
            self._remember(trigger)
            return self._promote(trigger, version, run_id)
        if patient and (too_soon := self._too_soon(trigger) or self._on_trial()):
            return RecalibrationOutcome(trigger.id, "refused", reasons=(too_soon,))
        state = self._state()
        champion = registry.current()
        base = registry.root(champion)
        try:
            begin_stage("reading rows to recalibrate on")
            self.reader.check_base(base)  # before minutes of fitting what could not be registered
            rows, why = self._rows(trigger, champion, state)
        except (NoBaseProbabilitiesError, UnfitBaseError) as error:
            return RecalibrationOutcome(trigger.id, "refused", reasons=(str(error),))
        data = self.tracker.runs.dataset(
            trigger.id, rows.start, rows.end, n_labelled=len(rows.labels)
        )
        models = {str(version.version) for version in (base, champion)}
        linked = map(self.tracker.runs.logged_model, sorted(models))
        self.tracker.runs.log_inputs(run_id, data, "training", *linked)
        zone = self.config.windows.time_zone
        window = say_span(rows.start, rows.end, zone, exact=True)
        used = f"{len(rows.labels):,} labelled rows, {window}: {why}"
        recalibration = self._find(rows, champion, state, trigger.candidates)
        self._log(run_id, recalibration)
        gains = say_gains(recalibration.comparison, self.config.utilities)
        if not recalibration.passed:
            self._remember(trigger)
            return RecalibrationOutcome(
                trigger.id, "refused", reasons=recalibration.reasons, summary=gains, rows=used
            )
        # Fitting takes a while. Whoever was too slow to see this lease has had time to show up.
        registry.lease.confirm(trigger.id)
        if patient and (too_soon := self._too_soon(trigger)):
            return RecalibrationOutcome(trigger.id, "refused", reasons=(too_soon,))
        begin_stage("registering the new version")
        sample = self._sample(rows, state)
        version = registry.register(
            recalibration.recalibrator,
            recalibration_id=trigger.id,
            base=base,
            run_id=run_id,
            description=model_card(
                recalibration,
                trigger=trigger,
                alerts=state.open_alerts,
                base_version=str(base.version),
                serving_version=str(champion.version),
                window=window,
                sample=sample,
                columns=registry.new_columns(base, recalibration.recalibrator, self.config.tree),
                zone=zone,
            ),
            tags={
                "huc.window": trigger.window_id,
                "huc.data_start": rows.start.isoformat(),
                "huc.data_end": rows.end.isoformat(),
                "huc.identity": self.config.identity,
                "huc.gate": "passed",
                "huc.candidate": recalibration.name,
                **({} if sample is None else {"huc.sampled_from": str(sample.n_rows)}),
            },
            tree=self.config.tree,
            classes=self.reader.classes,
        )
        self._remember(trigger)
        before, after = recalibration.before.huc, recalibration.after.huc
        figures = (
            f"HUC {before:.4f} before, {after:.4f} after on {recalibration.after.n:,} held-out"
        )
        return dataclasses.replace(
            self._promote(trigger, version, run_id),
            summary=". ".join(filter(None, (f"{figures} rows", gains))),
            rows=used,
        )

    def _promote(
        self, trigger: RecalibrationTrigger, version: ModelVersion, run_id: str
    ) -> RecalibrationOutcome:
        settings = self.config.settings.recalibration
        number, promoted, on_trial = str(version.version), False, 0
        if settings.promotion == "gate":
            self.registry.promote(number)
            promoted = True
        elif settings.promotion == "shadow":
            self._shadow.start(trigger, version, run_id)
            on_trial = settings.shadow_windows
        return RecalibrationOutcome(
            trigger.id,
            "registered",
            number,
            promoted,
            shadow_windows=on_trial,
            columns=columns_of(version),
        )

    # Promotion after a trial.

    def follow(self, last: Window) -> str | None:
        """Audit a challenger on trial in the windows up to the last one; say what was decided.

        Called at the end of every check. Does nothing unless the policy is ``shadow``.
        """
        if self.config.settings.recalibration.promotion != "shadow":
            return None
        said = self._shadow.follow(last)
        if said is not None:
            log.info("%s", said)
        return said

    def trial(self) -> ShadowTrial | None:
        """Return how the challenger's trial stands, None where none is on trial."""
        return self._shadow.trial()

    def _on_trial(self) -> str:
        if self.config.settings.recalibration.promotion != "shadow":
            return ""
        trial = self.trial()
        return "" if trial is None else f"a trial is still going on: {trial}"

    def versions(self) -> list[VersionInfo]:
        """Return the versions in the registry, the newest first."""
        roles = {role: self.registry.at(role) for role in (CHAMPION, CHALLENGER)}
        numbers = {role: str(one.version) for role, one in roles.items() if one is not None}
        return [
            VersionInfo(
                number=str(one.version),
                roles=tuple(role for role, number in numbers.items() if number == str(one.version)),
                made_at=datetime.fromtimestamp(one.creation_timestamp / 1000, UTC),
                base=one.tags.get(BASE_TAG),
                status=one.tags.get("huc.status"),
                card=one.description or "",
            )
            for one in reversed(self.registry.versions())
        ]

    # Promotion by hand.

    def promote(self, version: str | None = None) -> Move:
        """Make a version champion: the challenger, or the one named."""
        return self.registry.promote(version)

    def rollback(self) -> Move:
        """Restore the version that was champion before."""
        return self.registry.rollback()

    # Rows and recalibration.

    def _state(self) -> MonitorState:
        data = self.tracker.peek_state()
        if data is None:
            return MonitorState(self.config.identity)
        return read_state(data, self.tracker)

    def _too_soon(self, trigger: RecalibrationTrigger) -> str:
        text = self.registry.notes.read(LAST)
        if not text:
            return ""
        last = json.loads(text)
        pause = Span.parse(self.config.settings.recalibration.cool_down).nominal
        passed = trigger.window_end - datetime.fromisoformat(last["window_end"])
        if last["id"] == trigger.id or passed >= pause or passed < timedelta(0):
            return ""
        return f"cool-down: the last recalibration ({last['id']}) was {passed} before"

    def _remember(self, trigger: RecalibrationTrigger) -> None:
        last = {"id": trigger.id, "window_end": trigger.window_end.astimezone(UTC).isoformat()}
        self.registry.notes.write(LAST, json.dumps(last))

    def _rows(
        self, trigger: RecalibrationTrigger, champion: ModelVersion, state: MonitorState
    ) -> tuple[WindowData, str]:
        """Read the rows to fit on, and say why these.

        Those since the fault of the newest alert began: older ones show what was wrong before, but
        not what went wrong last, and would dilute it. Older ones are read too if these are too few.
        """
        source = self.config.open_source()
        extent = source.time_range()
        if extent is None:
            msg = "`source` must have rows to fit a recalibration on; the log is empty."
            raise InvalidInputError(msg)
        end = trigger.window_end
        found = self.tracker.records(1, trigger.ordinal)
        change = found[-1].change if found else None
        changes: Sequence[CandidateChange] = () if change is None else change.changes
        calm = calm_since(state.replaced_at, state.reference_times, extent.first)
        if BASE_TAG in champion.tags:
            changes = began_under(state.serving_since, changes)
            start, why = fit_since(trigger, state.open_alerts, changes, calm=calm)
        else:
            served = state.replaced_at
            start, why = fit_since(trigger, state.open_alerts, changes, served, calm=calm)
        step, zone = max(end - start, timedelta(hours=1)), self.config.windows.zone
        odd = odd_times(self.config.settings.maintenance, extent.first, end, zone)

        def n_labelled(start: datetime) -> int:
            spans = [(start, end), *((max(low, start), high) for low, high in odd if high > start)]
            n, *left_out = (source.counts(*span).n_labelled for span in spans)
            return n - sum(left_out)

        while trigger.since is None and n_labelled(start) < _ENOUGH_ROWS:
            if start <= extent.first:
                break
            start, step = max(start - step, extent.first), 2 * step
            why = f"the newest, at least {_ENOUGH_ROWS:,} if there are so many"
        base = self.registry.root(champion)
        rows = self.reader.read(base, start, end, versions=[champion])
        inside = within(rows.times, odd)
        if inside.any():
            rows, why = rows.take(~inside), f"{why}; {inside.sum():,} of maintenance are left out"
        return rows, why

    def _about(self, rows: WindowData, state: MonitorState) -> dict[str, Any]:
        """Return what audits and fits are told besides probabilities and labels."""
        groups = None if state.subgroups is None else Subgroups.from_dict(state.subgroups)
        return {
            "tree": self.config.tree,
            "utilities": self.config.utilities,
            "subgroups": groups,
            "features": rows.features if groups is not None and groups.columns else None,
            "clusters": rows.cluster_keys,
            "label_probability": rows.label_probability,
            "confidence_level": self.config.settings.audit.confidence_level,
        }

    def _sample(self, rows: WindowData, state: MonitorState) -> FittedSample | None:
        """Say what it costs that these are not all rows, if they are not."""
        if rows.sampled_from is None:
            return None
        about = self._about(rows, state)
        bounds = "sharp" if rows.label_probability is None else "bootstrap"
        found = audit(rows.probabilities, rows.codes, bounds=bounds, **about)
        radius = float(found.radii.max(initial=0.0))
        return FittedSample(rows.sampled_from, int(found.n), radius, found.confidence_level)

    def _find(
        self,
        rows: WindowData,
        champion: ModelVersion,
        state: MonitorState,
        targets: Sequence[tuple[str, str, str]],
    ) -> Recalibration:
        wrapped = BASE_TAG in champion.tags
        return find_recalibration(
            rows.probabilities,
            rows.codes,
            current=self.reader.replay(champion, rows) if wrapped else None,
            targets=targets,
            gate=self.gate,
            rng=self.config.settings.audit.rng,
            **self._about(rows, state),
        )

    def _log(self, run_id: str, recalibration: Recalibration) -> None:
        from mlflow.entities import Metric

        text = json.dumps(recalibration.to_dict(), indent=1)
        self.registry.client.log_text(run_id, text, "recalibration.json")
        metrics = [
            Metric(f"{when}/{name}", float(value), 0, 0)
            for when in ("base", "before", "after")
            for name, value in getattr(recalibration, when).to_dict().items()
            if value is not None and np.isfinite(value)
        ]
        self.registry.client.log_batch(run_id, metrics=metrics)


def _gate_tag(outcome: RecalibrationOutcome) -> str:
    return "refused" if outcome.result == "refused" else "passed"
