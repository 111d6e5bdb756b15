"""Compiled loops: arrays in, arrays out, no names and no validation.

Importing this package imports numba, so the rest of the library imports it inside functions.
"""

from __future__ import annotations

from huc_monitor._kernels.decompose import decompose_rows, first_bad_row, utility_values
from huc_monitor._kernels.order import gather_rows, merge_orders
from huc_monitor._kernels.scan import interval_sums, scan_group, second_moments

__all__ = [
    "decompose_rows",
    "first_bad_row",
    "gather_rows",
    "interval_sums",
    "merge_orders",
    "scan_group",
    "second_moments",
    "utility_values",
]
