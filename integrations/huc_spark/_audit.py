"""The audit of a Spark DataFrame: rows stay where they are, summaries come to the driver."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from huc_monitor import AuditResult, LabelTree, Subgroups, Utility
from huc_monitor._common.arrays import unpack
from huc_monitor.audit.forms.reader import PredictionReader
from huc_monitor.audit.forms.spec import PredictionColumns, as_columns
from huc_monitor.audit.options import DEFAULTS
from huc_monitor.audit.runs.packing import Packing
from huc_monitor.audit.runs.pieces import Facts, PieceAudit, RunSummary, merge_runs
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean
from huc_monitor.sources._rows import column_kinds, rounding_of
from huc_monitor.utilities.program import Floats, Ints
from huc_spark import _worker
from huc_spark._table import WHOLE, quoted
from huc_spark._worker import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_PER_RUN = 500_000
_FAN_IN = 32


def audit(
    df: DataFrame,
    *,
    tree: LabelTree,
    utilities: Sequence[Utility] | Utility,
    probabilities: PredictionColumns | str | Mapping[str, str] = "{leaf}",
    labels: str = "label",
    classes: Sequence[str] | None = None,
    subgroups: Subgroups | None = None,
    weights: str | None = None,
    clusters: str | None = None,
    label_probability: str | None = None,
    row_id: str | None = None,
    bounds: str | None = DEFAULTS.bounds,
    confidence_level: float = DEFAULTS.confidence_level,
    n_draws: int = DEFAULTS.n_draws,
    rng: Any = DEFAULTS.rng,
    n_partitions: int | None = None,
) -> AuditResult:
    """Measure how far predicted utility is from realised utility, on rows that Spark holds.

    The result is that of `huc_monitor.audit` on the same rows: exact, whatever the partitions.

    Parameters
    ----------
    df : DataFrame
        One row per labelled prediction. It is read three times; persist it where making it again
        is expensive, or does not give the same rows again.
    tree, utilities, subgroups, bounds, confidence_level, n_draws, rng
        As in `huc_monitor.audit`. Subgroups read their columns from `df`.
    probabilities : str, mapping or PredictionColumns, default "{leaf}"
        A pattern for one column per leaf, such as "p_{leaf}"; a mapping of leaf to column; the
        name of one array column; or columns of any other form.
    labels : str, default "label"
        Column of leaf names or codes, without nulls.
    classes : sequence of str, optional
        The order of an array column; that of ``tree.leaves`` when left out.
    weights : str, optional
        Column of non-negative numbers: how often each row counts.
    clusters, label_probability : str, optional
        Columns of what `huc_monitor.audit` takes under these names. Clusters are counted on the
        driver, 16 bytes each.
    row_id : str, optional
        Column that tells rows apart; the bootstrap needs it, because its multipliers are functions
        of (seed, row, draw). A whole number counts as it is, so that 0, 1, 2, ... in the order of
        a local window gives that window's draws; text is hashed.
    n_partitions : int, optional
        Ranges of score that are scanned apart. By default one per 500,000 rows, and at least as
        many as Spark runs tasks at a time. It does not change the result.

    Returns
    -------
    AuditResult

    Notes
    -----
    Bounds equal those of the local audit to the last bits; those of "bootstrap" where `row_id`
    counts the rows as the local audit does, from 0.
    """
    check = PieceAudit.of(
        tree=tree,
        utilities=utilities,
        subgroups=subgroups,
        bounds=bounds,
        confidence_level=confidence_level,
        n_draws=n_draws,
        rng=rng,
    )
    where = reader_of(check.tree, probabilities, classes)
    columns: dict[str, Any] = {
        "predictions": where.given.to_dict(),
        "shares": None,
        "labels": labels,
        "coded": False,
        "weights": weights,
        "clusters": clusters,
        "label_probability": label_probability,
        "row_id": row_id if check.n_draws else None,
    }
    types = dict(df.dtypes)
    needed = _needed(types, check, where, columns)
    columns["tolerance"] = rounding_of([types[name] for name in where.names], check.tree.n_leaves)
    prepared = _select(df, types, where, columns, needed)
    return SparkAudit(prepared, check, Job.of(check, columns), n_partitions).run()


def shuffle_bytes_per_row(
    tree: LabelTree,
    utilities: Sequence[Utility] | Utility,
    *,
    subgroups: Subgroups | None = None,
    bounds: str | None = DEFAULTS.bounds,
    weighted: bool = False,
) -> int:
    """Bytes that an audit moves between executors for each row, before compression.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    >>> shuffle_bytes_per_row(tree, [hm.LevelCorrectness(level=2)], bounds="sharp")
    26
    """
    check = PieceAudit.of(tree=tree, utilities=utilities, subgroups=subgroups, bounds=bounds)
    packings = [Packing.of(check, u, weighted=weighted) for u in range(len(check.utilities))]
    return sum(packing.bytes_per_row for packing in packings)


@dataclass(frozen=True, slots=True, eq=False)
class SparkAudit:
    """One audit: facts of all rows, one shuffle by score, and the sums that results show."""

    df: DataFrame
    audit: PieceAudit
    job: Job
    n_partitions: int | None = None

    def run(self) -> AuditResult:
        """Audit all rows."""
        facts, scores = collect_facts(self.df, self.job, self.audit)
        facts = facts.simplified()
        if not facts.n_rows:
            msg = "`df` must have at least one row; got none. Check the filter before the audit."
            raise InvalidInputError(msg)
        cuts = find_cuts(scores, n_runs(self.df, facts.n_rows, self.n_partitions))
        merged = self._summaries(facts, cuts)
        within = self._within(facts, merged)
        for run in merged:
            self._same_rows(facts.n_rows, run.scan.n_rows)
        return self.audit.merged_result(facts, merged, within)

    def _summaries(self, facts: Facts, cuts: list[Floats]) -> list[RunSummary]:
        rows = self.df.mapInArrow(_worker.send_rows(self.job, facts, cuts), _worker.RECORDS)
        runs = rows.groupBy("utility", "run").applyInArrow(
            _worker.summarise(self.job, facts), _worker.SUMMARIES
        )
        return merge_all(runs, max(cut.size for cut in cuts) + 1)

    def _within(self, facts: Facts, merged: list[RunSummary]) -> list[Ints]:
        shown = [run.scan.shown for run in merged]
        step = _worker.sum_within(self.job, facts, shown)
        found = self.df.mapInArrow(step, _worker.SUMS).toArrow().to_pylist()
        sums = []
        for u, run in enumerate(merged):
            shape = (len(self.audit.subgroups), 2, run.scan.squares.shape[1])
            mine = [row for row in found if row["utility"] == u]
            self._same_rows(run.scan.n_rows, sum(row["n_rows"] for row in mine))
            parts = [np.frombuffer(row["sums"], dtype=np.int64).reshape(shape) for row in mine]
            sums.append(functools.reduce(operator.add, parts))
        return sums

    def _same_rows(self, before: int, after: int) -> None:
        if before != after:
            msg = (
                f"`df` must give the same rows each time it is read; got {before:,} rows, then "
                f"{after:,}. Persist it, or write it to a table first."
            )
            raise InvalidInputError(msg)


def collect_facts(df: DataFrame, job: Job, check: Any) -> tuple[Any, list[tuple[Floats, int]]]:
    """Check and count all rows; also return scores of some, with how many rows each stands for."""
    found = df.mapInArrow(_worker.find_facts(job), _worker.FACTS)
    rows = found.toArrow().to_pylist()
    errors = [row["error"] for row in rows if row["error"] is not None]
    if errors:
        msg = f"{errors[0]} Rows are counted within a batch of one of Spark's partitions."
        raise InvalidInputError(msg)
    samples = [
        (np.frombuffer(row["sample"]).reshape(len(check.utilities), -1), int(row["stride"]))
        for row in rows
        if row["sample"]
    ]
    none = check.no_facts
    return sum((unpack(none, row["facts"]) for row in rows), none), samples


def n_runs(df: DataFrame, n_rows: int, n_partitions: int | None) -> int:
    """Ranges of score that are scanned apart."""
    return n_partitions or max(_tasks_at_once(df), -(-n_rows // _ROWS_PER_RUN))


def find_cuts(samples: list[tuple[Floats, int]], wanted: int) -> list[Floats]:
    """Scores at which runs end, so that runs hold about equally many rows."""
    scores = np.concatenate([sample for sample, _ in samples], axis=1)
    rows = np.concatenate([np.full(sample.shape[1], stride) for sample, stride in samples])
    cuts = []
    for values in scores:
        order = np.argsort(values)
        before = np.cumsum(rows[order])
        places = np.searchsorted(before, before[-1] * np.arange(1, wanted) / wanted)
        cuts.append(np.unique(values[order][places]))
    return cuts


def merge_all(runs: DataFrame, n_runs: int) -> list[RunSummary]:
    """Merge the summaries of all ranges of score, one by one of what `utility` counts."""
    while n_runs > _FAN_IN:
        # Neighbours merge where they are, until the driver can take the rest.
        runs = runs.selectExpr("utility", f"run div {_FAN_IN} AS run", "summary")
        runs = runs.selectExpr("utility", "cast(run AS int) AS run", "summary")
        runs = runs.groupBy("utility", "run").applyInArrow(_worker.merge, _worker.SUMMARIES)
        n_runs = -(-n_runs // _FAN_IN)
    found: dict[int, list[RunSummary]] = {}
    for row in runs.toArrow().to_pylist():
        summary = RunSummary.from_bytes(row["summary"])
        found.setdefault(row["utility"], []).append(summary)
    return [merge_runs(found[k]) for k in sorted(found)]


def reader_of(
    tree: LabelTree,
    probabilities: PredictionColumns | str | Mapping[str, str],
    classes: Sequence[str] | None = None,
) -> PredictionReader:
    """Read what `probabilities` says; a text without {leaf} is an array column."""
    if isinstance(probabilities, str) and "{leaf}" not in probabilities:
        order = None if classes is None else tuple(classes)
        probabilities = PredictionColumns(list=probabilities, classes=order)
    return PredictionReader.of(tree, as_columns(probabilities))


def _tasks_at_once(df: DataFrame) -> int:
    """Tasks that Spark runs at a time, where the session can tell."""
    from pyspark.errors import PySparkException

    try:
        return df.sparkSession.sparkContext.defaultParallelism
    except PySparkException:  # a session of Spark Connect, whose cluster is elsewhere
        return int(str(df.sparkSession.conf.get("spark.sql.shuffle.partitions", "200")))


def _needed(
    types: Mapping[str, str], check: PieceAudit, where: PredictionReader, columns: dict[str, Any]
) -> list[str]:
    """Check that the columns are there; return their names."""
    if check.n_draws and columns["row_id"] is None and columns["clusters"] is None:
        msg = (
            "`row_id` must name a column that tells rows apart, because bounds='bootstrap' draws "
            "by row; got None. Name one, or choose bounds='sharp'."
        )
        raise InvalidInputError(msg)
    needed = dict.fromkeys(where.names, "probabilities")
    needed |= {columns["labels"]: "labels"} | dict.fromkeys(check.subgroups.columns, "subgroups")
    for name in ("weights", "clusters", "label_probability", "row_id"):
        needed |= {columns[name]: name} if columns[name] else {}
    for name, purpose in needed.items():
        if name not in types:
            hint = did_you_mean(name, list(types))
            msg = f"`{purpose}` must name columns of `df`; got {name!r}. {hint}"
            raise UnknownNameError(msg)
    return list(needed)


def _select(
    df: DataFrame,
    types: dict[str, str],
    where: PredictionReader,
    columns: dict[str, Any],
    needed: list[str],
) -> DataFrame:
    from pyspark.sql import functions as f

    casts = {"number": "double", "numbers": "array<double>"}
    kinds = column_kinds(where)
    chosen = []
    for name in needed:
        column = f.col(quoted(name))
        wanted = casts.get(kinds.get(name, "any"), types[name])
        if types[name] != wanted and types[name] != "string":
            column = column.cast(wanted)
        if name == columns["row_id"] and types[name] not in WHOLE:
            column = f.xxhash64(column)
        elif name == columns["row_id"]:
            column = column.cast("bigint")
        elif name in {columns["weights"], columns["label_probability"]} and types[name].startswith(
            "decimal"
        ):
            column = column.cast("double")
        chosen.append(column.alias(name))
    return df.select(*chosen)
