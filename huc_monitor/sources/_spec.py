"""What the user says about a prediction log and its labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from huc_monitor.sources._rows import LEAF

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from huc_monitor._common.times import TimeUnit
    from huc_monitor.sources._table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which columns of a prediction log mean what.

    Parameters
    ----------
    time : str
        When the prediction was made. Rows without a time belong to no window.
    probabilities : str or mapping of leaf to column, default "{leaf}"
        A pattern for one column per leaf, such as "p_{leaf}", or the columns one by one. Their
        order in the log does not matter.
    list_column : str, optional
        Instead: one column with a list of all probabilities.
    classes : sequence of str, optional
        The order of that list; the order of ``tree.leaves`` when left out.
    id, label, model_version : str, optional
        `label` is left out where labels are in a table of their own, which needs the `id`.
    features : sequence of str
        Columns that subgroups need; no others are read.
    time_zone : str, default "UTC"
        What times without a zone mean.
    time_unit : {"s", "ms", "us", "ns"}, optional
        For times that are numbers.
    """

    time: str
    probabilities: str | Mapping[str, str] = LEAF
    list_column: str | None = None
    classes: Sequence[str] | None = None
    id: str | None = None
    label: str | None = None
    model_version: str | None = None
    features: Sequence[str] = ()
    time_zone: str = "UTC"
    time_unit: TimeUnit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTable:
    """Labels in a table of their own, which may arrive late and more than once.

    The label with the latest time wins, and replaced labels are counted. Different labels of equal
    times (and without a time column) contradict each other: the row is set aside as unusable.

    Parameters
    ----------
    table : Table
    id, label : str
        Their columns.
    time : str, optional
        When the label became known. Without it, `as_of` has no effect.
    time_zone, time_unit
        As in `Columns`.
    """

    table: Table
    id: str
    label: str
    time: str | None = None
    time_zone: str = "UTC"
    time_unit: TimeUnit | None = None
