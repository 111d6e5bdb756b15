"""Labels from a table of their own: the latest of each id, as far as it was known at a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor._common.times import from_column
from huc_monitor.sources._table import UNREADABLE, ColumnKind, Lookup, Table, TimeColumn

if TYPE_CHECKING:
    from huc_monitor.sources._spec import LabelTable


@dataclass(frozen=True, slots=True, eq=False)
class LabelsById:
    """The labels of some ids: one each, with the time it became known.

    Attributes
    ----------
    by_id : Series
        Labels by id; ids are text where the types of the two id columns differ.
    times : Series or None
        When each became known.
    n_duplicates : int
        Label rows beyond the first of their id.
    n_changed : int
        Ids whose label was replaced by a later, different one.
    conflicting : array of bool
        For each label, whether another one of the same time contradicts it.
    unreadable : array of bool
        For each label, whether it has a time that cannot be read.
    why_unreadable : str
        The first such time and how to write it, as a sentence; empty where there is none.
    as_text : bool
        Whether ids are compared as text.
    """

    by_id: pd.Series[Any]
    times: pd.Series[Any] | None
    n_duplicates: int
    n_changed: int
    conflicting: NDArray[np.bool_]
    unreadable: NDArray[np.bool_]
    why_unreadable: str
    as_text: bool

    @property
    def latest(self) -> datetime | None:
        """When the latest of them became known."""
        if self.times is None or self.times.isna().all():
            return None
        return from_column(self.times.max().to_datetime64())

    def find(self, ids: pd.Series[Any]) -> NDArray[np.intp]:
        """Return the position of each id's label, -1 where there is none."""
        keys = ids.astype(str).where(ids.notna(), None) if self.as_text else ids
        same = keys.dtype == self.by_id.index.dtype
        return self.by_id.index.get_indexer(pd.Index(keys, dtype=None if same else object))


def label_time(labels: LabelTable) -> TimeColumn | None:
    """Return the column that says when a label became known."""
    if labels.time is None:
        return None
    return TimeColumn(labels.time, labels.time_zone, labels.time_unit)


def latest_labels(labels: LabelTable, ids: pd.Series[Any], as_of: datetime | None) -> LabelsById:
    """Find the latest label of every id, as far as it was known at a time."""
    when = label_time(labels)
    distinct = ids.dropna().drop_duplicates()
    columns: dict[str, ColumnKind] = {labels.id: "any", labels.label: "label"}
    if labels.time is not None:
        columns[labels.time] = "any"
    values, as_text = _like(distinct, labels.table, labels.id)
    found = labels.table.lookup(Lookup(labels.id, values, columns, when, as_of))
    present = found[labels.label].notna()
    found = (found if present.all() else found[present]).reset_index(drop=True)
    times, odd, why = None, pd.Series(dtype=object), ""
    if when is not None:
        texts = found[labels.time]
        times = when.read(texts)
        # No time means known from the beginning: so must not a time that cannot be read.
        odd = found.get(UNREADABLE, texts[np.isnat(times)]).dropna().astype(str)
        odd = odd[odd.str.contains("[0-9]")]
        why = when.say_unreadable(labels.table.name, odd.iloc[0]) if len(odd) else ""
    keys = found[labels.id].astype(str) if as_text else found[labels.id]
    frame = pd.DataFrame(
        {
            "id": keys.to_numpy(),
            "label": found[labels.label].to_numpy(dtype=object),
            "time": np.datetime64("NaT", "us") if times is None else times,
            "odd": np.isin(found.index, odd.index),
        }
    )
    latest, n_changed, conflicting = frame, 0, np.zeros(len(frame), dtype=bool)
    if frame["id"].duplicated().any():
        frame["text"] = frame["label"].astype(str)
        # A label whose time cannot be read may be the latest: no other one of its id is used.
        frame = frame.sort_values(["odd", "time", "text"], kind="stable", na_position="first")
        changed, undecided = _differing(frame[frame["id"].duplicated(keep=False)])
        latest = frame.drop_duplicates("id", keep="last")
        settled = changed.difference(undecided)
        n_changed = len(settled.difference(pd.Index(frame["id"][frame["odd"]])))
        conflicting = latest["id"].isin(undecided).to_numpy()
    by_id = latest.set_index("id")
    return LabelsById(
        by_id["label"],
        None if times is None else by_id["time"],
        len(frame) - len(latest),
        n_changed,
        conflicting,
        by_id["odd"].to_numpy(),
        why,
        as_text,
    )


def _differing(repeated: pd.DataFrame) -> tuple[pd.Index[Any], pd.Index[Any]]:
    """Return the ids with different labels, and those with different labels at the latest time."""
    newest = repeated.groupby("id")["time"].transform("max")
    at_newest = repeated[(repeated["time"] == newest) | newest.isna()]
    found = []
    for rows in (repeated, at_newest):
        n_labels = rows.groupby("id")["text"].nunique()
        found.append(n_labels.index[n_labels > 1])
    return found[0], found[1]


def _like(ids: pd.Series[Any], table: Table, column: str) -> tuple[NDArray[Any], bool]:
    """Return ids as the other table stores them, and whether the two then meet as text."""
    text = pd.api.types.infer_dtype(ids, skipna=True) == "string"
    declared = table.columns()[column].upper()
    other_text = any(word in declared for word in ("CHAR", "TEXT", "STR", "CLOB"))
    if not len(ids) or text == other_text:
        return ids.to_numpy(dtype=object if text else None), False
    if other_text:
        return ids.astype(str).to_numpy(dtype=object), True
    if "INT" not in declared:
        return ids.to_numpy(dtype=object), False  # such as UUIDs, which databases compare with text
    numbers = pd.to_numeric(ids, errors="coerce").dropna()
    return numbers[numbers % 1 == 0].astype(np.int64).to_numpy(), True
