"""What rows mean: probabilities in the order of the tree, labels as codes, and what is unusable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from huc_monitor._common.times import Span, from_column
from huc_monitor.audit.clusters import check_clusters
from huc_monitor.audit.inputs import rounding_slack
from huc_monitor.errors import InvalidInputError
from huc_monitor.sources._data import N_EXAMPLES, BadRow
from huc_monitor.sources._table import Chunk, ColumnKind, as_matrix, as_numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from huc_monitor.sources._spec import Columns
    from huc_monitor.tree import LabelTree

LEAF: Final = "{leaf}"
SUM_TOLERANCE: Final = 1e-6
# A little less than the audit allows: it may add the numbers in another order.
_LEFT_ALONE: Final = 0.99 * SUM_TOLERANCE

# Types of four bytes and two, in the words of DuckDB and pandas.
_SHORT: Final = {"FLOAT": "f4", "float32": "f4", "float16": "f2"}
NO_CLUSTER: Final = "no cluster"
BAD_LABEL_PROBABILITY: Final = "label probability not in (0, 1]"
DESIGN_PROBLEMS: Final = (NO_CLUSTER, BAD_LABEL_PROBABILITY)
UNKNOWN_LABEL: Final = "unknown label"
BAD_PROBABILITIES: Final = "bad probabilities"


@dataclass(frozen=True, slots=True, eq=False)
class ProbabilityColumns:
    """Where the probabilities are, for one tree.

    Attributes
    ----------
    names : tuple of str
        One column per leaf in the order of ``tree.leaves``, or the one column of lists.
    positions : array of int or None
        For lists: the position of each leaf in the list; None for one column per leaf.
    """

    names: tuple[str, ...]
    positions: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        tree: LabelTree,
        *,
        template: str | Mapping[str, str] | None,
        list_column: str | None,
        classes: Sequence[str] | None,
    ) -> ProbabilityColumns:
        """Find the columns from what the user says about them."""
        if list_column is not None:
            order = tuple(tree.leaves if classes is None else classes)
            if sorted(order) != sorted(tree.leaves):
                odd = sorted(set(order) ^ set(tree.leaves)) or sorted(order)
                msg = (
                    f"`classes` must name every leaf of the tree once, in the order of the list; "
                    f"got {len(order)} names for {tree.n_leaves} leaves, {odd[0]!r} among the "
                    "differences. Write the model's classes, or update the tree."
                )
                raise InvalidInputError(msg)
            place = {leaf: i for i, leaf in enumerate(order)}
            positions = np.array([place[leaf] for leaf in tree.leaves], dtype=np.int64)
            return cls((list_column,), positions)
        if isinstance(template, Mapping):
            missing = [leaf for leaf in tree.leaves if leaf not in template]
            unknown = [name for name in template if name not in tree.leaves]
            if missing or unknown:
                what = f"misses {missing[0]!r}" if missing else f"has {unknown[0]!r}"
                msg = (
                    f"`probabilities` must map every leaf of the tree to a column, and nothing "
                    f"else; it {what}. Leaves: {', '.join(map(repr, tree.leaves[:8]))}"
                    f"{', ...' if tree.n_leaves > 8 else ''}."
                )
                raise InvalidInputError(msg)
            return cls(tuple(template[leaf] for leaf in tree.leaves))
        if not isinstance(template, str) or LEAF not in template:
            msg = (
                f"`probabilities` must be a pattern with {LEAF} in it, such as 'p_{LEAF}'; "
                f"got {template!r}."
            )
            raise InvalidInputError(msg)
        return cls(tuple(template.replace(LEAF, leaf) for leaf in tree.leaves))

    @property
    def kinds(self) -> dict[str, ColumnKind]:
        """What to ask a table for."""
        kind: ColumnKind = "number" if self.positions is None else "numbers"
        return dict.fromkeys(self.names, kind)

    def read(self, chunk: Chunk) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
        """Return the matrix in the order of the tree, and for lists the length of each."""
        if self.positions is None:
            # A column is written, and checks add up rows, in one sweep each this way round.
            matrix = np.empty((len(self.names), len(chunk))).T
            for k, name in enumerate(self.names):
                if name in chunk.arrays:
                    matrix[:, k] = chunk.arrays[name].to_numpy(zero_copy_only=False)
                else:
                    matrix[:, k] = as_numbers(chunk.frame[name])
            return matrix, None
        name, width = self.names[0], len(self.positions)
        values = chunk.arrays[name] if name in chunk.arrays else chunk.frame[name]
        matrix, lengths = as_matrix(values, width)
        in_order = (self.positions == np.arange(width)).all()
        return (matrix if in_order else matrix[:, self.positions]), lengths


def find_patterns(names: Collection[str], tree: LabelTree) -> list[str]:
    """Return the patterns by which columns are called like the leaves, simplest first.

    Examples
    --------
    >>> from huc_monitor.tree import LabelTree
    >>> find_patterns(["id", "p_a", "p_b"], LabelTree.flat(["a", "b"]))
    ['p_{leaf}']
    """
    there, found = set(names), set()
    first = max(tree.leaves, key=len)
    for name in names:
        for at in (match.start() for match in re.finditer(re.escape(first), name)):
            around = name[:at], name[at + len(first) :]
            if all(f"{around[0]}{leaf}{around[1]}" in there for leaf in tree.leaves):
                found.add(around)
    ordered = sorted(found, key=lambda around: (len(around[0]) + len(around[1]), around))
    return [f"{before}{LEAF}{after}" for before, after in ordered]


def rounding_of(kinds: Sequence[str], n_leaves: int) -> float:
    """Return how far rows of columns of these types may miss 1 by rounding alone."""
    short = {_SHORT.get(kind.partition("[")[0]) for kind in kinds}
    found = [rounding_slack(np.dtype(kind), n_leaves) for kind in short if kind is not None]
    return max(found) if len(found) == len(short) else 0.0


def explain_missing(
    types: Mapping[str, str], tree: LabelTree, template: str, found: Sequence[str]
) -> str:
    """Say how many columns follow a pattern, or the likeliest one, and which leaves have none.

    `found` are the patterns that fit all leaves.
    """
    if template == LEAF and found:
        return f"several patterns fit: {', '.join(found)}. Say which."
    patterns = {template}
    if template == LEAF:
        for leaf in tree.leaves:
            for name in (name for name in types if leaf in name):
                at = name.index(leaf)
                patterns.add(f"{name[:at]}{LEAF}{name[at + len(leaf) :]}")

    def missing(pattern: str) -> list[str]:
        return [leaf for leaf in tree.leaves if pattern.replace(LEAF, leaf) not in types]

    best = min(patterns, key=lambda pattern: (len(missing(pattern)), len(pattern), pattern))
    gone = missing(best)
    shown = ", ".join(gone[:5]) + (f" and {len(gone) - 5} more" if len(gone) > 5 else "")
    text = (
        f"{tree.n_leaves - len(gone)} of {tree.n_leaves} columns match `{best}`; missing: {shown}."
    )
    lists = [name for name, kind in types.items() if kind.endswith("]")]
    if found:
        text += f" All leaves have a column by `{found[0]}`."
    elif lists and len(gone) == tree.n_leaves:
        text += f" The column {lists[0]!r} holds lists: name it if it is them."
    return text


def check_rows(matrix: NDArray[np.float64], sum_tolerance: float) -> NDArray[np.bool_]:
    """Say which rows are distributions; those off by rounding are rescaled in place."""
    with np.errstate(invalid="ignore"):
        total = matrix.sum(axis=1)
        off = np.abs(total - 1.0)
        good = (matrix >= 0).all(axis=1) & (off <= max(sum_tolerance, SUM_TOLERANCE))
    rescale = np.flatnonzero(good & (off > _LEFT_ALONE))
    if len(rescale):
        matrix[rescale] /= total[rescale, None]
    return np.asarray(good)


def add_design(
    kept: pd.DataFrame, frame: pd.DataFrame, given: Columns, *, with_labels: bool
) -> NDArray[Any]:
    """Add the key of every row's cluster and its label probability; return what is wrong, or ""."""
    problem = np.full(len(frame), "", dtype=object)
    if given.cluster_block is not None:
        length = Span.parse(given.cluster_block).nominal
        blocks = kept["time"].to_numpy().astype("datetime64[us]").astype(np.int64)
        kept["cluster"] = check_clusters(
            blocks // (length // timedelta(microseconds=1)), len(frame)
        )
    elif given.cluster is not None:
        values = frame[given.cluster]
        lacking = values.isna().to_numpy()
        problem[lacking] = NO_CLUSTER
        kept["cluster"] = check_clusters(values.astype(object).mask(lacking, ""), len(frame))
    if with_labels and given.label_probability is not None:
        found = as_numbers(frame[given.label_probability])
        problem[~((found > 0) & (found <= 1))] = BAD_LABEL_PROBABILITY
        kept["label probability"] = found
    return problem


def why_bad(row: NDArray[np.float64], names: Sequence[str], length: int | None) -> str:
    """Say in words why a row of probabilities is unusable."""
    if length is not None and length != len(row):
        found = "none" if length < 0 else f"{length}"
        return f"{BAD_PROBABILITIES}: expected a list of {len(row)} numbers, got {found}"
    for name, value in zip(names, row, strict=True):
        if not np.isfinite(value) or value < 0:
            return f"{BAD_PROBABILITIES}: {value:g} for {name!r}"
    return f"{BAD_PROBABILITIES}: they sum to {row.sum():.6g}"


@dataclass(slots=True, eq=False)
class Quarantine:
    """Rows set aside: how many for which reason, and the first few of them."""

    reasons: dict[str, int] = field(default_factory=dict)
    examples: list[BadRow] = field(default_factory=list)

    @property
    def n(self) -> int:
        """Number of rows set aside."""
        return sum(self.reasons.values())

    def add(self, reason: str, n: int) -> None:
        """Count `n` rows for a reason."""
        if n:
            self.reasons[reason] = self.reasons.get(reason, 0) + n

    def show(self, row_id: Any, time: np.datetime64, reason: str) -> None:
        """Keep a row as an example, if there is room."""
        if len(self.examples) < N_EXAMPLES:
            plain = row_id.item() if isinstance(row_id, np.generic) else row_id
            moment = None if np.isnat(time) else from_column(time)
            self.examples.append(BadRow(plain, moment, reason))

    @property
    def has_room(self) -> bool:
        """Whether another example would be kept."""
        return len(self.examples) < N_EXAMPLES
