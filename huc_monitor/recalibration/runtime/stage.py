"""One recalibrator as it is applied: mix, scale, weigh subgroups, update."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from .replay import Replay, Tree
from .rules import Rules
from .scaling import scale

log = logging.getLogger("huc_monitor")

SWITCH = "HUC_MONITOR_KERNELS"
_NO_SUBGROUPS: dict[str, Any] = {"subgroups": [], "columns": {}}
_SAME = 1e-12


class Stage:
    """One recalibrator: an initial scaling, then updates.

    Parameters
    ----------
    data : dict
        ``recalibrator``, the JSON form of a boost or a scaling; ``tree`` and ``utilities``, the
        tables that huc-monitor compiled for it.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        plain = self.plain = data["recalibrator"]
        self.interior: float = plain.get("settings", {}).get("interior", 0.0)
        self.scaling = plain if "scaling" in plain else plain["initial"]
        self.tree = Tree(data["tree"])
        updates = plain.get("updates", [])
        groups = list(dict.fromkeys(update["subgroup"] for update in updates))
        self.rules = Rules(plain.get("subgroups", _NO_SUBGROUPS), groups)
        self.replay = Replay(self.tree, data["utilities"], updates, groups)
        self.update: Any = self.replay.apply if updates else None
        if self.scaling is not None:
            self._theta = np.asarray(self.scaling["parameters"], dtype=np.float64)

    def apply(self, probabilities: Any, features: Any) -> Any:
        """Recalibrate rows whose columns follow the tree's leaves."""
        p = mix(probabilities, self.interior)
        if self.scaling is not None:
            p = scale(p, self.scaling["scaling"], self._theta, self.scaling["settings"]["q_min"])
        if self.update is None:
            return p
        return self.update(p, self.rules.weights(features, len(p)))


def mix(probabilities: Any, share: float) -> Any:
    """Mix every row with a little of the uniform distribution."""
    if not share:
        return probabilities
    return probabilities * (1.0 - share) + share / probabilities.shape[1]


def choose_engine(stages: Sequence[Stage]) -> str:
    """Decide once how updates are replayed, "compiled" or "numpy", and log it with the reason.

    The compiled kernels of an installed huc-monitor are used where they give the answers of numpy;
    compiling takes up to a minute the first time on a machine. ``HUC_MONITOR_KERNELS=off`` keeps
    numpy.
    """
    engine, why = "numpy", "there are no updates"
    busy = [stage for stage in stages if stage.replay.updates]
    if os.environ.get(SWITCH, "").lower() in {"0", "off", "no", "false"}:
        why = f"{SWITCH} is off"
    elif busy:
        start = time.perf_counter()
        try:
            kernels = [_kernel(stage) for stage in busy]
        except Exception as error:  # noqa: BLE001 - none, or of another version: numpy answers too
            why = f"{type(error).__name__}: {error}"
        else:
            for stage, kernel in zip(busy, kernels, strict=True):
                stage.update = kernel
            engine, why = "compiled", f"ready after {time.perf_counter() - start:.1f} s"
    log.info("recalibration is served by %s code (%s)", engine, why)
    return engine


def _kernel(stage: Stage) -> Any:
    """Compile a stage's updates and compare some answers with those of numpy."""
    kernel = import_module("huc_monitor.recalibration").compiled_updates(stage.plain)
    rows = np.random.default_rng(0).dirichlet(np.ones(stage.tree.n_leaves), 1_024)
    for n in (1, len(rows)):
        p, weights = rows[:n], np.ones((len(stage.rules.names), n))
        if np.abs(kernel(p, weights) - stage.replay.apply(p, weights)).max() > _SAME:
            msg = "the installed huc-monitor gives other answers"
            raise RuntimeError(msg)
    return kernel
