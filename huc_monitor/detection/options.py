"""Settings of the e-detector."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from huc_monitor._common.settings import Number, Section


class DetectorOptions(Section):
    """Alarms that stay valid however often one looks.

    Parameters
    ----------
    enabled : bool, default True
    average_run_length : float, default 100
        Windows between false alarms, on average and at least.
    tolerance : float, optional
        One tolerance in [-1, 1] for the e-detector, if not that of the alerts; overrides of that
        one hold for both.
    """

    enabled: bool = Field(default=True, description="Whether evidence is added up over windows.")
    average_run_length: Annotated[Number, Field(ge=1)] = Field(
        default=100.0, description="Windows between false alarms, at least, on average."
    )
    tolerance: Annotated[Number, Field(ge=0)] | None = Field(
        default=None, description="In [-1, 1]; the `tolerance` of the alerts when left out."
    )


DEFAULTS: Final = DetectorOptions()
