"""How often dependence and selection are noticed, and how often where there is none.

``python tests/bench/noticing.py [runs] [rows] [case] [seed]`` prints the share of runs with a
notice, for calibrated, overconfident and 50-valued (a decision tree's) predictions: independent
rows with keys and random labels; 20 rows per user with correlation 0.3 (of the latent outcome, and
of a shared one); retries of three copies, at any time, at any time with a feature of 200 values in
the log, and within some 15 rows; blocks of 25 rows of independent labels and of an AR(1) process of
0.7 (the size is by how much longer they should be); labels for errors three times as often, for one
branch only, by known probability, and of 95 % of the rows, by chance and with a tenth of the errors
and 2 % of the others missing. Of choices that cannot matter beside a tolerance of 0.02 nothing is
told.
"""

from __future__ import annotations

import sys
from statistics import NormalDist

import numpy as np
import pandas as pd
from scipy.signal import lfilter

import huc_monitor as hm
from huc_monitor.audit.forecast import score_rows
from huc_monitor.audit.inputs import Predictions
from huc_monitor.monitor.noticing import find_dependence, find_short_blocks, look_at_labels
from huc_monitor.sources import PredictionData
from huc_monitor.tree.labels import LeafCodes

TREE = hm.LabelTree.from_nested({"l": ["a", "b", "c"], "r": {"s": ["d", "e"], "t": ["f", "g"]}})
UTILITIES = [hm.TopK(1), hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=2)]
COST = hm.Payoff("cost", dict(zip("abcdefg", np.linspace(1, -1, 7).tolist(), strict=True)))
PHI = np.vectorize(NormalDist().cdf)
NONE, RETRIES = ("none", "no feature"), ("retries", "retries, feature", "retries soon")
MODELS = ("calibrated", "overconfident", "few values")


def predictions(rng, n, model):
    """Return what is predicted, and what is true."""
    truth = rng.dirichlet(np.full(7, 0.6), n)
    if model == "few values":
        truth = rng.dirichlet(np.full(7, 0.6), 50)[rng.integers(0, 50, n)]
    truth = 0.98 * truth + 0.02 / 7
    shown = truth**1.6 if model != "calibrated" else truth
    return shown / shown.sum(axis=1, keepdims=True), truth


def outcomes(rng, truth, keys=None, kind=None, rho=0.3):
    """Draw labels whose uniforms are shared within keys, wholly or in part."""
    n = len(truth)
    uniform = rng.random(n)
    if kind == "latent":
        shared = rng.normal(size=keys.max() + 1)[keys]
        uniform = PHI(np.sqrt(rho) * shared + np.sqrt(1 - rho) * rng.normal(size=n))
    elif kind == "shared":
        shared = rng.random(keys.max() + 1)[keys]
        uniform = np.where(rng.random(n) < np.sqrt(rho), shared, uniform)
    return (truth.cumsum(axis=1) < uniform[:, None]).sum(axis=1).clip(max=6)


def dependence(rng, n, model, case):
    """Return whether dependence was noticed, and how narrow bounds were said to be."""
    keys = rng.permutation(np.arange(n) // 20)
    p, truth = predictions(rng, n, model)
    if case in {"latent", "shared"}:  # what one user asks is alike
        same = keys if model != "few values" else keys % 50
        p, truth = p[same], truth[same]
        if model != "few values":
            p, truth = (0.8 * old + 0.2 * rng.dirichlet(np.ones(7), n) for old in (p, truth))
    y = outcomes(rng, truth, keys, case if case in {"latent", "shared"} else None)
    if case.startswith("retries"):
        again = np.repeat(np.arange(-(-n // 3)), 3)[:n]
        if "soon" not in case:
            again = rng.permutation(again)
        else:
            again = again[np.argsort(np.arange(n) + rng.uniform(0, 15, n), kind="stable")]
        p, y, keys = p[again], y[again], rng.permutation(keys)
    if case == "blocks":
        z = lfilter([np.sqrt(1 - 0.7**2)], [1, -0.7], rng.normal(size=n + 50))[50:]
        y = (truth.cumsum(axis=1) < PHI(z)[:, None]).sum(axis=1).clip(max=6)
    rows = hm.decompose(p, LeafCodes(y), tree=TREE, utilities=[*UTILITIES, COST])
    if "blocks" in case:
        short = find_short_blocks(rows, np.arange(n) // 25)
        return short is not None, 1.0 if short is None else short.times_as_long
    features = pd.DataFrame({"age": rng.integers(0, 200, n)}) if "feature" in case else None
    if case == "retries, feature":
        features = features.iloc[again].reset_index(drop=True)
    found = find_dependence(rows, p, {"user_id": keys}, features)
    return found is not None, 1.0 if found is None else found[1].too_narrow


def selection(rng, n, model, case):
    """Return whether a choice of labels was noticed, and the effect that was seen."""
    p, truth = predictions(rng, n, model)
    y = outcomes(rng, truth)
    chance = np.full(n, 0.5)
    if case == "errors 3x":
        chance = np.where(p.argmax(axis=1) == y, 0.3, 0.9)
    elif case == "branch":
        chance = np.where(p[:, :3].sum(axis=1) > 0.5, 0.3, 0.6)
    elif case == "random 95%":
        chance = np.full(n, 0.95)
    elif case == "errors 95%":
        chance = np.where(p.argmax(axis=1) == y, 0.98, 0.9)
    elif case == "known chance":
        chance = np.clip(1.1 - p.max(axis=1), 0.05, 1.0)
    labelled = np.flatnonzero(rng.random(n) < chance)
    frame = pd.DataFrame({"who": rng.choice(["x", "y", "z"], n)})
    groups = hm.Subgroups.from_reference(frame, {"who": "each"})
    everyone = PredictionData(
        start=None,
        end=None,
        probabilities=p,
        features=frame,
        ids=None,
        times=np.empty(0),
        model_versions=None,
        n_predictions=n,
        n_quarantined=0,
    )
    rows = hm.decompose(p[labelled], LeafCodes(y[labelled]), tree=TREE, utilities=UTILITIES)
    weights = [w[labelled] for w in groups.weights(frame, n)]
    found = look_at_labels(
        everyone,
        score_rows(UTILITIES, Predictions.of(p), tree=TREE),
        (p[labelled], rows, weights),
        tree=TREE,
        subgroups=groups,
        label_probability=chance[labelled] if case == "known chance" else None,
        tolerance=0.02,
    )
    return bool(found.differs), found.effect


def main(runs=100, n=2_000, only="", seed=11):
    print(f"{runs} runs of {n:,} rows; one standard error is at most {0.5 / np.sqrt(runs):.3f}")
    cases = [(dependence, c) for c in (*NONE, "latent", "shared", *RETRIES)]
    cases += [(dependence, c) for c in ("no blocks", "blocks")]
    cases += [(selection, c) for c in ("random", "random 95%", "known chance")]
    cases += [(selection, c) for c in ("errors 3x", "errors 95%", "branch")]
    for look, case in [pair for pair in cases if only in pair[1]]:
        for model in MODELS:
            found = [
                look(np.random.default_rng([int(seed), k]), n, model, case) for k in range(runs)
            ]
            noticed, size = np.array(found, dtype=float).T
            print(f"{look.__name__:>12} {case:>13} {model:>14}", end=" ")
            print(f"noticed {noticed.mean():.3f}, size {np.median(size):+.3f}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])
