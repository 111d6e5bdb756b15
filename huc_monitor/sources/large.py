"""Audits and comparisons of windows larger than memory: rows go to disk, and come back in order.

The same steps and summaries as on a cluster (`huc_monitor.audit.runs`), with DuckDB for the
ordering: pieces are scored one at a time, DuckDB sorts each utility's rows within a memory limit,
spilling to disk, and runs of rows are summarised as they come back.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from huc_monitor._common.times import to_utc
from huc_monitor.audit.clusters import ClusterKeys
from huc_monitor.audit.comparison import Comparison
from huc_monitor.audit.options import DEFAULTS, AuditOptions
from huc_monitor.audit.plan import AuditPlan
from huc_monitor.audit.result import AuditResult
from huc_monitor.audit.runs.changes import PieceChange, compare_pools
from huc_monitor.audit.runs.pieces import (
    Facts,
    Piece,
    PieceAudit,
    PiecePlan,
    RunSummary,
    merge_runs,
)
from huc_monitor.audit.two_samples import AfterSums
from huc_monitor.errors import InvalidInputError
from huc_monitor.sources import (
    PredictionData,
    RowCounts,
    Table,
    TableSource,
    WindowData,
)
from huc_monitor.sources._data import Known
from huc_monitor.sources._labels import latest_labels
from huc_monitor.sources._repeats import repeated_ids
from huc_monitor.sources._sampled import Streaming
from huc_monitor.sources._spec import LARGE
from huc_monitor.sources._store import RowStore
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.tree.labels import LeafCodes
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some rows of a window: the arguments of `audit` that have one entry per row."""

    probabilities: Any
    labels: Any
    features: Any = None
    weights: Any = None
    clusters: Any = None
    label_probability: Any = None


def audit_pieces(
    read: Callable[[], Iterable[Rows]],
    *,
    tree: LabelTree,
    utilities: Sequence[Utility] | Utility,
    subgroups: Subgroups | None = None,
    bounds: str | None = DEFAULTS.bounds,
    confidence_level: float = DEFAULTS.confidence_level,
    n_draws: int = DEFAULTS.n_draws,
    rng: Any = DEFAULTS.rng,
    memory_limit: str | int = LARGE.memory_limit,
    folder: str | Path | None = None,
) -> AuditResult:
    """Measure how far predicted utility is from realised utility, in a window larger than memory.

    The result is that of `audit` on all rows together, however they are cut into pieces.

    Parameters
    ----------
    read : callable
        Returns the pieces of the window, an iterable of `Rows`. Called twice; both times it must
        give the same rows in the same order.
    tree, utilities, subgroups, bounds, confidence_level, n_draws, rng
        As in `audit`.
    memory_limit : str or int, default "1GB"
        What sorting and scanning may take, besides the piece in hand. Rows of equal score are held
        together, however many there are.
    folder : path, optional
        Where rows are kept meanwhile, some 10 bytes and 8 per level of the tree for each row and
        utility; the system's temporary folder when left out.

    Notes
    -----
    Moments, intervals and bounds equal those of `audit` to the last bits.

    Examples
    --------
    >>> import numpy as np, huc_monitor as hm
    >>> from huc_monitor.sources.large import Rows, audit_pieces
    >>> tree = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
    >>> pay = hm.Payoff("pay", {"a": -1, "b": 1, "c": 1, "d": 1})
    >>> pieces = [Rows([[0.25] * 4] * 4, list("aacc")), Rows([[0.25] * 4] * 4, list("cddd"))]
    >>> result = audit_pieces(lambda: pieces, tree=tree, utilities=[pay], bounds="sharp")
    >>> result.uc, result.huc
    (0.0, 0.25)
    """
    audit = PieceAudit.of(
        tree=tree,
        utilities=utilities,
        subgroups=subgroups,
        bounds=bounds,
        confidence_level=confidence_level,
        n_draws=n_draws,
        rng=rng,
    )
    return _audit_pieces(audit, read, memory_limit, folder)


def _audit_pieces(
    audit: PieceAudit,
    read: Callable[[], Iterable[Rows]],
    memory_limit: str | int,
    folder: str | Path | None = None,
) -> AuditResult:
    limit = bytes_of(memory_limit)
    facts = sum((audit.facts(piece) for piece in _checked(audit, read)), audit.no_facts)
    facts = facts.simplified()
    if not facts.n_rows:
        msg = "`read` must give at least one row of positive weight; got none."
        raise InvalidInputError(msg)
    with RowStore.open(audit, limit, folder) as store:
        for piece in _checked(audit, read):
            store.add(audit.rows(piece, facts))
        return _result(audit, facts, store)


def _result(audit: PieceAudit, facts: Facts, store: RowStore) -> AuditResult:
    """Summarise every utility's rows and make the result."""
    merged, within = [], []
    for u in range(len(audit.utilities)):
        runs = (audit.summarise(u, rows, facts) for rows in store.runs(u))
        run = functools.reduce(lambda a, b: merge_runs([a, b]), runs)
        if run.scan.n_rows != facts.n_rows:
            msg = (
                f"`read` must give the same rows each time; got {facts.n_rows:,} rows, then "
                f"{run.scan.n_rows:,}."
            )
            raise InvalidInputError(msg)
        merged.append(run)
        parts = (audit.within(u, rows, facts, run.scan.shown) for rows in store.rows(u))
        within.append(functools.reduce(operator.add, parts))
    return audit.merged_result(facts, merged, within)


def compare_pieces(
    samples: Sequence[Callable[[], Iterable[Rows]]],
    *,
    plan: AuditPlan,
    pools: Sequence[int] = (1,),
    screen: bool = False,
    memory_limit: str | int = LARGE.memory_limit,
    folder: str | Path | None = None,
) -> list[Comparison] | None:
    """Bound what changed from a reference to the newest windows, all larger than memory.

    The numbers are those of `hm.compare` on all rows together, with contributions rounded to 32
    bits; every row is read and scored once, whatever is pooled.

    Parameters
    ----------
    samples : list of callables
        Each returns the pieces of a sample: the reference, the newest window, the one before, and
        so on.
    plan : AuditPlan
        Of method "bootstrap".
    pools : list of int, default (1,)
        How many of the newest windows are pooled; one comparison each.
    screen, memory_limit, folder
        As in `compare_samples` and `audit_pieces`.

    Returns
    -------
    list of Comparison, or None where a sample has no rows
    """
    check = PieceChange.from_plan(plan, len(samples))
    with RowStore.open(check, bytes_of(memory_limit), folder, sampled=True) as store:
        engine, done = _ChangeStore(check, store), 0
        for k, read in enumerate(samples):
            for piece in _checked(check, read, k, done):
                engine.facts += check.facts(piece)
                store.add(check.rows(piece))
            done = int(engine.facts.n_rows.sum())
        return compare_pools(check, engine, pools, screen=screen)


class _ChangeStore:
    """Rows of a reference and of windows on disk; see `huc_monitor.audit.runs.changes`."""

    def __init__(self, check: PieceChange, store: RowStore) -> None:
        self._check, self._store = check, store
        self.facts = check.no_facts

    def multipliers(self) -> Floats:
        """Add up what every sample's rows draw."""
        parts = (self._check.add_multipliers(rows, self.facts) for rows in self._store.rows(0))
        return functools.reduce(operator.add, parts)

    def summaries(self, pools: Sequence[int], sums: Floats | None) -> list[list[RunSummary]]:
        """Read every utility's rows in order once, for all pools."""
        found: list[list[RunSummary]] = [[] for _ in pools]
        for u in range(len(self._check.utilities)):
            merged: list[RunSummary | None] = [None] * len(pools)
            for rows in self._store.runs(u):
                for i, pool in enumerate(pools):
                    run = self._check.summarise_pool(u, rows, self.facts, pool, sums)
                    both = [part for part in (merged[i], run) if part is not None]
                    merged[i] = merge_runs(both) if both else None
            for mine, run in zip(found, merged, strict=True):
                assert run is not None  # noqa: S101 - every sample has rows
                mine.append(run)
        return found

    def after(
        self, pools: Sequence[int], intervals: Sequence[Sequence[Floats]]
    ) -> list[list[AfterSums]]:
        """Add up the rows of every pool on its intervals."""
        found: list[list[AfterSums]] = [[] for _ in pools]
        for u in range(len(self._check.utilities)):
            sums: list[Any] = [None] * len(pools)
            for rows in self._store.rows(u):
                for i, pool in enumerate(pools):
                    part = self._check.after_sums(u, rows, self.facts, pool, intervals[i][u])
                    sums[i] = part if sums[i] is None else sums[i] + part
            for mine, one in zip(found, sums, strict=True):
                mine.append(one)
        return found


def bytes_of(memory_limit: str | int) -> int:
    """Return a number of bytes, written as a number or as text such as "512MB".

    Examples
    --------
    >>> bytes_of("1.5GB")
    1500000000
    """
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([KMGT]?)B?\s*", str(memory_limit), re.IGNORECASE)
    size = round(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if size < 1:
        msg = f"`memory_limit` must be a size such as '512MB'; got {memory_limit!r}."
        raise InvalidInputError(msg)
    return size


def _checked(
    audit: PiecePlan, read: Callable[[], Iterable[Rows]], sample: int = 0, done: int = 0
) -> Iterator[Piece]:
    """Check pieces; rows are called by their place in the window, as `audit` calls them."""
    for rows in read():
        if not len(rows.labels):
            continue
        ids = np.arange(len(rows.labels))
        given = (rows.probabilities, rows.labels, rows.features, rows.weights)
        piece = audit.check(
            *given, ids, np.full(ids.size, sample), rows.clusters, rows.label_probability
        )
        if not piece.clusters.size:
            # Rows of weight zero are not there, and are not counted either.
            piece.ids[:] = np.arange(done, done + piece.ids.size)
        done += piece.labels.size
        if piece.labels.size:
            yield piece


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LargeSource(TableSource):
    """A prediction log whose windows may be too large to hold.

    A window of at most `most_rows` labelled rows is read as by `TableSource`. Of a larger one,
    `labelled` returns a sample of about that many rows, the same each time and chosen without
    regard to labels, and `audit` audits all rows without holding them. Labels in a table of their
    own are looked up for some rows at a time.

    Parameters
    ----------
    most_rows : int
        Labelled rows that are held.
    memory_limit : str or int, default "1GB"
        As in `audit_pieces`.
    """

    most_rows: int = field(kw_only=True)
    memory_limit: str | int = field(default=LARGE.memory_limit, kw_only=True)

    def __post_init__(self) -> None:
        TableSource.__post_init__(self)
        if self.most_rows < 1:
            msg = f"`most_rows` must be at least 1; got {self.most_rows!r}."
            raise InvalidInputError(msg)

    def counts(self, start: datetime, end: datetime, *, as_of: datetime | None = None) -> RowCounts:
        """Count predictions and labels, some ids at a time."""
        if self.labels is None:
            return TableSource.counts(self, start, end, as_of=as_of)
        first, last = to_utc(start, argument="start"), to_utc(end, argument="end")
        known = None if as_of is None else to_utc(as_of, argument="as_of")
        n, n_labelled, latest = 0, 0, None
        for ids in self._some_ids(first, last):
            found = latest_labels(self.labels, ids, known)
            n += len(ids)
            n_labelled += int((found.find(ids) >= 0).sum())
            latest = max(filter(None, (latest, found.latest)), default=None)
        return RowCounts(n, n_labelled, latest)

    def labelled(
        self, start: datetime, end: datetime, *, as_of: datetime | None = None
    ) -> WindowData:
        """Read the labelled rows, or a sample of them where they are too many."""
        counts, planned = self.counts(start, end, as_of=as_of), self.planned(start, end)
        n = counts.n_labelled
        kept = n if planned is None else min(n, len(planned.by_id))
        if kept <= self.most_rows:
            return TableSource.labelled(self, start, end, as_of=as_of)
        data = self._sampled(self.most_rows / kept).labelled(start, end, as_of=as_of)
        return dataclasses.replace(
            data,
            n_predictions=counts.n_predictions,
            n_labelled=n,
            n_quarantined=round(data.n_quarantined * n / max(1, data.n_labelled)),
            n_duplicate_ids=round(data.n_duplicate_ids * n / max(1, data.n_labelled)),
            n_changed_labels=round(data.n_changed_labels * n / max(1, data.n_labelled)),
            latest_label=counts.latest_label,
            sampled_from=n,
        )

    def predictions(self, start: datetime, end: datetime) -> PredictionData:
        """Read all rows, or a sample of them where they are too many."""
        first, last = to_utc(start, argument="start"), to_utc(end, argument="end")
        n, _ = self.log.count(self.time, first, last)
        if n <= self.most_rows:
            return TableSource.predictions(self, start, end)
        data = self._sampled(self.most_rows / n).predictions(start, end)
        bad = round(data.n_quarantined * n / max(1, data.n_predictions))
        return dataclasses.replace(data, n_predictions=n, n_quarantined=bad)

    @property
    def auditor(self) -> Callable[..., AuditResult]:
        """Audits windows of which `labelled` returns a sample."""
        return self.audit

    def audit(
        self,
        start: datetime,
        end: datetime,
        *,
        as_of: datetime | None,
        utilities: Sequence[Utility],
        subgroups: Subgroups,
        options: AuditOptions,
    ) -> AuditResult:
        """Audit all usable labelled rows of a range, as a monitor does that can hold them."""
        check = PieceAudit.of(
            tree=self.tree,
            utilities=utilities,
            subgroups=subgroups,
            **dict(options),
        )
        return self._audit(check, start, end, as_of)

    def _audit(
        self, check: PieceAudit, start: datetime, end: datetime, as_of: datetime | None
    ) -> AuditResult:
        return _audit_pieces(check, self._reader(start, end, as_of), self.memory_limit)

    @property
    def comparer(self) -> Callable[..., list[Comparison] | None]:
        """Compares windows of which `labelled` returns a sample."""
        return self.compare

    def compare(
        self, ranges: Sequence[Known], *, plan: AuditPlan, pools: Sequence[int]
    ) -> list[Comparison] | None:
        """Compare all usable labelled rows of the newest windows, pooled, with a reference."""
        samples = [self._reader(*known, compared=True) for known in ranges]
        return compare_pieces(
            samples, plan=plan, pools=pools, screen=True, memory_limit=self.memory_limit
        )

    def _reader(
        self, start: datetime, end: datetime, as_of: datetime | None, *, compared: bool = False
    ) -> Callable[[], Iterator[Rows]]:
        repeated, plan = repeated_ids(self, start, end), self.planned(start, end)

        def read() -> Iterator[Rows]:
            stream = Streaming(self, start, end, as_of, None, with_labels=True, plan=plan)
            for p, labels, features, clusters, chosen in stream.pieces(repeated):
                keys = None if clusters is None else ClusterKeys(clusters)
                # Windows without a plan are compared with others that have one.
                planned = compared and self.plan is not None and chosen is None
                chances = np.ones(len(labels)) if planned else chosen
                yield Rows(p, LeafCodes(labels), features, None, keys, chances)

        return read

    def _sampled(self, share: float) -> TableSource:
        """Return the source of a share of all rows."""
        source = self._with_log(self.log)
        object.__setattr__(source, "_share", share)
        return source

    def _with_log(self, log: Table) -> TableSource:
        own = {item.name: getattr(self, item.name) for item in fields(TableSource) if item.init}
        return TableSource(**{**own, "log": log})
