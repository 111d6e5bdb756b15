"""A prediction log whose faults are known: which branch goes wrong, for whom, and from when."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import huc_monitor as hm

if TYPE_CHECKING:
    from pathlib import Path

TREE = {"normal": None, "attack": {"dos": ["neptune", "smurf"], "probe": ["satan", "nmap"]}}
FIRST_DAY = datetime(2024, 3, 1, tzinfo=UTC)


def tree() -> hm.LabelTree:
    return hm.LabelTree.from_nested(TREE)


def make_log(
    n_days: int,
    per_day: int,
    *,
    broken_from: int | None = None,
    lag_hours: float = 6.0,
    late_share: float = 0.0,
    seed: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Calibrated predictions and their labels; from one day on, `attack` is mispredicted for udp.

    Where it is broken, "dos" becomes "probe" in all udp rows.
    """
    rng = np.random.default_rng(seed)
    n = n_days * per_day
    leaves = tree().leaves
    seconds = np.sort(rng.integers(0, 86_400, size=(n_days, per_day)), axis=1)
    day = np.repeat(np.arange(n_days), per_day)
    at = pd.Timestamp(FIRST_DAY) + pd.to_timedelta(day * 86_400 + seconds.ravel(), unit="s")
    udp = rng.random(n) < 0.4
    p = rng.dirichlet([4.0, 2.0, 1.0, 1.0, 1.0], size=n)
    labels = (p.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(max=4)
    if broken_from is not None:
        broken = (day >= broken_from) & udp & np.isin(labels, [1, 2])
        labels = np.where(broken, labels + 2, labels)
    log = pd.DataFrame({f"p_{leaf}": p[:, k] for k, leaf in enumerate(leaves)})
    log.insert(0, "id", np.arange(n))
    log.insert(1, "at", at)
    log["protocol"] = np.where(udp, "udp", "tcp")
    log["version"] = "1"
    lag = rng.uniform(0, lag_hours, size=n)
    lag = np.where(rng.random(n) < late_share, lag + 40.0, lag)
    known = at + pd.to_timedelta((lag * 3600).round(), unit="s")
    found = pd.DataFrame({"id": log["id"], "label": np.array(leaves)[labels], "known_at": known})
    return log, found.sample(frac=1.0, random_state=seed).reset_index(drop=True)


CONFIG = """\
model: intrusion
tree: tree.json
source:
  log: {{path: log}}
  labels: {{path: labels.parquet, id: id, label: label, time: known_at}}
columns: {{time: at, id: id, model_version: version, probabilities: "p_{{leaf}}"}}
utilities:
  - {{type: LevelCorrectness, level: 1, name: status}}
  - {{type: LevelCorrectness, level: 2, name: family}}
subgroups: {{by: {{protocol: each}}}}
windows: {{length: 1d, label_lag: 12h, min_labelled: 50{windows}}}
tolerance: 0.03
bounds: {{draws: {draws}}}
{more}
"""


def write_project(
    folder: Path,
    log: pd.DataFrame,
    labels: pd.DataFrame,
    *,
    draws: int = 100,
    windows: str = "",
    more: str = "",
) -> Path:
    """Write a log partitioned by day, a late label table, a tree and a configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    for day, rows in log.groupby(log["at"].dt.strftime("%Y-%m-%d")):
        part = folder / "log" / f"day={day}"
        part.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(part / "rows.parquet", index=False)
    labels.to_parquet(folder / "labels.parquet", index=False)
    (folder / "tree.json").write_text(json.dumps(TREE), "utf-8")
    config = folder / "huc.yaml"
    config.write_text(CONFIG.format(draws=draws, windows=windows, more=more), "utf-8")
    return config


def after(days: float) -> datetime:
    return FIRST_DAY + timedelta(days=days)
