"""The model underneath: how it is asked for probabilities, and what it answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

_SUM_TOLERANCE = 1e-4
_ROUNDING = 1e-9


class Base:
    """A loaded base model, asked through its own implementation.

    MLflow has checked the input against the signature already; going through the native
    ``predict_proba`` avoids a second check of every column.
    """

    def __init__(self, model: Any, data: dict[str, Any]) -> None:
        self.model = model
        self.columns: list[str] | None = data["base_columns"]
        self.column_names: list[str] | None = data["probability_columns"]
        self.n_classes: int = data.get("n_base_classes", len(data["classes"]))
        self._leaf = np.asarray(data["class_leaf"])[: self.n_classes]
        self._n_leaves = len(data["class_leaf"])
        self.native = native_predict_proba(model) if data["native"] else None

    def inputs(self, data: Any) -> Any:
        """Leave out the columns that only subgroups need.

        A column of the base that did not come is the base's own affair: its signature may call it
        optional, and a model that was fitted on it need not read it.
        """
        if self.columns is None or not isinstance(data, pd.DataFrame):
            return data
        # The signature puts the base's own columns first; a slice costs a tenth of a selection.
        count, names = len(self.columns), data.columns.tolist()
        if names[:count] == self.columns:
            return data if len(names) == count else data.iloc[:, :count]
        known = set(names)
        return data[[name for name in self.columns if name in known]]

    def answer(self, data: Any) -> Any:
        """Return what the base says, in its own form."""
        given = self.inputs(data)
        return self.native(given) if self.native is not None else self.model.predict(given)

    def probabilities(self, answer: Any) -> Any:
        """Read an answer as probabilities of the tree's leaves; 0 of those it does not know."""
        matrix = as_matrix(answer, self.n_classes, self.column_names)
        leaves = np.zeros((len(matrix), self._n_leaves))
        leaves[:, self._leaf] = matrix
        return leaves


def native_predict_proba(model: Any) -> Any:
    """Return ``predict_proba`` of the estimator inside a loaded model, None if there is none."""
    try:
        raw = model.get_raw_model()
    except Exception:  # noqa: BLE001 - MLflow raises its own type where there is no such method
        return None
    return getattr(raw, "predict_proba", None)


def as_matrix(answer: Any, n_classes: int, columns: list[str] | None = None) -> Any:
    """Read an array, a table or a column of lists as probabilities.

    One number per row is the probability of the second of two classes.
    """
    if isinstance(answer, pd.DataFrame) and answer.shape[1] == 1 and n_classes > 1:
        answer = answer.iloc[:, 0]
    if isinstance(answer, pd.DataFrame):
        names = [str(name) for name in answer.columns]
        if columns is not None and sorted(names) == sorted(columns):
            answer = answer.set_axis(names, axis=1)[columns]
        answer = answer.to_numpy()
    elif isinstance(answer, pd.Series):
        answer = answer.to_list()
    try:
        matrix = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(_not_probabilities(f"{type(answer).__name__} {_short(answer)}")) from None
    if matrix.ndim == 1 and n_classes == 2:
        matrix = np.column_stack([1.0 - matrix, matrix])
    if matrix.ndim != 2 or matrix.shape[1] != n_classes:
        raise ValueError(_not_probabilities(f"shape {matrix.shape} for {n_classes} classes"))
    sums = matrix.sum(axis=1)
    bad = np.flatnonzero(~((matrix >= 0).all(axis=1) & (np.abs(sums - 1.0) <= _SUM_TOLERANCE)))
    if bad.size:
        raise ValueError(_not_probabilities(f"{_short(matrix[bad[0]])} (row {bad[0]})"))
    # Single precision sums to 1 within 1e-6 only; the recalibrator was fitted on rescaled rows.
    off = np.abs(sums - 1.0) > _ROUNDING
    return np.where(off[:, None], matrix / sums[:, None], matrix) if off.any() else matrix


def _not_probabilities(got: str) -> str:
    return (
        f"The base model must answer with probabilities of its classes that sum to 1; got {got}. "
        "Log the base with an output of probabilities (for scikit-learn: "
        "pyfunc_predict_fn='predict_proba')."
    )


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
