"""Plugins: what installed packages register in groups of entry points.

Every factory is called alike, ``factory(info, **options)``, after its options were compared with
its signature; what it makes is compared with the protocol of its group. So a plugin that cannot
do its work is told when it is opened, not when it is first needed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from inspect import Parameter
from typing import Any

from huc_monitor.errors import HUCError, InvalidInputError, UnknownNameError, did_you_mean

_NOTHING: Mapping[str, Any] = {}
_MISSING = object()
_BY_NAME = {Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD}  # of the latter, any name will do


def plugin_names(group: str) -> list[str]:
    """Return the names that installed packages registered in a group.

    Examples
    --------
    >>> plugin_names("huc_monitor.notifiers")
    ['apprise', 'webhook']
    """
    return sorted(entry_points(group=group).names)


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
    if name in own:
        return own[name]
    known = plugin_names(group)
    if name not in known:
        msg = f"No {name!r} is installed in the group {group!r}. "
        raise UnknownNameError(msg + did_you_mean(name, [*own, *known]))
    entry, *_ = entry_points(group=group, name=name)
    try:
        factory: Callable[..., Any] = entry.load()
    except HUCError:
        raise
    except (ImportError, AttributeError) as error:
        package = entry.dist
        by = "" if package is None else f" of the package {package.name} {package.version}"
        msg = f"The plugin {name!r}{by} cannot be loaded: {error}. Reinstall or repair it."
        raise HUCError(msg) from error
    return factory


def make_plugin(
    group: str,
    name: str,
    protocol: type,
    info: Any,
    options: Mapping[str, Any] = _NOTHING,
    *,
    role: str,
    own: Mapping[str, Callable[..., Any]] = _NOTHING,
) -> Any:
    """Load a plugin and call it as ``factory(info, **options)``.

    Parameters
    ----------
    group, name, own
        As in `load_plugin`.
    protocol : type
        What the result must be able to do.
    info : MonitorInfo
        Whom it is for.
    options : dict
        The plugin's own.
    role : str
        What messages call it, such as "channel ops".
    """
    factory = load_plugin(group, name, own=own)
    _check_options(factory, options, f"The plugin {name!r} for the {role}")
    plugin = factory(info, **options)
    check_plugin(plugin, protocol, role=role)
    return plugin


def _check_options(factory: Callable[..., Any], options: Mapping[str, Any], who: str) -> None:
    """Compare options with a factory's signature. Their values, maybe secret, are not shown."""
    parameters = list(inspect.signature(factory).parameters.values())
    first = parameters[0] if parameters else None
    if first is None or first.kind is Parameter.KEYWORD_ONLY or first.name in options:
        msg = f"{who} must be made by factory(info, **options); its first argument is not `info`."
        raise InvalidInputError(msg)
    known = [p for p in parameters[1:] if p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}]
    names = [p.name for p in known]
    if not any(p.kind is Parameter.VAR_KEYWORD for p in parameters):
        for name in options:
            if name not in names:
                msg = f"{who} has no option {name!r}. {did_you_mean(name, names)}"
                raise UnknownNameError(msg)
    for p in known:
        if p.default is Parameter.empty and p.name not in options:
            msg = f"{who} needs the option {p.name!r}. Add it to `settings` or `secrets`."
            raise InvalidInputError(msg)


def check_plugin(plugin: object, protocol: type, *, role: str | None = None) -> None:
    """Check that an object has what a protocol asks for; for plugin authors' own tests as well.

    Methods must be there and take the arguments that the library calls them with. What they do is
    not looked at, and none is called.

    Raises
    ------
    InvalidInputError
        Naming everything that is missing.

    Examples
    --------
    >>> from huc_monitor.monitor.ports import Notifier, check_plugin
    >>> class Pigeon:
    ...     def send(self): ...
    >>> check_plugin(Pigeon(), Notifier, role="channel ops")
    Traceback (most recent call last):
    huc_monitor.errors.InvalidInputError: The channel ops, a `Pigeon`, is no Notifier: its
    send() must take (message).
    """
    faults = list(_faults(plugin, protocol))
    if faults:
        who = f"A `{type(plugin).__name__}`"
        who = who if role is None else f"The {role}, a{who[1:]},"
        msg = f"{who} is no {protocol.__name__}: {'; '.join(faults)}."
        raise InvalidInputError(msg)


def _faults(plugin: object, protocol: type) -> Iterator[str]:
    members = {name: item for part in protocol.__mro__ for name, item in vars(part).items()}
    for name, member in members.items():
        if name.startswith("_") and name != "__call__":
            continue
        found = inspect.getattr_static(plugin, name, _MISSING)
        if isinstance(member, property):
            if found is _MISSING:
                yield f"it has no attribute {name}"
        elif inspect.isfunction(member):
            wanted = list(inspect.signature(member).parameters.values())[1:]
            if found is _MISSING or not callable(method := getattr(plugin, name)):
                yield f"it has no method {name}({_shown(wanted)})"
            elif not _takes(method, wanted):
                yield f"its {name}() must take ({_shown(wanted)})"


def _takes(method: Callable[..., Any], wanted: list[Parameter]) -> bool:
    """Whether a method can be called with all arguments, and with those that must be given."""
    required = [p for p in wanted if p.default is Parameter.empty]
    try:
        for given in (wanted, required):
            positional = [p.name for p in given if p.kind not in _BY_NAME]
            named = {p.name: None for p in given if p.kind in _BY_NAME}
            inspect.signature(method).bind(*positional, **named)
    except TypeError:
        return False
    return True


def _shown(wanted: list[Parameter]) -> str:
    return ", ".join(p.name for p in wanted)
