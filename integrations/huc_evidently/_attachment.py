"""Did the inputs move too? An Evidently drift report about a window that alerts."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd

from huc_monitor.config import Config
from huc_monitor.errors import InvalidInputError, MissingExtraError
from huc_monitor.monitor.ports import MonitorInfo
from huc_monitor.monitor.records import WindowRecord


class DriftAttachment:
    """Compares the input columns of an alerting window with those of the reference.

    Parameters
    ----------
    info : MonitorInfo
        Of a monitor with a configuration, whose log is read.
    columns : list of str, optional
        Inputs to compare; those of the subgroups when left out.
    max_rows : int, default 20_000
        Of each side; more are thinned out evenly over time.
    **options
        Passed to Evidently's `DataDriftPreset`, such as `drift_share` or `method`.
    """

    def __init__(
        self,
        info: MonitorInfo,
        columns: Sequence[str] | None = None,
        max_rows: int = 20_000,
        **options: Any,
    ) -> None:
        self._config: Config = info.config
        self._columns = tuple(self._config.feature_columns if columns is None else columns)
        self._max_rows = max_rows
        self._options = options
        if not self._columns:
            msg = (
                "`columns` must name the inputs to compare: without subgroups there is nothing to "
                "choose from. Add `settings: {columns: [...]}` to the attachment."
            )
            raise InvalidInputError(msg)

    def ping(self) -> str:
        """Say whether Evidently is there, without the seconds it takes to load."""
        _require_evidently()
        return f"compares {', '.join(self._columns)}"

    def files(
        self, record: WindowRecord, reference: tuple[datetime, datetime] | None
    ) -> Mapping[str, bytes]:
        """Return the report as HTML and what it says as JSON; nothing for the reference itself."""
        if reference is None or reference == (record.start, record.end):
            return {}
        source = self._config.open_source(features=self._columns)
        current = self._rows(source, record.start, record.end)
        before = self._rows(source, *reference)
        run = self._report(current, before)
        summary = {
            "question": "did the inputs move too?",
            "window": [record.start.isoformat(), record.end.isoformat()],
            "reference": [time.isoformat() for time in reference],
            "n_rows": [len(current), len(before)],
            **_summary(run),
        }
        text = json.dumps(summary, indent=2, allow_nan=False)
        page = run.get_html_str(as_iframe=False)
        return {"evidently-drift.json": text.encode(), "evidently-drift.html": page.encode()}

    def _rows(self, source: Any, start: datetime, end: datetime) -> pd.DataFrame:
        frame: pd.DataFrame = source.predictions(start, end).features
        if frame.empty:
            msg = f"`log` must have rows between {start.isoformat()} and {end.isoformat()}."
            raise InvalidInputError(msg)
        if len(frame) > self._max_rows:
            frame = frame.iloc[np.linspace(0, len(frame) - 1, self._max_rows).astype(int)]
        return frame.reset_index(drop=True)

    def _report(self, current: pd.DataFrame, reference: pd.DataFrame) -> Any:
        # Before the import: Evidently reports its use unless told not to.
        os.environ.setdefault("DO_NOT_TRACK", "1")
        _require_evidently()
        from evidently import Report
        from evidently.presets import DataDriftPreset

        report = Report([DataDriftPreset(columns=list(self._columns), **self._options)])
        return report.run(current, reference)


def _require_evidently() -> None:
    host = "evidently"
    if importlib.util.find_spec(host) is None:
        raise MissingExtraError.of(host)


def _summary(run: Any) -> dict[str, Any]:
    """How many columns drifted, and the distance of each with its threshold."""
    columns, count = {}, {}
    for metric in run.dict()["metrics"]:
        config, value = metric["config"], metric["value"]
        if metric["metric_name"].startswith("DriftedColumnsCount"):
            count = {"n_drifted": int(value["count"]), "share_drifted": float(value["share"])}
        elif metric["metric_name"].startswith("ValueDrift"):
            columns[config["column"]] = {
                "method": config.get("method"),
                "value": _finite(value),
                "threshold": _finite(config.get("threshold")),
            }
    return {**count, "columns": columns}


def _finite(value: Any) -> float | None:
    number = None if value is None else float(value)
    return number if number is not None and np.isfinite(number) else None
