"""The recalibration host: fits recalibrators, and keeps the versions of the watched model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from huc_monitor._common.forms import Form
from huc_monitor.monitor.windows import Window
from huc_monitor.recalibration.shadow import ShadowTrial

if TYPE_CHECKING:
    from huc_monitor.monitor.records import RecalibrationTrigger


@dataclass(frozen=True, slots=True)
class RecalibrationOutcome(Form):
    """What became of one request to recalibrate.

    Attributes
    ----------
    id : str
        Of the request.
    result : {"registered", "refused"}
        Whether a new version was registered.
    version : str or None
        The new version in the registry; None where it was refused.
    promoted : bool
        Whether it is champion already.
    reasons : tuple of str
        Why it was refused.
    shadow_windows : int
        For how many windows it is audited beside the champion first; 0 without such a trial.
    summary : str
        How it compares with the version that serves.
    rows : str
        Which labelled rows it was fitted and judged on, and why these.
    columns : tuple of str
        What requests must carry for it and need not for its base.
    """

    sparse: ClassVar[tuple[str, ...]] = ("summary", "rows", "columns")

    id: str
    result: str
    version: str | None = None
    promoted: bool = False
    reasons: tuple[str, ...] = ()
    shadow_windows: int = 0
    summary: str = ""
    rows: str = ""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """An alias of a model, such as champion, that was moved to another version.

    Attributes
    ----------
    model, alias : str
        Names of the model and of the alias.
    version : str
        The version it points at now.
    previous : str or None
        The version it pointed at before.
    moved : bool
        False where it pointed there already.
    columns : tuple of str
        What requests must carry for the version and need not for its base.
    """

    model: str
    alias: str
    version: str
    previous: str | None
    moved: bool = True
    columns: tuple[str, ...] = ()


def say_columns(columns: Sequence[str]) -> str:
    """Say what requests must carry, before a service that does not send it goes down."""
    it, they = ("it", "it is") if len(columns) == 1 else ("them", "they are")
    return (
        f"Requests must now carry: {', '.join(columns)}. Subgroups of the recalibration read {it}; "
        f"without {it} a request is refused. That {they} in the log does not say that requests "
        f"bring {it}: look at what your service sends before this version serves."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionInfo:
    """One version of the watched model.

    Attributes
    ----------
    number : str
    roles : tuple of str
        Such as "champion" and "challenger".
    made_at : datetime or None
    base : str or None
        The version that it recalibrates; None of a model that was trained.
    status : str or None
        The alert status while it served.
    card : str
        What it was fitted on and how it compares, as Markdown.
    """

    number: str
    roles: tuple[str, ...] = ()
    made_at: datetime | None = None
    base: str | None = None
    status: str | None = None
    card: str = ""


@runtime_checkable
class RecalibrationHost(Protocol):
    """Acts on triggers of a monitor, and on what people ask of the versions of its model."""

    def ping(self) -> str:
        """Say in a few words what it would recalibrate, or raise why it cannot; change nothing."""

    def __call__(self, trigger: RecalibrationTrigger) -> None:
        """Recalibrate, or record why not.

        Raising means "not done": the trigger is kept, and handed over again at the next check. So
        a trigger may come again, and is known by its id.
        """

    def follow(self, last: Window) -> str | None:
        """Go on with what takes several windows, such as a trial of a new version.

        Called at the end of every check with the last window. Returns a sentence for the next
        message, or None. After a crash the same window comes again.
        """

    def trial(self) -> ShadowTrial | None:
        """Return how the challenger's trial stands, None where none is on trial."""

    def versions(self) -> Sequence[VersionInfo]:
        """Return the versions of the model, the newest first; changes nothing."""

    def recalibrate(self, reason: str, since: datetime | None = None) -> RecalibrationOutcome:
        """Recalibrate now, because a person asks for it; on rows since a time, if one is given."""

    def promote(self, version: str | None) -> Move:
        """Make a version champion: the challenger, or the one named."""

    def rollback(self) -> Move:
        """Make the version champion again that the present champion replaced."""
