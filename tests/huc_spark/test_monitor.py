"""The monitor on Spark tables, by its configuration file, against the local one."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from support.spark_cases import SAME, TREE

import huc_monitor as hm
from huc_monitor.cli import main
from huc_monitor.config import load_config
from huc_monitor.config.opening import open_monitor
from huc_monitor.errors import InvalidInputError

CONFIG = """
model: triage
tree: tree.yaml
source:
  log: {log}
  labels: {labels}
columns: {{time: at, id: id, probabilities: "p_{{leaf}}", model_version: version}}
subgroups: {{by: {{sex: each}}}}
windows: {{length: 1d}}
tolerance: 0.02
bounds: {{method: sharp}}
sequential: {{enabled: false}}
engine: {engine}
{more}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, spark):
    """A log and its labels, some corrected later, some repeated, as files and as Spark tables."""
    place = tmp_path_factory.mktemp("log")
    rng = np.random.default_rng(5)
    n = 3_000
    log = pd.DataFrame(rng.dirichlet(np.full(5, 1.5), n), columns=[f"p_{x}" for x in TREE.leaves])
    log["at"] = pd.date_range("2024-01-01", periods=n, freq="1min", tz="UTC").as_unit("us")
    log["id"] = [f"r{i}" for i in range(n)]
    log["sex"], log["version"] = rng.choice(["f", "m"], n), "3"
    log.loc[7, "p_a"] = -1.0
    labels = pd.DataFrame({"id": log["id"], "y": np.array(TREE.leaves)[rng.integers(0, 5, n)]})
    labels.loc[11, "y"] = "zebra"
    labels["known"] = log["at"] + pd.Timedelta("1h")
    labels = labels[rng.random(n) < 0.9]
    again = labels.iloc[::10].assign(y="a", known=labels["known"].iloc[::10] + pd.Timedelta("1h"))
    contradicted = labels.iloc[5:400:40].assign(y="b")
    labels = pd.concat([labels, again, contradicted]).reset_index(drop=True)
    late = log.iloc[20:60:10].assign(at=log["at"].iloc[300:340:10].to_numpy(), p_a=0.0)
    late[[f"p_{x}" for x in TREE.leaves]] = 0.2
    log = pd.concat([log, log.iloc[:30], late]).reset_index(drop=True)
    labels["known"] = labels["known"].astype("datetime64[us, UTC]")
    log.to_parquet(place / "log.parquet")
    labels.to_parquet(place / "labels.parquet")
    (place / "tree.yaml").write_text(
        "left: {a: null, b: null, e: null}\nright: {c: null, d: null}\n"
    )
    spark.read.parquet(str(place / "log.parquet")).createOrReplaceTempView("served")
    spark.read.parquet(str(place / "labels.parquet")).createOrReplaceTempView("outcomes")
    return place


def check(folder, engine, log, labels, more=""):
    columns = "id: id, label: y, time: known"
    text = CONFIG.format(
        engine=engine, log=f"{{{log}}}", labels=f"{{{labels}, {columns}}}", more=more
    )
    file = folder / f"{engine}.yaml"
    file.write_text(text + f"state: state-{abs(hash(text))}\n")
    return open_monitor(file).check(now="2024-01-03T00:00Z")


@pytest.fixture(scope="module")
def local(folder):
    return check(folder, "local", "path: log.parquet", "path: labels.parquet")


def test_windows_that_fit_are_those_of_the_local_engine(folder, local):
    found = check(folder, "spark", "path: log.parquet", "path: labels.parquet")
    assert [record.status for record in found] == ["audited", "audited"]
    for one, other in zip(local, found, strict=True):
        assert one.audit == other.audit
        assert one.quarantine == other.quarantine
        assert one.latest_label == other.latest_label
        assert one.model_versions == other.model_versions
        assert one.levels == other.levels


def test_larger_windows_are_audited_on_the_cluster_with_the_same_answer(folder, local):
    tables = ("table: served", "table: outcomes")
    found = check(folder, "spark", *tables, more="large: {rows: 400}\nspark: {partitions: 5}\n")
    for one, other in zip(local, found, strict=True):
        columns = pd.DataFrame(one.audit["candidates"]), pd.DataFrame(other.audit["candidates"])
        pd.testing.assert_frame_equal(*columns, **SAME)
        assert (one.n_predictions, one.n_labelled) == (other.n_predictions, other.n_labelled)
        assert one.latest_label == other.latest_label
        assert one.levels == other.levels
        assert any("of a sample of" in note for note in other.notes)
    # The second window is compared with the first, all rows with all rows.
    mine, theirs = (records[1].change for records in (local, found))
    assert (mine.n_before, mine.n_after) == (theirs.n_before, theirs.n_after)
    sizes = [[item.difference for item in side.largest] for side in (mine, theirs)]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_log_without_ids_draws_by_what_its_rows_hold(spark):
    from huc_spark import SparkSource, SparkTable

    columns = hm.sources.Columns(time="at", probabilities="p_{leaf}", label="y")
    df = spark.sql("SELECT served.*, y FROM served JOIN outcomes USING (id) WHERE y != 'zebra'")
    source = SparkSource(SparkTable(df), tree=TREE, columns=columns, most_rows=100)
    span = source.time_range()
    one, two = (
        source.audit(
            span.first,
            span.last,
            as_of=None,
            utilities=[hm.LevelCorrectness(level=1)],
            subgroups=hm.Subgroups.whole(),
            options=hm.AuditOptions(n_draws=64),
        )
        for _ in range(2)
    )
    np.testing.assert_array_equal(one.radii, two.radii)
    sample = source.labelled(span.first, span.last)
    assert sample.sampled_from > 2_000
    assert abs(sample.n - 100) < 50
    assert source.predictions(span.first, span.last).n < 200


@pytest.mark.slow
def test_the_table_answers_as_a_local_one(spark, folder):
    from huc_spark import SparkTable

    from huc_monitor.sources import DuckTable
    from huc_monitor.sources._table import Lookup, TimeColumn

    there, here = SparkTable(spark.table("served")), DuckTable.files(folder / "log.parquet")
    time = TimeColumn("at")
    span = here.time_range(time)
    assert there.time_range(time) == span
    assert there.count(time, span.first, span.last) == here.count(time, span.first, span.last)
    assert there.advance(time, span.first, 1_000) == here.advance(time, span.first, 1_000)
    assert there.advance(time, span.first, 10_000) is None
    for ids in (["r101", "r105"], []):
        wanted = Lookup("id", np.array(ids, dtype=object), {"p_b": "number"})
        assert len(there.lookup(wanted)) == len(ids)
    untimed = SparkTable(there.df.selectExpr("IF(id = 'r101', NULL, at) AS at", "id", "p_b"))
    assert untimed.time_range(time).n_untimed == 1
    wanted = Lookup("id", np.array(["r101", "r105"]), {"p_b": "number"}, time, span.first)
    assert len(untimed.lookup(wanted)) == 1, "what has no time is known from the beginning"
    with pytest.raises(InvalidInputError, match="got 'sex' of type string"):
        there.count(TimeColumn("sex"), span.first, span.last)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("path: nowhere.parquet", "Spark could not open"),
        ("table: nowhere", "Spark could not open 'nowhere'"),
        ("database: log.parquet, table: x", "must be a `path` or a `table` with"),
        ("path: log.parquet, format: delta", "Spark could not open"),
    ],
)
def test_a_place_that_spark_cannot_open_names_its_line(folder, log, message):
    with pytest.raises(hm.InvalidInputError, match=message) as caught:
        check(folder, "spark", log, "table: outcomes")
    assert "spark.yaml:5" in str(caught.value)


@pytest.mark.parametrize(
    ("log", "more", "message"),
    [
        ("path: log.parquet, preset: sagemaker-capture", "", "`preset: sagemaker-capture` with"),
        ("path: log.jsonl, format: jsonl", "", "`format: jsonl` with `engine: local` only"),
        ("table: served}\n  plan: {path: plan.csv", "", "source.plan` must not be given with"),
        ("table: served", "tree_changes: changes.yaml", "can be given with `engine: local` and"),
    ],
)
def test_what_needs_the_local_engine_is_refused_by_name(folder, log, more, message):
    versions = "versions: [{tree: tree.yaml, until: 2024-01-02, renamed: {left: left}}]"
    (folder / "changes.yaml").write_text(versions)
    with pytest.raises(hm.InvalidInputError, match=message):
        check(folder, "spark", log, "table: outcomes", more)


def test_what_sample_advises_with_spark_is_what_spark_takes(folder, capsys):
    """The plan's probabilities joined to the log, labels of planned rows only."""
    place = "path: log.parquet", "path: labels.parquet"
    check(folder, "spark", *place)
    plan_file, config = folder / "plan.csv", folder / "spark.yaml"
    given = ["--config", str(config), "--out", str(plan_file), "--budget", "300"]
    assert main(["sample", *given, "--window", "2024-01-02"]) == 0
    said = capsys.readouterr().out
    assert "source.plan" not in said
    assert "columns.label_probability: label_probability" in said
    plan = pd.read_csv(plan_file)[["id", "label_probability"]]
    log, labels = (pd.read_parquet(folder / f"{name}.parquet") for name in ("log", "labels"))
    log.merge(plan, how="left", on="id").to_parquet(folder / "planned.parquet")
    labels[labels["id"].isin(plan["id"])].to_parquet(folder / "bought.parquet")
    text = config.read_text().replace("log.parquet", "planned.parquet")
    text = text.replace("labels.parquet", "bought.parquet").replace(
        "model_version: version", "model_version: version, label_probability: label_probability"
    )
    text = text.replace("method: sharp", "method: bootstrap, draws: 200")
    config.write_text(text.replace("state: ", "state: bought-"))
    records = open_monitor(config).check(now="2024-01-04T00:00Z").records
    audited = next(record for record in records if record.status == "audited")
    assert audited.audit["design"]["min_label_probability"] < 1


def test_spark_tables_and_formats_need_the_engine(folder):
    for log, message in (
        ("table: served", "`path`"),
        ("path: a, format: orc", "`engine: spark`"),
    ):
        with pytest.raises(hm.InvalidInputError, match=message):
            check(folder, "local", log, "path: labels.parquet")


def test_the_engine_is_no_part_of_the_identity(folder, local):
    del local  # has written its configuration
    one = load_config(folder / "local.yaml")
    (folder / "other.yaml").write_text((folder / "local.yaml").read_text() + "spark: {}\n")
    text = (folder / "other.yaml").read_text().replace("engine: local", "engine: spark")
    (folder / "other.yaml").write_text(text)
    other = load_config(folder / "other.yaml")
    assert (one.settings.engine, other.settings.engine) == ("local", "spark")
    assert one.identity == other.identity


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    from huc_spark import SparkEngine

    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(hm.MissingExtraError, match=r"pip install 'huc-monitor\[spark\]'"):
        SparkEngine()
