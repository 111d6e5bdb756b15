"""One window: audit it, compare it with tolerance and reference, and say what changed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from huc_monitor.audit import audit_rows
from huc_monitor.audit.curves import reliability_curve
from huc_monitor.audit.familiar import MOST_CELLS, FamiliarNumbers, measure
from huc_monitor.audit.inputs import Predictions
from huc_monitor.audit.result import AuditResult, Candidate
from huc_monitor.audit.truncation import Truncation, say_unlogged
from huc_monitor.detection import EDetectorStep
from huc_monitor.monitor._reference import Reference, measure_drift
from huc_monitor.monitor._rows import Decomposed
from huc_monitor.monitor.alerts import AlertStep, Judgement, advance, judge
from huc_monitor.monitor.change import CandidateChange, WindowChange
from huc_monitor.monitor.confusion import keep_pairs
from huc_monitor.monitor.drift import summarise
from huc_monitor.monitor.explaining import Explaining
from huc_monitor.monitor.findings import (
    Finding,
    branches_above,
    find_changed,
    find_leads,
    find_standing,
)
from huc_monitor.monitor.hints import Cancellation, branch_frequencies
from huc_monitor.monitor.people import say_history
from huc_monitor.monitor.records import AlertState, AlertTransition, DriftFinding
from huc_monitor.monitor.tolerance import accepted
from huc_monitor.monitor.windows import Window
from huc_monitor.subgroups import Subgroups
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats

if TYPE_CHECKING:
    import pandas as pd

    from huc_monitor.monitor._monitor import Monitor
    from huc_monitor.monitor.muting import Quiet

Triple = tuple[str, str, str]
_MOST_HINTED = 20

_SURELY = 3.0  # standard errors


@dataclass(slots=True, eq=False)
class Examination:
    """The audit of one window and what follows from it."""

    monitor: Monitor
    subgroups: Subgroups
    window: Window
    found: Decomposed
    reference: Reference | None
    change: WindowChange | None = None
    result: AuditResult = field(init=False)
    frame: pd.DataFrame = field(init=False)
    tolerances: Floats = field(init=False)
    drift: tuple[DriftFinding, ...] = field(init=False)
    seconds: float = field(init=False)
    totals: dict[tuple[str, str], float] = field(init=False)

    def __post_init__(self) -> None:
        """Audit a window and measure its drift."""
        monitor, subgroups, found = self.monitor, self.subgroups, self.found
        started = perf_counter()
        self.result = _audit(monitor, subgroups, found)
        self.seconds = perf_counter() - started
        self.frame = self.result.to_frame(all_columns=True)
        values = monitor.policy.tolerance.values(monitor.tree, monitor.utilities, subgroups)
        allowed = None
        if monitor.policy.tolerance.relative and self.reference is not None:
            allowed = self.reference.moments
        self.tolerances = accepted(values, allowed)
        parts = (found.data, found.rows, found.weights)
        self.drift = measure_drift(monitor, subgroups, self.reference, *parts)
        sums = self.result.uc_frame()
        pairs = zip(sums["utility"], sums["subgroup"], sums["moment"].abs(), strict=True)
        self.totals = {(str(u), str(c)): float(moment) for u, c, moment in pairs}

    def together(self) -> Iterator[tuple[Utility, float, float, float]]:
        """Yield each utility's gap over all rows and branches, its radius, and the tolerance."""
        whole, groups = self.frame["subgroup"] == "all", self.found.groups()
        for rows in self.found.rows:
            limits = self.tolerances[whole & (self.frame["utility"] == rows.utility.name)]
            if limits.size:
                gap, variance = groups.mean(rows.contributions.sum(axis=1))
                yield rows.utility, gap, _SURELY * math.sqrt(variance), float(limits.max())

    def as_reference(self) -> Reference:
        """Freeze this window as what others are compared with."""
        data = self.found.data
        summary = summarise(
            data.probabilities,
            self.found.rows,
            self.found.weights,
            subgroups=self.subgroups,
            labels=data.labels,
            version=data.version,
        )
        radii = self.frame["radius"].to_numpy(dtype=np.float64)
        known = radii if np.isfinite(radii).all() else None
        return Reference(
            self.frame["moment"].to_numpy(),
            summary,
            known,
            self.window.start,
            self.window.end,
            pairs=keep_pairs(
                self.monitor.tree,
                data.probabilities,
                data.labels,
                dict(zip(self.subgroups.names, (w != 0 for w in self.found.weights), strict=True)),
            ),
        )

    @property
    def _explaining(self) -> Explaining:
        return Explaining(self.monitor, self.subgroups, self.found, self.drift, self.reference)

    @property
    def candidates(self) -> list[Triple]:
        """(utility, subgroup, node) of every row of the audit."""
        names = (self.frame[name].tolist() for name in ("utility", "subgroup", "node"))
        return list(zip(*names, strict=True))

    def judgements(
        self, step: EDetectorStep | None, changed: Mapping[Triple, bool] | None = None
    ) -> list[Judgement]:
        """Say of every candidate what this window by itself says."""
        known = self.reference
        if known is not None and known.drift.is_of_another(self.found.data.version):
            known = None  # what stood with another version need not stand with this one
        return judge(
            self.candidates,
            self.frame["moment"].to_numpy(),
            self.frame["lower"].to_numpy(),
            self.tolerances,
            step,
            changed,
            None if known is None else known.moments,
        )

    def findings(self, judgements: Sequence[Judgement]) -> tuple[Finding, ...]:
        """Say branch by branch what changed since the reference, and what stands."""
        found = () if self.change is None else self.change.changes
        worse = [item for item in found if not item.better]
        limits = dict(zip(self.candidates, self.tolerances.tolist(), strict=True))
        changed = find_changed(worse, limits, branches_above(self.monitor.tree))
        standing = find_standing(judgements)
        parts = {node for one in changed for node in (one.node, *one.above, *one.below)}
        rows = dict(zip(self.candidates, range(len(limits)), strict=True))
        why = self._explaining
        explained = [
            dataclasses.replace(
                one,
                causes=tuple(why.explain(self.frame.iloc[rows[one.candidate]], one.change)[1]),
            )
            for one in changed[:_MOST_HINTED]
        ]
        return (
            *explained,
            *changed[_MOST_HINTED:],
            *(one for one in standing if one.node not in parts),
        )

    def advance(
        self, alerts: Mapping[Triple, AlertState], judgements: Sequence[Judgement], quiet: Quiet
    ) -> tuple[dict[Triple, AlertState], list[AlertTransition]]:
        """Take alerts through this window, and say what a message needs to know."""
        window = self.window
        after, steps = advance(
            alerts,
            judgements,
            ordinal=self.window.ordinal,
            start=self.window.start,
            end=self.window.end,
            policy=self.monitor.policy.alerts,
            standing_after=max(self.monitor.policy.change.windows),
            quiet=lambda one: quiet.why(
                window.start, window.end, branch=one[2], subgroup=one[1], utility=one[0]
            ),
            version=self.found.data.version,
        )
        steps = [self._once_per_branch(step, alerts) for step in steps]
        steps = self._leading(self._whole_branches(steps, alerts, after, judgements))
        after |= {step.judgement.candidate: step.state for step in steps if step.kind != "resolved"}
        excess = sorted(
            (step for step in steps if step.announced and step.kind != "resolved"),
            key=lambda step: step.judgement.tolerance - abs(step.judgement.moment),
        )
        hinted = {step.judgement.row for step in excess[:_MOST_HINTED]}
        return after, [self._transition(step, step.judgement.row in hinted) for step in steps]

    def _once_per_branch(self, step: AlertStep, before: Mapping[Triple, AlertState]) -> AlertStep:
        """Keep quiet of one more candidate of a branch whose change was told a short while ago."""
        pause, node = self.monitor.policy.alerts.pause, step.judgement.candidate[2]
        if "changed" not in step.judgement.reasons or step.kind in {"resolved", "eased"}:
            return step
        if step.before is not None and step.before.muted is not None:
            return step  # a mute is over, which is news
        told = [
            alert.announced_at
            for alert in before.values()
            if alert.node == node
            and alert.level == "critical"
            and "changed" in alert.reasons
            and alert.announced_at is not None
            and self.window.end - alert.announced_at < pause
        ]
        if not told:
            return step
        # It is due again with the others of its branch.
        state = dataclasses.replace(step.state, announced_at=max(told))
        return dataclasses.replace(step, announced=False, state=state)

    def _whole_branches(
        self,
        steps: Sequence[AlertStep],
        before: Mapping[Triple, AlertState],
        after: Mapping[Triple, AlertState],
        judgements: Sequence[Judgement],
    ) -> list[AlertStep]:
        """Tell all of a branch whose change is told: it may be largest where it was acknowledged.

        Not what is muted.
        """
        told = {
            step.judgement.candidate[2]
            for step in steps
            if step.announced and step.level == "critical" and "changed" in step.judgement.reasons
        }
        known = {step.judgement.candidate: step for step in steps}
        for item in judgements:
            alert = after.get(item.candidate)
            if item.candidate[2] not in told or "changed" not in item.reasons:
                continue
            if alert is None or alert.level != "critical" or alert.muted is not None:
                continue
            step = known.get(item.candidate)
            if step is None:
                step = AlertStep(
                    "repeated",
                    "critical",
                    alert,
                    item,
                    announced=True,
                    before=before.get(item.candidate),
                )
            state = step.state.heard(self.window.end)
            known[item.candidate] = dataclasses.replace(step, state=state, announced=True)
        return list(known.values())

    def _leading(self, steps: Sequence[AlertStep]) -> list[AlertStep]:
        """Remember by which candidate people hear of a branch: its end is told by the same."""
        told = [
            step.judgement.candidate
            for step in steps
            if step.announced and "changed" in step.judgement.reasons and step.kind != "resolved"
        ]
        changes = [change for one in told if (change := self._change_of(one)) is not None]
        leads = find_leads(changes)
        return [
            dataclasses.replace(step, state=dataclasses.replace(step.state, led_at=self.window.end))
            if step.judgement.candidate in leads
            else step
            for step in steps
        ]

    def _change_of(self, candidate: Triple) -> CandidateChange | None:
        found = () if self.change is None else self.change.changes
        return next((item for item in found if item.candidate == candidate), None)

    def _transition(self, step: AlertStep, explain: bool) -> AlertTransition:  # noqa: FBT001
        row = self.frame.iloc[step.judgement.row]
        utility = self._utility(row["utility"])
        change = None
        if "changed" in step.judgement.reasons and step.kind != "resolved":
            change = self._change_of(step.judgement.candidate)
        hidden = Cancellation()
        hints: list[str] = []
        if explain:
            hidden, hints = self._explaining.explain(row, change)
            if self.result.unlogged:
                hints = [*hints, say_unlogged(self.result.unlogged)]
        return AlertTransition(
            kind=step.kind,
            level=step.level,
            utility=utility.name,
            subgroup=row["subgroup"],
            node=row["node"],
            announced=step.announced,
            moment=step.judgement.moment,
            lower=step.judgement.lower,
            upper=_finite(row["upper"]),
            tolerance=step.judgement.tolerance,
            interval_low=_finite(row["interval_low"]),
            interval_high=_finite(row["interval_high"]),
            units=utility.units,
            scale=utility.scale if utility.units else 1.0,
            reasons=step.judgement.reasons,
            uc=self.totals[row["utility"], row["subgroup"]],
            cancels_node=hidden.node,
            cancels_moment=hidden.moment,
            first_seen=step.state.first_seen,
            n_windows=step.state.n_windows,
            hints=tuple(hints),
            settings=tuple(self._changed_settings(step)),
            window_id=self.window.id,
            window_end=self.window.end,
            change=change,
            standing=step.judgement.standing,
            led_at=step.state.led_at,
            people=say_history(step.state, step.before),
        )

    def _changed_settings(self, step: AlertStep) -> list[str]:
        """Name the settings without whose change an alert would not have been resolved or eased."""
        before, now = step.before, step.judgement
        if before is None or step.kind not in {"resolved", "eased"}:
            return []
        by_detector = bool({"detector", "suspected"} & set(before.reasons))
        changed = []
        if by_detector and not self.monitor.policy.sequential.enabled:
            changed.append("`sequential.enabled` is false")
        then = before.exceeded_tolerance
        if then is None or self.monitor.policy.tolerance.relative:
            return changed
        if then < now.tolerance and (by_detector or then < abs(now.moment)):
            utility = self._utility(now.candidate[0])
            scale, units = (utility.scale, f" {utility.units}") if utility.units else (1.0, "")
            values = f"from {then * scale:.4g} to {now.tolerance * scale:.4g}{units}"
            changed.append(f"the tolerance was raised {values}")
        return changed

    def familiar(self) -> FamiliarNumbers | None:
        """Numbers people know, of the rows in hand; None where these are too many."""
        data, tree = self.found.data, self.monitor.tree
        if data.n * tree.n_leaves > MOST_CELLS:
            return None
        rows, level = Predictions.of(data.probabilities), self.monitor.policy.audit.confidence_level
        chance, clusters = data.label_probability, data.clusters
        return measure(rows, data.labels, None, chance, clusters, tree, level)

    def frequencies(self) -> dict[str, dict[str, dict[str, float]]]:
        """Predicted and observed shares of every node's children in the window."""
        tree, data = self.monitor.tree, self.found.data
        mass = data.probabilities.sum(axis=0)
        counts = np.bincount(data.labels, minlength=tree.n_leaves)
        return {
            node: branch_frequencies(tree, branch, mass, counts)
            for branch, node in enumerate(tree.branches)
        }

    def curve(self, findings: Sequence[Finding] = ()) -> dict[str, Any] | None:
        """Summarise what changed most clearly, or else exceeds its tolerance most, to draw it."""
        if self.frame.empty:
            return None
        size = self.frame["moment"].abs().to_numpy()
        place = int(np.argmax(size / np.maximum(self.tolerances, 1e-12)))
        if findings and findings[0].change is not None and self.monitor.policy.by_change:
            place = self.candidates.index(findings[0].candidate)
        row = self.frame.iloc[place]
        fields = Candidate.__slots__
        candidate = Candidate(**{name: row[name] for name in fields})
        curve = reliability_curve(
            self.found.rows, self.found.groups(), candidate, subgroups=self.subgroups
        )
        return curve.to_dict()

    def _utility(self, name: str) -> Utility:
        return next(utility for utility in self.monitor.utilities if utility.name == name)


def _audit(monitor: Monitor, subgroups: Subgroups, found: Decomposed) -> AuditResult:
    """Audit the rows in hand, or where these are a sample, all rows of the window."""
    options, data = monitor.policy.audit, found.data
    auditor = monitor.source.auditor
    if data.sampled_from is None or auditor is None:
        return audit_rows(
            found.rows,
            found.groups(),
            subgroups=subgroups,
            interiorized=found.interiorized,
            lost=Truncation.of(data.probabilities),
            **dict(options),
        )
    return auditor(
        data.start,
        data.end,
        as_of=data.as_of,
        utilities=monitor.utilities,
        subgroups=subgroups,
        options=options,
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
