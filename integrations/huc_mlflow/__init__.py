"""huc-monitor in MLflow: recalibrated models, their registry, monitor runs and an evaluator."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from huc_mlflow._flavor import FLAVOR_NAME, load_model, log_model, save_model
    from huc_mlflow._registry import (
        BusyError,
        Move,
        Registry,
        promote,
        register_recalibrated,
        rollback,
    )
    from huc_mlflow._retrainer import MLflowRetrainer, RetrainingOutcome
    from huc_mlflow._tracker import MLflowTracker

__all__ = [
    "FLAVOR_NAME",
    "BusyError",
    "MLflowRetrainer",
    "MLflowTracker",
    "Move",
    "Registry",
    "RetrainingOutcome",
    "load_model",
    "log_model",
    "promote",
    "register_recalibrated",
    "rollback",
    "save_model",
]

_HOME = {
    "BusyError": "_registry",
    "FLAVOR_NAME": "_flavor",
    "MLflowRetrainer": "_retrainer",
    "MLflowTracker": "_tracker",
    "Move": "_registry",
    "Registry": "_registry",
    "RetrainingOutcome": "_retrainer",
    "promote": "_registry",
    "register_recalibrated": "_registry",
    "rollback": "_registry",
    "load_model": "_flavor",
    "log_model": "_flavor",
    "save_model": "_flavor",
}

if not TYPE_CHECKING:  # loaded on first use: importing MLflow takes seconds

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
