"""How far a search for subgroups goes: the same words and defaults for Python and for files."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from huc_monitor._common.settings import Number, Section, Whole


class DiscoveryOptions(Section):
    """How far a search for subgroups that nobody named goes.

    Parameters
    ----------
    max_conditions : int, default 2
        Conditions that a subgroup may combine.
    max_segments : int, default 8
        Subgroups to look for. Fewer give narrower bounds.
    min_share : float, default 0.01
        Smallest share of rows in a subgroup.

        All as in `discover`.
    """

    max_conditions: Annotated[Whole, Field(ge=1, le=3)] = 2
    max_segments: Annotated[Whole, Field(ge=1, le=100)] = 8
    min_share: Annotated[Number, Field(gt=0, lt=0.5)] = 0.01


SEARCH: Final = DiscoveryOptions()
