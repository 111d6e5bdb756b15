"""The life of alerts: opened, escalated, eased, repeated, resolved.

One audited window is one step. What the window says of a candidate by itself is its *level*:

* **warning**: the estimated moment exceeds the tolerance;
* **critical**: its lower bound does, or the e-detector names the candidate.

With ``change.alerts: change`` these say only that something *stands*: it may have been so from the
start. Then critical is what changed for the worse by more than chance, and what stands
is a warning that is told once, in one line for all branches, and not again. An estimate near the
tolerance is above it in every other window, so such a warning opens on more than that: a lower
bound, the e-detector, or a reference that was above it too. It closes when it became better than
the reference by more than chance, or after as many windows in a row within the tolerance as the
change test pools.

An alert opens after `min_windows` windows in a row above the tolerance. Then a higher level takes
effect at once, and a lower one after `resolve_after` windows in a row, so that it does not flicker.
The e-detector speaks of many windows and starts afresh with every alarm, so its silence in the next
one means little: an alert of which it has spoken keeps its level while windows still add to the
evidence against the candidate, and until `quiet_after` of them in a row have not. Evidence against
one model version says nothing of another: two windows in a row that another version served and that
show nothing are enough.
People hear of an alert when it opens, escalates, eases or is resolved, and again after each
cool-down while it lasts. One that comes back soon after it was resolved is recorded, but not
announced unless it is worse than before. One that a person acknowledged is not repeated at the
level it had then. Of one that is muted people hear only that it was resolved, if they had heard of
it; when the mute is over and it is still there, they are told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final

import numpy as np
from pydantic import Field

from huc_monitor._common.settings import Section, SpanText, Whole
from huc_monitor._common.times import Span
from huc_monitor.detection.step import EDetectorStep
from huc_monitor.monitor.records import AlertState, Level, TransitionKind
from huc_monitor.utilities.program import Floats

_RANK: Final = {"warning": 1, "critical": 2}
_DETECTOR: Final = frozenset({"detector", "suspected"})
_PATIENT: Final = _DETECTOR | {"changed"}  # these speak of many windows
_RENEWED: Final = 2  # windows of another model version, for which old evidence does not speak
Triple = tuple[str, str, str]


class AlertPolicy(Section):
    """When people are told.

    Parameters
    ----------
    cool_down : str, default "1d"
        Time before the same alert is repeated.
    min_windows : int, default 1
        Windows in a row that must exceed the tolerance.
    resolve_after : int, default 1
        Windows in a row at a lower level before it takes effect.
    quiet_after : int, default 2
        More windows in a row that must add nothing to the evidence of a sequential alarm before its
        alert is resolved.
    """

    cool_down: SpanText = "1d"
    min_windows: Annotated[Whole, Field(ge=1)] = 1
    resolve_after: Annotated[Whole, Field(ge=1)] = 1
    quiet_after: Annotated[Whole, Field(ge=1)] = 2

    @property
    def pause(self) -> timedelta:
        """The cool-down as a length of time."""
        return Span.parse(self.cool_down).nominal

    @property
    def renewed_after(self) -> int:
        """Windows in a row of another model version without an alert that resolve it, at most."""
        return max(self.resolve_after, min(self.quiet_after, _RENEWED))


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one window says of one candidate by itself; `row` is its place among candidates.

    ``gaining``: the window added to the e-detector's evidence against it, alarm or not.
    ``standing``: nothing says that it became worse since the reference.
    ``stands``: more than the window's estimate says that it is beyond the tolerance.
    ``better``: it came closer to zero by more than chance since the reference.
    """

    row: int
    candidate: Triple
    level: Level | None
    reasons: tuple[str, ...]
    moment: float
    lower: float | None
    tolerance: float
    gaining: bool = False
    standing: bool = False
    stands: bool = False
    better: bool = False


@dataclass(frozen=True, slots=True)
class AlertStep:
    """One change in the life of an alert, and whether people hear of it.

    ``state`` is the alert after it, of a resolved one before it.
    """

    kind: TransitionKind
    level: Level
    state: AlertState
    judgement: Judgement
    announced: bool
    before: AlertState | None = None


def judge(
    candidates: Sequence[Triple],
    moments: Floats,
    lowers: Floats,
    tolerances: Floats,
    detector: EDetectorStep | None,
    changed: Mapping[Triple, bool] | None = None,
    reference: Floats | None = None,
) -> list[Judgement]:
    """Say of every candidate whether it is fine, a warning or critical.

    `changed` are those that changed by more than chance since the reference, and whether for the
    better; None where that does not decide. `reference` are its moments; None in the reference
    itself, and where it is of another model version.

    An alarm of the e-detector that names nobody still says that some moment is too large: the
    candidate with most evidence becomes a warning.
    """
    named: set[Triple] = set()
    gaining: set[Triple] = set()
    suspect: Triple | None = None
    if detector is not None:
        gaining = {detector.names[int(k)] for k in np.flatnonzero(detector.e_values > 1.0)}
        found = detector.named
        named = {(item.utility, item.subgroup, item.node) for item in found}
        if detector.alarm and not found:
            worst = detector.worst
            suspect = worst.utility, worst.subgroup, worst.node
    out = []
    for row, candidate in enumerate(candidates):
        tolerance, lower = float(tolerances[row]), float(lowers[row])
        reasons = []
        if abs(moments[row]) > tolerance:
            reasons.append("estimate")
        if lower > tolerance:
            reasons.append("bound")
        if candidate in named:
            reasons.append("detector")
        if candidate == suspect:
            reasons.append("suspected")
        sure = bool({"bound", "detector"} & set(reasons))
        stood = reference is not None and abs(reference[row]) > tolerance
        stands = sure or ("estimate" in reasons and stood)
        critical, warning = sure, bool(reasons)
        if changed is not None:
            critical = changed.get(candidate) is False
            warning = stands or candidate == suspect
            reasons += ["changed"] if critical else []
        level: Level | None = "critical" if critical else "warning" if warning else None
        out.append(
            Judgement(
                row,
                candidate,
                level,
                tuple(reasons),
                float(moments[row]),
                lower if np.isfinite(lower) else None,
                tolerance,
                candidate in gaining,
                standing=changed is not None and not critical,
                stands=stands,
                better=changed is not None and changed.get(candidate) is True,
            )
        )
    return out


def advance(
    alerts: Mapping[Triple, AlertState],
    judgements: Sequence[Judgement],
    *,
    ordinal: int,
    start: datetime,
    end: datetime,
    policy: AlertPolicy,
    standing_after: int = 1,
    quiet: Callable[[Triple], str | None] = lambda _: None,
    version: str | None = None,
) -> tuple[dict[Triple, AlertState], list[AlertStep]]:
    """Take every alert through one window; a second look at the same window counts once.

    `standing_after` is how many windows in a row within the tolerance end what stands. `quiet` says
    why nobody is told of a candidate for now; None where people are. `version` is the model version
    that served most of the window.

    Returns
    -------
    alerts : dict
        Open ones, and resolved ones until their cool-down is over.
    steps : list of AlertStep
    """
    after: dict[Triple, AlertState] = {}
    steps: list[AlertStep] = []
    for judgement in judgements:
        before = alerts.get(judgement.candidate)
        if before is not None and _is_over(before, end, policy):
            before = None
        if before is not None and before.last_seen > end:
            after[judgement.candidate] = before  # carried over: it knows of later windows
            continue
        if before is None and judgement.level is None:
            continue
        why = quiet(judgement.candidate)
        moved = _Move(before, judgement, ordinal, start, end, policy, standing_after, why, version)
        state, step = moved.step()
        if state is not None:
            after[judgement.candidate] = state
        if step is not None:
            steps.append(step)
    return after, steps


def _is_over(alert: AlertState, end: datetime, policy: AlertPolicy) -> bool:
    resolved = alert.level is None and not alert.n_rising
    return resolved and end - alert.last_seen > policy.pause


@dataclass(frozen=True, slots=True)
class _Move:
    """One candidate's step through one window."""

    before: AlertState | None
    now: Judgement
    ordinal: int
    start: datetime
    end: datetime
    policy: AlertPolicy
    standing_after: int
    quiet: str | None = None
    version: str | None = None

    def step(self) -> tuple[AlertState | None, AlertStep | None]:
        """Return the alert after the window, and what changed, as people may hear of it."""
        state, step = self._judged()
        if state is None or state.level is None:
            return state if state is None else dataclasses.replace(state, muted=None), step
        before, level = self.before, state.level
        if self.quiet is not None:
            # As if nothing had been told: that is what people are owed when the mute is over.
            told = before is not None and before.level is not None and before.told
            state = dataclasses.replace(
                state,
                muted=self.quiet,
                announced_at=None if before is None else before.announced_at,
                announced_level=None if before is None else before.announced_level,
                told=told,
            )
            if step is None or step.kind == "repeated":
                return state, None
            return state, dataclasses.replace(step, state=state, announced=False)
        if before is None or before.muted is None:
            return state, step
        state = state.heard(self.end)
        kind = "repeated" if step is None else step.kind
        return state, AlertStep(kind, level, state, self.now, announced=True, before=before)

    def _judged(self) -> tuple[AlertState | None, AlertStep | None]:
        before, level = self.before, self.now.level
        if before is None or before.level is None:
            return (self._remembered(), None) if level is None else self._rising(level)
        if level is not None and _RANK[level] > _RANK[before.level]:
            return self._change("escalated", level, announced=True)
        standing = self.now.standing
        stood = standing and before.level == "warning"
        gaining = self.now.gaining and bool(_DETECTOR & set(before.reasons))
        estimate = "estimate" in self.now.reasons and not self._is_of_another(before)
        lasts = gaining or estimate if stood else gaining and not standing
        if level == before.level or lasts:
            due = before.announced_at is None or self.end - before.announced_at >= self.policy.pause
            if due and not standing and before.acked is None:
                return self._change("repeated", before.level, announced=True)
            return self._seen(before.level, n_calm=0), None
        # The level is lower than that of the alert.
        again = before.last_ordinal == self.ordinal
        n_calm = before.n_calm + (0 if again and before.n_calm else 1)
        if n_calm < self._patience(before, stood=stood):
            return self._seen(before.level, n_calm=n_calm), None
        if level is not None:
            return self._change("eased", level, announced=True)
        # What was never announced need not be called off.
        told = before.told
        state = dataclasses.replace(
            before,
            level=None,
            n_calm=0,
            n_critical=0,
            last_seen=self.end,
            announced_at=self.end if told else before.announced_at,
        )
        why = dataclasses.replace(self.now, reasons=before.reasons)
        return state, AlertStep("resolved", before.level, before, why, told, before)

    def _is_of_another(self, before: AlertState) -> bool:
        """Whether what spoke for the alert is known to be another model version's."""
        return None not in {self.version, before.version} and self.version != before.version

    def _patience(self, before: AlertState, *, stood: bool) -> int:
        """Return how many calm windows in a row a lower level takes."""
        patience = self.policy.resolve_after
        if _PATIENT & set(before.reasons):
            patience = max(patience, self.policy.quiet_after)
        if stood and not self.now.better:
            patience = max(patience, self.standing_after)
        another = self._is_of_another(before)
        return min(patience, self.policy.renewed_after) if another else patience

    def _remembered(self) -> AlertState | None:
        """Keep a resolved alert for its cool-down; forget one that only began to rise."""
        before = self.before
        if before is None or before.announced_level is None:
            return None
        return dataclasses.replace(before, n_rising=0)

    def _rising(self, level: Level) -> tuple[AlertState, AlertStep | None]:
        before = self.before
        again = before is not None and before.n_rising and before.last_ordinal == self.ordinal
        n_rising = (before.n_rising if before is not None else 0) + (0 if again else 1)
        state, step = self._opened(level, n_rising)
        if before is not None and before.n_rising:
            state = dataclasses.replace(
                state, first_seen=before.first_seen, first_ordinal=before.first_ordinal
            )
        if n_rising >= self.policy.min_windows:
            return state, dataclasses.replace(step, state=state)
        told = (None, None) if before is None else (before.announced_at, before.announced_level)
        waiting = dataclasses.replace(
            state,
            level=None,
            n_critical=0,
            n_rising=n_rising,
            announced_at=told[0],
            announced_level=told[1],
            told=False,
        )
        return waiting, None

    def _opened(self, level: Level, n_windows: int) -> tuple[AlertState, AlertStep]:
        utility, subgroup, node = self.now.candidate
        old = self.before
        quiet = self.now.standing or (
            old is not None
            and old.announced_level is not None
            and _RANK[level] <= _RANK[old.announced_level]
        )
        earlier = (None, None) if old is None else (old.announced_at, old.announced_level)
        state = AlertState(
            utility=utility,
            subgroup=subgroup,
            node=node,
            level=level,
            first_seen=self.start,
            last_seen=self.end,
            first_ordinal=self.ordinal,
            last_ordinal=self.ordinal,
            n_windows=n_windows,
            n_critical=int(level == "critical"),
            announced_at=earlier[0] if quiet else self.end,
            announced_level=earlier[1] if quiet else level,
            told=not quiet,
            moment=self.now.moment,
            lower=self.now.lower,
            tolerance=self.now.tolerance,
            opened_moment=self.now.moment,
            exceeded_tolerance=self.now.tolerance,
            reasons=self.now.reasons,
            version=self.version,
        )
        return state, AlertStep("opened", level, state, self.now, not quiet)

    def _change(
        self, kind: TransitionKind, level: Level, *, announced: bool
    ) -> tuple[AlertState, AlertStep]:
        seen = self._seen(level, n_calm=0)
        if kind == "eased":  # what made it critical is over
            seen = dataclasses.replace(seen, reasons=self.now.reasons)
        state = seen.heard(self.end)
        return state, AlertStep(kind, level, state, self.now, announced, self.before)

    def _seen(self, level: Level, *, n_calm: int) -> AlertState:
        before = self.before
        assert before is not None  # noqa: S101 - an alert that was seen has a past
        again = before.last_ordinal == self.ordinal
        n_critical = 0
        if level == "critical":
            # A calm window neither adds to the row nor ends it.
            counted = n_calm > 0 or (again and before.level == "critical")
            n_critical = before.n_critical + (0 if counted else 1)
        return dataclasses.replace(
            before,
            level=level,
            last_seen=self.end,
            last_ordinal=self.ordinal,
            n_windows=before.n_windows + (0 if again else 1),
            n_calm=n_calm,
            n_critical=n_critical,
            moment=self.now.moment,
            lower=self.now.lower,
            tolerance=self.now.tolerance,
            exceeded_tolerance=before.exceeded_tolerance if n_calm else self.now.tolerance,
            version=before.version if n_calm else self.version,
            reasons=tuple(dict.fromkeys((*before.reasons, *self.now.reasons))),
        )
