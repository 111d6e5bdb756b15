# For teams that watch more than one model: a folder per model with its log, its tree and its
# huc.yaml, and one loop over the folders.
# Run: python check_fleet.py [folder]   (a folder `fleet` is written where you are)
"""Write two models' logs and configuration files, then check both."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

import huc_monitor as hm

FLEET: dict[str, Any] = {
    "triage": {"ward": ["worse", "stable"], "home": ["slow", "well"]},
    "tickets": {"billing": ["refund", "invoice"], "technical": ["login", "outage"]},
}
SICK = "tickets"  # its second branch is wrong
DAYS, PER_DAY = 4, 1_500
NOW = "2024-03-10T06:00+00:00"


def write(folder: Path, name: str, nested: dict[str, Any], rng: np.random.Generator) -> None:
    """Write the log, the tree and the configuration of one model."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = hm.LabelTree.from_nested(nested)
    n = DAYS * PER_DAY
    predicted = rng.dirichlet(np.ones(tree.n_leaves), n)
    truth = predicted[:, [0, 1, 3, 2]] if name == SICK else predicted
    codes = (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=3)
    log = pd.DataFrame(predicted, columns=[f"p_{leaf}" for leaf in tree.leaves])
    log["label"] = np.array(tree.leaves)[codes]
    log["time"] = pd.Timestamp("2024-03-01", tz="UTC") + pd.to_timedelta(
        np.sort(rng.uniform(0, DAYS, n)), unit="D"
    )
    log.to_parquet(folder / "predictions.parquet", index=False)
    (folder / "tree.yaml").write_text(yaml.safe_dump(nested, sort_keys=False), "utf-8")
    settings = {
        "model": name,
        "tree": "tree.yaml",
        "source": {"log": {"path": "predictions.parquet"}},
        "columns": {"time": "time", "label": "label", "probabilities": "p_{leaf}"},
        "windows": {"length": "1d"},
        "tolerance": 0.03,
    }
    (folder / "huc.yaml").write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")


def main(place: str = "fleet") -> None:
    """Check each folder that has a configuration; one that fails does not stop the others."""
    rng = np.random.default_rng(0)
    for name, nested in FLEET.items():
        write(Path(place) / name, name, nested, rng)
    for config in sorted(Path(place).glob("*/huc.yaml")):
        try:
            result = hm.open_monitor(config).check(NOW)
        except hm.HUCError as error:
            print(f"{config.parent.name}: {error}")
            continue
        guilty = sorted({alert.node for alert in result.alerts if alert.level == "critical"})
        where = f" at {', '.join(guilty)}" if guilty else ""
        print(f"{config.parent.name}: {result.status}{where}")


if __name__ == "__main__":
    main(*sys.argv[1:])
