"""What an audit is asked, checked once: for rows in memory, in pieces, and on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from huc_monitor.audit.bounds.bound import Bound
from huc_monitor.audit.bounds.closed_forms import make_bound
from huc_monitor.audit.clusters import Design, Sizes, check_clusters, check_label_probability
from huc_monitor.audit.inputs import (
    Predictions,
    check_subgroups,
    check_tree,
    check_utilities,
    check_weights,
)
from huc_monitor.audit.options import AuditOptions
from huc_monitor.audit.result import AuditResult, CandidateTable, TotalTable
from huc_monitor.audit.scan import Groups, UtilityScan
from huc_monitor.subgroups import Subgroups
from huc_monitor.tree import LabelTree
from huc_monitor.utilities import Utility
from huc_monitor.utilities.program import Floats, Ints


@dataclass(frozen=True, eq=False)
class AuditPlan:
    """The arguments of an audit besides its rows, checked; makes bounds and builds the result.

    ``n_draws`` and ``seed`` are those of the bound: 0 where it makes no draws.
    """

    tree: LabelTree
    utilities: tuple[Utility, ...]
    subgroups: Subgroups
    method: str | None
    confidence_level: float
    n_draws: int
    seed: int

    @classmethod
    def of(
        cls,
        *,
        tree: LabelTree | str | Path,
        utilities: Any = None,
        subgroups: Subgroups | None = None,
        **more: Any,
    ) -> Self:
        """Check what can be checked before any row is looked at.

        ``more`` are the words of `AuditOptions`, and fields of a subclass.
        """
        tree = check_tree(tree)
        chosen = check_utilities(utilities, tree)
        words = [name for name in AuditOptions.model_fields if name in more]
        given = AuditOptions(**{name: more.pop(name) for name in words})
        bound = make_bound(given.bounds, n_draws=given.n_draws, seed=given.rng)
        groups = check_subgroups(subgroups)
        return cls(
            tree,
            chosen,
            groups,
            given.bounds,
            given.confidence_level,
            bound.n_draws,
            bound.seed,
            **more,
        )

    @cached_property
    def _spreads(self) -> list[Floats]:
        return [utility.spreads(self.tree) for utility in self.utilities]

    @cached_property
    def limits(self) -> list[Floats]:
        """Bound on the absolute contribution of every relevant branch, utility by utility."""
        return [spreads[spreads > 0] for spreads in self._spreads]

    @property
    def n_candidates(self) -> int:
        """Subgroups times relevant branches of all utilities."""
        return len(self.subgroups) * sum(spreads.size for spreads in self.limits)

    @cached_property
    def names(self) -> tuple[tuple[str, str, str], ...]:
        """Return (utility, subgroup, node) of every candidate, in order."""
        return tuple(zip(*self._name_columns(), strict=True))

    def _name_columns(self) -> tuple[list[str], list[str], list[str]]:
        """Return the utility, the subgroup and the node of every candidate, in order."""
        of_utility: list[str] = []
        of_subgroup: list[str] = []
        nodes: list[str] = []
        subgroups = self.subgroups.names
        for utility, spreads in zip(self.utilities, self._spreads, strict=True):
            own = [self.tree.branches[v] for v in np.flatnonzero(spreads > 0).tolist()]
            of_utility += [utility.name] * (len(own) * len(subgroups))
            of_subgroup += [subgroup for subgroup in subgroups for _ in own]
            nodes += own * len(subgroups)
        return of_utility, of_subgroup, nodes

    def weigh(
        self,
        predictions: Predictions,
        codes: Ints,
        *,
        features: Any = None,
        weights: Any = None,
        clusters: Any = None,
        label_probability: Any = None,
    ) -> tuple[Predictions, Ints, Groups]:
        """Check how rows count; those of weight zero are left out."""
        n = predictions.n
        repeats = check_weights(weights, n)
        chance = check_label_probability(label_probability, n)
        keys = check_clusters(clusters, n)
        members = self.subgroups.memberships(features, n)
        if repeats is None or repeats.all():
            return predictions, codes, Groups.of(members, repeats, chance, keys)
        kept = np.flatnonzero(repeats)
        groups = Groups.of(
            members.take(kept),
            repeats[kept],
            None if chance is None else chance[kept],
            None if keys is None else keys[kept],
        )
        return predictions.take(kept), codes[kept], groups

    def bound(self, sizes: Sizes) -> Bound:
        """Start a bound for so many rows."""
        bound = make_bound(self.method, n_draws=self.n_draws, seed=self.seed)
        bound.start(sizes, self.n_candidates, self.confidence_level)
        return bound

    def result(
        self,
        scans: Sequence[UtilityScan],
        radii: Floats,
        *,
        total: float,
        shares: Floats,
        interiorized: bool,
        weighted: bool = False,
        design: Design | None = None,
        coverage: Floats | None = None,
        notes: tuple[str, ...] = (),
    ) -> AuditResult:
        """Build the result from one scan per utility.

        ``shares`` are subgroups' mean weights; ``coverage`` is that of `label_depth`, None where
        every label is a leaf.
        """
        return AuditResult(
            n=total,
            method=self.method,
            confidence_level=self.confidence_level,
            n_draws=self.n_draws or None,
            interiorized=interiorized,
            fingerprint=self.tree.fingerprint,
            candidates=self._candidates(scans, radii, shares, self._seen(coverage)),
            totals=self._totals(scans),
            notes=(
                *((f"{total:,.0f} rows {design}.", *design.notes) if design else ()),
                *notes,
                *self._not_audited(),
            ),
            plan=self,
            design=design,
            weighted=weighted,
        )

    def _not_audited(self) -> tuple[str, ...]:
        """Say for which utilities nothing was audited: their HUC of 0 is no good news."""
        return tuple(
            f"No branch of this tree can change the utility {utility.name!r}: nothing was audited "
            "for it."
            for utility, limits in zip(self.utilities, self.limits, strict=True)
            if not limits.size
        )

    def _seen(self, coverage: Floats | None) -> Floats:
        """Coverage of every candidate."""
        if coverage is None:
            return np.ones(self.n_candidates)
        relevant = [utility.relevant_branches(self.tree) for utility in self.utilities]
        return np.asarray(_join(coverage[:, branches] for branches in relevant))

    def _candidates(
        self, scans: Sequence[UtilityScan], radii: Floats, shares: Floats, seen: Floats
    ) -> CandidateTable:
        """List branches in the order utility, subgroup, branch."""
        counts = [scan.on_uc.shape for scan in scans]
        group = _join(np.repeat(np.arange(n_groups), width) for n_groups, width in counts)
        utility = np.repeat(
            np.arange(len(counts)), [n_groups * width for n_groups, width in counts]
        )
        units = [item.units for item in self.utilities]
        # A branch that sees no row has moment 0, and the radius of a moment of which nothing is
        # known: the limit of its contributions.
        times = np.divide(1.0, seen, out=np.zeros_like(seen), where=seen > 0)
        moment = _join(scan.moment[:, :-1] for scan in scans) * times
        limits = _join(np.tile(found, len(self.subgroups)) for found in self.limits)
        radii = np.where(
            seen < 1.0, np.minimum(radii / np.maximum(seen, 1e-300), limits + np.abs(moment)), radii
        )
        share = shares[group]
        names, groups, nodes = self._name_columns()
        return CandidateTable(
            utility=names,
            subgroup=groups,
            node=nodes,
            moment=moment,
            radius=radii,
            interval_low=_join(scan.low[:, :-1] for scan in scans),
            interval_high=_join(scan.high[:, :-1] for scan in scans),
            n_in_interval=_join(scan.n_inside[:, :-1] for scan in scans),
            n_in_subgroup=scans[0].size[group],
            moment_in_subgroup=np.divide(moment, share, out=np.zeros(moment.size), where=share > 0),
            on_uc_interval=_join(scan.on_uc for scan in scans) * times,
            on_worst_interval=_join(scan.on_worst for scan in scans) * times,
            moment_in_units=moment * np.array([item.scale for item in self.utilities])[utility],
            units=[units[u] for u in utility.tolist()],
            label_coverage=seen,
        )

    def _totals(self, scans: Sequence[UtilityScan]) -> TotalTable:
        """List moments summed over branches, in the order utility, subgroup."""
        names = self.subgroups.names
        return TotalTable(
            utility=[utility.name for utility in self.utilities for _ in names],
            subgroup=[*names] * len(self.utilities),
            moment=_join(scan.moment[:, -1] for scan in scans),
            interval_low=_join(scan.low[:, -1] for scan in scans),
            interval_high=_join(scan.high[:, -1] for scan in scans),
            n_in_interval=_join(scan.n_inside[:, -1] for scan in scans),
        )


def _join(parts: Any) -> Any:
    return np.concatenate([part.ravel() for part in parts])
