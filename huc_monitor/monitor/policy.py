"""The policy of a monitor: bounds, tolerance, alerts, tests and recalibration in one object."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, NonNegativeFloat

from huc_monitor._common.settings import Section, renamed
from huc_monitor.audit.options import AuditOptions
from huc_monitor.detection.options import DetectorOptions
from huc_monitor.monitor.alerts import AlertPolicy
from huc_monitor.monitor.change import ChangePolicy
from huc_monitor.monitor.drift import DriftPolicy
from huc_monitor.monitor.forecasting import ForecastPolicy
from huc_monitor.monitor.muting import Maintenance
from huc_monitor.monitor.noticing import NoticePolicy
from huc_monitor.monitor.recalibrating import RecalibrationPolicy
from huc_monitor.monitor.tolerance import Tolerance


def valued(value: Any) -> Any:
    """Let a number stand for a tolerance."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"value": value} if number else value


class Policy(Section):
    """How a monitor audits, and what it does with an audit.

    The sections of the same names in a configuration file are these very classes. A section may
    be given as an object or as a mapping.

    Parameters
    ----------
    tolerance : float or Tolerance
    audit : AuditOptions
    sequential : DetectorOptions, of the e-detector
    change : ChangePolicy, of the change test: windows against the reference
    alerts : AlertPolicy
    drift : DriftPolicy
    forecast : ForecastPolicy, of windows whose labels are missing
    noticing : NoticePolicy, of rows that depend on each other, and labels that are no random choice
    recalibration : RecalibrationPolicy
    maintenance : tuple of Maintenance, optional
        Times whose data is known to be odd: nobody is told of them.

    Examples
    --------
    >>> policy = Policy(tolerance=0.03, alerts={"cool_down": "6h"})
    >>> policy.tolerance.value, policy.alerts.cool_down, policy.audit.n_draws
    (0.03, '6h', 1000)
    """

    tolerance: Annotated[
        Tolerance, BeforeValidator(valued, json_schema_input_type=NonNegativeFloat | Tolerance)
    ] = Tolerance()
    audit: AuditOptions = Field(default=AuditOptions(), validation_alias=renamed("audit", "bounds"))
    sequential: DetectorOptions = DetectorOptions()
    change: ChangePolicy = ChangePolicy()
    alerts: AlertPolicy = AlertPolicy()
    drift: DriftPolicy = DriftPolicy()
    forecast: ForecastPolicy = ForecastPolicy()
    noticing: NoticePolicy = NoticePolicy()
    recalibration: RecalibrationPolicy = Field(
        default=RecalibrationPolicy(), validation_alias=renamed("recalibration", "retraining")
    )
    maintenance: tuple[Maintenance, ...] = ()

    @property
    def limits(self) -> dict[str, float]:
        """What moments are measured by, by the settings' names; none where branches differ."""
        given = self.tolerance
        if given.relative or given.overrides or given.unit == "money":
            return {}
        own = self.sequential.tolerance if self.sequential.enabled else None
        return {"tolerance": given.value} | ({} if own is None else {"sequential.tolerance": own})

    @property
    def by_change(self) -> bool:
        """Whether alerts follow what changed since the reference."""
        return self.change.enabled and (self.change.alerts == "change" or self.tolerance.relative)
