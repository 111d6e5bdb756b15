"""Sources: prediction logs and their labels, read one range of time after the other."""

from __future__ import annotations

from huc_monitor.sources._data import (
    BadRow,
    PredictionData,
    PredictionSource,
    RowCounts,
    TimeRange,
    TooManyBadRowsError,
    WindowData,
    concatenate,
)

__all__ = [
    "BadRow",
    "PredictionData",
    "PredictionSource",
    "RowCounts",
    "TimeRange",
    "TooManyBadRowsError",
    "WindowData",
    "concatenate",
]
