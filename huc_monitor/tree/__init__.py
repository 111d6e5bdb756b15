"""The label tree: building it, its files, its shape, and labels as leaf codes."""

from __future__ import annotations

from huc_monitor.tree._tree import LabelTree

__all__ = ["LabelTree"]
