"""What a docstring of settings promises."""

from __future__ import annotations

import ast
import re
from typing import Any


def documented_defaults(section: type[Any]) -> dict[str, Any]:
    """Read "name : type, default value" from a class's docstring.

    >>> class Example:
    ...     '''Settings.
    ...
    ...     n_windows : int, default 3
    ...     '''
    >>> documented_defaults(Example)
    {'n_windows': 3}
    """
    lines = re.findall(r"^ *(\w+) : .*, default (.+)$", section.__doc__ or "", flags=re.MULTILINE)
    return {name: ast.literal_eval(value) for name, value in lines}


def defaults(section: type[Any]) -> dict[str, Any]:
    """Return what a class of settings takes for what its docstring gives a default of."""
    fields = section.model_fields
    return {name: fields[name].default for name in documented_defaults(section)}
