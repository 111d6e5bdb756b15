"""YAML that remembers where everything was written."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from huc_monitor.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_CHARACTERS: Final = 2**20
_MAX_DEPTH: Final = 30
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# Where secrets can be, and the keys there that hold them.
_SECRET_SECTIONS: Final = ("source", "channels", "tracker")
_SECRETS: Final = ("url", "secrets")


class ConfigError(InvalidInputError):
    """A configuration file is wrong; every line of the message says where, and what would do."""


class _Loader(yaml.SafeLoader):
    """The safe loader, except that only true and false are booleans and dates stay text.

    YAML 1.1 reads ``no`` as false and ``2024-01-01`` as a date; leaves are called "no", and a date
    must keep meaning midnight in the zone of the windows.
    """


_PLAIN: Final = {"tag:yaml.org,2002:bool": "tTfF", "tag:yaml.org,2002:timestamp": ""}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in rules if tag not in _PLAIN or first in _PLAIN[tag]]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """The content of a file, and the place of every key in it.

    Attributes
    ----------
    name : str
        Of the file, for messages.
    content : dict
        What it says; environment variables in secrets are filled in.
    """

    name: str
    content: dict[str, Any]
    _node: yaml.MappingNode

    def place(self, path: Sequence[str | int]) -> str:
        """Return ``file:line:column`` of a key, or of the nearest one above it."""
        node: yaml.Node = self._node
        mark = node.start_mark
        for step in path:
            if isinstance(node, yaml.MappingNode):
                found = [(k, v) for k, v in node.value if k.value == str(step)]
                if not found:
                    continue
                mark, node = found[0][0].start_mark, found[0][1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                if step >= len(node.value):
                    break
                node = node.value[step]
                mark = node.start_mark
        return f"{self.name}:{mark.line + 1}:{mark.column + 1}"

    def error(self, path: Sequence[str | int], text: str) -> ConfigError:
        """Return the error for one key."""
        return ConfigError(f"{self.place(path)}: `{written(path)}` {text}")


def written(path: Sequence[str | int]) -> str:
    """Write a path as ``windows.length`` or ``utilities[1].k``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def read_document(text: str, *, name: str, environ: Mapping[str, str] | None = None) -> Document:
    """Parse YAML (or JSON) text; anchors, repeated keys and unset variables are errors."""
    if len(text) > MAX_CHARACTERS:
        msg = f"{name}: must have at most {MAX_CHARACTERS:,} characters; got {len(text):,}."
        raise ConfigError(msg)
    content, node = _compose(text, name)
    document = Document(name, content, node)
    problems: list[str] = []
    _fill_in(content, (), os.environ if environ is None else environ, document, problems)
    if problems:
        raise ConfigError("\n".join(problems))
    return document


def _compose(text: str, name: str) -> tuple[dict[str, Any], yaml.MappingNode]:
    """Parse text into its content and the nodes that know their places."""
    try:
        depth = 0
        for event in yaml.parse(text, _Loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                msg = f"{name}: must not nest more than {_MAX_DEPTH} levels of settings."
                raise ConfigError(msg)
            if isinstance(event, yaml.AliasEvent):
                mark = event.start_mark
                line = mark.line + 1 if mark else 1
                msg = f"{name}:{line}: aliases (*{event.anchor}) are not supported; write it out."
                raise ConfigError(msg)
        node = yaml.compose(text, _Loader)
        if not isinstance(node, yaml.MappingNode):
            msg = f"{name}:1:1: must be a mapping of settings such as `model: my_model`."
            raise ConfigError(msg)
        _refuse_repeats(node, name)
        content: dict[str, Any] = _Loader("").construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        msg = f"{name}{where}: must be valid YAML; {error.problem or error.context}."
        raise ConfigError(msg) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        msg = f"{name}: must be valid YAML; {' '.join(str(error).split())}."
        raise ConfigError(msg) from None
    return content, node


def _refuse_repeats(node: yaml.Node, name: str) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                mark = key.start_mark
                msg = f"{name}:{mark.line + 1}:{mark.column + 1}: {key.value!r} is there twice."
                raise ConfigError(msg)
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
            _refuse_repeats(value, name)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_repeats(value, name)


def is_secret(path: Sequence[str | int]) -> bool:
    """Whether what is written at a path must never be shown."""
    return path[:1] != () and path[0] in _SECRET_SECTIONS and any(s in _SECRETS for s in path)


def _fill_in(
    value: Any,
    path: tuple[str | int, ...],
    environ: Mapping[str, str],
    document: Document,
    problems: list[str],
) -> Any:
    """Replace ``${NAME}`` in secrets, in place, and note the variables that are not set."""
    if isinstance(value, dict):
        for key in value:
            value[key] = _fill_in(value[key], (*path, key), environ, document, problems)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            value[i] = _fill_in(item, (*path, i), environ, document, problems)
    elif isinstance(value, str) and is_secret(path):
        missing = [name for name in _VARIABLE.findall(value) if name not in environ]
        problems += [
            f"{document.place(path)}: `{written(path)}` needs the environment variable {name}, "
            f"which is not set. Set it: export {name}=..."
            for name in missing
        ]
        return _VARIABLE.sub(lambda found: environ.get(found[1], ""), value)
    return value
