"""Other engines than this process: who opens tables and audits windows there."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from huc_monitor.errors import UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from huc_monitor.sources._source import TableSource
    from huc_monitor.sources._table import Table

GROUP = "huc_monitor.engines"


class Engine(Protocol):
    """Opens tables, and sources whose windows it audits itself."""

    def table(self, *, path: str | None, table: str | None, format: str) -> Table:  # noqa: A002
        """Open files, or a table of the engine's catalogue."""
        ...

    def source(self, log: Table, **settings: Any) -> TableSource:
        """Open a source; takes the arguments of `TableSource`."""
        ...


def make_engine(name: str, options: Mapping[str, Any]) -> Engine:
    """Make the engine that an installed package registered under `name`.

    Examples
    --------
    >>> make_engine("abacus", {})
    Traceback (most recent call last):
    huc_monitor.errors.UnknownNameError: `engine` must be an installed engine; got 'abacus'.
    Choose from 'local', 'spark'.
    """
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        remedy = did_you_mean(name, ["local", *sorted(found)])
        msg = f"`engine` must be an installed engine; got {name!r}. {remedy}"
        raise UnknownNameError(msg)
    engine: Engine = found[name].load()(**options)
    return engine
