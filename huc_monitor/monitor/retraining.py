"""When to recalibrate: a policy that reads records and gives a reason. Acting on it is a host's."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from huc_monitor._common.times import Span
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor.records import RetrainingTrigger

if TYPE_CHECKING:
    from huc_monitor.monitor.records import AlertState, WindowRecord

__all__ = ["Retrainer", "RetrainingPolicy"]


@runtime_checkable
class Retrainer(Protocol):
    """Acts on a trigger. May be called again with a trigger it already knows (by its id).

    Raising means "not done": the trigger is kept, and handed over again at the next check.

    One that has a method ``follow(last_window)`` is given the last window at the end of every
    check, to go on with what takes several windows, such as a trial of a new version. It returns a
    sentence for the next message, or None. It must find by itself where it stands: after a crash
    the same window comes again.
    """

    def __call__(self, trigger: RetrainingTrigger) -> None:
        """Recalibrate, or record why not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainingPolicy:
    """Ask for a recalibration when something is wrong for long enough, or surely enough.

    Parameters
    ----------
    critical_windows : int or None, default 2
        Windows in a row that the same candidate must be critical. None: never for this reason.
    on_alarm : bool, default True
        Whether an alarm of the e-detector is reason enough.
    cool_down : str, default "7d"
        How long after a trigger there is no other.
    """

    critical_windows: int | None = 2
    on_alarm: bool = True
    cool_down: Span | str = "7d"

    def __post_init__(self) -> None:
        object.__setattr__(self, "cool_down", Span.parse(self.cool_down, argument="cool_down"))
        k = self.critical_windows
        if k is not None and (not isinstance(k, int) or k < 1):
            msg = f"`critical_windows` must be a whole number of at least 1 or None; got {k!r}."
            raise InvalidInputError(msg)

    def decide(
        self, record: WindowRecord, last: RetrainingTrigger | None = None
    ) -> RetrainingTrigger | None:
        """Return a trigger with its reason, or None.

        Parameters
        ----------
        record : WindowRecord
            The newest window, whose alerts say how long they have been critical.
        last : RetrainingTrigger, optional
            The one before, for the cool-down.
        """
        pause = Span.parse(self.cool_down).nominal
        if last is not None and record.end - last.window_end < pause:
            return None
        lasting = self._lasting(record)
        alarm = self.on_alarm and record.detector is not None and record.detector["alarm"]
        if not lasting and not alarm:
            return None
        reasons = []
        if lasting:
            worst = max(lasting, key=lambda alert: alert.n_critical)
            more = f" and {len(lasting) - 1} more" if len(lasting) > 1 else ""
            reasons.append(
                f"branch {worst.node!r} (subgroup {worst.subgroup!r}, utility {worst.utility!r})"
                f"{more} critical for {worst.n_critical} windows"
            )
        if alarm:
            reasons.append("alarm of the e-detector")
        plain = f"{record.identity}/{record.window_id}/{record.revision}"
        return RetrainingTrigger(
            id=hashlib.sha256(plain.encode()).hexdigest()[:16],
            reason="; ".join(reasons),
            window_id=record.window_id,
            ordinal=record.ordinal,
            window_end=record.end,
            candidates=tuple(alert.candidate for alert in record.alerts if alert.level),
        )

    def _lasting(self, record: WindowRecord) -> list[AlertState]:
        k = self.critical_windows
        return [] if k is None else [alert for alert in record.alerts if alert.n_critical >= k]
