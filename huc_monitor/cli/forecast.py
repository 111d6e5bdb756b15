"""``huc-monitor forecast``: what windows without labels will be worth, and how forecasts did."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huc_monitor.cli import options
from huc_monitor.cli.check import say_forecasts
from huc_monitor.cli.reading import opened
from huc_monitor.cli.showing import print_json, tell

if TYPE_CHECKING:
    from huc_monitor.monitor.records import WindowRecord


def run(
    *,
    config: options.ConfigFile = Path("huc.yaml"),
    as_json: options.Json = False,
) -> None:
    """Say what windows whose labels are missing will be worth; reads no predictions.

    Forecasts are made by `check`, and judged by it once labels are there. They hold if what follows
    from a score did not change.

    Example: huc-monitor forecast --config huc.yaml
    """
    from huc_monitor.monitor.forecasting import say_score, score_forecasts

    with opened(config) as (settings, tracker):
        records = list(tracker.records())
    if as_json:
        print_json(_document(records))
        return
    scores = score_forecasts(records)
    found = say_forecasts(records, scores, settings.windows.time_zone)
    past = say_score(scores)
    for text in found or ["No window with a forecast waits for labels.", *([past] if past else [])]:
        tell(text)


def _document(records: Sequence[WindowRecord]) -> dict[str, Any]:
    from huc_monitor.monitor.forecasting import score_forecasts, waiting

    return {
        "windows": [
            {
                "ordinal": record.ordinal,
                "start": record.start.isoformat(),
                "end": record.end.isoformat(),
                "due_at": record.due_at.isoformat(),
                "forecasts": [item.to_dict() for item in record.forecasts],
            }
            for record in waiting(records)
        ],
        "scores": {name: score.to_dict() for name, score in score_forecasts(records).items()},
    }
