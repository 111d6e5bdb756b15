"""What rows mean: probabilities in the order of the tree, labels as codes, and what is unusable."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from huc_monitor._common.frames import as_numbers
from huc_monitor._common.safe_text import quoted
from huc_monitor._common.times import Span, from_column
from huc_monitor.audit.clusters import check_clusters
from huc_monitor.audit.forms.reader import PredictionReader, ReadRows
from huc_monitor.audit.forms.spec import LEAF
from huc_monitor.audit.inputs import rounding_slack
from huc_monitor.errors import other_spelling
from huc_monitor.sources._data import N_EXAMPLES, BadRow
from huc_monitor.sources._keys import hash_keys
from huc_monitor.sources._table import Chunk, ColumnKind
from huc_monitor.tree import LabelTree

if TYPE_CHECKING:
    import pandas as pd

    from huc_monitor.sources._spec import Columns


# Types of four bytes and two, in the words of DuckDB and pandas.
_SHORT: Final = {"FLOAT": "f4", "float32": "f4", "float16": "f2", "float>": "f4"}
_NAMES: Final = re.compile(r"(VARCHAR|BIGINT|INTEGER)\[\]|array<(string|bigint|int)>")
NO_CLUSTER: Final = "no cluster"
BAD_LABEL_PROBABILITY: Final = "label probability not in (0, 1]"
BAD_LABEL_TIME: Final = "label time that cannot be read"
DESIGN_PROBLEMS: Final = (NO_CLUSTER, BAD_LABEL_PROBABILITY, BAD_LABEL_TIME)
UNKNOWN_LABEL: Final = "unknown label"
_MAPPING: Final = "`source.label_mapping` (--label-mapping of commands that take a file)"
SPELLED_OTHERWISE: Final = (
    f"Only the spelling differs: write labels as the tree does, or map them with {_MAPPING}."
)
_MOST_NAMED: Final = 3


def column_kinds(reader: PredictionReader) -> dict[str, ColumnKind]:
    """Return what to ask a table for."""
    if reader.is_wide:
        return dict.fromkeys(reader.names, "number")
    first: ColumnKind = "numbers" if reader.given.form == "list" else "nested"
    return {reader.names[0]: first} | dict.fromkeys(reader.names[1:], "nested")


def read_chunk(reader: PredictionReader, chunk: Chunk) -> ReadRows:
    """Read the predictions of some rows of a table."""

    def column(name: str) -> Any:
        if name not in chunk.arrays:
            values = chunk.frame[name]
            return as_numbers(values) if reader.is_wide else values
        found = chunk.arrays[name]
        return found.to_numpy(zero_copy_only=False) if reader.is_wide else found

    return reader.read(column, len(chunk))


def find_patterns(
    names: Collection[str], tree: LabelTree, entries: Sequence[str] | None = None
) -> list[str]:
    """Return the patterns by which columns are called like the leaves, simplest first.

    `entries` are called like instead, where given.

    Examples
    --------
    >>> from huc_monitor.tree import LabelTree
    >>> find_patterns(["id", "p_a", "p_b"], LabelTree.flat(["a", "b"]))
    ['p_{leaf}']
    """
    there, found = set(names), set()
    wanted = tree.leaves if entries is None else entries
    first = max(wanted, key=len)
    for name in names:
        for at in (match.start() for match in re.finditer(re.escape(first), name)):
            around = name[:at], name[at + len(first) :]
            if all(f"{around[0]}{leaf}{around[1]}" in there for leaf in wanted):
                found.add(around)
    ordered = sorted(found, key=lambda around: (len(around[0]) + len(around[1]), around))
    return [f"{before}{LEAF}{after}" for before, after in ordered]


def rounding_of(kinds: Sequence[str], n_leaves: int) -> float:
    """Return how far rows of columns of these types may miss 1 by rounding alone.

    Examples
    --------
    >>> rounding_of(["MAP(VARCHAR, FLOAT)"], 10) > 0, rounding_of(["DOUBLE[]", "VARCHAR[]"], 10)
    (True, 0.0)
    """
    numbers = [kind for kind in kinds if not _NAMES.fullmatch(kind)]
    short = {next((f for word, f in _SHORT.items() if word in kind), None) for kind in numbers}
    found = [rounding_slack(np.dtype(kind), n_leaves) for kind in short if kind is not None]
    return max(found, default=0.0) if len(found) == len(short) else 0.0


def say_unknown(found: Mapping[str, int], tree: LabelTree) -> str | None:
    """Say which labels are no node of the tree, the most frequent first; None if there are none.

    Examples
    --------
    >>> from huc_monitor.tree import LabelTree
    >>> say_unknown({"fox": 2}, LabelTree.flat(["cat", "dog"]))[:58]
    "Labels that are no node of the tree: 'fox' (2 rows). New l"
    """
    if not found:
        return None
    names = list(found)
    told = ", ".join(f"{quoted(name)} ({found[name]:,} rows)" for name in names[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    alike = other_spelling(names[0], (*tree.leaves, *tree.nodes))
    new = f"New leaf? Put it into the tree, or into {_MAPPING}."
    remedy = new if alike is None else f"{alike} {SPELLED_OTHERWISE}"
    return f"Labels that are no node of the tree: {told}{more}. {remedy}"


def find_strays(names: Iterable[str], pattern: str | None, known: Collection[str]) -> list[str]:
    """Return columns that are named like those of leaves and are none of them.

    Examples
    --------
    >>> find_strays(["at", "p_lion", "p_drone"], "p_{leaf}", {"p_lion"})
    ['p_drone']
    """
    before, _, after = (pattern or LEAF).partition(LEAF)
    if not (before or after):
        return []
    return [n for n in names if n.startswith(before) and n.endswith(after) and n not in known]


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
    before, _, after = best.partition(LEAF)
    known = {best.replace(LEAF, leaf) for leaf in tree.leaves}
    strange = [n for n in types if n.startswith(before) and n.endswith(after) and n not in known]
    close = [get_close_matches(best.replace(LEAF, leaf), strange, 1) for leaf in gone[:5]]
    if any(close):
        text += f" Did you mean {next(filter(None, close))[0]!r}?"
    lists = [name for name, kind in types.items() if kind.endswith("]")]
    if found:
        text += f" All leaves have a column by `{found[0]}`."
    elif lists and len(gone) == tree.n_leaves:
        text += f" The column {lists[0]!r} holds lists: name it if it is them."
    return text


def add_design(
    kept: dict[str, Any], frame: pd.DataFrame, given: Columns, *, with_labels: bool
) -> NDArray[Any]:
    """Add keys, the key of the cluster and the label probability; return what is wrong, or ""."""
    problem = np.full(len(frame), "", dtype=object)
    if given.cluster_block is not None:
        length = Span.parse(given.cluster_block).nominal
        blocks = kept["time"].astype("datetime64[us]").astype(np.int64)
        kept["cluster"] = check_clusters(
            blocks // (length // timedelta(microseconds=1)), len(frame)
        )
    elif given.cluster is not None:
        values = frame[given.cluster]
        lacking = values.isna().to_numpy()
        problem[lacking] = NO_CLUSTER
        kept["cluster"] = check_clusters(values.astype(object).mask(lacking, ""), len(frame))
    for i, name in enumerate(given.keys if with_labels else ()):
        kept[f"key {i}"] = hash_keys(frame[name])
    if with_labels and given.label_probability is not None:
        found = as_numbers(frame[given.label_probability])
        problem[~((found > 0) & (found <= 1))] = BAD_LABEL_PROBABILITY
        kept["label probability"] = found
    return problem


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
