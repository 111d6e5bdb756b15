"""The repair: scalings, boosting branch by branch, and replay of its updates on new rows."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from huc_monitor.recalibration._boost import HUCBoost, UCBoost
    from huc_monitor.recalibration._classifier import HUCCalibratedClassifier
    from huc_monitor.recalibration._contract import Scaling, affordable_scaling
    from huc_monitor.recalibration._history import Checks
    from huc_monitor.recalibration._scalings import (
        DirichletScaling,
        TemperatureScaling,
        VectorScaling,
    )
    from huc_monitor.recalibration._updates import Update

__all__ = [
    "Checks",
    "DirichletScaling",
    "HUCBoost",
    "HUCCalibratedClassifier",
    "Scaling",
    "TemperatureScaling",
    "UCBoost",
    "Update",
    "VectorScaling",
    "affordable_scaling",
]

_HOME = {
    "Checks": "_history",
    "DirichletScaling": "_scalings",
    "HUCBoost": "_boost",
    "HUCCalibratedClassifier": "_classifier",
    "Scaling": "_contract",
    "TemperatureScaling": "_scalings",
    "UCBoost": "_boost",
    "Update": "_updates",
    "VectorScaling": "_scalings",
    "affordable_scaling": "_contract",
}

if not TYPE_CHECKING:  # loaded on first use, as in the package above

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
