"""Read what ``--utility`` and ``--subgroup`` say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from huc_monitor.errors import InvalidInputError
from huc_monitor.utilities import (
    GreedyPathCorrectness,
    LevelCorrectness,
    SubtreeIndicator,
    TopK,
    Utility,
    correct_at_every_level,
)

if TYPE_CHECKING:
    from huc_monitor.tree import LabelTree


def _level(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _count(text: str) -> int:
    if not text.isdecimal():
        msg = f"`--utility top:K` must have a whole number K; got {text!r}."
        raise InvalidInputError(msg)
    return int(text)


_SHORT: Mapping[str, Callable[[str], Utility]] = {
    "level": lambda text: LevelCorrectness(level=_level(text)),
    "path": lambda text: GreedyPathCorrectness(level=_level(text)),
    "top": lambda text: TopK(_count(text)),
    "in": lambda text: SubtreeIndicator(node=text),
}


def parse_utilities(given: Iterable[str], tree: LabelTree) -> list[Utility]:
    """Return the utilities that `given` describes, or correctness at every level of the tree.

    Examples
    --------
    >>> import huc_monitor as hm
    >>> tree = hm.LabelTree.from_nested({"cat": ["lion", "lynx"], "dog": None})
    >>> parse_utilities([], tree)
    [LevelCorrectness(level=1), LevelCorrectness(level=2)]
    >>> parse_utilities(["top:2", "in:cat"], tree)
    [TopK(k=2), SubtreeIndicator(node='cat')]
    """
    utilities = [utility for text in given for utility in _parse_utility(text)]
    return utilities or list(correct_at_every_level(tree))


def _parse_utility(text: str) -> list[Utility]:
    kind, colon, argument = text.partition(":")
    if colon and argument and kind in _SHORT:
        return [_SHORT[kind](argument)]
    if text.lstrip().startswith("{"):
        return [_from_mapping(_load(text, where="--utility"), where="--utility")]
    if text.lower().endswith((".yaml", ".yml", ".json")):
        content = _load(Path(text).read_text("utf-8"), where=text)
        listed = content if isinstance(content, list) else [content]
        return [_from_mapping(entry, where=text) for entry in listed]
    msg = (
        f"`--utility` must be one of {', '.join(f'{kind}:...' for kind in _SHORT)}, a .yaml or "
        f".json file, or a JSON object; got {text!r}."
    )
    raise InvalidInputError(msg)


def _load(text: str, *, where: str) -> Any:
    try:
        return yaml.safe_load(text)  # JSON is YAML too
    except yaml.YAMLError as error:
        msg = f"`{where}` must hold YAML or JSON; {error}"
        raise InvalidInputError(msg) from error


def _from_mapping(entry: object, *, where: str) -> Utility:
    if not isinstance(entry, Mapping):
        msg = f"`{where}` must hold utilities such as {{type: TopK, k: 3}}; got {entry!r}."
        raise InvalidInputError(msg)
    return Utility.from_dict(entry)


def parse_subgroups(given: Iterable[str]) -> dict[str, Any]:
    """Return the rules that `given` describes, by column.

    Examples
    --------
    >>> parse_subgroups(["sex=each", "age=65,80"])
    {'sex': 'each', 'age': [65.0, 80.0]}
    """
    rules: dict[str, Any] = {}
    for text in given:
        column, equals, rule = text.partition("=")
        if not (column and equals and rule):
            msg = (
                f"`--subgroup` must read COLUMN=each, COLUMN=median or COLUMN=65,80; got {text!r}."
            )
            raise InvalidInputError(msg)
        if column in rules:
            msg = f"`--subgroup` must name a column once; got {column!r} twice."
            raise InvalidInputError(msg)
        rules[column] = rule if rule in {"each", "median"} else _cut_points(rule, text)
    return rules


def _cut_points(rule: str, text: str) -> list[float]:
    try:
        return [float(part) for part in rule.split(",")]
    except ValueError:
        msg = (
            f"`--subgroup` must end in 'each', 'median' or numbers with commas between; "
            f"got {text!r}."
        )
        raise InvalidInputError(msg) from None
