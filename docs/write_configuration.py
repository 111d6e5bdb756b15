"""Write the reference of huc.yaml, docs/configuration.md, from its JSON Schema.

Run: python docs/write_configuration.py [configuration.md]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huc_monitor.config import config_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = """\
# Configuration

Every setting of `huc.yaml`, written by `docs/write_configuration.py` from the schema that
`huc-monitor init --schema` prints. A setting of a section must be given only if the section is.
Paths are relative to the file. `${NAME}` is an environment variable, in `url` and `secrets` only.
"""
NAMES = {"string": "text", "integer": "whole number", "boolean": "true or false"}


def render(schema: dict[str, Any]) -> str:
    """Return the reference as Markdown: one table per section of the file."""
    parts = [HEAD]
    plain = [_row(name, node, schema, schema) for name, node in _leaves(schema, schema)]
    parts.append("\n".join(["## At the top", "", *_table(plain)]))
    for name, node in schema["properties"].items():
        sections = [] if node.get("deprecated") else _sections(node, schema)
        if sections:
            parts.append(f"## `{name}`")
        for section in sections:
            about = _about(node) or section.get("description", "")
            short = _short(node)
            if short:
                about += f" Short form: {short}."
            parts.append("\n".join([about, "", *_table(list(_rows(section, schema, "")))]))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _about(node: dict[str, Any]) -> str:
    """Return what is said of a node itself, or of one of the forms it may take."""
    texts = [option.get("description", "") for option in (node, *_options(node))]
    return next((text for text in texts if text), "")


def _table(rows: list[str]) -> list[str]:
    return ["| setting | value | default | meaning |", "|---|---|---|---|", *rows]


def _leaves(owner: dict[str, Any], schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, node in owner["properties"].items():
        if not _sections(node, schema):
            yield name, node


def _rows(owner: dict[str, Any], schema: dict[str, Any], before: str) -> Iterator[str]:
    for name, node in owner["properties"].items():
        path = f"{before}{name}"
        section = next(iter(_sections(node, schema)), None)
        if node.get("deprecated"):
            continue
        if section is None:
            yield _row(path, node, owner, schema)
        else:
            about = node.get("description") or section.get("description", "")
            yield f"| `{path}` | section | {_default(name, node, owner)} | {_cell(about)} |"
            yield from _rows(section, schema, f"{path}.")


def _row(path: str, node: dict[str, Any], owner: dict[str, Any], schema: dict[str, Any]) -> str:
    meaning = node.get("description", "")
    examples = [json.dumps(e) if not isinstance(e, str) else e for e in _examples(node)]
    if examples:
        meaning += f" Such as {', '.join(f'`{e}`' for e in examples)}."
    name = path.rsplit(".", 1)[-1]
    cells = (f"`{path}`", _kind(node, schema), _default(name, node, owner), meaning.strip())
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _options(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a node may be, without null."""
    found = node.get("anyOf") or node.get("oneOf") or [node]
    return [option for option in found if option.get("type") != "null"]


def _sections(node: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the sections that a node refers to, if it does; sections by name count as well."""
    inner = node.get("additionalProperties")
    options = [*_options(node), *(_options(inner) if isinstance(inner, dict) else [])]
    nested = [part for option in options for part in _options(option)]
    names = [part["$ref"].rsplit("/", 1)[-1] for part in nested if "$ref" in part]
    return [schema["$defs"][name] for name in names]


def _short(node: dict[str, Any]) -> str:
    """Say what may stand for a whole section."""
    return " or ".join(
        {"string": "its name alone", "number": "a number alone"}[option["type"]]
        for option in _options(node)
        if option.get("type") in {"string", "number"}
    )


def _kind(node: dict[str, Any], schema: dict[str, Any]) -> str:
    kinds = []
    for option in _options(node):
        if "enum" in option or "const" in option:
            kinds += [f"`{value}`" for value in option.get("enum", [option.get("const")])]
        elif option.get("type") == "array":
            item = option.get("items", {})
            if "$ref" in item:
                inner = schema["$defs"][item["$ref"].rsplit("/", 1)[-1]]["properties"]
                kinds.append(f"list of {{{', '.join(inner)}}}")
            else:
                kinds.append("list")
        elif option.get("type") == "object":
            kinds.append("mapping")
        else:
            name = option.get("type", "anything")
            kinds.append(NAMES.get(name, name) + _range(option))
    return " or ".join(kinds) if len(kinds) < 3 else f"one of {', '.join(kinds)}"


def _range(option: dict[str, Any]) -> str:
    low, high = option.get("minimum"), option.get("maximum")
    above, below = option.get("exclusiveMinimum"), option.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    if above is not None and below is not None:
        return f" between {above:g} and {below:g}"
    return "" if low is None else f" from {low:g}"


def _examples(node: dict[str, Any]) -> list[Any]:
    found = list(node.get("examples", []))
    for option in _options(node):
        if option is not node:
            found += option.get("examples", [])
    return found


def _default(name: str, node: dict[str, Any], owner: dict[str, Any]) -> str:
    if name in owner.get("required", []):
        return "must be given"
    value = node.get("default")
    if isinstance(value, dict) or value is None or value == []:
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main(path: str = "docs/configuration.md") -> None:
    """Write the page."""
    Path(path).write_text(render(config_schema()), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
