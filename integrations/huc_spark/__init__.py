"""The audit on Spark: the same arguments, the same kernels, the same answer.

Names are loaded when they are first used: a process on an executor needs few of them.
"""

from __future__ import annotations

from huc_monitor._common.extras import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
