"""JSON lines, Delta and Iceberg tables, and the payload logs of platforms, from real files."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import UTC, datetime, timedelta

import deltalake
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import huc_monitor as hm
from huc_monitor.cli import app
from huc_monitor.errors import InvalidInputError
from huc_monitor.sources import Columns, DuckTable, LabelTable, TableSource

START, END = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
TREE = hm.LabelTree.from_nested({"a": ["a1", "a2"], "b": None})
P = np.random.default_rng(0).dirichlet(np.ones(3), 40).round(6)
P[:, 2] = 1 - P[:, 0] - P[:, 1]
Y = np.array(TREE.leaves, dtype=object)[np.arange(40) % 3]


def time_of(i):
    return START + timedelta(minutes=10 * i)


def flat_rows():
    return [
        {"at": time_of(i).isoformat(), "id": f"r{i}", "y": Y[i], "p_a1": P[i, 0]}
        | {"p_a2": P[i, 1], "p_b": P[i, 2]}
        for i in range(40)
    ]


def read_flat(table):
    columns = Columns(time="at", id="id", label="y", probabilities="p_{leaf}")
    return TableSource(table, tree=TREE, columns=columns).labelled(START, END)


def check_flat(table):
    window = read_flat(table)
    np.testing.assert_array_equal(window.probabilities, P)
    assert np.array(TREE.leaves, dtype=object)[window.labels].tolist() == Y.tolist()


@pytest.mark.parametrize("name", ["log.jsonl", "log.ndjson", "log.json", "log.jsonl.gz"])
def test_json_lines_are_read_plain_and_zipped(tmp_path, name):
    text = "".join(json.dumps(row) + "\n" for row in flat_rows())
    file = tmp_path / name
    if name.endswith("gz"):
        file.write_bytes(gzip.compress(text.encode()))
    else:
        file.write_text(text)
    check_flat(DuckTable.files(file))
    if name != "log.ndjson":
        check_flat(DuckTable.files(tmp_path))


def test_a_label_in_json_stays_the_text_it_is(tmp_path):
    tree = hm.LabelTree.flat(["01", "1a"])
    rows = [{"at": time_of(i).isoformat(), "y": "01", "01": 0.5, "1a": 0.5} for i in range(3)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source = TableSource(
        DuckTable.files(tmp_path / "log.jsonl"), tree=tree, columns=Columns(time="at", label="y")
    )
    assert source.labelled(START, END).labels.tolist() == [0, 0, 0]


def flat_frame():
    frame = pd.DataFrame(flat_rows())
    frame["at"] = pd.to_datetime(frame["at"])
    frame["half"] = np.where(np.arange(40) < 20, "first one", "second")
    return frame


def test_a_delta_table_is_its_present_version(tmp_path):
    frame = flat_frame()
    wrong = frame.assign(id=[f"w{i}" for i in range(40)])
    place = tmp_path / "table"
    deltalake.write_deltalake(place, pa.Table.from_pandas(wrong), partition_by=["half"])
    deltalake.DeltaTable(place).delete("id LIKE 'w%'")
    deltalake.write_deltalake(
        place, pa.Table.from_pandas(frame[:25]), mode="append", partition_by=["half"]
    )
    table = DuckTable.files(place)
    assert table.name.startswith("the Delta log")
    assert len(read_flat(table).ids) == 25
    # A table that grows is seen to, without opening it again.
    rest = pa.Table.from_pandas(frame[25:], preserve_index=False)
    deltalake.write_deltalake(
        place, rest, mode="append", partition_by=["half"], schema_mode="merge"
    )
    check_flat(table)
    assert table.columns()["half"] == "VARCHAR"


def test_a_delta_table_with_renamed_columns_is_refused(tmp_path):
    config = {"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2"}
    log = tmp_path / "_delta_log"
    log.mkdir()
    mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    field = {"name": "a", "type": "long", "nullable": True, "metadata": mapped}
    schema = json.dumps({"type": "struct", "fields": [field]})
    actions = [
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {
            "metaData": {
                "id": "00000000-0000-0000-0000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema,
                "partitionColumns": [],
                "configuration": config,
            }
        },
    ]
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(InvalidInputError, match=r"uses columnMapping\. Rewrite it"):
        DuckTable.files(tmp_path).columns()


def iceberg_table(tmp_path):
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("ns")
    data = pa.Table.from_pandas(flat_frame(), preserve_index=False)
    data = data.cast(pa.schema([f.with_type(_plain(f.type)) for f in data.schema]))
    table = catalog.create_table("ns.log", schema=data.schema)
    return table, data, tmp_path / "w" / "ns" / "log"


def _plain(kind):
    return pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(kind) else kind


@pytest.mark.seconds
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_iceberg_table_is_its_present_version(tmp_path):
    table, data, place = iceberg_table(tmp_path)
    table.append(data)
    table.append(data)
    table.overwrite(data)
    found = DuckTable.files(place)
    assert found.name.startswith("the Iceberg log")
    check_flat(found)
    with table.update_schema() as update:
        update.rename_column("half", "part")
    with pytest.raises(InvalidInputError, match="uses renamed columns"):
        DuckTable.files(place).columns()


def capture(i, *, encoding="JSON", inference_id=True):
    """Make one line as SageMaker's data capture writes it."""
    answer = json.dumps({"probabilities": P[i].tolist(), "labels": list(TREE.leaves)})
    asked = json.dumps({"age": 30 + i, "site": "x"})
    if encoding == "BASE64":
        answer = base64.b64encode(answer.encode()).decode()
    return {
        "captureData": {
            "endpointInput": {
                "observedContentType": "application/json",
                "mode": "INPUT",
                "data": asked,
                "encoding": "JSON",
            },
            "endpointOutput": {
                "observedContentType": "application/json",
                "mode": "OUTPUT",
                "data": answer,
                "encoding": encoding,
            },
        },
        "eventMetadata": {
            "eventId": f"e{i}",
            "inferenceTime": time_of(i).strftime("%Y-%m-%dT%H:%M:%SZ"),
            **({"inferenceId": f"r{i}"} if inference_id else {}),
        },
        "eventVersion": "0",
    }


def labels_table(tmp_path, ids):
    pd.DataFrame({"id": ids, "label": Y[: len(ids)]}).to_parquet(tmp_path / "labels.parquet")
    return LabelTable(table=DuckTable.files(tmp_path / "labels.parquet"), id="id", label="label")


def read_lists(tmp_path, table, ids, **columns):
    source = TableSource(
        table,
        tree=TREE,
        columns=Columns(time="time", id="id", list_column="probabilities", **columns),
        labels=labels_table(tmp_path, ids),
    )
    return source.labelled(START, END)


@pytest.mark.parametrize("encoding", ["JSON", "BASE64"])
@pytest.mark.parametrize("inference_id", [True, False])
def test_sagemakers_capture_is_unpacked_and_joined_by_its_id(tmp_path, encoding, inference_id):
    folder = tmp_path / "capture" / "2024" / "01" / "01" / "00"
    folder.mkdir(parents=True)
    lines = [capture(i, encoding=encoding, inference_id=inference_id) for i in range(40)]
    for part in range(2):
        text = "".join(json.dumps(line) + "\n" for line in lines[part::2])
        (folder / f"{part}.jsonl").write_text(text)
    assert DuckTable.files(tmp_path / "capture").find_preset() == "sagemaker-capture"
    table = DuckTable.files(tmp_path / "capture", preset="sagemaker-capture")
    assert set(table.columns()) == {"id", "time", "age", "site", "probabilities", "labels"}
    ids = [f"{'r' if inference_id else 'e'}{i}" for i in range(40)]
    window = read_lists(tmp_path, table, ids, features=["age", "site"])
    np.testing.assert_allclose(window.probabilities, P, atol=1e-12)
    assert window.features["age"].tolist() == list(range(30, 70))
    assert np.array(TREE.leaves, dtype=object)[window.labels].tolist() == Y.tolist()


def test_a_capture_of_csv_and_damaged_payloads_is_read_as_far_as_it_goes(tmp_path):
    lines = [capture(i) for i in range(40)]
    for i, line in enumerate(lines):
        out = line["captureData"]["endpointOutput"]
        out["encoding"], out["data"] = "CSV", ",".join(map(str, P[i]))
    lines[3]["captureData"]["endpointOutput"]["data"] = "Internal error"
    lines[7]["captureData"]["endpointOutput"] = {"data": "%%%", "encoding": "BASE64"}
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    table = DuckTable.files(tmp_path / "log.jsonl", preset="sagemaker-capture")
    source = TableSource(
        table,
        tree=TREE,
        columns=Columns(time="time", id="id", list_column="probabilities"),
        labels=labels_table(tmp_path, [f"r{i}" for i in range(40)]),
        max_bad_share=0.1,
    )
    window = source.labelled(START, END)
    assert (window.n, dict(window.bad_reasons)) == (38, {"bad probabilities": 2})


def test_databricks_inference_tables_are_unpacked_from_delta(tmp_path):
    rows = []
    for first in range(0, 40, 2):
        several = first < 20
        some = [first, first + 1] if several else [first]
        rows.append(
            {
                "databricks_request_id": f"q{first}",
                "client_request_id": None,
                "date": START.date(),
                "timestamp_ms": int(time_of(first).timestamp() * 1000),
                "status_code": 200,
                "execution_time_ms": 3,
                "request": json.dumps(
                    {"dataframe_split": {"columns": ["age"], "data": [[30 + i] for i in some]}}
                ),
                "response": json.dumps({"predictions": [P[i].tolist() for i in some]}),
                "request_metadata": {"model_name": "m", "model_version": "7"},
            }
        )
    rows.append({**rows[0], "databricks_request_id": "bad", "status_code": 500, "response": "no"})
    kind = pa.map_(pa.string(), pa.string())
    data = pa.table(
        {
            name: pa.array(
                [list(r[name].items()) if isinstance(r[name], dict) else r[name] for r in rows],
                kind if name == "request_metadata" else None,
            )
            for name in rows[0]
            if name != "client_request_id"
        }
    )
    deltalake.write_deltalake(tmp_path / "table", data, partition_by=["date"])
    plain = DuckTable.files(tmp_path / "table")
    assert plain.find_preset() == "databricks-inference"
    table = DuckTable.files(tmp_path / "table", preset="databricks-inference")
    ids = [f"q{i // 2 * 2}/{i % 2}" for i in range(20)] + [f"q{i}" for i in range(20, 40, 2)]
    columns = {"features": ["age"], "model_version": "model_version"}
    window = read_lists(tmp_path, table, ids, **columns)
    expected = [*range(20), *range(20, 40, 2)]
    order = [ids.index(name) for name in window.ids]
    np.testing.assert_allclose(window.probabilities, P[np.array(expected)[order]], atol=1e-12)
    assert window.versions == {"7": 30}
    assert window.features["age"].tolist() == [30 + expected[k] for k in order]


def test_one_number_per_class_becomes_one_column_per_class(tmp_path):
    rows = pd.DataFrame(
        {
            "databricks_request_id": [f"r{i}" for i in range(40)],
            "request_time": [time_of(i) for i in range(40)],
            "served_entity_id": "e",
            "request": [json.dumps({"inputs": [{"age": i}]}) for i in range(40)],
            "response": [
                json.dumps({"predictions": [dict(zip(TREE.leaves, p.tolist(), strict=True))]})
                for p in P
            ],
        }
    )
    rows.to_parquet(tmp_path / "log.parquet")
    table = DuckTable.files(tmp_path / "log.parquet", preset="databricks-inference")
    source = TableSource(
        table,
        tree=TREE,
        columns=Columns(time="time", id="id"),
        labels=labels_table(tmp_path, [f"r{i}" for i in range(40)]),
    )
    np.testing.assert_allclose(source.labelled(START, END).probabilities, P, atol=1e-12)


def test_a_preset_that_does_not_fit_is_refused(tmp_path):
    flat_frame().to_parquet(tmp_path / "log.parquet")
    with pytest.raises(InvalidInputError, match="needs the columns captureData, eventMetadata"):
        DuckTable.files(tmp_path / "log.parquet", preset="sagemaker-capture")


def test_hostile_names_in_payloads_stay_names(tmp_path):
    lines = [capture(i) for i in range(40)]
    for line in lines:
        asked = {"it's; DROP TABLE x--": 1, 'a"b': 2}
        line["captureData"]["endpointInput"]["data"] = json.dumps(asked)
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    table = DuckTable.files(tmp_path / "log.jsonl", preset="sagemaker-capture")
    assert {"it's; DROP TABLE x--", 'a"b'} <= set(table.columns())
    assert read_lists(tmp_path, table, [f"r{i}" for i in range(40)]).n == 40


@pytest.mark.seconds
def test_init_recognises_a_capture_and_check_reads_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tree.yaml").write_text("a: [a1, a2]\nb:\n")
    lines = [capture(i) for i in range(40)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    labels_table(tmp_path, [f"r{i}" for i in range(40)])
    runner = CliRunner()
    options = ["--labels", "labels.parquet", "--tree", "tree.yaml"]
    with pytest.warns(hm.HUCWarning, match="about 40 labels, too few for an audit"):
        made = runner.invoke(app, ["init", "log.jsonl", *options])
    assert made.exit_code == 0, made.output
    assert "preset: sagemaker-capture" in (tmp_path / "huc.yaml").read_text()
    checked = runner.invoke(app, ["check"])
    assert checked.exit_code == 0, checked.output
