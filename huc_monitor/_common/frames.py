"""DataFrames and columns of any library (polars, pyarrow, ...) as pandas has them, by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from huc_monitor.errors import InvalidInputError

# What needs no look: the usual input, and what has no names of its own.
_PLAIN = (pd.DataFrame, pd.Series, pd.Index, np.ndarray, list, tuple, dict, str, type(None))


def to_frame(value: Any, argument: str) -> Any:
    """Return a DataFrame of any library as a pandas DataFrame, and anything else as it is.

    Examples
    --------
    >>> import pyarrow as pa
    >>> to_frame(pa.table({"b": [1], "a": [2]}), "features")
       b  a
    0  1  2
    >>> to_frame([[1, 2]], "features")
    [[1, 2]]
    """
    if isinstance(value, _PLAIN):
        return value
    import narwhals as nw

    found = nw.from_native(value, pass_through=True)
    if isinstance(found, nw.LazyFrame):
        msg = (
            f"`{argument}` must hold its rows in memory; got a {type(value).__module__}."
            f"{type(value).__name__}. Collect it first."
        )
        raise InvalidInputError(msg)
    if isinstance(found, nw.DataFrame):
        return found.to_pandas()
    if hasattr(value, "__dataframe__"):  # the interchange protocol, such as a RecordBatch
        from pyarrow.interchange import from_dataframe

        return from_dataframe(value).to_pandas()
    return value


def to_series(value: Any) -> Any:
    """Return a column of any library as a pandas Series, and anything else as it is."""
    if isinstance(value, _PLAIN):
        return value
    import narwhals as nw

    found = nw.from_native(value, pass_through=True, allow_series=True)
    return found.to_pandas() if isinstance(found, nw.Series) else value


def as_numbers(values: pd.Series[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a column as float64, NaN where a value is missing or no number."""
    if pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(values.dtype):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    numbers = pd.to_numeric(values.astype(object), errors="coerce")
    return numbers.to_numpy(dtype=np.float64, na_value=np.nan)
