"""The e-detectors of a monitor, one per model version.

Each is fed with every labelled row of its version once, as labels come. Evidence against one
version says nothing of another, and versions may serve side by side, so each keeps its own. How
they share one average run length is in `huc_monitor.detection._detector`, "Several streams". The
newest versions are kept; what is forgotten only lowers the evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor._common.times import to_column
from huc_monitor.detection import EDetector, EDetectorStep
from huc_monitor.monitor._rows import Decomposed
from huc_monitor.monitor.tolerance import accepted
from huc_monitor.sources import WindowData
from huc_monitor.subgroups import Subgroups
from huc_monitor.utilities.program import Ints

if TYPE_CHECKING:
    from huc_monitor.monitor._monitor import Monitor
    from huc_monitor.monitor._reference import Reference
    from huc_monitor.monitor._state import MonitorState, Visited


_MOST_VERSIONS = 8
_OTHERS = "(other versions)"


@dataclass(slots=True, eq=False)
class Detecting:
    """Loads and feeds the e-detectors, and says when one starts without evidence."""

    monitor: Monitor
    state: MonitorState
    _subgroups: Subgroups | None = None
    _tolerance: list[float] = field(default_factory=list)
    _detectors: dict[str, EDetector] = field(default_factory=dict)
    _reset: str | None = None

    def load(self, subgroups: Subgroups, reference: Reference | None) -> None:
        """Continue the e-detectors; another tolerance starts all of them afresh."""
        monitor, state = self.monitor, self.state
        options, tolerance = monitor.policy.sequential, monitor.policy.tolerance
        if not options.enabled or state.subgroups is None:
            return
        values = tolerance.values(
            monitor.tree, monitor.utilities, subgroups, default=options.tolerance
        )
        if tolerance.relative:
            if reference is None:
                return
            values = accepted(values, reference.moments)
        self._subgroups, self._tolerance = subgroups, values.tolist()
        wanted = (self._tolerance, options.average_run_length)
        for version, kept in state.detectors.items():
            if (kept["tolerance"], kept["average_run_length"]) == wanted:
                self._detectors[version] = EDetector.from_dict(kept)
            else:
                self._reset = "the tolerance or the average run length changed"

    def feed(
        self, visited: Visited, found: Decomposed, as_of: datetime, *, counts: bool = True
    ) -> EDetectorStep | None:
        """Give the e-detectors the rows they have not seen: batches in the order labels came.

        Rows that do not count are no evidence, now or later.
        """
        data = found.data
        fresh = data.times >= to_column(visited.fed_from)
        versions = _versions(data)
        before = self._follow_version(versions[fresh])
        if not self._tolerance or not counts:
            return None
        if visited.fed_until is not None:
            if data.label_times is None:
                return None  # without times, late labels cannot be told from those seen before
            fresh &= data.label_times > to_column(visited.fed_until)
        chosen = np.flatnonzero(fresh)
        visited.fed_until = as_of
        if not chosen.size:
            return None
        steps = {}
        for version, rows in _by_version(versions, chosen):
            detector = self._of(version, before)
            share = rows.size / chosen.size
            steps[version] = detector.update_rows(*found.take(rows), entering=share)
            self._detectors[version] = detector  # last in order: the newest are kept
        step = EDetectorStep.joined(list(steps.values()))
        self._keep(step, list(steps))
        return step

    def _of(self, version: str, before: str | None) -> EDetector:
        """Return a version's detector, one without evidence where there is none."""
        kept = self._detectors.pop(version, None)
        if kept is not None:
            return kept
        if self._detectors:
            self._reset = f"model version {version} is new"
            if before is not None and version == self.state.model_version != before:
                self._reset = f"model version {before} became {version}"
            newest = next(reversed(self._detectors.values()))
            detector = EDetector.from_dict(newest.to_dict())
            detector.reset(self._reset)
            return detector
        return EDetector(
            tree=self.monitor.tree,
            utilities=self.monitor.utilities,
            subgroups=self._subgroups,
            tolerance=self._tolerance,
            average_run_length=self.monitor.policy.sequential.average_run_length,
        )

    def _keep(self, step: EDetectorStep, fed: list[str]) -> None:
        """Restart those that raised an alarm together, and write the newest versions."""
        current = self.state.model_version or ""
        if current in self._detectors:  # last, as it is when the state is read again
            self._detectors[current] = self._detectors.pop(current)
        for version in fed:
            if step.alarm:
                self._detectors[version].restart()
            self.state.detectors[version] = self._detectors[version].to_dict()
        self._detectors = dict(list(self._detectors.items())[-_MOST_VERSIONS:])
        self.state.detectors = {name: self.state.detectors[name] for name in self._detectors}

    def to_plain(self, step: EDetectorStep | None) -> dict[str, Any] | None:
        """Return a step as records keep it; the first one after a reset says why."""
        if step is None:
            return None
        plain = {**step.to_dict(), "reset": self._reset}
        self._reset = None
        return plain

    def _follow_version(self, versions: NDArray[Any]) -> str | None:
        """Name the version that serves most rows; return the one that did before."""
        before = self.state.model_version
        counts = pd.Series(versions[versions != ""], dtype=object).value_counts()
        if not counts.empty:
            self.state.model_version = min(counts.index[counts == counts.iloc[0]])
        return before


def _versions(data: WindowData) -> NDArray[Any]:
    """Return the version of every row, "" where it is not known."""
    if data.model_versions is None:
        return np.full(data.n, "", dtype=object)
    return np.array([version or "" for version in data.model_versions], dtype=object)


def _by_version(versions: NDArray[Any], chosen: NDArray[Any]) -> list[tuple[str, Ints]]:
    """Split rows by version, the most frequent last; beyond eight versions the rest are pooled."""
    codes, names = pd.factorize(versions[chosen])
    counts = np.bincount(codes)
    order = sorted(range(len(names)), key=lambda code: (-counts[code], names[code]))
    if len(order) > _MOST_VERSIONS:
        codes = np.where(np.isin(codes, order[: _MOST_VERSIONS - 1]), codes, len(names))
        order = [*order[: _MOST_VERSIONS - 1], len(names)]
    named = [*names, _OTHERS]
    return [(str(named[code]), chosen[codes == code].astype(np.int64)) for code in order[::-1]]
