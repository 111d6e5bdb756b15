"""The e-detector of a monitor: fed with every labelled row once, as labels come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from huc_monitor._common.times import to_column
from huc_monitor.detection import EDetector

if TYPE_CHECKING:
    from datetime import datetime

    from huc_monitor.detection import EDetectorStep
    from huc_monitor.monitor._examine import Reference
    from huc_monitor.monitor._parts import Parts
    from huc_monitor.monitor._rows import Decomposed
    from huc_monitor.monitor._state import MonitorState, Visited
    from huc_monitor.subgroups import Subgroups


@dataclass(slots=True, eq=False)
class Detecting:
    """Loads, feeds and resets the e-detector, and says why it was reset."""

    parts: Parts
    state: MonitorState
    _detector: EDetector | None = None
    _reset: str | None = None

    def load(self, subgroups: Subgroups, reference: Reference | None) -> None:
        """Make or continue the e-detector; another tolerance starts it afresh."""
        parts, state = self.parts, self.state
        if parts.average_run_length is None or state.subgroups is None:
            return
        values = parts.tolerance.values(parts.tree, parts.utilities, subgroups)
        if parts.detector_tolerance is not None:
            values = np.full(values.size, parts.detector_tolerance)
        if parts.tolerance.relative:
            if reference is None:
                return
            values = values + np.abs(reference.moments)
        if not values.size:
            return
        kept = state.detector
        if kept is not None:
            wanted = (values.tolist(), float(parts.average_run_length))
            if (kept["tolerance"], kept["average_run_length"]) == wanted:
                self._detector = EDetector.from_dict(kept)
                return
            self._reset = "the tolerance or the average run length changed"
        self._detector = EDetector(
            tree=parts.tree,
            utilities=parts.utilities,
            subgroups=subgroups,
            tolerance=values.tolist(),
            average_run_length=parts.average_run_length,
        )

    def feed(self, visited: Visited, found: Decomposed, as_of: datetime) -> EDetectorStep | None:
        """Give the e-detector the rows it has not seen: batches in the order labels came."""
        data = found.data
        fresh = data.times >= to_column(visited.fed_from)
        self._follow_version(
            data.model_versions[fresh] if data.model_versions is not None else None
        )
        if self._detector is None:
            return None
        if visited.fed_until is not None:
            if data.label_times is None:
                return None  # without times, late labels cannot be told from those seen before
            fresh &= data.label_times > to_column(visited.fed_until)
        chosen = np.flatnonzero(fresh)
        visited.fed_until = as_of
        if not chosen.size:
            return None
        step = self._detector.update_rows(*found.take(chosen.astype(np.int64)))
        self.state.detector = self._detector.to_dict()
        return step

    def to_plain(self, step: EDetectorStep | None) -> dict[str, Any] | None:
        """Return a step as records keep it; the first one after a reset says why."""
        if step is None:
            return None
        plain = {**step.to_dict(), "reset": self._reset}
        self._reset = None
        return plain

    def _follow_version(self, versions: Any) -> None:
        """Follow the version that serves most rows; the evidence against another one is void."""
        if versions is None or not len(versions):
            return
        counts = pd.Series(versions, dtype=object).dropna().value_counts()
        if counts.empty:
            return
        current = min(str(v) for v in counts.index[counts == counts.iloc[0]])
        before = self.state.model_version
        if before is not None and before != current and self._detector is not None:
            self._reset = f"model version {before} became {current}"
            self._detector.reset(self._reset)
        self.state.model_version = current
