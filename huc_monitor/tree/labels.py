"""Turn observed labels into leaf codes, or say which row is wrong and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from huc_monitor.errors import InvalidInputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt


def encode(labels: object, code_of: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """Return the code of each label; `code_of` maps leaf names, in leaf order, to codes."""
    values = _one_dimensional(labels)
    missing = np.asarray(pd.isna(values))
    if missing.any():
        msg = (
            "`labels` must not be missing; "
            f"got a missing value (row {int(np.argmax(missing))}). "
            "Drop the row, or wait for its label."
        )
        raise InvalidInputError(msg)
    if len(values) == 0:
        return np.empty(0, dtype=np.int64)
    # Each distinct value is looked up once, whatever the number of rows.
    if isinstance(values.dtype, pd.CategoricalDtype):
        used = values.remove_unused_categories()
        rows, distinct = np.asarray(used.codes), used.categories
        kind = pd.api.types.infer_dtype(distinct)
    else:
        kind = pd.api.types.infer_dtype(values)
        rows, distinct = pd.factorize(values) if kind == "string" else (None, values)
    if kind == "string":
        found = _codes_of_names(distinct, code_of)
    elif kind == "integer":
        found = _codes_of_integers(distinct, code_of)
    else:
        raise _wrong_kind(values, kind)
    codes: npt.NDArray[np.int64] = found if rows is None else found[rows]
    if codes.min() < 0:
        raise _unknown(values, int(np.argmax(codes < 0)), code_of)
    return codes


def _one_dimensional(labels: object) -> Any:
    """Return an array whose rows are the labels, none of them converted to another type."""
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


def _codes_of_names(names: Any, code_of: Mapping[str, int]) -> npt.NDArray[np.int64]:
    return np.array([code_of.get(name, -1) for name in names], dtype=np.int64)


def _codes_of_integers(values: Any, code_of: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """Return the codes as they are, -1 where there is no such leaf."""
    for code in range(len(code_of)):
        if code_of.get(str(code), code) != code:
            msg = (
                "`labels` must be strings when leaf names are numbers that differ from the codes; "
                f"got integers, and leaf '{code}' has code {code_of[str(code)]}. Use "
                "labels.astype(str) for names, or numpy.array(tree.leaves)[labels] for codes."
            )
            raise InvalidInputError(msg)
    valid = np.asarray((values >= 0) & (values < len(code_of)), dtype=bool)
    return np.where(valid, np.asarray(values), -1).astype(np.int64)


def _unknown(values: Any, row: int, code_of: Mapping[str, int]) -> InvalidInputError:
    value = values[row]
    if isinstance(value, str):
        rule, remedy = "leaf names of the tree", did_you_mean(value, code_of)
    else:
        rule, remedy = f"leaf codes from 0 to {len(code_of) - 1}", "Pass leaf names instead."
    shown = repr(str(value)) if isinstance(value, str) else value
    return InvalidInputError(f"`labels` must be {rule}; got {shown} (row {row}). {remedy}")


def _wrong_kind(values: Any, kind: str) -> InvalidInputError:
    others = [row for row, value in enumerate(values) if not isinstance(value, str)]
    row = next((row for row in others if not pd.api.types.is_integer(values[row])), others[0])
    remedy = {
        "boolean": "Use labels.astype(int) if True means code 1.",
        "floating": "Use labels.astype(int) if they are whole codes.",
        "bytes": "Decode them to strings.",
    }.get(kind, "Use a string in every row.")
    return InvalidInputError(
        f"`labels` must be leaf names or integer codes; got {values[row]!r} of type "
        f"{type(values[row]).__name__} (row {row}). {remedy}"
    )
