"""Findings: what a person is told about one branch, whatever number of candidates say the same.

A fault in one branch shows in several subgroups, utilities and, weaker, in branches above it. They
are one finding, led by its most specific explanation: the smallest subgroup that holds the change.
A change that everyone shares leaves a subgroup its share of it, one that is the subgroup's own all
of it; a subgroup holds it from halfway between the two on.

A fault everywhere shows most at the top. A branch below is part of that finding if it changed in
the same direction, by less than half as much, for the same rows or more, and may have begun to
change at the same time; a fault of its own, larger or of a smaller subgroup, stays its own finding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from huc_monitor._common.forms import Form
from huc_monitor._common.safe_text import chat
from huc_monitor._common.views import Shown
from huc_monitor.monitor.change import CandidateChange
from huc_monitor.tree import LabelTree

if TYPE_CHECKING:
    from huc_monitor.monitor.alerts import Judgement


Triple = tuple[str, str, str]
_PART = 0.5
_MOST_NAMED = 5
_FEW_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Form, Shown):
    """What is told about one branch.

    Attributes
    ----------
    kind : {"standing", "changed", "both"}
        Standing: beyond the tolerance, without a change by more than chance. Both: it changed, and
        the reference was beyond the tolerance already.
    node : str
        The branch.
    subgroups, utilities : tuple of str
        All that say the same of the branch, those of the most specific explanation first.
    above, below : tuple of str
        Branches above and below it that changed less: they are part of it.
    tolerance : float
        What is accepted of its first subgroup and utility.
    change : CandidateChange or None
        How that candidate changed; None of what stands.
    causes : tuple of str
        What probably lies behind it, in sentences.
    """

    kind: Literal["standing", "changed", "both"]
    node: str
    subgroups: tuple[str, ...]
    utilities: tuple[str, ...]
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    tolerance: float = 0.0
    change: CandidateChange | None = None
    causes: tuple[str, ...] = ()

    @property
    def candidate(self) -> Triple:
        """(utility, subgroup, node) of its most specific explanation."""
        return self.utilities[0], self.subgroups[0], self.node

    @property
    def sharing(self) -> str:
        """Name the other subgroups that show it, in a sentence; empty where everyone does."""
        # What everyone shows, every subgroup does; what one shows, everyone does a little.
        others = () if self.subgroups[0] == "all" else self.subgroups[1:]
        names = [name for name in others if name != "all"]
        if not names:
            return ""
        more = f" and {len(names) - _FEW_NAMED} more" if len(names) > _FEW_NAMED else ""
        listed = ", ".join(chat(name) for name in names[:_FEW_NAMED])
        return f"Other subgroups, which may share its rows, show it too: {listed}{more}."


def find_changed(
    changes: Sequence[CandidateChange],
    tolerances: Mapping[Triple, float],
    above: Mapping[str, Collection[str]],
) -> list[Finding]:
    """Group changes by branch, the most certain first; `above` are the branches above each."""
    by_node = _by_node(changes)
    up, down = _fold(by_node, above)
    return [
        _finding(found, tolerances, up.get(node, []), down.get(node, []))
        for node, found in by_node.items()
        if not any(node in nodes for part in (up, down) for nodes in part.values())
    ]


def find_leads(changes: Sequence[CandidateChange]) -> set[Triple]:
    """Return the most specific explanation of every branch that changed."""
    return {found[0].candidate for found in _by_node(changes).values()}


def _by_node(changes: Sequence[CandidateChange]) -> dict[str, list[CandidateChange]]:
    """Group changes by branch, the most specific explanation first, then the most certain."""
    by_node: dict[str, list[CandidateChange]] = {}
    for change in sorted(changes, key=lambda change: -certainty(change)):
        by_node.setdefault(change.node, []).append(change)
    return {node: _most_specific_first(found) for node, found in by_node.items()}


def _fold(
    by_node: Mapping[str, Sequence[CandidateChange]], above: Mapping[str, Collection[str]]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Say which branches are part of another's finding: those above it, and those below it."""
    size = {node: max(map(_size, found)) for node, found in by_node.items()}
    reach = {node: max(map(_reach, found)) for node, found in by_node.items()}
    up: dict[str, list[str]] = {}
    for node, mine in size.items():
        larger = [one for one in size if node in above.get(one, ()) and reach[one] >= mine]
        if larger:
            up.setdefault(larger[0], []).append(node)
    parts = {node for nodes in up.values() for node in nodes}
    down: dict[str, list[str]] = {}
    # From the top, so that what is everywhere is told of the highest branch.
    for node in sorted(size, key=lambda node: len(above.get(node, ()))):
        if node in parts:
            continue
        for one in [one for one in size if node in above.get(one, ()) and one not in up]:
            if one not in parts and _is_part(by_node[one][0], by_node[node][0]):
                down.setdefault(node, []).append(one)
                parts.add(one)
    return up, down


def _is_part(below: CandidateChange, top: CandidateChange) -> bool:
    """Whether a change below is the same event as the larger one above it."""
    if below.subgroup not in {top.subgroup, "all"}:
        return False
    # Labels can only come unforeseen more often, whichever way a moment moves by it.
    if not below.counted and below.difference * top.difference <= 0:
        return False
    if abs(below.difference) >= _PART * abs(top.difference):
        return False
    ends = (below.onset_first, below.onset_last, top.onset_first, top.onset_last)
    if None in ends:
        return False
    first, last, top_first, top_last = ends
    return first <= top_last and top_first <= last  # type: ignore[operator] # none is None


def _finding(
    found: Sequence[CandidateChange],
    tolerances: Mapping[Triple, float],
    above: Sequence[str],
    below: Sequence[str],
) -> Finding:
    lead = found[0]
    tolerance = tolerances[lead.candidate]
    return Finding(
        kind="both" if abs(lead.before) > tolerance else "changed",
        node=lead.node,
        subgroups=tuple(dict.fromkeys(change.subgroup for change in found)),
        utilities=tuple(dict.fromkeys(change.utility for change in found)),
        above=tuple(above),
        below=tuple(below),
        tolerance=tolerance,
        change=lead,
    )


def certainty(change: CandidateChange | None) -> float:
    """By how many radii a change differs from none; 0 where it was not measured."""
    if change is None or change.lower is None or change.upper is None:
        return 0.0
    return 2.0 * abs(change.difference) / (change.upper - change.lower)


def _most_specific_first(changes: list[CandidateChange]) -> list[CandidateChange]:
    # Sizes are comparable within a pool, and counts with counts: as the most certain change is.
    alike = changes[0].n_windows, changes[0].counted
    together = [change for change in changes if (change.n_windows, change.counted) == alike]
    largest: dict[str, float] = {}
    for change in together:
        largest[change.utility] = max(largest.get(change.utility, 0.0), _size(change))
    held = [
        change
        for change in together
        if _size(change) >= (0.5 + 0.5 * change.share) * largest[change.utility]
    ]
    lead = min(held, key=lambda change: (change.share, -certainty(change)))
    return [lead, *(change for change in changes if change is not lead)]


def _size(change: CandidateChange) -> float:
    return abs(change.difference)


def _reach(change: CandidateChange) -> float:
    """How much of a change above a branch its own explains: an unforeseen row, one at most."""
    return (change.upper or 0.0) if change.counted else _size(change)


def branches_above(tree: LabelTree | None) -> dict[str, frozenset[str]]:
    """Return the branches above every branch."""
    if tree is None:
        return {}
    return {node: frozenset(tree.ancestors(node)) for node in tree.branches}


def find_standing(judgements: Sequence[Judgement]) -> list[Finding]:
    """Name the branches that stand beyond tolerance, the worst first."""
    by_node: dict[str, list[Judgement]] = {}
    for item in judgements:
        if item.standing and item.stands:
            by_node.setdefault(item.candidate[2], []).append(item)
    ranked = {
        node: sorted(found, key=lambda item: -_excess(item)) for node, found in by_node.items()
    }
    return [
        Finding(
            kind="standing",
            node=node,
            subgroups=tuple(dict.fromkeys(item.candidate[1] for item in found)),
            utilities=tuple(dict.fromkeys(item.candidate[0] for item in found)),
            tolerance=found[0].tolerance,
        )
        for node, found in sorted(ranked.items(), key=lambda pair: -_excess(pair[1][0]))
    ]


def _excess(item: Judgement) -> float:
    return abs(item.moment) - item.tolerance


def say_standing(
    nodes: Sequence[str], limits: Mapping[str, float] | None = None, size: float = 0.0
) -> str:
    """Say which branches are beyond the smallest limit, as they were in the reference.

    `limits` are tolerances by the names of their settings, `size` the largest moment: all that lie
    below it have to be raised.

    Examples
    --------
    >>> say_standing(["root", "billing"])[:66]
    'Standing since the reference: root and billing are beyond the tole'
    """
    named, more = list(nodes[:_MOST_NAMED]), len(nodes) - _MOST_NAMED
    if more > 0:
        named.append(f"{more} more branch{'es' if more > 1 else ''}")
    many = len(named) > 1
    listed = f"{', '.join(named[:-1])} and {named[-1]}" if many else named[0]
    beyond, raised = "the tolerance", "the tolerance"
    if limits:
        first, *others = sorted(limits, key=limits.__getitem__)
        beyond, raised = f"{limits[first]:g} ({first})", "that tolerance"
        below = [f"{name} ({limits[name]:g})" for name in others if limits[name] < size]
        if below:
            raised = f"both that and {below[0]}: the largest moment is {size:.3g}"
    return (
        f"Standing since the reference: {listed} {'are' if many else 'is'} beyond {beyond}, about "
        f"as far as {'they were' if many else 'it was'} then. This is told once. To end it, "
        f"recalibrate (huc-monitor recalibrate) or raise {raised}."
    )
