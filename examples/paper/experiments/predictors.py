"""The six base predictors, and their predictions kept on disk.

The paper names the families only. Settings are scikit-learn's and XGBoost's defaults, except
where a fit would not converge (iterations) or a network would not stop in time (early stopping).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from .problem import MASTER_SEED

if TYPE_CHECKING:
    from pathlib import Path

    from .problem import Problem

PARTS = ("initial", "correct", "select", "validate", "test")
INTERIOR_MIX = 1e-10


def make_predictor(base: str, seed: int, **settings: Any) -> Any:
    """Unfitted classifier; settings replace the defaults."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier
    from sklearn.tree import DecisionTreeClassifier

    if base == "XGB":
        return _xgboost()(n_jobs=1, random_state=seed, **settings)
    model: Any = {
        "LR": lambda: LogisticRegression(max_iter=2_000),
        "GNB": GaussianNB,
        "DT": lambda: DecisionTreeClassifier(random_state=seed),
        "RF": lambda: RandomForestClassifier(random_state=seed, n_jobs=1),
        "MLP": lambda: MLPClassifier(early_stopping=True, random_state=seed),
    }[base]()
    return model.set_params(**settings)


def _xgboost() -> Any:
    try:
        from xgboost import XGBClassifier
    except ImportError:
        msg = (
            "The base predictor XGB needs xgboost. Install it with: pip install xgboost, "
            "or leave it out: --bases LR,GNB,DT,RF,MLP"
        )
        raise SystemExit(msg) from None
    return XGBClassifier


def base_predictions(problem: Problem, k: int, base: str, folder: Path) -> dict[str, Any]:
    """Positive predictions of every part after training, from disk if they are there."""
    file = folder / "predictions" / f"{problem.name}_{k}_{base}.npz"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        raw = _train_and_predict(problem, k, base)
        half_written = file.with_suffix(".tmp.npz")
        np.savez(half_written, **raw)
        half_written.replace(file)
    with np.load(file) as stored:
        raw = {part: stored[part] for part in PARTS}
    n_leaves = problem.tree.n_leaves
    return {
        part: (1 - INTERIOR_MIX) * p / p.sum(axis=1, keepdims=True) + INTERIOR_MIX / n_leaves
        for part, p in raw.items()
    }


def _train_and_predict(problem: Problem, k: int, base: str) -> dict[str, Any]:
    from threadpoolctl import threadpool_limits

    split = problem.split(k)
    codes = problem.tree.encode(problem.labels)
    seen, targets = np.unique(codes[split.train], return_inverse=True)
    parts = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that stops at its iteration limit is still a base
        model = make_predictor(base, MASTER_SEED % 10**6 + k, **problem.settings.get(base, {}))
        model.fit(problem.inputs(split.train, split.train), targets)
        for part in PARTS:
            rows = getattr(split, part)
            p = np.zeros((rows.size, problem.tree.n_leaves))
            p[:, seen] = model.predict_proba(problem.inputs(rows, split.train))
            parts[part] = p
    return parts
