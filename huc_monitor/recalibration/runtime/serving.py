"""Log what a saved model answers, where the environment asks for it.

``HUC_LOG_FOLDER`` is the folder of the log; without it nothing is logged. ``HUC_LOG_TOP_K`` is how
many classes are kept (all when left out) and ``HUC_LOG_VERSION`` the version of the model. The id
of each prediction, by which labels are joined later, is in the input column that the model was
saved with (``id_column``); without one, ids are new. Columns that subgroups read are logged too.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pandas as pd

_KINDS = {"text": str, "boolean": bool, "number": float}


def open_log(payload: dict[str, Any], stages: Sequence[Any]) -> Callable[[Any, Any], None] | None:
    """Return what logs probabilities of all leaves with their input; None where nobody asked."""
    folder = os.environ.get("HUC_LOG_FOLDER")
    if not folder:
        return None
    if find_spec("pyarrow") is None:
        warnings.warn("HUC_LOG_FOLDER is set, but pyarrow is not installed: no log.", stacklevel=2)
        return None
    kinds: dict[str, str | None] = {}
    for stage in stages:
        kinds |= {name: stage.rules.kinds.get(name) for name in stage.rules.columns}
    top_k, column = os.environ.get("HUC_LOG_TOP_K"), payload.get("id_column")
    logger = _logger_class()(
        folder,
        classes=payload["leaves"],
        top_k=int(top_k) if top_k else None,
        features={name: _KINDS.get(kind or "", str) for name, kind in kinds.items()},
        model_version=os.environ.get("HUC_LOG_VERSION"),
    )

    def log(probabilities: Any, data: Any) -> None:
        frame = data if isinstance(data, pd.DataFrame) else pd.DataFrame()
        known = [name for name in kinds if name in frame]
        ids = frame[column].tolist() if column in frame else None
        features = {name: frame[name].tolist() for name in known}
        logger.log_batch(probabilities, ids=ids, features=features)

    return log


def _logger_class() -> Any:
    """Find the logger: beside this file in a saved model, else in the library."""
    place = f"{__package__}.prediction_log"
    try:
        module = import_module(place)
    except ModuleNotFoundError as error:
        if error.name != place:
            raise
        module = import_module("huc_monitor.sources.prediction_log")
    return module.PredictionLogger
