"""Records: what a monitor found in one window, as plain data that any tracker can store.

A record is identified by its `key`: the window's id, and the revision (or "pending", for drift
seen before the labels were there). Recording the same key twice leaves one record. Times in a
record are times of the data, never of the clock on the wall, so that a run that was interrupted
and repeated writes the same records; only `timings` differ, and they do not count in a comparison.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias

import pandas as pd

from huc_monitor._common.forms import STORED_AS, Form
from huc_monitor._common.safe_text import chat
from huc_monitor._common.views import Plotted
from huc_monitor.audit.familiar import FamiliarNumbers
from huc_monitor.audit.forecast import Forecast
from huc_monitor.audit.result import AuditResult
from huc_monitor.monitor.change import CandidateChange, WindowChange
from huc_monitor.monitor.findings import Finding
from huc_monitor.monitor.people import Action

SCHEMA_VERSION = 1

Level: TypeAlias = Literal["warning", "critical"]
Status: TypeAlias = Literal["audited", "empty", "thin", "failed", "pending"]
TransitionKind: TypeAlias = Literal["opened", "escalated", "eased", "repeated", "resolved"]
DriftKind: TypeAlias = Literal["branch", "scores", "subgroup"]
STATUSES = ("audited", "empty", "thin", "failed", "pending")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTransition(Form):
    """A step in the life of one alert, and everything a message about it needs.

    Attributes
    ----------
    kind : {"opened", "escalated", "eased", "repeated", "resolved"}
    level : {"warning", "critical"}
        After the step; of a resolved alert, the level it had.
    utility, subgroup, node : str
        The candidate.
    announced : bool
        False for a step that is recorded but kept out of messages (cool-down).
    moment, lower, upper : float
        Of the window, in utility; negative moments overstate. Bounds are None where none were made.
    tolerance : float
        What was accepted for this candidate, in utility.
    interval_low, interval_high : float or None
        Predicted utility where the moment is largest.
    units, scale : str or None, float
        A moment times `scale` is in `units`.
    reasons : tuple of {"estimate", "bound", "detector", "suspected", "changed"}
        Why the level: the estimate or its lower bound exceeds the tolerance, the e-detector names
        the candidate, or it raised an alarm and suspects this one most, or it became worse by more
        than chance since the reference. Of a resolved alert: why it was open. Empty where only the
        evidence of earlier windows keeps the level.
    uc : float
        Absolute moment of the same utility and subgroup after summing over branches.
    cancels_node, cancels_moment : str or None, float or None
        The branch that hides this one in the sum, and its moment on the same interval.
    first_seen : datetime
        Start of the first window of this alert.
    n_windows : int
        Windows in which it was open, this one included.
    hints : tuple of str
        What probably lies behind it, in sentences.
    settings : tuple of str
        Of a resolved or eased alert: settings that changed and made it so.
    change : CandidateChange or None
        How it changed since the reference, where that is why it is told.
    standing : bool
        Nothing says that it changed since the reference.
    led_at : datetime or None
        End of the last window in which a message named its branch by this candidate.
    window_id : str
    window_end : datetime
    """

    kind: TransitionKind
    level: Level
    utility: str
    subgroup: str
    node: str
    announced: bool
    moment: float
    lower: float | None
    upper: float | None = None
    tolerance: float
    interval_low: float | None = None
    interval_high: float | None = None
    units: str | None
    scale: float
    reasons: tuple[str, ...]
    uc: float = 0.0
    cancels_node: str | None = None
    cancels_moment: float | None = None
    first_seen: datetime
    n_windows: int
    hints: tuple[str, ...] = ()
    window_id: str
    window_end: datetime
    settings: tuple[str, ...] = ()
    change: CandidateChange | None = None
    standing: bool = False
    people: tuple[str, ...] = ()
    led_at: datetime | None = None

    sparse: ClassVar[tuple[str, ...]] = ("change", "standing", "people", "led_at")

    @property
    def candidate(self) -> tuple[str, str, str]:
        """(utility, subgroup, node)."""
        return self.utility, self.subgroup, self.node


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertState(Form):
    """An alert as it stands between two windows. Level None: resolved, remembered for cool-down.

    Attributes
    ----------
    utility, subgroup, node : str
        What is measured, for whom ("all": everyone), and the branch.
    level : {"warning", "critical"} or None
        None: resolved.
    first_seen : datetime
        Start of the first window it was open in.
    last_seen : datetime
        End of the last window it was open in.
    first_ordinal, last_ordinal : int
        Numbers of the first and the last window it was open in.
    n_windows : int
        Windows it was open in.
    n_calm : int
        Windows in a row that would have had a lower level, or none.
    n_critical : int
        Windows in a row at the critical level.
    n_rising : int
        Windows in a row above the tolerance before the alert opened.
    announced_at : datetime or None
        End of the window whose message last spoke of it.
    announced_level : {"warning", "critical"} or None
        The level that message gave it.
    told : bool
        Whether people heard of it since it opened.
    moment : float
        Realised minus predicted utility per prediction, in the last window it was open in.
    lower : float or None
        At least so large is the moment, without its sign.
    tolerance : float
        What is accepted of it.
    opened_moment : float or None
        The moment in the window that opened it.
    exceeded_tolerance : float or None
        The tolerance in the last window that spoke for its level.
    reasons : tuple of str
        Every reason for its level since it opened or was eased, as in `AlertTransition`.
    muted : str or None
        Why nobody is told of it for now: who muted it until when, or maintenance.
    actions : tuple of Action
        What people did about it, oldest first.
    version : str or None
        The model version that served most of the last window that spoke for its level.
    led_at : datetime or None
        End of the last window in which a message named its branch by this candidate.
    """

    utility: str
    subgroup: str
    node: str
    level: Level | None
    first_seen: datetime
    last_seen: datetime
    first_ordinal: int
    last_ordinal: int
    n_windows: int
    n_calm: int = 0
    n_critical: int = 0
    n_rising: int = 0
    announced_at: datetime | None = None
    announced_level: Level | None = None
    told: bool = False
    moment: float = 0.0
    lower: float | None = None
    tolerance: float = 0.0
    opened_moment: float | None = None
    exceeded_tolerance: float | None = None
    reasons: tuple[str, ...] = ()
    muted: str | None = None
    actions: tuple[Action, ...] = ()
    version: str | None = None
    led_at: datetime | None = None

    sparse: ClassVar[tuple[str, ...]] = ("muted", "actions", "version", "led_at")

    @property
    def candidate(self) -> tuple[str, str, str]:
        """(utility, subgroup, node)."""
        return self.utility, self.subgroup, self.node

    @property
    def excess(self) -> float:
        """How many times the tolerance its moment is; the moment itself where that is zero."""
        size = abs(self.moment)
        return size / self.tolerance if self.tolerance else size

    def heard(self, at: datetime) -> AlertState:
        """Return it as told, at the level it has."""
        return replace(self, muted=None, announced_at=at, announced_level=self.level, told=True)

    @property
    def acked(self) -> Action | None:
        """Who acknowledged it last, unless it became worse since."""
        found = [item for item in self.actions if item.kind == "ack"]
        if not found or (self.level == "critical" and found[-1].level == "warning"):
            return None
        return found[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFinding(Form):
    """How far one thing that needs no labels has moved from the reference. Not a miscalibration.

    Attributes
    ----------
    kind : {"branch", "scores", "subgroup"}
        Predicted mass among a node's children, the distribution of a utility's scores, or the
        share of a subgroup.
    name : str
        The node, utility or subgroup.
    distance : float
        Total variation, Kolmogorov-Smirnov distance, or difference of shares: all from 0 to 1.
    lower : float
        The true distance is larger than this; holds for all findings of a window at once.
    drifted : bool
        True when `lower` exceeds what was asked to be ignored.
    before, after : dict of str to float
        What is compared: shares per child, mean and quartiles of scores, the share.
    note : str or None
        Why nothing was compared, such as for a branch that the reference does not have.
    versions : tuple of str
        Of the reference and of now, where predictions moved and another model version answers.
    """

    sparse: ClassVar[tuple[str, ...]] = ("versions",)

    kind: DriftKind
    name: str
    distance: float
    lower: float
    drifted: bool
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    note: str | None = None
    versions: tuple[str, ...] = ()

    @property
    def whose(self) -> str:
        """Say which versions are compared, where they are two; empty otherwise."""
        return tell_versions(*self.versions) if self.versions else ""


def tell_versions(before: str, now: str) -> str:
    """Say that another model version answers than in the reference."""
    return f"Version {chat(now)} answers now, and the reference is of version {chat(before)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalibrationTrigger(Form):
    """A request to recalibrate, of a policy or a person. The id makes acting on it idempotent.

    Attributes
    ----------
    reason : str
        Why, in a sentence.
    window_id, ordinal, window_end : str, int, datetime
        Of the newest window; rows after it are not used.
    candidates : tuple of (utility, subgroup, node)
        What is open.
    since : datetime or None
        Rows before it are not used; None where the host chooses.
    """

    id: str
    reason: str
    window_id: str
    ordinal: int
    window_end: datetime
    candidates: tuple[tuple[str, str, str], ...] = ()
    since: datetime | None = None

    sparse: ClassVar[tuple[str, ...]] = ("since",)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRecord(Form, Plotted):
    """Everything a monitor found in one window.

    Attributes
    ----------
    monitor, identity : str
        The monitor's name, and the hash of what its results depend on (the configuration).
    model : str or None
        Name of the model.
    model_version : str or None
        The version that made most of the window's predictions.
    model_versions : dict of str to int
        Rows per version.
    window_id : str
    ordinal : int
        Number of the window, from 1.
    start, end, due_at : datetime
        In UTC.
    revision : int
        0 for the first audit; a higher one follows late labels.
    status : {"audited", "empty", "thin", "failed", "pending"}
        Pending: ended, but its labels have not matured, so there is only drift to speak of.
    reason : str or None
        Why it is not audited.
    n_predictions, n_labelled, n_quarantined : int
        All rows, rows with a label, rows set aside as unusable.
    quarantine : dict of str to int
        How many were set aside for which reason.
    n_repeated : int
        Rows left out because the same prediction was there already under the same id.
    n_relabelled : int
        Ids whose label was replaced by a later, different one.
    latest_label : datetime or None
    coverage : float
        Share of predictions with a label.
    audit : dict or None
        `AuditResult.to_dict()`.
    tolerances : tuple of float
        One per row of ``audit["candidates"]``.
    levels : tuple of {"warning", "critical", None}
        What this window says of each candidate by itself, before the life of alerts.
    detector : dict or None
        `EDetectorStep.to_dict()` with ``reset``: why it started afresh in this window, or None.
    alerts : tuple of AlertState
        Alerts open after this window.
    transitions : tuple of AlertTransition
        What changed in this window.
    drift : tuple of DriftFinding
    change : WindowChange or None
        What the newest windows say about a change since the reference.
    findings : tuple of Finding
        Branch by branch: what changed, the most certain first, then what stands, the worst first.
    curve : dict or None
        `ReliabilityCurve.to_dict()` of the candidate that exceeds its tolerance most, or where
        alerts follow what changed, of the one that changed most clearly.
    frequencies : dict
        Per node and child, ``{"predicted": ..., "observed": ...}`` shares in the window.
    familiar : FamiliarNumbers or None
        Accuracy, log loss and others, of the rows in hand; None in older records and where a window
        has more than 20 million rows times leaves.
    branch_coverage : dict of str to float
        Share of labelled rows by predicted child of the root; empty where all rows have labels.
    forecasts : tuple of Forecast
        One per utility: made where labels are missing, and judged where they came after all.
    notes : tuple of str
        What else a reader should know, such as whether earlier drift was confirmed by labels.
    recalibration : RecalibrationTrigger or None
    tree_change : dict or None
        In the first audit by a new version of the tree: which nodes have new names (``renamed``),
        and which branches choose among other things than before (``not_comparable``).
    timings : dict of str to float
        Seconds; not compared.
    time_zone : str, default "UTC"
        Where people are shown its times.
    maintenance : str or None
        Why the window is no evidence of anything: the maintenance it was in, in words.
    """

    monitor: str
    identity: str
    window_id: str
    ordinal: int
    start: datetime
    end: datetime
    due_at: datetime
    status: Status
    revision: int = 0
    model: str | None = None
    model_version: str | None = None
    model_versions: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None
    n_predictions: int = 0
    n_labelled: int = 0
    n_quarantined: int = 0
    quarantine: Mapping[str, int] = field(default_factory=dict)
    n_repeated: int = 0
    n_relabelled: int = 0
    latest_label: datetime | None = None
    coverage: float = 0.0
    audit: Mapping[str, Any] | None = None
    tolerances: tuple[float, ...] = ()
    levels: tuple[Level | None, ...] = ()
    detector: Mapping[str, Any] | None = None
    alerts: tuple[AlertState, ...] = ()
    transitions: tuple[AlertTransition, ...] = ()
    drift: tuple[DriftFinding, ...] = ()
    change: WindowChange | None = None
    findings: tuple[Finding, ...] = ()
    curve: Mapping[str, Any] | None = None
    frequencies: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    familiar: FamiliarNumbers | None = None
    forecasts: tuple[Forecast, ...] = ()
    branch_coverage: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tree_change: Mapping[str, Any] | None = None
    recalibration: RecalibrationTrigger | None = field(
        default=None, metadata={STORED_AS: "retraining"}
    )
    timings: Mapping[str, float] = field(default_factory=dict, compare=False)
    time_zone: str = "UTC"
    maintenance: str | None = None

    schema: ClassVar[int | None] = SCHEMA_VERSION
    sparse: ClassVar[tuple[str, ...]] = (
        "familiar",
        "forecasts",
        "branch_coverage",
        "tree_change",
        "time_zone",
        "maintenance",
    )

    @property
    def n_usable(self) -> int:
        """Rows with a label, without those set aside or repeated."""
        return max(0, self.n_labelled - self.n_quarantined - self.n_repeated)

    @property
    def result(self) -> AuditResult | None:
        """The audit as an object; made anew each time, so keep what you use more than once."""
        return None if self.audit is None else AuditResult.from_dict(self.audit)

    @property
    def key(self) -> str:
        """What a tracker stores the record by; safe as a file name.

        Examples
        --------
        >>> from datetime import UTC, datetime
        >>> day = datetime(2024, 3, 1, tzinfo=UTC)
        >>> times = {"start": day, "end": day, "due_at": day}
        >>> record = WindowRecord(
        ...     monitor="m", identity="0", window_id="5f", ordinal=3, status="empty", **times
        ... )
        >>> record.key, WindowRecord.from_json(record.to_json()) == record
        ('000003-5f-r0', True)
        """
        stage = "pending" if self.status == "pending" else f"r{self.revision}"
        return f"{self.ordinal:06d}-{self.window_id}-{stage}"

    @property
    def level(self) -> Level | None:
        """The highest level of any alert that is open after this window."""
        levels = {alert.level for alert in self.alerts}
        return "critical" if "critical" in levels else "warning" if "warning" in levels else None

    def to_frame(self, *, all_columns: bool = False) -> pd.DataFrame:
        """Return a row per candidate: the audit's columns, with ``tolerance`` and ``level``."""
        result = self.result
        if result is None or not result.candidates.n:
            return pd.DataFrame()
        levels = pd.Series(list(self.levels), dtype=object)
        return result.to_frame(all_columns=all_columns).assign(
            tolerance=self.tolerances, level=levels
        )

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> WindowRecord:
        """Read what `to_json` wrote."""
        return cls.from_dict(json.loads(text))

    def __repr__(self) -> str:
        """One line."""
        what = self.status if self.audit is None else f"HUC {self.audit['huc']:.4f}"
        level = "" if self.level is None else f", {self.level}"
        return (
            f"WindowRecord({self.ordinal}: {self.start:%Y-%m-%d %H:%M}..{self.end:%Y-%m-%d %H:%M} "
            f"UTC, r{self.revision}, {what}, n={self.n_labelled} of {self.n_predictions}{level})"
        )
