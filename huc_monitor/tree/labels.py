"""The one rule that turns labels into codes, for the API, the command, logs and Spark.

What a label means depends on the tree alone, never on the other labels or on how they are stored:

1. Text is a leaf's name. Whole numbers are read as they are written: 3, 3.0, "3" and "3.0" are the
   same label, because files and columns with gaps turn one into another.
2. A whole number is the leaf of that name, if any leaf is called by a number. No number is a code
   then: with leaves "1", "2", "3", the label 1 is the first leaf and 0 is refused.
3. Otherwise a whole number is a code: the place in ``tree.leaves``, or in the classes of a log
   whose column of lists names them.
4. Other text is an inner node's name, where a label stops above the leaves; then a path of names,
   such as "billing/refund" or "billing > refund", each above the next, that ends at a node.
5. A set of labels, as a Python set, an array inside a column or JSON text such as ["a", "b"], is
   the lowest node above all of them: that much it says.
6. Everything else is no node: other text, numbers out of range, 1.5, True, bytes, dates.

A mapping of spellings, `Labels`, is asked before all that. The code of a leaf is its place in
``tree.leaves``; that of an inner node follows the leaves, n_leaves + its place in
``tree.branches``. A node with a single child has the code of what is below it.

`LabelEncoder.encode` refuses what is no node and says which row; `LabelEncoder.find` marks it -1,
for logs, which set such rows aside. `LeafCodes` are codes by declaration, whatever names are.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pandas as pd

from huc_monitor._common.frames import to_series
from huc_monitor.errors import InvalidInputError, did_you_mean
from huc_monitor.tree._files import read_mapping

__all__ = ["InnerNodes", "LabelEncoder", "Labels", "LeafCodes", "read_mapping"]

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy.typing as npt

_WHOLE: Final = re.compile(r"(0|-?[1-9][0-9]{0,17})(?:\.0*)?")
_READS_AS_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.0*)?")
_SEPARATORS: Final = ("/", ">", "|", "::")
_MOST_TEXT: Final = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class LeafCodes:
    """Labels that were encoded before: places in ``tree.leaves``, then in ``tree.branches``."""

    codes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Labels in several spellings: a mapping says which node each of them means.

    Takes the place of labels in every function. What the mapping does not name is read as it is.

    Parameters
    ----------
    values : (n,) labels
    mapping : mapping of spelling to node, or path of a file
        A CSV file of two columns (spelling, node), or a JSON or YAML mapping.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.flat(["cat", "dog"])
    >>> tree.encode(hm.Labels(["Katze", "dog"], mapping={"Katze": "cat"}))
    array([0, 1])
    """

    values: Any
    mapping: Mapping[str, str] | str | Path

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class InnerNodes:
    """The nodes above the leaves, as far as labels need them.

    Attributes
    ----------
    code_of : dict of str to int
        Codes by name.
    above : array of shape (n_leaves + n_branches,)
        Code of the branch above every code, -1 for the topmost.
    ancestors : callable
        Names above a node, the root first.
    """

    code_of: Mapping[str, int]
    above: npt.NDArray[np.int64]
    ancestors: Callable[[str], tuple[str, ...]]

    def lowest_above(self, codes: Iterable[int]) -> int:
        """Return the code of the lowest node that all of the nodes are, or lie below."""
        paths = [self._path(code) for code in codes]
        common = paths[0]
        for path in paths[1:]:
            same = [a == b for a, b in zip(common, path, strict=False)]
            common = common[: same.index(False) if False in same else len(same)]
        return common[-1]

    def _path(self, code: int) -> list[int]:
        path = [code]
        while (code := int(self.above[code])) >= 0:
            path.append(code)
        return path[::-1]


_NO_INNER: Final = InnerNodes({}, np.empty(0, dtype=np.int64), lambda _: ())


@dataclass(frozen=True, slots=True, eq=False)
class LabelEncoder:
    """Turns labels into codes by the rule above.

    Attributes
    ----------
    leaves : tuple of str
    order : sequence of str
        The classes that whole numbers count, where these are codes.
    inner : InnerNodes
        None by default: labels must then be leaves.
    mapping : mapping of str to str
        What other spellings mean.
    """

    leaves: tuple[str, ...]
    order: Sequence[str]
    inner: InnerNodes = _NO_INNER
    mapping: Mapping[str, str] = field(default_factory=dict)
    _code_of: dict[str, int] = field(init=False)
    _by_number: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_code_of", {leaf: code for code, leaf in enumerate(self.leaves)})
        by_number = any(_READS_AS_NUMBER.fullmatch(leaf) for leaf in self.leaves)
        object.__setattr__(self, "_by_number", by_number)
        lost = [(label, node) for label, node in self.mapping.items() if self._node(node) < 0]
        if lost:
            label, node = lost[0]
            msg = (
                f"`mapping` must lead to nodes of the tree; {label!r} leads to {node!r}. "
                + did_you_mean(node, [*self.leaves, *self.inner.code_of])
            )
            raise InvalidInputError(msg)

    def find(self, labels: object) -> npt.NDArray[np.int64]:
        """Return the code of each label, -1 where it is missing or no node.

        Examples
        --------
        >>> LabelEncoder(("a", "b"), ("a", "b")).find(["b", 0, "1", 2, None])
        array([ 1,  0,  1, -1, -1])
        """
        if isinstance(labels, Labels):
            return replace(self, mapping=read_mapping(labels.mapping)).find(labels.values)
        if isinstance(labels, LeafCodes):
            n_codes = max(len(self.leaves), self.inner.above.size)
            return np.where((labels.codes >= 0) & (labels.codes < n_codes), labels.codes, -1)
        values = _one_dimensional(labels)
        plain = self._plain_codes and not self.mapping
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and plain:
            return np.where(self._in_range(values), values, -1).astype(np.int64)
        # Each distinct value is looked up once, except where True and 1 would pass as one value.
        if pd.api.types.infer_dtype(values, skipna=True) in _APART:
            rows, distinct = pd.factorize(values)
        else:
            rows, distinct = np.arange(len(values)), values
        found = np.array([*map(self._code, distinct), -1], dtype=np.int64)
        return found[rows]

    def encode(self, labels: object) -> npt.NDArray[np.int64]:
        """Return the code of each label, or refuse them and say which row is wrong and why."""
        codes = self.find(labels)
        if codes.size and codes.min() < 0:
            row = int(np.argmax(codes < 0))
            raise self._refusal(_given(labels)[row], row)
        return codes

    @property
    def _plain_codes(self) -> bool:
        return not self._by_number and tuple(self.order) == self.leaves

    def _in_range(self, values: Any) -> npt.NDArray[np.bool_]:
        return np.asarray((values >= 0) & (values < len(self.leaves)), dtype=bool)

    def _code(self, value: Any) -> int:
        if isinstance(value, set | frozenset | list | tuple | np.ndarray):
            return self._lowest(list(value))
        text = _text(value)
        if text is None:
            return -1
        if text in self.mapping:
            return self._node(self.mapping[text])
        code = self._node(text)
        if code < 0 and text.startswith("[") and len(text) <= _MOST_TEXT:
            try:
                listed = json.loads(text)
            except ValueError:
                return -1
            return self._lowest(listed) if isinstance(listed, list) else -1
        return code

    def _lowest(self, values: list[Any]) -> int:
        """Return the code of the lowest node above all labels of a set."""
        nested = any(isinstance(value, list | tuple | np.ndarray) for value in values)
        codes = [] if nested else [self._code(value) for value in values]
        if not codes or min(codes) < 0:
            return -1
        if not self.inner.above.size:
            return codes[0] if len(set(codes)) == 1 else -1
        return self.inner.lowest_above(codes)

    def _node(self, text: str) -> int:
        """Return the code of a node as it is written, -1 where there is none."""
        if text in self._code_of:
            return self._code_of[text]
        number = _WHOLE.fullmatch(text)
        if number is not None and self._by_number and number[1] in self._code_of:
            return self._code_of[number[1]]
        if number is not None and not self._by_number and 0 <= int(number[1]) < len(self.order):
            return self._code_of[self.order[int(number[1])]]
        if text in self.inner.code_of:
            return self.inner.code_of[text]
        for separator in _SEPARATORS if self.inner.code_of else ():
            if separator in text:
                return self._path_end([part.strip() for part in text.split(separator)])
        return -1

    def _path_end(self, parts: list[str]) -> int:
        """Return the code of a path's last node, if every name before it lies above the next."""
        *before, last = [part for part in parts if part] or [""]
        code = self._code_of.get(last, self.inner.code_of.get(last, -1))
        if code < 0:
            return -1
        above = iter(self.inner.ancestors(last))
        return code if all(part in above for part in before) else -1

    def _refusal(self, value: Any, row: int) -> InvalidInputError:
        shown, kind = repr(str(value)) if isinstance(value, str) else str(value), type(value)
        if pd.api.types.is_scalar(value) and pd.isna(value):
            rule, shown = "not be missing", "a missing value"
            remedy = "Drop the row, or wait for its label."
        elif _text(value) is None:
            rule, shown = "be leaf names or integer codes", f"{value!r} of type {kind.__name__}"
            remedy = _REMEDIES.get(kind.__name__, "Use a string in every row.")
        elif isinstance(value, str) and self.inner.code_of:
            rule = "be names of nodes of the tree"
            remedy = did_you_mean(value, [*self._code_of, *self.inner.code_of])
        elif isinstance(value, str):
            rule, remedy = "be leaf names of the tree", did_you_mean(value, self._code_of)
        elif self._by_number:
            rule = "be names where leaves are called by numbers"
            remedy = "Use numpy.array(tree.leaves)[labels] if they are codes."
        else:
            rule = f"be leaf codes from 0 to {len(self.leaves) - 1}"
            remedy = "Pass leaf names instead."
        return InvalidInputError(f"`labels` must {rule}; got {shown} (row {row}). {remedy}")


_APART: Final = {"string", "integer", "floating", "categorical", "decimal", "empty"}
_REMEDIES: Final = {
    "bool": "Use labels.astype(int) if True means code 1.",
    "bytes": "Decode them to strings.",
}


def _text(value: Any) -> str | None:
    """Return a label as it is written, None where it is neither text nor a whole number."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating | Decimal) and value == value // 1:
        return str(int(value))
    return None


def _given(labels: Any) -> Any:
    """Return the labels as they were handed in."""
    if isinstance(labels, Labels):
        return _given(labels.values)
    return labels.codes if isinstance(labels, LeafCodes) else _one_dimensional(labels)


def _one_dimensional(labels: object) -> Any:
    """Return an array whose rows are the labels, none of them converted to another type."""
    labels = to_series(labels)
    if isinstance(labels, pd.Series | pd.Index):
        array = labels.array
        # pandas' wrapper around a numpy column knows no `&`
        return array.to_numpy() if isinstance(array, pd.arrays.NumpyExtensionArray) else array
    if isinstance(labels, pd.api.extensions.ExtensionArray):
        return labels
    if isinstance(labels, np.ma.MaskedArray):
        mask, labels = np.ma.getmaskarray(labels), np.asarray(labels.data, dtype=object)
        labels = [None if hidden else label for label, hidden in zip(labels, mask, strict=True)]
    # Lists go through object: numpy would silently turn ["a", None] and ["a", 1] into strings.
    values = np.asarray(labels, dtype=None if hasattr(labels, "dtype") else object)
    if values.ndim != 1:
        got = f"shape {values.shape}" if values.ndim else f"a {type(labels).__name__}"
        msg = f"`labels` must be one-dimensional; got {got}. Pass one label per row."
        raise InvalidInputError(msg)
    return values
