"""Named arrays of numbers as bytes: what summaries travel as. Cheap to read, and never code."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from huc_monitor.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBERS = "biuf"
_HEAD = 4


def arrays_to_bytes(arrays: Mapping[str, Any]) -> bytes:
    """Write the length of a JSON header (names, types, shapes), the header, then the numbers.

    Examples
    --------
    >>> arrays_from_bytes(arrays_to_bytes({"n": 3, "x": np.eye(2)}))
    {'n': array(3), 'x': array([[1., 0.], [0., 1.]])}
    """
    found = {name: np.asarray(value) for name, value in arrays.items()}
    entries = [[name, array.dtype.str, array.shape] for name, array in found.items()]
    head = json.dumps(entries).encode()
    parts = [array.tobytes() for array in found.values()]
    return b"".join([len(head).to_bytes(_HEAD, "little"), head, *parts])


def arrays_from_bytes(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Read what `arrays_to_bytes` wrote; anything but numbers is refused."""
    end = _HEAD + int.from_bytes(data[:_HEAD], "little")
    arrays = {}
    for name, kind, shape in json.loads(data[_HEAD:end]):
        dtype = np.dtype(kind)
        if dtype.kind not in _NUMBERS:
            msg = f"`data` must hold arrays of numbers; got {kind!r} for {name!r}."
            raise InvalidInputError(msg)
        array = np.frombuffer(data, dtype=dtype, count=math.prod(shape), offset=end)
        arrays[name] = array.reshape(shape).copy()
        end += array.nbytes
    return arrays
