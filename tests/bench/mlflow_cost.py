"""What it costs to serve a recalibrated model and to log windows, in processor time.

Run: python tests/bench/mlflow_cost.py. Prints one JSON line of ratios measured in one run.
"""

from __future__ import annotations

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
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.monitor.records import WindowRecord

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


def a_wide_record(ordinal, n_nodes=125):
    """A window with four metrics for each of so many nodes."""
    from support.report_cases import audit_dict, candidate

    rng = np.random.default_rng(ordinal)
    moments = rng.normal(scale=0.02, size=n_nodes)
    rows = [candidate(node=f"node {k}", moment=float(m), radius=0.1) for k, m in enumerate(moments)]
    start = DAY + timedelta(days=ordinal - 1)
    return WindowRecord(
        monitor=INFO.name,
        identity=INFO.identity,
        window_id=f"{ordinal:04x}",
        ordinal=ordinal,
        start=start,
        end=start + timedelta(days=1),
        due_at=start + timedelta(days=1),
        status="audited",
        audit=audit_dict(rows, TREE),
        tolerances=(0.02,) * n_nodes,
        levels=(None,) * n_nodes,
    )


def logging_growth(folder):
    """Median time of the last ten windows over that of the first ten: 500 metrics each."""
    mine = MLflowTracker(INFO, tracking_uri=f"sqlite:///{folder}/mlflow.db")
    mine._pages = lambda _: {}  # these records are made of JSON alone and cannot be drawn
    taken = []
    for ordinal in range(1, 101):
        record = a_wide_record(ordinal)
        start = time.process_time()
        mine.record(record)
        taken.append(time.process_time() - start)
    return float(np.median(taken[-10:]) / np.median(taken[:10]))


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
    }


def main():
    """Measure and print."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        mlflow.create_experiment("cost", (folder / "artifacts").as_uri())
        mlflow.set_experiment("cost")
        found = {"logging_last_over_first": round(logging_growth(folder), 2), **serving(folder)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
