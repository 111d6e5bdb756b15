"""What docstrings say of fields: for the schemas of settings, and of what commands print."""

from __future__ import annotations

import inspect
import re

_FIELDS = re.compile(r"(?:Parameters|Attributes)\n-{10}\n(.*?)(?:\n\n\S|\Z)", re.DOTALL)


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
