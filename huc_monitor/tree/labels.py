"""The one rule that turns labels into leaf codes, for the API, the command, logs and Spark.

What a label means depends on the tree alone, never on the other labels or on how they are stored:

1. Text is a leaf's name. Whole numbers are read as they are written: 3, 3.0, "3" and "3.0" are the
   same label, because files and columns with gaps turn one into another.
2. A whole number is the leaf of that name, if any leaf is called by a number. No number is a code
   then: with leaves "1", "2", "3", the label 1 is the first leaf and 0 is refused.
3. Otherwise a whole number is a code: the place in ``tree.leaves``, or in the classes of a log
   whose column of lists names them.
4. Everything else is no leaf: other text, numbers out of range, 1.5, True, bytes, dates.

`LabelEncoder.encode` refuses what is no leaf and says which row; `LabelEncoder.find` marks it -1,
for logs, which set such rows aside. `LeafCodes` are codes by declaration, whatever names are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from huc_monitor._common.frames import to_series
from huc_monitor.errors import InvalidInputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_WHOLE: Final = re.compile(r"(0|-?[1-9][0-9]{0,17})(?:\.0*)?")
_READS_AS_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.0*)?")


@dataclass(frozen=True, slots=True, eq=False)
class LeafCodes:
    """Labels that were encoded before: places in ``tree.leaves``."""

    codes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, slots=True, eq=False)
class LabelEncoder:
    """Turns labels into leaf codes by the rule above.

    Attributes
    ----------
    leaves : tuple of str
    order : sequence of str
        The classes that whole numbers count, where these are codes.
    """

    leaves: tuple[str, ...]
    order: Sequence[str]
    _code_of: dict[str, int] = field(init=False)
    _by_number: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_code_of", {leaf: code for code, leaf in enumerate(self.leaves)})
        by_number = any(_READS_AS_NUMBER.fullmatch(leaf) for leaf in self.leaves)
        object.__setattr__(self, "_by_number", by_number)

    def find(self, labels: object) -> npt.NDArray[np.int64]:
        """Return the code of each label, -1 where it is missing or no leaf.

        Examples
        --------
        >>> LabelEncoder(("a", "b"), ("a", "b")).find(["b", 0, "1", 2, None])
        array([ 1,  0,  1, -1, -1])
        """
        if isinstance(labels, LeafCodes):
            return np.where(self._in_range(labels.codes), labels.codes, -1)
        values = _one_dimensional(labels)
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and self._plain_codes:
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
            given = labels.codes if isinstance(labels, LeafCodes) else _one_dimensional(labels)
            raise self._refusal(given[row], row)
        return codes

    @property
    def _plain_codes(self) -> bool:
        return not self._by_number and tuple(self.order) == self.leaves

    def _in_range(self, values: Any) -> npt.NDArray[np.bool_]:
        return np.asarray((values >= 0) & (values < len(self.leaves)), dtype=bool)

    def _code(self, value: Any) -> int:
        text = _text(value)
        if text is None or text in self._code_of:
            return -1 if text is None else self._code_of[text]
        number = _WHOLE.fullmatch(text)
        if number is None:
            return -1
        if self._by_number:
            return self._code_of.get(number[1], -1)
        place = int(number[1])
        return self._code_of[self.order[place]] if 0 <= place < len(self.order) else -1

    def _refusal(self, value: Any, row: int) -> InvalidInputError:
        shown, kind = repr(str(value)) if isinstance(value, str) else str(value), type(value)
        if pd.api.types.is_scalar(value) and pd.isna(value):
            rule, shown = "not be missing", "a missing value"
            remedy = "Drop the row, or wait for its label."
        elif _text(value) is None:
            rule, shown = "be leaf names or integer codes", f"{value!r} of type {kind.__name__}"
            remedy = _REMEDIES.get(kind.__name__, "Use a string in every row.")
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
