"""Serves a recalibrated model with nothing but numpy, pandas and MLflow; version 1.

This folder is copied into every saved model, so that the model loads where huc-monitor is not
installed. Its name carries its version: modules that travel with models share one process, and two
models must never run each other's code. It never changes once released; a change makes version 2.
"""

from __future__ import annotations

from .model import RecalibratedModel, load_payload

__all__ = ["RecalibratedModel", "load_payload"]


def _load_pyfunc(path: str) -> RecalibratedModel:
    """Load what MLflow saved under `path`: called by ``mlflow.pyfunc.load_model``."""
    return RecalibratedModel(path)
