"""The frozen window that others are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from huc_monitor._common.forms import Form
from huc_monitor._common.times import say_span
from huc_monitor.audit.decomposition import UtilityRows
from huc_monitor.monitor.drift import DriftReference, compare
from huc_monitor.monitor.records import DriftFinding
from huc_monitor.sources import PredictionData
from huc_monitor.subgroups import Subgroups
from huc_monitor.utilities.program import Floats

if TYPE_CHECKING:
    from huc_monitor.monitor._monitor import Monitor


@dataclass(frozen=True, slots=True, eq=False)
class Reference(Form):
    """What is kept of the reference window.

    Attributes
    ----------
    moments, radii : of every candidate
    drift : DriftReference
    start, end : datetime or None
        When it was; older states do not say.
    pairs : dict of subgroup to (cells, counts)
        Which children were mistaken for each other (`huc_monitor.monitor.confusion`).
    """

    moments: Floats
    drift: DriftReference
    radii: Floats | None = None
    start: datetime | None = None
    end: datetime | None = None
    pairs: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)

    def when(self, zone: str) -> str:
        """Say when the reference was, in brackets, after a space; empty if not known."""
        if self.start is None or self.end is None:
            return ""
        return f" ({say_span(self.start, self.end, zone)})"

    def differs(self, row: int, moment: float, radius: float) -> bool | None:
        """Tell whether a moment's size differs from the reference's; None without bounds on both.

        Sizes are compared: of two ranges off by nearly as much in opposite ways, chance picks one.
        """
        if self.radii is None or not np.isfinite(radius + self.radii[row]):
            return None
        return bool(abs(abs(moment) - abs(self.moments[row])) > radius + self.radii[row])


def measure_drift(
    monitor: Monitor,
    subgroups: Subgroups,
    reference: Reference | None,
    data: PredictionData,
    rows: Sequence[UtilityRows],
    weights: Sequence[np.ndarray[Any, Any]],
) -> tuple[DriftFinding, ...]:
    """Measure how far predictions are from the reference's, where that is asked for."""
    if reference is None or not monitor.policy.drift.enabled:
        return ()
    return compare(
        reference.drift,
        data.probabilities,
        rows,
        weights,
        tree=monitor.tree,
        subgroups=subgroups,
        policy=monitor.policy.drift,
        version=data.version,
    )
