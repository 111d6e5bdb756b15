"""A base model and the recalibration stages around it, as MLflow calls it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .base import Base
from .lanes import Many
from .replay import PAYOFF, RANK, SELECTIVE, assess
from .serving import open_log
from .stage import Stage, choose_engine

PAYLOAD = "recalibration.json"
SCHEMA_VERSION = 2
METHODS = ("predict", "predict_proba", "decision")


def load_payload(path: str | Path) -> dict[str, Any]:
    """Read the recalibration of a saved model."""
    text = (Path(path) / PAYLOAD).read_text("utf-8")
    data: dict[str, Any] = json.loads(text)
    # Version 1 held everything twice; what version 2 reads of it is the same.
    if data.get("schema_version") not in range(1, SCHEMA_VERSION + 1):
        msg = (
            f"`schema_version` of {PAYLOAD} must be at most {SCHEMA_VERSION}; got "
            f"{data.get('schema_version')!r}. The model's files do not belong together."
        )
        raise ValueError(msg)
    return data


class RecalibratedModel:
    """Probabilities of the base model, put right by one stage after the other.

    A leaf of the tree that the base does not know has probability 0 before the stages; answers
    have it after the base's own classes.

    Parameters
    ----------
    path : path
        Folder of the payload, with the base model in ``base``.
    load : callable
        Loads the base: ``mlflow.pyfunc.load_model``.
    """

    def __init__(self, path: str | Path, load: Callable[[str], Any]) -> None:
        self.payload = load_payload(path)
        self.base = Base(load(str(Path(path) / "base")), self.payload)
        self.stages = [Stage(data) for data in self.payload["stages"]]
        self.engine = choose_engine(self.stages)
        self.classes = self.payload["classes"]
        self._leaf = np.asarray(self.payload["class_leaf"])
        self._labels = _labels(self.classes)
        self._log = open_log(self.payload, self.stages)

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> Any:
        """Answer as the base does, or as ``params["predict_method"]`` asks.

        ``predict``: the most probable class; ``predict_proba``: a table with a column per class;
        ``decision``: a table with what each utility's decision rule does.
        """
        method = (params or {}).get("predict_method") or "default"
        if method not in {*METHODS, "default"}:
            msg = f"`predict_method` must be one of {', '.join(METHODS)}; got {method!r}."
            raise ValueError(msg)
        answer = self.base.answer(data)
        leaves = self._recalibrate(answer, data)
        if self._log is not None:
            self._log(leaves, data)
        if method == "decision":
            return self.decisions(leaves)
        by_class = leaves[:, self._leaf]
        if method == "predict" or (method == "default" and self.payload["output"] == "labels"):
            return self._labels[np.argmax(by_class, axis=1)]
        if method == "predict_proba":
            return pd.DataFrame(by_class, columns=[str(label) for label in self.classes])
        return like(answer, by_class, self.payload["probability_columns"], self.classes)

    def predict_proba(self, data: Any) -> Any:
        """Recalibrated probabilities, shape (n, K), columns in the order of `classes`."""
        return self._recalibrate(self.base.answer(data), data)[:, self._leaf]

    def base_probabilities(self, data: Any) -> Any:
        """Probabilities of the root base model, columns in the order of the tree's leaves."""
        return self.base.probabilities(self.base.answer(data))

    def recalibrate(self, probabilities: Any, features: Any = None) -> Any:
        """Recalibrate base probabilities whose columns follow the tree's leaves."""
        leaves = np.ascontiguousarray(probabilities, dtype=np.float64)
        for stage in self.stages:
            leaves = stage.apply(leaves, features)
        return leaves

    def _recalibrate(self, answer: Any, features: Any) -> Any:
        leaves = self.base.probabilities(answer)
        return self.recalibrate(leaves, features) if len(leaves) else leaves

    def decisions(self, probabilities: Any) -> pd.DataFrame:
        """Return what each utility's rule decides, a column per utility; columns of leaves in."""
        replay, tree = self.stages[-1].replay, self.stages[-1].tree
        p = np.ascontiguousarray(probabilities.T)
        pi = tree.reach(p, Many)
        found: dict[str, Any] = {}
        for utility in replay.utilities:
            kind = utility["kind"]
            if kind == PAYOFF and len(utility["payoff"]) == 1:
                continue  # one action is no decision
            if kind == RANK:
                found[utility["name"]] = _top(p, utility["floats"], tree.leaves)
                continue
            seen: Any = assess(utility, tree, p, pi, Many)
            if kind == PAYOFF:
                chosen = np.asarray(utility["actions"], dtype=object)[seen.chosen]
            else:
                chosen = np.asarray(tree.names, dtype=object)[seen.code]
            if kind == SELECTIVE:
                leaf = np.asarray(tree.leaves, dtype=object)[np.maximum(seen.inner, 0)]
                chosen = np.where(seen.inner >= 0, leaf, chosen)
                chosen = np.where(seen.abstains, "abstain", chosen)
            found[utility["name"]] = chosen
        return pd.DataFrame(found, index=range(len(probabilities)))


def _top(p: Any, payoffs: list[float], leaves: list[str]) -> list[list[str]]:
    """Leaves of the ranks that pay more than the last rank does, most probable first."""
    count = sum(payoff > payoffs[-1] for payoff in payoffs) or 1
    order = np.argsort(-p, axis=0, kind="stable")[:count]
    return [[leaves[k] for k in column] for column in order.T]


def _labels(classes: list[Any]) -> Any:
    labels = np.asarray(classes)
    return labels if labels.dtype.kind in "iufb" else np.asarray(classes, dtype=object)


def like(answer: Any, matrix: Any, columns: list[str] | None, classes: list[Any]) -> Any:
    """Give probabilities the form of the base's own answer."""
    if isinstance(answer, pd.DataFrame) and answer.shape[1] == 1 and matrix.shape[1] > 1:
        column = pd.Series(list(matrix.tolist()), index=answer.index, dtype=object)
        return pd.DataFrame({answer.columns[0]: column})
    if isinstance(answer, pd.DataFrame):
        names = [str(name) for name in answer.columns]
        order = [columns.index(n) for n in names] if columns else list(range(len(names)))
        more = classes[len(order) :]
        order += range(len(order), len(classes))
        return pd.DataFrame(matrix[:, order], index=answer.index, columns=[*answer.columns, *more])
    if isinstance(answer, pd.Series):
        return pd.Series(matrix.tolist(), index=answer.index, name=answer.name, dtype=object)
    if isinstance(answer, list):
        return matrix.tolist()
    if np.ndim(answer) == 1:
        return matrix[:, 1]
    return matrix
