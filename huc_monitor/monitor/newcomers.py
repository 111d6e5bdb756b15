"""Values that a column has had only since subgroups were frozen: no subgroup holds them.

A group per value is made of the values that the reference has. A country or a seller that comes
later counts in the whole population alone, where its errors can hide; so it is told of, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from huc_monitor._common.safe_text import quoted
from huc_monitor.recalibration.runtime.columns import to_column
from huc_monitor.subgroups._columns import count_values
from huc_monitor.subgroups._predicates import to_scalar, write_value

if TYPE_CHECKING:
    import pandas as pd

    from huc_monitor.monitor._state import MonitorState
    from huc_monitor.subgroups import Subgroups

# A value is told of from this share of a window's rows on, and from this many of them.
_LEAST_SHARE: Final = 0.01
_LEAST_ROWS: Final = 30
_MOST_SHOWN: Final = 5
# So many are remembered as told; a column that has others every day is not worth more words.
_MOST_TOLD: Final = 50
_KEY: Final = "subgroups:new:"


def find_unnamed(subgroups: Subgroups, features: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Count, for every column that has a group per value, rows whose value has none.

    Values go by the names that their groups would have.

    Examples
    --------
    >>> import pandas as pd
    >>> from huc_monitor import Subgroups
    >>> first, later = (
    ...     pd.DataFrame({"country": x}) for x in (["DE", "FR"], ["DE", "NO", "NO"])
    ... )
    >>> groups = Subgroups.from_reference(first, {"country": "each"})
    >>> find_unnamed(groups, first), find_unnamed(groups, later)
    ({'country': {}}, {'country': {'country=NO': 2}})
    """
    plain = subgroups.to_dict()
    named = {*plain["dropped"]}
    columns: dict[str, None] = {}
    for entry in plain["subgroups"]:
        rule, name = entry["rule"], entry["name"]
        if rule.get("op") == "==" and name == _name(rule["column"], rule["value"]):
            named.add(name)
            columns[rule["column"]] = None
    found = {}
    for column in columns:
        counts = count_values(to_column(column, features[column]))
        sizes = {_name(column, to_scalar(value, column)): n for value, n in counts}
        found[column] = {name: n for name, n in sizes.items() if name not in named}
    return found


def columns_by_value(subgroups: Subgroups, features: pd.DataFrame) -> list[str]:
    """List the columns of which every value has a group: a value without one is new later."""
    return [column for column, left in find_unnamed(subgroups, features).items() if not left]


def tell_newcomers(state: MonitorState, subgroups: Subgroups, features: pd.DataFrame) -> str | None:
    """Say which values no subgroup has and how many rows, each value once; None without any."""
    if not state.by_value:
        return None
    found = find_unnamed(subgroups, features)
    least = max(_LEAST_ROWS, _LEAST_SHARE * len(features))
    sizes = {
        name: n
        for column in state.by_value
        for name, n in found.get(column, {}).items()
        if n >= least and _KEY + name not in state.drift_told
    }
    left = _MOST_TOLD - sum(key.startswith(_KEY) for key in state.drift_told)
    told = sorted(sizes, key=lambda name: -sizes[name])[:left]
    if not told:
        return None
    state.drift_told |= {_KEY + name: str(sizes[name]) for name in told}
    shown = [f"{quoted(name)} ({sizes[name] / len(features):.0%} of the rows)" for name in told]
    more = len(shown) - _MOST_SHOWN
    listed = ", ".join(shown[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return (
        f"No subgroup has the new values {listed}: they came after subgroups were frozen, and "
        "count in the whole population alone. To watch them, set `reference` to times that have "
        "them, or add them to `subgroups.predicates`; all windows are then audited anew."
    )


def _name(column: str, value: Any) -> str:
    return f"{column}={write_value(value)}"
