"""Turn pydantic's findings into sentences that name the setting, the rule, the value, a remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, Final, get_args

from pydantic import AliasChoices, BaseModel, SecretStr, ValidationError

from huc_monitor.errors import InvalidInputError, UnknownNameError, did_you_mean

_KINDS: Final = {
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
_LIMITS: Final = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def as_argument_error(error: ValidationError, model: type[BaseModel]) -> InvalidInputError:
    """Return the library's own error for arguments that break a rule."""
    findings = error.errors(include_url=False)
    lines = dict.fromkeys(
        sentence(finding, _without_union_steps(finding["loc"]), model) for finding in findings
    )
    unknown = all(finding["type"] in {"literal_error", "extra_forbidden"} for finding in findings)
    kind = UnknownNameError if unknown else InvalidInputError
    return kind("\n".join(lines))


def written(path: Sequence[str | int]) -> str:
    """Write a path as ``windows.length`` or ``utilities[1].k``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def sentence(
    finding: Any, path: Sequence[str | int], model: type[BaseModel], whole: str = ""
) -> str:
    """Say what is wrong at a path of `model`, without the value where that may be a secret.

    `whole` is what people call all of it, such as a file.
    """
    name, kind, context = written(path) or model.__name__, finding["type"], finding.get("ctx", {})
    declared, _ = _find(model, path)
    secret = declared is not None and _holds_secret(declared.annotation)
    got = "" if secret else f"; got {_short(finding['input'])}"
    if kind == "extra_forbidden":
        choices = sorted(_keys(_find(model, path[:-1])[1]))
        where = f"of `{written(path[:-1]) or whole or model.__name__}`"
        remedy = did_you_mean(path[-1], choices, limit=30)
        return f"`{name}` is not a setting {where}. {remedy}"
    if kind == "missing":
        return f"`{name}` must be given{_purpose(declared)}."
    if kind == "literal_error":
        return f"`{name}` must be {context['expected']}{got}."
    if kind == "value_error":
        return f"{_ruled(str(context['error']), path, model)}."
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"`{name}` must be {words} {context[key]:g}{got}."
    if kind == "string_pattern_mismatch":
        return f"`{name}` must look like {_examples(declared) or context['pattern']}{got}."
    if kind == "string_too_short":
        return f"`{name}` must not be empty."
    if kind in _KINDS:
        short = _short_forms(declared) if kind == "model_type" else []
        rule = ", or ".join([*short, _KINDS[kind]])
        quotable = "text" in rule and isinstance(finding["input"], bool | int | float | date)
        quote = ". Put it in quotes" if quotable and got else ""
        return f"`{name}` must be {rule}{got}{quote}."
    return f"`{name}`: {finding['msg']}{got}."


def _without_union_steps(location: Sequence[str | int]) -> tuple[str | int, ...]:
    """Leave out the steps that pydantic adds for the choices of a union."""
    return tuple(
        step
        for step in location
        if isinstance(step, int) or not step.startswith(("function-", "constr", "lax-or-strict"))
    )


def _ruled(text: str, path: Sequence[str | int], model: type[BaseModel]) -> str:
    """Put the name of a setting before a rule, which may name its argument in its own way."""
    name = written(path)
    for argument in ("span", "time", "time_zone", *path[-1:], name):
        text = text.removeprefix(f"`{argument}` ")
    text = text.rstrip(".")
    if not text.startswith("`"):
        return f"`{name or model.__name__}` {text}"
    return text if not name else f"`{name}` cannot be used: {text}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _find(model: type[BaseModel], path: Sequence[str | int]) -> tuple[Any, list[type[BaseModel]]]:
    """Return what is declared at a path, or last on the way to it, and the sections below."""
    declared, below = None, [model]
    for step in path:
        found = [field for owner in below if (field := _fields(owner).get(str(step))) is not None]
        if found:  # else: a place in a list, or a key of the user's own, such as a channel's name
            declared = found[0]
            below = list(models_in(declared.annotation))
    return declared, below


def _purpose(declared: Any) -> str:
    text = None if declared is None else declared.description
    return f": {text[0].lower()}{text[1:].rstrip('.')}" if text else ""


def _examples(declared: Any) -> str:
    """Return values one could write."""
    lists = (getattr(note, "examples", None) for note in (declared, *_notes(declared)))
    found: list[Any] = next(filter(None, lists), [])
    return " or ".join(repr(example) for example in found)


def _short_forms(declared: Any) -> list[str]:
    """Say what may be written instead of a whole section."""
    taken = [getattr(note, "json_schema_input_type", None) for note in _notes(declared)]
    found = []
    for part in (part for union in taken for part in get_args(union)):
        if part is str:
            texts = [one for one in declared.examples or () if isinstance(one, str)]
            found.append(f"text such as {texts[0]!r}" if texts else "its name as text")
        elif get_args(part)[:1] == (float,):
            found.append(f"a number from {part.__metadata__[0].ge:g}")
    return found


def _notes(declared: Any) -> list[Any]:
    """Return what is annotated to a setting, or to one of the types it may have."""
    annotation = getattr(declared, "annotation", None)
    inner = [note for part in get_args(annotation) for note in getattr(part, "__metadata__", ())]
    return [*getattr(declared, "metadata", ()), *getattr(annotation, "__metadata__", ()), *inner]


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Find the sections that a type speaks of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


def _holds_secret(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, SecretStr):
        return True
    models = models_in(annotation)
    nested = [field.annotation for model in models for field in model.model_fields.values()]
    return any(map(_holds_secret, [*get_args(annotation), *nested]))


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """Return the fields by every word that a user may write for them."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        words = alias.choices if isinstance(alias, AliasChoices) else [alias or name]
        found.update({str(word): field for word in words})
    return found


def _keys(models: Sequence[type[BaseModel]]) -> list[str]:
    """Return the words of today, without those that are kept for old files."""
    found: dict[int, str] = {}
    for model in models:
        for word, field in _fields(model).items():
            found.setdefault(id(field), word)
    return list(found.values())
