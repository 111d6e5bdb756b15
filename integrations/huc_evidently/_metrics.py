"""The metrics of a window: a moment per node, and what the whole window comes to.

Results and tests are Evidently's own classes, so that a snapshot opens where this package is not
installed. What a metric is calculated from lies in private attributes: every public field becomes
a label of its series on a dashboard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from evidently.core.metric_types import (
    ByLabelCalculation,
    ByLabelMetric,
    ByLabelValue,
    MetricConfig,
    SingleValue,
    SingleValueCalculation,
    SingleValueMetric,
)

from huc_monitor.errors import InvalidInputError

if TYPE_CHECKING:
    from huc_evidently._window import WindowAudit

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


class HUCMoment(ByLabelMetric):  # type: ignore[misc]
    """Absolute moment of every node, or a bound on it, for one utility and subgroup.

    Made by `HUCPreset`. ``bound`` is "point", "lower" or "upper".
    """

    utility: str
    subgroup: str
    bound: str
    preset: Optional[str] = None  # noqa: UP045 - read by pydantic at run time
    _audits: Any = None

    def __init__(self, *, audits: Any = None, **fields: Any) -> None:
        self._audits = audits
        super().__init__(**fields)


class HUCMomentCalculation(ByLabelCalculation[HUCMoment]):  # type: ignore[misc]
    """Reads one column of an audit."""

    _config: MetricConfig | None = None

    def calculate(self, context: Any, current_data: Any, reference_data: Any) -> Any:  # noqa: ARG002
        """Return the numbers of the current data, and of the reference if it was audited."""
        current, reference = _audits_of(self.metric)
        return self._values(current), None if reference is None else self._values(reference)

    def _values(self, window: WindowAudit) -> ByLabelValue:
        metric = self.metric
        result = self.result(window.values(metric.utility, metric.subgroup, metric.bound))
        result.widget = []  # the preset draws all metrics together
        return result

    def display_name(self) -> str:
        """Say whose moment it is."""
        metric = self.metric
        return f"{_WORDS[metric.bound]} ({metric.utility}, {metric.subgroup})".capitalize()

    def label_display_name(self, label: Any) -> str:
        """Put the node first: it is what a failed test must name."""
        metric = self.metric
        return f"{label} ({metric.utility}, {metric.subgroup}): {_WORDS[metric.bound]}"

    def to_metric_config(self) -> MetricConfig:
        """Leave out the tests: every node's value would repeat those of all nodes."""
        if self._config is None:
            self._config = _without_tests(super().to_metric_config())
        return self._config


class HUCChange(ByLabelMetric):  # type: ignore[misc]
    """How far every node's moment changed since the reference data, or a bound on it.

    Made by `HUCPreset` where the reference data have labels.
    """

    utility: str
    subgroup: str
    bound: str
    preset: Optional[str] = None  # noqa: UP045 - read by pydantic at run time
    _audits: Any = None

    def __init__(self, *, audits: Any = None, **fields: Any) -> None:
        self._audits = audits
        super().__init__(**fields)


class HUCChangeCalculation(ByLabelCalculation[HUCChange]):  # type: ignore[misc]
    """Reads one column of a comparison with the reference data."""

    def calculate(self, context: Any, current_data: Any, reference_data: Any) -> Any:  # noqa: ARG002
        """Return the changes of the current data; the reference has none from itself."""
        metric = self.metric
        current, _ = _audits_of(metric)
        result = self.result(current.changes(metric.utility, metric.subgroup, metric.bound))
        result.widget = []  # the preset draws all metrics together
        return result, None

    def display_name(self) -> str:
        """Say whose change it is."""
        metric = self.metric
        return f"{_CHANGE_WORDS[metric.bound]} ({metric.utility}, {metric.subgroup})".capitalize()

    def label_display_name(self, label: Any) -> str:
        """Put the node first: it is what a failed test must name."""
        metric = self.metric
        return f"{label} ({metric.utility}, {metric.subgroup}): {_CHANGE_WORDS[metric.bound]}"

    def to_metric_config(self) -> MetricConfig:
        """Leave out the tests, as `HUCMoment` does."""
        return _without_tests(super().to_metric_config())


class HUCSummary(SingleValueMetric):  # type: ignore[misc]
    """What a whole window comes to: HUC, a bound on it, or UC. Made by `HUCPreset`."""

    quantity: str
    preset: Optional[str] = None  # noqa: UP045 - read by pydantic at run time
    _audits: Any = None

    def __init__(self, *, audits: Any = None, **fields: Any) -> None:
        self._audits = audits
        super().__init__(**fields)


class HUCSummaryCalculation(SingleValueCalculation[HUCSummary]):  # type: ignore[misc]
    """Reads one number of an audit."""

    def calculate(self, context: Any, current_data: Any, reference_data: Any) -> Any:  # noqa: ARG002
        """Return the number of the current data, and of the reference if it was audited."""
        current, reference = _audits_of(self.metric)
        return self._value(current), None if reference is None else self._value(reference)

    def _value(self, window: WindowAudit) -> SingleValue:
        result = self.result(float(getattr(window.result, self.metric.quantity)))
        result.widget = []
        return result

    def display_name(self) -> str:
        """Say which number it is."""
        return SUMMARIES[self.metric.quantity]

    def to_metric_config(self) -> MetricConfig:
        """Leave out the tests, as `HUCMoment` does."""
        return _without_tests(super().to_metric_config())


def _audits_of(metric: Any) -> Any:
    if metric._audits is None:  # noqa: SLF001 - of our own metrics
        msg = f"`{type(metric).__name__}` must come from a preset. Put `HUCPreset` in the report."
        raise InvalidInputError(msg)
    return metric._audits  # noqa: SLF001


def _without_tests(config: MetricConfig) -> MetricConfig:
    params = {name: value for name, value in config.params.items() if name != "tests"}
    return MetricConfig(metric_id=config.metric_id, params=params)
