"""Columns that look like what several rows have in common: a user, a session, a patient."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor.audit.clusters import check_clusters

# Fewer values than this are groups to audit by, not keys.
LEAST_VALUES: Final = 30
_NUMBERED: Final = re.compile(r"(^|[^a-z])(id|key|no|nr|uuid|guid)s?($|[^a-z])|id$")
_WORDS: Final = re.compile(
    "users?|sessions?|patient|account|customer|client|device|visitor|member|household|person|"
    "conversation|thread|dialogue?|subject|employee|student|driver|vehicle|host|ip|merchant|card|"
    "order|basket|case|claim|ticket|site|sensor|machine|tenant|organi[sz]ation|company|request|trace"
)


def likely_keys(columns: Iterable[str], used: Iterable[str], most: int = 4) -> list[str]:
    """Return columns that sound like a key of dependent rows, and have no other meaning.

    Examples
    --------
    >>> likely_keys(["at", "userId", "p_user", "session_key", "amount"], ["at", "p_user"])
    ['userId', 'session_key']
    """
    taken, found = set(used), []
    for name in columns:
        parts = re.findall(r"[a-z]+", re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name).lower())
        if name not in taken and any(map(_WORDS.fullmatch, parts)):
            found.append(name)
    return found[:most]


def repeated_columns(frame: pd.DataFrame, used: Iterable[str], most: int = 4) -> list[str]:
    """Return columns of which many values come again, but not a few.

    Texts, and whole numbers that are called an id or a key: other numbers are measurements.

    Examples
    --------
    >>> import pandas as pd
    >>> n = np.arange(400)
    >>> repeated_columns(pd.DataFrame({"who_id": n // 8, "age": n // 8, "id": n}), [])
    ['who_id']
    """
    taken = set(used)
    found = []
    for name in frame:
        values = frame[name].dropna()
        first = values.iloc[0] if len(values) else None
        called = _NUMBERED.search(str(name).lower())
        text = isinstance(first, str) or (isinstance(first, int | np.integer) and called)
        if name in taken or not text:
            continue
        n_distinct = values.nunique()
        if LEAST_VALUES <= n_distinct <= 0.6 * len(values):
            found.append(str(name))
    return found[:most]


def hash_keys(values: pd.Series[Any]) -> NDArray[np.int64]:
    """Return the key of every row; rows without a value get keys of their own."""
    lacking = values.isna().to_numpy()
    keys = check_clusters(values.astype(object).mask(lacking, ""), len(values))
    assert keys is not None  # noqa: S101 - there are values
    return np.where(lacking, -1 - np.arange(len(values)), keys)
