"""A cluster of two workers, and the loss of one."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from support import spark_cases as cases
from support import spark_sessions as sessions

pytestmark = pytest.mark.slow


def test_two_hundred_windows_come_out_as_in_memory_on_two_workers(tmp_path):
    told = sessions.run_alone(__file__, str(tmp_path), "keep")
    assert told == {"same": cases.N_WINDOWS, "killed": False, "executors": 2}


def test_an_executor_that_dies_at_work_changes_nothing(tmp_path):
    told = sessions.run_alone(__file__, str(tmp_path), "kill")
    assert told["same"] == 2
    assert told["killed"]
    # It was working when it died; it is replaced, if the audits last so long.
    assert told["executors"] in {2, 3}


def main(folder: Path, *, kill: bool) -> None:
    """Audit on two workers; if told to, kill an executor while it works on the audit."""
    spark = sessions.start("local-cluster[2,1,1024]", folder, **sessions.SMALL_QUERIES)
    hunter = Hunter(spark)
    if not kill:
        same = cases.n_same(spark)
    else:
        # Sharp bounds, and a bootstrap with row weights.
        windows = [cases.window(seed, n=3_000) for seed in (2, 3)]
        frames = [rows.on(spark, 4) for rows in windows]
        for rows, df in zip(windows, frames, strict=True):
            rows.spark(df, n_partitions=16)  # compiled code is loaded from here on
        hunter.start()
        same = 0
        for rows, df in zip(windows, frames, strict=True):
            cases.assert_same(rows.spark(df, n_partitions=16), rows.local())
            same += 1
    hunter.over.set()
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(False)  # noqa: FBT003
    seen = {executors.apply(i).id() for i in range(executors.length())} - {"driver"}
    sessions.stop(spark)
    print(json.dumps({"same": same, "killed": hunter.killed, "executors": len(seen)}))


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
