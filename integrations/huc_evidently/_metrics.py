"""The metrics of a window: a moment per node, and what the whole window comes to.

Results and tests are Evidently's own classes, so that a snapshot opens where this package is not
installed. What a metric is calculated from lies in private attributes: every public field becomes
a label of its series on a dashboard.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Optional, TypeVar

from evidently.core.metric_types import (
    ByLabelCalculation,
    ByLabelMetric,
    MetricConfig,
    SingleValueCalculation,
    SingleValueMetric,
)

from huc_evidently._window import WindowAudit
from huc_monitor.errors import InvalidInputError

SUMMARIES = {
    "huc": "HUC: the largest moment of any branch",
    "huc_lower": "HUC, lower bound",
    "huc_upper": "HUC, upper bound",
    "uc": "UC: the same after summing over branches",
}
_WORDS = {"point": "moment", "lower": "lower bound of the moment", "upper": "upper bound"}

_CHANGE_WORDS = {
    "point": "change since the reference",
    "lower": "lower bound of the change since the reference",
    "upper": "upper bound of the change since the reference",
}


# Evidently finds a calculation by the metric in the brackets of its first base.
_Metric = TypeVar("_Metric")


class _Audited:
    """A metric that was given its audits by the preset."""

    def __init__(self, *, audits: Any = None, **fields: Any) -> None:
        self._audits = audits
        super().__init__(**fields)


class _Reading:
    """What reads a number, or one per node, of an audit."""

    metric: Any
    result: Any
    of_reference: ClassVar[bool] = True
    _config: MetricConfig | None = None

    def calculate(self, context: Any, current_data: Any, reference_data: Any) -> Any:  # noqa: ARG002
        """Return the numbers of the current data, and of the reference if it was audited."""
        if self.metric._audits is None:  # noqa: SLF001 - of our own metrics
            name = type(self.metric).__name__
            msg = f"`{name}` must come from a preset. Put `HUCPreset` in the report."
            raise InvalidInputError(msg)
        current, reference = self.metric._audits  # noqa: SLF001
        both = reference is not None and self.of_reference
        return self._value(current), self._value(reference) if both else None

    def _value(self, window: WindowAudit) -> Any:
        result = self.result(self._read(window))
        result.widget = []  # the preset draws all metrics together
        return result

    @abstractmethod
    def _read(self, window: WindowAudit) -> Any:
        """Read the metric's numbers from an audited window."""

    def to_metric_config(self) -> MetricConfig:
        """Leave out the tests: every node's value would repeat those of all nodes."""
        if self._config is None:
            given = super().to_metric_config()  # type: ignore[misc]
            params = {name: value for name, value in given.params.items() if name != "tests"}
            self._config = MetricConfig(metric_id=given.metric_id, params=params)
        return self._config


class _ByNode(_Reading, ByLabelCalculation[_Metric], ABC):  # type: ignore[misc]
    words: ClassVar[dict[str, str]]

    def display_name(self) -> str:
        """Say whose number it is."""
        metric = self.metric
        return f"{self.words[metric.bound]} ({metric.utility}, {metric.subgroup})".capitalize()

    def label_display_name(self, label: Any) -> str:
        """Put the node first: it is what a failed test must name."""
        metric = self.metric
        return f"{label} ({metric.utility}, {metric.subgroup}): {self.words[metric.bound]}"


class _OfWindow(_Reading, SingleValueCalculation[_Metric], ABC):  # type: ignore[misc]
    """One number of a window."""


class HUCMoment(_Audited, ByLabelMetric):  # type: ignore[misc]
    """Absolute moment of every node, or a bound on it, for one utility and subgroup.

    Made by `HUCPreset`. ``bound`` is "point", "lower" or "upper".
    """

    utility: str
    subgroup: str
    bound: str
    preset: Optional[str] = None  # noqa: UP045 - read by pydantic at run time
    _audits: Any = None


class HUCMomentCalculation(_ByNode[HUCMoment]):
    """Reads one column of an audit."""

    words = _WORDS

    def _read(self, window: WindowAudit) -> dict[str, float]:
        return window.values(self.metric.utility, self.metric.subgroup, self.metric.bound)


class HUCChange(_Audited, ByLabelMetric):  # type: ignore[misc]
    """How far every node's moment changed since the reference data, or a bound on it.

    Made by `HUCPreset` where the reference data have labels.
    """

    utility: str
    subgroup: str
    bound: str
    preset: Optional[str] = None  # noqa: UP045 - read by pydantic at run time
    _audits: Any = None


class HUCChangeCalculation(_ByNode[HUCChange]):
    """Reads one column of a comparison with the reference data, which has none from itself."""

    words = _CHANGE_WORDS
    of_reference = False

    def _read(self, window: WindowAudit) -> dict[str, float]:
        return window.changes(self.metric.utility, self.metric.subgroup, self.metric.bound)


class HUCSummary(_Audited, SingleValueMetric):  # type: ignore[misc]
    """What a whole window comes to: HUC, a bound on it, or UC. Made by `HUCPreset`."""

    quantity: str
    preset: Optional[str] = None  # noqa: UP045 - read by pydantic at run time
    _audits: Any = None


class HUCSummaryCalculation(_OfWindow[HUCSummary]):
    """Reads one number of an audit."""

    def _read(self, window: WindowAudit) -> float:
        return float(getattr(window.result, self.metric.quantity))

    def display_name(self) -> str:
        """Say which number it is."""
        return SUMMARIES[self.metric.quantity]
