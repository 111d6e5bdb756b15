# For whoever has a scikit-learn pipeline and wants its `predict_proba` repaired without a second
# system beside it.
# HUCCalibratedClassifier wraps any classifier, in a pipeline, a grid search or alone.
"""Wrap a scikit-learn pipeline so that its probabilities can be trusted branch by branch."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import huc_monitor as hm

TREE = hm.LabelTree.from_nested(
    {
        "round": ["zero", "six", "eight", "nine"],
        "straight": ["one", "four", "seven"],
        "curved": ["two", "three", "five"],
    },
    root="digit",
)
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
UTILITIES = [hm.LevelCorrectness(level=1, name="shape"), hm.LevelCorrectness(level=2, name="digit")]


def main() -> None:
    """Compare naive Bayes, which is far too sure of itself, with and without the wrapper."""
    digits, labels = load_digits(return_X_y=True)
    names = np.array(WORDS)[labels]
    x_train, x_test, y_train, y_test = train_test_split(
        digits, names, test_size=0.4, random_state=0, stratify=names
    )
    plain = make_pipeline(StandardScaler(), GaussianNB(var_smoothing=1e-2))
    wrapped = hm.HUCCalibratedClassifier(
        plain, tree=TREE, utilities=UTILITIES, initial="temperature"
    )
    for title, model in (("plain", plain), ("wrapped", wrapped)):
        model.fit(x_train, y_train)
        order = [list(model.classes_).index(leaf) for leaf in TREE.leaves]
        predicted = model.predict_proba(x_test)
        huc = hm.audit(predicted[:, order], y_test, tree=TREE, utilities=UTILITIES, rng=0).huc
        print(
            f"{title:>7}: accuracy {model.score(x_test, y_test):.3f}, "
            f"log loss {log_loss(y_test, predicted):.3f}, HUC {huc:.3f}"
        )


if __name__ == "__main__":
    main()
