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
        Whether evidence is added up over windows.
    average_run_length : float, default 100
        Windows between false alarms, at least, on average.
    tolerance : float, optional
        In [-1, 1]; the `tolerance` of the alerts when left out.

        It is that of the e-detector alone; overrides of the other hold for both.
    """

    enabled: bool = True
    average_run_length: Annotated[Number, Field(ge=1)] = 100.0
    tolerance: Annotated[Number, Field(ge=0)] | None = None


DEFAULTS: Final = DetectorOptions()
