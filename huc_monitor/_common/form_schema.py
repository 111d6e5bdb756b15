"""JSON Schemas of forms, made from the same annotations that write and read them."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Mapping
from datetime import datetime
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from huc_monitor._common.forms import VERSION, stored_key

_PLAIN: Mapping[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
    type(None): {"type": "null"},
}
_FIELDS = re.compile(r"(?:Parameters|Attributes)\n-{10}\n(.*?)(?:\n\n\S|\Z)", re.DOTALL)


class SchemaMaker:
    """Makes schemas; what has a name is described once, in `definitions`.

    Examples
    --------
    >>> maker = SchemaMaker()
    >>> maker.of(tuple[int, ...] | None)
    {'anyOf': [{'type': 'array', 'items': {'type': 'integer'}}, {'type': 'null'}]}
    """

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """Describe what values of an annotation are written as."""
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        origin, inner = get_origin(kind), get_args(kind)
        if origin is NotRequired:
            return self.of(inner[0])
        if origin is Annotated:  # a number that may be null
            return {"anyOf": [self.of(inner[0]), {"type": "null"}]}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(one) for one in inner]}
        if origin is Literal:
            return {"enum": list(inner)}
        if origin is tuple and inner[-1] is not Ellipsis:
            return {"type": "array", "prefixItems": [self.of(one) for one in inner]}
        if origin in (tuple, list):
            return {"type": "array", "items": self.of(inner[0])}
        if origin is not None and inspect.isclass(origin) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(inner[1])}
        if is_typeddict(kind) or dataclasses.is_dataclass(kind):
            return self._named(kind)
        return {}

    def _named(self, kind: Any) -> dict[str, Any]:
        name = kind.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # it may hold itself
            hints = get_type_hints(kind, include_extras=True)
            keys = {key: key for key in hints}
            optional = {key for key, hint in hints.items() if get_origin(hint) is NotRequired}
            optional.update(getattr(kind, "sparse", ()))
            if not is_typeddict(kind):
                keys = {field.name: stored_key(field) for field in dataclasses.fields(kind)}
            described = {key: self.of(hints[field]) for field, key in keys.items()}
            required = [key for field, key in keys.items() if field not in optional]
            if getattr(kind, "schema", None) is not None:
                described = {VERSION: {"const": kind.schema}, **described}
            texts = describe_fields(kind)
            for field, key in keys.items():
                if field in texts:
                    described[key] |= {"description": texts[field]}
            summary = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
            self.definitions[name] = {
                "type": "object",
                "description": summary,
                "properties": described,
                "required": required,
            }
        return {"$ref": f"#/$defs/{name}"}


def describe_fields(kind: type) -> dict[str, str]:
    """Return what a class's docstring says first of each of its parameters or attributes.

    Examples
    --------
    >>> class Walk:
    ...     '''A walk.
    ...
    ...     Attributes
    ...     ----------
    ...     start, end : str
    ...         Names of places.
    ...
    ...         What follows an empty line is for readers of the code.
    ...     '''
    >>> describe_fields(Walk)
    {'start': 'Names of places.', 'end': 'Names of places.'}
    """
    texts: dict[str, list[str]] = {}
    names: list[str] = []
    found = _FIELDS.search(inspect.getdoc(kind) or "")
    for line in found[1].splitlines() if found else ():
        if not line.startswith(" "):
            names = line.partition(" : ")[0].split(", ") if line else []
            continue
        for name in names:
            texts.setdefault(name, []).append(line.strip())
    return {name: " ".join(lines) for name, lines in texts.items()}
