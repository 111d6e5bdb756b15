"""One pass over a range of a log: usable rows are kept, the others set aside and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor._common.frames import as_numbers
from huc_monitor._common.safe_text import distinct, quoted
from huc_monitor._common.times import EPOCH, say_span
from huc_monitor.audit.forms.reader import BAD_PROBABILITIES, ReadRows
from huc_monitor.audit.sparse_rows import Rows, SparseRows, as_dense, join
from huc_monitor.errors import InvalidInputError
from huc_monitor.sources._data import (
    N_EXAMPLES,
    N_UNKNOWN,
    PredictionData,
    TooManyBadRowsError,
    WindowData,
    say_bad,
)
from huc_monitor.sources._duck import DuckTable
from huc_monitor.sources._repeats import (
    KEPT,
    OTHER_LABEL,
    OTHER_PREDICTION,
    REASONS,
    REPEATED,
    settle,
)
from huc_monitor.sources._rows import (
    BAD_LABEL_PROBABILITY,
    BAD_LABEL_TIME,
    DESIGN_PROBLEMS,
    UNKNOWN_LABEL,
    Quarantine,
    add_design,
    find_strays,
    read_chunk,
    say_unknown,
)
from huc_monitor.sources._table import Chunk

if TYPE_CHECKING:
    from huc_monitor.sources._labels import LabelsById
    from huc_monitor.sources._source import TableSource


_MOST_SHOWN = 80
# The code of a label that another one contradicts.
_IN_CONFLICT = -2


class Reading:
    """One pass over a range of the log: keep usable rows, set the others aside."""

    def __init__(
        self,
        source: TableSource,
        start: datetime | None,
        end: datetime | None,
        as_of: datetime | None,
        labels: LabelsById | None,
        *,
        with_labels: bool,
        plan: LabelsById | None = None,
    ) -> None:
        self.source, self.labels, self.with_labels = source, labels, with_labels
        self.plan = plan
        self.start, self.end, self.as_of = start, end, as_of
        self.bad = Quarantine()
        self.unknown: Counter[str] = Counter()
        self.n_predictions = self.n_labelled = self.n_repeated = 0
        self.matrices: list[Rows] = []
        self.frames: list[pd.DataFrame] = []
        # Before rows are asked for: it may have to read the reference window first.
        self._reader = source.reader()
        self._read()

    def _read(self) -> None:
        for chunk in self._chunks():
            self._add(chunk)

    def _chunks(self) -> Iterator[Chunk]:
        needed, log = self.source.needed_columns(with_labels=self.with_labels), self.source.log
        if self.start is not None and self.end is not None:
            return self.source.scan(needed, self.start, self.end)
        if not isinstance(log, DuckTable):
            msg = f"`log` must be files or a DuckDB table to be read as a whole; got {log.name}."
            raise InvalidInputError(msg)
        return log.rows(needed)

    def _add(self, chunk: Chunk) -> None:
        source, given = self.source, self.source.columns
        frame = chunk.frame.reset_index(drop=True)
        kept: dict[str, Any] = {}  # a frame takes long to add a column to
        if given.time is None or self.start is None:
            kept["time"] = np.full(len(frame), np.datetime64("NaT", "us"))
            kept["row"] = np.arange(self.n_predictions, self.n_predictions + len(frame))
        else:
            kept["time"] = source.time.read(frame[given.time])
        self.n_predictions += len(frame)
        if given.id is not None:
            ids = frame[given.id]
            kept["id"] = ids if _is_whole(ids) else ids.astype(object)
        if given.model_version is not None:
            kept["version"] = frame[given.model_version].astype(object)
        for i, name in enumerate(given.features):
            kept[f"feature {i}"] = frame[name]
        problem = add_design(kept, frame, given, with_labels=self.with_labels)
        rows, label = np.arange(len(frame)), None
        if self.with_labels:
            label, when = self._label_columns(frame)
            rows = np.flatnonzero(label.notna().to_numpy())
            self.n_labelled += len(rows)
            if self.plan is not None:
                rows = rows[self._add_chances(frame, kept, problem)[rows]]
            kept["code"] = source.encoder.find(label)
            if self.labels is not None and (self.labels.conflicting | self.labels.unreadable).any():
                place = self.labels.find(frame[str(given.id)])
                kept["code"][(place >= 0) & self.labels.conflicting[place]] = _IN_CONFLICT
                problem[(place >= 0) & self.labels.unreadable[place]] = BAD_LABEL_TIME
            if when is not None:
                kept["label time"] = when
        self._keep(read_chunk(self._reader, chunk), rows, pd.DataFrame(kept), problem, label)

    def _label_columns(self, frame: pd.DataFrame) -> tuple[pd.Series[Any], Any]:
        given = self.source.columns
        if self.labels is None:
            return frame[str(given.label)].astype(object), None
        place = self.labels.find(frame[str(given.id)])
        known = place >= 0
        label = np.full(len(frame), None, dtype=object)
        label[known] = self.labels.by_id.to_numpy()[place[known]]
        if self.labels.times is None:
            return pd.Series(label, dtype=object), None
        when = np.full(len(frame), np.datetime64("NaT", "us"))
        when[known] = self.labels.times.to_numpy().astype("datetime64[us]")[place[known]]
        return pd.Series(label, dtype=object), when

    def _add_chances(
        self, frame: pd.DataFrame, kept: dict[str, Any], problem: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Add the probabilities of the sampling plan; say which rows it chose."""
        assert self.plan is not None  # noqa: S101 - asked for with a plan only
        place = self.plan.find(frame[str(self.source.columns.id)])
        chances = np.append(as_numbers(self.plan.by_id), np.nan)[place]
        kept["label probability"] = chances
        known: NDArray[np.bool_] = place >= 0
        problem[known & ~((chances > 0) & (chances <= 1))] = BAD_LABEL_PROBABILITY
        return known

    def _keep(
        self,
        read: ReadRows,
        rows: NDArray[np.int64],
        kept: pd.DataFrame,
        problem: NDArray[Any],
        label: pd.Series[Any] | None,
    ) -> None:
        matrix, good = read.rows, read.good
        if len(rows) < len(kept):
            matrix, good, problem = matrix[rows], good[rows], problem[rows]
            kept = kept.iloc[rows].reset_index(drop=True)
            label = None if label is None else label.iloc[rows]
        known = np.ones(len(kept), dtype=bool)
        if label is not None:
            codes = kept["code"].to_numpy()
            known = codes >= 0
            if not known.all():
                self._count_unknown(codes, label)
        self.bad.add(BAD_PROBABILITIES, int((known & ~good).sum()))
        sound = problem == ""
        for reason in DESIGN_PROBLEMS if not sound.all() else ():
            self.bad.add(reason, int((known & good & (problem == reason)).sum()))
        usable = good & known & sound
        if not usable.all():

            def explain(row: int) -> str:
                if known[row] or label is None:
                    return str(problem[row] or read.why(int(rows[row])))
                if kept["code"].iloc[row] == _IN_CONFLICT:
                    return REASONS[OTHER_LABEL]
                return f"{UNKNOWN_LABEL} {quoted(label.iloc[row])}"

            self._show_bad(kept, usable, explain)
            matrix, kept = matrix[usable], kept[usable]
        self.matrices.append(matrix)
        self.frames.append(kept)

    def _count_unknown(self, codes: NDArray[np.int64], label: pd.Series[Any]) -> None:
        in_conflict, strange = int((codes == _IN_CONFLICT).sum()), label[codes == -1]
        self.bad.add(REASONS[OTHER_LABEL], in_conflict)
        self.bad.add(UNKNOWN_LABEL, len(strange))
        self.unknown.update(strange.map(_shown).value_counts().to_dict())

    def _show_bad(
        self, kept: pd.DataFrame, usable: NDArray[np.bool_], explain: Callable[[int], str]
    ) -> None:
        """Keep the first unusable rows as examples."""
        for row in np.flatnonzero(~usable):
            if not self.bad.has_room:
                break
            reason = explain(int(row))
            if "row" in kept:
                reason = f"row {kept['row'].iloc[row]}: {reason}"
            time = kept["time"].to_numpy()[row]
            self.bad.show(kept["id"].iloc[row] if "id" in kept else None, time, reason)

    def settle(self) -> None:
        """Keep one row of every id, and count the others."""
        if not self.frames:
            return
        frame = _joined(self.frames)
        ends = np.cumsum([len(part) for part in self.matrices])
        verdict = settle(frame, lambda rows: self._gather(rows, ends))
        self.frames = [frame]
        if not verdict.any():
            return
        self.n_repeated += int((verdict == REPEATED).sum())
        for code, reason in REASONS.items():
            rows = np.flatnonzero(verdict == code)
            self.bad.add(reason, rows.size)
            for row in rows[:N_EXAMPLES]:
                self.bad.show(frame["id"].iloc[row], frame["time"].to_numpy()[row], reason)
        keep = verdict == KEPT
        self.matrices = [
            part[kept] for part, kept in zip(self.matrices, np.split(keep, ends[:-1]), strict=True)
        ]
        self.frames = [frame[keep].reset_index(drop=True)]

    def _gather(self, rows: NDArray[np.int64], ends: NDArray[np.int64]) -> Rows:
        """Return some rows of all parts; `rows` are in order."""
        chosen = np.split(rows, np.searchsorted(rows, ends[:-1]))
        starts = ends - [len(part) for part in self.matrices]
        parts = zip(self.matrices, chosen, starts, strict=True)
        return join([part[mine - start] for part, mine, start in parts])

    def _common(self) -> dict[str, Any]:
        source = self.source
        frame = self.frames[0] if self.frames else pd.DataFrame()
        order = _order(frame)
        matrix = self._join(np.arange(len(frame)) if order is None else np.argsort(order))
        if order is not None:
            frame = frame.iloc[order].reset_index(drop=True)
        self.frame = frame
        features = {
            name: frame[f"feature {i}"] if len(frame) else pd.Series(dtype=object)
            for i, name in enumerate(source.columns.features)
        }
        return {
            "start": self.start or EPOCH,
            "end": self.end or EPOCH,
            "probabilities": matrix,
            "features": pd.DataFrame(features, index=range(len(frame))),
            "ids": None if source.columns.id is None else self._values("id", object),
            "times": self._values("time", "datetime64[us]"),
            "model_versions": self._versions(),
            "n_predictions": self.n_predictions,
            "n_quarantined": self.bad.n,
            "bad_rows": tuple(self.bad.examples),
            "bad_reasons": dict(self.bad.reasons),
            "n_duplicate_ids": self.n_repeated,
            "clusters": self._values("cluster", np.int64) if source.columns.clustered else None,
        }

    def _values(self, name: str, kind: Any) -> NDArray[Any]:
        return self.frame[name].to_numpy(dtype=kind) if len(self.frame) else np.empty(0, kind)

    def _join(self, places: NDArray[np.int64]) -> Rows:
        """Put the parts into one matrix, letting go of each: there are never two of them."""
        if any(isinstance(part, SparseRows) for part in self.matrices):
            joined, self.matrices = join(self.matrices), []
            in_order = bool((places == np.arange(len(places))).all())
            return joined if in_order else joined[np.argsort(places)]
        matrix = np.empty((len(places), self.source.tree.n_leaves))
        self.matrices.reverse()
        done = 0
        while self.matrices:
            part = self.matrices.pop()
            matrix[places[done : done + len(part)]] = as_dense(part)
            done += len(part)
        return matrix

    def predictions(self) -> PredictionData:
        self.settle()
        self._check_bad(self.n_predictions)
        return PredictionData(**self._common())

    def window(self) -> WindowData:
        self.settle()
        self._check_bad(self.n_labelled)
        common = self._common()
        chosen = self.source.columns.label_probability is not None or self.plan is not None
        timed = self.labels is not None and self.labels.times is not None
        return WindowData(
            **common,
            labels=self._values("code", np.int64),
            label_times=self._values("label time", "datetime64[us]") if timed else None,
            as_of=self.as_of,
            n_labelled=self.n_labelled,
            latest_label=None if self.labels is None else self.labels.latest,
            n_duplicate_labels=0 if self.labels is None else self.labels.n_duplicates,
            n_changed_labels=0 if self.labels is None else self.labels.n_changed,
            keys=pd.DataFrame(
                {
                    name: self._values(f"key {i}", np.int64)
                    for i, name in enumerate(self.source.columns.keys)
                },
                index=range(len(self.frame)),
            ),
            label_probability=self._values("label probability", float) if chosen else None,
            unknown_labels=dict(self.unknown.most_common(N_UNKNOWN)),
        )

    def _versions(self) -> NDArray[Any] | None:
        if self.source.columns.model_version is None:
            return None
        codes, distinct = pd.factorize(self._values("version", object))
        return np.array([*map(_version, distinct), None], dtype=object)[codes]

    def _check_bad(self, n: int) -> None:
        limit = self.source.max_bad_share
        if self.bad.n <= limit * n:
            return
        zone = self.source.zone
        bad = say_bad(self.bad.reasons, self.bad.examples[0], zone)
        why = f"more than {limit:.4g} of them {bad}"
        found, hint = f"{self.bad.n:,} of {n:,}", self._hint()
        if self.start is None or self.end is None:
            hint = hint or " Correct these rows, or leave them out of the file."
            msg = f"{found} labelled rows of {self.source.log.name} are unusable, {why}{hint}"
            raise TooManyBadRowsError(msg)
        between = f"from {say_span(self.start, self.end, zone, exact=True)}"
        msg = (
            f"`max_bad_share` must not be exceeded; {found} rows of {self.source.log.name} "
            f"{between} are unusable, {why}{hint}"
        )
        raise TooManyBadRowsError(msg)

    def _hint(self) -> str:
        """Name a class column that the tree lacks, or an id that is none: the likeliest reasons."""
        if REASONS[OTHER_PREDICTION] in self.bad.reasons:
            name = self.source.columns.id
            return f" `columns.id` must name one prediction each: is {name!r} such an id?"
        if self.unknown:
            return f" {say_unknown(dict(self.unknown.most_common()), self.source.tree)}"
        if BAD_LABEL_TIME in self.bad.reasons and self.labels is not None:
            return f" {self.labels.why_unreadable}"
        if BAD_PROBABILITIES not in self.bad.reasons:
            return ""
        reader = self.source.probabilities
        for name in find_strays(self.source.log.columns(), reader.given.pattern, reader.names):
            return f" The log also has {name!r}: is a leaf missing from the tree? See tree_changes."
        return ""


def _shown(label: Any) -> str:
    return str(label)[:_MOST_SHOWN]


def _version(value: Any) -> str:
    # Whole numbers that share a column with missing values come as 3.0.
    whole = isinstance(value, float) and value.is_integer()
    return distinct(int(value) if whole else value)


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Put frames one after the other; ids of different types stay what they are."""
    if len(frames) == 1:
        return frames[0].reset_index(drop=True)
    if len({frame["id"].dtype for frame in frames if "id" in frame}) > 1:
        frames = [frame.assign(id=frame["id"].astype(object)) for frame in frames]
    return pd.concat(frames, ignore_index=True)


def _order(frame: pd.DataFrame) -> NDArray[np.int64] | None:
    """Sort by time, then id, or None if the rows are in that order already."""
    if not len(frame):
        return None
    times = frame["time"].to_numpy()
    order = np.arange(len(frame))
    if not (np.diff(times) >= np.timedelta64(0, "us")).all():
        order = np.argsort(times, kind="stable")
    # As numbers, because a missing time does not equal another one.
    same = np.concatenate([[1], np.diff(times[order].view(np.int64)), [1]]) == 0
    tied = np.flatnonzero(same[1:] | same[:-1])
    if "id" in frame and tied.size:
        rows, ids = order[tied], frame["id"]
        codes, _ = pd.factorize(ids.iloc[rows], sort=_sortable(ids))
        order[tied] = rows[np.lexsort((codes, times[rows]))]
    return None if (order == np.arange(len(order))).all() else order


def _is_whole(ids: pd.Series[Any]) -> bool:
    return isinstance(ids.dtype, np.dtype) and ids.dtype.kind in "iu"


def _sortable(ids: pd.Series[Any]) -> bool:
    return _is_whole(ids) or pd.api.types.infer_dtype(ids, skipna=True) in {"string", "integer"}
