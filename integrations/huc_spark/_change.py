"""The change test on a Spark DataFrame: rows are scored and shuffled once for all pools.

The steps are those of `huc_monitor.audit.runs.changes`. Records in order of score stay on the
executors' disks while scans, draws and sums read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from huc_monitor._common.arrays import arrays_from_bytes, arrays_to_bytes, pack
from huc_monitor.audit.comparison import Comparison
from huc_monitor.audit.runs.changes import PieceChange, SampleFacts, compare_pools
from huc_monitor.audit.runs.pieces import RunSummary, ScoredRows
from huc_monitor.audit.two_samples import AfterSums
from huc_monitor.utilities.program import Floats
from huc_spark import _worker
from huc_spark._audit import collect_facts, find_cuts, merge_all, n_runs
from huc_spark._table import on_disk
from huc_spark._worker import Job, Worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_FOUND = "utility int, found binary"


def compare_frame(
    df: DataFrame,
    check: PieceChange,
    job: Job,
    pools: Sequence[int],
    *,
    n_partitions: int | None = None,
    screen: bool = True,
) -> list[Comparison] | None:
    """Compare pooled windows with a reference; a column of `df` has every row's sample."""
    facts, samples = collect_facts(df, job, check)
    if not facts.n_rows.all():
        return None
    cuts = find_cuts(samples, n_runs(df, int(facts.n_rows.sum()), n_partitions))
    records = df.mapInArrow(_worker.send_rows(job, facts, cuts), _worker.RECORDS).persist(on_disk())
    try:
        engine = _SparkChange(records, job, facts, max(cut.size for cut in cuts) + 1)
        return compare_pools(check, engine, pools, screen=screen)
    finally:
        records.unpersist()


@dataclass(frozen=True, slots=True, eq=False)
class _SparkChange:
    """Records on executors, and what the comparison asks of them."""

    records: DataFrame
    job: Job
    facts: SampleFacts
    n_runs: int

    def multipliers(self) -> Floats:
        """Add up what every sample's rows draw."""
        step = _multipliers(self.job, self.facts)
        rows = self.records.where("utility = 0").mapInArrow(step, _FOUND).toArrow().to_pylist()
        found: Floats = np.sum([arrays_from_bytes(row["found"])["sums"] for row in rows], axis=0)
        return found

    def summaries(self, pools: Sequence[int], sums: Floats | None) -> list[list[RunSummary]]:
        """Summarise every range of score once, for all pools."""
        step = _summarise(self.job, self.facts, list(pools), sums)
        runs = self.records.groupBy("utility", "run").applyInArrow(step, _worker.SUMMARIES)
        merged = merge_all(runs, self.n_runs)
        return [merged[i :: len(pools)] for i in range(len(pools))]

    def after(
        self, pools: Sequence[int], intervals: Sequence[Sequence[Floats]]
    ) -> list[list[AfterSums]]:
        """Add up the rows of every pool on its intervals."""
        step = _after(self.job, self.facts, list(pools), [list(one) for one in intervals])
        found: dict[int, AfterSums] = {}
        for row in self.records.mapInArrow(step, _FOUND).toArrow().to_pylist():
            part = AfterSums(**arrays_from_bytes(row["found"]))
            known = found.get(row["utility"])
            found[row["utility"]] = part if known is None else known + part
        merged = [found[k] for k in sorted(found)]
        return [merged[i :: len(pools)] for i in range(len(pools))]


# What runs on executors.


def _open(job: Job) -> tuple[Worker, PieceChange]:
    worker = job.open()
    return worker, cast(PieceChange, worker.audit)


def _multipliers(job: Job, facts: SampleFacts) -> Any:
    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker, check = _open(job)
        sums = np.zeros((check.n_samples, 0))
        for _, rows in _scored(worker, batches):
            part = check.add_multipliers(rows, facts)
            sums = sums + part if sums.size else part
        if sums.size:
            yield _worker.make_batch(_FOUND, [0], [arrays_to_bytes({"sums": sums})])

    return step


def _summarise(job: Job, facts: SampleFacts, pools: list[int], sums: Floats | None) -> Any:
    """Summarise all rows of a utility in one range of score, pool by pool."""

    def step(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        import pyarrow as pa

        worker, check = _open(job)
        u, run = (int(item.as_py()) for item in key)
        rows = worker.unpack(u, table.column("records"))
        batches = []
        for i, pool in enumerate(pools):
            found = check.summarise_pool(u, rows, facts, pool, sums)
            if found is not None:
                batches.append(_worker.summary_batch(u * len(pools) + i, run, found))
        empty = _worker.make_batch(_worker.SUMMARIES, [], [], [])
        return pa.Table.from_batches(batches or [empty])

    return step


def _after(job: Job, facts: SampleFacts, pools: list[int], intervals: list[list[Floats]]) -> Any:
    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker, check = _open(job)
        found: dict[int, AfterSums] = {}
        for u, rows in _scored(worker, batches):
            for i, pool in enumerate(pools):
                part = check.after_sums(u, rows, facts, pool, intervals[i][u])
                k = u * len(pools) + i
                found[k] = found[k] + part if k in found else part
        data = [pack(part) for part in found.values()]
        yield _worker.make_batch(_FOUND, list(found), data)

    return step


def _scored(worker: Worker, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, ScoredRows]]:
    for batch in batches:
        for u in sorted(set(batch.column("utility").to_pylist())):
            mine = batch.filter(batch.column("utility").to_numpy() == u)
            yield u, worker.unpack(u, mine.column("records"))
