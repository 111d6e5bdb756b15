"""huc-monitor in MLflow: recalibrated models, their registry, monitor runs and an evaluator.

Importing MLflow takes seconds, so names are loaded when they are first used.
"""

from __future__ import annotations

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
