"""What an audit on Spark costs as rows grow. Prints one JSON line.

Eight leaves in three levels, two utilities, five subgroups, sharp bounds, on `local[2]`, with
Parquet files as input. Memory is that of the whole family of processes: driver, Java, workers.

Run: python tests/bench/spark.py [--rows 2000000 20000000] [--draws 0] [--plain] [--folder /tmp]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import huc_monitor as hm

sys.path.insert(0, str(Path(__file__).parents[1]))

TREE = hm.LabelTree.from_nested(
    {"a": {"a1": ["x1", "x2"], "a2": ["x3", "x4"]}, "b": {"b1": ["x5", "x6"], "b2": ["x7", "x8"]}}
)
UTILITIES = [
    hm.LevelCorrectness(level=2),
    hm.BinaryAction("act", active=["a", "b1"], favours=["x1", "x5"], threshold=0.3),
]
SUBGROUPS = hm.Subgroups.from_reference(
    {"age": [50, 70, 90], "sex": ["f", "m", "f"]}, {"age": [65], "sex": "each"}
)
_PER_FILE = 500_000


def write(folder: Path, n: int) -> None:
    """Write n rows as Parquet, half a million to a file."""
    folder.mkdir(parents=True)
    for k, lo in enumerate(range(0, n, _PER_FILE)):
        rng = np.random.default_rng(k)
        size = min(_PER_FILE, n - lo)
        p = rng.standard_exponential((size, TREE.n_leaves)) ** 2
        p /= p.sum(axis=1, keepdims=True)
        label = (rng.random(size)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, 7)
        columns: dict[str, Any] = {f"p_{leaf}": p[:, j] for j, leaf in enumerate(TREE.leaves)}
        columns |= {"label": np.array(TREE.leaves)[label], "row": np.arange(lo, lo + size)}
        columns |= {"age": rng.integers(18, 99, size), "sex": rng.choice(["f", "m"], size)}
        pq.write_table(pa.table(columns), folder / f"part-{k:05}.parquet")


class Watch(threading.Thread):
    """Peak memory of this process and all that descend from it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.done = 0, threading.Event()

    def run(self) -> None:
        """Look every two seconds: reading every page table takes time of its own."""
        while not self.done.wait(2.0):
            self.peak = max(self.peak, _family()[0])


def _family() -> tuple[int, float]:
    """Memory held and processor seconds used by this process and all that descend from it."""
    parents, sizes, seconds = {}, {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                rollup = (entry / "smaps_rollup").read_text().split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            seconds[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            sizes[int(entry.name)] = 1024 * int(rollup[rollup.index("Pss:") + 1])
    family = {os.getpid()}
    while True:
        more = {child for child, parent in parents.items() if parent in family} - family
        if not more:
            return tuple(sum(found.get(x, 0) for x in family) for found in (sizes, seconds))  # type: ignore[return-value]
        family |= more


def measure(spark: Any, folder: Path, n: int, draws: int) -> dict[str, Any]:
    """Audit n rows; say how long it took, what it moved and how much memory it held."""
    import huc_spark
    from support.spark_sessions import shuffled_bytes

    df = spark.read.parquet(str(folder))
    bounds = "bootstrap" if draws else "sharp"
    options: dict[str, Any] = {"tree": TREE, "utilities": UTILITIES, "subgroups": SUBGROUPS}
    watch = Watch()
    watch.start()
    before, used, started = shuffled_bytes(spark), _family()[1], time.perf_counter()
    result = huc_spark.audit(
        df,
        probabilities="p_{leaf}",
        bounds=bounds,
        row_id="row",
        n_draws=max(1, draws),
        **options,
    )
    seconds = time.perf_counter() - started
    watch.done.set()
    used = _family()[1] - used
    assert result.n == n
    return {
        "rows": n,
        "seconds": round(seconds, 1),
        "processor_seconds": round(used, 1),
        "peak_gb": round(watch.peak / 1e9, 2),
        "shuffle_bytes_per_row": round((shuffled_bytes(spark) - before) / n, 1),
        "calculated_bytes_per_row": huc_spark.shuffle_bytes_per_row(
            TREE, UTILITIES, subgroups=SUBGROUPS, bounds=bounds
        ),
        "huc": result.huc,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000_000, 20_000_000])
    parser.add_argument("--draws", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="do not compress what is shuffled")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    settings = parser.parse_args()
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    from support import spark_sessions as sessions

    with tempfile.TemporaryDirectory(dir=settings.folder) as place:
        home = Path(place)
        for n in settings.rows:
            write(home / str(n), n)
        options = {"spark__driver__memory": "2g"}
        options |= {"spark__shuffle__compress": "false"} if settings.plain else {}
        spark = sessions.start("local[2]", home / "spark", **options)
        # The first audit loads compiled code into every worker.
        write(home / "small", 20_000)
        measure(spark, home / "small", 20_000, settings.draws)
        found = [measure(spark, home / str(n), n, settings.draws) for n in settings.rows]
        sessions.stop(spark)
    growth = {
        f"{name}_last_to_first": round(found[-1][name] / found[0][name], 2)
        for name in ("seconds", "processor_seconds")
    }
    print(json.dumps({"runs": found, **growth}))


if __name__ == "__main__":
    main()
