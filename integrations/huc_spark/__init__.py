"""The audit on Spark: the same arguments, the same kernels, the same answer."""

from __future__ import annotations

from huc_spark._audit import audit, shuffle_bytes_per_row

__all__ = ["audit", "shuffle_bytes_per_row"]
