"""NannyML: realised accuracy and F1 by day, over everything or in a loop over branch and group."""

from __future__ import annotations

import numpy as np
import pandas as pd
from nannyml import PerformanceCalculator
from peer import Table, fastest


def calculator(chunk_size, classes):
    return PerformanceCalculator(
        metrics=["accuracy", "f1"],
        y_true="y",
        y_pred="y_pred",
        y_pred_proba={name: f"p_{name}" for name in classes},
        problem_type="classification_multiclass",
        chunk_size=chunk_size,
    )


def alerts(reference, days):
    """For every day: does a metric leave NannyML's own thresholds, and how far?"""
    size = min(len(day) for day in days)
    fitted = calculator(size, sorted(reference["y"].unique())).fit(reference)
    together = pd.concat([day.iloc[:size] for day in days], ignore_index=True)
    found = fitted.calculate(together).filter(period="analysis").to_df()
    answers = []
    for k in range(len(days)):
        some = [found[name].iloc[k].fillna({"lower_threshold": 0, "upper_threshold": 1})
                for name in ("accuracy", "f1")]  # fmt: skip
        answers.append((any(one["alert"] for one in some), max(map(beyond, some))))
    return answers


def beyond(one):
    """How far from the middle of its thresholds; 1 is on a threshold."""
    low, high = one["lower_threshold"], one["upper_threshold"]
    return float(abs(one["value"] - (low + high) / 2) / max((high - low) / 2, 1e-9))


def detect(stream):
    reference, days = stream.reference.frame(), [day.frame() for day in stream.days]
    return [(alarm, size, []) for alarm, size in alerts(reference, days)]


def detect_in_loop(stream):
    reference, days = stream.reference.frame(), [day.frame() for day in stream.days]
    found = [[] for _ in days]
    for branch, leaves in branches(stream.table.tree):
        for group in ("app", "web", "phone"):
            parts = [
                one[one["y"].isin(leaves) & (one["group"] == group)] for one in (reference, *days)
            ]
            if min(len(part) for part in parts) < 20 or parts[0]["y"].nunique() < 2:
                continue
            for k, (alarm, size) in enumerate(alerts(parts[0], parts[1:])):
                found[k].append((alarm, size, branch, group))
    return [
        (
            any(a for a, *_ in some),
            max((size for _, size, *_ in some), default=0.0),
            [name for a, _, branch, group in some if a for name in (branch, group)],
        )
        for some in found
    ]


def branches(tree, name="root"):
    """Every internal node with its leaves."""
    leaves = []
    below = tree.items() if isinstance(tree, dict) else [(leaf, None) for leaf in tree]
    for child, part in below:
        if part:
            inner = list(branches(part, child))
            yield from inner
            leaves += inner[-1][1]
        else:
            leaves.append(child)
    yield name, leaves


DETECTORS = {"all rows": detect, "loop over branches and groups": detect_in_loop}


def speed(n):
    """Twenty windows with realised accuracy and F1 of five classes."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(5, 0.7), n)
    classes = np.array(list("abcde"))
    labels = classes[(p.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(max=4)]
    frame = Table(p, labels, np.repeat("app", n), classes, {}).frame()
    reference = pd.concat([frame.iloc[: n // 4]], ignore_index=True)
    seconds, _ = fastest(
        lambda: calculator(max(n // 20, 1), classes).fit(reference).calculate(frame).to_df()
    )
    return {"twenty_windows": seconds}
