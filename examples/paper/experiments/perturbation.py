"""One-time noise on a learned scaling (Algorithm "randomized boost" of the paper)."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, TypeVar

from huc_monitor.errors import InvalidInputError

if TYPE_CHECKING:
    import numpy as np

    import huc_monitor as hm

    AnyScaling = TypeVar("AnyScaling", hm.TemperatureScaling, hm.VectorScaling, hm.DirichletScaling)


def noise_width(scaling: AnyScaling, epsilon: float) -> float:
    """Return epsilon ** 2 / (2 L), L being how fast logits move with a parameter.

    No probability is taken to be below the scaling's ``q_min``.
    """
    log_range = math.log(1.0 / scaling.q_min)
    lipschitz = {
        "temperature": log_range,
        "vector": log_range + 1.0,
        "dirichlet": 1.0 + len(scaling.classes_) * log_range,
    }[scaling.kind]
    return epsilon**2 / (2.0 * lipschitz)


def perturbed(scaling: AnyScaling, epsilon: float, *, rng: np.random.Generator) -> AnyScaling:
    """Return a copy whose parameters moved once by uniform noise.

    The noise raises the calibration log loss by at most epsilon ** 2, and makes the guarantee of a
    fixed-step HUC-Boost hold although the scaling was learned on the same rows.
    """
    if not 0 < epsilon <= 1:
        msg = f"`epsilon` must lie in (0, 1]; got {epsilon!r}."
        raise InvalidInputError(msg)
    width = noise_width(scaling, epsilon)
    moved = copy.copy(scaling)
    moved.theta_ = scaling.theta_ + rng.uniform(-width, width, scaling.theta_.size)
    return moved
