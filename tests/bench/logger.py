"""What logging a prediction adds to a request, and what killed processes leave behind.

Eight threads in each of four processes log 100,000 predictions in all, while processes are killed
and started again. Every row's id says who wrote it, so that lost and repeated rows can be counted.
Prints one JSON line per answer.

Run: python tests/bench/logger.py [--rows 100000] [--kills 6] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from huc_monitor.sources.prediction_log import PredictionLogger

N_CLASSES, N_THREADS, N_PROCESSES, FLUSH = 50, 8, 4, 0.5
CLASSES = [f"c{k}" for k in range(N_CLASSES)]


def latency(n: int, top_k: int | None) -> dict[str, object]:
    """Time `log` in a request that does a little work of its own, one thread."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.ones(N_CLASSES), 100)
    taken = np.empty(n)
    with (
        tempfile.TemporaryDirectory() as folder,
        PredictionLogger(folder, classes=CLASSES, top_k=top_k, max_rows=1_000_000) as logger,
    ):
        for i in range(n):
            row = rows[i % 100]
            row.sum()
            start = time.perf_counter()
            logger.log(row)
            taken[i] = time.perf_counter() - start
    micro = np.quantile(taken, [0.5, 0.99]) * 1e6
    return {
        "what": "latency",
        "top_k": top_k,
        "median_us": round(float(micro[0]), 2),
        "p99_us": round(float(micro[1]), 2),
    }


def worker(folder: str, name: str, first: int, last: int) -> None:
    """Log rows first..last-1 from eight threads, and write down how many each queued."""
    logger = PredictionLogger(folder, classes=CLASSES, flush_seconds=FLUSH, top_k=5)
    row = np.full(N_CLASSES, 1 / N_CLASSES)
    progress = Path(folder).parent / f"{name}.progress"

    def run(thread: int) -> None:
        for i in range(first + thread, last, N_THREADS):
            logger.log(row, id=f"{name}/{i}")
            if i % 40 == thread:
                time.sleep(0.004)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(N_THREADS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        # Renamed, so that a kill leaves a whole file.
        fresh = progress.with_suffix(".new")
        fresh.write_text(json.dumps([logger.stats.n_written, logger.stats.n_queued]))
        fresh.rename(progress)
        time.sleep(0.02)
    logger.close()
    progress.write_text(json.dumps([logger.stats.n_written, 0]))


def storm(n_rows: int, kills: int, seed: int) -> dict[str, object]:
    """Run four processes, kill some, start others in their place; then read everything."""
    rng = np.random.default_rng(seed)
    asked: dict[str, int] = {}
    dead: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "log"
        running: dict[str, subprocess.Popen[bytes]] = {}

        def begin(name: str, n: int) -> None:
            asked[name] = n
            command = [sys.executable, __file__, "--worker", str(folder), name, "0", str(n)]
            running[name] = subprocess.Popen(command)

        for k in range(N_PROCESSES):
            begin(f"w{k}", n_rows // N_PROCESSES)
        while running:
            time.sleep(rng.uniform(1.0, 2.0))
            running = {name: p for name, p in running.items() if p.poll() is None}
            busy = [name for name in running if (Path(place) / f"{name}.progress").exists()]
            if len(dead) < kills and busy:
                name = str(rng.choice(busy))
                process = running.pop(name)
                process.send_signal(signal.SIGKILL)
                process.wait()
                written, queued = json.loads((Path(place) / f"{name}.progress").read_text())
                dead[name] = written, queued
                begin(f"{name}k", max(1_000, asked[name] - written - queued))
        files = sorted(folder.rglob("*.parquet"))
        found: Counter[str] = Counter()
        ids: set[str] = set()
        for file in files:
            mine = pq.read_table(file)["id"].to_pylist()
            found.update(name.split("/")[0] for name in mine)
            ids.update(mine)
        lost = {name: max(0, sum(dead[name]) - found[name]) for name in dead}
        return {
            "what": "storm",
            "processes": len(asked),
            "killed": len(dead),
            "files_all_readable": len(files),
            "rows_read": sum(found.values()),
            "repeated": sum(found.values()) - len(ids),
            "lost_by_survivors": sum(asked[n] - found[n] for n in asked if n not in dead),
            "lost_by_killed": list(lost.values()),
            "queued_when_killed": [queued for _, queued in dead.values()],
            "temporary_left": len(list(folder.rglob("*.tmp"))),
        }


def main() -> None:
    """Print latency and what a storm of kills leaves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worker", nargs=4)
    given = parser.parse_args()
    if given.worker:
        folder, name, first, last = given.worker
        worker(folder, name, int(first), int(last))
        return
    for top_k in (None, 5):
        print(json.dumps(latency(20_000, top_k)))
    print(json.dumps(storm(given.rows, given.kills, given.seed) | {"cores": os.cpu_count()}))


if __name__ == "__main__":
    main()
