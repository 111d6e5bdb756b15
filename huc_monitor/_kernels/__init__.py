"""Compiled loops: arrays in, arrays out, no names and no validation.

Importing this package imports numba, so the rest of the library imports it inside functions.
"""

from __future__ import annotations

from huc_monitor._kernels.decompose import decompose_rows, first_bad_row, utility_values
from huc_monitor._kernels.order import gather_rows, merge_orders, select_rows, weigh_values
from huc_monitor._kernels.scan import interval_sums, scan_group, square_sums

__all__ = [
    "decompose_rows",
    "first_bad_row",
    "gather_rows",
    "interval_sums",
    "merge_orders",
    "scan_group",
    "select_rows",
    "square_sums",
    "utility_values",
    "weigh_values",
]
