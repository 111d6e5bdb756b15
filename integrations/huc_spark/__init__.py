"""The audit on Spark: the same arguments, the same kernels, the same answer."""

from __future__ import annotations

from huc_spark._audit import audit, shuffle_bytes_per_row
from huc_spark._engine import SparkEngine
from huc_spark._recalibration import SampledFit, fit_on_sample, predict_proba
from huc_spark._source import SparkSource
from huc_spark._table import SparkTable

__all__ = [
    "SampledFit",
    "SparkEngine",
    "SparkSource",
    "SparkTable",
    "audit",
    "fit_on_sample",
    "predict_proba",
    "shuffle_bytes_per_row",
]
