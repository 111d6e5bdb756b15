"""The prediction source over any kind of table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor._common.times import to_utc
from huc_monitor.audit.comparison import Comparison
from huc_monitor.audit.forms.reader import PredictionReader
from huc_monitor.audit.forms.spec import LEAF, PredictionColumns
from huc_monitor.audit.result import AuditResult
from huc_monitor.audit.sparse_rows import SparseRows
from huc_monitor.errors import InvalidInputError, UnknownNameError
from huc_monitor.sources._data import PredictionData, RowCounts, TimeRange, WindowData
from huc_monitor.sources._labels import LabelsById, latest_labels
from huc_monitor.sources._reading import Reading
from huc_monitor.sources._rows import (
    column_kinds,
    explain_missing,
    find_patterns,
    read_chunk,
    rounding_of,
)
from huc_monitor.sources._sampled import sample_of
from huc_monitor.sources._spec import ROW_CHECKS, Columns, LabelTable
from huc_monitor.sources._table import Chunk, ColumnKind, Needed, Table, TimeColumn, require_columns
from huc_monitor.tree import LabelTree
from huc_monitor.tree.labels import LabelEncoder, read_mapping


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TableSource:
    """Predictions and labels in tables: files, databases or frames, alike or mixed.

    Parameters
    ----------
    log : Table
        `DuckTable.files`, `DuckTable.database`, `SQLTable` or `FrameTable`.
    tree : LabelTree
    columns : Columns
    labels : LabelTable, optional
        Where the labels are not in the log.
    plan : LabelTable, optional
        A sampling plan: its `label` is the probability with which a row was chosen to be labelled.
        In a window with planned rows, labels of others are left out; in one without, all count.
    max_bad_share : float, default 0.05
        A window with a larger share of unusable rows is refused with `TooManyBadRowsError`.
    label_mapping : mapping of spelling to node, or path of a file
        What other spellings of labels mean, as in `Labels`.
    sum_tolerance : float, default 1e-6 (more for columns of float16 and float32, as in `audit`)
        Rows whose probabilities sum to 1 within this are rescaled: for logs with rounded numbers.
    reference : tuple of datetime, optional
        Start and end of the window whose predictions ``rest="reference"`` goes by.
    zone : str, default "UTC"
        Time zone in which errors name times.

    Notes
    -----
    A row is unusable where its label is no leaf of the tree, or its probabilities are missing,
    negative, or do not sum to 1. It is set aside and counted, with an example.

    If the tree changes, columns of new leaves must be there, or opening the source fails and says
    which. A leaf removed from the tree leaves a log whose rows do not sum to 1: such windows are
    refused, and the message names the column that is left over.

    Examples
    --------
    >>> from datetime import datetime, UTC
    >>> import huc_monitor as hm
    >>> from huc_monitor.sources import Columns, FrameTable, TableSource
    >>> rows = {"at": ["2024-01-01T08:00Z", "2024-01-01T09:00Z"], "y": ["b", None]}
    >>> log = pd.DataFrame({**rows, "p_b": [0.3, 0.4], "p_a": [0.7, 0.6]})
    >>> source = TableSource(
    ...     FrameTable(log),
    ...     tree=hm.LabelTree.flat(["a", "b"]),
    ...     columns=Columns(time="at", probabilities="p_{leaf}", label="y"),
    ... )
    >>> day = source.labelled(
    ...     datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
    ... )
    >>> day.probabilities, day.labels, day.coverage
    (array([[0.7, 0.3]]), array([1]), 0.5)
    """

    log: Table
    tree: LabelTree = field(kw_only=True)
    columns: Columns = field(kw_only=True)
    labels: LabelTable | None = field(default=None, kw_only=True)
    plan: LabelTable | None = field(default=None, kw_only=True)
    max_bad_share: float = field(default=ROW_CHECKS.max_bad_share, kw_only=True)
    sum_tolerance: float = field(default=ROW_CHECKS.sum_tolerance, kw_only=True)
    label_mapping: Mapping[str, str] | str | Path = field(default_factory=dict, kw_only=True)
    reference: tuple[datetime, datetime] | None = field(default=None, kw_only=True)
    zone: str = field(default="UTC", kw_only=True)
    probabilities: PredictionReader = field(init=False)
    time: TimeColumn = field(init=False)
    encoder: LabelEncoder = field(init=False)
    _readers: dict[str, PredictionReader] = field(default_factory=dict, init=False)
    _share: float = field(default=1.0, init=False)

    def __post_init__(self) -> None:
        given, labels = self.columns, self.labels
        if (given.label is None) == (labels is None):
            found = "neither" if labels is None else "both"
            msg = (
                f"`labels` must be in a column of the log or in a table of their own; got {found}. "
                "Name the column `label`, or pass a LabelTable."
            )
            raise InvalidInputError(msg)
        if labels is not None and given.id is None:
            msg = "`id` must name the log's column that labels are joined by; got None."
            raise InvalidInputError(msg)
        if self.plan is not None and (given.id is None or given.label_probability is not None):
            msg = (
                "`plan` must come with the log's `id`, and without `label_probability`: choose one "
                "of the two."
            )
            raise InvalidInputError(msg)
        columns = self._columns()
        # The rule "reference" is worked out when rows are read.
        uniform = np.ones(self.tree.n_leaves) if columns.rest == "reference" else None
        probabilities = PredictionReader.of(self.tree, columns, uniform)
        own = {
            "probabilities": probabilities,
            "time": TimeColumn(given.time or "", given.time_zone, given.time_unit),
            "encoder": self.tree.label_encoder(columns.classes, read_mapping(self.label_mapping)),
        }
        for name, value in own.items():
            object.__setattr__(self, name, value)
        self._require_columns()
        kinds = [self.log.columns()[name] for name in probabilities.names]
        slack = max(self.sum_tolerance, rounding_of(kinds, self.tree.n_leaves))
        object.__setattr__(self, "sum_tolerance", slack)
        object.__setattr__(self, "probabilities", probabilities.allowing(slack))
        if columns.rest == "reference" and self.reference is None:
            msg = (
                "`rest` must be 'uniform', a leaf or shares by leaf where there is no `reference` "
                "window; got 'reference'."
            )
            raise InvalidInputError(msg)

    def time_range(self) -> TimeRange | None:
        """Return when the log begins and ends, or None if it has no rows."""
        return self.log.time_range(self.time)

    @property
    def auditor(self) -> Callable[..., AuditResult] | None:
        """None: `labelled` returns all rows."""
        return None

    @property
    def comparer(self) -> Callable[..., list[Comparison] | None] | None:
        """None: `labelled` returns all rows."""
        return None

    def advance(self, start: datetime, n_rows: int) -> datetime | None:
        """Find the smallest time of a row such that ``[start, time)`` holds at least `n_rows`."""
        return self.log.advance(self.time, to_utc(start, argument="start"), n_rows)

    def counts(self, start: datetime, end: datetime, *, as_of: datetime | None = None) -> RowCounts:
        """Count predictions and labels without reading probabilities."""
        start, end, as_of = _range(start, end, as_of)
        if self.labels is None:
            return RowCounts(*self.log.count(self.time, start, end, self.columns.label))
        ids = self._ids(start, end)
        found = latest_labels(self.labels, ids, as_of)
        return RowCounts(len(ids), int((found.find(ids) >= 0).sum()), found.latest)

    def labelled(
        self, start: datetime, end: datetime, *, as_of: datetime | None = None
    ) -> WindowData:
        """Read the labelled rows; an empty range gives empty arrays, not an error."""
        start, end, as_of = _range(start, end, as_of)
        labels = None
        if self.labels is not None:
            labels = latest_labels(self.labels, self._ids(start, end), as_of)
        plan = self.planned(start, end)
        return Reading(self, start, end, as_of, labels, with_labels=True, plan=plan).window()

    def planned(self, start: datetime, end: datetime) -> LabelsById | None:
        """Find the rows of a range that the plan chose; None if it chose none of them."""
        if self.plan is None:
            return None
        start, end, _ = _range(start, end, None)
        chosen = []
        for ids in self._some_ids(start, end):
            place = latest_labels(self.plan, ids, None).find(ids)
            chosen.append(ids[place >= 0])
        if not sum(map(len, chosen)):
            return None
        return latest_labels(self.plan, pd.concat(chosen, ignore_index=True), None)

    def everything(self) -> WindowData:
        """Read all labelled rows of files, in their order, whatever their time."""
        return Reading(self, None, None, None, None, with_labels=True).window()

    def predictions(self, start: datetime, end: datetime) -> PredictionData:
        """Read all rows, labelled or not: for drift while labels are missing."""
        start, end, _ = _range(start, end, None)
        return Reading(self, start, end, None, None, with_labels=False).predictions()

    def reader(self) -> PredictionReader:
        """Return what reads the predictions; the rule "reference" is worked out once."""
        plain = self.probabilities
        if plain.given.rest != "reference":
            return plain
        if not self._readers:
            found = PredictionReader.of(self.tree, plain.given, self._reference_shares())
            self._readers["reference"] = found.allowing(self.sum_tolerance)
        return self._readers["reference"]

    def _reference_shares(self) -> NDArray[np.float64]:
        """Add up what the log gave each leaf in the reference window."""
        assert self.reference is not None  # noqa: S101 - checked when the source was opened
        total = np.zeros(self.tree.n_leaves)
        columns = column_kinds(self.probabilities)
        for chunk in self.log.scan(columns, self.time, *self.reference):
            read = read_chunk(self.probabilities, chunk)
            rows = read.rows[read.good]
            total += rows.logged() if isinstance(rows, SparseRows) else rows.sum(axis=0)
        if not total.any():
            msg = (
                f"`rest: reference` needs predictions in the reference window; {self.log.name} has "
                "no usable one there. Choose another window, or `rest: uniform`."
            )
            raise InvalidInputError(msg)
        return total

    def _columns(self) -> PredictionColumns:
        """Return where the predictions are; the default pattern is found out."""
        given, names = self.columns.predictions, list(self.log.columns())
        template = given.pattern
        if template is None or given.of != "leaves":
            return given
        if all(template.replace(LEAF, leaf) in names for leaf in self.tree.leaves):
            return given
        found = find_patterns(names, self.tree)
        if template == LEAF and len(found) == 1:
            return given.model_copy(update={"pattern": found[0]})
        why = explain_missing(self.log.columns(), self.tree, template, found)
        msg = (
            f"{self.log.name} must have a column of probabilities for every leaf; {why} Rename the "
            "columns, or correct the tree."
        )
        raise UnknownNameError(msg)

    def _require_columns(self) -> None:
        given = self.columns
        named = (
            (given.time, "the time"),
            (given.id, "the id"),
            (given.label, "the label"),
            (given.model_version, "the model version"),
            (given.cluster, "the cluster"),
            (given.label_probability, "the label probability"),
        )
        needed = {name: purpose for name, purpose in named if name is not None}
        needed |= dict.fromkeys(given.features, "a feature of the subgroups")
        needed |= dict.fromkeys(given.keys, "a key of dependent rows")
        others = dict(needed)
        reader = self.probabilities
        if reader.is_wide:
            pairs = zip(reader.names, reader.entries.names, strict=True)
            kind = "leaf" if reader.given.of == "leaves" else "node"
            needed |= {name: f"the probability of the {kind} {entry!r}" for name, entry in pairs}
        else:
            what = {"list": "the list of probabilities", "pairs": "the pairs", "map": "the map"}
            needed[reader.names[0]] = what[reader.given.form]
            needed |= dict.fromkeys(reader.names[1:], "the classes of the list")
        for name in reader.names:
            if name in others:
                msg = (
                    f"`columns` must name the column {name!r} once; it is {others[name]} and "
                    f"{needed[name]}. Rename one of the two in the log, or name the predictions "
                    "apart from it: probabilities: 'p_{leaf}'."
                )
                raise InvalidInputError(msg)
        require_columns(self.log, needed)
        if self.plan is not None:
            planned = {self.plan.id: "the id", self.plan.label: "the label probability"}
            require_columns(self.plan.table, planned)
        if self.labels is not None:
            wanted = {self.labels.id: "the id", self.labels.label: "the label"}
            if self.labels.time is not None:
                wanted[self.labels.time] = "when the label became known"
            require_columns(self.labels.table, wanted)

    def used_columns(self) -> set[str]:
        """Name the columns of the log that reading a range takes."""
        return set(self.needed_columns(with_labels=True))

    def needed_columns(self, *, with_labels: bool) -> dict[str, ColumnKind]:
        """Return the columns of the log that reading a range takes, and no others."""
        given = self.columns
        names = [*given.features, given.time, given.id, given.model_version, given.cluster]
        if with_labels:
            names += [given.label_probability, *given.keys]
        needed: dict[str, ColumnKind] = {name: "any" for name in names if name is not None}
        if with_labels and given.label is not None:
            needed[given.label] = "label"
        reader = self.probabilities
        listed = reader.given.form == "list" and not reader.given.is_sparse
        width = len(reader.entries.names) if listed else 1
        return Needed(needed | column_kinds(reader), width)

    def _ids(self, start: datetime, end: datetime) -> pd.Series[Any]:
        parts = list(self._some_ids(start, end))
        return pd.concat(parts, ignore_index=True) if parts else pd.Series([], dtype=object)

    def _some_ids(self, start: datetime, end: datetime) -> Iterator[pd.Series[Any]]:
        """Yield the ids of a range, some at a time."""
        name = str(self.columns.id)
        columns: dict[str, ColumnKind] = {name: "any"}
        for chunk in self.scan(columns, start, end):
            yield chunk.frame[name]

    def scan(
        self, columns: Mapping[str, ColumnKind], start: datetime, end: datetime
    ) -> Iterator[Chunk]:
        """Read columns of the log's rows in a range, or of a sample of them."""
        for chunk in self.log.scan(columns, self.time, start, end):
            if self._share == 1.0:
                yield chunk
            else:
                yield sample_of(chunk, self._share, columns, self.time, self.columns.id)


def _range(
    start: datetime, end: datetime, as_of: datetime | None
) -> tuple[datetime, datetime, datetime | None]:
    first, last = to_utc(start, argument="start"), to_utc(end, argument="end")
    if last < first:
        msg = f"`end` must not be before `start`; got {last.isoformat()} and {first.isoformat()}."
        raise InvalidInputError(msg)
    return first, last, None if as_of is None else to_utc(as_of, argument="as_of")
