"""What a check costs on a log of two million rows, and on thirty windows.

``python tests/bench/check.py [--days 40] [--per-day 50000] [--classes 20] [--windows 30]
[--without-change]`` prints one JSON document:

* ``one_day``: peak memory of ``huc-monitor check`` over one new day, in a process of its own, and
  what DuckDB read for it;
* ``in_one_check``: a check over many windows, then its audits alone, in the same process;
* ``in_rounds``: the same, five windows at a time in turn with their audits, which is fairer on a
  machine that others use, and harder: every round starts without having read ahead.

An audit before the clocks start loads the compiled kernels, which both sides need.

Of a busy machine believe ``cpu_ratio``, or the rounds where they agree.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from support.scans import profile

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
CHECK = """
import json, resource, sys, time
from datetime import datetime, timedelta
from huc_monitor import Subgroups, audit
from huc_monitor.config import load_config
from huc_monitor.config.opening import open_monitor

path, now, first, last, per_round = sys.argv[1:]
monitor, config = open_monitor(path), load_config(path)
source = config.open_source()
if int(per_round) > 1:  # a single day is measured from a cold start, for its memory
    start = datetime.fromisoformat(first)
    rows = source.labelled(start, start + timedelta(days=1))
    audit(rows.probabilities, rows.labels, tree=config.tree, utilities=config.utilities)
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
clocks = time.perf_counter, time.process_time
checks, alone, rounds, records, peak = [0.0, 0.0], [0.0, 0.0], [], [], 0.0
start, end = datetime.fromisoformat(first), datetime.fromisoformat(last)
while start < end:
    # In turn, so that whatever else the machine does falls on both alike.
    until = min(end, start + timedelta(days=int(per_round)))
    before = [clock() for clock in clocks]
    result = monitor.check(now, since=start, until=until)
    spent = [clock() - since for clock, since in zip(clocks, before)]
    peak = peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    groups = Subgroups.from_dict(monitor.tracker.load_state()["subgroups"])
    only = [0.0, 0.0]
    for record in result:
        rows = source.labelled(record.start, record.end, as_of=record.due_at)
        before = [clock() for clock in clocks]
        again = audit(
            rows.probabilities, rows.labels, tree=config.tree, utilities=config.utilities,
            subgroups=groups, features=rows.features, n_draws=config.settings.audit.n_draws,
        )
        only = [sum_ + clock() - since for sum_, clock, since in zip(only, clocks, before)]
        assert again.to_dict() == record.audit
    rounds.append(round(spent[0] / only[0], 2))
    checks = [a + b for a, b in zip(checks, spent)]
    alone = [a + b for a, b in zip(alone, only)]
    records += result
    start = until
print(json.dumps({
    "windows": len(records),
    "rows": sum(record.n_labelled for record in records),
    "seconds": round(checks[0], 2),
    "seconds_of_audits_alone": round(alone[0], 2),
    "ratio": round(checks[0] / alone[0], 2),
    "ratio_of_rounds": rounds,
    "cpu_seconds": round(checks[1], 2),
    "cpu_seconds_of_audits_alone": round(alone[1], 2),
    "cpu_ratio": round(checks[1] / alone[1], 2),
    "peak_mb_of_first_check": round(peak / 1024),
    "peak_mb_before": round(base / 1024),
}))
"""
CONFIG = """\
model: bench
tree: tree.json
source:
  log:
    path: log
    partition: {{columns: {{day: "%Y-%m-%d"}}}}
  labels: {{path: labels.parquet, id: id, label: label, time: known_at}}
columns: {{time: at, id: id, probabilities: "p_{{leaf}}"}}
utilities:
  - {{type: LevelCorrectness, level: 1}}
  - {{type: LevelCorrectness, level: 2}}
  - {{type: TopK, k: 3}}
subgroups: {{by: {{region: each}}}}
windows: {{length: 1d, label_lag: 2d, min_labelled: 100}}
tolerance: 0.02
bounds: {{draws: {draws}}}
"""


def write(folder: Path, n_days: int, per_day: int, n_classes: int, draws: int) -> Path:
    """Write the log a day at a time: a folder per day, one late label table."""
    rng = np.random.default_rng(0)
    leaves = [f"c{k:03d}" for k in range(n_classes)]
    tree = {f"g{g}": leaves[g::5] for g in range(5)}
    labels = []
    for day in range(n_days):
        first = day * per_day
        p = rng.dirichlet(np.full(n_classes, 0.7), size=per_day)
        codes = (p.cumsum(axis=1) < rng.random(per_day)[:, None]).sum(axis=1)
        at = pd.Timestamp(FIRST) + pd.to_timedelta(
            day * 86_400 + np.sort(rng.integers(0, 86_400, per_day)), unit="s"
        )
        frame = pd.DataFrame(p, columns=[f"p_{leaf}" for leaf in leaves])
        frame["id"], frame["at"] = np.arange(first, first + per_day), at
        frame["region"] = rng.choice(["north", "south", "west"], per_day)
        frame["payload"] = rng.random(per_day)
        name = f"{FIRST + timedelta(days=day):%Y-%m-%d}"
        part = folder / "log" / f"day={name}"
        part.mkdir(parents=True)
        frame.to_parquet(part / "rows.parquet", index=False)
        known = at + pd.to_timedelta(rng.integers(0, 86_400, per_day), unit="s")
        chosen = np.array(leaves)[codes.clip(max=n_classes - 1)]
        labels.append(pd.DataFrame({"id": frame["id"], "label": chosen, "known_at": known}))
    pd.concat(labels).to_parquet(folder / "labels.parquet", index=False)
    (folder / "tree.json").write_text(json.dumps(tree), "utf-8")
    config = folder / "huc.yaml"
    config.write_text(CONFIG.format(draws=draws), "utf-8")
    return config


def check(config: Path, now: datetime, first: datetime, last: datetime, per_round: int) -> dict:
    times = [moment.isoformat() for moment in (now, first, last)]
    command = [sys.executable, "-c", CHECK, str(config), *times, str(per_round)]
    shutil.rmtree(config.parent / "huc-state", ignore_errors=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def read_by_duckdb(config: Path, day: int) -> dict[str, object]:
    from huc_monitor.config import load_config

    source = load_config(config).open_source()
    start = FIRST + timedelta(days=day)
    found = profile(source, start, start + timedelta(days=1))
    return {
        name: getattr(found, name)
        for name in found.__slots__
        if isinstance(getattr(found, name), int)
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=40)
    parser.add_argument("--per-day", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--windows", type=int, default=30)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--without-change", action="store_true", help="no change test")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="huc-bench-"))
    try:
        config = write(folder, given.days, given.per_day, given.classes, given.draws)
        if given.without_change:
            config.write_text(config.read_text("utf-8") + "change: {enabled: false}\n", "utf-8")
        last = FIRST + timedelta(days=given.days)
        now, since = last + timedelta(days=3), last - timedelta(days=given.windows)
        one = check(config, now, last - timedelta(days=1), last, 1)
        found = {
            "rows_in_log": given.days * given.per_day,
            "one_day": {**one, "duckdb": read_by_duckdb(config, given.days - 1)},
            "in_one_check": check(config, now, since, last, given.windows),
            "in_rounds": check(config, now, since, last, 5),
            "load": os.getloadavg()[0],
            "limits": {"peak_mb_of_first_check": 1024, "ratio": 2.0},
        }
        print(json.dumps(found, indent=2))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"bench took {time.perf_counter() - started:.0f} s, {peak:.0f} MB", file=sys.stderr)
