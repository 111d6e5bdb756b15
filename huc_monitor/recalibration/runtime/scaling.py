"""Temperature, vector and Dirichlet scaling as they are applied: row by row, in a fixed order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_LOWEST_LOGIT = -700.0  # exp() of it is positive, even after division by the number of leaves
_CHUNK_CELLS = 1 << 16


def scale(probabilities: Any, kind: str, theta: Any, q_min: float) -> NDArray[np.float64]:
    """Apply a scaling with parameters `theta`; probabilities below `q_min` count as this.

    Every row is treated by itself: the same row gives the same bits alone and among others.
    """
    k = probabilities.shape[1]
    out = np.empty(probabilities.shape)
    size = max(1, _CHUNK_CELLS // k)
    for lo in range(0, len(out), size):
        rows = np.ascontiguousarray(probabilities[lo : lo + size], dtype=np.float64)
        logits = _logits(np.log(np.maximum(rows, q_min)), kind, theta, k)
        logits -= logits.max(axis=1, keepdims=True)
        np.maximum(logits, _LOWEST_LOGIT, out=logits)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        out[lo : lo + size] = logits
    return out


def _logits(logs: Any, kind: str, theta: Any, k: int) -> Any:
    if kind == "temperature":
        return theta[0] * logs
    if kind == "vector":
        return theta[:k] * logs + theta[k:]
    # Column by column: a matrix product may round differently with the number of rows.
    columns = np.ascontiguousarray(theta[: k * k].reshape(k, k).T)
    total = np.broadcast_to(theta[k * k :], logs.shape).copy()
    term = np.empty_like(total)
    for j in range(k):
        np.multiply(logs[:, j, None], columns[j], out=term)
        total += term
    return total
