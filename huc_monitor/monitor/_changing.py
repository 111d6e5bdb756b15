"""The change test of a monitor: which rows it compares, and what it says of a window.

Reference and past windows are kept as scores and contributions (`_samples`), so that a check reads
every row once. Pooled windows have no rows in common: of rolling windows those that do not overlap
are pooled. Windows of one model version are pooled: those of the version before say nothing of the
one that serves. They still date a change, and are drawn.

Of windows larger than memory a sample is kept, which dates changes; the test itself is of all rows,
which the source reads again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from huc_monitor._common.forms import write_form
from huc_monitor.audit.comparison import Difference
from huc_monitor.audit.inputs import Predictions
from huc_monitor.audit.two_samples import Sample
from huc_monitor.audit.unforeseen import count_unforeseen
from huc_monitor.detection import ChangeHistory, ChangeStep, ChangeTest
from huc_monitor.detection.change import Change, candidate_terms
from huc_monitor.detection.history import knows_chances
from huc_monitor.detection.onset import onset_set, window_means
from huc_monitor.monitor._rows import Decomposed, RowCache
from huc_monitor.monitor._samples import SampleFiles
from huc_monitor.monitor._state import KeptWindow, MonitorState, Visited, of_one_version
from huc_monitor.monitor.change import CandidateChange, WindowChange
from huc_monitor.monitor.findings import find_leads
from huc_monitor.monitor.windows import Window
from huc_monitor.sources import TooManyBadRowsError
from huc_monitor.subgroups import Subgroups
from huc_monitor.utilities.program import Floats

if TYPE_CHECKING:
    from huc_monitor.monitor._examine import Examination
    from huc_monitor.monitor._monitor import Monitor

_MOST_DATED = 20
_LARGEST = 5
_REFERENCE = "reference"
_RELATIVE = (
    "`tolerance.relative_to: reference` is the change test: an alert is a moment that became "
    "worse than in the reference, by more than chance and the tolerance. "
    "`change: {alerts: change}` with a tolerance from zero tells standing error as well."
)
Triple = tuple[str, str, str]


@dataclass(slots=True, eq=False)
class Changing:
    """Keeps the rows that are compared, and compares them."""

    monitor: Monitor
    state: MonitorState
    files: SampleFiles
    _test: ChangeTest | None = None
    _history: ChangeHistory | None = None
    _reference: Sample | None = None

    def load(self, subgroups: Subgroups) -> None:
        """Begin once subgroups are frozen; rows are read when they are needed."""
        policy = self.monitor.policy.change
        if not policy.enabled or self.state.subgroups is None:
            return
        self._test = ChangeTest(
            tree=self.monitor.tree,
            utilities=self.monitor.utilities,
            subgroups=subgroups,
            average_run_length=policy.average_run_length,
            pools=policy.windows,
            rng=self.monitor.policy.audit.rng,
        )

    @property
    def test(self) -> ChangeTest:
        """The change test; ask for it only where the monitor has one."""
        assert self._test is not None  # noqa: S101 - asked for with a test only
        return self._test

    def freeze(self, found: Decomposed) -> None:
        """Compare later windows with these rows."""
        if self._test is not None and self.state.reference is not None:
            self.state.reference_sampled = found.data.sampled_from is not None
            self._keep_reference(_sample(found))
            if self.monitor.policy.tolerance.relative:
                self.state.notes.append(_RELATIVE)

    def look(
        self, visited: Visited, examined: Examination, as_of: datetime, *, newest: bool
    ) -> WindowChange | None:
        """Keep a window's rows, and compare it and the windows before it with the reference.

        None where there is nothing to compare: no reference, or a window that has rows of it. A
        revision of an older window is judged with those before it that are kept, as of then; one
        older than all of them by itself.
        """
        window = visited.window
        if self._test is None or not self._is_apart(window):
            return None
        history = self._load_history()
        kept = self.state.compared
        known = {item.id for item in kept}
        if window.id not in known and kept and window.ordinal < kept[-1].ordinal:
            return self._alone(window, examined, as_of)
        history.add(window.id, _sample(examined.found))
        self._keep(window, as_of, examined.found)
        if not self._load_reference().n:
            return None
        chosen = self._pooled(window.ordinal)
        samples = dict(zip(history.names, history.samples, strict=True))
        found = self._compare(examined, chosen, [samples[item.id] for item in chosen])
        if newest:
            onsets = [item.onset_first for item in found.changes if item.onset_first is not None]
            self.state.changed_since = min(onsets, default=None)
            self._remember(found.changes)
        return found

    def _remember(self, changes: Sequence[CandidateChange]) -> None:
        """Keep since when branches with critical alerts changed, for when those windows are gone.

        Not those with warnings: these stay open for what stands, whatever changed meanwhile.
        """
        alerted = {alert.node for alert in self.state.open_alerts if alert.level == "critical"}
        kept = {node: when for node, when in self.state.onsets.items() if node in alerted}
        for one in changes:
            when = (one.onset_first, one.onset_last, one.onset)
            if None not in when and not one.or_earlier:
                kept[one.node] = when  # type: ignore[assignment]
        self.state.onsets = kept

    def _alone(self, window: Window, examined: Examination, as_of: datetime) -> WindowChange | None:
        """Compare a window whose rows are not kept, because newer ones are."""
        if not self._load_reference().n:
            return None
        own = ChangeHistory(self.test.plan, 1)
        own.add(window.id, _sample(examined.found))
        item = _kept(window, as_of, "", examined.found)
        return self._compare(examined, [item], own.samples)

    def audited(self) -> list[Sample]:
        """Rows with labels that still hold: the newest windows, and the reference.

        After a change that is sure, only windows since then; the newest one where none is whole.
        """
        if self._test is None:
            return []
        history = self._load_history()
        samples = dict(zip(history.names, history.samples, strict=True))
        kept = of_one_version([item for item in self._pooled() if item.id in samples])
        since = self.state.changed_since
        if since is not None and kept:
            kept = [item for item in kept if item.start >= since] or kept[-1:]
            return [samples[item.id] for item in kept]
        found = [samples[item.id] for item in kept]
        if kept and self._is_of_another(kept[-1].version):
            return found
        if self.state.reference_times is not None and self._load_reference().n:
            found.append(self._load_reference())
        return found

    @property
    def audited_version(self) -> str | None:
        """The model version of the rows that `audited` gives; None where it is not known."""
        kept = self._pooled()
        reference = (self.state.reference or {}).get("drift", {}).get("version")
        return kept[-1].version if kept else reference

    def _is_of_another(self, version: str | None) -> bool:
        """Whether the reference is known to be of another model version."""
        known = (self.state.reference or {}).get("drift", {}).get("version")
        return None not in {known, version} and known != version

    def decisive(self, change: WindowChange | None) -> dict[Triple, bool] | None:
        """Candidates that changed by more than chance, and if for the better; None: no alerts."""
        if not self.monitor.policy.by_change:
            return None
        undated = self.state.reference is not None and self.state.reference_times is None
        if self._test is None or undated:
            return None
        if self._reference is not None and not self._reference.n:
            return None  # its rows are lost
        found = () if change is None else change.changes
        return {item.candidate: item.better for item in found}

    def _is_apart(self, window: Window) -> bool:
        times = self.state.reference_times
        return times is not None and (window.end <= times[0] or window.start >= times[1])

    # What is kept.

    def _keep(self, window: Window, as_of: datetime, found: Decomposed) -> None:
        assert self._history is not None  # noqa: S101 - loaded before
        digest = self.files.write(self._history.to_bytes(window.id))
        item = _kept(window, as_of, digest, found)
        others = {kept.id: kept for kept in self.state.compared}
        others[window.id] = item
        self.state.compared = [others[name] for name in self._history.names]
        self.state.replaced = self.state.replaced_at
        self._prune()

    def _prune(self) -> None:
        digests = {item.digest for item in self.state.compared}
        self.files.keep_only(digests | {str(self.state.reference_rows)})

    def _keep_reference(self, sample: Sample) -> None:
        kept = ChangeHistory(self.test.plan, 1)
        kept.add(_REFERENCE, sample)
        self._reference = kept.samples[0]
        self.state.reference_rows = self.files.write(kept.to_bytes(_REFERENCE))

    def _load_reference(self) -> Sample:
        """Return the reference's rows; none where neither cache nor source has them any more."""
        if self._reference is None:
            kept_as = self.state.reference_rows
            data = None if kept_as is None else self.files.read(kept_as)
            if data is None:
                self._keep_reference(self._read(*self._reference_range()))
            else:
                kept = ChangeHistory(self.test.plan, 1)
                kept.read(_REFERENCE, data)
                self._reference = kept.samples[0]
                if self._lacks_chances(data):
                    sample = self._read(*self._reference_range())
                    if sample.n >= self._reference.n:  # else the log was pruned
                        self._keep_reference(sample)
        assert self._reference is not None  # noqa: S101 - read or kept just now
        return self._reference

    def _load_history(self) -> ChangeHistory:
        if self._history is None:
            history = ChangeHistory(self.test.plan, max(self.test.pools))
            for item in self.state.compared[-max(self.test.pools) :]:
                data = self.files.read(item.digest)
                if data is not None and not self._lacks_chances(data):
                    history.read(item.id, data)
                    continue
                try:
                    sample = self._read(item.start, item.end, item.as_of)
                except TooManyBadRowsError:
                    continue  # its rows were good once, and are pooled no more
                if sample.n:
                    history.add(item.id, sample)
            self._history = history
        return self._history

    def _lacks_chances(self, data: bytes) -> bool:
        """Whether kept rows do not say with which probability their labels were chosen."""
        if knows_chances(data):
            return False
        at = self._reference_range()[0]
        return self.monitor.source.labelled(at, at).label_probability is not None

    def _reference_range(self) -> tuple[datetime, datetime, datetime]:
        """Return when the reference was, and as of when it is read."""
        times = self.state.reference_times
        assert times is not None  # noqa: S101 - asked for with a dated reference only
        return *times, self.monitor.windows.due_at(times[1])

    def _read(self, start: datetime, end: datetime, as_of: datetime) -> Sample:
        """Read rows from the source again; not by the check's cache, which another thread fills."""
        cache = RowCache(
            self.monitor.source,
            tree=self.monitor.tree,
            utilities=self.monitor.utilities,
            subgroups=self.test.plan.subgroups,
        )
        return _sample(cache.window(start, end, as_of))

    def _pooled(self, last: int | None = None) -> list[KeptWindow]:
        """Return the newest windows, or those up to one, without common rows, oldest first."""
        chosen: list[KeptWindow] = []
        for item in reversed(self.state.compared):
            if last is not None and item.ordinal > last:
                continue
            if not chosen or item.end <= chosen[-1].start:
                chosen.append(item)
        return chosen[::-1]

    # What is found.

    def _compare(
        self, examined: Examination, windows: Sequence[KeptWindow], samples: Sequence[Sample]
    ) -> WindowChange:
        mine = of_one_version(windows)
        step = self._look(mine, samples[-len(mine) :])
        found = self._told(examined, step.changes, samples[-1])
        newest = step.pools[0][1]
        frozen = examined.reference
        order = np.argsort(-np.abs(newest.difference), kind="stable")[:_LARGEST]
        return WindowChange(
            average_run_length=step.average_run_length,
            pools=tuple(n for n, _ in step.pools),
            n_before=newest.n_before,
            n_after=tuple(pool.n_after for _, pool in step.pools),
            changes=self._dated(examined, found, windows, samples),
            largest=tuple(
                CandidateChange(**write_form(newest[int(row)]), n_windows=1) for row in order
            ),
            reference_start=None if frozen is None else frozen.start,
            reference_end=None if frozen is None else frozen.end,
            alerts="change" if self.monitor.policy.by_change else "tolerance",
        )

    def _look(self, windows: Sequence[KeptWindow], samples: Sequence[Sample]) -> ChangeStep:
        """Compare all rows: those in hand, or where these are a sample, those of the source."""
        test, reference, comparer = self.test, self._load_reference(), self.monitor.source.comparer
        sampled = self.state.reference_sampled or any(item.sampled for item in windows)
        if sampled and comparer is not None:
            newest = [(w.start, w.end, w.as_of) for w in reversed(windows)][: max(test.pools)]
            ranges = [self._reference_range(), *newest]
            sizes = test.sizes(len(windows))
            found = comparer(ranges, plan=test.plan, pools=sizes)
            # A log that is pruned may have less left than the sample that was kept.
            if found is not None and found[0].n_before >= reference.n:
                pools = tuple(zip(sizes, found, strict=True))
                counted = test.unforeseen(reference, test.pooled(samples))
                return ChangeStep(pools, test.average_run_length, counted)
        return test.look(reference, samples)

    def _told(
        self, examined: Examination, changes: Sequence[Change], newest: Sample
    ) -> list[Change]:
        """Leave out what is not to be told.

        That is small, tolerated altogether, over by now, or of a branch that chose among other
        things in the reference.
        """
        policy, plan = self.monitor.policy, self.test.plan
        values = policy.tolerance.values(plan.tree, plan.utilities, plan.subgroups)
        # `relative_to: reference` says how far a moment may move from the reference's.
        least = np.maximum(policy.change.min_change, values * policy.tolerance.relative)
        least[values >= 1] = np.inf
        smallest = dict(zip(examined.candidates, least.tolist(), strict=True))
        odd = self._incomparable()
        return [
            change
            for change in changes
            if change.candidate.node not in odd
            and abs(change.candidate.difference) >= smallest[_triple(change.candidate)]
            and self._goes_on(change, newest)
        ]

    def _incomparable(self) -> frozenset[str]:
        """Branches that the reference has in another form, because the tree changed since."""
        changes, times = self.monitor.changes, self.state.reference_times
        if changes is None or times is None:
            return frozenset()
        return changes.incomparable(times[0])

    def _goes_on(self, change: Change, newest: Sample) -> bool:
        """Whether the newest window lies on the same side: pooled windows remember what is over."""
        at = change.candidate
        if change.n_windows == 1:
            return True
        if np.isnan(at.interval_low):
            return float(self._rates([newest], change)[0][0]) > at.before
        plan = self.test.plan
        scores, terms = candidate_terms(newest, plan, at.utility, at.subgroup, at.node)
        inside = (scores >= at.interval_low) & (scores <= at.interval_high)
        moment, _ = newest.groups.mean(np.where(inside, terms, 0.0))
        return (moment - at.before) * at.difference > 0

    def _dated(
        self,
        examined: Examination,
        changes: Sequence[Change],
        windows: Sequence[KeptWindow],
        samples: Sequence[Sample],
    ) -> tuple[CandidateChange, ...]:
        """Say since when, branch by branch: the most certain candidate of a branch dates it."""
        plain = _measured(examined, changes)
        leads, starts = find_leads(plain), [window.start for window in windows]
        end = None if examined.reference is None else examined.reference.end
        forgotten = end is not None and starts[0] > end
        onsets: dict[str, tuple[datetime, ...]] = {}
        unsure = set()
        dated = []
        for change, item in zip(changes, plain, strict=True):
            first_of_branch = item.node not in onsets and len(onsets) < _MOST_DATED
            track: tuple[tuple[datetime, float], ...] = ()
            if first_of_branch or (item.node in onsets and item.candidate in leads):
                together = [self._load_reference(), *samples]
                if np.isnan(change.candidate.interval_low):
                    means, variances = self._rates(together, change)
                else:
                    means, variances = window_means(together, self.test.plan, change.candidate)
                track = tuple(zip(starts, means[1:].tolist(), strict=True))
            if first_of_branch:
                found = onset_set(means, variances)
                places = (found.first, found.last, found.likeliest)
                when = tuple(starts[place] for place in places)
                known = self.state.onsets.get(item.node)
                if forgotten and when[0] == starts[0]:
                    if known is None or known[0] > starts[0]:
                        unsure.add(item.node)
                    else:
                        when = known
                onsets[item.node] = when
            first, last, onset = onsets.get(item.node, (None, None, None))
            dated.append(
                dataclasses.replace(
                    item,
                    onset_first=first,
                    onset_last=last,
                    onset=onset,
                    or_earlier=item.node in unsure,
                    track=track,
                )
            )
        return tuple(dated)

    def _rates(self, samples: Sequence[Sample], change: Change) -> tuple[Floats, Floats]:
        """Share of a change's unforeseen labels in every sample, and the variance of each."""
        assert change.unforeseen is not None  # noqa: S101 - it has no interval
        plan = self.test.plan
        node = [*plan.tree.leaves, *plan.tree.branches].index(change.unforeseen.name)
        c = plan.subgroups.names.index(change.candidate.subgroup)
        seen = np.array(
            [one.unforeseen[2, c, node] if one.unforeseen.size else 0 for one in samples]
        )
        n = np.array([sample.n for sample in samples])
        return seen / n, np.maximum(seen, 1.0) / n**2


def _measured(examined: Examination, changes: Sequence[Change]) -> list[CandidateChange]:
    """Say of every change how large its subgroup is, and whether it is one for the better."""
    known = examined.reference
    assert known is not None  # noqa: S101 - the test has one
    sizes = np.abs([examined.frame["moment"].to_numpy(), known.moments])
    smaller = dict(zip(examined.candidates, sizes[0] <= sizes[1], strict=True))
    radii = np.full(sizes.shape[1], np.nan) if known.radii is None else known.radii
    radius = dict(zip(examined.candidates, radii.tolist(), strict=True))
    weights = zip(examined.subgroups.names, examined.found.weights, strict=True)
    shares = {name: float(np.mean(weight)) for name, weight in weights}
    found = []
    for change in changes:
        at, triple = change.candidate, _triple(change.candidate)
        better = abs(at.after) < abs(at.before) and bool(smaller[triple])
        found.append(
            CandidateChange(
                **write_form(at),
                n_windows=change.n_windows,
                unforeseen=change.unforeseen,
                share=shares[at.subgroup],
                better=better,
                before_radius=radius[triple] if np.isfinite(radius[triple]) else None,
            )
        )
    return found


def _sample(found: Decomposed) -> Sample:
    data, groups, tree = found.data, found.groups(), found.rows[0].tree
    counts = count_unforeseen(tree, data.probabilities, data.labels, groups)
    likeliest = Predictions.of(data.probabilities).likeliest()
    return Sample(tuple(found.rows), groups, counts, likeliest)


def _kept(window: Window, as_of: datetime, digest: str, found: Decomposed) -> KeptWindow:
    when = (window.start, window.end, as_of)
    sampled, version = found.data.sampled_from is not None, found.data.version
    return KeptWindow(window.id, window.ordinal, *when, digest, sampled, version)


def _triple(at: Difference) -> Triple:
    return at.utility, at.subgroup, at.node
