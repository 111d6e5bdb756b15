"""Write the JSON Schema of what commands print with --json, docs/output.schema.json.

Run: python docs/write_output_schema.py [output.schema.json]
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
import types
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
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

from huc_monitor._common.descriptions import describe_fields
from huc_monitor._common.forms import VERSION, stored_key
from huc_monitor.cli.documents import DOCUMENTS, FleetMember, MonitorDocument, StatusDocument

_PLAIN: Mapping[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
    type(None): {"type": "null"},
}


def output_schema() -> dict[str, Any]:
    """Return the JSON Schema of every document, by command."""
    maker = SchemaMaker()
    found = {name: maker.of(kind) for name, kind in DOCUMENTS.items()}
    # A TypedDict does not know which class it inherits a field from.
    for heir in (StatusDocument, FleetMember):
        fields = maker.definitions[heir.__name__]["properties"]
        for name, text in describe_fields(MonitorDocument).items():
            fields[name]["description"] = text
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What huc-monitor prints with --json",
        "properties": found,
        "$defs": maker.definitions,
    }


class SchemaMaker:
    """Makes schemas; what has a name is described once, in `definitions`."""

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


def main(path: str = "docs/output.schema.json") -> None:
    """Write the file."""
    Path(path).write_text(json.dumps(output_schema(), indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
