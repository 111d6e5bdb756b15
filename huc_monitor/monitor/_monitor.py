"""The monitor: its settings, and `check`, which audits the windows that are due."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, overload

from huc_monitor._common.safe_text import file_name
from huc_monitor._common.times import to_utc
from huc_monitor._common.views import Plotted
from huc_monitor.audit.inputs import check_tree, check_utilities
from huc_monitor.errors import InvalidInputError
from huc_monitor.monitor._ahead import one_at_a_time
from huc_monitor.monitor._check import Check
from huc_monitor.monitor._lock import default_path, hold
from huc_monitor.monitor._preview import preview
from huc_monitor.monitor._samples import SampleFiles
from huc_monitor.monitor._state import MonitorState, open_state
from huc_monitor.monitor.acting import AlertActions
from huc_monitor.monitor.forecasting import ForecastScore
from huc_monitor.monitor.hosts import Hosts
from huc_monitor.monitor.muting import check_maintenance
from huc_monitor.monitor.policy import Policy
from huc_monitor.monitor.ports.notifier import Message
from huc_monitor.monitor.ports.tracker import MemoryTracker, Tracker
from huc_monitor.monitor.windows import Window, WindowSpec
from huc_monitor.sources import PredictionSource
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.tree.changes import TreeChanges
from huc_monitor.utilities import Utility

if TYPE_CHECKING:
    import pandas as pd

    from huc_monitor.monitor.records import AlertState, WindowRecord


@dataclass(frozen=True, slots=True, repr=False)
class CheckResult(Plotted):
    """What one check did: a sequence of the new records, with the message and the status.

    Attributes
    ----------
    records : tuple of WindowRecord
        New ones, in the order in which they were made.
    message : Message or None
        What there was to tell, whether or not anyone is listening.
    status : {"ok", "warning", "failed", "critical"}
        Of all alerts that are open now; failed: some window could not be audited.
    alerts : tuple of AlertState
        These alerts.
    n_unsent : int
        Messages that could not be delivered and will be sent again.
    failed : tuple of Window
        Windows, of this check or earlier ones, that could not be audited because too much of their
        data is unusable, and that nobody dismissed (`Monitor.actions`). They are tried again.
    forecast_scores : dict of str to ForecastScore
        How all forecasts so far did once labels came, by utility.
    preview : tuple of str
        Of a dry run: what changed settings will do.
    silences : dict of str to datetime
        What does not come any more, "rows" or "labels", and since when.
    zone : str, default "UTC"
        Time zone in which people are shown its times.
    waiting : str or None
        Why no window is audited yet: the reference is not complete.
    """

    records: tuple[WindowRecord, ...]
    message: Message | None
    status: str
    alerts: tuple[AlertState, ...]
    n_unsent: int = 0
    failed: tuple[Window, ...] = ()
    forecast_scores: Mapping[str, ForecastScore] = field(default_factory=dict)
    preview: tuple[str, ...] = ()
    silences: Mapping[str, datetime] = field(default_factory=dict)
    zone: str = "UTC"
    waiting: str | None = None

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[WindowRecord]:
        return iter(self.records)

    @overload
    def __getitem__(self, index: int) -> WindowRecord: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[WindowRecord, ...]: ...
    def __getitem__(self, index: int | slice) -> WindowRecord | tuple[WindowRecord, ...]:
        return self.records[index]

    def __repr__(self) -> str:
        """One line."""
        return f"CheckResult({self.status}, {len(self.records)} new records)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Monitor(Plotted):
    """Audits every window of a prediction log once its labels have matured, and raises alerts.

    A monitor is its configuration; what it remembers lies with its tracker. `check` may be
    interrupted at any point and run again: records and state come out as if it had not been.

    Parameters
    ----------
    source : PredictionSource
    windows : TimeWindows or CountWindows
    tree : LabelTree, or the path of a tree file, which is read
    utilities : list of Utility, with distinct names
    subgroups : Subgroups, GrowingSubgroups or callable, optional
        A callable gets the features of the reference and returns subgroups, which are frozen then.
        `GrowingSubgroups` looks for more in past windows, and watches them in later ones.
    reference : (datetime, datetime), optional
        The frozen past that tolerance and drift refer to; the first audited window when left out.
        No window is audited before it has ended and its labels are due.
    policy : Policy, optional
        Tolerance, bounds, e-detector, alerts, drift and recalibration.
    hosts : Hosts, optional
        Notifiers, exporters, attachments, and who recalibrates.
    tracker : Tracker, optional
        Where records and state are kept; in memory when left out.
    name, model : str
        Of the monitor, and of the model it watches.
    identity : str, optional
        What its results depend on; a hash of the arguments when left out. State of another
        identity is refused: a changed tree or utility is another monitor.
    changes : TreeChanges, optional
        Earlier versions of the tree. A state of one of them goes on in the newest.
    read_ahead : bool, default True
        Read the next window while one is audited. The source is then used from two threads, though
        never at the same time; for one that cannot be, such as SQLite in memory, pass False.

    Examples
    --------
    >>> import numpy as np, pandas as pd, huc_monitor as hm
    >>> from huc_monitor.sources import Columns, FrameTable, TableSource
    >>> from huc_monitor.monitor.windows import TimeWindows
    >>> tree = hm.LabelTree.flat(["a", "b"])
    >>> log = pd.DataFrame(
    ...     {"at": pd.date_range("2024-01-01", periods=2000, freq="2min", tz="UTC")}
    ... )
    >>> log["a"], log["b"], log["y"] = 0.5, 0.5, ["a", "a", "b", "a"] * 500
    >>> source = TableSource(FrameTable(log), tree=tree, columns=Columns(time="at", label="y"))
    >>> monitor = Monitor(
    ...     source=source,
    ...     windows=TimeWindows(length="1d"),
    ...     tree=tree,
    ...     utilities=[hm.Payoff("a", {"a": 1})],
    ... )
    >>> result = monitor.check(now="2024-01-04T00:00Z")
    >>> result, [record.status for record in result]
    (CheckResult(critical, 3 new records), ['audited', 'audited', 'audited'])
    >>> monitor.check(now="2024-01-04T00:00Z").records
    ()
    """

    source: PredictionSource
    windows: WindowSpec
    tree: LabelTree
    utilities: Sequence[Utility]
    subgroups: Subgroups | Callable[[pd.DataFrame], Subgroups] = field(
        default_factory=Subgroups.whole
    )
    reference: tuple[datetime, datetime] | None = None
    policy: Policy = Policy()  # noqa: RUF009 - frozen
    hosts: Hosts = Hosts()  # noqa: RUF009 - frozen
    tracker: Tracker = field(default_factory=MemoryTracker)
    name: str = "monitor"
    model: str | None = None
    identity: str = ""
    read_ahead: bool = True
    changes: TreeChanges | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tree", check_tree(self.tree))
        chosen = check_utilities(self.utilities)
        known = self.subgroups if isinstance(self.subgroups, Subgroups) else None
        if known is not None:
            # Names in its rules are known from here on.
            self.policy.tolerance.values(self.tree, chosen, known)
        check_maintenance(self.policy.maintenance, self.tree, chosen, known)
        object.__setattr__(self, "utilities", chosen)
        object.__setattr__(self, "source", one_at_a_time(self.source))
        object.__setattr__(self, "identity", self.identity or self._identity())

    def _identity(self) -> str:
        """Hash what results depend on; in a form that earlier versions hashed too."""
        groups, options = self.subgroups, self.policy.audit
        content = {
            "tree": (self.tree if self.changes is None else self.changes.first).fingerprint,
            "utilities": [utility.to_dict() for utility in self.utilities],
            "subgroups": groups.to_dict() if isinstance(groups, Subgroups) else "frozen later",
            "windows": self.windows.fingerprint,
            "reference": self.reference,
            "options": [options.bounds, options.confidence_level, options.n_draws, options.rng],
        }
        plain = json.dumps(content, sort_keys=True, default=str)
        return hashlib.sha256(plain.encode()).hexdigest()[:16]

    def check(
        self,
        now: datetime | str | None = None,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        dry_run: bool = False,
        wait: float = 0.0,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> CheckResult:
        """Audit every window that is due, oldest first, and say what changed.

        Parameters
        ----------
        now : datetime, optional
            The time of asking; that of the clock when left out.
        since, until : datetime, optional
            Leave out windows that start before, for good, or end after, for now.
        dry_run : bool, default False
            Do everything but save, record, send or recalibrate.
        wait : float, default 0
            Seconds to wait for another check of the same monitor to finish.
        progress : callable, optional
            Gets the number of windows done, their total, and what comes next.

        Raises
        ------
        CheckInProgressError
            If another check is still running after `wait` seconds.
        """
        moment = datetime.now(UTC) if now is None else to_utc(now, argument="now")
        first = None if since is None else to_utc(since, argument="since")
        last = None if until is None else to_utc(until, argument="until")
        if dry_run:
            return self._dry(moment, first, last, progress)
        with hold(self.lock_path, wait=wait):
            check = Check(self, self._load(), moment, self._files(), progress)
            check.run(first, last)
        return _result(check)

    @property
    def actions(self) -> AlertActions:
        """What people can do about alerts: acknowledge, annotate, mute; dismiss failed windows."""
        return AlertActions(
            tracker=self.tracker,
            identity=self.identity,
            tree=self.tree,
            utilities=self.utilities,
            zone=self.windows.time_zone,
            file=self.file,
            maintenance=self.policy.maintenance,
        )

    @property
    def file(self) -> str | None:
        """Name of the configuration file; None without one."""
        config = self.hosts.place.config
        return None if config is None else Path(config).name

    @property
    def lock_path(self) -> Path:
        """The file that a check holds while it runs."""
        own = self.tracker.lock_path
        return default_path(self.identity) if own is None else own

    def _dry(
        self,
        now: datetime,
        since: datetime | None,
        until: datetime | None,
        progress: Callable[[int, int, str], None] | None,
    ) -> CheckResult:
        deaf = dataclasses.replace(self, hosts=Hosts(), tracker=MemoryTracker())
        state = self._load()
        state.record = None
        check = Check(deaf, state, now, self._files(read_only=True), progress)
        check.run(since, until)
        return dataclasses.replace(_result(check), preview=tuple(preview(self, state)))

    def _files(self, *, read_only: bool = False) -> SampleFiles:
        """Return where the rows of past windows are kept between checks: beside the lock."""
        return SampleFiles(self.lock_path.parent / "rows" / file_name(self.identity), read_only)

    def _load(self) -> MonitorState:
        state = open_state(self.tracker, self.identity, self.tree, self.utilities, self.file)
        if state.identity != self.identity:
            msg = (
                f"`tracker` must hold the state of this monitor; got that of {state.identity!r}, "
                f"this is {self.identity!r}. The tree, utilities or other settings that change "
                "results have changed: use a tracker of its own for the new monitor."
            )
            raise InvalidInputError(msg)
        if state.tree not in {None, self.tree.fingerprint}:
            version = None if self.changes is None else self.changes.find(state.tree)
            if version is None:
                msg = (
                    f"The monitor goes on from tree {state.tree}, which is none of the earlier "
                    "versions in `tree_changes`. Add it there."
                )
                raise InvalidInputError(msg)
            state.move(version, self.utilities)
        state.tree = self.tree.fingerprint
        return state

    @property
    def status(self) -> str:
        """Where the monitor stands: "critical", "failed", "warning" or "ok"."""
        return self._load().status

    @property
    def alerts(self) -> tuple[AlertState, ...]:
        """Alerts that are open."""
        return self._load().open_alerts

    def records(self) -> Sequence[WindowRecord]:
        """Return all records so far, in order."""
        return self.tracker.records()

    def __repr__(self) -> str:
        """One line."""
        return f"Monitor({self.name!r}, identity={self.identity!r})"


def _result(check: Check) -> CheckResult:
    state, outbox = check.state, check.outbox
    return CheckResult(
        tuple(outbox.records),
        outbox.message,
        state.status,
        state.open_alerts,
        len(state.messages),
        state.failed,
        dict(state.forecast_scores),
        silences=state.silences,
        zone=check.monitor.windows.time_zone,
        waiting=check.waiting,
    )
