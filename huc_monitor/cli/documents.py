"""What ``--json`` of every command prints; docs/output.schema.json is made from it.

Fields are added, never renamed or removed: who reads them leaves out what it does not know.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal, NotRequired, TypedDict

from huc_monitor.audit.comparison import Comparison
from huc_monitor.audit.discovery.discover import Discovery
from huc_monitor.audit.familiar import FamiliarNumbers
from huc_monitor.audit.forecast import Forecast
from huc_monitor.cli.doctor.findings import Diagnosis
from huc_monitor.monitor.forecasting import ForecastScore
from huc_monitor.monitor.people import Mute
from huc_monitor.monitor.ports.notifier import Message
from huc_monitor.monitor.ports.recalibration import Move, RecalibrationOutcome
from huc_monitor.monitor.records import AlertState, WindowRecord
from huc_monitor.monitor.windows import Window

# Forms in these annotations stand for what their `to_dict` writes.


class AuditForm(TypedDict):
    """One audit: HUC and UC with bounds, and every candidate they were found among.

    Attributes
    ----------
    schema_version : int
        Version of this form.
    n : float
        Labelled rows that were audited; with weights, their sum.
    huc : float
        Largest absolute moment among all candidates, before branches are summed.
    huc_lower, huc_upper : float or None
        Where the true HUC lies, with the confidence of `confidence_level`.
    uc : float
        Largest absolute moment of a subgroup and utility after its branches are summed.
    method : str or None
        How bounds were made: bootstrap, sharp or theorem; null without bounds.
    confidence_level : float
        Of the bounds, for all candidates at once.
    n_draws : int or None
        Draws of the bootstrap.
    interiorized : bool
        Whether probabilities of 0 were moved off the border.
    tree : str
        Fingerprint of the label tree.
    unlogged : float
        Share of probability that the log does not hold, where it holds the top few only.
    notes : list of str
        What to know before believing the numbers.
    familiar : FamiliarNumbers
        Accuracy, log loss and others, with intervals.
    design : dict
        How rows depend on each other, and how labels were chosen.
    candidates : list of dict
        A row per utility, subgroup and branch, with the columns of `to_frame`.
    totals : list of dict
        A row per utility and subgroup, its branches summed.
    """

    schema_version: int
    n: float
    huc: float
    huc_lower: float | None
    huc_upper: float | None
    uc: float
    method: str | None
    confidence_level: float
    n_draws: int | None
    interiorized: bool
    tree: str
    unlogged: NotRequired[float]
    notes: NotRequired[list[str]]
    familiar: NotRequired[FamiliarNumbers]
    design: NotRequired[dict[str, Any]]
    candidates: list[dict[str, Any]]
    totals: list[dict[str, Any]]


class AuditDocument(TypedDict):
    """What ``audit`` found in one file.

    Attributes
    ----------
    status : {"ok", "alert"}
        "alert": some candidate is beyond the tolerance.
    tolerance : float or None
        The one given by --tolerance.
    n_unlabelled : int
        Rows left out because they have no label.
    audit : AuditForm
        The audit itself.
    label_tree : dict
        The tree, as `LabelTree.from_dict` reads it.
    """

    status: Literal["ok", "alert"]
    tolerance: float | None
    n_unlabelled: int
    audit: AuditForm
    label_tree: dict[str, Any]


class CompareDocument(TypedDict):
    """How two logs, or two models on the same rows, differ.

    Attributes
    ----------
    status : {"ok", "alert"}
        "alert": some candidate got worse by more than --tolerance allows.
    comparison : Comparison
        After minus before, candidate by candidate.
    notes : list of str
        Rows that were set aside, by file; empty where none was.
    """

    status: Literal["ok", "alert"]
    comparison: Comparison
    notes: list[str]


class DiscoverDocument(TypedDict):
    """Subgroups that ``discover`` found without being told where to look.

    Attributes
    ----------
    status : {"found", "none"}
        "found": at least one was certified on rows that did not choose it.
    discovery : Discovery
        The subgroups, and how they were searched for.
    """

    status: Literal["found", "none"]
    discovery: Discovery


class WaitingWindow(TypedDict):
    """A window whose labels have not matured, and what is expected of it.

    Attributes
    ----------
    ordinal : int
        Number of the window, from 1.
    start, end : str
        Times of its first and after its last prediction.
    due_at : str
        When its labels are taken to be complete.
    forecasts : list of Forecast
        One per utility.
    """

    ordinal: int
    start: str
    end: str
    due_at: str
    forecasts: list[Forecast]


class ForecastDocument(TypedDict):
    """Forecasts of windows that wait for labels, and how earlier ones did.

    Attributes
    ----------
    windows : list of WaitingWindow
        The windows that wait.
    scores : dict of str to ForecastScore
        By utility, what became of earlier forecasts once labels came.
    """

    windows: list[WaitingWindow]
    scores: dict[str, ForecastScore]


class PlanDocument(TypedDict):
    """What so many labels can show, and how many labels a finding takes.

    Attributes
    ----------
    candidate : list of str or None
        Utility, subgroup and branch that the numbers are for; null without a pilot log.
    settings : dict
        Number of candidates, tolerance and confidence that were planned with.
    detectable : list of dict
        Per number of labels `n`, the smallest moment that each method of bounds shows.
    labels_needed : list of dict
        Per `size` of a moment, the labels that each method needs to show it.
    notes : list of str
        Rows of the pilot that were set aside; empty where none was.
    """

    candidate: list[str] | None
    settings: dict[str, Any]
    detectable: list[dict[str, float | None]]
    labels_needed: list[dict[str, float | None]]
    notes: list[str]


class SampleDocument(TypedDict):
    """Which rows of a window ``sample`` chose to be labelled.

    Attributes
    ----------
    path : str
        The file that lists them.
    start, end : str
        The window they are from.
    n_rows : int
        Rows of the window.
    n_chosen : int
        Rows to label.
    saving : float
        Share of labels saved against choosing evenly: 0.3 says that 700 do the work of 1,000.
    worst : list of str
        Utility, subgroup and branch that these labels measure least well.
    proxy_odds : float or None
        How many times likelier a second opinion (--proxy) makes the leaf it names.
    """

    path: str
    start: str
    end: str
    n_rows: int
    n_chosen: int
    saving: float
    worst: list[str]
    proxy_odds: float | None


class DoctorDocument(TypedDict):
    """What ``doctor`` looked at and what it found.

    Attributes
    ----------
    status : {"ok", "wrong"}
        "wrong": something must be fixed before a check can run.
    findings : list of Diagnosis
        One per thing looked at.
    """

    status: Literal["ok", "wrong"]
    findings: list[Diagnosis]


class InitDocument(TypedDict):
    """The configuration file that ``init`` wrote.

    Attributes
    ----------
    status : {"ok"}
        It was written.
    path : str
        Where it is.
    """

    status: Literal["ok"]
    path: str


class ReportDocument(TypedDict):
    """The page that ``report`` wrote.

    Attributes
    ----------
    path : str
        Where it is, from the root of the disk.
    bytes : int
        Its size.
    """

    path: str
    bytes: int


class DemoPhase(TypedDict):
    """What familiar numbers and the monitor say of some days of the demo.

    Attributes
    ----------
    served_by : str
        Version of the model that served.
    accuracy, calibration_error, log_loss : float
        Over all tickets of those days.
    uc_eur, huc_eur : float
        UC and HUC in euros per ticket, means over the windows.
    status : str
        Of the monitor after those days: ok, warning or critical.
    message : str or None
        What people were told.
    """

    served_by: str
    accuracy: float
    calibration_error: float
    log_loss: float
    uc_eur: float
    huc_eur: float
    status: str
    message: str | None


class DemoDocument(TypedDict):
    """The story of ``demo``: a calm time, a drift, and the time after its repair.

    Attributes
    ----------
    folder : str
        Where everything was written.
    version : str or None
        The repaired version that became champion; null where none did.
    calm, drifted, repaired : DemoPhase
        The three parts, in order of time.
    """

    folder: str
    version: str | None
    calm: DemoPhase
    drifted: DemoPhase
    repaired: DemoPhase


class CheckDocument(TypedDict):
    """What one ``check`` did; ``watch`` prints one such line per check.

    Attributes
    ----------
    status : str
        Where the monitor stands now: ok, warning, critical or failed.
    message : Message or None
        What people are told; null where there is nothing new.
    alerts : list of AlertState
        All alerts that are open now.
    records : list of WindowRecord
        The windows that this check looked at.
    n_unsent : int
        Messages that could not be delivered and are sent again by the next check.
    failed : list of Window
        Windows that could not be audited.
    preview : list of str
        With --dry-run, what changed settings would do.
    silences : dict of str to datetime
        What does not come any more, "rows" or "labels", and since when.
    """

    status: str
    message: Message | None
    alerts: list[AlertState]
    records: list[WindowRecord]
    n_unsent: int
    failed: list[Window]
    preview: list[str]
    silences: dict[str, datetime]


class WindowRow(TypedDict):
    """One window in short.

    Attributes
    ----------
    ordinal : int
        Number of the window, from 1.
    start, end : str
        Times of its first and after its last prediction.
    revision : int
        0 for the first audit; higher after late labels.
    status : str
        audited, empty, thin (too few labels), failed, or pending (labels not mature).
    reason : str or None
        Why it was not audited.
    n_predictions, n_labelled, n_quarantined, n_usable : int
        All rows, rows with a label, of these rows set aside as unusable, and rows to audit.
    coverage : float
        Share of predictions that have a label.
    huc, huc_lower, uc : float or None
        HUC, its lower bound, and UC; null where it was not audited.
    detector : float or None
        Evidence of the e-detector so far; it alarms when this is large enough.
    level : str or None
        Worst open alert after this window.
    forecasts : list of Forecast
        What was expected before labels came.
    """

    ordinal: int
    start: str
    end: str
    revision: int
    status: str
    reason: str | None
    n_predictions: int
    n_labelled: int
    n_quarantined: int
    n_usable: int
    coverage: float
    huc: float | None
    huc_lower: float | None
    uc: float | None
    detector: float | None
    level: str | None
    forecasts: list[Forecast]


class MonitorDocument(TypedDict):
    """Where one monitor stands.

    Attributes
    ----------
    status : str
        ok, warning, critical, or failed (a window could not be audited).
    identity : str
        Fingerprint of the settings that results depend on.
    model_version : str or None
        The version that made most predictions of the newest window.
    last_window : Window or None
        The newest window that was checked.
    notes : list of str
        What a check wanted to say of the monitor as a whole.
    alerts : list of AlertState
        All alerts that are open now, muted ones too.
    mutes : list of Mute
        Of which alerts nobody is told, and until when.
    windows : list of WindowRow
        The newest windows, oldest first.
    n_unsent : int
        Messages that could not be delivered yet.
    failed : list of Window
        Windows that could not be audited.
    silences : dict of str to datetime
        What does not come any more, "rows" or "labels", and since when.
    """

    status: str
    identity: str
    model_version: str | None
    last_window: Window | None
    notes: list[str]
    alerts: list[AlertState]
    mutes: list[Mute]
    windows: list[WindowRow]
    n_unsent: int
    failed: list[Window]
    silences: dict[str, datetime]


class StatusDocument(MonitorDocument):
    """Where one monitor stands, and how a new version on trial does.

    Attributes
    ----------
    shadow : dict or None
        How the challenger does beside the champion; null where none is on trial.
    """

    shadow: dict[str, Any] | None


class FleetMember(MonitorDocument):
    """Where one of several monitors stands.

    Attributes
    ----------
    config : str
        Its configuration file.
    """

    config: str


class UnreadableMember(TypedDict):
    """One of several monitors, which cannot be read.

    Attributes
    ----------
    config : str
        Its configuration file.
    status : str
        "error".
    error : str
        Why it cannot be read.
    """

    config: str
    status: str
    error: str


class FleetDocument(TypedDict):
    """Where several monitors stand, where ``status`` is given several files.

    Attributes
    ----------
    monitors : list
        One entry per configuration file.
    """

    monitors: list[FleetMember | UnreadableMember]


DOCUMENTS: Final = {
    "check": CheckDocument,
    "watch": CheckDocument,
    "status": StatusDocument,
    "fleet": FleetDocument,
    "audit": AuditDocument,
    "compare": CompareDocument,
    "discover": DiscoverDocument,
    "forecast": ForecastDocument,
    "plan": PlanDocument,
    "sample": SampleDocument,
    "doctor": DoctorDocument,
    "init": InitDocument,
    "report": ReportDocument,
    "demo": DemoDocument,
    "recalibrate": RecalibrationOutcome,
    "promote": Move,
    "rollback": Move,
}
