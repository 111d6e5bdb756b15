"""What the first audit of a new environment costs: kernels compile before anything is computed.

Runs `huc-monitor audit` on 10,000 rows twice with an empty kernel cache of its own: the first run
compiles, the second does not. Prints one JSON line with seconds of the clock and of the processor,
and their ratio.

Run: python tests/bench/cold_start.py [--rows 10000]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

TREE = {
    "a": {"a1": ["x1", "x2"], "a2": ["x3", "x4"]},
    "b": {"b1": ["x5", "x6"], "b2": ["x7", "x8"]},
}
LEAVES = [f"x{k}" for k in range(1, 9)]


def write_log(folder: Path, n: int) -> list[str]:
    """Write a tree and a calibrated log; return the command that audits it."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(8), n)
    log = pd.DataFrame(p, columns=LEAVES)
    log["y"] = np.array(LEAVES)[(p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)]
    log["sex"] = rng.choice(["f", "m"], n)
    log.to_parquet(folder / "log.parquet")
    (folder / "tree.json").write_text(json.dumps(TREE), encoding="utf-8")
    places = [str(folder / "log.parquet"), "--tree", str(folder / "tree.json")]
    return ["audit", *places, "--label", "y", "--subgroup", "sex=each"]


def run(command: list[str], cache: Path) -> tuple[float, float]:
    """Seconds of the clock and of the processor that one command takes."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code = "import sys; from huc_monitor.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *command],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    return wall, (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = write_log(folder, rows)
        cold, warm = (run(command, folder / "cache") for _ in range(2))
    found = {"rows": rows, "cold_seconds": cold[0], "cold_processor_seconds": cold[1]}
    found |= {"warm_seconds": warm[0], "warm_processor_seconds": warm[1]}
    print(
        json.dumps(
            {k: round(v, 2) for k, v in found.items()} | {"ratio": round(cold[1] / warm[1], 1)}
        )
    )


if __name__ == "__main__":
    main()
