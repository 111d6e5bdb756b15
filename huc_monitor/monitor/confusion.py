"""Which children of a branch are mistaken for each other, in a window and in the reference.

Of the rows whose label lies under a branch, those in which child j was the likeliest make up line j
of a table of pairs: how often child k happened there, and how often it was predicted. Children that
are swapped for each other have the right shares in sum; the table tells them apart.

A pair is called new when chance does not explain that it is more frequent than in the reference:
by Fisher's exact test, one-sided, for all pairs of children of all branches and subgroups together
(Bonferroni), so that it does not matter that the pair was chosen by the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from huc_monitor._common.safe_text import chat
from huc_monitor.audit.sparse_rows import Rows, column_sums
from huc_monitor.monitor.drift import children
from huc_monitor.tree import LabelTree
from huc_monitor.utilities.program import Floats, Ints

LEAST_SHARE = 0.01
_ENOUGH = 10  # rows of the reference that make a share
_MOST_CELLS = 20_000
_MOST_LEAVES = 2_000
Cells = tuple["Floats", "Floats"]


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Per likeliest child (line) and child that happened (column): rows, and predicted mass."""

    counts: Floats
    mass: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """What happened where a child was the likeliest: another one more often than it should.

    Where the likeliest itself happened too often, and no other child did as much, ``instead`` is
    that child too.

    Attributes
    ----------
    node, likeliest, instead : str
        The branch and two of its children.
    n : int
        Rows with a label under the branch in which `likeliest` was the likeliest child.
    predicted, seen : float
        Shares of `likeliest` in them.
    instead_predicted, instead_seen : float
        Shares of `instead` in them.
    reference_seen : float or None
        Share of `instead` in such rows of the reference; None where it has too few of them.
    is_new : bool
        It is more frequent than in the reference by more than chance.
    """

    node: str
    likeliest: str
    instead: str
    n: int
    predicted: float
    seen: float
    instead_predicted: float
    instead_seen: float
    reference_seen: float | None = None
    is_new: bool = False

    def __str__(self) -> str:
        """Say it in a sentence; names are marked by asterisks."""
        then = ""
        if self.reference_seen is not None:
            new = ", so it is new by more than chance" if self.is_new else ""
            then = f"; in the reference {self.reference_seen:.1%}{new}"
        head = f"Of {self.n:,} rows of any predicted utility in which *{chat(self.likeliest)}* was "
        head += f"the likeliest under *{chat(self.node)}*, it was "
        if self.instead == self.likeliest:
            return f"{head}seen in {self.seen:.1%} (predicted {self.predicted:.1%}{then})."
        return (
            f"{head}predicted in {self.predicted:.1%} and seen in "
            f"{self.seen:.1%}; *{chat(self.instead)}* happened in {self.instead_seen:.1%} "
            f"(predicted {self.instead_predicted:.1%}{then})."
        )


def count_pairs(tree: LabelTree, branch: int, probabilities: Rows, labels: Ints) -> Pairs:
    """Count likeliest against seen children among the rows with a label under a branch."""
    _, line, code, mass = _under(tree, branch, probabilities, labels)
    k = mass.shape[1]
    total = mass.sum(axis=1, keepdims=True)
    predicted = np.zeros((k, k))
    np.add.at(predicted, line, mass / np.where(total > 0, total, 1.0))
    return Pairs(_table(line, code, k), predicted)


def _under(
    tree: LabelTree, branch: int, probabilities: Rows, labels: Ints
) -> tuple[Ints, Ints, Ints, Floats]:
    """Rows with a label under a branch: likeliest child, child that happened, children's mass."""
    _, slices = children(tree, branch)
    starts = np.array([one.start for one in slices])  # leaves of siblings follow each other
    stops = np.array([one.stop for one in slices])
    start, stop = tree.label_slices(labels)  # a label may be an inner node
    child = np.searchsorted(starts, start, side="right") - 1
    rows = np.flatnonzero((child >= 0) & (stop <= stops[child]))
    mass = column_sums(probabilities[rows], slices)
    return rows, mass.argmax(axis=1), child[rows], mass


def _table(line: Ints, code: Ints, k: int) -> Floats:
    return np.bincount(line * k + code, minlength=k * k).reshape(k, k).astype(np.float64)


def find_confusion(
    tree: LabelTree,
    branch: int,
    pairs: Pairs,
    *,
    reference: Floats | None = None,
    changed: bool = False,
    least_p: float = 0.0,
) -> Confusion | None:
    """Find the pair of children that most rows speak of; None where it is under 1 % of them.

    Parameters
    ----------
    tree, branch
    pairs : Pairs
        Of the window, among the rows of one subgroup.
    reference : (K, K) array, optional
        Counts of the reference.
    changed : bool, default False
        Look for what is more frequent than in the reference; otherwise, than predicted.
    least_p : float, default 0
        A pair with a smaller p-value is new.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["a", "b"])
    >>> p = np.repeat([[0.9, 0.1], [0.1, 0.9]], 10, axis=0)
    >>> found = find_confusion(tree, 0, count_pairs(tree, 0, p, np.arange(20) % 2))
    >>> found.likeliest, found.instead, found.instead_predicted, found.instead_seen
    ('a', 'b', 0.1, 0.5)
    """
    names, _ = children(tree, branch)
    n = pairs.counts.sum(axis=1)
    if not n.sum():
        return None
    rows = np.where(n > 0, n, 1.0)[:, None]
    seen, predicted = pairs.counts / rows, pairs.mass / rows
    known = np.zeros(len(names)) if reference is None else reference.sum(axis=1)
    then = np.zeros_like(seen) if reference is None else reference / np.maximum(known, 1.0)[:, None]
    usual = np.where(changed & (known >= _ENOUGH)[:, None], then, predicted)
    excess = n[:, None] * (seen - usual)
    j, k = np.unravel_index(int(np.argmax(excess)), excess.shape)
    if excess[j, k] < LEAST_SHARE * n.sum():
        return None
    before, is_new = None, False
    if reference is not None and known[j] >= _ENOUGH:
        before = float(then[j, k])
        is_new = _p_value(pairs.counts[j, k], n[j], reference[j, k], known[j]) <= least_p
    return Confusion(
        node=tree.branches[branch],
        likeliest=names[j],
        instead=names[k],
        n=int(n[j]),
        predicted=float(predicted[j, j]),
        seen=float(seen[j, j]),
        instead_predicted=float(predicted[j, k]),
        instead_seen=float(seen[j, k]),
        reference_seen=before,
        is_new=is_new,
    )


def _p_value(now: float, n_now: float, before: float, n_before: float) -> float:
    """Probability of so many of them now, given how many there are in both (Fisher)."""
    # By hand: importing `scipy.stats` takes longer than all the rest of a small check.
    these = now + before
    first = _choose(these, now) + _choose(n_now + n_before - these, n_now - now)
    first -= _choose(n_now + n_before, n_now)
    k = np.arange(now, min(n_now, these))
    grows = np.log((these - k) * (n_now - k)) - np.log((k + 1) * (n_before - these + k + 1))
    return min(1.0, float(np.exp(first + np.cumsum([0.0, *grows])).sum()))


def _choose(n: float, k: float) -> float:
    """Logarithm of the number of ways to choose k of n."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def n_pairs(tree: LabelTree, n_subgroups: int) -> int:
    """Count the pairs of different children of all branches, in all subgroups."""
    sizes = [len(children(tree, branch)[0]) for branch in range(len(tree.branches))]
    return n_subgroups * sum(size * (size - 1) for size in sizes)


def keep_pairs(
    tree: LabelTree,
    probabilities: Rows,
    labels: Ints,
    members: Mapping[str, np.ndarray[tuple[int], np.dtype[np.bool_]]],
) -> dict[str, Cells]:
    """Count the pairs of every subgroup and branch: cells that are not empty, and their counts.

    Of many subgroups the first are kept, the whole population before all: 20,000 cells at most. Of
    a tree of more than 2,000 leaves nothing is kept.
    """
    if tree.n_leaves > _MOST_LEAVES:
        return {}
    names = sorted(members, key=lambda name: name != "all")
    tables: dict[str, list[Floats]] = {name: [] for name in names}
    for branch in range(len(tree.branches)):
        rows, line, code, mass = _under(tree, branch, probabilities, labels)
        for name in names:
            mine = members[name][rows]
            tables[name].append(_table(line[mine], code[mine], mass.shape[1]).ravel())
    found: dict[str, Cells] = {}
    n_cells = 0
    for name in names:
        counts = np.concatenate(tables[name])
        cells = np.flatnonzero(counts)
        n_cells += cells.size
        if n_cells > _MOST_CELLS:
            break
        found[name] = cells.astype(np.float64), counts[cells]
    return found


def kept_pairs(tree: LabelTree, branch: int, kept: Sequence[Floats] | None) -> Floats | None:
    """Return one branch's counts out of what `keep_pairs` kept of a subgroup."""
    if kept is None:
        return None
    cells, counts = kept
    sizes = [len(children(tree, other)[0]) ** 2 for other in range(branch + 1)]
    start, k = sum(sizes[:-1]), len(children(tree, branch)[0])
    table = np.zeros(k * k)
    mine = (cells >= start) & (cells < start + k * k)
    table[cells[mine].astype(np.int64) - start] = counts[mine]
    return table.reshape(k, k)
