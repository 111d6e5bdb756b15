"""Recalibration: scalings, boosting branch by branch, and replay of updates on new rows."""

from __future__ import annotations

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
