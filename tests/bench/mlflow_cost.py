"""What it costs to serve a recalibrated model and to log windows, in processor time.

Run: python tests/bench/mlflow_cost.py. Prints one JSON line of ratios measured in one run. With a
folder as argument, windows of a tree of 1,000 nodes alone are logged, and kept there to look at:
mlflow server --backend-store-uri sqlite:///FOLDER/mlflow.db.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import time
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import huc_mlflow
import mlflow
import numpy as np
import pandas as pd
from huc_mlflow._tracker import MLflowTracker

import huc_monitor as hm
from huc_monitor._common.safe_text import file_name
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.monitor.records import AlertState, WindowRecord

sys.path.insert(0, str(Path(__file__).parents[1]))

INFO = MonitorInfo("triage", "0123456789abcdef", model="triage")
DAY = datetime(2024, 3, 1, tzinfo=UTC)
FEATURES = ["f0", "f1", "f2", "f3"]
TREE = hm.LabelTree.from_nested(
    {"survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]}, "died": None}
)


def make_rows(n, seed):
    """Rows of a fixed world, with labels of a softmax in four features."""
    world = np.random.default_rng(7).normal(size=(len(FEATURES), TREE.n_leaves))
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, len(FEATURES))), columns=FEATURES)
    frame["sex"] = np.where(rng.random(n) < 0.5, "f", "m")
    scores = frame[FEATURES].to_numpy() @ world + rng.gumbel(size=(n, TREE.n_leaves))
    return frame, np.array(TREE.leaves)[scores.argmax(axis=1)]


def seconds(*functions, times, clock=time.perf_counter):
    """Least time of each function, called in turn: what else the machine does falls on all."""
    found = [[] for _ in functions]
    for _ in range(times):
        for taken, function in zip(found, functions, strict=True):
            start = clock()
            function()
            taken.append(clock() - start)
    return [min(taken) for taken in found]


def a_taxonomy():
    """A tree of 1,000 nodes, four children each, and nine regions."""
    inner = {
        f"n{k}": [f"n{4 * k + j}" for j in range(1, 5) if 4 * k + j < 1000] for k in range(250)
    }
    tree = hm.LabelTree.from_parents(
        {child: node for node, children in inner.items() for child in children}
    )
    assert tree.n_leaves + len(tree.nodes) == 1000
    return tree


def audited_windows(tree, n_rows=2000):
    """Audits of a calm window and of one in which a branch of one region is at fault."""
    utilities = [hm.LevelCorrectness(level=level) for level in (2, 4)] + [hm.TopK(1)]
    rng = np.random.default_rng(5)
    features = pd.DataFrame({"region": [f"r{k}" for k in rng.integers(0, 9, n_rows)]})
    groups = hm.Subgroups.from_reference(features, {"region": "each"})
    guilty = [tree.leaf_index(leaf) for leaf in tree.leaves_under("n3")]
    p = np.full((n_rows, tree.n_leaves), 0.2 / tree.n_leaves)
    best = rng.integers(0, tree.n_leaves, n_rows)
    best[: n_rows // 2] = rng.choice(guilty, n_rows // 2)
    p[np.arange(n_rows), best] += 0.8
    kept = rng.random(n_rows) < 0.8
    calm = np.where(kept, best, rng.integers(0, tree.n_leaves, n_rows))
    bad = calm.copy()
    hit = np.isin(best, guilty) & (features["region"] == "r3").to_numpy()
    bad[hit] = rng.choice(guilty, hit.sum())
    about = {"tree": tree, "utilities": utilities, "subgroups": groups, "features": features}
    return [hm.audit(p, labels, n_draws=200, **about) for labels in (calm, bad)]


def a_wide_record(ordinal, result, tolerance=0.02):
    """A window of a wide tree; what exceeds the tolerance for sure is an open alert."""
    start = DAY + timedelta(days=ordinal - 1)
    table = result.candidates
    beyond = [row for row in range(table.n) if table.lower[row] > tolerance]
    times = {"first_seen": DAY + timedelta(days=59), "last_seen": start}
    counts = {"first_ordinal": 60, "last_ordinal": ordinal, "n_windows": 1}
    alerts = tuple(
        AlertState(
            utility=table.utility[row],
            subgroup=table.subgroup[row],
            node=table.node[row],
            level="critical",
            moment=float(table.moment[row]),
            tolerance=tolerance,
            **times,
            **counts,
        )
        for row in beyond
    )
    return WindowRecord(
        monitor=INFO.name,
        identity=INFO.identity,
        window_id=f"{ordinal:04x}",
        ordinal=ordinal,
        start=start,
        end=start + timedelta(days=1),
        due_at=start + timedelta(days=1),
        status="audited",
        n_predictions=2100,
        n_labelled=2000,
        coverage=2000 / 2100,
        model_version="1",
        audit=result.to_dict(),
        tolerances=(tolerance,) * table.n,
        levels=(None,) * table.n,
        alerts=alerts,
    )


def logging_windows(folder, n_windows=100):
    """Processor time of the last ten windows over that of the first ten, and keys per run."""
    from sklearn.dummy import DummyClassifier

    tree = a_taxonomy()
    calm, bad = audited_windows(tree)
    info = dataclasses.replace(INFO, tree=tree)
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    for name in ("served", f"huc-monitor/{INFO.name}"):
        mlflow.create_experiment(name, (folder / file_name(name)).as_uri())
    mlflow.set_experiment("served")
    served = DummyClassifier().fit([[0.0]], ["n999"])
    mlflow.sklearn.log_model(
        served, name=INFO.model, registered_model_name=INFO.model, pip_requirements=["mlflow"]
    )
    mine = MLflowTracker(info)
    # Drawn once: it takes seconds, and the same for every window.
    drawn = {
        ordinal: mine._pages(a_wide_record(ordinal, found))
        for ordinal, found in ((1, calm), (60, bad))
    }
    mine._pages = lambda record: drawn[1 if record.ordinal < 60 else 60]
    taken = []
    for ordinal in range(1, n_windows + 1):
        record = a_wide_record(ordinal, calm if ordinal < 60 else bad)
        start = time.process_time()
        mine.record(record)
        mine.set_alert_status("critical" if record.alerts else "ok", record.alerts)
        taken.append(time.process_time() - start)
    runs = [mine._client.get_run(mine.run_id), *mine.runs.search("window")]
    keys = [len(run.data.metrics) for run in runs]
    return {
        "candidates": int(calm.candidates.n),
        "alerts": len(a_wide_record(60, bad).alerts),
        "most_keys_of_a_run": max(keys),
        "keys_of_the_monitor_run": keys[0],
        "window_s": round(float(np.median(taken)), 2),
        "logging_last_over_first": round(float(np.median(taken[-10:]) / np.median(taken[:10])), 2),
    }


def folder_size(folder):
    """Megabytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def serving(folder):
    """Predictions with 100 updates, over those of the base, a forest of 100 trees."""
    from sklearn.ensemble import RandomForestClassifier

    train, y = make_rows(4000, 3)
    forest = RandomForestClassifier(100, random_state=0).fit(train[FEATURES], y)
    info = mlflow.sklearn.log_model(
        forest,
        name="forest",
        signature=mlflow.models.infer_signature(train[FEATURES], y),
        pip_requirements=["scikit-learn", "mlflow"],
        serialization_format="pickle",
    )
    frame, labels = make_rows(10_000, 4)
    order = [list(forest.classes_).index(leaf) for leaf in TREE.leaves]
    p = forest.predict_proba(frame[FEATURES])[:, order]
    boost = hm.HUCBoost(
        tree=TREE,
        utilities=[hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=3)],
        subgroups=hm.Subgroups.from_reference(frame, {"sex": "each", "f0": [0.0]}),
        initial="temperature",
        mode="paper",
        tolerance=1e-6,
        max_updates=100,
    ).fit(p, labels, features=frame)
    huc_mlflow.save_model(folder / "saved", info, boost)
    base = mlflow.pyfunc.load_model(info.model_uri)
    os.environ["HUC_MONITOR_KERNELS"] = "off"
    plainly = mlflow.pyfunc.load_model(str(folder / "saved"))
    del os.environ["HUC_MONITOR_KERNELS"]
    start = time.perf_counter()
    model = mlflow.pyfunc.load_model(str(folder / "saved"))
    loading = time.perf_counter() - start
    local = Path(mlflow.artifacts.download_artifacts(info.model_uri))
    start = time.perf_counter()
    mlflow.pyfunc.load_model(str(local))
    base_loading = time.perf_counter() - start
    plain, one = frame[FEATURES], frame.head(1)
    few = one[FEATURES]
    base.predict(few)
    start = time.perf_counter()
    model.predict(one)
    first = time.perf_counter() - start
    one_alone, one_wrapped, one_numpy = seconds(
        lambda: base.predict(few),
        lambda: model.predict(one),
        lambda: plainly.predict(one),
        times=300,
    )
    work = (
        lambda: base.predict(plain),
        lambda: model.predict(frame),
        lambda: boost.predict_proba(p, features=frame),
    )
    alone, wrapped, repair = seconds(*work, times=15)
    cpu_alone, cpu_wrapped, _ = seconds(*work, times=7, clock=time.process_time)
    return {
        "updates": len(boost.updates_),
        "rows_10000_over_base": round(wrapped / alone, 2),
        "rows_10000_over_base_cpu": round(cpu_wrapped / cpu_alone, 2),
        "updates_alone_over_base": round(repair / alone, 2),
        "one_row_extra_ms": round(1e3 * (one_wrapped - one_alone), 2),
        "one_row_extra_ms_numpy": round(1e3 * (one_numpy - one_alone), 2),
        "first_request_ms": round(1e3 * first, 1),
        "load_s": round(loading, 2),
        "base_load_s": round(base_loading, 2),
        "folder_mb": round(folder_size(folder / "saved"), 2),
        "base_folder_mb": round(folder_size(local), 2),
    }


def main():
    """Measure and print."""
    warnings.simplefilter("ignore")
    if sys.argv[1:]:
        folder = Path(sys.argv[1]).resolve()
        folder.mkdir(parents=True)
        print(json.dumps(logging_windows(folder)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {**logging_windows(folder), **serving(folder)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
