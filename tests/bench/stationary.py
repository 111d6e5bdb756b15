"""Alerts of streams on which nothing changes, with the configuration that `init` writes.

``python tests/bench/stationary.py [windows] [rows per window] [seed ...]`` prints, for a calibrated
stream, an overconfident one, and one that is too low and too high by range: the tolerance, how many
alerts opened in the first ten windows, how many opened or opened again later per 100 windows, by
level, and how many stay open. At most 1 critical and 5 warnings per 100 windows may open later.

What is truly beyond the tolerance is known from half a million rows of the same stream: branches
that are beyond it by a tenth, how often people were told of standing error, and how many of those
branches are among the open alerts at the end.

``python tests/bench/stationary.py near [seed ...]`` asks whether warnings near the tolerance are
coin flips: streams of 72 windows of 600 rows, more and more overconfident, each with the tolerance
that `init` writes for it. Prints in how many windows the largest estimate alone is beyond the
tolerance, in how many an alert is open, and how often that changes from window to window.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

import huc_monitor as hm
from huc_monitor.config import init_config, load_config
from huc_monitor.config.opening import open_monitor

TREE = {"normal": None, "attack": {"dos": ["neptune", "smurf"], "probe": ["satan", "nmap"]}}
LEAVES = ["normal", "neptune", "smurf", "satan", "nmap"]
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
KINDS = ("calibrated", "overconfident", "opposite by range")
POWERS = (1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2.2)  # of probabilities: 1 is calibrated
OPPOSITE = {"opposite by range": 0.12, "very opposite by range": 0.3}
SETTLED = 10
TRUTH_ROWS = 500_000


def predicted(truth, kind):
    """What a model predicts where `truth` are the probabilities."""
    if kind == "calibrated":
        return truth
    if kind not in OPPOSITE:
        sharp = truth ** (1.4 if kind == "overconfident" else kind)
        return sharp / sharp.sum(axis=1, keepdims=True)
    # Too high where normal is unlikely, too low where it is likely.
    normal = truth[:, 0]
    moved = np.clip(normal + OPPOSITE[kind] * np.cos(np.pi * normal), 0.01, 0.99)
    rest = truth[:, 1:] * ((1 - moved) / (1 - normal))[:, None]
    return np.column_stack([moved, rest])


def stream(kind, n_windows, n_rows, seed):
    # Every kind has labels of its own: kinds of one seed are as independent as seeds.
    own = (*KINDS, *POWERS, *OPPOSITE).index(kind)
    rng = np.random.default_rng([seed, own])
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


def true_sizes(kind, config, subgroups):
    """Absolute moment of every candidate, from so many rows that chance hardly matters."""
    log = stream(kind, 1, TRUTH_ROWS, seed=987)
    result = hm.audit(
        log[[f"p_{leaf}" for leaf in LEAVES]].set_axis(LEAVES, axis=1),
        log["label"],
        tree=config.tree,
        utilities=config.utilities,
        subgroups=subgroups,
        features=log[["protocol"]],
        bounds=None,
    )
    frame = result.to_frame(all_columns=True)
    names = frame[["utility", "subgroup", "node"]].itertuples(index=False, name=None)
    return dict(zip(names, frame["moment"].abs(), strict=True))


def make_monitor(folder, kind, n_windows, n_rows, seed):
    """Write a stream and the file that `init` proposes for it, and open its monitor."""
    stream(kind, n_windows, n_rows, seed).to_parquet(folder / "log.parquet", index=False)
    (folder / "tree.json").write_text(json.dumps(TREE), "utf-8")
    text = init_config(folder / "log.parquet", folder / "tree.json", folder=folder)
    (folder / "huc.yaml").write_text(text, "utf-8")
    return open_monitor(folder / "huc.yaml")


def run_near(power, n_windows, n_rows, seed):
    """Say how often the largest estimate, and how often an alert, is beyond the tolerance."""
    with tempfile.TemporaryDirectory() as place:
        monitor = make_monitor(Path(place), power, n_windows, n_rows, seed)
        result = monitor.check(FIRST + timedelta(days=n_windows + 2))
        tolerance = load_config(Path(place) / "huc.yaml").settings.tolerance.value
    records = [record for record in result if record.status == "audited"]
    beyond = sum(record.audit["huc"] > tolerance for record in records)
    is_open = [record.level is not None for record in records]
    changes = sum(a != b for a, b in pairwise(is_open))
    return len(records), tolerance, beyond, sum(is_open), changes


def near(n_windows=72, n_rows=600, seeds=(0,)):
    total = Counter()
    for power in POWERS:
        for seed in seeds:
            n, tolerance, beyond, n_open, changes = run_near(power, n_windows, n_rows, seed)
            total.update(windows=n, beyond=beyond, open=n_open, changes=changes)
            print(
                f"power {power:g}, seed {seed}: {n} windows, tolerance {tolerance:g}: largest "
                f"estimate beyond it in {beyond}, an alert open in {n_open}, changes {changes}",
                flush=True,
            )
    print(dict(total))
    return 0


def run(kind, n_windows, n_rows, seed=0):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        monitor = make_monitor(folder, kind, n_windows, n_rows, seed)
        result = monitor.check(FIRST + timedelta(days=n_windows + 2))
        records = [record for record in result if record.status == "audited"]
        early, late = Counter(), Counter()
        for record in records:
            for step in record.transitions:
                if step.kind in {"opened", "escalated"}:
                    (early if record.ordinal <= SETTLED else late)[step.level] += 1
        still = Counter(alert.level for alert in result.alerts)
        config = load_config(folder / "huc.yaml")
        groups = hm.Subgroups.from_dict(monitor.tracker.load_state()["subgroups"])
        names = [alert.candidate for alert in result.alerts]
        beyond = standing(true_sizes(kind, config, groups), config.settings.tolerance.value, names)
        told = 0 if result.message is None else result.message.text.count("Standing since")
    per_100 = {level: 100 * n / max(1, len(records) - SETTLED) for level, n in late.items()}
    tolerance = config.settings.tolerance.value
    return len(records), tolerance, dict(early), per_100, dict(still), told, beyond


def standing(sizes, tolerance, still_open):
    """Say of each branch that is truly beyond the tolerance by a tenth whether it is open."""
    beyond = {node for (_, _, node), size in sizes.items() if size > 1.1 * tolerance}
    return {node: any(node == name for *_, name in still_open) for node in sorted(beyond)}


def main(n_windows=200, n_rows=600, *seeds):
    failed = False
    for kind in KINDS:
        for seed in seeds or (0,):
            n, tolerance, early, late, still, told, beyond = run(kind, n_windows, n_rows, seed)
            fine = late.get("critical", 0) <= 1 and late.get("warning", 0) <= 5
            fine &= told == bool(beyond) and all(beyond.values())
            failed |= not fine
            shown = {level: round(rate, 1) for level, rate in late.items()}
            print(
                f"{kind} {seed}: {n} windows, tolerance {tolerance:g}: first {SETTLED}: {early}; "
                f"later per 100: {shown}; open at the end: {still}; truly beyond, and open: "
                f"{beyond}; told {told}x; {'ok' if fine else 'NOT AS PROMISED'}",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["near"]:
        sys.exit(near(seeds=tuple(map(int, sys.argv[2:])) or (0,)))
    sys.exit(main(*map(int, sys.argv[1:])))
