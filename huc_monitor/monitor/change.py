"""What changed since the reference: the settings of the test, and what it found in one window.

The test itself is `huc_monitor.detection.change`: the newest 1, 4 and 16 windows, pooled, against
the rows of the reference. What was wrong in the reference and is wrong in the same way now has not
changed, however large it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from huc_monitor._common.forms import Form
from huc_monitor._common.settings import Number, Section, Whole
from huc_monitor._common.views import Shown
from huc_monitor.audit.unforeseen import Unforeseen


class ChangePolicy(Section):
    """Whether, and how, windows are compared with the rows of the reference.

    Parameters
    ----------
    enabled : bool, default True
        Whether windows are compared with the reference.
    alerts : {"tolerance", "change"}, default "tolerance"
        What makes an alert critical, by more than chance: a moment beyond its tolerance, or one
        that became worse since the reference; what stands is then told once.

        With "change", what is beyond the tolerance without such a change is a warning that is told
        once, in one line for all branches.
    windows : tuple of int, default (1, 4, 16)
        How many of the newest windows are pooled.

        The error budget is split evenly.
    average_run_length : float, default 100
        Windows between false alarms, at least, on average.
    min_change : float, default 0
        Smaller changes, in utility, are not told.
    """

    enabled: bool = True
    alerts: Literal["tolerance", "change"] = "tolerance"
    windows: Annotated[
        tuple[Annotated[Whole, Field(ge=1, le=1000)], ...], Field(min_length=1, max_length=8)
    ] = (1, 4, 16)
    average_run_length: Annotated[Number, Field(gt=1)] = 100.0
    min_change: Annotated[Number, Field(ge=0)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateChange(Form, Shown):
    """How a candidate's moment moved from the reference to the newest windows.

    Attributes
    ----------
    utility, subgroup, node : str
    before, after : float
        Its moments in the reference and in the pooled windows, on the interval of predicted utility
        on which they lie furthest apart.
    difference : float
    lower, upper : float or None
        Simultaneous bounds on the difference; None where nothing was near its bound, so that none
        were made.
    interval_low, interval_high : float or None
    n_windows : int
        Of the newest windows, those pooled.
    share : float
        The subgroup's mean weight in the newest window.
    better : bool
        The moment came closer to zero there, and the candidate's largest is no larger than in the
        reference: no fault.
    onset_first, onset_last : datetime or None
        Starts of the first and the last window with which the change may have begun (90 %).
    onset : datetime or None
        Start of the likeliest of them.
    or_earlier : bool
        `onset_first` is the oldest window that was kept, and not the first after the reference, and
        no critical alert of the branch is open that was dated before.
    before_radius : float or None
        How far the reference's moment may be from the truth, by the reference's own bounds.
    track : tuple of (datetime, float)
        Start of every window that was kept, oldest first, and its moment on the same interval: of
        the most certain candidate of every branch and of those that explain it best.
    unforeseen : Unforeseen or None
        Labels under the branch that the model gave less than 1 %, more than in the reference. Where
        no moment changed for sure, ``before`` to ``upper`` are their share of all rows.
    """

    sparse: ClassVar[tuple[str, ...]] = ("or_earlier", "unforeseen")

    utility: str
    subgroup: str
    node: str
    before: float
    after: float
    difference: float
    lower: float | None
    upper: float | None
    interval_low: float | None
    interval_high: float | None
    n_windows: int
    share: float = 1.0
    better: bool = False
    onset_first: datetime | None = None
    onset_last: datetime | None = None
    onset: datetime | None = None
    or_earlier: bool = False
    before_radius: float | None = None
    track: tuple[tuple[datetime, float], ...] = ()
    unforeseen: Unforeseen | None = None

    @property
    def candidate(self) -> tuple[str, str, str]:
        """(utility, subgroup, node)."""
        return self.utility, self.subgroup, self.node

    def began(self, first: str, last: str) -> str:
        """Say with which windows it may have begun, given the names of the first and the last."""
        when = f"with the window of {first}" if first == last else f"between {first} and {last}"
        return f"{when}, or earlier" if self.or_earlier else when

    @property
    def counted(self) -> bool:
        """Whether its numbers are those of unforeseen labels, not of moments."""
        return self.unforeseen is not None and self.interval_low is None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowChange(Form, Shown):
    """What the newest windows say about a change since the reference.

    Attributes
    ----------
    average_run_length : float
    pools : tuple of int
        How many windows were pooled, pool by pool.
    n_before : float
        Rows of the reference.
    n_after : tuple of float
        Rows of every pool.
    changes : tuple of CandidateChange
        Those that changed for sure, the most certain first.
    largest : tuple of CandidateChange
        Where the newest window lies furthest from the reference, sure or not.
    reference_start, reference_end : datetime or None
        When the reference was.
    alerts : {"tolerance", "change"}
        What made alerts critical in this window.
    """

    average_run_length: float
    pools: tuple[int, ...]
    n_before: float
    n_after: tuple[float, ...]
    changes: tuple[CandidateChange, ...] = ()
    largest: tuple[CandidateChange, ...] = ()
    reference_start: datetime | None = None
    reference_end: datetime | None = None
    alerts: Literal["tolerance", "change"] = "tolerance"
