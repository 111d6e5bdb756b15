"""Turn observed labels into leaf codes, or say which row is wrong and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pandas as pd

from huc_monitor.errors import InvalidInputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt


def encode(labels: object, code_of: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """Return the code of each label; `code_of` maps leaf names, in leaf order, to codes."""
    values = _one_dimensional(labels)
    if len(values) == 0:
        return np.empty(0, dtype=np.int64)
    if isinstance(values.dtype, pd.CategoricalDtype):
        return _encode_categories(values.codes, values.categories, code_of)
    kind = _kind(values)
    if kind == "integer":
        return _check_codes(values, code_of)
    if kind == "string":
        codes, names = pd.factorize(values)
        return _encode_categories(codes, names, code_of)
    _refuse_kind(values, kind)


def _one_dimensional(labels: object) -> Any:
    if isinstance(labels, pd.Series | pd.Index):
        return labels.array
    if isinstance(labels, pd.api.extensions.ExtensionArray):
        return labels
    # Lists go through object: numpy would turn ["a", None] and ["a", 1] into strings unasked.
    as_object = not hasattr(labels, "dtype")
    values = np.asarray(labels, dtype=object) if as_object else np.asarray(labels)
    if values.ndim != 1:
        got = (
            f"shape {values.shape}" if values.ndim else f"one value of type {type(labels).__name__}"
        )
        raise InvalidInputError(
            f"`labels` must be one-dimensional; got {got}. Pass one label per row."
        )
    return values


def _kind(values: Any) -> str:
    kind = str(pd.api.types.infer_dtype(values, skipna=True))
    return "string" if kind == "empty" else kind


def _encode_categories(
    codes: npt.NDArray[Any], names: Any, code_of: Mapping[str, int]
) -> npt.NDArray[np.int64]:
    """Translate each distinct name once, then look the rows up."""
    codes = np.asarray(codes)
    if codes.min() < 0:
        _refuse_missing(int(np.argmax(codes < 0)))
    distinct = list(names)
    table = np.full(len(distinct), -1, dtype=np.int64)
    for i, name in enumerate(distinct):
        if isinstance(name, str):
            table[i] = code_of.get(name, -1)
    encoded = table[codes]
    if encoded.min() < 0:
        row = int(np.argmax(encoded < 0))
        name = distinct[codes[row]]
        raise InvalidInputError(
            f"`labels` must be leaf names of the tree; got {name!r} (row {row}). "
            + did_you_mean(name, code_of)
        )
    return encoded


def _check_codes(values: Any, code_of: Mapping[str, int]) -> npt.NDArray[np.int64]:
    missing = np.asarray(pd.isna(values))
    if missing.any():
        _refuse_missing(int(np.argmax(missing)))
    clash = next(
        (name for name, code in code_of.items() if name.isdecimal() and name != str(code)), None
    )
    if clash is not None:
        raise InvalidInputError(
            "`labels` must be strings when leaf names are numbers in another order than the codes; "
            f"got integers, and leaf {clash!r} has code {code_of[clash]}. "
            "Use labels.astype(str) for names, or numpy.array(tree.leaves)[labels] for codes."
        )
    outside = np.asarray((values < 0) | (values >= len(code_of)), dtype=bool)
    if outside.any():
        row = int(np.argmax(outside))
        raise InvalidInputError(
            f"`labels` must be leaf codes from 0 to {len(code_of) - 1}; "
            f"got {values[row]} (row {row}). Pass leaf names instead."
        )
    return np.asarray(values).astype(np.int64)


def _refuse_missing(row: int) -> NoReturn:
    raise InvalidInputError(
        f"`labels` must not be missing; got a missing value (row {row}). "
        "Drop the row, or wait for its label."
    )


def _refuse_kind(values: Any, kind: str) -> NoReturn:
    missing = np.asarray(pd.isna(values))
    if missing.any():
        _refuse_missing(int(np.argmax(missing)))
    row = next((i for i, value in enumerate(values) if not isinstance(value, str)), 0)
    remedy = {
        "boolean": "Use labels.astype(int) if True means code 1.",
        "floating": "Use labels.astype(int) if they are whole codes.",
        "bytes": "Decode them to strings.",
    }.get(kind, "Use strings for every row.")
    raise InvalidInputError(
        f"`labels` must be leaf names or integer codes; got {values[row]!r} of type "
        f"{type(values[row]).__name__} (row {row}). {remedy}"
    )
