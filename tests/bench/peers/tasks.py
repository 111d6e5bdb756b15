"""The same tasks for every peer, written as arrays: streams with faults, and predictions to mend.

``python tasks.py DATA OUT [--quick]`` reads the real data sets of the folder DATA and writes

* ``OUT/streams/*.npz``: labelled predictions by day, with a fault from one day on or without;
* ``OUT/pairs/*.npz``: predictions of a model on rows to learn from and on rows to be judged by;
* ``OUT/segments/*.npz``: features with a planted segment that nobody named, or without.

All models are as their libraries make them, or with little regularisation, so that errors that were
always there stand beside those that are planted.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[3] / "examples/paper")]

from change_real import DAYS, FAULTY_FROM, PAIRS, kdd, massive, predictions, stream  # noqa: E402

REFERENCE_DAYS, CLEAN_DAYS = 3, 12
NEW_ATTACK = "smurf"
SUPPORT_TREE = {"survived": {"milder": ["y1", "y2"], "major": ["y3", "y4"]}, "y5": None}


def support2(folder):
    """Outcomes of seriously ill patients, by what is known on the third day."""
    from experiments.tabular import (
        SUPPORT2_CATEGORIES,
        SUPPORT2_NUMBERS,
        SUPPORT2_OUTCOMES,
        TableInputs,
    )

    frame = pd.read_parquet(folder / "support2.parquet")
    frame = frame[frame["sfdm2"].notna()].sample(frac=1.0, random_state=0).reset_index(drop=True)
    for name in SUPPORT2_CATEGORIES:
        frame[name] = frame[name].astype(object).where(frame[name].notna(), "missing").astype(str)
    inputs = TableInputs(frame, SUPPORT2_NUMBERS, SUPPORT2_CATEGORIES)
    x = inputs(np.arange(len(frame)), np.arange(1_500))
    return x, frame["sfdm2"].map(SUPPORT2_OUTCOMES).to_numpy(dtype=str), SUPPORT_TREE, 1_500


def nbaiot(folder):
    """Attacks of two botnets on household devices, by six numbers."""
    frame = pd.read_parquet(folder / "nbaiot_sample2000.parquet")
    frame = frame.sample(frac=1.0, random_state=0).reset_index(drop=True)
    labels = frame["label"].to_numpy(dtype=str)
    numbers = np.log1p(frame.loc[:, :"HH_L5_weight"].abs().to_numpy(dtype=float))
    tree: dict = {"benign": None}
    for name in sorted(set(labels) - {"benign"}):
        tree.setdefault(name.split("_")[0], []).append(name)
    return numbers / numbers.std(axis=0).clip(1e-9), labels, tree, 500


def models():
    """Four kinds of model, each with its library's habits of being too sure or not sure enough."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    return {
        "logistic": LogisticRegression(C=100.0, max_iter=300),
        "forest": RandomForestClassifier(100, min_samples_leaf=2, random_state=0, n_jobs=2),
        "network": MLPClassifier((64,), alpha=0, max_iter=150, random_state=0),
        "boosting": HistGradientBoostingClassifier(max_iter=60, random_state=0),
    }


SETS = {"massive": massive, "kdd": kdd, "support2": support2, "nbaiot": nbaiot}
SKIPPED = {("massive", "boosting")}  # it takes no sparse words


def write_pairs(folder, out, quick):
    """One file for each model and data set, and one whose labels are drawn as predicted."""
    for name in ("support2",) if quick else SETS:
        x, labels, tree, n_train = SETS[name](folder)
        rest = np.arange(n_train, len(labels))
        groups = np.random.default_rng(0).choice(["app", "web", "phone"], len(labels))
        for kind, model in models().items():
            if (name, kind) in SKIPPED or (quick and kind not in {"logistic", "forest"}):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it is not meant to converge
                model.fit(x[:n_train], labels[:n_train])
            kept = rest[np.isin(labels[rest], model.classes_)]
            p = model.predict_proba(x[kept]).clip(1e-6)
            p /= p.sum(axis=1, keepdims=True)
            save(out / "pairs" / f"{name}-{kind}.npz", p, labels[kept], model.classes_, tree,
                 group=groups[kept])  # fmt: skip
            if kind == "logistic":
                drawn = p.cumsum(axis=1) < np.random.default_rng(1).random((len(p), 1))
                save(out / "pairs" / f"{name}-calibrated.npz", p,
                     model.classes_[drawn.sum(axis=1).clip(max=p.shape[1] - 1)], model.classes_,
                     tree, group=groups[kept])  # fmt: skip


def save(path, p, labels, classes, tree, **more):
    """Arrays without objects, so that every environment can read them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    more = {key: np.asarray(value) for key, value in more.items()}
    if "group" in more:
        more["group"] = more["group"].astype(str)
    np.savez(
        path,
        probabilities=p / p.sum(axis=1, keepdims=True),
        labels=np.asarray(labels, dtype=str),
        classes=np.asarray(classes, dtype=str),
        tree=json.dumps(tree),
        **more,
    )


def write_stream(out, name, log, classes, tree, n_rows, *, branch, subgroup, faulty):
    """One stream; ``faulty`` is the first bad day, or -1."""
    p = log[[f"p_{leaf}" for leaf in classes]].to_numpy()
    day = np.arange(len(log)) // n_rows
    save(out / "streams" / f"{name}.npz", p, log["label"], classes, tree, day=day,
         group=log["channel"], branch=branch, subgroup=subgroup, faulty=faulty)  # fmt: skip


def without_one_attack(folder):
    """Held-out predictions of a model that never saw one attack."""
    from sklearn.neural_network import MLPClassifier

    x, labels, tree, n_train = kdd(folder)
    known = labels[:n_train] != NEW_ATTACK
    model = MLPClassifier((64,), alpha=0, max_iter=600, learning_rate_init=0.01, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[:n_train][known], labels[:n_train][known])
    classes = np.array(sorted({*model.classes_, NEW_ATTACK}))
    rest = np.arange(n_train, len(labels))
    rest = rest[np.isin(labels[rest], classes)]
    p = np.zeros((len(rest), len(classes)))
    p[:, np.isin(classes, model.classes_)] = model.predict_proba(x[rest])
    return p, labels[rest], classes, tree


def new_attack(held, seed, n_rows, fault):
    """A real fault: the attack that the model never saw is 3 % of the traffic from one day on."""
    p, labels, classes, _ = held
    new = labels == NEW_ATTACK
    rng = np.random.default_rng([seed, 7])
    days = DAYS if fault else CLEAN_DAYS
    rows = rng.choice(np.flatnonzero(~new), days * n_rows)
    late = np.arange(len(rows)) >= FAULTY_FROM * n_rows
    hit = late & (rng.random(len(rows)) < 0.03) & fault
    rows[hit] = rng.choice(np.flatnonzero(new), hit.sum())
    log = pd.DataFrame(p[rows], columns=[f"p_{leaf}" for leaf in classes])
    log["channel"] = rng.choice(["app", "web", "phone"], len(rows))
    log["label"] = labels[rows]
    return log


def write_streams(folder, out, seeds):
    """Faults planted in three data sets, a real one in the fourth stream, and days without any."""
    held = {name: predictions(name, folder) for name in ("massive", "kdd")}
    x, labels, tree, n_train = support2(folder)
    model = models()["network"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x[:n_train], labels[:n_train])
    p = model.predict_proba(x[n_train:]).clip(1e-7)
    held["support2"] = (p, labels[n_train:], model.classes_, tree)
    attack = without_one_attack(folder)
    pairs = {**PAIRS, "support2": ("milder", "y1", "y2")}
    for seed in seeds:
        for name, (branch, *_) in pairs.items():
            for fault in ("swap", "noise", "none"):
                if (name, fault) == ("support2", "noise"):
                    continue
                days = DAYS if fault != "none" else CLEAN_DAYS
                log = stream(held[name], pairs[name], 1_000, fault, seed, days)
                write_stream(out, f"{name}-{fault}-{seed}", log, held[name][2], held[name][3],
                             1_000, branch=branch, faulty=FAULTY_FROM if fault != "none" else -1,
                             subgroup="app" if fault == "swap" else "")  # fmt: skip
        for fault in (True, False):
            log = new_attack(attack, seed, 1_000, fault)
            name = f"attack-{'new' if fault else 'none'}-{seed}"
            write_stream(out, name, log, *attack[2:], 1_000, branch="dos", subgroup="",
                         faulty=FAULTY_FROM if fault else -1)  # fmt: skip


def write_segments(out, seeds):
    """Twelve features, and one branch off by 15 points where two conditions hold, or nowhere."""
    from discovery import make_rows

    (out / "segments").mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for name, off in (("planted", 0.15), ("calibrated", 0.0)):
            p, y, frame, inside = make_rows(20_000, 300 + seed, off=off)
            columns = {key: frame[key].to_numpy(dtype=str if key[0] == "t" else float)
                       for key in frame}  # fmt: skip
            path = out / "segments" / f"{name}-{seed}.npz"
            np.savez(path, p=p, y=y, score=p[:, :2].sum(axis=1), inside=inside, **columns)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one seed, three pairs")
    given = parser.parse_args()
    write_streams(given.data, given.out, range(1 if given.quick else given.seeds))
    write_pairs(given.data, given.out, given.quick)
    write_segments(given.out, range(2 if given.quick else 2 * given.seeds))


if __name__ == "__main__":
    main()
