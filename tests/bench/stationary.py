"""Alerts of streams on which nothing changes, with the configuration that `init` writes.

``python tests/bench/stationary.py [windows] [rows per window]`` prints, for a calibrated stream, an
overconfident one, and one that is too low and too high by range: the tolerance, how many alerts
opened in the first ten windows, how many opened or opened again later per 100 windows, by level,
and how many stay open. At most 1 critical and 5 warnings per 100 windows may open later.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from huc_monitor.config import init_config
from huc_monitor.config.opening import open_monitor

TREE = {"normal": None, "attack": {"dos": ["neptune", "smurf"], "probe": ["satan", "nmap"]}}
LEAVES = ["normal", "neptune", "smurf", "satan", "nmap"]
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
SETTLED = 10


def predicted(truth, kind):
    """What a model predicts where `truth` are the probabilities."""
    if kind == "calibrated":
        return truth
    if kind == "overconfident":
        sharp = truth**1.4
        return sharp / sharp.sum(axis=1, keepdims=True)
    # Too high where normal is unlikely, too low where it is likely.
    normal = truth[:, 0]
    moved = np.clip(normal + 0.12 * np.cos(np.pi * normal), 0.01, 0.99)
    rest = truth[:, 1:] * ((1 - moved) / (1 - normal))[:, None]
    return np.column_stack([moved, rest])


def stream(kind, n_windows, n_rows, seed):
    rng = np.random.default_rng(seed)
    n = n_windows * n_rows
    truth = rng.dirichlet([2.0, 1.0, 0.7, 0.7, 0.5], size=n).clip(1e-6)
    truth /= truth.sum(axis=1, keepdims=True)
    label = (truth.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(max=4)
    log = pd.DataFrame(predicted(truth, kind), columns=[f"p_{leaf}" for leaf in LEAVES])
    log.insert(0, "id", np.arange(n))
    seconds = np.arange(n) * (86_400 / n_rows)
    log.insert(1, "at", pd.Timestamp(FIRST) + pd.to_timedelta(seconds.round(3), unit="s"))
    log["protocol"] = np.where(rng.random(n) < 0.4, "udp", "tcp")
    log["label"] = np.array(LEAVES)[label]
    return log


def run(kind, n_windows, n_rows, seed=0):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        stream(kind, n_windows, n_rows, seed).to_parquet(folder / "log.parquet", index=False)
        (folder / "tree.json").write_text(json.dumps(TREE), "utf-8")
        text = init_config(folder / "log.parquet", folder / "tree.json", folder=folder)
        (folder / "huc.yaml").write_text(text, "utf-8")
        monitor = open_monitor(folder / "huc.yaml")
        result = monitor.check(FIRST + timedelta(days=n_windows + 2))
        records = [record for record in result if record.status == "audited"]
        early, late = Counter(), Counter()
        for record in records:
            for step in record.transitions:
                if step.kind in {"opened", "escalated"}:
                    (early if record.ordinal <= SETTLED else late)[step.level] += 1
        still = Counter(alert.level for alert in result.alerts)
        tolerance = [line for line in text.splitlines() if line.strip().startswith("tolerance:")]
    per_100 = {level: 100 * n / max(1, len(records) - SETTLED) for level, n in late.items()}
    return len(records), " ".join(tolerance), dict(early), per_100, dict(still)


def main(n_windows=200, n_rows=600):
    failed = False
    for kind in ("calibrated", "overconfident", "opposite by range"):
        n, tolerance, early, late, still = run(kind, n_windows, n_rows)
        fine = late.get("critical", 0) <= 1 and late.get("warning", 0) <= 5
        failed |= not fine
        shown = {level: round(rate, 1) for level, rate in late.items()}
        print(
            f"{kind:<18} {n} windows, {tolerance}: first {SETTLED}: {early}; later per 100: "
            f"{shown}; open at the end: {still}; {'ok' if fine else 'TOO MANY'}",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
