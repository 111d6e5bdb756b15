"""HUC in Evidently: a preset with a metric per node, its bounds, and tests on the tolerance.

Evidently takes seconds to import, so names are loaded when they are first used.
"""

from __future__ import annotations

from huc_monitor._common.extras import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
