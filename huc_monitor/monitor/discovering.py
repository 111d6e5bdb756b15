"""Subgroups that a monitor finds by itself: searched in past windows, watched in later ones.

Rows after the reference are searched in blocks of windows, each row once. What half of a block
finds and the other half certifies is added to the subgroups, and tested from the next window on: on
rows that did not choose it. The reference is read again with the new subgroups; the e-detector and
the windows that the change test pools begin anew, because their rows did choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from huc_monitor._common.settings import Name, Whole
from huc_monitor._common.times import say_end, say_time, within
from huc_monitor.audit.discovery.discover import FEWEST_ROWS, Discovery, Segment, discover
from huc_monitor.audit.discovery.options import DiscoveryOptions
from huc_monitor.monitor._state import MonitorState
from huc_monitor.monitor.windows import Window
from huc_monitor.sources import TooManyBadRowsError, WindowData
from huc_monitor.subgroups import Subgroups

if TYPE_CHECKING:
    import pandas as pd

    from huc_monitor.monitor._monitor import Monitor


# With a smaller share of its rows, the reference is not read again.
_LEAST_LEFT: Final = 0.9


class DiscoveryPolicy(DiscoveryOptions):
    """In which columns subgroups that nobody named are looked for, and how often.

    A certified subgroup is added where it surely misstates utility by more than `tolerance.value`
    per row of its own, however small it is.

    Parameters
    ----------
    columns : tuple of str
        Columns of the log to describe subgroups by: categories, numbers or times.
    every : int, default 7
        Windows that are searched together, each once.

        No row is searched twice.
    max_conditions, max_segments, min_share
        As in `discover`. A monitor adds at most `max_segments` subgroups in all.
    """

    columns: Annotated[tuple[Name, ...], Field(min_length=1)] = Field(examples=[["age", "channel"]])
    every: Annotated[Whole, Field(ge=1, le=1000)] = 7


@dataclass(frozen=True, slots=True, eq=False)
class GrowingSubgroups:
    """Subgroups that a monitor begins with, and how it looks for more: `Monitor(subgroups=...)`."""

    policy: DiscoveryPolicy
    first: Subgroups | Callable[[pd.DataFrame], Subgroups]

    def __call__(self, features: pd.DataFrame) -> Subgroups:
        """Return those to begin with."""
        return self.first if isinstance(self.first, Subgroups) else self.first(features)


@dataclass(slots=True, eq=False)
class Discovering:
    """Remembers the windows to search, searches them, and adds what is certified."""

    monitor: Monitor
    state: MonitorState
    said: tuple[str, ...] = field(default=(), init=False)

    def take_in(self, window: Window, *, counts: bool) -> bool:
        """Remember an audited window; True where its rows are to be searched.

        Rows of a window that does not count, being no evidence of anything, are not searched.
        """
        growing, state, since = self.monitor.subgroups, self.state, self._since()
        if not isinstance(growing, GrowingSubgroups) or since is None or window.start < since:
            return False
        if len(state.discovered) >= growing.policy.max_segments:
            state.searched_until, state.unsearched, state.unsearchable = window.end, 0, []
            return False
        if counts:
            state.unsearched += 1
            return True
        first, last = state.unsearchable[-1] if state.unsearchable else (window.end, window.end)
        if first <= window.start <= last:
            state.unsearchable[-1] = first, max(last, window.end)
        else:
            state.unsearchable.append((window.start, window.end))
        return False

    def search(self, as_of: datetime) -> bool:
        """Search the windows if they are enough; True where subgroups are others from now on.

        `said` is what the record of the newest window then says of a search that found nothing.
        """
        self.said = ()
        growing, state, since = self.monitor.subgroups, self.state, self._since()
        if not isinstance(growing, GrowingSubgroups) or since is None or state.last is None:
            return False
        policy, end = growing.policy, state.last.end
        left = policy.max_segments - len(state.discovered)
        if state.unsearched < policy.every or left <= 0:
            return False
        try:
            rows = self.monitor.source.labelled(since, end, as_of=as_of)
        except TooManyBadRowsError:
            return False  # some window between failed; more rows may do
        rows = rows.take(~within(rows.times, state.unsearchable))
        if rows.n < FEWEST_ROWS:
            return False
        found = self._search(policy, rows)
        if state.searched_until is None:  # later searches would say the same of these columns
            told = [note for note in found.notes if note.startswith("column ")]
            state.notes += [f"In the search for subgroups, {note}." for note in told]
        state.searched_until, state.unsearched, state.unsearchable = end, 0, []
        grown = self._adopt(found, rows, most=left)
        if not grown:
            searched = f"The {rows.n:,} labelled rows of {self._when(rows)} were searched"
            self.said = (f"{searched} for subgroups; no new one is watched.",)
        return grown

    def _since(self) -> datetime | None:
        """Return the end of the reference, or of what was searched before if that is later."""
        frozen = self.state.reference_times
        return None if frozen is None else max(frozen[1], self.state.searched_until or frozen[1])

    def _n_left(self, start: datetime, end: datetime) -> int | None:
        """Count the rows that the log still has of the reference; None where few or none went."""
        assert self.state.reference is not None  # noqa: S101 - it has times
        source, as_of = self.monitor.source, self.monitor.windows.due_at(end)
        n = source.counts(start, end, as_of=as_of).n_labelled
        return n if n < max(1, _LEAST_LEFT * self.state.reference["drift"]["n"]) else None

    def _search(self, policy: DiscoveryPolicy, rows: WindowData) -> Discovery:
        audit, tree = self.monitor.policy.audit, self.monitor.tree
        # A branch that is off for all rows takes one of them, and is no subgroup.
        most = min(policy.max_segments + tree.arrays.n_branches, 100)
        return discover(
            rows.probabilities,
            rows.codes,
            tree=tree,
            utilities=self.monitor.utilities,
            features=rows.features[list(policy.columns)],
            clusters=rows.cluster_keys,
            label_probability=rows.label_probability,
            max_conditions=policy.max_conditions,
            max_segments=most,
            min_share=policy.min_share,
            confidence_level=audit.confidence_level,
            rng=audit.rng,
        )

    def _when(self, rows: WindowData) -> str:
        zone = self.monitor.windows.time_zone
        return f"{say_time(rows.start, zone)} to {say_end(rows.end, zone)}"

    def _matters(self, segment: Segment) -> bool:
        """Whether it surely misstates utility by more than the tolerance, per row of its own."""
        tolerance = self.monitor.policy.tolerance
        if tolerance.unit != "utility":
            return True
        return min(abs(segment.lower), abs(segment.upper)) > tolerance.value * segment.share

    def _adopt(self, found: Discovery, rows: WindowData, *, most: int) -> bool:
        state = self.state
        assert state.subgroups is not None  # noqa: S101 - frozen before the first window
        known = Subgroups.from_dict(state.subgroups)
        named = [one for one in found.certified if one.rule is not None and self._matters(one)]
        chosen = list({one.name: one for one in named if one.name not in known.names}.values())
        chosen = chosen[:most]
        if not chosen:
            return False
        frozen = state.reference_times
        assert frozen is not None  # noqa: S101 - windows are searched since its end
        left = self._n_left(*frozen)
        if left is not None:
            state.notes.append(
                f"{len(chosen)} subgroups were found and are not watched, because the reference "
                f"would have to be read again, and the log has {left:,} of its labelled rows."
            )
            return False
        rules = {segment.name: segment.rule for segment in chosen}
        family = known.joined(Subgroups.from_reference(rows.features, predicates=rules))
        state.begin_again(family)
        state.discovered += list(rules)
        for segment in chosen:
            when = self._when(rows)
            state.notes.append(
                f"New subgroup, found in the windows of {when}: {segment} It is watched from the "
                "next window on; the e-detector and pooled windows begin anew."
            )
        return True
