"""When to recalibrate: a policy reads records and gives a reason; the recalibration host acts."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from huc_monitor._common.settings import Section, SpanText, Whole, renamed
from huc_monitor._common.times import Span
from huc_monitor.monitor.records import AlertState, RecalibrationTrigger, WindowRecord
from huc_monitor.recalibration.gate import Gate


class RecalibrationPolicy(Section):
    """When a recalibration is fitted, and who decides on it.

    Parameters
    ----------
    enabled : bool, default False
        Whether the monitor asks for a recalibration by itself.
    critical_windows : int or None, default 3
        Critical windows in a row that trigger it; null: never.

        It is the same candidate that must be critical in all of them.
    on_sequential_alarm : bool, default True
        Whether an alarm of the e-detector triggers it.
    gate : Gate, what a recalibrated version must show
    promotion : {"manual", "gate", "shadow"}, default "manual"
        manual: a person promotes; gate: passing the gate does; shadow: staying better than the
        champion for `shadow_windows` does.
    shadow_windows : int, default 3
        Windows in which a challenger is audited beside the champion.
    cool_down : str, default "7d"
        Time after a trigger in which there is no other.
    """

    enabled: bool = False
    critical_windows: Annotated[Whole, Field(ge=1)] | None = 3
    on_sequential_alarm: bool = Field(
        default=True, validation_alias=renamed("on_sequential_alarm", "on_alarm")
    )
    gate: Gate = Gate()
    promotion: Literal["manual", "gate", "shadow"] = "manual"
    shadow_windows: Annotated[Whole, Field(ge=1, le=50)] = 3
    cool_down: SpanText = "7d"

    def decide(
        self, record: WindowRecord, last: RecalibrationTrigger | None = None
    ) -> RecalibrationTrigger | None:
        """Return a trigger with its reason, or None.

        Parameters
        ----------
        record : WindowRecord
            The newest window, whose alerts say how long they have been critical.
        last : RecalibrationTrigger, optional
            The one before, for the cool-down.
        """
        pause = Span.parse(self.cool_down).nominal
        if last is not None and record.end - last.window_end < pause:
            return None
        lasting = self._lasting(record)
        alarm = self.on_sequential_alarm and _has_alarm(record)
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
        return RecalibrationTrigger(
            id=hashlib.sha256(plain.encode()).hexdigest()[:16],
            reason="; ".join(reasons),
            window_id=record.window_id,
            ordinal=record.ordinal,
            window_end=record.end,
            candidates=tuple(alert.candidate for alert in record.alerts if alert.level),
        )

    def _lasting(self, record: WindowRecord) -> list[AlertState]:
        k = self.critical_windows
        if k is None:
            return []
        return [item for item in record.alerts if item.n_critical >= k and item.muted is None]


def _has_alarm(record: WindowRecord) -> bool:
    """Whether the e-detector raised an alarm about anything that is not muted."""
    step = record.detector
    if step is None or not step["alarm"]:
        return False
    found = {(item["utility"], item["subgroup"], item["node"]) for item in step["named"]}
    muted = {item.candidate for item in record.alerts if item.muted is not None}
    worst = step["worst"]
    return bool((found or {(worst["utility"], worst["subgroup"], worst["node"])}) - muted)
