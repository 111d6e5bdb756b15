"""What a monitor tells of a model that is overconfident from the start, as `init` configures it.

``python tests/bench/change_streams.py [streams] [windows] [rows per window]`` prints for a fault
from day 7 on (two leaves of *dos* swapped for protocol=udp, 40 % of the rows): how often the
branch, and the subgroup first, is named on the first faulty day and within five, and findings
besides. Then seconds of the checks over those without the change test.

``python tests/bench/change_streams.py --stationary [windows] [rows per window] [seed ...]`` prints
for streams in which nothing changes (calibrated; overconfident and wrong in opposite ways by range,
each within the tolerance at 600 rows, and beyond it): windows with a false finding, and how often
standing error is told.
"""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from time import perf_counter

import numpy as np
from stationary import FIRST, KINDS, TREE, stream

from huc_monitor.config import init_config
from huc_monitor.config.opening import open_monitor

FAULTY_FROM = 7
BEYOND = (2.2, "very opposite by range")  # than the tolerance, with 600 rows a window
SWAPPED = {"neptune": "smurf", "smurf": "neptune"}


def messages(log, n_windows, *, change=True):
    """Ask at the end of every window; return what was told, and the seconds it took."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        log.to_parquet(folder / "log.parquet")
        (folder / "tree.json").write_text(json.dumps(TREE), "utf-8")
        text = init_config(folder / "log.parquet", folder / "tree.json", folder=folder)
        if not change:
            text = text.replace("alerts: change\n", "enabled: false\n")
        (folder / "huc.yaml").write_text(text, "utf-8")
        monitor = open_monitor(folder / "huc.yaml")
        started = perf_counter()
        told = [
            monitor.check(FIRST + timedelta(days=k + 1, minutes=1)).message
            for k in range(n_windows)
        ]
        return told, perf_counter() - started


def findings_of(message):
    return [] if message is None else message.data.get("findings", [])


def main(n_streams=10, n_windows=100, n_rows=1000):
    days = FAULTY_FROM + 5
    first, within, subgroup, besides = [], [], [], []
    for seed in range(n_streams):
        log = stream("overconfident", days, n_rows, seed)
        late = (np.arange(len(log)) >= FAULTY_FROM * n_rows) & (log["protocol"] == "udp")
        log.loc[late, "label"] = log.loc[late, "label"].replace(SWAPPED)
        told = [findings_of(message) for message in messages(log, days)[0]]
        named = [[item for item in found if item["node"] == "dos"] for found in told]
        first.append(bool(named[FAULTY_FROM]))
        within.append(any(named[FAULTY_FROM:]))
        subgroup.append(any(x["subgroups"][0] == "protocol=udp" for found in named for x in found))
        besides.append(
            sum(item["node"] not in {"dos", "attack", "root"} for f in told for item in f)
        )
    print(
        f"{n_streams} faults, {n_rows} rows a window: branch on day one {np.mean(first):.0%}, "
        f"within five {np.mean(within):.0%}, subgroup first {np.mean(subgroup):.0%}, findings "
        f"besides {np.mean(besides):.2f}"
    )
    log = stream("overconfident", n_windows, n_rows, seed=100)
    _, seconds = messages(log, n_windows)
    _, plain = messages(log, n_windows, change=False)
    print(f"seconds of a check over those without the change test: {seconds / plain:.2f}")


def stationary(n_windows=300, n_rows=600, *seeds):
    """False findings, and how often standing error is told, where nothing changes."""
    for kind in (*KINDS, *BEYOND):
        for seed in seeds or (0,):
            log = stream(kind, n_windows, n_rows, seed)
            told, seconds = messages(log, n_windows)
            false = [k for k, message in enumerate(told) if findings_of(message)]
            texts = [message.text for message in told if message is not None]
            standing = sum("Standing since" in text for text in texts)
            print(
                f"{kind} {seed}: {n_windows} windows of {n_rows} rows without a fault: false "
                f"findings in {len(false)} windows {false}, standing error told {standing}x, "
                f"{len(texts)} messages, {seconds:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stationary"]:
        stationary(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
