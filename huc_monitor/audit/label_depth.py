r"""Labels that stop above the leaves: which branches see a row, and what their moments are then.

A label at an inner node fixes the contribution of every branch above it, exactly. The branches at
and below that node do not see the row: its contribution there is not zero, it is not known. Let
R_v say that a label lies at branch v or below, and S_v that it lies below, so that v sees the row.
Of the rows that truly pass through v, the share that v sees is the coverage

    c_v = product over the branches w from the root to v of P(S_w) / P(R_w).

Its estimate counts labels, as Kaplan and Meier count survivors: a row whose label stopped higher up
says nothing of P(S_w) / P(R_w) further down. The moment of v is then the mean over all rows of
S_v A_v 1{score in I} / c_v, whose expectation is the moment under full labels.

What must hold: at each branch, whether a label goes on below does not depend on what it would say
there, nor on the score, given that the row came to this branch. Each subgroup has its own coverage,
so it may depend on the subgroup. Labels that stop *because* the case is hard break the assumption,
and nothing in the log can tell.

The bounds
----------
Dividing contributions by c_v divides a candidate's draws and its scale by c_v alike: the quantile
stays, and the radius is that of the seen contributions divided by c_v. This treats c_v as known. To
first order, the estimate of c_v only helps: with Z_w = R_w (S_w / c - 1) / P(R_w), c = P(S_w) /
P(R_w), the errors of the estimated coverages subtract from S_v A_v 1_I / c_v its projection on the
Z_w, which are uncorrelated; so the covariance that the bootstrap imitates exceeds the true one by
a positive semidefinite matrix, for all candidates and intervals together, and by Anderson's
inequality the radii cover at least as often. The floor of rare outcomes, b log(N / d) / n, is
divided by c_v too: an outcome below v is seen with c_v times its probability.

UC adds up, row by row, what the label fixes: the mean utility under the label minus the score. It
is UC of the utility as far as labels tell; branches below a label add nothing to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from huc_monitor.errors import InvalidInputError
from huc_monitor.tree import LabelTree
from huc_monitor.utilities.program import Floats, Ints

if TYPE_CHECKING:
    from huc_monitor.audit.decomposition import UtilityRows
    from huc_monitor.audit.plan import AuditPlan
    from huc_monitor.audit.scan import Groups

FEW_SEEN: Final = 30
_MOST_NAMED: Final = 3


def count_labels(
    tree: LabelTree, labels: Ints, weights: Sequence[np.ndarray[Any, Any]], repeats: Floats
) -> Floats:
    """Count labels at or below every branch, and those below it; shape (subgroups, 2, branches).

    Counts of pieces add up.
    """
    arrays, n_leaves = tree.arrays, tree.n_leaves
    counts = np.zeros((len(weights), 2, arrays.n_branches))
    times = repeats if repeats.size else 1.0
    for c, weight in enumerate(weights):
        by_code = np.bincount(
            labels, np.abs(weight) * times, minlength=n_leaves + arrays.n_branches
        )
        before = np.append(0.0, np.cumsum(by_code[:n_leaves]))
        below = before[arrays.stop] - before[arrays.start]
        reached = below + by_code[n_leaves:]
        if by_code[n_leaves:].any():
            # Children come after their parent: what stops in a subtree is added from the last up.
            stopped = by_code[n_leaves:].copy()
            for branch in range(arrays.n_branches - 1, 0, -1):
                stopped[arrays.parent[branch]] += stopped[branch]
            reached = below + stopped
        counts[c] = reached, reached - by_code[n_leaves:]
    return counts


def coverage_of(tree: LabelTree, counts: Floats) -> Floats | None:
    """Return every branch's coverage in every subgroup; None where all labels are leaves.

    Examples
    --------
    >>> from huc_monitor.tree import LabelTree
    >>> tree = LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    >>> codes = tree.encode(["cat", "cat", "cat", "lion", "dog", "dog"], any_depth=True)
    >>> coverage_of(tree, count_labels(tree, codes, [np.ones(6)], np.empty(0)))
    array([[1.  , 0.25]])
    """
    reached, seen = counts[:, 0], counts[:, 1]
    if (seen == reached).all():
        return None
    share = np.divide(seen, reached, out=np.ones_like(seen), where=reached > 0)
    parent = tree.arrays.parent
    for branch in range(1, parent.size):
        share[:, branch] *= share[:, parent[branch]]
    return share


def coverage_of_rows(rows: UtilityRows, groups: Groups) -> tuple[Floats | None, tuple[str, ...]]:
    """Return the coverage of decomposed rows, and what to say of it."""
    tree = rows.tree
    if not rows.labels.size or rows.labels.max() < tree.n_leaves:
        return None, ()
    counts = count_labels(tree, rows.labels, groups.weights, groups.repeats)
    return coverage_of(tree, counts), notes_on(tree, counts * groups.unit)


def coverage_among(rows: UtilityRows, weights: Floats) -> Floats:
    """Coverage of every relevant branch among rows that count so often; 0 where none is seen."""
    none = np.empty(0)
    counts = count_labels(rows.tree, rows.labels, [weights], none)
    found = coverage_of(rows.tree, counts)
    return np.ones(rows.relevant.size) if found is None else found[0, rows.relevant]


def notes_on(tree: LabelTree, counts: Floats) -> tuple[str, ...]:
    """Say how many labels stop above the leaves, and which branches see hardly any row."""
    coverage = coverage_of(tree, counts[:1])
    if coverage is None:
        return ()
    reached, seen = counts[0]
    stopped = float((reached - seen).sum() / reached[0])
    said = (
        f"{stopped:.1%} of the labels stop above the leaves. A branch counts the rows whose label "
        "lies below it, divided by its label coverage; UC counts each row down to its label."
    )
    notes = [said]
    few = [v for v in np.flatnonzero(seen < FEW_SEEN) if coverage[0, v] < 1 and reached[v] > 0]
    if few:
        few.sort(key=lambda v: -reached[v])
        told = ", ".join(
            f"{tree.branches[v]!r} ({seen[v]:g} of {reached[v]:g})" for v in few[:_MOST_NAMED]
        )
        more = f" and {len(few) - _MOST_NAMED} more" if len(few) > _MOST_NAMED else ""
        notes.append(f"Few labels go below {told}{more}: their bounds are wide, not their errors.")
    return tuple(notes)


def check_method(plan: AuditPlan) -> None:
    """Refuse bounds that promise more than estimated coverage lets them."""
    if plan.method in {"sharp", "theorem"}:
        msg = (
            f"`bounds` must be 'bootstrap' or None where labels stop above the leaves; got "
            f"{plan.method!r}, which would have to know how often they do. Use 'bootstrap', or "
            "leave out rows whose label is no leaf."
        )
        raise InvalidInputError(msg)


def whole_rows(
    rows: Sequence[UtilityRows], groups: Groups
) -> tuple[tuple[UtilityRows, ...], list[Floats]]:
    """Divide contributions by the coverage of their branch in the whole sample.

    Returns the rows, and what the limit of every relevant branch is multiplied by. For two samples
    that are compared, whose labels may stop at different depths.
    """
    coverage, _ = coverage_of_rows(rows[0], groups)
    if coverage is None:
        return tuple(rows), [np.ones(item.relevant.size) for item in rows]
    made, wider = [], []
    for item in rows:
        seen = coverage[0, item.relevant]
        factors = np.append(1.0 / np.where(seen > 0, seen, 1.0), 1.0)
        each = factors[item.path_slots[item.labels]]
        made.append(dataclasses.replace(item, contributions=item.contributions * each))
        wider.append(factors[:-1])
    return tuple(made), wider
