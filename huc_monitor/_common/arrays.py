"""Named arrays of numbers as bytes: what summaries travel as. Cheap to read, and never code."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from huc_monitor.errors import InvalidInputError

_T = TypeVar("_T")
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


def pack(value: Any) -> bytes:
    """Write a dataclass of numbers and arrays; dataclasses and tuples in it may hold more.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Counts:
    ...     n: int
    ...     by_label: np.ndarray
    >>> unpack(Counts(0, np.empty(0)), pack(Counts(3, np.array([1, 2]))))
    Counts(n=3, by_label=array([1, 2]))
    """
    return arrays_to_bytes(_named(value, ""))


def unpack(like: _T, data: bytes) -> _T:
    """Read what `pack` wrote of something of the same form as `like`."""
    found: _T = _formed(like, "", arrays_from_bytes(data))
    return found


def _named(value: Any, name: str) -> dict[str, Any]:
    inside: dict[str, Any] = {}
    for step, part in _parts(value):
        inside |= _named(part, f"{name}.{step}" if name else step)
    return inside or ({} if isinstance(value, tuple) else {name: value})


def _formed(like: Any, name: str, arrays: Mapping[str, Any]) -> Any:
    inside = {
        step: _formed(part, f"{name}.{step}" if name else step, arrays)
        for step, part in _parts(like)
    }
    if isinstance(like, tuple):
        return tuple(inside.values())
    if inside:
        return replace(like, **inside)
    return arrays[name] if arrays[name].ndim else arrays[name].item()


def _parts(value: Any) -> list[tuple[str, Any]]:
    if is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    return [(str(k), part) for k, part in enumerate(value)] if isinstance(value, tuple) else []
