"""Guess which column of a log is what, from names, types and a sample of rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd

from huc_monitor.audit.forms.spec import LEAF, PredictionColumns
from huc_monitor.config._guess_forms import find_predictions
from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean, other_spelling
from huc_monitor.sources._rows import SPELLED_OTHERWISE, explain_missing, find_patterns, find_strays
from huc_monitor.sources._spec import ROW_CHECKS
from huc_monitor.sources._table import TimeColumn
from huc_monitor.subgroups._outcome import names_nodes
from huc_monitor.tree import LabelTree
from huc_monitor.tree.labels import LabelEncoder
from huc_monitor.utilities.program import Ints

TIME_WORDS: Final = (
    "time",
    "timestamp",
    "ts",
    "at",
    "when",
    "datetime",
    "date",
    "created",
    "predicted",
)
_LABEL: Final = ("label", "y", "true", "truth", "target", "actual", "outcome", "observed", "class")
_ID: Final = ("id", "uuid", "key", "guid")
_VERSION: Final = ("version", "model", "ver", "mv")
_WORDS: Final = re.compile(r"[a-z]+|[0-9]+")
_MAX_GROUPS: Final = 12
_LEAST_DISTINCT: Final = 0.9  # of ids that come again with the same prediction


@dataclass(frozen=True, slots=True, eq=False)
class TableSample:
    """Some rows of a table, and the types of its columns in the words of the backend."""

    name: str
    types: Mapping[str, str]
    frame: pd.DataFrame

    def listed(self) -> str:
        """List the columns for a message."""
        shown = [f"{name} ({kind})" for name, kind in list(self.types.items())[:30]]
        rest = len(self.types) - len(shown)
        return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")

    def check(self, option: str, column: str) -> str:
        """Return a column that a user named with an option, if it is there."""
        if column in self.types:
            return column
        msg = (
            f"`--{option.replace('_', '-')}` must be a column of {self.name}; got {column!r}. "
            f"{did_you_mean(column, list(self.types))}"
        )
        raise UnknownNameError(msg)


@dataclass(slots=True, eq=False)
class Guess:
    """What the columns of a log seem to be.

    Attributes
    ----------
    predictions : PredictionColumns
        The section ``columns.probabilities``.
    prediction_names : tuple of str
        Its columns.
    time, label, id, model_version, cluster : str or None
    time_unit : str or None
        For times that are numbers.
    sum_tolerance : float
        How far rows are from summing to 1.
    groups, numbers : list of str
        Columns for subgroups: with few values, and of numbers.
    notes : dict of str to str
        What a reader should know about a guess, by its key.
    spellings : dict of str to str
        Which node other spellings of labels mean.
    proposed : list of str
        Columns that hold leaves, though nothing says that they are labels.
    """

    predictions: PredictionColumns = field(default_factory=lambda: PredictionColumns(pattern=LEAF))
    prediction_names: tuple[str, ...] = ()
    time: str = ""
    time_unit: str | None = None
    label: str | None = None
    id: str | None = None
    model_version: str | None = None
    cluster: str | None = None
    sum_tolerance: float = ROW_CHECKS.sum_tolerance
    groups: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    spellings: dict[str, str] = field(default_factory=dict)
    proposed: list[str] = field(default_factory=list)

    @property
    def used(self) -> set[str]:
        """Columns that have a meaning already."""
        names = {self.time, self.label, self.id, self.model_version, *self.prediction_names}
        return {name for name in names if name}


def guess_log(
    sample: TableSample,
    tree: LabelTree,
    named: Mapping[str, str] | None = None,
    spellings: Mapping[str, str] | None = None,
) -> Guess:
    """Guess everything about a log; what cannot be found is an error that lists what is there.

    `named` are columns that the user named: "time", "label" and "id"; `spellings` say which node
    other spellings of labels mean.
    """
    given = {key: sample.check(key, column) for key, column in (named or {}).items()}
    guess = Guess(label=given.get("label"), id=given.get("id"), time=given.get("time", ""))
    guess.spellings = dict(spellings or {})
    top = _predictions(guess, sample, tree)
    guess.label = guess.label or find_label(sample, tree, guess, top)
    if guess.predictions.form == "list" and guess.predictions.class_column is None:
        _class_order(guess, sample, tree, top)
    if guess.time:
        refuse_unreadable(sample, guess.time)
        guess.time_unit = _epoch_unit(sample.frame[guess.time])
    else:
        guess.time = find_time(sample, guess)
    guess.id = guess.id or find_id(sample, guess)
    if guess.id is not None:
        _note_ids(guess, sample.frame[guess.id])
    guess.model_version = best_name(
        sample.types,
        _VERSION,
        lambda name: name not in guess.used and sample.frame[name].nunique(dropna=True) <= 50,
    )
    _subgroups(guess, sample, tree.label_encoder(mapping=guess.spellings))
    return guess


def _predictions(guess: Guess, sample: TableSample, tree: LabelTree) -> Ints:
    """Find the predictions; returns the likeliest leaf of the sample's rows, -1 where unknown."""
    found = find_predictions(sample, tree)
    if found is None:
        _refuse_other_sums(sample, tree)
        leaves = ", ".join(map(repr, tree.leaves[:6])) + (", ..." if tree.n_leaves > 6 else "")
        msg = (
            f"`log` must have a column of numbers per leaf ({leaves}), named alike such as p_LEAF, "
            f"or one column with lists of {tree.n_leaves} numbers, pairs or maps, and they must "
            f"sum to 1; found neither in {sample.name}: "
            f"{explain_missing(sample.types, tree, LEAF, ())} Its columns: {sample.listed()}. "
            "Rename them, correct the tree, or write the file by hand (huc-monitor init --schema "
            "prints what it may hold)."
        )
        raise InvalidInputError(msg)
    guess.predictions, guess.prediction_names = found.columns, found.names
    if found.notes:
        guess.notes["predictions"] = "; ".join(found.notes)
    if found.off > 9e-7:
        guess.sum_tolerance = float(f"{max(3 * found.off, 1e-5):.0e}")
        guess.notes["sum_tolerance"] = (
            f"the log's probabilities are rounded: rows miss 1 by about {found.off:.0e}"
        )
    return found.top


def _refuse_other_sums(sample: TableSample, tree: LabelTree) -> None:
    """Refuse columns that are there for all leaves, and say what they sum to."""
    for pattern in find_patterns(list(sample.types), tree):
        names = [pattern.replace(LEAF, leaf) for leaf in tree.leaves]
        first = sample.frame[names].iloc[0]
        total = pd.to_numeric(first, errors="coerce").sum(skipna=False)
        strays = find_strays(sample.types, pattern, names)
        lacking = "if a class is missing from the tree, put it in"
        if strays:
            lacking = f"the log also has {strays[0]!r}: if it is a new leaf, put it into the tree"
        held = f"hold {first.to_list()[:3]}, not all numbers"
        remedy = "Write numbers from 0 to 1"
        if np.isfinite(total):
            held = f"sum to {total:.4g} in the first row"
            remedy = "Divide them by 100" if abs(total - 100) < 1 else "Divide each by their sum"
        msg = (
            f"`log` must have probabilities that sum to 1; {sample.name} has all {len(names)} "
            f"columns `{pattern}`, but they {held}. {remedy} before they are logged; {lacking}."
        )
        raise InvalidInputError(msg)


def find_label(sample: TableSample, tree: LabelTree, guess: Guess, top: Ints | None) -> str | None:
    """Return the column that sounds like labels and holds leaves, but not the model's own answer.

    Columns by any other name that hold leaves are only proposed, in ``guess.proposed``.
    """

    def holds_labels(name: str) -> bool:
        encoder = tree.label_encoder(mapping=guess.spellings)
        if name in guess.used or not holds_leaves(sample, name, encoder):
            return False
        if top is None or tree.n_leaves < 3:
            return True
        codes = encoder.find(sample.frame[name].astype(object))
        known = (codes >= 0) & (top >= 0)
        return not known.any() or bool((codes != top)[known].mean() > 1e-3)

    found = best_name(sample.types, _LABEL, holds_labels)
    if found is None:
        guess.proposed = [name for name in sample.types if holds_labels(name)]
    return found


def say_spelling(sample: TableSample, tree: LabelTree) -> str:
    """Say which column holds leaves in another spelling; empty if none does."""
    leaves = set(tree.leaves)
    for name in sample.types:
        values = sample.frame[name].dropna().head(100)
        others = [value for value in values if isinstance(value, str) and value not in leaves]
        alike = [other_spelling(value, leaves) for value in others]
        if others and all(alike):
            return f"{name!r} holds {others[0]!r}. {alike[0]} {SPELLED_OTHERWISE} "
    return ""


def holds_leaves(sample: TableSample, name: str, encoder: LabelEncoder) -> bool:
    """Say whether a column may be labels: at least two leaves, and hardly anything else."""
    values = sample.frame[name].dropna()
    if not len(values) or "pred" in name.lower():
        return False
    if not isinstance(values.iloc[0], str) and not _scored(name, _LABEL):
        return False  # a number by any other name is no label
    codes = encoder.find(values.astype(object))
    return bool((codes >= 0).mean() >= 0.95) and len(np.unique(codes)) >= 2


def _class_order(guess: Guess, sample: TableSample, tree: LabelTree, top: Ints) -> None:
    """Choose the order of a list: the tree's, or the alphabet's, whichever fits the labels."""
    orders = {"the tree's": tree.leaves, "alphabetical": tuple(sorted(tree.leaves))}
    scores = {}
    if guess.label is not None:
        for name, order in orders.items():
            # `top` are places in the list.
            leaf_at = np.array([tree.leaf_index(leaf) for leaf in order])
            encoder = tree.label_encoder(order, guess.spellings)
            codes = encoder.find(sample.frame[guess.label].astype(object))
            hit = leaf_at[top] == codes
            known = (codes >= 0) & (top >= 0)
            scores[name] = float(hit[known].mean()) if known.any() else 0.0
    best = max(scores, key=lambda name: scores[name]) if scores else "the tree's"
    guess.predictions = guess.predictions.model_copy(update={"classes": orders[best]})
    if orders["the tree's"] == orders["alphabetical"]:
        return
    told = ", ".join(f"{name} order: {score:.0%} right" for name, score in scores.items())
    guess.notes["classes"] = (
        f"the log does not say the order of the list. {told}"
        if told
        else "CHECK THIS: the log does not say the order of the list, and no label tells"
    )


def find_time(sample: TableSample, guess: Guess) -> str:
    """Return the column of times: by type, then by name; sets the unit of numbers."""
    typed = [n for n, kind in sample.types.items() if is_time(kind, sample.frame[n])]
    typed = [name for name in typed if name not in guess.used]
    own = [name for name in typed if "label" not in name.lower()] or typed
    unread = [n for n in sample.types if n not in guess.used and has_clock(sample.frame[n])]
    likeliest = best_name((*own, *unread), TIME_WORDS, lambda _: True)
    if likeliest in unread:
        refuse_unreadable(sample, likeliest)
    if len(own) == 1:
        return own[0]
    best = best_name(own, TIME_WORDS, lambda _: True)
    if best is not None:
        guess.notes["time"] = f"also there: {', '.join(n for n in own if n != best)}"
        return best
    numbers = [n for n in sample.types if n not in guess.used and _epoch_unit(sample.frame[n])]
    best = best_name(numbers, TIME_WORDS, lambda _: True)
    if best is not None:
        guess.time_unit = _epoch_unit(sample.frame[best])
        return best
    called = best_name(sample.types, TIME_WORDS, lambda name: _has_dates(sample.frame[name]))
    if called is not None and not own:
        refuse_unreadable(sample, called)
    found = f"several: {', '.join(own)}" if own else "none"
    msg = (
        f"`log` must have a column of times; found {found} in {sample.name}. Its columns: "
        f"{sample.listed()}. Say which with --time."
    )
    raise InvalidInputError(msg)


def _has_dates(values: pd.Series[Any]) -> bool:
    texts = values.dropna().head(50).astype(str)
    return bool(len(texts)) and bool(texts.str.match(r"\d+[./-]\d+[./-]\d+").all())


def has_clock(values: pd.Series[Any]) -> bool:
    """Say whether a column holds dates with a time of day that are not written year first."""
    texts = values.dropna().head(50)
    if not len(texts) or not isinstance(texts.iloc[0], str):
        return False
    return bool(texts.astype(str).str.match(r"\s*\d{1,2}[./-]\d{1,2}[./-]\d+,? +\d+:\d").all())


def refuse_unreadable(
    sample: TableSample, name: str, remedy: str = ", or name another column with --time"
) -> None:
    """Refuse a column of texts none of which is a time, and show the first."""
    texts = sample.frame[name].dropna().head(50)
    if not len(texts) or not isinstance(texts.iloc[0], str):
        return
    time = TimeColumn(name)
    if np.isnat(time.read(texts)).all():
        time.refuse_texts(sample.name, texts, remedy)


def is_time(kind: str, values: pd.Series[Any]) -> bool:
    """Say whether a column holds times: by its type, or nine of ten texts look like one."""
    if "TIMESTAMP" in kind.upper() or "DATETIME" in kind.upper():
        return True
    if kind.upper() == "DATE":
        return False  # a partition, or a birthday: too coarse unless it is all there is
    texts = values.dropna().head(50)
    if not len(texts) or not isinstance(texts.iloc[0], str):
        return False
    return bool(texts.astype(str).str.match(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d").mean() >= 0.9)


def _epoch_unit(values: pd.Series[Any]) -> str | None:
    if not pd.api.types.is_numeric_dtype(values.dtype) or not values.notna().any():
        return None
    middle = float(values.median())
    for unit, per_second in (("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        if 9e8 * per_second < middle < 4e9 * per_second:  # from 1998 to 2096
            return unit
    return None


def find_id(sample: TableSample, guess: Guess) -> str | None:
    """Return a column called an id whose values are all different, but for copies of rows.

    Of a user or a session that comes again, predictions differ.
    """

    def may_be(name: str) -> bool:
        if _may_be_id(sample, name, guess.used):
            return True
        again = sample.frame[name].duplicated(keep=False) & sample.frame[name].notna()
        rows = sample.frame.loc[again, [name, *guess.prediction_names]].astype(str)
        n_copies, n_again = int(rows.duplicated().sum()), int(rows[name].duplicated().sum())
        return _may_be_id(sample, name, guess.used, _LEAST_DISTINCT) and 2 * n_copies > n_again

    return best_name(sample.types, _ID, may_be)


def _note_ids(guess: Guess, ids: pd.Series[Any]) -> None:
    """Note how many ids come again, and how many rows have none."""
    there = ids.dropna()
    n_again, n_none = int(there.duplicated().sum()), len(ids) - len(there)
    said = [f"{n_again:,} repeated (an id counts once)"] if n_again else []
    said += [f"{n_none:,} without an id"] if n_none else []
    if said:
        guess.notes["id"] = f"of {len(ids):,} rows looked at, {', '.join(said)}"


def possible_ids(sample: TableSample, used: set[str], share: float = 0.99) -> list[str]:
    """Return the columns with so large a share of distinct values, those called an id first."""
    names = [name for name in sample.types if _may_be_id(sample, name, used, share)]
    return sorted(names, key=lambda name: -_scored(name, _ID))


def repeated_ids(sample: TableSample, used: set[str]) -> tuple[str, str] | None:
    """Name a column called an id whose values come more than once, and say so; None without one."""
    name = best_name(sample.types, _ID, lambda name: name not in used)
    if name is None or not sample.frame[name].duplicated().any():
        return None
    counts = sample.frame[name].value_counts()
    return name, (
        f"{name!r} has {len(counts):,} values in {len(sample.frame):,} rows; "
        f"{str(counts.index[0])!r} comes {counts.iloc[0]:,} times"
    )


def _may_be_id(sample: TableSample, name: str, used: set[str], share: float = 0.99) -> bool:
    values = sample.frame[name]
    if name in used or pd.api.types.is_float_dtype(values.dtype):
        return False
    if is_time(sample.types[name], values):
        return False
    n = int(values.notna().sum())
    return n >= 0.99 * len(values) and _distinct(values) >= share * n


def _subgroups(guess: Guess, sample: TableSample, encoder: LabelEncoder) -> None:
    n = len(sample.frame)
    for name in sample.types:
        values = sample.frame[name]
        if name in guess.used or is_time(sample.types[name], values) or not values.notna().any():
            continue
        if sample.types[name].upper() == "DATE" or _scored(name, _ID):
            continue
        distinct = _distinct(values)
        if names_nodes(values, encoder):
            continue  # the model's answer, or another label: not a property of the case
        if 2 <= distinct <= _MAX_GROUPS and distinct < n / 20:
            guess.groups.append(name)
        elif pd.api.types.is_numeric_dtype(values.dtype) and distinct > _MAX_GROUPS:
            guess.numbers.append(name)


def _distinct(values: pd.Series[Any]) -> int:
    try:
        return int(values.nunique(dropna=True))
    except TypeError:  # lists
        return 0


def _scored(name: str, words: Sequence[str]) -> int:
    """Score a name by the words it is made of: earlier words count more, other words less."""
    parts = _WORDS.findall(re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).lower())
    scores = [len(words) - words.index(part) for part in parts if part in words]
    return 100 * max(scores) - len(parts) if scores else 0


def best_name(
    names: Iterable[str], words: Sequence[str], fits: Callable[[str], bool]
) -> str | None:
    """Return the name that sounds most like `words`, among those that fit."""
    scored = [(-_scored(name, words), i, name) for i, name in enumerate(names)]
    for _, _, name in sorted(pair for pair in scored if pair[0] < 0):
        if fits(name):
            return name
    return None
