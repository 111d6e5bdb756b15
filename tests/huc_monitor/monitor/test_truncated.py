"""A monitor of a log that keeps the k best classes."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import huc_monitor as hm
from huc_monitor.audit.sparse_rows import SparseRows
from huc_monitor.config.opening import open_monitor

TREE = hm.LabelTree.from_nested({"left": list("abcd"), "right": list("efgh")})


@pytest.fixture
def folder(tmp_path):
    """Four days of top-3 predictions; on the last, labels under "left" are another leaf's."""
    rng = np.random.default_rng(5)
    n = 4 * 600
    p = rng.dirichlet(np.full(8, 0.4), n)
    y = np.array([rng.choice(8, p=row) for row in p])
    last = (np.arange(n) >= 3 * 600) & (y < 4)
    y[last] = (y[last] + 1) % 4
    best = np.argsort(-p, axis=1)[:, :3]
    pairs = [
        [{"class": TREE.leaves[j], "score": float(row[j])} for j in mine]
        for row, mine in zip(p, best, strict=True)
    ]
    table = {
        "id": pa.array(range(n)),
        "at": pa.array(pd.date_range("2024-01-01", periods=n, freq="144s", tz="UTC")),
        "y": pa.array([TREE.leaves[k] for k in y]),
        "s": pa.array(pairs),
    }
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    (tmp_path / "tree.json").write_text(json.dumps(TREE.to_dict()))
    return tmp_path


def write(folder, **changes):
    document = {
        "version": 1,
        "model": "m",
        "tree": "tree.json",
        "source": {"log": {"path": "log.parquet"}},
        "columns": {
            "time": "at",
            "id": "id",
            "label": "y",
            "probabilities": {"pairs": "s", "rest": "reference"},
        },
        "utilities": [{"type": "LevelCorrectness", "level": 2}],
        "windows": {"length": "1d"},
        "reference": {"start": "2024-01-01", "end": "2024-01-02"},
        "tolerance": 0.05,
        "tracker": {"name": "files"},
        "state": "huc-state",
        "alerts": {"channels": []},
    }
    (folder / "huc.yaml").write_text(yaml.safe_dump({**document, **changes}))
    return folder / "huc.yaml"


def test_a_monitor_of_the_best_classes_alerts_and_says_how_much_was_not_logged(folder):
    monitor = open_monitor(write(folder))
    source = monitor.source
    found = monitor.check(now=pd.Timestamp("2024-01-06", tz="UTC").to_pydatetime())
    record = found.records[-1]
    rows = source.labelled(record.start, record.end)
    assert isinstance(rows.probabilities, SparseRows)
    assert record.audit["unlogged"] == pytest.approx(float(rows.probabilities.unlogged.mean()))
    assert any("of the predicted mass was not logged" in note for note in record.notes)
    hints = [hint for step in record.transitions for hint in step.hints]
    assert any("of the predicted mass was not logged" in hint for hint in hints)


def test_the_rule_goes_by_the_reference_window_and_needs_one(folder):
    from huc_monitor.config import load_config

    source = load_config(write(folder)).open_source()
    shares = source.reader().rest.shares
    assert shares.sum() == pytest.approx(1.0)
    assert shares.min() > 0
    assert shares.std() > 1e-4
    config = load_config(write(folder, reference=None))
    with pytest.raises(hm.InvalidInputError, match="there is no `reference` window"):
        config.open_source()


def test_a_row_that_was_written_twice_counts_once(folder):
    table = pq.read_table(folder / "log.parquet")
    pq.write_table(pa.concat_tables([table, table.slice(0, 10)]), folder / "log.parquet")
    from huc_monitor.config import load_config

    source = load_config(write(folder)).open_source()
    extent = source.time_range()
    data = source.labelled(extent.first, pd.Timestamp("2024-01-02", tz="UTC").to_pydatetime())
    assert data.n_duplicate_ids == 10
    assert data.n == 600
