"""The label tree: building it, its files, its shape, and labels as leaf codes."""

from __future__ import annotations

from huc_monitor.tree._tree import LabelTree
from huc_monitor.tree.labels import Labels

__all__ = ["LabelTree", "Labels"]
