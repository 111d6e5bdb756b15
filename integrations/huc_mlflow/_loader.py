"""How MLflow loads a recalibrated model: copied into every saved model, beside the runtime."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import mlflow.pyfunc


def _load_pyfunc(path: str) -> Any:
    """Load what MLflow saved under `path`: called by ``mlflow.pyfunc.load_model``."""
    model = import_module(f"{__package__}.model")
    return model.RecalibratedModel(path, mlflow.pyfunc.load_model)
