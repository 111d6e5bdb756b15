"""Compiled loops: arrays in, arrays out, no names and no validation.

Importing this package imports numba, so the rest of the library imports it inside functions.
"""

from __future__ import annotations

from huc_monitor._kernels.decompose import (
    decompose_rows,
    first_bad_row,
    load_rows,
    make_room,
    utility_values,
)
from huc_monitor._kernels.multiplier import LANES as DRAW_LANES
from huc_monitor._kernels.multiplier import UNIT as DRAW_UNIT
from huc_monitor._kernels.multiplier import (
    centre_multipliers,
    count_terms,
    draw_multipliers,
    draw_ranges,
    gather_terms,
    share_terms,
)
from huc_monitor._kernels.order import (
    gather,
    gather_values,
    select_rows,
    sort_order,
    sort_scores,
    weigh_values,
)
from huc_monitor._kernels.scan import interval_sums, scan_rows, span_sums, square_sums
from huc_monitor._kernels.text import match_texts

__all__ = [
    "DRAW_LANES",
    "DRAW_UNIT",
    "centre_multipliers",
    "count_terms",
    "decompose_rows",
    "draw_multipliers",
    "draw_ranges",
    "first_bad_row",
    "gather",
    "gather_terms",
    "gather_values",
    "interval_sums",
    "load_rows",
    "make_room",
    "match_texts",
    "scan_rows",
    "select_rows",
    "share_terms",
    "sort_order",
    "sort_scores",
    "span_sums",
    "square_sums",
    "utility_values",
    "weigh_values",
]
