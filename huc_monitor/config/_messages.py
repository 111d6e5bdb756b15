"""Turn pydantic's findings into lines that say where, what, and what would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from huc_monitor.config._settings import Settings
from huc_monitor.config._yaml import ConfigError, is_secret, written
from huc_monitor.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from huc_monitor.config._yaml import Document

_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping of settings",
    "tuple_type": "a list",
    "list_type": "a list",
    "finite_number": "a finite number",
}
_LIMITS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def explain(error: ValidationError, document: Document) -> ConfigError:
    """Return one error with a line for every finding, in the order of the file."""
    lines: dict[str, tuple[int, int]] = {}
    for finding in error.errors(include_url=False):
        path = _written_path(finding["loc"], document.content)
        line = f"{document.place(path)}: {_sentence(finding, path)}"
        row, column = document.place(path).rsplit(":", 2)[1:]
        lines.setdefault(line, (int(row), int(column)))
    return ConfigError("\n".join(sorted(lines, key=lambda line: lines[line])))


def _written_path(location: Sequence[str | int], content: Any) -> tuple[str | int, ...]:
    """Leave out the steps that pydantic adds for unions; they are in no file."""
    path: list[str | int] = []
    for i, step in enumerate(location):
        last = i == len(location) - 1
        if isinstance(content, dict):
            if step in content:
                content = content[step]
                path.append(step)
            elif last and isinstance(step, str) and not step.startswith(("function-", "constr")):
                path.append(step)
        elif isinstance(content, list | tuple) and isinstance(step, int) and step < len(content):
            content = content[step]
            path.append(step)
    return tuple(path)


def _sentence(finding: Any, path: tuple[str | int, ...]) -> str:
    name, kind, context = written(path) or "the file", finding["type"], finding.get("ctx", {})
    got = "" if is_secret(path) else f"; got {_short(finding['input'])}"
    if kind == "extra_forbidden":
        choices = sorted(_keys(path[:-1]))
        where = f"of `{written(path[:-1])}`" if len(path) > 1 else "of this file"
        remedy = did_you_mean(path[-1], choices, limit=30)
        return f"`{name}` is not a setting {where}. {remedy}"
    if kind == "missing":
        return f"`{name}` must be given{_purpose(path)}."
    if kind == "literal_error":
        return f"`{name}` must be {context['expected']}{got}."
    if kind == "value_error":
        return f"`{name}` {_rule(str(context['error']), name)}."
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"`{name}` must be {words} {context[key]:g}{got}."
    if kind == "string_pattern_mismatch":
        examples = _examples(path)
        return f"`{name}` must look like {examples or context['pattern']}{got}."
    if kind == "string_too_short":
        return f"`{name}` must not be empty."
    if kind in _KINDS:
        quote = ". Put it in quotes" if kind == "string_type" and got else ""
        return f"`{name}` must be {_KINDS[kind]}{got}{quote}."
    return f"`{name}`: {finding['msg']}{got}."


def _rule(text: str, name: str) -> str:
    """Take the rule out of an error that names its argument in its own way."""
    for argument in ("span", "time", "time_zone"):
        text = text.removeprefix(f"`{argument}` ")
    return text.removeprefix(f"`{name}` ").rstrip(".")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _model_at(path: Sequence[str | int]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = Settings
    for step in path:
        if model is None:
            return None
        if isinstance(step, int):
            continue
        field = _fields(model).get(step)
        if field is None:
            continue  # a key of the user's own, such as the name of a channel
        model = _model_in(field.annotation)
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        found = _model_in(inner)
        if found is not None:
            return found
    return None


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _keys(path: Sequence[str | int]) -> list[str]:
    model = _model_at(path)
    return [] if model is None else list(_fields(model))


def _field_at(path: Sequence[str | int]) -> Any:
    model = _model_at(path[:-1])
    return None if model is None or not path else _fields(model).get(str(path[-1]))


def _purpose(path: Sequence[str | int]) -> str:
    field = _field_at(path)
    text = field.description if field is not None else None
    return f": {text[0].lower()}{text[1:].rstrip('.')}" if text else ""


def _examples(path: Sequence[str | int]) -> str:
    field = _field_at(path)
    found = getattr(field, "examples", None) or _metadata_examples(field)
    return " or ".join(repr(example) for example in found or [])


def _metadata_examples(field: Any) -> list[Any]:
    schema = getattr(field, "annotation", None)
    for inner in (schema, *get_args(schema)):
        for extra in getattr(inner, "__metadata__", ()):
            if getattr(extra, "examples", None):
                return list(extra.examples)
    return []
