"""A check in a process of its own, which kills itself before or after one of its writes."""

from __future__ import annotations

import functools
import json
import os
import signal
from pathlib import Path

WRITES = ("create_", "set_", "log_", "update_", "delete_", "finalize_", "record_", "_set_")


class Faults:
    """Counts writes to the stores, and dies at one of them."""

    def __init__(self, set_attribute, die) -> None:
        from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
        from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore as RegistryStore
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore as TrackingStore

        self.die = die
        self.at, self.after, self.count, self.depth = None, False, 0, 0
        self.names = []
        for kind in (TrackingStore, RegistryStore, LocalArtifactRepository):
            for name in dir(kind):
                if name.startswith(WRITES) and callable(getattr(kind, name)):
                    set_attribute(kind, name, self._wrap(getattr(kind, name), name))

    def _wrap(self, original, name):
        @functools.wraps(original)
        def call(*args, **kwargs):
            if self.depth:  # a write inside a write is the same request
                return original(*args, **kwargs)
            self.count += 1
            self.names.append(name)
            if self.count == self.at and not self.after:
                self.die()
            self.depth += 1
            try:
                answer = original(*args, **kwargs)
            finally:
                self.depth -= 1
            if self.count == self.at:
                self.die()
            return answer

        return call

    def arm(self, at=None, *, after=False):
        self.at, self.after, self.count, self.names = at, after, 0, []


def sigkill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def known_recalibration(probabilities, labels, *, tree, **_):
    """Find a repair at once: what is tested is what happens around the search."""
    from huc_monitor.recalibration import TemperatureScaling
    from huc_monitor.recalibration.choosing import Figures, Recalibration

    scaling = TemperatureScaling().fit(probabilities, labels, tree=tree)
    before = Figures(len(labels), 0.1, 0.05, 0.15, 0.1, 1.2, 0.5)
    after = Figures(len(labels), 0.05, 0.0, 0.1, 0.05, 1.1, 0.5)
    return Recalibration(
        "temperature",
        scaling,
        passed=True,
        reasons=(),
        base=before,
        before=before,
        after=after,
        choices={},
        held_out=None,
    )


def check(config, now, told, at=None, after=False):  # noqa: FBT002 - arguments of a process
    """Check once; `told` gets the names of all writes, if the process lives to write them."""
    from huc_mlflow import _recalibration_host, _tracker

    from huc_monitor.config import load_config
    from huc_monitor.config.opening import open_monitor

    _recalibration_host.find_recalibration = known_recalibration
    _tracker.report_files = lambda *_: {"report.html": b"<p>drawn elsewhere</p>"}
    os.chdir(Path(config).parent)
    faults = Faults(setattr, sigkill)
    faults.arm(at, after=after)
    open_monitor(load_config(config)).check(now)
    Path(told).write_text(json.dumps(faults.names))


def check_together(config, now, barrier, settle):
    """Check once, and begin to recalibrate in the same moment as another process."""
    from huc_mlflow import _lease, _recalibration_host

    from huc_monitor.config import load_config
    from huc_monitor.config.opening import open_monitor

    act = _recalibration_host.MLflowRecalibrationHost.act

    def together(self, trigger, **options):
        barrier.wait(120)
        return act(self, trigger, **options)

    _lease._SETTLE_SECONDS = settle
    _recalibration_host.find_recalibration = known_recalibration
    _recalibration_host.MLflowRecalibrationHost.act = together
    os.chdir(Path(config).parent)
    open_monitor(load_config(config)).check(now)
