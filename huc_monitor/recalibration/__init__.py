"""The repair: scalings, boosting branch by branch, and replay of its updates on new rows."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from huc_monitor.recalibration._contract import Scaling

__all__ = ["Scaling"]

_HOME = {
    "Scaling": "_contract",
}

if not TYPE_CHECKING:  # loaded on first use, as in the package above

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
