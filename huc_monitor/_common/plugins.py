"""Plugins: what installed packages register in groups of entry points."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from huc_monitor.errors import HUCError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NOTHING: Mapping[str, Callable[..., Any]] = {}


def load_plugin(
    group: str, name: str, *, own: Mapping[str, Callable[..., Any]] = _NOTHING
) -> Callable[..., Any]:
    """Load what a package registered under a name; `own` are those that the library brings.

    Raises
    ------
    UnknownNameError
        If there is none of that name; the message lists what is installed.
    MissingExtraError
        If it needs an extra of this library; the message is the command that installs it.

    Examples
    --------
    >>> load_plugin("huc_monitor.engines", "abacus")
    Traceback (most recent call last):
    huc_monitor.errors.UnknownNameError: No 'abacus' is installed in the group
    'huc_monitor.engines'. Choose from 'spark'.
    """
    found = {entry.name: entry for entry in entry_points(group=group)}
    if name in own:
        return own[name]
    if name not in found:
        msg = f"No {name!r} is installed in the group {group!r}. "
        raise UnknownNameError(msg + did_you_mean(name, sorted({*own, *found})))
    try:
        factory: Callable[..., Any] = found[name].load()
    except (ImportError, AttributeError) as error:
        if isinstance(error, HUCError):
            raise
        package = found[name].dist
        by = "" if package is None else f", of the package {package.name} {package.version},"
        msg = f"{name!r} in the group {group!r}{by} cannot be loaded: {error}. Reinstall it."
        raise HUCError(msg) from error
    return factory
