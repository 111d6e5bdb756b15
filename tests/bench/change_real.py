"""What a monitor tells of faults planted in real predictions, as `init` configures it. JSON lines.

Models are fitted to little data without regularisation, so that they are overconfident from the
start; streams draw rows with replacement from their held-out predictions. Two leaves of a branch,
weighted to 3 % of all rows at 6,000 a day and 10 % at 1,000, trade places in one of three channels
from day 7 on ("swap"); or labels within the branch come at random ("noise"); or nothing happens.

Run: python tests/bench/change_real.py FOLDER [--data massive kdd] [--faults swap noise none]
[--rows 6000 1000] [--seeds 20] [--first 0] [--cost]; FOLDER holds massive_en.parquet and
nsl_kdd_train20.parquet.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import process_time

import numpy as np
import pandas as pd

from huc_monitor.config import init_config
from huc_monitor.config.opening import open_monitor

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
FAULTY_FROM, DAYS = 6, 11
KDD = {
    "dos": ["neptune", "smurf", "back", "teardrop", "pod"],
    "probe": ["ipsweep", "satan", "portsweep", "nmap"],
}
PAIRS = {
    "massive": ("calendar", "calendar_query", "calendar_remove"),
    "kdd": ("probe", "ipsweep", "satan"),
}
SHARES = {6_000: 0.03, 1_000: 0.10}


def massive(folder):
    """Intents below scenarios, by a linear model of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    data = pd.read_parquet(folder / "massive_en.parquet").sample(frac=1.0, random_state=0)
    words = TfidfVectorizer(min_df=2, max_features=4000).fit(data["text"][:4000])
    tree = {
        scenario: sorted(part["intent"].unique()) for scenario, part in data.groupby("scenario")
    }
    tree = {name: leaves if len(leaves) > 1 else None for name, leaves in tree.items()}
    # A scenario of one intent is a leaf, and is called by its scenario.
    single = {name for name, leaves in tree.items() if leaves is None}
    labels = np.where(data["scenario"].isin(single), data["scenario"], data["intent"])
    return words.transform(data["text"]), labels, tree, 4_000


def kdd(folder):
    """Attacks below their kinds, by a small network on counts."""
    data = pd.read_parquet(folder / "nsl_kdd_train20.parquet").sample(frac=1.0, random_state=0)
    kinds = {leaf: kind for kind, leaves in KDD.items() for leaf in leaves}
    labels = np.where(data["attack"].isin([*kinds, "normal"]), data["attack"], "other")
    names = ["duration", "src_bytes", "dst_bytes", "count", "srv_count", "wrong_fragment", "hot"]
    names += [name for name in data if name.startswith("dst_host")][:2]
    numbers = np.log1p(data[names].to_numpy(dtype=float))
    tree = {"normal": None, "attack": {**KDD, "other": None}}
    return numbers / numbers.std(axis=0), labels, tree, 400


def predictions(name, folder):
    """Held-out probabilities, labels, the classes in order, and the tree."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    x, labels, tree, n_train = {"massive": massive, "kdd": kdd}[name](folder)
    model = LogisticRegression(C=300.0, max_iter=300)
    if name == "kdd":
        model = MLPClassifier((64,), alpha=0, max_iter=600, learning_rate_init=0.01, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is not meant to converge
        model.fit(x[:n_train], labels[:n_train])
    known = np.isin(labels, model.classes_)
    held = np.flatnonzero(known)[np.flatnonzero(known) >= n_train]
    p = model.predict_proba(x[held]).clip(1e-7)
    return p / p.sum(axis=1, keepdims=True), labels[held], model.classes_, tree


def stream(held, pair, n_rows, fault, seed, days=DAYS):
    """A log of so many days; labels under the branch go wrong from day `FAULTY_FROM` on."""
    p, labels, classes, tree = held
    rng = np.random.default_rng([seed, n_rows])
    branch, *leaves = pair
    mine = np.isin(labels, leaves)
    share = SHARES[n_rows]
    weights = np.where(mine, share / mine.sum(), (1 - share) / (~mine).sum())
    n = days * n_rows
    rows = rng.choice(len(p), n, p=weights)
    log = pd.DataFrame(p[rows], columns=[f"p_{leaf}" for leaf in classes])
    log.insert(0, "id", np.arange(n))
    seconds = np.arange(n) * (86_400 / n_rows)
    log.insert(1, "at", pd.Timestamp(FIRST) + pd.to_timedelta(seconds.round(3), unit="s"))
    log["channel"] = rng.choice(["app", "web", "phone"], n)
    label = labels[rows].copy()
    late = np.arange(n) >= FAULTY_FROM * n_rows
    if fault == "swap":
        for one, other in (leaves, leaves[::-1]):
            label[late & (log["channel"] == "app") & (labels[rows] == one)] = other
    elif fault == "noise":
        under = tree[branch] if branch in tree else tree["attack"][branch]
        bad = np.flatnonzero(late & np.isin(label, under))
        label[bad] = rng.permutation(label[bad])
    log["label"] = label
    return log


def told(log, tree, n_days, *, change=True):
    """Ask at the end of every day; return what every check gave, and its processor seconds."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        log.to_parquet(folder / "log.parquet")
        (folder / "tree.json").write_text(json.dumps(tree), "utf-8")
        text = init_config(folder / "log.parquet", folder / "tree.json", folder=folder)
        if not change:
            assert "alerts: change\n" in text
            text = text.replace("alerts: change\n", "enabled: false\n")
        (folder / "huc.yaml").write_text(text, "utf-8")
        monitor = open_monitor(folder / "huc.yaml")
        found, seconds = [], []
        for k in range(n_days):
            started = process_time()
            found.append(monitor.check(FIRST + timedelta(days=k + 1, minutes=1)))
            seconds.append(process_time() - started)
        return found, seconds


def onset(found, branch):
    """When the branch is first found: is the true day in the set, and how wide is it, in days?"""
    for check in found[FAULTY_FROM:]:
        for record in check.records:
            changes = [] if record.change is None else record.change.changes
            for item in changes:
                if item.node == branch and item.onset_first is not None:
                    true = FIRST + timedelta(days=FAULTY_FROM)
                    width = (item.onset_last - item.onset_first).days + 1
                    return item.onset_first <= true <= item.onset_last, width
    return None


def findings(message):
    return [] if message is None else message.data.get("findings", [])


def share(hits):
    value = float(np.mean(hits))
    return {"share": round(value, 3), "error": round(math.sqrt(value * (1 - value) / len(hits)), 3)}


def ancestors(name, branch):
    return {"root", branch} | ({"attack"} if name == "kdd" else set())


def measure(name, held, fault, n_rows, seeds):
    """Print how often branch and subgroup are named, and what else is told."""
    pair, days, onsets = PAIRS[name], DAYS, []
    first, within, subgroup, besides, false, standing, seconds = [], [], [], [], [], [], 0.0
    for seed in seeds:
        log = stream(held, pair, n_rows, fault, seed)
        checks, spent = told(log, held[3], days)
        messages = [check.message for check in checks]
        seconds += sum(spent)
        dated = onset(checks, pair[0])
        if fault != "none" and dated is not None:
            onsets.append(dated)
        found = [findings(message) for message in messages]
        mine = [[item for item in some if item["node"] == pair[0]] for some in found]
        first.append(bool(mine[FAULTY_FROM]))
        within.append(any(mine[FAULTY_FROM:]))
        subgroup.append(
            any(
                "channel=app" in str(x["subgroups"][:1])
                for some in mine[FAULTY_FROM:]
                for x in some
            )
        )
        others = {x["node"] for some in found for x in some} - ancestors(name, pair[0])
        besides.append(len(others))
        clean = found if fault == "none" else found[:FAULTY_FROM]
        false.append(sum(map(len, clean)))
        standing.append(
            sum("Standing since" in message.text for message in messages if message is not None)
        )
    answer = {"data": name, "fault": fault, "rows": n_rows, "seeds": len(false)}
    if fault != "none":
        answer |= {"first_day": share(first), "within_5": share(within)}
        answer |= {"subgroup_within_5": share(subgroup), "besides": besides}
    if onsets:
        answer |= {"onset_inside": share([inside for inside, _ in onsets])}
        answer |= {"onset_widths": [width for _, width in onsets]}
    n_clean = len(false) * ((DAYS if fault == "none" else FAULTY_FROM) - 3)
    answer |= {"false_findings": sum(false), "clean_windows": n_clean, "standing_told": standing}
    print(json.dumps({**answer, "seconds": round(seconds)}), flush=True)


def cost(name, held, n_rows, days=24):
    """Print processor seconds of checks that pool 16 windows, over those without the test."""
    log = stream(held, PAIRS[name], n_rows, "none", 0, days)
    both = [told(log, held[3], days, change=change)[1][-5:] for change in (True, False)]
    ratio = float(np.median(both[0]) / np.median(both[1]))
    answer = {"seconds": [round(float(np.median(some)), 3) for some in both]}
    print(json.dumps({"data": name, "rows": n_rows, "cost": round(ratio, 2), **answer}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", nargs="*", default=["massive", "kdd"])
    parser.add_argument("--faults", nargs="*", default=["swap", "noise", "none"])
    parser.add_argument("--rows", nargs="*", type=int, default=[6_000, 1_000])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cost", action="store_true", help="measure this alone")
    given = parser.parse_args()
    for name in given.data:
        held = predictions(name, given.folder)
        codes = np.searchsorted(held[2], held[1])
        right = held[0].argmax(axis=1) == codes
        print(
            json.dumps(
                {
                    "data": name,
                    "held_out": len(codes),
                    "accuracy": round(float(right.mean()), 3),
                    "mean_confidence": round(float(held[0].max(axis=1).mean()), 3),
                }
            ),
            flush=True,
        )
        for n_rows in given.rows:
            if given.cost:
                cost(name, held, n_rows)
            for fault in () if given.cost else given.faults:
                seeds = range(given.first, given.first + given.seeds)
                measure(name, held, fault, n_rows, seeds)


if __name__ == "__main__":
    main()
