"""What is reported of a predictor on test rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import huc_monitor as hm

if TYPE_CHECKING:
    from .problem import Problem

METRICS = ("accuracy", "auc", "uc", "huc", "log_loss", "updates")


def macro_auc(p: np.ndarray[Any, Any], codes: np.ndarray[Any, Any]) -> float:
    """Unweighted mean one-vs-rest AUC over classes with rows inside and outside."""
    from scipy.stats import rankdata

    found = []
    for y in range(p.shape[1]):
        inside = codes == y
        n_in = int(inside.sum())
        n_out = inside.size - n_in
        if n_in and n_out:
            ranks = rankdata(p[:, y])
            found.append((ranks[inside].sum() - n_in * (n_in + 1) / 2) / (n_in * n_out))
    return float(np.mean(found))


def score(
    p: np.ndarray[Any, Any],
    rows: np.ndarray[Any, Any],
    *,
    problem: Problem,
    subgroups: hm.Subgroups,
    n_updates: int,
) -> dict[str, float]:
    """Accuracy, AUC, UC, HUC, log loss and the number of updates kept."""
    codes = problem.tree.encode(problem.labels[rows])
    result = hm.audit(
        p,
        codes,
        tree=problem.tree,
        utilities=problem.utilities,
        subgroups=subgroups,
        features=problem.attributes.iloc[rows],
        bounds="theorem",
    )
    return {
        "accuracy": float((p.argmax(axis=1) == codes).mean()),
        "auc": macro_auc(p, codes),
        "uc": float(result.uc),
        "huc": float(result.huc),
        "log_loss": float(-np.log(p[np.arange(codes.size), codes]).mean()),
        "updates": float(n_updates),
    }
