"""Forecasts of a monitor: made while labels are missing, kept, and judged once they are there.

The correction is from the rows that the change test keeps: the newest audited windows and the
reference, or the windows since a change that is sure. See `huc_monitor.audit.forecast` for what is
assumed and when it fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from huc_monitor._common.forms import Form
from huc_monitor._common.safe_text import chat
from huc_monitor._common.settings import Section
from huc_monitor._common.times import say_time
from huc_monitor.audit.decomposition import UtilityRows
from huc_monitor.audit.forecast import Forecast, ScoreGaps, is_told, whole_residuals
from huc_monitor.audit.inputs import Predictions
from huc_monitor.audit.options import ConfidenceLevel
from huc_monitor.audit.two_samples import Sample
from huc_monitor.monitor._rows import Decomposed
from huc_monitor.sources import PredictionData
from huc_monitor.sources._data import main_version

if TYPE_CHECKING:
    from huc_monitor.monitor._changing import Changing
    from huc_monitor.monitor._state import MonitorState
    from huc_monitor.monitor.records import WindowRecord
    from huc_monitor.monitor.windows import Window


_LEAST_AUDITED = 50
# Windows that wait for labels; of older ones, no forecast is judged.
_MOST_KEPT = 64
ASSUMPTION = "if outcomes still follow predictions as before"


class ForecastPolicy(Section):
    """Whether the utility of windows is forecast while their labels are missing.

    Parameters
    ----------
    enabled : bool, default True
        Whether utility is forecast while labels are missing; takes the rows that `change.enabled`
        keeps.
    confidence_level : float, default 0.95
        Probability that a forecast's bound holds, each by itself.
    """

    enabled: bool = True
    confidence_level: ConfidenceLevel = 0.95


@dataclass(frozen=True, slots=True)
class ForecastScore(Form):
    """How forecasts of one utility did once labels came, for the model version that serves.

    Attributes
    ----------
    n, n_inside : int
        Forecasts that were judged, and those whose bound held.
    error, score_error : float
        Mean absolute error of the forecast, and of the mean score without correction.
    version : str or None
        The version; None where none is logged, or several share the windows.
    """

    sparse: ClassVar[tuple[str, ...]] = ("version",)

    n: int = 0
    n_inside: int = 0
    error: float = 0.0
    score_error: float = 0.0
    version: str | None = None

    def plus(self, judged: Forecast, version: str | None = None) -> ForecastScore:
        """Count one more, unless it has no bound; another version begins anew."""
        assert judged.realised is not None  # noqa: S101 - judged
        if judged.audited_version is not None:
            return self
        if self.n and version is not None and version != self.version:
            return ForecastScore().plus(judged, version)
        n = self.n + 1
        errors = (abs(judged.value - judged.realised), abs(judged.score - judged.realised))
        before = (self.error, self.score_error)
        error, raw = ((b * self.n + e) / n for b, e in zip(before, errors, strict=True))
        inside = self.n_inside + bool(judged.inside)
        return ForecastScore(n, inside, error, raw, version or self.version)


@dataclass(slots=True, eq=False)
class Forecasting:
    """Makes forecasts, keeps them in the state, and judges them."""

    state: MonitorState
    policy: ForecastPolicy
    changing: Changing

    @property
    def possible(self) -> bool:
        """Whether rows were audited that a forecast can be corrected by."""
        return self.policy.enabled and bool(self.state.compared or self.state.reference)

    def look(
        self, window: Window, rows: Sequence[UtilityRows], data: PredictionData
    ) -> tuple[Forecast, ...]:
        """Forecast a window from its rows, scored; nothing where too little was audited."""
        samples = self.changing.audited() if self.policy.enabled and rows[0].scores.size else []
        if sum(sample.n for sample in samples) < _LEAST_AUDITED:
            return ()
        past, known, leaves = Sample.join(samples), None, None
        if past.likeliest.size:
            known, leaves = past.likeliest, Predictions.of(data.probabilities).likeliest()
        groups, level = past.groups, self.policy.confidence_level
        audited = self.changing.audited_version
        other = audited if None not in {audited, data.version} and audited != data.version else None
        found = tuple(
            replace(
                ScoreGaps.of(before, groups.repeats, groups.clusters, known).forecast(
                    coming.scores, leaves, confidence_level=level
                ),
                audited_version=other,
            )
            for before, coming in zip(past.rows, rows, strict=True)
            if is_told(before)
        )
        state = self.state
        kept = {**state.forecasts, window.id: list(found)}
        state.forecasts = dict(list(kept.items())[-_MOST_KEPT:])
        starts = {**state.forecast_starts, window.id: window.start}
        state.forecast_starts = {key: starts[key] for key in state.forecasts if key in starts}
        return found

    def drop(self, window_id: str) -> list[Forecast]:
        """Keep a window's forecasts no longer; return them."""
        self.state.forecast_starts.pop(window_id, None)
        return self.state.forecasts.pop(window_id, [])

    def judge(self, window_id: str, found: Decomposed, *, counts: bool) -> tuple[Forecast, ...]:
        """Compare a window's forecasts with its labels, and count how they did.

        Those of a window that does not count, as in maintenance, are dropped.
        """
        made = self.drop(window_id)
        rows = {item.utility.name: item for item in found.rows}
        times = found.groups().repeats
        judged, version = [], found.data.version
        for item in made if counts else ():
            if item.utility in rows and is_told(rows[item.utility]):
                gaps = whole_residuals(rows[item.utility], times)
                gap = float(np.average(gaps, weights=times if times.size else None))
                n = found.data.n_usable if not times.size else times.sum() ** 2 / (times @ times)
                judged.append(item.judged(gap, float(n)))
                score = self.state.forecast_scores.get(item.utility, ForecastScore())
                self.state.forecast_scores[item.utility] = score.plus(judged[-1], version)
        return tuple(judged)


def score_forecasts(records: Sequence[WindowRecord]) -> dict[str, ForecastScore]:
    """Count, by utility, how many forecasts of the version that serves held."""
    found: dict[str, ForecastScore] = {}
    for record in records:
        version = main_version(record.model_versions)
        for item in record.forecasts:
            if item.realised is not None:
                found[item.utility] = found.get(item.utility, ForecastScore()).plus(item, version)
    return found


def waiting(records: Sequence[WindowRecord]) -> list[WindowRecord]:
    """Return the last record of every window that has a forecast and no audit, newest first."""
    newest: dict[str, WindowRecord] = {}
    for record in records:
        newest[record.window_id] = record
    found = [r for r in newest.values() if r.forecasts and r.audit is None]
    return sorted(found, key=lambda record: record.start, reverse=True)


def say_waiting_window(record: WindowRecord, zone: str) -> str:
    """Say which window has a forecast, and that its labels did not come where they are due."""
    when = say_time(record.start, zone)
    if record.status == "pending":
        return when
    return f"{when} (too few labels by {say_time(record.due_at, zone)})"


def say_forecast(item: Forecast) -> str:
    """Say a forecast in one line, in money where the utility has units.

    Where another version was audited, only what the model predicts.

    Examples
    --------
    >>> say_forecast(
    ...     Forecast(
    ...         utility="saved",
    ...         n=2000,
    ...         n_audited=5000,
    ...         score=0.3,
    ...         value=0.25,
    ...         lower=0.2,
    ...         upper=0.3,
    ...         confidence_level=0.95,
    ...         shift=0.01,
    ...         sampling=0.04,
    ...         variance=0.1,
    ...         units="EUR",
    ...         scale=10.0,
    ...     )
    ... )
    '*saved* 2.50 EUR per prediction [2.00, 3.00], 5,000 EUR for 2,000 rows; model predicts 3.00'
    """
    value, lower, upper, score = (
        x * item.scale for x in (item.value, item.lower, item.upper, item.score)
    )
    if item.audited_version is not None:
        told = f"{score:.3f}" if item.units is None else f"{score:.2f} {chat(item.units)}"
        return (
            f"*{chat(item.utility)}* is not known yet: only version {chat(item.audited_version)} "
            f"was audited; model predicts {told}"
        )
    if item.units is None:
        text = f"*{chat(item.utility)}* {value:.3f} [{lower:.3f}, {upper:.3f}]"
        return f"{text}; model predicts {score:.3f}"
    units = chat(item.units)
    return (
        f"*{chat(item.utility)}* {value:.2f} {units} per prediction [{lower:.2f}, {upper:.2f}], "
        f"{value * item.n:,.0f} {units} for {item.n:,} rows; model predicts {score:.2f}"
    )


def say_versions(records: Sequence[WindowRecord], audited: str | None = None) -> str | None:
    """Say that another version predicts than was audited: the newest in the records unless told."""
    for record in records:
        audited = audited if record.audit is None else record.model_version
    coming = [r.model_version for r in waiting(records) if r.model_version]
    others = [version for version in coming if version != audited]
    if not audited or not others:
        return None
    return (
        f"Version {chat(audited)} was audited, and version {chat(others[0])} predicted where "
        "labels are missing: its outcomes may follow predictions in another way."
    )


def say_score(scores: Mapping[str, ForecastScore]) -> str | None:
    """Say how past forecasts did, and of which version if it is one; None where none was judged."""
    versions = {score.version for score in scores.values() if score.n}
    (of, *more) = sorted(versions, key=str) or [None]
    whose = "" if of is None or more else f" of version {chat(of)}"
    n = sum(score.n for score in scores.values())
    if not n:
        return None
    inside = sum(score.n_inside for score in scores.values())
    error = sum(score.error * score.n for score in scores.values()) / n
    raw = sum(score.score_error * score.n for score in scores.values()) / n
    return (
        f"{inside:,} of {n:,} past forecasts{whose} held once labels came; mean error {error:.4f} "
        f"(of the model's own: {raw:.4f})"
    )
