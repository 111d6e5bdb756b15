"""Large trees and truncated predictions, measured in one run.

`python tests/bench/taxonomy.py topk` audits top-20 pairs of 10,000 leaves and, beside it, dense
rows of 32 leaves; `dense` audits 100,000 float32 rows of 10,000 leaves; `fit` fits HUC-Boost on
20,000 top-20 rows; `fault` writes six windows of a log in which from the fourth on every label
under one branch goes to that branch's next child, for branches of four depths, and says what
`init` and `check` make of it; `truncation DATA` compares k = 1 ... 50 with the full vectors of a
text classifier on MASSIVE. Each prints JSON lines; `--quick` shrinks it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import huc_monitor as hm
from huc_monitor.cli import main as run_command
from huc_monitor.config.opening import open_monitor

SHAPE = (4, 5, 5, 10, 10)


def tree_of(shape: tuple[int, ...]) -> hm.LabelTree:
    """Tree whose nodes of a level all have as many children."""
    paths = [""]
    for level, width in enumerate(shape):
        paths = [f"{path}/n{level}_{i}_{k}" for i, path in enumerate(paths) for k in range(width)]
    return hm.LabelTree.from_paths([path[1:] for path in paths])


def utilities(tree: hm.LabelTree) -> list[hm.Utility]:
    """Three levels and a payoff of every leaf."""
    rng = np.random.default_rng(0)
    levels = [1, (tree.height + 1) // 2, tree.height]
    pays = dict(zip(tree.leaves, map(float, rng.uniform(-1, 1, tree.n_leaves)), strict=True))
    return [*(hm.LevelCorrectness(level=level) for level in levels), hm.Payoff("pay", pays)]


def top_k(n: int, n_leaves: int, k: int, seed: int = 1) -> tuple[Any, Any, Any]:
    """Classes, their probabilities, likeliest first, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    near = np.sort(rng.integers(0, n_leaves - k, (n, k)), axis=1) // 50 + np.arange(k)
    classes = (near + rng.integers(0, n_leaves, (n, 1))) % n_leaves
    scores = rng.standard_exponential((n, k)) ** 2 + 1e-3
    scores = -np.sort(-scores, axis=1)
    scores *= rng.uniform(0.8, 0.99, (n, 1)) / scores.sum(axis=1, keepdims=True)
    place = (rng.random((n, 1)) > np.cumsum(scores, axis=1)).sum(axis=1)
    labels = classes[np.arange(n), np.minimum(place, k - 1)]
    other = place == k
    labels[other] = rng.integers(0, n_leaves, int(other.sum()))
    return classes, scores, labels


def gigabytes() -> float:
    """Highest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def timed(call: Any) -> tuple[Any, float]:
    """Return what a call returns, and its seconds."""
    start = time.perf_counter()
    found = call()
    return found, time.perf_counter() - start


def say(**figures: Any) -> None:
    """Print one line of JSON."""
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def run_topk(n: int) -> None:
    """Audit n top-20 rows of 10,000 leaves, then n dense rows of 32."""
    large, small = tree_of(SHAPE), tree_of((2, 2, 2, 2, 2))
    classes, scores, labels = top_k(n, large.n_leaves, 20)
    warm = hm.TopKPredictions(classes[:500], scores[:500], rest="uniform")
    hm.audit(warm, labels[:500], tree=large, utilities=utilities(large), n_draws=50)
    given = hm.TopKPredictions(classes, scores, rest="uniform")
    before = gigabytes()
    found, took = timed(lambda: hm.audit(given, labels, tree=large, utilities=utilities(large)))
    say(case="top-20 of 10,000", rows=n, seconds=took, peak_gb=gigabytes(), before_gb=before,
        huc=found.huc, unlogged=found.unlogged, candidates=found.candidates.n)  # fmt: skip
    rng = np.random.default_rng(2)
    p = rng.standard_exponential((n, 32))
    p /= p.sum(axis=1, keepdims=True)
    y = np.minimum((rng.random((n, 1)) > np.cumsum(p, axis=1)).sum(axis=1), 31)
    hm.audit(p[:500], y[:500], tree=small, utilities=utilities(small), n_draws=50)
    _, dense = timed(lambda: hm.audit(p, y, tree=small, utilities=utilities(small)))
    say(case="dense of 32", rows=n, seconds=dense, ratio=took / dense)


def run_dense(n: int) -> None:
    """Audit n dense float32 rows of 10,000 leaves."""
    tree = tree_of(SHAPE)
    p = np.empty((n, tree.n_leaves), dtype=np.float32)
    rng = np.random.default_rng(3)
    for lo in range(0, n, 1000):
        part = rng.standard_exponential((min(1000, n - lo), tree.n_leaves), dtype=np.float32)
        p[lo : lo + 1000] = part / part.sum(axis=1, keepdims=True)
    y = rng.integers(0, tree.n_leaves, n)
    hm.audit(p[:100], y[:100], tree=tree, utilities=utilities(tree), n_draws=50)
    before = gigabytes()
    _, took = timed(lambda: hm.audit(p, y, tree=tree, utilities=utilities(tree)))
    size, peak = p.nbytes / 2**30, gigabytes()
    _, read = timed(lambda: [p[lo : lo + 1000].cumsum(axis=1).sum() for lo in range(0, n, 1000)])
    say(case="dense float32 of 10,000", rows=n, seconds=took, size_gb=size, before_gb=before,
        peak_gb=peak, peak_over_size=peak / size,
        over_running_sums=took / read)  # fmt: skip


def run_fit(n: int) -> None:
    """Fit HUC-Boost on n top-20 rows of 10,000 leaves."""
    tree = tree_of(SHAPE)
    classes, scores, labels = top_k(n, tree.n_leaves, 20)
    labels[::3] = classes[::3, 1]  # a model that is too sure of its first answer
    given = hm.TopKPredictions(classes, scores, rest="uniform")
    boost = hm.HUCBoost(tree=tree, utilities=utilities(tree), max_updates=20)
    _, took = timed(lambda: boost.fit(given, labels))
    say(case="HUC-Boost of 10,000", rows=n, seconds=took, peak_gb=gigabytes(),
        updates=len(boost.updates_))  # fmt: skip


def run_fault(per_window: int) -> None:
    """Move the labels under one branch, at each depth, half-way through six windows."""
    tree = tree_of(SHAPE)
    names, n = np.array(tree.leaves), 6 * per_window
    times = np.datetime64("2024-01-01", "us") + np.arange(n) * (86_400_000_000 // per_window)
    for depth in reversed(range(4)):
        size = math.prod(SHAPE[depth:])  # leaves under the first branch of this depth
        classes, scores, labels = top_k(n, tree.n_leaves, 20, seed=5)
        mine = (np.arange(n) >= n // 2) & (labels < size)
        labels[mine] = (labels[mine] + size // SHAPE[depth]) % size
        log = {"id": np.arange(n), "time": times, "classes": list(names[classes])}
        log |= {"scores": list(scores), "label": names[labels]}
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            pd.DataFrame(log).to_parquet("log.parquet")
            Path("tree.csv").write_text("\n".join(["path", *tree.to_paths()]) + "\n")
            with contextlib.redirect_stdout(io.StringIO()):
                run_command(["init", "log.parquet", "--tree", "tree.csv", "--json"])
            monitor = open_monitor("huc.yaml")
            records = monitor.check("2024-01-08T00:00Z").records
        found = [sorted({one.candidate[2] for one in r.findings}) for r in records]
        last = records[-1].result.to_frame(all_columns=True)
        own = last[last["node"] == (f"n{depth - 1}_0_0" if depth else tree.root)]
        worst = own.loc[own["moment"].abs().idxmax()]
        say(case="fault", rows_per_window=per_window, share=size / tree.n_leaves,
            moment=worst["moment"], radius=worst["upper"] - abs(worst["moment"]),
            found=found)  # fmt: skip


def run_truncation(data: Path, *, quick: bool) -> None:
    """Compare k = 1 ... 50 with full vectors of a classifier of MASSIVE, by rule and utility."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    frame = pd.read_parquet(data / "massive_en.parquet")
    pairs = frame[["scenario", "intent"]].drop_duplicates().sort_values(["scenario", "intent"])
    nested = {name: sorted(group["intent"]) for name, group in pairs.groupby("scenario")}
    tree = hm.LabelTree.from_nested(nested)
    train = frame["partition"] == "train"
    words = TfidfVectorizer(ngram_range=(1, 2), max_features=3_000 if quick else 20_000)
    inputs = words.fit_transform(frame["text"][train])
    rows = frame[~train].reset_index(drop=True)
    labels = rows["intent"].to_list()
    asked: list[hm.Utility] = [
        hm.LevelCorrectness(level=1),
        hm.LevelCorrectness(level=2),
        hm.GreedyPathCorrectness(level=2),
        hm.TopK(3),
        hm.SelectiveReport(group_threshold=0.65, leaf_threshold=0.65),
    ]
    for sharpness in (1.0, 30.0):
        model = LogisticRegression(C=sharpness, max_iter=300)
        model.fit(inputs, frame["intent"][train])
        answer = model.predict_proba(words.transform(rows["text"]))
        full = pd.DataFrame(answer, columns=model.classes_)
        _compare_truncations(full[list(tree.leaves)].to_numpy(copy=True), labels, tree, asked)


def _compare_truncations(p: Any, labels: Any, tree: hm.LabelTree, asked: list[hm.Utility]) -> None:
    p /= p.sum(axis=1, keepdims=True)
    shares = dict(zip(tree.leaves, map(float, p.mean(axis=0)), strict=True))
    whole = {u.name: _figures(p, labels, tree, u) for u in asked}
    for name, figures in whole.items():
        say(case="full", utility=name, **figures)
    order = np.argsort(-p, axis=1)
    for k in (1, 2, 3, 5, 10, 20, 50):
        best = order[:, :k]
        kept = np.take_along_axis(p, best, axis=1)
        for rule, rest in (("uniform", "uniform"), ("shares", shares)):
            given = hm.TopKPredictions(best, kept, rest=rest)
            for utility in asked:
                found = _figures(given, labels, tree, utility)
                right = whole[utility.name]
                at = list(right["below"]).index  # the full vectors' order, worst first
                say(k=k, rest=rule, utility=utility.name, unlogged=found["unlogged"],
                    uc_moved=found["uc"] - right["uc"], huc_moved=found["huc"] - right["huc"],
                    same_branch=found["node"] == right["node"],
                    below=(below := next(iter(found["below"]), None)),
                    place_in_full=at(below) + 1 if below else None,
                    below_moved=_largest_move(found["below"], right["below"]))  # fmt: skip


def _largest_move(found: dict[str, float], right: dict[str, float]) -> float:
    """How far the moment of any branch below the root moved."""
    return max((abs(found[name] - right[name]) for name in right), default=0.0)


def _figures(rows: Any, labels: Any, tree: hm.LabelTree, utility: hm.Utility) -> dict[str, Any]:
    found = hm.audit(rows, labels, tree=tree, utilities=[utility], bounds="sharp")
    frame = found.to_frame().query("node != 'root'")
    sizes = frame.set_index("node")["moment"].abs().sort_values(ascending=False)
    return {
        "below": {name: round(float(size), 5) for name, size in sizes.items()},
        "uc": round(found.uc, 5),
        "huc": round(found.huc, 5),
        "node": found.worst.node,
        "unlogged": round(found.unlogged, 5),
    }


def main() -> None:
    """Run one bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["topk", "dense", "fit", "fault", "truncation"])
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int)
    given = parser.parse_args()
    if given.what == "truncation":
        run_truncation(given.data, quick=given.quick)
        return
    sizes = {"topk": 1_000_000, "dense": 100_000, "fit": 20_000, "fault": 4_000}
    run = {"topk": run_topk, "dense": run_dense, "fit": run_fit, "fault": run_fault}[given.what]
    run(given.rows or sizes[given.what] // (50 if given.quick else 1))


if __name__ == "__main__":
    main()
