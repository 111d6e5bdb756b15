"""Predictions of real models on real data, for the benches: MASSIVE and NSL-KDD.

The data folder is an argument of the benches; docs/labels.md says what they showed. Models are
trained on a small part, as in production where the world is larger than what was labelled.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import huc_monitor as hm

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "paper"))


@dataclass
class Stream:
    """Rows that no model was trained on, in random order."""

    name: str
    tree: hm.LabelTree
    probabilities: np.ndarray
    labels: np.ndarray
    features: pd.DataFrame
    proxy: np.ndarray

    @property
    def utilities(self) -> list[hm.Utility]:
        return [
            hm.TopK(1),
            hm.LevelCorrectness(level=1),
            hm.GreedyPathCorrectness(level=2, name="path"),
        ]

    def take(self, rows: np.ndarray) -> Stream:
        return Stream(
            self.name,
            self.tree,
            self.probabilities[rows],
            self.labels[rows],
            self.features.iloc[rows].reset_index(drop=True),
            self.proxy[rows],
        )


def massive(folder: Path, n_train: int = 4_000) -> Stream:
    """60 intents in 18 scenarios, logistic regression on words; the proxy saw half as much."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import ComplementNB

    frame = pd.read_parquet(folder / "massive_en.parquet").sample(frac=1, random_state=0)
    pairs = frame[["scenario", "intent"]].drop_duplicates().sort_values(["scenario", "intent"])
    tree = hm.LabelTree.from_nested(
        {name: sorted(group["intent"]) for name, group in pairs.groupby("scenario")}
    )
    inputs = TfidfVectorizer(ngram_range=(1, 2), max_features=20_000)
    train = inputs.fit_transform(frame["text"].iloc[:n_train])
    rest = inputs.transform(frame["text"].iloc[n_train:])
    y = frame["intent"].to_numpy(dtype=str)
    model = LogisticRegression(C=20.0, max_iter=300).fit(train, y[:n_train])
    second = ComplementNB().fit(train[: n_train // 2], y[: n_train // 2])
    texts = frame["text"].iloc[n_train:]
    features = pd.DataFrame(
        {"words": texts.str.split().str.len(), "question": texts.str.match("wh|how|is|are")}
    ).reset_index(drop=True)
    p = _in_order(model.predict_proba(rest), model.classes_, tree)
    return Stream("massive", tree, p, y[n_train:], features, second.predict(rest))


def nsl_kdd(folder: Path, n_train: int = 1_000) -> Stream:
    """22 attacks in four families beside normal traffic, logistic regression on all columns."""
    from experiments.tabular import NSL_CATEGORIES, NSL_FAMILIES, TableInputs
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB

    frame = pd.read_parquet(folder / "nsl_kdd_train20.parquet")
    frame = frame.sample(frac=1, random_state=0).reset_index(drop=True)
    families = {family: names for family, names in NSL_FAMILIES.items() if family != "normal"}
    known = {name for names in families.values() for name in names} & set(frame["attack"])
    nested = {f: [name for name in names if name in known] for f, names in families.items()}
    tree = hm.LabelTree.from_nested({**nested, "normal": None})
    numbers = [c for c in frame.columns if c not in {*NSL_CATEGORIES, "attack", "difficulty"}]
    inputs = TableInputs(frame, numbers, NSL_CATEGORIES)
    train, rest = np.arange(n_train), np.arange(n_train, len(frame))
    y = frame["attack"].to_numpy(dtype=str)
    x = inputs(train, train)
    model = LogisticRegression(C=0.3, max_iter=500).fit(x, y[train])
    second = GaussianNB(var_smoothing=1e-2).fit(x, y[train])
    later = inputs(rest, train)
    features = frame[["protocol_type", "src_bytes", "count"]].iloc[n_train:].reset_index(drop=True)
    p = _in_order(model.predict_proba(later), model.classes_, tree)
    return Stream("nsl_kdd", tree, p, y[rest], features, second.predict(later))


def _in_order(p: np.ndarray, classes: np.ndarray, tree: hm.LabelTree) -> np.ndarray:
    """Columns in the tree's order; classes that training lacked have a little mass."""
    found = np.full((len(p), tree.n_leaves), 1e-4)
    for column, name in enumerate(classes):
        found[:, tree.leaf_index(name)] = np.maximum(p[:, column], 1e-6)
    return found / found.sum(axis=1, keepdims=True)


def load(folder: Path, n_train: int = 4_000) -> list[Stream]:
    """Both streams; MASSIVE's model is trained on so many rows."""
    return [massive(folder, n_train), nsl_kdd(folder)]
