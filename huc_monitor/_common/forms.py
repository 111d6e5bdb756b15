"""JSON forms of dataclasses, written and read by their annotations.

By hand rather than by pydantic, because times keep the spelling they have on disk, and large parts
that are JSON already are not walked through.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)
from typing import get_type_hints as type_hints

import numpy as np

from huc_monitor.errors import InvalidInputError

VERSION = "schema_version"
STORED_AS = "stored as"  # in a field's metadata: the key it was first written under
_T = TypeVar("_T")

# A number that may be undefined or infinite, which JSON cannot say: it is written as null then.
Measured: TypeAlias = Annotated[float, "null where not finite"]


class Form:
    """Base of dataclasses with a JSON form.

    Times are written as ISO text, tuples and arrays as lists, dataclasses by field; mappings of
    plain values, and what is annotated as Any, are JSON already. Numbers of arrays, and those
    annotated as `Measured`, are null where they are not finite. `schema` is written first and
    asked for when read, unless it is None. Fields in `sparse` are written only where they hold
    something else than their default: older versions, and those who compare, see the form they
    know.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Visit(Form):
    ...     at: datetime
    ...     pages: tuple[str, ...] = ()
    >>> plain = Visit(datetime(2024, 3, 1), ("a", "b")).to_dict()
    >>> plain
    {'at': '2024-03-01T00:00:00', 'pages': ['a', 'b']}
    >>> Visit.from_dict(plain).pages
    ('a', 'b')
    """

    __slots__ = ()
    schema: ClassVar[int | None] = None
    sparse: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Write JSON-safe data; `from_dict` reads it back."""
        return write_form(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; fields it does not know are left out."""
        return read_form(cls, data)


class _Codec(NamedTuple):
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def stored_key(field: dataclasses.Field[Any]) -> str:
    """Return the key a field is written under."""
    return str(field.metadata.get(STORED_AS, field.name))


def write_form(form: Any) -> dict[str, Any]:
    """Write the fields of a dataclass."""
    kind: Any = type(form)
    schema = getattr(kind, "schema", None)
    head = {} if schema is None else {VERSION: schema}
    codecs, sparse = _codecs(kind), getattr(kind, "sparse", ())
    values = {field: getattr(form, field.name) for field in dataclasses.fields(kind)}
    return head | {
        stored_key(field): codecs[field.name].write(value)
        for field, value in values.items()
        if field.name not in sparse or (value and value != field.default)
    }


def read_form(cls: type[_T], data: Any) -> _T:
    """Read the fields of a dataclass; an error names the field."""
    name, remedy = cls.__name__, "Use the version of huc-monitor that wrote it, or newer."
    if not isinstance(data, Mapping):
        msg = f"`{name}` must be an object with the fields of {name}; got {data!r:.80}. {remedy}"
        raise InvalidInputError(msg)
    schema = getattr(cls, "schema", None)
    if schema is not None and data.get(VERSION) != schema:
        msg = f"`{name}` must have {VERSION} {schema}; got {data.get(VERSION)!r}. {remedy}"
        raise InvalidInputError(msg)
    values = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if stored_key(field) in data:
            values[field.name] = _read_field(cls, field, data[stored_key(field)])
        elif field.default is field.default_factory is dataclasses.MISSING:
            msg = f"`{name}.{field.name}` must be there; it is missing. Restore the file."
            raise InvalidInputError(msg)
    return cls(**values)


def _read_field(cls: Any, field: dataclasses.Field[Any], value: Any) -> Any:
    try:
        return _codecs(cls)[field.name].read(value)
    except InvalidInputError:
        raise
    except (TypeError, ValueError) as error:
        msg = f"`{cls.__name__}.{field.name}` must be {field.type}; got {value!r:.80}."
        raise InvalidInputError(msg) from error


@cache
def _codecs(cls: Any) -> dict[str, _Codec]:
    hints = type_hints(cls, include_extras=True)
    return {field.name: _codec(hints[field.name]) for field in dataclasses.fields(cls)}


def _codec(kind: Any) -> _Codec:
    """Return how values of an annotation are written and read."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is not None:
        return _generic(origin, inner)
    if kind is datetime:
        return _Codec(datetime.isoformat, datetime.fromisoformat)
    if inspect.isclass(kind) and issubclass(kind, Form):
        return _Codec(kind.to_dict, kind.from_dict)
    if dataclasses.is_dataclass(kind):
        return _Codec(write_form, lambda value: read_form(kind, value))  # type: ignore[arg-type]
    if kind in (str, bool, int, float):
        return _Codec(_same, lambda value: _of((int, float) if kind is float else kind, value))
    return _Codec(_same, _same)


def _generic(origin: Any, inner: tuple[Any, ...]) -> _Codec:
    if origin in (Union, types.UnionType):
        return _optional(_codec(next(arg for arg in inner if arg is not type(None))))
    if origin is Annotated:
        return _Codec(_finite, _measured)
    if origin is Literal:
        return _Codec(_same, lambda value: _among(inner, value))
    if origin is np.ndarray:
        return _Codec(_finite_list, lambda value: np.array(value, dtype=np.float64))
    if origin is tuple and inner[-1] is not Ellipsis:
        return _fixed([_codec(arg) for arg in inner])
    if origin in (tuple, list):
        item = _codec(inner[0])
        return _Codec(
            lambda value: [item.write(one) for one in value],
            lambda value: origin(item.read(one) for one in _of(Sequence, value)),
        )
    return _mapping(_codec(inner[1]))


def _same(value: Any) -> Any:
    return value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _measured(value: Any) -> Any:
    return math.nan if value is None else _of((int, float), value)


def _finite_list(values: Any) -> Any:
    plain = values.astype(object)
    plain[~np.isfinite(values)] = None
    return plain.tolist()


def _optional(codec: _Codec) -> _Codec:
    return _Codec(
        lambda value: None if value is None else codec.write(value),
        lambda value: None if value is None else codec.read(value),
    )


def _fixed(codecs: list[_Codec]) -> _Codec:
    return _Codec(
        lambda value: [codec.write(one) for codec, one in zip(codecs, value, strict=True)],
        lambda value: tuple(codec.read(one) for codec, one in zip(codecs, value, strict=True)),
    )


def _mapping(item: _Codec) -> _Codec:
    if item.write is _same:
        # Plain down to the leaves: a walk through it would take longer than to write it.
        return _Codec(dict, lambda value: dict(_of(Mapping, value)))
    return _Codec(
        lambda value: {key: item.write(one) for key, one in value.items()},
        lambda value: {key: item.read(one) for key, one in _of(Mapping, value).items()},
    )


def _of(kinds: Any, value: Any) -> Any:
    text = kinds is Sequence and isinstance(value, str)
    number = isinstance(value, bool) and kinds is not bool
    if text or number or not isinstance(value, kinds):
        raise TypeError
    return value


def _among(choices: Sequence[Any], value: Any) -> Any:
    if value not in choices:
        raise ValueError
    return value
