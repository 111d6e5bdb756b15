"""HUC in Evidently: a preset with a metric per node, its bounds, and tests on the tolerance.

Evidently takes seconds to import, so names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from huc_evidently._attachment import DriftAttachment as DriftAttachment
    from huc_evidently._dashboard import add_panels as add_panels
    from huc_evidently._metrics import HUCMoment as HUCMoment
    from huc_evidently._metrics import HUCSummary as HUCSummary
    from huc_evidently._preset import HUCPreset as HUCPreset

_HOME = {
    "DriftAttachment": "_attachment",
    "HUCMoment": "_metrics",
    "HUCPreset": "_preset",
    "HUCSummary": "_metrics",
    "add_panels": "_dashboard",
}
HOST = "evidently"
__all__ = ["DriftAttachment", "HUCMoment", "HUCPreset", "HUCSummary", "add_panels"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    try:
        module = import_module(f"{__name__}.{_HOME[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != HOST:
            raise
        from huc_monitor.errors import MissingExtraError

        raise MissingExtraError.of(HOST, extra=HOST) from error
    return getattr(module, name)
