"""Sources: prediction logs and their labels, read one range of time after the other."""

from __future__ import annotations

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
