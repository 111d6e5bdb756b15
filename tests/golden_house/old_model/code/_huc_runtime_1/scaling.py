"""The scaling that comes before updates, in numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np

_LOWEST_LOGIT = -700.0
_CHUNK_CELLS = 1 << 16


def scale(probabilities: Any, scaling: dict[str, Any] | None) -> Any:
    """Apply a temperature, vector or Dirichlet scaling, row by row in a fixed order."""
    if scaling is None:
        return probabilities
    kind, theta = scaling["scaling"], np.asarray(scaling["parameters"], dtype=np.float64)
    k = probabilities.shape[1]
    out = np.empty(probabilities.shape)
    size = max(1, _CHUNK_CELLS // k)
    for lo in range(0, len(out), size):
        rows = np.ascontiguousarray(probabilities[lo : lo + size], dtype=np.float64)
        logs = np.log(np.maximum(rows, scaling["settings"]["q_min"]))
        if kind == "temperature":
            logits = theta[0] * logs
        elif kind == "vector":
            logits = theta[:k] * logs + theta[k:]
        else:
            columns = np.ascontiguousarray(theta[: k * k].reshape(k, k).T)
            logits = np.broadcast_to(theta[k * k :], logs.shape).copy()
            for j in range(k):
                logits += logs[:, j, None] * columns[j]
        logits -= logits.max(axis=1, keepdims=True)
        np.maximum(logits, _LOWEST_LOGIT, out=logits)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        out[lo : lo + size] = logits
    return out
