"""Kill checks at random moments, run them again, and compare with one that nobody killed.

Run as a script, ``killing.py CONFIG N SEED NOW...``: prints one JSON document. Libraries are loaded
once; every check runs in a forked process of its own, so that a kill hits the check and not the
start of Python. Threads do not survive a fork, hence one thread in the parent, and DuckDB is
imported there, but not used.
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

os.environ["HUC_NUM_THREADS"] = "1"

import duckdb  # noqa: F401 - so that no check has to import it

from huc_monitor.config import load_config
from huc_monitor.config.opening import open_monitor
from support.production_log import after, make_log
from support.watched import make, revisited


def warm_up(config: str) -> None:
    """Load libraries and compiled kernels before the first fork, by a check of other rows."""
    log, labels = make_log(4, 200, broken_from=2)
    make(log, labels, windows=revisited("4d")).check(after(6))
    load_config(config)
    assert threading.active_count() == 1
    gc.freeze()


def start_checks(config: str, times: list[str], *, after: int | None = None) -> int:
    """Fork a process that checks; with `after`, once something can be read from that pipe."""
    child = os.fork()
    if child:
        return child
    try:
        if after is not None:
            os.read(after, 1)
        for now in times:
            open_monitor(config).check(now, wait=30)
    except BaseException as error:  # noqa: BLE001 - the parent only sees the exit code
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def finish(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def outcome(state_folder: Path) -> dict[str, object]:
    """Everything that was written, by file, without the seconds that things took."""
    found: dict[str, object] = {}
    for path in sorted(state_folder.rglob("*")):
        if path.is_file() and path.name != "lock":
            if path.suffix == ".rows":  # kept rows of windows: numbers, not text
                found[str(path.relative_to(state_folder))] = path.read_bytes().hex()
                continue
            content = json.loads(path.read_text("utf-8"))
            content.pop("timings", None)
            found[str(path.relative_to(state_folder))] = content
    return found


def count_records(state_folder: Path) -> int:
    return len(list(state_folder.rglob("records/*.json")))


def wait_for_records(state_folder: Path, n: int, child: int) -> None:
    while count_records(state_folder) < n:
        # WNOWAIT leaves the ended child to be waited for.
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.002)


def main(config: str, n_kills: int, seed: int, times: list[str]) -> dict[str, object]:
    rng = random.Random(seed)  # noqa: S311 - not a secret
    state_folder = Path(config).parent / "huc-state"
    warm_up(config)
    seconds = []
    for _ in range(2):  # the first one also reads the files into memory
        shutil.rmtree(state_folder, ignore_errors=True)
        started = time.monotonic()
        assert finish(start_checks(config, times)) == 0
        seconds.append(time.monotonic() - started)
    expected = outcome(state_folder)
    n_records = sum(name.count("records/") for name in expected)
    killed = wrong = n_runs = 0
    left_at = []
    while killed < n_kills:
        n_runs += 1
        assert n_runs <= 5 * n_kills + 10, "checks finish before they can be killed"
        shutil.rmtree(state_folder, ignore_errors=True)
        child = start_checks(config, times)
        # By progress, not by the clock: on a busy machine seconds would put most kills at one end.
        wait_for_records(state_folder, rng.randint(0, n_records - 1), child)
        time.sleep(rng.uniform(0, 1.5 * seconds[-1] / n_records))
        os.kill(child, signal.SIGKILL)
        if finish(child) != -signal.SIGKILL:
            continue  # it was faster this time, and nothing was killed
        killed += 1
        left_at.append(count_records(state_folder))
        assert finish(start_checks(config, times)) == 0
        wrong += outcome(state_folder) != expected
    return {
        "runs": n_runs,
        "killed": killed,
        "wrong": wrong,
        "records": n_records,
        "records_when_killed": sorted(left_at),
        "seconds_uninterrupted": round(seconds[1], 2),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])))
