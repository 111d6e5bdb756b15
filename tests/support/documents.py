"""Whether what a command printed with --json is what its schema says."""

from __future__ import annotations

from typing import Any

import jsonschema

from support.pages import load_script

output_schema = load_script("docs/write_output_schema.py").output_schema


def assert_follows(name: str, document: Any) -> None:
    """Compare a document with the schema of its command."""
    schema = output_schema()
    checked = {**schema, "properties": {name: schema["properties"][name]}, "required": [name]}
    jsonschema.validate({name: document}, checked)
