"""The methods of the paper's tables, and the noise-aware ones beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import huc_monitor as hm

from .perturbation import perturbed
from .predictors import INTERIOR_MIX
from .problem import MASTER_SEED

if TYPE_CHECKING:
    from collections.abc import Callable

    from .problem import Problem, Split

NOISE = 1e-3
TOLERANCE = 1e-3
FIXED_STEP = 0.05
SCALINGS = {
    "Temp": hm.TemperatureScaling,
    "Vec": hm.VectorScaling,
    "Dir": hm.DirichletScaling,
}
METHODS = (
    "Baseline",
    "UC-B",
    "HUC-B",
    "HUC-B (0.05)",
    *(name + after for name in SCALINGS for after in ("", "->HUC")),
    "noise-aware",
    *(f"{name}->noise-aware" for name in (*SCALINGS, "Auto")),
)


class Stage:
    """Predictions of every part of one split by one base predictor, possibly after a scaling."""

    def __init__(
        self, problem: Problem, split: Split, subgroups: hm.Subgroups, parts: dict[str, Any]
    ) -> None:
        self.problem, self.split, self.subgroups, self.parts = problem, split, subgroups, parts

    def labels(self, part: str) -> Any:
        """Leaf names of the rows of a part."""
        return self.problem.labels[getattr(self.split, part)]

    def features(self, part: str) -> Any:
        """Attributes that subgroups read."""
        return self.problem.attributes.iloc[getattr(self.split, part)]

    def scaled(self, name: str, seed: list[int]) -> Stage:
        """Fit a scaling, perturb it once, and apply it everywhere."""
        n_leaves = self.problem.tree.n_leaves
        scaling = SCALINGS[name](q_min=INTERIOR_MIX / n_leaves).fit(
            self.parts["initial"],
            self.labels("initial"),
            tree=self.problem.tree,
            validation=(self.parts["select"], self.labels("select")),
        )
        moved = perturbed(scaling, NOISE, rng=np.random.default_rng(seed))
        parts = {part: moved.predict_proba(p) for part, p in self.parts.items()}
        return Stage(self.problem, self.split, self.subgroups, parts)

    def boosted(self, booster: Callable[..., Any], **settings: Any) -> tuple[Any, int]:
        """Boost on the correction rows; return test predictions and the number of updates.

        The paper's rules need the validation rows to choose a prefix. The noise-aware mode stops
        by itself, so it corrects on both together.
        """
        boost = booster(
            tree=self.problem.tree,
            utilities=self.problem.utilities,
            subgroups=self.subgroups,
            interior=0.0,  # the base predictions were mixed once, before everything else
            **settings,
        )
        if settings:
            boost.fit(**self._rows("correct"), validation=tuple(self._rows("validate").values()))
        else:
            boost.fit(**self._rows("correct", "validate"))
        if settings.get("mode") == "paper":
            boost = _best_pass(boost)
        test = boost.predict_proba(self.parts["test"], features=self.features("test"))
        return test, len(boost.updates_)

    def _rows(self, *parts: str) -> dict[str, Any]:
        """Predictions, labels and attributes of some parts together."""
        return {
            "probabilities": np.vstack([self.parts[part] for part in parts]),
            "labels": np.concatenate([self.labels(part) for part in parts]),
            "features": pd.concat([self.features(part) for part in parts]),
        }


def _best_pass(boost: hm.HUCBoost) -> hm.HUCBoost:
    """Keep the passes of least validation HUC.

    The paper's counts of retained updates are multiples of the number of nodes, so its checkpoints
    are complete passes.
    """
    history = boost.history_
    ends = history.index[history["pass"] != history["pass"].shift(-1)]
    best = ends[history.loc[ends, "validation_huc"].to_numpy().argmin()]
    data = boost.to_dict()
    data["updates"] = data["updates"][: int(history.index.get_loc(best))]
    return hm.HUCBoost.from_dict(data)


def run_method(name: str, stage: Stage, stages: dict[str, Stage]) -> tuple[Any, int]:
    """Test predictions of a method, and how many updates it kept."""
    first, _, then = name.partition("->")
    if first in stages:
        stage = stages[first]
        if not then:
            return stage.parts["test"], 0
    paper = {"mode": "paper", "tolerance": TOLERANCE, "selection": "last"}
    if name == "Baseline":
        return stage.parts["test"], 0
    if name == "UC-B":
        return stage.boosted(hm.UCBoost, tolerance=TOLERANCE)
    if name == "HUC-B (0.05)":
        return stage.boosted(hm.HUCBoost, step=FIXED_STEP, **paper)
    if (then or name) in {"HUC", "HUC-B"}:
        return stage.boosted(hm.HUCBoost, **paper)
    return stage.boosted(hm.HUCBoost)


def affordable_scaling(n_rows: int, n_leaves: int) -> str:
    """Name the richest scaling with at least ten rows for each of its parameters.

    Its penalty takes back what the rows do not support, and on the paper's data sets richer maps
    left boosting less to correct for as long as they were affordable.
    """
    if n_rows >= 10 * n_leaves * (n_leaves + 1):
        return "dirichlet"
    return "vector" if n_rows >= 10 * 2 * n_leaves else "temperature"


def scaled_stages(stage: Stage, methods: list[str], k: int) -> dict[str, Stage]:
    """Every scaling that the methods need, fitted once: alone and as a first stage."""
    kind = affordable_scaling(*stage.parts["initial"].shape)
    auto = next(name for name, scaling in SCALINGS.items() if scaling.kind == kind)
    firsts = {method.partition("->")[0] for method in methods}
    stages = {
        name: stage.scaled(name, [MASTER_SEED, k, place])
        for place, name in enumerate(SCALINGS)
        if name in firsts or (name == auto and "Auto" in firsts)
    }
    if "Auto" in firsts:
        stages["Auto"] = stages[auto]
    return stages
