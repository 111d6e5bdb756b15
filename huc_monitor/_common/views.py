"""How a result shows itself in a notebook without knowing who draws it.

Results live in folders below `reporting`, which the import contract forbids them to import. What
draws them is loaded by name when a notebook asks, as `lazy_loader` loads the package's own names.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_DRAWN_BY = "huc_monitor.reporting.notebook"


class Shown:
    """Base of what shows as HTML in a notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the headline, the tree and the five worst, as self-contained HTML."""
        shown: str = import_module(_DRAWN_BY).show(self)
        return shown


class Plotted(Shown):
    """Base of what can be drawn as well."""

    __slots__ = ()

    def plot(self, kind: str | None = None, **options: Any) -> Any:
        """Return one of the report's pictures, which a notebook shows as SVG.

        Parameters
        ----------
        kind : str, optional
            A key of :func:`huc_monitor.draw_pictures`, such as "icicle" or "moments" of an audit,
            "differences" of a comparison, "segments" of a discovery, "timeline" of a monitor,
            "history" of a recalibrator. An unknown one is refused with those there are.
        **options
            Of :func:`huc_monitor.draw_pictures`: `tree`, `tolerance`, `curve`, `tree_width`.
        """
        return import_module(_DRAWN_BY).plot(self, kind, **options)
