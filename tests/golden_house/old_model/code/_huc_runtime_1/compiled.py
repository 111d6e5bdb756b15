"""The compiled recalibrator of huc-monitor, where it is installed, and when it is worth its price.

Compiling takes most of a minute the first time on a machine. Numpy gives the same answer, so
requests are answered with numpy until the model has been busy for a while; then the compiled form
is made ready in a thread beside them. A large batch waits for it: it gains more than it loses.
"""

from __future__ import annotations

import atexit
import threading
from typing import Any

import numpy as np

# Compiled in the background once so many requests, or rows, were answered.
BUSY_REQUESTS = 50
BUSY_ROWS = 5_000
# From so many rows on, a request waits for it.
LARGE_ROWS = 50_000
_MOST_PATTERNS = 64
_LONGEST_WAIT_AT_EXIT = 120.0


class Compiled:
    """One stage's recalibrator, compiled when its time has come."""

    def __init__(self, plain: dict[str, Any], used: list[str]) -> None:
        self._plain = plain
        self._used = used
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._tried = False
        self._whole: Any = None
        self._patterns: dict[tuple[float, ...], Any] = {}
        self._n_requests = self._n_rows = 0

    def ready(self, n_rows: int) -> bool:
        """Say whether to use it for a request of so many rows; may begin to compile."""
        if self._tried:
            return self._whole is not None
        self._n_requests += 1
        self._n_rows += n_rows
        if n_rows >= LARGE_ROWS:
            return self.compile()
        busy = self._n_requests >= BUSY_REQUESTS or self._n_rows >= BUSY_ROWS
        if busy and self._thread is None:
            self._thread = threading.Thread(target=self.compile, daemon=True)
            self._thread.start()
            # A process must not end in the middle of compiling: that can crash it.
            atexit.register(self._thread.join, _LONGEST_WAIT_AT_EXIT)
        return False

    def compile(self) -> bool:
        """Compile now; return whether there is a compiled form."""
        with self._lock:
            if not self._tried:
                self._whole = self._made()
                self._tried = True
        return self._whole is not None

    def predict(self, probabilities: Any, features: Any) -> Any:
        """Recalibrate many rows."""
        return self._whole.predict_proba(probabilities, features=features)

    def predict_few(self, probabilities: Any, weights: Any) -> Any:
        """Recalibrate few rows whose subgroups are known; None if it cannot be done so.

        For a row, an update of a subgroup it is in is an update of everyone, and the others are
        none at all. So rows of the same subgroups share a recalibrator that asks for no features.
        """
        out = np.empty_like(probabilities)
        for i, pattern in enumerate(map(tuple, weights.T.tolist())):
            found = self._patterns.get(pattern)
            if found is None:
                found = self._for_pattern(pattern)
                if found is None:
                    return None
            out[i] = found.predict_proba(probabilities[i : i + 1])[0]
        return out

    def _for_pattern(self, pattern: tuple[float, ...]) -> Any:
        if len(self._patterns) >= _MOST_PATTERNS or not set(pattern) <= {0.0, 1.0}:
            return None
        inside = {name for name, weight in zip(self._used, pattern, strict=True) if weight}
        updates = [
            {**update, "subgroup": "all"}
            for update in self._plain["updates"]
            if update["subgroup"] in inside
        ]
        family = {**self._plain["subgroups"], "subgroups": []}
        made = _read({**self._plain, "subgroups": family, "updates": updates})
        self._patterns[pattern] = made
        return made

    def _made(self) -> Any:
        """Read the recalibrator with huc-monitor, if it is there and knows this format."""
        try:
            # Only the subgroups that updates name: a request may lack the columns of the others.
            family = self._plain["subgroups"]
            kept = [entry for entry in family["subgroups"] if entry["name"] in self._used]
            found = _read({**self._plain, "subgroups": {**family, "subgroups": kept}})
            # Loading compiles nothing; one row and many rows do.
            n_leaves = len(found.tree.leaves)
            everywhere = self._for_pattern((1.0,) * len(self._used))
            for n in (1, 1_024):
                everywhere.predict_proba(np.full((n, n_leaves), 1.0 / n_leaves))
        except Exception:  # noqa: BLE001 - none, or another version of it: numpy gives the same
            return None
        return found


def _read(plain: dict[str, Any]) -> Any:
    from huc_monitor import recalibration

    return getattr(recalibration, plain["type"]).from_dict(plain)
