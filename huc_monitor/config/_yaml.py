"""YAML that remembers where everything was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError

from huc_monitor._common.explaining import sentence, written
from huc_monitor.errors import InvalidInputError

MAX_CHARACTERS: Final = 2**20
_MAX_DEPTH: Final = 30


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
        What it says, as it is written.
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

    def explain(self, error: ValidationError, model: type[BaseModel]) -> ConfigError:
        """Return one error with a line for everything that is wrong, in the order of the file."""
        lines: dict[str, tuple[int, int]] = {}
        for finding in error.errors(include_url=False):
            path = _written_path(finding, self.content)
            place = self.place(path)
            row, column = place.rsplit(":", 2)[1:]
            line = f"{place}: {sentence(finding, path, model, whole=self.name)}"
            lines.setdefault(line, (int(row), int(column)))
        return ConfigError("\n".join(sorted(lines, key=lambda line: lines[line])))


def read_document(text: str, *, name: str) -> Document:
    """Parse YAML (or JSON) text; anchors and repeated keys are errors."""
    if len(text) > MAX_CHARACTERS:
        msg = f"{name}: must have at most {MAX_CHARACTERS:,} characters; got {len(text):,}."
        raise ConfigError(msg)
    return Document(name, *_compose(text, name))


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


def _written_path(finding: Any, content: Any) -> tuple[str | int, ...]:
    """Leave out the steps that pydantic adds for unions; they are in no file."""
    path: list[str | int] = []
    for step in finding["loc"]:
        if isinstance(content, dict):
            inside = step in content
        else:
            inside = isinstance(content, list) and isinstance(step, int) and step < len(content)
        if inside:
            content = content[step]
            path.append(step)
    return (*path, finding["loc"][-1]) if finding["type"] == "missing" else tuple(path)
