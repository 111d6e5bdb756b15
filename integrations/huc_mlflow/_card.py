"""The model card of a recalibrated version, as Markdown: what people read in the registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from huc_monitor._common.safe_text import code
from huc_monitor._common.times import say_time
from huc_monitor.monitor.ports.recalibration import say_columns
from huc_monitor.monitor.records import AlertState, RecalibrationTrigger
from huc_monitor.recalibration.choosing import Figures, Recalibration

_MOST_ALERTS = 8
_MOST_UPDATES = 8


@dataclass(frozen=True, slots=True)
class FittedSample:
    """What a recalibration was fitted to, where all rows were too many to hold.

    Attributes
    ----------
    n_rows, n_sample : int
        Rows there are, and rows it was fitted and judged on.
    radius : float
        Largest sharp radius of the sample's moments.
    confidence_level : float
        Of the radius.
    """

    n_rows: int
    n_sample: int
    radius: float
    confidence_level: float


def model_card(
    recalibration: Recalibration,
    *,
    trigger: RecalibrationTrigger,
    alerts: tuple[AlertState, ...],
    base_version: str,
    serving_version: str,
    window: str,
    sample: FittedSample | None = None,
    columns: Sequence[str] = (),
    zone: str = "UTC",
) -> str:
    """Say what was wrong, where, what changed, and how the result does on held-out rows."""
    figures = {f"base, which serves (version {base_version})": recalibration.before}
    if serving_version != base_version:
        figures = {
            f"base (version {base_version})": recalibration.base,
            f"serving (version {serving_version})": recalibration.before,
        }
    figures["candidate (this version)"] = recalibration.after
    lines = [
        f"Recalibration of version {base_version}: {recalibration.name}.",
        "",
        f"**Why.** {trigger.reason[:1].upper()}{trigger.reason[1:]}.",
        "",
        "**What was wrong.** " + ("Open alerts:" if alerts else "No alert was open."),
        "",
        *alert_lines(alerts, zone),
        "",
        "**What changed.** " + _change(recalibration.recalibrator),
        "",
        *_column_lines(columns),
        *_sample_lines(sample),
        f"**Held-out figures** (newest fifth of rows {window}, seen once):",
        "",
        *_figure_lines(figures),
        "",
        "**Gate.** "
        + ("passed" if recalibration.passed else "refused: " + "; ".join(recalibration.reasons)),
    ]
    return "\n".join(lines)


def alert_lines(alerts: tuple[AlertState, ...], zone: str = "UTC") -> list[str]:
    lines = [
        f"- branch {code(a.node)}, subgroup {code(a.subgroup)}, utility {code(a.utility)}: moment "
        f"{a.moment:+.4f} ({'overstates' if a.moment < 0 else 'understates'} utility; "
        f"{_against(a)}), since {say_time(a.first_seen, zone)}"
        for a in alerts[:_MOST_ALERTS]
    ]
    more = len(alerts) - _MOST_ALERTS
    return lines + ([f"- and {more} more"] if more > 0 else [])


def _against(alert: AlertState) -> str:
    """Say what an alert is about: a tolerance, or a change of what may lie within it."""
    within = abs(alert.moment) <= alert.tolerance
    changed = "changed since the reference" if "changed" in alert.reasons and within else ""
    return changed or f"tolerance {alert.tolerance:g}"


def _column_lines(columns: Sequence[str]) -> list[str]:
    return [f"**What it needs.** {say_columns([code(c) for c in columns])}", ""] if columns else []


def _sample_lines(sample: FittedSample | None) -> list[str]:
    if sample is None:
        return []
    text = (
        f"**Sample.** Fitted and judged on {sample.n_sample:,} of {sample.n_rows:,} labelled rows, "
        "chosen by a hash without regard to labels. With confidence "
        f"{sample.confidence_level:g}, no moment of the sample is further than "
        f"{sample.radius:.3g} from that of the rows it was drawn from."
    )
    return [text, ""]


def _change(recalibrator: Any) -> str:
    updates = getattr(recalibrator, "updates_", None)
    if updates is None:
        return f"{type(recalibrator).__name__}; no branch was changed by itself."
    initial = getattr(recalibrator, "initial_", None)
    start = "" if initial is None else f"{type(initial).__name__}, then "
    counts: dict[str, int] = {}
    for update in updates:
        place = f"{code(update.node)} for {code(update.subgroup)}"
        counts[place] = counts.get(place, 0) + 1
    shown = ", ".join(f"{place} ({n})" for place, n in list(counts.items())[:_MOST_UPDATES])
    if not updates:
        return f"{start.removesuffix(', then ') or 'Nothing'}; no branch was changed by itself."
    return f"{start}{len(updates)} updates at {shown}."


def _figure_lines(columns: dict[str, Figures]) -> list[str]:
    def bounded(figures: Figures) -> str:
        if figures.huc_lower is None or figures.huc_upper is None:
            return f"{figures.huc:.4f}"
        return f"{figures.huc:.4f} [{figures.huc_lower:.4f}, {figures.huc_upper:.4f}]"

    table = {
        "HUC": bounded,
        "UC": lambda figures: f"{figures.uc:.4f}",
        "log loss": lambda figures: f"{figures.log_loss:.4f}",
        "accuracy": lambda figures: f"{figures.accuracy:.4f}",
        "rows": lambda figures: f"{figures.n}",
    }
    return [
        f"| | {' | '.join(columns)} |",
        "|---" * (1 + len(columns)) + "|",
        *(
            f"| {name} | {' | '.join(map(write, columns.values()))} |"
            for name, write in table.items()
        ),
    ]
