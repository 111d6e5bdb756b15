"""The prediction logger: what it writes, and what it never does to a request."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import huc_monitor as hm
from huc_monitor.cli import app

CLASSES = ["a", "b", "c"]
DAY = 86_400_000_000_000


def rows_of(folder):
    return pq.read_table(folder).to_pandas()


def test_rows_are_in_the_folder_of_their_day_with_id_time_features_and_version(tmp_path):
    kinds = {"age": float, "site": str, "old": bool, "n": int}
    given = {"age": 61, "site": "x", "old": True, "n": 2.5}
    with hm.PredictionLogger(
        tmp_path, classes=CLASSES, features=kinds, model_version="3"
    ) as logger:
        logger.log([0.5, 0.3, 0.2], id=7, features=given, time_ns=20_000 * DAY)
        key = logger.log(np.array([0.1, 0.2, 0.7]), time_ns=20_001 * DAY + 5_000, model_version="4")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["day=2024-10-04", "day=2024-10-05"]
    frame = rows_of(tmp_path).sort_values("time").reset_index(drop=True)
    assert frame["id"].tolist() == ["7", key]
    assert frame[["p_a", "p_b", "p_c"]].to_numpy().tolist() == [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]
    assert frame["model_version"].tolist() == ["3", "4"]
    assert frame["time"][1] == pd.Timestamp("2024-10-05T00:00:00.000005Z")
    assert frame.loc[0, ["age", "site", "old"]].tolist() == [61.0, "x", True]
    # What is not of its type is missing, and so is what was not given.
    assert frame["n"].isna().all()
    assert frame.loc[1, ["age", "site", "old"]].isna().all()


def test_the_k_likeliest_classes_are_kept_in_order(tmp_path):
    with hm.PredictionLogger(tmp_path, classes=CLASSES, top_k=2) as logger:
        logger.log([0.2, 0.5, 0.3])
    (row,) = rows_of(tmp_path).to_dict("records")
    assert (list(row["top_classes"]), list(row["top_scores"])) == (["b", "c"], [0.5, 0.3])


def test_a_full_queue_drops_new_rows_counts_them_and_says_so(tmp_path, caplog):
    with (
        caplog.at_level(logging.WARNING),
        hm.PredictionLogger(tmp_path, classes=CLASSES, max_rows=10, flush_seconds=60) as logger,
    ):
        for _ in range(15):
            logger.log([1, 0, 0])
        assert (logger.stats.n_queued, logger.stats.n_dropped) == (10, 5)
    assert "1 rows dropped by a full queue of 10" in caplog.text
    assert len(rows_of(tmp_path)) == 10


@pytest.mark.parametrize("bad", [[0.5, 0.5], "text", None, [["x"]], object()])
def test_nothing_in_a_request_raises(tmp_path, caplog, bad):
    with hm.PredictionLogger(tmp_path, classes=CLASSES) as logger:
        logger.log(bad)
        logger.log([1, 0, 0], features=bad if bad is not None else 3)
        assert logger.stats.n_unusable == 2
    assert "rows unusable; last error" in caplog.text


def test_rows_wait_while_the_disk_refuses_them(tmp_path, caplog):
    folder = tmp_path / "log"
    logger = hm.PredictionLogger(folder, classes=CLASSES, flush_seconds=60)
    folder.rmdir()
    folder.write_text("in the way")
    logger.log([1, 0, 0])
    assert not logger.flush()
    assert logger.stats.n_queued == 1
    folder.unlink()
    assert logger.flush()
    logger.close()
    assert len(rows_of(folder)) == 1
    assert "last error: " in caplog.text


def test_threads_lose_and_repeat_nothing(tmp_path):
    def run(logger, k):
        for i in range(500):
            logger.log([0.2, 0.3, 0.5], id=f"{k}-{i}")

    with hm.PredictionLogger(tmp_path, classes=CLASSES, flush_rows=300) as logger:
        threads = [threading.Thread(target=run, args=(logger, k)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ids = rows_of(tmp_path)["id"]
    assert len(ids) == ids.nunique() == 4_000
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_writes_its_own_rows_once(tmp_path):
    logger = hm.PredictionLogger(tmp_path, classes=CLASSES, flush_seconds=60)
    logger.log([1, 0, 0], id="parent")
    child = os.fork()
    if child == 0:
        logger.log([0, 1, 0], id="child")
        logger.close()
        os._exit(0)
    os.waitpid(child, 0)
    logger.close()
    assert sorted(rows_of(tmp_path)["id"]) == ["child", "parent"]


_WRITE_FOREVER = """
import sys, huc_monitor as hm
logger = hm.PredictionLogger(sys.argv[1], classes=["a", "b"], flush_seconds=0.05)
i = 0
while True:
    logger.log([0.5, 0.5], id=i)
    i += 1
    if i % 200 == 0:
        print(logger.stats.n_written, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_process_leaves_whole_files(tmp_path):
    command = [sys.executable, "-c", _WRITE_FOREVER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        written = 0
        while written < 1_000:
            written = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    ids = rows_of(tmp_path)["id"].astype(int)
    assert len(ids) >= written
    # In the order of logging, what is there has no gap: only the newest rows are lost.
    assert sorted(ids) == list(range(len(ids)))


def test_rows_are_written_at_exit(tmp_path):
    code = (
        "import sys, huc_monitor as hm\n"
        "hm.PredictionLogger(sys.argv[1], classes=['a', 'b'], flush_seconds=60).log([1, 0])"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert len(rows_of(tmp_path)) == 1


def test_the_thread_writes_without_being_asked(tmp_path):
    logger = hm.PredictionLogger(tmp_path, classes=CLASSES, flush_seconds=0.05)
    logger.log([1, 0, 0])
    limit = time.monotonic() + 10
    while not list(tmp_path.rglob("*.parquet")) and time.monotonic() < limit:
        time.sleep(0.02)
    assert logger.stats.n_written == 1
    logger.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ["a"]}, "`classes` must be at least two distinct names"),
        ({"classes": ["a", "a"]}, "two distinct names"),
        ({"top_k": 4}, "`top_k` must be from 1 to 3; got 4"),
        ({"features": {"age": list}}, "float, int, bool or str; got <class 'list'> for 'age'"),
        ({"features": {"p_a": float}}, "must not be called 'p_a'"),
        ({"flush_seconds": 0}, "must be positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        hm.PredictionLogger(tmp_path, **{"classes": CLASSES, **options})


@pytest.mark.parametrize("top_k", [None, 2])
def test_init_and_check_read_the_folder_as_it_stands(tmp_path, monkeypatch, top_k):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    start = pd.Timestamp("2026-03-01T00:00Z").value
    labels = []
    with hm.PredictionLogger("log", classes=CLASSES, top_k=top_k, model_version="1") as logger:
        for i in range(900):
            p = rng.dirichlet(np.ones(3))
            key = logger.log(p, time_ns=start + i * DAY // 300)
            labels.append((key, CLASSES[rng.choice(3, p=p)]))
    pd.DataFrame(labels, columns=["id", "label"]).to_parquet("labels.parquet")
    (tmp_path / "tree.yaml").write_text("ab: [a, b]\nc:\n")
    runner = CliRunner()
    made = runner.invoke(app, ["init", "log", "--labels", "labels.parquet", "--tree", "tree.yaml"])
    assert made.exit_code == 0, made.output
    checked = runner.invoke(app, ["check"])
    assert checked.exit_code == 0, checked.output
    assert any(record.audit is not None for record in hm.open_monitor("huc.yaml").records())
