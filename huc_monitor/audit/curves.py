"""Realised against predicted utility along the score axis: what a picture of a candidate needs.

A curve is a summary of rows, small enough to keep with a window's record; the rows are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from huc_monitor._common.forms import Form
from huc_monitor.audit.decomposition import UtilityRows
from huc_monitor.audit.result import Candidate
from huc_monitor.audit.scan import Groups
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean
from huc_monitor.subgroups import Subgroups
from huc_monitor.utilities.program import Floats, Ints

SCHEMA_VERSION = 1
_COLUMNS = ("predicted", "realised", "by_node", "realised_error", "by_node_error", "rows")


@dataclass(frozen=True, slots=True)
class ReliabilityCurve(Form):
    """Mean realised utility by predicted utility, for one candidate.

    Attributes
    ----------
    utility, subgroup, node : str
    predicted, realised : tuple of float
        Means per bin of predicted utility. Bins hold about equally many rows, never split equal
        scores, and begin and end with the candidate's interval.
    by_node : tuple of float
        Predicted utility plus the node's mean contribution: what would be realised if every other
        branch were right.
    realised_error, by_node_error : tuple of float
        Standard errors of the two means, one bin at a time. They are for the eye: the audit's
        bounds, which hold for all intervals together, are wider.
    rows : tuple of float
        Rows per bin, counted with their weights.
    score, running : tuple of float
        The node's contributions summed up to and including a score, divided by the rows of the
        window. Between two scores the curve rises by the moment of that interval.

    Examples
    --------
    See :func:`reliability_curve`.
    """

    utility: str
    subgroup: str
    node: str
    predicted: tuple[float, ...]
    realised: tuple[float, ...]
    by_node: tuple[float, ...]
    realised_error: tuple[float, ...]
    by_node_error: tuple[float, ...]
    rows: tuple[float, ...]
    score: tuple[float, ...]
    running: tuple[float, ...]

    schema: ClassVar[int | None] = SCHEMA_VERSION

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, name)) for name in _COLUMNS}
        if len(lengths) != 1 or len(self.score) != len(self.running):
            msg = "`ReliabilityCurve` must have columns of equal length; got different ones."
            raise InvalidInputError(msg)

    def __repr__(self) -> str:
        return (
            f"ReliabilityCurve({self.node!r}, subgroup={self.subgroup!r}, "
            f"utility={self.utility!r}, bins={len(self.rows)})"
        )


def reliability_curve(
    rows: Sequence[UtilityRows],
    groups: Groups,
    candidate: Candidate,
    *,
    subgroups: Subgroups,
    n_bins: int = 20,
    n_steps: int = 200,
) -> ReliabilityCurve:
    """Summarise realised against predicted utility of one candidate.

    Parameters
    ----------
    rows : list of UtilityRows
        Labelled rows, as :func:`huc_monitor.decompose` gives them; the candidate's utility is
        among them.
    groups : Groups
        Subgroup weights of the same rows.
    candidate : Candidate
        Usually ``result.worst``.
    subgroups : Subgroups
        Whose names the order of `groups` follows.
    n_bins, n_steps : int
        About how many points the two curves have.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> from huc_monitor.audit.scan import Groups
    >>> tree = hm.LabelTree.from_nested({"left": ["a", "b"], "right": ["c", "d"]})
    >>> pay, whole = hm.Payoff("pay", {"a": -1, "b": 1, "c": 1, "d": 1}), hm.Subgroups.whole()
    >>> log = [[0.25] * 4] * 8, list("aacccddd")
    >>> worst = hm.audit(*log, tree=tree, utilities=[pay], bounds=None).worst
    >>> groups = Groups.of(whole.weights(None, 8), None)
    >>> rows = hm.decompose(*log, tree=tree, utilities=[pay])
    >>> curve = reliability_curve(rows, groups, worst, subgroups=whole)
    >>> curve.predicted, curve.realised, curve.by_node  # the other branch cancels this one
    ((0.5,), (0.5,), (0.75,))
    """
    mine = _of_utility(rows, candidate.utility)
    weights = groups.weights[_place(candidate.subgroup, subgroups.names, "subgroup")]
    weights = np.asarray(weights, dtype=np.float64)
    if groups.repeats.size:
        weights = weights * groups.repeats
    chosen = np.flatnonzero(weights)
    chosen = chosen[np.argsort(mine.scores[chosen], kind="stable")]
    slot = _slot_of(mine, candidate.node)
    data = _Sorted(
        scores=mine.scores[chosen],
        weights=weights[chosen],
        residual=_path_sum(mine, chosen),
        by_node=_path_sum(mine, chosen, slot),
    )
    return ReliabilityCurve(
        candidate.utility,
        candidate.subgroup,
        candidate.node,
        *_bins(data, candidate, n_bins),
        *_running(data, candidate, n_steps, groups.mass),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Sorted:
    scores: Floats
    weights: Floats
    residual: Floats
    by_node: Floats

    def ends(self) -> Ints:
        """Where each block of equal scores ends, from 0 to n."""
        last = np.flatnonzero(np.diff(self.scores)) + 1
        return np.concatenate([[0], last, [self.scores.size]]).astype(np.int64)


def _of_utility(rows: Sequence[UtilityRows], name: str) -> UtilityRows:
    return rows[_place(name, tuple(item.utility.name for item in rows), "utility")]


def _place(name: str, names: tuple[str, ...], argument: str) -> int:
    if name not in names:
        msg = f"`candidate` must have a known {argument}; got {name!r}. {did_you_mean(name, names)}"
        raise UnknownNameError(msg)
    return names.index(name)


def _slot_of(rows: UtilityRows, node: str) -> int:
    names = tuple(rows.tree.branches[v] for v in rows.relevant)
    return _place(node, names, "node")


def _path_sum(rows: UtilityRows, chosen: Ints, slot: int | None = None) -> Floats:
    """Sum contributions along the realised path: of all branches, or of one slot."""
    of_row = rows.path_slots[rows.labels[chosen]]
    wanted = of_row < rows.relevant.size if slot is None else of_row == slot
    total: Floats = np.where(wanted, rows.contributions[chosen], 0.0).sum(axis=1)
    return total


def _bins(data: _Sorted, candidate: Candidate, n_bins: int) -> list[tuple[float, ...]]:
    """Cut into bins of about equal size at block ends and at the interval's ends."""
    n = data.scores.size
    if n == 0:
        return [()] * len(_COLUMNS)
    ends = data.ends()
    wanted = np.linspace(0, n, n_bins + 1)
    cuts = ends[np.minimum(np.searchsorted(ends, wanted), ends.size - 1)]
    if not np.isnan(candidate.interval_low):
        first = np.searchsorted(data.scores, candidate.interval_low, side="left")
        last = np.searchsorted(data.scores, candidate.interval_high, side="right")
        keep = (np.abs(cuts - first) > n / n_bins / 4) & (np.abs(cuts - last) > n / n_bins / 4)
        cuts = np.concatenate([cuts[keep], [0, first, last, n]])
    cuts = np.unique(cuts)
    size = np.abs(data.weights)
    rows = np.add.reduceat(size, cuts[:-1])
    predicted = np.add.reduceat(size * data.scores, cuts[:-1]) / rows
    out = [predicted]
    errors = []
    for gap in (data.residual, data.by_node):
        mean = np.add.reduceat(data.weights * gap, cuts[:-1]) / rows
        square = np.add.reduceat(size * gap**2, cuts[:-1]) / rows
        out.append(predicted + mean)
        errors.append(np.sqrt(np.maximum(0.0, square - mean**2) / rows))
    return [tuple(column.tolist()) for column in (*out, *errors, rows)]


def _running(
    data: _Sorted, candidate: Candidate, n_steps: int, total: float
) -> list[tuple[float, ...]]:
    """Sample the running sum at block ends, its extremes and the interval's ends among them."""
    if data.scores.size == 0:
        return [(), ()]
    ends = data.ends()[1:]
    running = np.cumsum(data.weights * data.by_node) / total
    picked = np.linspace(0, ends.size - 1, min(n_steps, ends.size)).round().astype(np.int64)
    chosen = ends[picked] - 1
    if not np.isnan(candidate.interval_low):
        first = np.searchsorted(data.scores, candidate.interval_low, side="left")
        last = np.searchsorted(data.scores, candidate.interval_high, side="right")
        chosen = np.concatenate([chosen, [max(first - 1, 0), last - 1]])
    chosen = np.unique(chosen)
    return [tuple(data.scores[chosen].tolist()), tuple(running[chosen].tolist())]
