"""Write a label tree as text: a drawing for people, paths for files."""

from __future__ import annotations

from collections.abc import Sequence

from huc_monitor.errors import InvalidInputError
from huc_monitor.tree.shape import Shape


def render(names: Sequence[str], shape: Shape, max_depth: int | None) -> str:
    """Draw one node per line; at `max_depth`, count the leaves instead of drawing them."""
    lines: list[str] = []
    stack = [(0, "", "")]
    while stack:
        position, lead, indent = stack.pop()
        below = shape.below[position]
        line = lead + names[position]
        if below and max_depth is not None and shape.depths[position] >= max_depth:
            start, stop = shape.slices[position]
            line += f" ({stop - start} {'leaf' if stop - start == 1 else 'leaves'})"
            below = []
        lines.append(line)
        for child in reversed(below):
            corner, rule = ("└── ", "    ") if child == below[-1] else ("├── ", "│   ")
            stack.append((child, indent + corner, indent + rule))
    return "\n".join(lines)


def paths(names: Sequence[str], parents: Sequence[int], sep: str) -> list[str]:
    """Return the path of every node below the root, empty for the root itself."""
    found = [""] * len(names)
    for position in range(1, len(names)):
        above = found[parents[position]]
        label = _last_label(names[position], above, sep)
        if not sep or sep in label:
            msg = (
                f"`sep` must be a string that is in no name; got {sep!r}, and there is {label!r}. "
                "Pass another `sep`."
            )
            raise InvalidInputError(msg)
        found[position] = f"{above}{sep}{label}" if above else label
    return found


def _last_label(name: str, above: str, sep: str) -> str:
    """Return what `name` adds to the path `above`, whose end it may repeat."""
    cut = name.rfind(sep)
    while cut > 0:
        if f"{sep}{above}".endswith(f"{sep}{name[:cut]}"):
            return name[cut + len(sep) :]
        cut = name.rfind(sep, 0, cut)
    return name
