"""What the library computes, case by case, as plain data that can be compared bit for bit.

Cases use public names only, so that they say nothing about where code lives. Numbers are kept as
JSON writes them, which loses no bit; long arrays are kept as a hash of their bytes with their first
values.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import platform
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from datetime import date, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

import huc_monitor as hm
from huc_monitor.cli import main
from huc_monitor.sources import Columns, FrameTable, LabelTable, TableSource

_SHORT = 10
_FIRST = 3
_ROWS = 8
_FIELD = 160

# Plain data.


def plain(value):
    """JSON-safe and small; every bit of every number counts in the result."""
    if isinstance(value, pd.DataFrame):
        return {str(name): plain(value[name].tolist()) for name in value}
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return _list(list(value))
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _array(array):
    if array.size <= _SHORT:
        return plain(array.tolist())
    flat = np.ascontiguousarray(array)
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "sha256": hashlib.sha256(flat.tobytes()).hexdigest(),
        "first": plain(flat.ravel()[:_FIRST].tolist()),
    }


def _list(items):
    keys = [tuple(item) for item in items if isinstance(item, Mapping)]
    if len(items) > _ROWS and len(keys) == len(items) and len(set(keys)) == 1:
        return {"rows": len(items), **{key: plain([row[key] for row in items]) for key in keys[0]}}
    if len(items) <= _SHORT:
        return [plain(item) for item in items]
    text = json.dumps([_whole(item) for item in items])
    return {
        "n": len(items),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "first": [plain(item) for item in items[:_FIRST]],
    }


def _whole(value):
    """JSON-safe, with nothing left out."""
    if isinstance(value, np.ndarray | np.generic):
        return _whole(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return plain(value)


def brief(data):
    """Keep short fields as they are, and of long ones a hash."""
    answer = {}
    for name, value in data.items():
        text = json.dumps(_whole(value))
        long = len(text) > _FIELD
        answer[name] = {"sha256": hashlib.sha256(text.encode()).hexdigest()} if long else value
    return answer


def briefly(records):
    """Keep the last of many records in full, of the others a hash for each long field."""
    *others, last = records.items()
    return {**{key: brief(record) for key, record in others}, last[0]: last[1]}


def arithmetic():
    """Say on what the last bits depend: libraries, and the processor's functions and sums."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=4096)
    square = x[:1024].reshape(32, 32)
    probe = [np.exp(x), np.log(np.abs(x)), np.log1p(x**2), square @ square, np.array([x.sum()])]
    probe += [np.array([x[:n] @ x[-n:] for n in (5, 100, 4000)]), square @ x[:32]]
    names = ("numpy", "scipy", "numba", "llvmlite", "pandas", "scikit-learn", "duckdb")
    return {
        "machine": platform.machine(),
        "probe": hashlib.sha256(b"".join(part.tobytes() for part in probe)).hexdigest(),
        **{name: version(name) for name in names},
    }


# Trees, utilities and rows.


def triage():
    return hm.LabelTree.from_nested(
        {"survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]}, "died": None}
    )


def deep():
    """Unbalanced, nine levels down, with a node of one child and one of five."""
    nested = {"z1": None, "z2": None}
    for level in range(7):
        nested = {f"leaf{level}": None, f"node{level}": nested}
    nested["wide"] = [f"w{k}" for k in range(5)]
    nested["lonely"] = {"only": ["one", "two"]}
    return hm.LabelTree.from_nested(nested)


def wide():
    return hm.LabelTree.from_nested(
        {f"g{i}": {f"h{i}{j}": [f"l{i}{j}{k}" for k in range(3)] for j in range(3)} for i in "abcd"}
    )


def squares(p):
    return 2 * p**2 - 1


def families(tree):
    """One utility of every family."""
    leaves = tree.leaves
    return [
        hm.Payoff("payoff", {leaf: (k % 5 - 2) / 2 for k, leaf in enumerate(leaves)}),
        hm.Payoff("cost", {leaves[0]: -300, leaves[-1]: 40}, units="EUR", scale=300),
        hm.SubtreeIndicator(node=tree.branches[1]),
        hm.RankPayoff("rank", [1, 0.5, 0.125, -0.25]),
        hm.TopK(2),
        hm.ActionPayoff(
            "action",
            {
                "home": {leaf: (k % 3 - 1) * 0.75 for k, leaf in enumerate(leaves)},
                "keep": {leaf: (k % 4 - 2) * 0.375 for k, leaf in enumerate(leaves)},
                "none": {leaves[0]: 0.25},
            },
        ),
        hm.BinaryAction("binary", active=leaves[:4], favours=leaves[:2], threshold=0.375),
        hm.LevelCorrectness(level=1),
        hm.LevelCorrectness(level=tree.height),
        hm.GreedyPathCorrectness(level=2),
        hm.SelectiveReport(group_threshold=0.5, leaf_threshold=0.625, level=1),
        hm.CustomUtility("custom", squares),
    ]


def levels(tree):
    return [hm.LevelCorrectness(level=k) for k in range(1, tree.height + 1)]


def rows_of(tree, n, *, seed, tilt=0.6, sharpness=1.2):
    """Predictions, labels that are not quite theirs, and features that say for whom."""
    rng = np.random.default_rng(seed)
    k = tree.n_leaves
    p = rng.dirichlet(np.full(k, sharpness), n)
    frame = pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], n),
            "age": rng.integers(18, 96, n),
            "load": rng.gamma(2.0, 1.0, n),
            "lean": rng.uniform(-1, 1, n),
        }
    )
    shift = tilt * np.cos(np.arange(k)) * np.where(frame["sex"] == "m", 1.0, -0.25)[:, None]
    truth = p * np.exp(shift)
    truth /= truth.sum(axis=1, keepdims=True)
    codes = (truth.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(max=k - 1)
    return p, np.array(tree.leaves)[codes], frame


def everyone(frame):
    """Groups by value, cut points, quantiles, predicates and a weight."""
    return hm.Subgroups.from_reference(
        frame,
        {"sex": "each", "age": [40, 65, 80], "load": {"quantiles": [0.25, 0.5, 0.9]}},
        predicates={
            "old men": {
                "and": [
                    {"column": "sex", "op": "==", "value": "m"},
                    {"not": {"column": "age", "op": "<", "value": 70}},
                ]
            }
        },
        weights={"lean": "lean"},
        min_size=20,
    )


# Audits.


def audit_of_two_errors_that_cancel():
    tree = hm.LabelTree.from_nested({"ward": ["worse", "stable"], "home": ["slow", "well"]})
    outcome = hm.Payoff("outcome", {"worse": -1, "stable": 1, "slow": 1, "well": 1})
    happened = ["worse", "worse", "slow", "slow", "slow", "well", "well", "well"]
    given = {"tree": tree, "utilities": [outcome]}
    results = {
        str(bounds): hm.audit([[0.25] * 4] * 8, happened, bounds=bounds, **given).to_dict()
        for bounds in (None, "theorem", "sharp", "bootstrap")
    }
    return plain({"tree": tree.to_dict(), "results": results})


def audit_of_every_family():
    tree = triage()
    p, labels, _ = rows_of(tree, 700, seed=1)
    results = {
        str(bounds): hm.audit(
            p, labels, tree=tree, utilities=families(tree), bounds=bounds, n_draws=100, rng=5
        ).to_dict()
        for bounds in (None, "sharp", "bootstrap")
    }
    return plain(results)


def audit_of_a_deep_tree():
    tree = deep()
    p, labels, frame = rows_of(tree, 900, seed=2, sharpness=0.8)
    groups = hm.Subgroups.from_reference(frame, {"sex": "each", "age": "median"})
    given = {"tree": tree, "utilities": families(tree), "subgroups": groups, "features": frame}
    results = {
        bounds: hm.audit(p, labels, bounds=bounds, n_draws=100, **given).to_dict()
        for bounds in ("theorem", "bootstrap")
    }
    return plain({"tree": tree.to_dict(), "fingerprint": tree.fingerprint, "results": results})


def audit_for_whom():
    tree = triage()
    p, labels, frame = rows_of(tree, 1200, seed=3)
    frame["age"] = frame["age"].astype(float)
    frame.loc[::17, "age"] = np.nan
    groups = everyone(frame)
    given = {"tree": tree, "utilities": levels(tree), "subgroups": groups, "features": frame}
    results = {
        bounds: hm.audit(p, labels, bounds=bounds, confidence_level=0.9, n_draws=200, **given)
        for bounds in ("bootstrap", "sharp", "theorem")
    }
    found = {bounds: result.to_dict() for bounds, result in results.items()}
    return plain(
        {"groups": groups.to_dict(), "sizes": groups.describe(frame), "found": found},
    )


def audit_with_whole_weights():
    tree = triage()
    p, labels, frame = rows_of(tree, 500, seed=4)
    weights = np.random.default_rng(40).integers(0, 4, len(p))
    given = {"tree": tree, "utilities": levels(tree), "features": frame, "weights": weights}
    results = {
        str(bounds): hm.audit(p, labels, subgroups=everyone(frame), bounds=bounds, **given)
        for bounds in (None, "sharp", "bootstrap")
    }
    return plain({bounds: result.to_dict() for bounds, result in results.items()})


def audit_with_fractional_weights():
    tree = triage()
    p, labels, frame = rows_of(tree, 500, seed=5)
    weights = np.random.default_rng(50).gamma(0.7, 1.3, len(p))
    weights[::11] = 0.0
    given = {"tree": tree, "utilities": families(tree), "features": frame, "weights": weights}
    groups = hm.Subgroups.from_reference(frame, {"age": [50]}, weights={"lean": "lean"})
    results = {
        bounds: hm.audit(p, labels, subgroups=groups, bounds=bounds, n_draws=150, **given)
        for bounds in ("theorem", "sharp", "bootstrap")
    }
    return plain({bounds: result.to_dict() for bounds, result in results.items()})


def audit_of_ties():
    tree = triage()
    rng = np.random.default_rng(6)
    cuts = np.sort(rng.integers(0, 60, (7, tree.n_leaves - 1)), axis=1)
    pool = np.diff(np.hstack([np.zeros((7, 1)), cuts, np.full((7, 1), 59)]), axis=1) + 1
    p = (pool / 64)[rng.integers(0, 7, 600)]
    labels = rng.integers(0, tree.n_leaves, 600)
    given = {"tree": tree, "utilities": families(tree)}
    results = {
        str(bounds): hm.audit(p, labels, bounds=bounds, n_draws=100, rng=1, **given).to_dict()
        for bounds in (None, "bootstrap")
    }
    return plain(results)


def audit_of_zero_probabilities():
    tree = deep()
    p, labels, frame = rows_of(tree, 400, seed=7)
    p = np.where(p < 0.04, 0.0, p)
    p[3] = np.eye(tree.n_leaves)[2]
    p /= p.sum(axis=1, keepdims=True)
    leaf_frame = pd.DataFrame(p, columns=tree.leaves).iloc[:, ::-1]
    groups = hm.Subgroups.from_reference(frame, {"sex": "each"})
    result = hm.audit(
        leaf_frame,
        labels,
        tree=tree,
        utilities=families(tree),
        subgroups=groups,
        features=frame,
        n_draws=100,
    )
    return plain({"interiorized": result.interiorized, **result.to_dict()})


def audit_of_many_rows_and_leaves():
    tree = wide()
    p, labels, frame = rows_of(tree, 9000, seed=8, sharpness=0.5)
    groups = hm.Subgroups.from_reference(frame, {"sex": "each", "age": [40, 65]})
    given = {"tree": tree, "utilities": [*levels(tree), hm.TopK(3)], "subgroups": groups}
    result = hm.audit(p.astype(np.float32), labels, features=frame, n_draws=100, **given)
    return plain(result.to_dict())


def what_a_result_answers():
    tree = triage()
    p, labels, frame = rows_of(tree, 800, seed=9)
    groups = hm.Subgroups.from_reference(frame, {"sex": "each"})
    given = {"tree": tree, "utilities": levels(tree), "subgroups": groups, "features": frame}
    result = hm.audit(p, labels, n_draws=150, **given)
    worst = result.worst
    return plain(
        {
            "result": repr(result),
            "worst": {name: getattr(worst, name) for name in worst.__slots__},
            "worst in words": repr(worst),
            "bounds": [result.huc, result.uc, result.huc_lower, result.huc_upper, result.n],
            "frame": result.to_frame(all_columns=True),
            "uc": result.uc_frame(),
            "violations": result.violations(0.01),
            "guarantee": [result.guarantee("level2"), result.guarantee("level1", ["root"])],
            "p value": result.p_value_calibrated(p, features=frame, n_draws=49, rng=3),
        }
    )


def decompositions():
    answer = {}
    for name, tree in (("triage", triage()), ("deep", deep())):
        p, labels, _ = rows_of(tree, 300, seed=10)
        rows = hm.decompose(p, labels, tree=tree, utilities=families(tree))
        answer[name] = {
            row.utility.name: {
                "relevant": [tree.branches[branch] for branch in row.relevant],
                "spreads": row.utility.spreads(tree),
                "values": np.asarray(row.utility.values(p, tree=tree)),
                "columns": list(row.to_frame().columns),
                "rows": row.to_frame().to_numpy(),
            }
            for row in rows
        }
    return plain(answer)


# Sequential.


def batches(tree, n_batches, *, seed, size=300, broken_from=4):
    for batch in range(n_batches):
        tilt = 1.2 if batch >= broken_from else 0.0
        yield rows_of(tree, size + 7 * batch, seed=1000 * seed + batch, tilt=tilt)


def detector_that_restarts():
    tree = triage()
    _, _, frame = rows_of(tree, 500, seed=11)
    groups = hm.Subgroups.from_reference(frame, {"sex": "each", "age": [65]})
    detector = hm.EDetector(
        tree=tree, utilities=families(tree)[:-1], subgroups=groups, tolerance=0.02
    )
    steps = [detector.update(*batch).to_dict() for batch in batches(tree, 9, seed=11)]
    state = detector.to_dict()
    return plain({"steps": steps, "candidates": detector.candidates, "state": state})


def detector_that_is_resumed():
    tree = triage()
    _, _, frame = rows_of(tree, 500, seed=12)
    groups = hm.Subgroups.from_reference(frame, {"sex": "each"}, weights={"lean": "lean"})
    given = {"tree": tree, "utilities": levels(tree), "subgroups": groups}
    n = len(hm.EDetector(tolerance=0.0, **given).candidates)
    detector = hm.EDetector(
        tolerance=[0.01 + 0.001 * k for k in range(n)],
        average_run_length=40,
        memory=700,
        after_alarm="continue",
        **given,
    )
    steps, states = [], []
    for number, batch in enumerate(batches(tree, 8, seed=12, broken_from=3)):
        if number == 5:
            steps.append(detector.update(np.empty((0, tree.n_leaves)), []).to_dict())
        if number == 6:
            detector.reset("a new version")
        steps.append(detector.update(*batch).to_dict())
        states.append(detector.to_dict())
        detector = hm.EDetector.from_dict(json.loads(json.dumps(states[-1])))
    return plain({"steps": steps, "middle": states[4], "end": states[-1]})


# Recalibration.


def _of_boost(boost, tree, *, seed):
    new, _, features = rows_of(tree, 120, seed=seed)
    answers = boost.predict_proba(new, features=features)
    again = type(boost).from_dict(json.loads(json.dumps(boost.to_dict())))
    assert np.array_equal(again.predict_proba(new, features=features), answers)
    return {
        "saved": without_retired(boost.to_dict()),
        "history": boost.history_,
        "answers": answers,
    }


def without_retired(data):
    """A recalibrator's JSON form without the settings that moved to the paper's own runs."""
    for part in (data, data.get("settings"), data.get("initial")):
        for name in ("perturbation", "checkpoints", "perturbation_width"):
            (part or {}).pop(name, None)
    return data


def boost_by_default():
    """Noise-aware, as `HUCBoost` is when nothing is asked for."""
    tree = triage()
    p, labels, frame = rows_of(tree, 1500, seed=13)
    plainest = hm.HUCBoost(tree=tree, utilities=levels(tree)).fit(p, labels)
    groups = hm.Subgroups.from_reference(frame, {"sex": "each", "age": [40, 65]})
    grouped = hm.HUCBoost(tree=tree, utilities=levels(tree), subgroups=groups)
    grouped.fit(p, labels, features=frame)
    return plain(
        {
            "plain": _of_boost(plainest, tree, seed=130),
            "grouped": _of_boost(grouped, tree, seed=131),
        }
    )


def boost_of_a_deep_tree_with_weights():
    tree = deep()
    p, labels, frame = rows_of(tree, 1200, seed=14)
    weights = np.random.default_rng(14).integers(1, 4, len(p))
    groups = hm.Subgroups.from_reference(frame, {"sex": "each"})
    boost = hm.HUCBoost(
        tree=tree,
        utilities=[*levels(tree)[:3], hm.TopK(2)],
        subgroups=groups,
        shrinkage="lower",
        confidence_level=0.8,
        rng=4,
    )
    boost.fit(p, labels, features=frame, weights=weights)
    return plain(_of_boost(boost, tree, seed=140))


def boost_of_the_paper():
    tree = triage()
    p, labels, frame = rows_of(tree, 800, seed=15)
    held = rows_of(tree, 400, seed=150)
    groups = hm.Subgroups.from_reference(frame, {"sex": "each"})
    given = {"tree": tree, "utilities": levels(tree), "subgroups": groups, "mode": "paper"}
    kinds = {
        "passes": {"max_updates": 25, "selection": "huc"},
        "largest": {"traversal": "largest", "max_updates": 15, "step": 0.02, "selection": "last"},
        "three": {"max_passes": 3, "selection": "log_loss"},
        "early": {"max_passes": 9, "selection": "uc", "early_stopping": 4},
    }
    answer = {}
    for name, options in kinds.items():
        boost = hm.HUCBoost(**given, **options)
        boost.fit(p, labels, features=frame, validation=held)
        answer[name] = _of_boost(boost, tree, seed=151)
    return plain(answer)


def boost_of_the_sum():
    tree = triage()
    p, labels, frame = rows_of(tree, 800, seed=16)
    groups = hm.Subgroups.from_reference(frame, {"sex": "each"})
    boost = hm.UCBoost(tree=tree, utilities=families(tree)[:-1], subgroups=groups, max_updates=30)
    return plain(_of_boost(boost.fit(p, labels, features=frame), tree, seed=160))


def boost_after_a_scaling():
    tree = triage()
    p, labels, _ = rows_of(tree, 900, seed=17)
    given = {"tree": tree, "utilities": levels(tree), "mode": "paper", "max_updates": 6}
    answer = {}
    for initial in ("temperature", "vector", "dirichlet", "auto"):
        boost = hm.HUCBoost(initial=initial, **given)
        answer[initial] = _of_boost(boost.fit(p, labels), tree, seed=170)
    return plain(answer)


def scalings():
    tree = triage()
    p, labels, _ = rows_of(tree, 600, seed=18)
    weights = np.random.default_rng(18).gamma(2.0, 0.5, len(p))
    held = rows_of(tree, 300, seed=180)[:2]
    new = rows_of(tree, 90, seed=181)[0]
    new[0] = np.eye(tree.n_leaves)[1]
    kinds = (hm.TemperatureScaling, hm.VectorScaling, hm.DirichletScaling)
    answer = {}
    for kind in kinds:
        options = {} if kind is hm.TemperatureScaling else {"regularization": 0.03}
        for name, given, extra in (
            ("folds", {}, {}),
            ("validation", {}, {"validation": held, "weights": weights}),
            ("given", options, {"weights": weights}),
        ):
            scaling = kind(**given).fit(p, labels, tree=tree, **extra)
            answer[f"{kind.__name__}, {name}"] = {
                "saved": without_retired(scaling.to_dict()),
                "held out": scaling.held_out_log_loss_,
                "answers": scaling.predict_proba(new),
            }
    return plain(answer)


def calibrated_classifier():
    from sklearn.naive_bayes import GaussianNB

    tree = triage()
    rng = np.random.default_rng(19)
    codes = rng.integers(0, tree.n_leaves, 900)
    given = pd.DataFrame(rng.normal(size=(900, 3)), columns=["a", "b", "c"])
    given["a"] += 0.6 * codes
    given["b"] *= 1 + 0.3 * codes
    labels = np.array(tree.leaves)[codes]
    answer = {}
    for method in ("noise_aware", "huc", "uc", "temperature"):
        model = hm.HUCCalibratedClassifier(
            GaussianNB(),
            tree=tree,
            utilities=levels(tree),
            subgroups=None if method == "temperature" else {"c": [0.0]},
            method=method,
            cv=3,
            boost_options=None if method == "temperature" else {"max_updates": 20},
        )
        model.fit(given[:600], labels[:600])
        answer[method] = {
            "saved": without_retired(model.recalibrator_.to_dict()),
            "answers": model.predict_proba(given[600:]),
            "labels": model.predict(given[600:]).tolist(),
        }
    return plain(answer)


# Planning.


def planning():
    tree = triage()
    p, labels, frame = rows_of(tree, 400, seed=20)
    groups = hm.Subgroups.from_reference(frame, {"sex": "each"})
    given = {"tree": tree, "utilities": levels(tree), "subgroups": groups, "features": frame}
    settings = (
        {"n_candidates": 84},
        {"n_candidates": 84, "mean_square": 0.04, "tolerance": 0.01},
        {"n_candidates": 7, "spread": 0.5, "confidence_level": 0.9, "mean_square": 0.01},
        {"n_candidates": 12, "quantile": 3.5},
    )
    table = [
        {
            "bounds": bounds,
            "detectable": [
                hm.detectable_size(n, bounds=bounds, **options) for n in (100, 2000, 1e5)
            ],
            "needed": [hm.labels_needed(s, bounds=bounds, **options) for s in (0.03, 0.1)],
        }
        for bounds in ("theorem", "sharp", "bootstrap")
        for options in settings
    ]
    delay = hm.simulate_alarm(
        p,
        candidate=("level2", "sex=m", "survived"),
        size=-0.08,
        tolerance=0.01,
        batch_size=150,
        n_before=3,
        max_batches=20,
        n_runs=4,
        **given,
    )
    return plain(
        {
            "table": {str(k): row for k, row in enumerate(table)},
            "pilot": hm.pilot_candidates(p, labels, **given),
            "delay": [delay.labels, delay.found, delay.median],
        }
    )


# Monitors.


TREE = {"normal": None, "attack": {"dos": ["neptune", "smurf"], "probe": ["satan", "nmap"]}}
FIRST_DAY = "2024-03-01T00:00Z"


def make_log(n_days, per_day, *, broken_from=None, late_share=0.0, seed=0):
    """Predictions by day and their labels; from a day on, udp's "dos" turns out as "probe"."""
    rng = np.random.default_rng(seed)
    n = n_days * per_day
    leaves = hm.LabelTree.from_nested(TREE).leaves
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
    log["version"] = np.where(day < n_days - 1, "1", "2")
    lag = rng.uniform(0, 6, size=n)
    lag = np.where(rng.random(n) < late_share, lag + 40.0, lag)
    known = at + pd.to_timedelta((lag * 3600).round(), unit="s")
    found = pd.DataFrame({"id": log["id"], "label": np.array(leaves)[labels], "known_at": known})
    return log, found.sample(frac=1.0, random_state=seed).reset_index(drop=True)


# Fields that came after the version whose numbers are kept, by what holds them. They are left out
# before anything is compared or hashed; any other new field is a difference.
ADDED = {
    "record": {
        "branch_coverage",
        "change",
        "familiar",
        "findings",
        "forecasts",
        "n_repeated",
        "n_relabelled",
        "time_zone",
    },
    "alerts": {"opened_moment", "exceeded_tolerance", "version"},
    "transitions": {"settings"},
    "drift": {"note", "version", "versions"},
    "state": {
        "by_value",
        "changed_since",
        "compared",
        "detectors",
        "file",
        "forecast_scores",
        "forecasts",
        "reference_rows",
        "reference_sampled",
        "trend",
        "reference_span",
        "remark",
        "standing",
        "tree",
        "tree_change",
    },
    "reference": {"pairs", "radii"},
    "audit": {"familiar"},
    "plan": {"notes"},
    "check": {"failed", "preview", "silences"},
    "status": {"failed", "mutes", "notes", "silences"},
    "windows": {"forecasts", "n_usable"},
}


def as_before(value, kind):
    """Leave out what was added since, here and in everything inside."""
    if isinstance(value, Mapping):
        kept = [name for name in value if name not in ADDED.get(kind, ())]
        return {name: as_before(value[name], name) for name in kept}
    if isinstance(value, list):
        return [as_before(item, kind) for item in value]
    if kind == "text" and isinstance(value, str):
        return value.split("\n\nNEXT\n")[0]
    return value


def record_of(record):
    """A record without what differs from run to run: how long it took."""
    data = record if isinstance(record, Mapping) else record.to_dict()
    kept = {name: value for name, value in data.items() if name != "timings"}
    return as_before(kept, "record")


def after(days):
    return (pd.Timestamp(FIRST_DAY) + pd.Timedelta(days=days)).to_pydatetime()


def _watched(log, labels, *, hosts=None, **changes):
    """Make a monitor; what is no argument of it is a section of its policy."""
    tree = hm.LabelTree.from_nested(TREE)
    source = TableSource(
        FrameTable(log),
        tree=tree,
        columns=Columns(
            time="at",
            id="id",
            model_version="version",
            probabilities="p_{leaf}",
            features=("protocol",),
        ),
        labels=LabelTable(table=FrameTable(labels), id="id", label="label", time="known_at"),
    )
    settings = {
        "source": source,
        "windows": hm.TimeWindows(length="1d", label_lag="12h", min_labelled=50),
        "tree": tree,
        "utilities": [
            hm.LevelCorrectness(level=1, name="status"),
            hm.LevelCorrectness(level=2, name="family"),
        ],
        "subgroups": lambda frame: hm.Subgroups.from_reference(frame, {"protocol": "each"}),
        "name": "intrusion",
    }
    settings.update({name: changes.pop(name) for name in {"windows", "reference"} & changes.keys()})
    # The default of the version that wrote the numbers.
    policy = {"tolerance": 0.03, "audit": {"n_draws": 100}, "alerts": {"cool_down": "7d"}}
    return hm.Monitor(
        policy=hm.Policy(**{**policy, **changes}), hosts=hosts or hm.Hosts(), **settings
    )


def _told(monitor, results):
    return plain(
        {
            "identity": monitor.identity,
            "messages": [
                r.message and brief(as_before(r.message.to_dict(), "message")) for r in results
            ],
            "status": [r.status for r in results],
            "alerts": as_before([alert.to_dict() for alert in monitor.alerts], "alerts"),
            "records": briefly({record.key: record_of(record) for record in monitor.records()}),
            "state": brief(as_before(monitor.tracker.load_state(), "state")),
        }
    )


def monitor_asked_daily():
    monitor = _watched(
        *make_log(7, 900, broken_from=3, late_share=0.1),
        windows=hm.TimeWindows(length="1d", label_lag="12h", min_labelled=50, revisit="3d"),
        recalibration=hm.RecalibrationPolicy(enabled=True, critical_windows=2),
        hosts=hm.Hosts(recalibrate=lambda _trigger: None),
    )
    return _told(monitor, [monitor.check(after(day + 1.5)) for day in range(7)])


def monitor_of_rolling_windows():
    monitor = _watched(
        *make_log(6, 500, broken_from=4, seed=3),
        windows=hm.TimeWindows(length="2d", stride="1d", label_lag="12h", time_zone="Asia/Tokyo"),
        tolerance=hm.Tolerance(
            value=0.04, overrides=[hm.ToleranceRule(value=0.02, subgroup="protocol=udp")]
        ),
        audit=hm.AuditOptions(bounds="sharp", n_draws=100),
        alerts=hm.AlertPolicy(min_windows=2, resolve_after=2, cool_down="7d"),
        drift=hm.DriftPolicy(min_distance=0.01),
    )
    return _told(monitor, [monitor.check(after(7.0))])


def monitor_of_counted_rows():
    monitor = _watched(
        *make_log(4, 700, broken_from=2, seed=4),
        windows=hm.CountWindows(n_rows=600, stride=300, label_lag="6h"),
        sequential=hm.DetectorOptions(average_run_length=30.0, tolerance=0.01),
        reference=(after(0), after(1)),
    )
    return _told(monitor, [monitor.check(after(5.0))])


CONFIG = """\
model: intrusion
tree: tree.json
source:
  log: {path: LOG}
  labels: {path: labels.parquet, id: id, label: label, time: known_at}
columns: {time: at, id: id, model_version: version, probabilities: "p_{leaf}"}
utilities:
  - {type: LevelCorrectness, level: 1, name: status}
  - {type: Payoff, name: cost, payoffs: {dos: -20, satan: -300}, units: EUR, scale: 300}
  - {type: TopK, k: 2}
subgroups: {by: {protocol: each}}
windows: {length: 1d, label_lag: 12h, min_labelled: 50}
tolerance: {value: 0.03, overrides: [{utility: top2, value: 0.06}]}
bounds: {draws: 100}
"""


def write_project(folder, log, labels, *, kind="csv", more=""):
    """Write a log, a late label table, a tree and a configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "csv":
        log.to_csv(folder / "log.csv", index=False)
    else:
        for day, rows in log.groupby(log["at"].dt.strftime("%Y-%m-%d")):
            (folder / "log" / f"day={day}").mkdir(parents=True, exist_ok=True)
            rows.to_parquet(folder / "log" / f"day={day}" / "rows.parquet", index=False)
    labels.to_parquet(folder / "labels.parquet", index=False)
    (folder / "tree.json").write_text(json.dumps(TREE), "utf-8")
    text = CONFIG.replace("LOG", "log.csv" if kind == "csv" else "log") + more
    (folder / "huc.yaml").write_text(text, "utf-8")
    return folder / "huc.yaml"


def command(*arguments, folder, codes=(0,)):
    """Run a command in a folder, in this process, and return what it printed as JSON."""
    said = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = main([*map(str, arguments)])
    assert code in codes, said.getvalue()
    return {"code": code, **json.loads(said.getvalue())}


def checked(folder, now):
    """Check a project by the command line, and return what it said without how long it took."""
    said = command("check", "--now", now, "--json", folder=folder, codes=(0, 1))
    said = as_before(said, "check")
    said["records"] = {
        f"{record['ordinal']} r{record['revision']}": record_of(record)
        for record in said["records"]
    }
    return said


def status_of(folder):
    """Ask a project's status by the command line."""
    said = command("status", "--json", folder=folder, codes=(0, 1))
    return as_before(said, "status")


def add_a_day(folder):
    """Put the log and the labels of the next day where the others are."""
    (day,) = (folder / "next_day").glob("day=*")
    shutil.copytree(day, folder / "log" / day.name)
    shutil.copy(folder / "next_day" / "labels.parquet", folder / "labels" / "second.parquet")


def _in_a_folder(work):
    with tempfile.TemporaryDirectory() as folder:
        return plain(work(Path(folder)))


def check_of_a_csv_log():
    def work(folder):
        write_project(folder, *make_log(4, 700, broken_from=2, seed=5))
        first = checked(folder, "2024-03-04T12:00")
        second = checked(folder, "2024-03-06T12:00")
        return {
            "first": brief({**first, "records": None}),
            "records": {key: brief(record) for key, record in first["records"].items()},
            "second": {**second, "records": briefly(second["records"])},
            "status": status_of(folder),
            "folders": sorted(path.name for path in (folder / "huc-state").iterdir()),
        }

    return _in_a_folder(work)


def check_of_parquet_by_day():
    def work(folder):
        more = "drift: {min_distance: 0.01}\nsequential: {average_run_length: 20}\n"
        more += 'alerts: {cool_down: 2d}\nreference: {start: "2024-03-01", end: "2024-03-02"}\n'
        log, labels = make_log(4, 600, broken_from=2, seed=6)
        log.loc[::97, "p_smurf"] = -1.0
        config = write_project(folder, log, labels, kind="parquet", more=more)
        monitor = hm.open_monitor(config)
        results = [monitor.check(f"2024-03-0{day}T12:00Z") for day in (3, 6)]
        return _told(monitor, results)

    return _in_a_folder(work)


def check_of_a_window_larger_than_memory():
    def work(folder):
        log, labels = make_log(2, 3000, broken_from=1, seed=7)
        more = "large: {rows: 400, memory_limit: 64MB}\n"
        monitor = hm.open_monitor(write_project(folder, log, labels, kind="parquet", more=more))
        return _told(monitor, [monitor.check("2024-03-04T12:00Z")])

    return _in_a_folder(work)


def audit_by_the_command_line():
    def work(folder):
        tree = triage()
        p, labels, frame = rows_of(tree, 800, seed=21)
        table = pd.DataFrame(p, columns=[f"p_{leaf}" for leaf in tree.leaves]).assign(y=labels)
        table = pd.concat([table, frame[["sex", "age"]]], axis=1)
        table.loc[::31, "y"] = None
        table.to_parquet(folder / "log.parquet", index=False)
        table.to_csv(folder / "log.csv", index=False)
        (folder / "tree.csv").write_text(
            "\n".join(["path", *tree.to_paths()]) + "\n", encoding="utf-8"
        )
        (folder / "tree.json").write_text(json.dumps(tree.to_dict()), "utf-8")
        nested = {"survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]}}
        (folder / "tree.yaml").write_text(json.dumps({**nested, "died": None}), "utf-8")
        groups = ("--subgroup", "sex=each", "--subgroup", "age=40,65")
        given = ("--tree", "tree.yaml", "--label", "y", *groups)
        return {
            "parquet": as_before(
                command("audit", "log.parquet", *given, "--json", folder=folder), "command"
            ),
            "csv": as_before(
                command(
                    *("audit", "log.csv", *given, "--bounds", "sharp", "--tolerance", "0.01"),
                    *("--utility", "top:2", "--json"),
                    folder=folder,
                    codes=(0, 1),
                ),
                "command",
            ),
            "plan": as_before(
                command("plan", "--candidates", "40", "--json", folder=folder), "plan"
            ),
        }

    return _in_a_folder(work)


CASES = (
    audit_of_two_errors_that_cancel,
    audit_of_every_family,
    audit_of_a_deep_tree,
    audit_for_whom,
    audit_with_whole_weights,
    audit_with_fractional_weights,
    audit_of_ties,
    audit_of_zero_probabilities,
    audit_of_many_rows_and_leaves,
    what_a_result_answers,
    decompositions,
    detector_that_restarts,
    detector_that_is_resumed,
    boost_by_default,
    boost_of_a_deep_tree_with_weights,
    boost_of_the_paper,
    boost_of_the_sum,
    boost_after_a_scaling,
    scalings,
    calibrated_classifier,
    planning,
    monitor_asked_daily,
    monitor_of_rolling_windows,
    monitor_of_counted_rows,
    check_of_a_csv_log,
    check_of_parquet_by_day,
    check_of_a_window_larger_than_memory,
    audit_by_the_command_line,
)
