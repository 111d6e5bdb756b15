"""Rows to look at: read from the log when a person asks, those that cost a branch most first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from huc_monitor._common.times import from_column, get_zone
from huc_monitor.audit.decomposition import iter_decomposed
from huc_monitor.audit.inputs import Predictions
from huc_monitor.audit.sparse_rows import as_dense
from huc_monitor.errors import HUCError
from huc_monitor.monitor import MonitorState
from huc_monitor.monitor.confusion import count_pairs
from huc_monitor.reporting._model import CandidateView, Report
from huc_monitor.reporting._words import signed
from huc_monitor.reporting.ui._fleet import Seat, Watched
from huc_monitor.sources import WindowData
from huc_monitor.subgroups import Subgroups

_MOST_ROWS = 25
_MOST_COLUMNS = 8
_MOST_CHILDREN = 30
_SCORE, _SHARE = "predicted utility", "branch's share of the gap"


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """What the log says of one branch; `trouble` says why it could not be read.

    Attributes
    ----------
    about : CandidateView or None
        Whom and what the rows are chosen by.
    columns, rows
        Time, id, label, likeliest class, score, contribution and features of each row.
    children : tuple of str
    counts : tuple of tuple of float
        Rows in which a child (line) was the likeliest and another one (column) happened.
    n : int
        Rows of the window that are in the subgroup and the range.
    """

    about: CandidateView | None = None
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    children: tuple[str, ...] = ()
    counts: tuple[tuple[float, ...], ...] = ()
    n: int = 0
    sampled: bool = False
    trouble: str = ""

    @property
    def heads(self) -> list[tuple[str, str]]:
        """Titles and kinds of the columns of the rows."""
        kinds = {_SCORE: "num", _SHARE: "num"} | dict.fromkeys(self.columns[:1], "date")
        return [(name, kinds.get(name, "")) for name in self.columns]

    @property
    def child_heads(self) -> list[tuple[str, str]]:
        """Titles and kinds of the columns of the counts."""
        return [(name, "num") for name in self.children]


def look_at_rows(seat: Seat, state: MonitorState, report: Report, node: str) -> Looked:
    """Read the window that is shown, and choose rows of a branch's worst candidate."""
    window = report.latest
    found = [] if window is None else [*window.ranked(node)]
    if window is None or not found:
        return Looked(trouble="Nothing was audited here.")
    record = next(r for r in reversed(seat.records(window.ordinal, 1)) if r.audit is not None)
    watched = seat.watched
    told = next((one for one in report.findings if one.node == node), None)
    lead = None if told is None else window.find(node, told.subgroups[0], told.utilities[0])
    try:
        data = watched.monitor().source.labelled(record.start, record.end)
        return _choose(watched, state, data, node, lead or found[0])
    except (HUCError, OSError) as error:
        return Looked(trouble=f"The log cannot be read: {error}")


def _choose(
    watched: Watched, state: MonitorState, data: WindowData, node: str, about: CandidateView
) -> Looked:
    tree = watched.tree
    utility = next(one for one in watched.actions.utilities if one.name == about.utility)
    predictions = Predictions.of(data.probabilities)
    found = next(iter_decomposed([utility], predictions, data.labels, tree=tree))
    shares = np.zeros(data.n)
    slot = found.relevant.tolist().index(tree.branches.index(node))
    mine, values = found.by_branch()[slot]
    shares[mine] = values
    groups = Subgroups.whole() if state.subgroups is None else Subgroups.from_dict(state.subgroups)
    weights = dict(zip(groups.names, groups.weights(data.features, data.n), strict=True))
    members = np.asarray(weights[about.subgroup], dtype=np.float64) > 0
    chosen = members.copy()
    if about.low is not None and about.high is not None:
        slack = 1e-9
        chosen &= (found.scores >= about.low - slack) & (found.scores <= about.high + slack)
    size = np.where(chosen, shares * np.sign(about.moment), -np.inf)
    top = np.argsort(-size, kind="stable")[:_MOST_ROWS]
    top = top[size[top] > 0]
    features = list(data.features.columns)[:_MOST_COLUMNS]
    likeliest = as_dense(data.probabilities[top]).argmax(axis=1)
    names = (*tree.leaves, *tree.branches)
    zone = get_zone(watched.actions.zone)
    rows = tuple(
        (
            f"{from_column(data.times[i]).astimezone(zone):%Y-%m-%d %H:%M:%S}",
            "" if data.ids is None else str(data.ids[i]),
            names[int(data.labels[i])],
            tree.leaves[int(best)],
            f"{found.scores[i]:.3f}",
            signed(float(shares[i])),
            *(str(data.features[name].iloc[i]) for name in features),
        )
        for i, best in zip(top, likeliest, strict=True)
    )
    children = tree.children(node)
    counts: tuple[tuple[float, ...], ...] = ()
    if len(children) <= _MOST_CHILDREN:
        inside = np.flatnonzero(members)
        branch = tree.branches.index(node)
        pairs = count_pairs(tree, branch, data.probabilities[inside], data.labels[inside])
        counts = tuple(map(tuple, pairs.counts.tolist()))
    return Looked(
        about,
        (f"time ({zone})", "id", "label", "likeliest", _SCORE, _SHARE, *features),
        rows,
        children,
        counts,
        int(chosen.sum()),
        data.sampled_from is not None,
    )
