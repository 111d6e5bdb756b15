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
from huc_monitor.sources._duck import DuckTable
from huc_monitor.sources._engine import Engine
from huc_monitor.sources._frame import FrameTable
from huc_monitor.sources._keys import likely_keys
from huc_monitor.sources._partition import Partition, ScanProfile
from huc_monitor.sources._repeats import REPEAT_REASONS
from huc_monitor.sources._sampled import SampledTable, Streaming
from huc_monitor.sources._source import TableSource
from huc_monitor.sources._spec import Columns, LabelTable
from huc_monitor.sources._sql import SQLTable
from huc_monitor.sources._table import Table

__all__ = [
    "REPEAT_REASONS",
    "BadRow",
    "Columns",
    "DuckTable",
    "Engine",
    "FrameTable",
    "LabelTable",
    "Partition",
    "PredictionData",
    "PredictionSource",
    "RowCounts",
    "SQLTable",
    "SampledTable",
    "ScanProfile",
    "Streaming",
    "Table",
    "TableSource",
    "TimeRange",
    "TooManyBadRowsError",
    "WindowData",
    "concatenate",
    "likely_keys",
]
