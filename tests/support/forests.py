"""A world of patients whose labels drift in one branch, and a forest that predicts them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd

import huc_monitor as hm

FEATURES = ["f0", "f1", "f2", "f3"]


@dataclass(frozen=True)
class Story:
    """A label tree, rows whose labels drift in one branch, and models of them."""

    tree: hm.LabelTree
    utilities: list[hm.Utility]
    frame: pd.DataFrame
    labels: np.ndarray
    forest: object
    probabilities: np.ndarray
    subgroups: hm.Subgroups

    def boost(self, **options):
        from huc_monitor.recalibration import HUCBoost

        settings = {"mode": "paper", "max_updates": 20, "subgroups": self.subgroups}
        boost = HUCBoost(tree=self.tree, utilities=self.utilities, **{**settings, **options})
        return boost.fit(self.probabilities, self.labels, features=self.frame)


def make_rows(n: int, seed: int, tree: hm.LabelTree, drift: float = 0.0):
    """Rows of a fixed world; `drift` swaps coma and limited for that share of the men."""
    world = np.random.default_rng(7).normal(size=(len(FEATURES), tree.n_leaves))
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, len(FEATURES))), columns=FEATURES)
    frame["sex"] = np.where(rng.random(n) < 0.5, "f", "m")
    scores = frame[FEATURES].to_numpy() @ world + rng.gumbel(size=(n, tree.n_leaves))
    codes = scores.argmax(axis=1)
    coma, limited = tree.leaf_index("coma"), tree.leaf_index("limited")
    turned = (frame["sex"] == "m").to_numpy() & (rng.random(n) < drift)
    swapped = np.where(codes == coma, limited, np.where(codes == limited, coma, codes))
    codes = np.where(turned, swapped, codes)
    return frame, np.array(tree.leaves)[codes]


def make_story() -> Story:
    """Fit the forest on rows without drift; the rows of the story have it."""
    from sklearn.ensemble import RandomForestClassifier

    tree = hm.LabelTree.from_nested(
        {
            "survived": {"milder": ["none", "assisted"], "major": ["limited", "coma"]},
            "died": None,
        }
    )
    train, y = make_rows(1500, 0, tree)
    forest = RandomForestClassifier(15, min_samples_leaf=5, random_state=0)
    forest.fit(train[FEATURES], y)
    frame, labels = make_rows(1500, 1, tree, drift=0.7)
    order = [list(forest.classes_).index(leaf) for leaf in tree.leaves]
    subgroups = hm.Subgroups.from_reference(frame, {"sex": "each", "f0": [0.0]})
    return Story(
        tree,
        [hm.LevelCorrectness(level=1), hm.LevelCorrectness(level=3)],
        frame,
        labels,
        forest,
        forest.predict_proba(frame[FEATURES])[:, order],
        subgroups,
    )


def log_forest(story: Story, name: str | None = None, **options):
    """Log the forest as people do, and register it under a name."""
    import mlflow

    given = story.frame[FEATURES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mlflow.sklearn.log_model(
            story.forest,
            name="forest",
            registered_model_name=name,
            signature=mlflow.models.infer_signature(given, story.forest.predict(given[:5])),
            pip_requirements=["scikit-learn", "mlflow"],
            serialization_format="pickle",
            **options,
        )
