"""Write what an older version leaves behind: a project with its state, a repair, an MLflow model.

Run it once, with the version whose files must stay readable: ``python make_old_state.py``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import huc_monitor as hm

HERE = Path(__file__).parent
STATE, MODEL = HERE / "old_state", HERE / "old_model"
FEATURES = ["f0", "f1", "f2"]


def save(path, data):
    path.write_text(json.dumps(data, allow_nan=False, indent=None) + "\n", "utf-8")


def write_state(cases):
    """Three days are checked, an alert is open, and the log of a fourth day lies beside them."""
    log, labels = cases.make_log(4, 300, broken_from=1, seed=30)
    log["version"] = "1"
    columns = [name for name in log if name.startswith("p_")]
    counts = np.floor(124 * log[columns].to_numpy()) + 1  # no zero, and files stay small
    counts[:, 0] += 128 - counts.sum(axis=1)
    log[columns] = counts / 128
    log = log.astype(dict.fromkeys(columns, np.float32))
    shutil.rmtree(STATE, ignore_errors=True)
    config = cases.write_project(STATE, log, labels, kind="parquet")
    text = config.read_text("utf-8").replace("labels.parquet", "labels")
    text = text.replace("{type: TopK, k: 2}", "{type: LevelCorrectness, level: 2, name: family}")
    text = text.replace("utility: top2", "utility: status").replace("value: 0.03", "value: 0.01")
    kept = [line for line in text.splitlines() if "Payoff" not in line]
    config.write_text("\n".join(kept) + "\n", "utf-8")
    (STATE / "labels.parquet").unlink()
    (STATE / "labels").mkdir()
    last = log["at"] >= pd.Timestamp(cases.after(3))
    early = labels["id"].isin(log["id"][~last])
    labels[early].to_parquet(STATE / "labels" / "first.parquet", index=False)
    day = next((STATE / "log").glob("day=2024-03-04"))
    (STATE / "next_day").mkdir()
    shutil.move(day, STATE / "next_day" / day.name)
    labels[~early].to_parquet(STATE / "next_day" / "labels.parquet", index=False)
    cases.checked(STATE, "2024-03-04T12:00")
    for lock in (STATE / "huc-state").rglob("lock"):
        lock.unlink()


def write_what_follows(cases):
    """Keep what the same version says next, with the log of the fourth day."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        shutil.copytree(STATE, folder)
        before = cases.command("status", "--json", folder=folder, codes=(0, 1))
        cases.add_a_day(folder)
        said = cases.checked(folder, "2024-03-05T12:00")
        expected = {"before": before, "said": cases.plain(said)}
    save(STATE / "expected.json", expected)


def write_repair(cases):
    tree = cases.triage()
    p, labels, frame = cases.rows_of(tree, 1500, seed=31)
    groups = hm.Subgroups.from_reference(frame, {"sex": "each", "age": [65]})
    boost = hm.HUCBoost(
        tree=tree, utilities=cases.levels(tree), subgroups=groups, initial="vector", mode="paper"
    )
    boost.max_updates = 12
    boost.fit(p, labels, features=frame)
    save(STATE / "repair.json", boost.to_dict())
    new, _, features = cases.rows_of(tree, 12, seed=32)
    answers = boost.predict_proba(new, features=features)
    rows = {"sex": features["sex"].tolist(), "age": features["age"].tolist()}
    given = {"probabilities": new.tolist(), "features": rows, "answers": answers.tolist()}
    save(STATE / "repair_answers.json", given)


def write_model(cases):
    import huc_mlflow
    import mlflow.sklearn
    from sklearn.linear_model import LogisticRegression

    tree = cases.triage()
    rng = np.random.default_rng(33)
    codes = rng.integers(0, tree.n_leaves, 1200)
    frame = pd.DataFrame(rng.normal(size=(1200, 3)), columns=FEATURES)
    frame["f0"] += 0.5 * codes
    frame["f1"] -= 0.3 * codes
    frame["sex"] = rng.choice(["f", "m"], 1200)
    labels = np.array(tree.leaves)[codes]
    base = LogisticRegression(C=4.0).fit(frame[FEATURES][:600], labels[:600])
    order = [list(base.classes_).index(leaf) for leaf in tree.leaves]
    p = base.predict_proba(frame[FEATURES][600:])[:, order]
    turned = np.where((frame["sex"] == "m") & (labels == "coma"), "limited", labels)[600:]
    groups = hm.Subgroups.from_reference(frame, {"sex": "each"})
    boost = hm.HUCBoost(
        tree=tree, utilities=cases.levels(tree), subgroups=groups, mode="paper", max_updates=10
    ).fit(p, turned, features=frame[600:])
    shutil.rmtree(MODEL, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.sklearn.save_model(
            base,
            f"{scratch}/base",
            signature=mlflow.models.infer_signature(frame[FEATURES], labels[:5]),
            pip_requirements=["scikit-learn", "mlflow"],
            serialization_format="pickle",
        )
        huc_mlflow.save_model(MODEL, f"{scratch}/base", boost)
        given = frame[:15]
        model = huc_mlflow.load_model(MODEL)
        pyfunc = mlflow.pyfunc.load_model(str(MODEL))
        named = pyfunc.predict(given, {"predict_method": "predict_proba"})
        decisions = pyfunc.predict(given, {"predict_method": "decision"})
    expected = {
        "input": given.to_dict(orient="list"),
        "classes": list(model.classes),
        "probabilities": np.asarray(model.predict_proba(given)).tolist(),
        "columns": list(named.columns),
        "named": named.to_numpy().tolist(),
        "labels": list(pyfunc.predict(given)),
        "decisions": decisions.to_dict(orient="list"),
    }
    for cache in list(MODEL.rglob("__pycache__")):
        shutil.rmtree(cache)
    save(HERE / "old_model_answers.json", expected)


def no_place_is_named():
    """Refuse files that name a folder of the machine they were written on."""
    found = subprocess.run(
        ["grep", "-rlE", "/(opt|work|root|tmp|home)/", str(STATE), str(MODEL)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not found.stdout, found.stdout


def main():
    from make_golden import load_cases  # a script beside this one

    cases = load_cases()
    write_state(cases)
    write_what_follows(cases)
    write_repair(cases)
    write_model(cases)
    no_place_is_named()


if __name__ == "__main__":
    main()
