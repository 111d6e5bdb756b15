"""Findings: what a person is told about one branch, whatever number of candidates say the same.

A fault in one branch shows in several subgroups, utilities and, weaker, in branches above it. They
are one finding, led by its most specific explanation: the smallest subgroup that holds the change.
A change that everyone shares leaves a subgroup its share of it, one that is the subgroup's own all
of it; a subgroup holds it from halfway between the two on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from huc_monitor.monitor.alerts import Judgement
    from huc_monitor.monitor.records import AlertTransition

__all__ = ["Finding", "find_changed", "find_standing", "say_standing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A branch that changed since the reference.

    Attributes
    ----------
    lead : AlertTransition
        The candidate of its most specific explanation.
    subgroups, utilities : tuple of str
        All that say the same of the branch, those of the lead first.
    above : tuple of str
        Branches above it that changed less: they are part of it.
    """

    lead: AlertTransition
    subgroups: tuple[str, ...]
    utilities: tuple[str, ...]
    above: tuple[str, ...] = ()

    @property
    def node(self) -> str:
        """The branch."""
        return self.lead.node

    @property
    def kind(self) -> str:
        """Say "both" where the reference was beyond the tolerance there already."""
        change = self.lead.change
        stood = change is not None and abs(change.before) > self.lead.tolerance
        return "both" if stood else "changed"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe form."""
        return {
            "node": self.node,
            "kind": self.kind,
            "subgroups": list(self.subgroups),
            "utilities": list(self.utilities),
            "above": list(self.above),
            "change": None if self.lead.change is None else self.lead.change.to_dict(),
        }


def find_changed(
    steps: Sequence[AlertTransition], above: Mapping[str, Collection[str]]
) -> list[Finding]:
    """Group changes by branch, the most certain first; `above` are the branches above each."""
    by_node: dict[str, list[AlertTransition]] = {}
    for step in sorted(steps, key=lambda step: -certainty(step)):
        by_node.setdefault(step.node, []).append(step)
    by_node = {node: _most_specific_first(found) for node, found in by_node.items()}
    size = {node: max(map(_size, found)) for node, found in by_node.items()}
    folded: dict[str, list[str]] = {}
    for node in by_node:
        guilty = [other for other in by_node if node in above.get(other, ())]
        larger = [other for other in guilty if size[other] >= size[node]]
        if larger:
            folded.setdefault(larger[0], []).append(node)
    parts = {node for nodes in folded.values() for node in nodes}
    return [
        Finding(
            found[0],
            tuple(dict.fromkeys(step.subgroup for step in found)),
            tuple(dict.fromkeys(step.utility for step in found)),
            tuple(folded.get(node, ())),
        )
        for node, found in by_node.items()
        if node not in parts
    ]


def certainty(step: AlertTransition) -> float:
    """By how many radii a change differs from none; 0 where it was not measured."""
    change = step.change
    if change is None or change.lower is None or change.upper is None:
        return 0.0
    return 2.0 * abs(change.difference) / (change.upper - change.lower)


def _most_specific_first(steps: list[AlertTransition]) -> list[AlertTransition]:
    largest: dict[str, float] = {}
    for step in steps:
        largest[step.utility] = max(largest.get(step.utility, 0.0), _size(step))
    held = [
        step for step in steps if _size(step) >= (0.5 + 0.5 * _share(step)) * largest[step.utility]
    ]
    lead = min(held, key=lambda step: (_share(step), -certainty(step)))
    return [lead, *(step for step in steps if step is not lead)]


def _size(step: AlertTransition) -> float:
    return 0.0 if step.change is None else abs(step.change.difference)


def _share(step: AlertTransition) -> float:
    return 1.0 if step.change is None else step.change.share


def find_standing(judgements: Sequence[Judgement], told: Collection[str]) -> tuple[list[str], bool]:
    """Name the branches that stand beyond tolerance, the worst first, and say whether to tell.

    People hear of all of them at once, the first time; one that joins them later is a warning in
    status and report, and as little a change as they are. `told` are those people heard of.
    """
    excess: dict[str, float] = {}
    for item in judgements:
        if not item.standing or not item.stands:
            continue
        node = item.candidate[2]
        excess[node] = max(excess.get(node, 0.0), abs(item.moment) - item.tolerance)
    return sorted(excess, key=lambda node: -excess[node]), bool(excess) and not told


def say_standing(nodes: Sequence[str]) -> str:
    """Say it in one line.

    Examples
    --------
    >>> say_standing(["root", "billing"])[:66]
    'Standing since the reference: root and 1 more branch are above the'
    """
    more = len(nodes) - 1
    others = "" if not more else f" and {more} more branch{'es' if more > 1 else ''}"
    verb = "are" if more else "is"
    return (
        f"Standing since the reference: {nodes[0]}{others} {verb} above the tolerance, without a "
        "sure change. This is told once; recalibrate once: huc-monitor recalibrate."
    )
