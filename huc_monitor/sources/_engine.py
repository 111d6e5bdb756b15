"""What another engine, such as Spark, must offer: it opens tables and audits windows.

Packages register them in the group ``huc_monitor.engines`` of entry points, as the plugins of
`huc_monitor.monitor.ports`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from huc_monitor.sources._table import Table

if TYPE_CHECKING:
    from huc_monitor.sources._source import TableSource


class Engine(Protocol):
    """Opens tables, and sources whose windows it audits itself."""

    def table(self, *, path: str | None, table: str | None, format: str) -> Table:  # noqa: A002
        """Open files, or a table of the engine's catalogue."""

    def source(self, log: Table, **settings: Any) -> TableSource:
        """Open a source; takes the arguments of `TableSource`."""
