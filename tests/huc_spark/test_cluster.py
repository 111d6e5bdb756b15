"""Two hundred windows on `local[2]`, then a cluster of two workers, and the loss of one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cases
import numpy as np
import pytest

pytestmark = pytest.mark.slow

N_WINDOWS = 200


def audited(spark, seed):
    """One window with ties, in half of the cases skewed, cut into 1 to 64 runs."""
    rng = np.random.default_rng(10_000 + seed)
    rows = cases.window(seed, skewed=seed % 2 == 0)
    df = rows.on(spark, int(rng.integers(1, 4)))
    return rows, rows.spark(df, n_partitions=int(rng.integers(1, 65)))


def test_two_hundred_windows_come_out_as_in_memory(spark):
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda seed: audited(spark, seed), range(N_WINDOWS))
        for rows, result in found:
            cases.assert_same(result, rows.local())


@pytest.mark.parametrize("killed", [False, True])
def test_a_cluster_of_two_workers_gives_the_local_answer_even_if_it_loses_one(tmp_path, killed):
    # In a process of its own: a process has one Spark, and this one has another.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, str(tmp_path), "kill" if killed else "keep"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["same"] == told["windows"] > 0
    # One that was killed was working when it died; it is replaced, if the audits last so long.
    assert told["executors"] in ({2, 3} if killed else {2})
    assert told["killed"] is killed


def main(folder: Path, *, kill: bool) -> None:
    """Audit on a cluster; if told to, kill an executor while it works on the audit."""
    import sessions

    spark = sessions.start("local-cluster[2,1,1024]", folder)
    # Sharp bounds and a bootstrap with row weights, then skewed scores, in 1 to 64 runs.
    windows = [cases.window(seed, n=3_000, skewed=seed > 3) for seed in (2, 3, 10, 5)]
    runs = (16, 16, 1, 64)
    audits = [(rows, rows.on(spark, 4), n) for rows, n in zip(windows, runs, strict=True)]
    audits = audits[: 2 if kill else 4]
    for rows, df, n in audits[:2]:
        rows.spark(df, n_partitions=n)  # compiled code is loaded from here on
    hunter = Hunter(spark)
    if kill:
        hunter.start()
    same = 0
    for rows, df, n in audits:
        cases.assert_same(rows.spark(df, n_partitions=n), rows.local())
        same += 1
    hunter.over.set()
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(False)  # noqa: FBT003
    seen = {executors.apply(i).id() for i in range(executors.length())} - {"driver"}
    sessions.stop(spark)
    told = {"same": same, "windows": len(audits), "killed": hunter.killed}
    print(json.dumps({**told, "executors": len(seen)}))


class Hunter(threading.Thread):
    """Kills one executor once a stage with a shuffle is running."""

    def __init__(self, spark) -> None:
        super().__init__(daemon=True)
        self.tracker = spark.sparkContext.statusTracker()
        self.over, self.killed = threading.Event(), False

    def run(self) -> None:
        while not self.over.is_set() and not self.killed:
            stages = map(self.tracker.getStageInfo, self.tracker.getActiveStageIds())
            if any(stage and stage.numCompletedTasks and stage.numActiveTasks for stage in stages):
                os.kill(executors_of(os.getpid())[0], signal.SIGKILL)
                self.killed = True
            time.sleep(0.01)


def executors_of(pid: int) -> list[int]:
    """Java processes below this one that run an executor."""
    parents, found = {}, []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
                )
                if b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue

    def ours(process: int) -> bool:
        while process > 1:
            if process == pid:
                return True
            process = parents.get(process, 0)
        return False

    return sorted(filter(ours, found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), kill=sys.argv[2] == "kill")
