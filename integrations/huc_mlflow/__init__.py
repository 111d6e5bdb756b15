"""huc-monitor in MLflow: recalibrated models, their registry, monitor runs and an evaluator."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from huc_mlflow._flavor import FLAVOR_NAME, load_model, log_model, save_model

__all__ = ["FLAVOR_NAME", "load_model", "log_model", "save_model"]

_HOME = {
    "FLAVOR_NAME": "_flavor",
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
