"""Shadow trials: the challenger is audited beside the champion on the windows that follow.

Where a trial stands is a tag of its recalibration run, written after every window; the figures are
metrics of that run, a step per window. The version's own tag ``huc.shadow`` changes only with the
result, because a webhook hangs on it. A process that dies is followed by one that goes on from the
tag: the rows of a window, and so its figures, are the same whoever reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from mlflow.entities import Metric

from huc_mlflow._registry import ID_TAG, Registry
from huc_mlflow._rows import RowReader
from huc_mlflow._runs import RECALIBRATION
from huc_mlflow._tracker import MLflowTracker
from huc_monitor.audit.compare import compare
from huc_monitor.audit.comparison import Comparison
from huc_monitor.config import Config
from huc_monitor.monitor.records import RecalibrationTrigger, WindowRecord
from huc_monitor.monitor.windows import Window
from huc_monitor.recalibration.choosing import measure
from huc_monitor.recalibration.gate import Gate
from huc_monitor.recalibration.shadow import ShadowTrial, ShadowWindow
from huc_monitor.sources import WindowData
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree.labels import LeafCodes
from huc_monitor.utilities.program import Floats

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion

SHADOW = "huc.shadow"
_REASONS = "huc.shadow_reasons"
_MOST_TARGETS = 20  # a tag holds 8,000 characters


class Shadow:
    """The trial of a challenger, if there is one.

    Parameters
    ----------
    config : Config
    tracker : MLflowTracker
    registry : Registry
    reader : RowReader
    gate : Gate
    """

    def __init__(
        self,
        config: Config,
        tracker: MLflowTracker,
        registry: Registry,
        reader: RowReader,
        gate: Gate,
    ) -> None:
        self._config, self._tracker, self._registry = config, tracker, registry
        self._reader, self._gate = reader, gate

    def start(self, trigger: RecalibrationTrigger, version: ModelVersion, run_id: str) -> None:
        """Begin a trial with the window after the trigger's; end that of an earlier challenger."""
        registry = self._registry
        for other in registry.versions(f"tags.`{SHADOW}` = 'running'"):
            if str(other.version) != str(version.version):
                registry.tag(other, SHADOW, "ended")
                registry.tag(other, _REASONS, f"version {version.version} is challenger now")
        trial = ShadowTrial(
            version=str(version.version),
            champion=str(registry.current().version),
            upto=trigger.ordinal,
            n_windows=self._config.settings.recalibration.shadow_windows,
            targets=trigger.candidates[:_MOST_TARGETS],
        )
        if SHADOW not in registry.client.get_run(run_id).data.tags:
            registry.client.set_tag(run_id, SHADOW, trial.to_json())
        registry.tag(version, SHADOW, "running")

    def trial(self) -> ShadowTrial | None:
        """Return how the challenger's trial stands, None without a challenger on trial."""
        found = self._find()
        return None if found is None else ShadowTrial.from_json(found[1].data.tags[SHADOW])

    def follow(self, last: Window) -> str | None:
        """Look at the windows recorded since, and decide after the last that is needed.

        Returns
        -------
        str or None
            What was decided, in a sentence.
        """
        found = self._find()
        if found is None:
            return None
        version, run = found
        trial = ShadowTrial.from_json(run.data.tags[SHADOW])
        now = str(self._registry.current().version)
        waits = trial.result == "running" and not trial.is_complete and now == trial.champion
        if waits and trial.upto >= last.ordinal:
            return None
        with self._registry.lease.hold(version.tags[ID_TAG]):
            if trial.result == "running":
                trial = self._advance(trial, run, version, last, now)
            return self._conclude(trial, version)

    def _find(self) -> tuple[ModelVersion, Run] | None:
        """Return the version on trial, and the run of its recalibration by this monitor."""
        for version in self._registry.versions(f"tags.`{SHADOW}` = 'running'"):
            run = self._tracker.runs.find(RECALIBRATION, version.tags.get(ID_TAG, ""))
            if run is not None and SHADOW in run.data.tags:
                return version, run
        return None

    def _advance(
        self, trial: ShadowTrial, run: Run, version: ModelVersion, last: Window, now: str
    ) -> ShadowTrial:
        run_id = str(run.info.run_id)
        if now != trial.champion:
            trial = trial.end(f"version {now} became champion meanwhile")
        for ordinal in range(trial.upto + 1, last.ordinal + 1):
            if trial.is_complete or trial.result != "running":
                break
            record = self._tracker.window(ordinal)
            if record is None or record.status != "audited" or record.maintenance is not None:
                trial = trial.skip(ordinal)
                continue
            trial = trial.add(self._measure(trial, version, record, run_id))
            self._registry.client.set_tag(run_id, SHADOW, trial.to_json())
        if trial.is_complete and trial.result == "running":
            trial = trial.decide(self._gate, self._compare_all(trial, version))
        # Decided before anything is moved: who comes after a crash carries it out.
        self._registry.client.set_tag(run_id, SHADOW, trial.to_json())
        return trial

    def _answers(
        self, trial: ShadowTrial, version: ModelVersion, record: WindowRecord
    ) -> tuple[WindowData, list[Floats]]:
        """Read a window's rows, and what champion and challenger say of them."""
        both = (self._registry.version(trial.champion), version)
        rows = self._reader.read(
            self._registry.root(version),
            record.start,
            record.end,
            versions=both,
            as_of=record.due_at,
        )
        return rows, [self._reader.replay(one, rows) for one in both]

    def _options(self) -> dict[str, Any]:
        kept = (self._tracker.peek_state() or {}).get("subgroups")
        return {
            "tree": self._config.tree,
            "utilities": self._config.utilities,
            "subgroups": Subgroups.whole() if kept is None else Subgroups.from_dict(kept),
        }

    def _compare_all(self, trial: ShadowTrial, version: ModelVersion) -> Comparison:
        """Compare champion and challenger on the rows of all windows together."""
        records = [self._tracker.window(window.ordinal) for window in trial.windows]
        found = [self._answers(trial, version, one) for one in records if one is not None]
        labels = np.concatenate([rows.labels for rows, _ in found])
        sides = [
            (np.concatenate(answers), LeafCodes(labels))
            for answers in zip(*(answers for _, answers in found), strict=True)
        ]
        options = self._options()
        features = None
        if options["subgroups"].columns:
            features = pd.concat([rows.features for rows, _ in found], ignore_index=True)
        return compare(*sides, paired=True, features=features, **options)

    def _measure(
        self, trial: ShadowTrial, version: ModelVersion, record: WindowRecord, run_id: str
    ) -> ShadowWindow:
        rows, answers = self._answers(trial, version, record)
        options = self._options()
        options["features"] = rows.features if options["subgroups"].columns else None
        figures = [measure(answer, rows.codes, **options) for answer in answers]
        window = ShadowWindow.of(record.ordinal, figures[0][0], figures[1][0])
        when = int(record.end.timestamp() * 1000)
        metrics = [
            Metric(f"shadow/{role}/{name}", getattr(window, name)[place], when, record.ordinal)
            for place, role in enumerate(("champion", "challenger"))
            for name in ("huc", "log_loss", "accuracy")
        ]
        self._registry.client.log_batch(run_id, metrics=metrics)
        return window

    def _conclude(self, trial: ShadowTrial, version: ModelVersion) -> str | None:
        """Carry a decision out; may be repeated."""
        registry = self._registry
        if trial.result == "running":
            return None
        if trial.result == "passed":
            registry.promote(trial.version)
        else:
            registry.withdraw(version)
            registry.tag(version, _REASONS, "; ".join(trial.reasons)[:1000])
        registry.tag(version, SHADOW, trial.result)  # last: from here on nobody looks again
        if trial.result == "passed":
            return f"Version {trial.version} is champion: {trial}."
        return f"Version {trial.version} was not promoted: {trial}."
