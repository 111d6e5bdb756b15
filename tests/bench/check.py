"""What a check costs on a log of two million rows, and on thirty windows.

``python tests/bench/check.py [--days 40] [--per-day 50000] [--classes 20] [--windows 30]`` prints
one JSON document:

* ``one_day``: peak memory of ``huc-monitor check`` over one new day, in a process of its own, and
  what DuckDB read for it;
* ``many_days``: seconds of a check over many windows against those of its audits alone, same run.
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

import numpy as np
import pandas as pd

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
CHECK = """
import json, resource, sys, time
from huc_monitor import Subgroups, audit
from huc_monitor.config import load_config
from huc_monitor.opening import open_monitor
monitor = open_monitor(sys.argv[1])
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.perf_counter()
result = monitor.check(sys.argv[2], since=sys.argv[3] or None)
seconds = time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
alone = 0.0
config, state = load_config(sys.argv[1]), monitor.tracker.load_state()
source, groups = config.open_source(), Subgroups.from_dict(state["subgroups"])
for record in result:
    rows = source.labelled(record.start, record.end, as_of=record.due_at)
    started = time.perf_counter()
    again = audit(
        rows.probabilities, rows.labels, tree=config.tree, utilities=config.utilities,
        subgroups=groups, features=rows.features, n_draws=config.settings.bounds.draws,
    )
    alone += time.perf_counter() - started
    assert again.to_dict() == record.audit
print(json.dumps({
    "seconds": seconds,
    "seconds_of_audits_alone": alone,
    "seconds_waiting_for_rows": sum(record.timings.get("read", 0.0) for record in result),
    "windows": len(result),
    "rows": sum(record.n_labelled for record in result),
    "peak_mb": peak,
    "peak_mb_before": base / 1024,
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


def check(config: Path, now: datetime, since: datetime | None) -> dict[str, float]:
    arguments = [str(config), now.isoformat(), "" if since is None else since.isoformat()]
    command = [sys.executable, "-c", CHECK, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return {key: round(value, 3) for key, value in json.loads(done.stdout).items()}


def read_by_duckdb(config: Path, day: int) -> dict[str, object]:
    from huc_monitor.config import load_config

    source = load_config(config).open_source()
    start = FIRST + timedelta(days=day)
    profile = source.profile(start, start + timedelta(days=1))
    return {
        name: getattr(profile, name)
        for name in profile.__slots__
        if isinstance(getattr(profile, name), int)
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=40)
    parser.add_argument("--per-day", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--windows", type=int, default=30)
    parser.add_argument("--draws", type=int, default=1000)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="huc-bench-"))
    try:
        config = write(folder, given.days, given.per_day, given.classes, given.draws)
        last = FIRST + timedelta(days=given.days)
        one = check(config, last + timedelta(days=3), last - timedelta(days=1))
        shutil.rmtree(folder / "huc-state")
        since = last - timedelta(days=given.windows)
        many = check(config, last + timedelta(days=3), since)
        found = {
            "rows_in_log": given.days * given.per_day,
            "one_day": {**one, "duckdb": read_by_duckdb(config, given.days - 1)},
            "many_days": {
                **many,
                "ratio": round(many["seconds"] / many["seconds_of_audits_alone"], 2),
            },
            "load": os.getloadavg()[0],
            "limits": {"peak_mb": 1024, "ratio": 2.0},
        }
        print(json.dumps(found, indent=2))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"bench took {time.perf_counter() - started:.0f} s, {peak:.0f} MB", file=sys.stderr)
