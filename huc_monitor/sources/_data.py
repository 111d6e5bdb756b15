"""What a prediction source hands over, and the contract it keeps."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, Final, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor._common.forms import Form
from huc_monitor._common.safe_text import quoted
from huc_monitor._common.times import get_zone
from huc_monitor.audit.clusters import ClusterKeys
from huc_monitor.audit.comparison import Comparison
from huc_monitor.audit.result import AuditResult
from huc_monitor.audit.sparse_rows import Rows, SparseRows, join
from huc_monitor.errors import InvalidInputError
from huc_monitor.tree.labels import LeafCodes

N_EXAMPLES = 5
N_UNKNOWN = 20
_NEARLY_ALL: Final = 0.8


def main_version(versions: Mapping[str, int]) -> str | None:
    """Return the model version of nearly all rows that say one; None where none or several do."""
    named = {version: count for version, count in versions.items() if version}
    first = next(iter(named), None)
    enough = _NEARLY_ALL * sum(named.values())
    return first if first is not None and named[first] >= enough else None


class TooManyBadRowsError(InvalidInputError):
    """More rows of a window are unusable than the source's `max_bad_share` allows."""


# Start and end of a range, and the time at which its labels were known.
Known = tuple[datetime, datetime, datetime | None]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Times of the first and of the last prediction in a log, both inclusive and in UTC.

    ``n_untimed`` rows have no time, or none that can be read: they are in no window.
    """

    first: datetime
    last: datetime
    n_untimed: int = 0


@dataclass(frozen=True, slots=True)
class RowCounts(Form):
    """How many rows a window has, and how many of them have a label: cheap to ask again later.

    Attributes
    ----------
    n_predictions : int
        All rows in the range.
    n_labelled : int
        Rows with a label, usable or not.
    latest_label : datetime or None
        When the latest of these labels became known (UTC); None without a label time column.
    """

    n_predictions: int
    n_labelled: int
    latest_label: datetime | None = None

    @property
    def coverage(self) -> float:
        """Share of rows with a label; 0 where there is no row."""
        return self.n_labelled / self.n_predictions if self.n_predictions else 0.0


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row set aside, and why. `id` and `time` are None where the log has no such column."""

    id: Any
    time: datetime | None
    reason: str

    def __str__(self) -> str:
        """Say which row it is, and why."""
        return self.say("UTC")

    def say(self, zone: str) -> str:
        """Say which row it is, its time as clocks in a zone show it, and why."""
        if self.time is None:
            return self.reason
        of_id = "" if self.id is None else f"id {quoted(self.id)}, "
        return f"{of_id}{self.time.astimezone(get_zone(zone)):%Y-%m-%d %H:%M:%S}: {self.reason}"


def say_bad(reasons: Mapping[str, int], first: BadRow, zone: str = "UTC") -> str:
    """Say how many rows cannot be used for which reason, and the first of them."""
    counted = ", ".join(f"{n:,} {reason}" for reason, n in reasons.items())
    return f"({counted}). First: {first.say(zone)}."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictionData:
    """The predictions between two times, whether or not their labels are known.

    Rows are in the order of time, then id, so that two reads of the same data are the same.

    Attributes
    ----------
    start, end : datetime
        The range ``[start, end)``, in UTC.
    probabilities : (n, K) float64, or SparseRows
        In the order of ``tree.leaves``, whatever the order in the log. Every row sums to 1. Sparse
        where the log names the classes of each row and not all of them.
    features : DataFrame of n rows
        The feature columns that were asked for, and no others.
    ids : (n,) object array or None
    times : (n,) datetime64[us]
        In UTC.
    model_versions : (n,) object array or None
        As text; None where the log has no such column. A missing version is None.
    n_predictions : int
        All rows in the range, with the unlabelled and the unusable ones.
    n_quarantined : int
        Rows set aside because they cannot be used.
    bad_rows : tuple of BadRow
        The first few of them.
    bad_reasons : dict of str to int
        How many were set aside for which reason.
    n_duplicate_ids : int
        Rows left out because the same prediction was there already under the same id. Another
        prediction under the same id is set aside as unusable, and so is a label contradicted.
    clusters : (n,) int64 or None
        Key of the cluster of dependent rows; None where rows are independent.
    """

    start: datetime
    end: datetime
    probabilities: Rows
    features: pd.DataFrame
    ids: NDArray[Any] | None
    times: NDArray[np.datetime64]
    model_versions: NDArray[Any] | None
    n_predictions: int
    n_quarantined: int
    bad_rows: tuple[BadRow, ...] = ()
    bad_reasons: Mapping[str, int] = dataclasses.field(default_factory=dict)
    n_duplicate_ids: int = 0
    clusters: NDArray[np.int64] | None = None

    @property
    def n(self) -> int:
        """Number of usable rows in hand."""
        return len(self.probabilities)

    @property
    def versions(self) -> dict[str, int]:
        """Usable rows per model version, most frequent first; more than one means a change.

        A window is never split where the model version changes: it says what was served in that
        time. Use `take` with a condition on `model_versions` to look at one version.
        """
        if self.model_versions is None:
            return {}
        counts = pd.Series(self.model_versions, dtype=object).fillna("").value_counts()
        return {str(version): int(count) for version, count in counts.items()}

    @property
    def version(self) -> str | None:
        """The model version of nearly all rows that say one; None where none or several do."""
        return main_version(self.versions)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Self:
        """Return the chosen rows; the counts still speak of the whole window."""
        chosen = np.arange(self.n)[rows]
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray | SparseRows):
                changed[field.name] = value[chosen]
            elif isinstance(value, pd.DataFrame):
                changed[field.name] = value.iloc[chosen].reset_index(drop=True)
        return dataclasses.replace(self, **changed)

    def __repr__(self) -> str:
        name, times = type(self).__name__, f"{self.start:%Y-%m-%d %H:%M}..{self.end:%Y-%m-%d %H:%M}"
        return f"{name}({times} UTC, n={self.n}, of {self.n_predictions} predictions)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class WindowData(PredictionData):
    """The labelled predictions between two times: what an audit takes.

    Attributes
    ----------
    labels : (n,) int64
        Leaf codes.
    label_times : (n,) datetime64[us] or None
        When each label became known, in UTC; None without a label time column.
    as_of : datetime or None
        Only labels known at this time were used; None: all of them.
    n_labelled : int
        Rows with a label, with those set aside and left out:
        ``n == n_labelled - n_quarantined - n_duplicate_ids``.
    latest_label : datetime or None
        When the latest label of the window became known, that of a quarantined row included.
    n_duplicate_labels : int
        Label rows beyond the first of their id.
    n_changed_labels : int
        Ids whose label was replaced by a later, different one.
    sampled_from : int or None
        Labelled rows of the window, where it was too large to hold and these are a sample of it;
        counts speak of the whole window then. None: these are all rows.
    label_probability : (n,) float64 or None
        With which probability each row was chosen to be labelled; None: all alike.
    keys : DataFrame of n rows
        Hashed values of `Columns.keys`; without columns where none were asked for.
    unknown_labels : dict of str to int
        How many rows had which label that is no node of the tree, most first; the first few.
    """

    labels: NDArray[np.int64]
    label_times: NDArray[np.datetime64] | None
    as_of: datetime | None
    n_labelled: int
    latest_label: datetime | None = None
    n_duplicate_labels: int = 0
    n_changed_labels: int = 0
    sampled_from: int | None = None
    label_probability: NDArray[np.float64] | None = None
    keys: pd.DataFrame = dataclasses.field(default_factory=pd.DataFrame)
    unknown_labels: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def n_usable(self) -> int:
        """Labelled rows of the window that can be audited, in hand or not."""
        if self.sampled_from is None:
            return self.n
        return self.sampled_from - self.n_quarantined - self.n_duplicate_ids

    @property
    def codes(self) -> LeafCodes:
        """The labels, marked as codes: as audits and recalibrators take them."""
        return LeafCodes(self.labels)

    @property
    def cluster_keys(self) -> ClusterKeys | None:
        """The clusters, marked as hashed: as audits and recalibrators take them."""
        return None if self.clusters is None else ClusterKeys(self.clusters)

    @property
    def counts(self) -> RowCounts:
        """What `PredictionSource.counts` said about this window when it was read."""
        return RowCounts(self.n_predictions, self.n_labelled, self.latest_label)

    @property
    def coverage(self) -> float:
        """Share of the predictions that have a label; 0 where there is none."""
        return self.counts.coverage


@runtime_checkable
class PredictionSource(Protocol):
    """A prediction log with its labels, read one range of time after the other.

    Ranges are ``[start, end)`` of aware datetimes. `as_of` leaves out labels that became known
    later than this time (inclusive), which makes an audit repeatable: with ``as_of=window.due_at``
    a re-run months later sees the labels of then. It has no effect where the labels have no time.
    """

    def time_range(self) -> TimeRange | None:
        """Return when the log begins and ends, or None if it has no rows."""

    def counts(self, start: datetime, end: datetime, *, as_of: datetime | None = None) -> RowCounts:
        """Count predictions and labels without reading probabilities."""

    def labelled(
        self, start: datetime, end: datetime, *, as_of: datetime | None = None
    ) -> WindowData:
        """Read the labelled rows; an empty range gives empty arrays, not an error."""

    def predictions(self, start: datetime, end: datetime) -> PredictionData:
        """Read all rows, labelled or not: for drift while labels are missing."""

    def advance(self, start: datetime, n_rows: int) -> datetime | None:
        """Find the smallest time of a row such that ``[start, time)`` holds at least `n_rows`.

        Rows of equal time stay together. None if no row follows yet.
        """

    @property
    def auditor(self) -> Callable[..., AuditResult] | None:
        """What audits all rows of a range where `labelled` may return a sample; None if never.

        It is called as ``auditor(start, end, as_of=, utilities=, subgroups=, options=)`` with
        `AuditOptions`.
        """

    @property
    def comparer(self) -> Callable[..., list[Comparison] | None] | None:
        """What compares all rows of windows with those of a reference; None as `auditor`.

        It is called as ``comparer(ranges, plan=, pools=)``, with an `AuditPlan` and with (start,
        end, as_of) of the reference, the newest window, the one before, and so on; it returns None
        where a range has no rows any more.
        """


Data = TypeVar("Data", bound=PredictionData)


def concatenate(parts: Sequence[Data]) -> Data:
    """Join rows of adjacent ranges, in order of time, into one window.

    For rolling windows, which share most of their rows: read each stride once, keep it, and join.
    """
    if not parts:
        msg = "`parts` must hold at least one range; got none."
        raise InvalidInputError(msg)
    for before, after in pairwise(parts):
        if before.end != after.start:
            msg = (
                f"`parts` must follow one another without a gap; got {before!r}, then {after!r}. "
                "Sort them by time, and read the missing range."
            )
            raise InvalidInputError(msg)
    joined = {item.name: _joined(item.name, parts) for item in dataclasses.fields(parts[0])}
    return type(parts[0])(**joined)


def _joined(name: str, parts: Sequence[Any]) -> Any:
    """Join one field of all parts: counts add up, rows follow one another."""
    values = [getattr(part, name) for part in parts]
    if name == "sampled_from" and any(values):
        return sum(part.n_labelled for part in parts)
    if name == "label_probability" and not all(value is None for value in values):
        pairs = zip(values, parts, strict=True)
        return np.concatenate([np.ones(part.n) if one is None else one for one, part in pairs])
    if name in _JOINING:
        return _JOINING[name](values)
    if name.startswith("n_"):
        return sum(values)
    if isinstance(values[0], pd.DataFrame):
        return pd.concat(values, ignore_index=True)
    return None if any(value is None for value in values) else np.concatenate(values)


def _total(counts: Sequence[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total


_JOINING: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "start": itemgetter(0),
    "end": itemgetter(-1),
    "probabilities": join,
    "bad_rows": lambda rows: tuple(chain.from_iterable(rows))[:N_EXAMPLES],
    "bad_reasons": lambda counts: dict(_total(counts)),
    "unknown_labels": lambda counts: dict(_total(counts).most_common(N_UNKNOWN)),
    "as_of": lambda times: None if None in times else max(times),
    "latest_label": lambda times: max(filter(None, times), default=None),
}
