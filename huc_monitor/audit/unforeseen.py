r"""Labels where the model put almost no mass, and whether there are more than in the reference.

A class the model never saw has probability zero, and moments hardly show it: its rows are rare, and
a branch in which the model put no mass has next to no utility to lose, so that the error is told of
the branches above. But counts tell. Of the rows of a subgroup that gave a node less than 1 %, m
before and m' after, let k and k' be those whose label lies under it nonetheless.

If what follows from a prediction has not changed, each of the k + k' rows is one of the window's
with probability s = m' / (m + m'), so that k' given k + k' is binomial, or less spread. Where
inputs moved, rows with a little more mass may have come: s is then that of the predicted mass, if
it is larger. With q the lower limit of Clopper and Pearson on the share k' / (k + k'), such labels
are at least r = q / (1 - q) * (1 - s) / s times as frequent as before; with l the lower limit on
k' / n' they became more frequent by at least l (1 - 1 / r). Each limit takes half of the error
probability, divided by the number of subgroups and nodes: the bounds are exact, and hold for all
of them at once.

What the reference has in the same measure is no rise. Rows are taken as independent: of a cluster
every node counts once. Rows whose labels were chosen with known probability are not counted, nor
those of trees of more than 2,000 leaves; nor is there a count for weights other than subgroups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from huc_monitor._common.forms import Form
from huc_monitor.audit.inputs import CACHE_CELLS, block_spans
from huc_monitor.audit.scan import Groups
from huc_monitor.audit.sparse_rows import Rows, SparseRows
from huc_monitor.tree import LabelTree
from huc_monitor.utilities.program import Floats, Ints

LEAST_MASS = 0.01
_MOST_LEAVES = 2_000
_FEWEST = 3
_PART = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Unforeseen(Form):
    """How often a node happened where the model gave it less than 1 %.

    Attributes
    ----------
    name : str
        The node: a leaf, or a branch below which no single leaf explains it.
    n_seen, n_reference : int
        Rows with such a label in the newest windows and in the reference.
    predicted : float
        How many of the newest were predicted.
    n_rows, n_reference_rows : int
        All rows that gave it less than 1 %.
    """

    name: str
    n_seen: int
    predicted: float
    n_rows: int
    n_reference: int
    n_reference_rows: int

    def say(self, name: str) -> str:
        """Say it in a clause; ``name`` is the node's as the text shows it."""
        return (
            f"{self.n_seen:,} of {self.n_rows:,} rows in which {name} had a probability below "
            f"{100 * LEAST_MASS:g} % turned out to be {name} ({self.predicted:.2g} expected); in "
            f"the reference {self.n_reference:,} of {self.n_reference_rows:,}"
        )


@dataclass(frozen=True, slots=True)
class Rise:
    """A subgroup and node with more such labels than before; rates are per row of the sample."""

    subgroup: int
    counts: Unforeseen
    before: float
    after: float
    lower: float
    upper: float


def count_unforeseen(tree: LabelTree, probabilities: Rows, labels: Ints, groups: Groups) -> Floats:
    """Count rows, their mass and their labels where a node has less than 1 %.

    Returns
    -------
    (3, subgroups, leaves + branches) array, empty where rows are not counted
    """
    if tree.n_leaves > _MOST_LEAVES or groups.times.size or groups.repeats.size:
        return np.empty(0)
    n_nodes = tree.n_leaves + len(tree.branches)
    # Weights that are no subgroup's have no rows to count.
    members = np.array([(w if w.dtype == np.uint8 else 0.0 * w) for w in groups.weights], float)
    out = np.zeros((3, len(members), n_nodes))
    seen: list[tuple[Ints, Ints]] = []
    for lo, hi in block_spans(labels.size, n_nodes):
        counted = np.empty((2, hi - lo, n_nodes))
        for a, b in block_spans(hi - lo, n_nodes, CACHE_CELLS):
            rows = slice(lo + a, lo + b)
            part = probabilities
            dense = part.block(lo + a, lo + b) if isinstance(part, SparseRows) else part[rows]
            low, mass, happened = _below_least(tree, dense, labels[rows])
            counted[0, a:b], counted[1, a:b] = low, np.where(low, mass, 0.0)
            at, nodes = np.nonzero(happened)
            seen.append((at + lo + a, nodes))
        out[:2] += members[:, lo:hi] @ counted
    if not seen:
        return out
    at, nodes = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    for c, mine in enumerate(members):
        out[2, c] = _count(at, nodes, mine, groups.clusters, n_nodes)
    return out


def _below_least(tree: LabelTree, dense: Floats, labels: Ints) -> tuple[Any, Floats, Any]:
    """Say which nodes of every row have less than 1 %, their mass, and which of them happened."""
    start, stop = tree.label_slices(np.arange(tree.n_leaves + len(tree.branches)))
    sums = np.zeros((labels.size, tree.n_leaves + 1))
    np.cumsum(dense, axis=1, out=sums[:, 1:])
    mass = sums[:, stop] - sums[:, start]
    first, last = (end[:, None] for end in tree.label_slices(labels))
    under = (start <= first) & (last <= stop)
    # A label that stops above a node says nothing of it.
    low = (mass < LEAST_MASS) & (under | (stop <= first) | (last <= start))
    return low, mass, low & under


def _count(rows: Any, nodes: Any, mine: Floats, clusters: Ints, n_nodes: int) -> Floats:
    """Count the rows of a subgroup by node; of a cluster every node once."""
    chosen = mine[rows] > 0
    rows, nodes = rows[chosen], nodes[chosen]
    if clusters.size:
        nodes = np.unique(np.stack([clusters[rows], nodes]), axis=1)[1]
    counts: Floats = np.bincount(nodes, minlength=n_nodes).astype(np.float64)
    return counts


def find_rises(
    tree: LabelTree, before: tuple[Floats, float], after: tuple[Floats, float], error: float
) -> list[Rise]:
    """List subgroups and nodes with more such labels than before, by more than chance.

    Parameters
    ----------
    before, after : counts of `count_unforeseen`, and the number of rows
    error : float
        Probability that any bound fails.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["a", "b"])
    >>> old, new = np.zeros((2, 3, 1, 3))
    >>> old[0, 0, 1], new[0, 0, 1], new[2, 0, 1] = 3000, 1000, 20
    >>> [rise] = find_rises(tree, (old, 3000), (new, 1000), 0.001)
    >>> rise.counts.name, rise.counts.n_seen, rise.after, round(rise.lower, 4)
    ('b', 20, 0.02, 0.0067)
    """
    (old, n_old), (new, n_new) = before, after
    if not old.size or not new.size:
        return []
    known = np.arange(new.shape[2]) != tree.n_leaves  # everything lies under the root
    level = error / (2.0 * new.shape[1] * known.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        rows, mass = (new[k] / (new[k] + old[k]) for k in (0, 1))
    share = np.fmax(rows, mass)
    excess = (new[2] - new[1]) / n_new - np.maximum(old[2] - old[1], 0.0) / n_old
    suspects = np.argwhere((new[2] >= _FEWEST) & (excess > 0) & (share < 1) & known).tolist()
    if not suspects:
        return []
    from scipy.special import betaincinv  # takes as long as the check of a small window

    found = []
    for c, v in suspects:
        k, total, s = new[2, c, v], new[2, c, v] + old[2, c, v], share[c, v]
        q = betaincinv(k, total - k + 1.0, level)
        ratio = q / (1.0 - q) * (1.0 - s) / s
        if ratio <= 1.0:
            continue
        least = betaincinv(k, n_new - k + 1.0, level)
        most = 1.0 - betaincinv(max(n_new - k, 1e-9), k + 1.0, level)
        counts = Unforeseen(
            name=[*tree.leaves, *tree.branches][v],
            n_seen=int(k),
            predicted=float(new[1, c, v]),
            n_rows=int(new[0, c, v]),
            n_reference=int(old[2, c, v]),
            n_reference_rows=int(old[0, c, v]),
        )
        rates = float(old[2, c, v] / n_old), float(k / n_new)
        found.append(Rise(c, counts, *rates, float(least * (1.0 - 1.0 / ratio)), float(most)))
    return _lowest(tree, found)


def _lowest(tree: LabelTree, found: Sequence[Rise]) -> list[Rise]:
    """Leave out a node of which one below explains half of the rise."""
    kept = []
    for rise in found:
        below = [
            other.after - other.before
            for other in found
            if other.subgroup == rise.subgroup
            and rise.counts.name in tree.ancestors(other.counts.name)
        ]
        if max(below, default=0.0) < _PART * (rise.after - rise.before):
            kept.append(rise)
    return kept
