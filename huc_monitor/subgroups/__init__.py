"""Subgroups: rows that are audited on their own, named by columns, predicates and rules."""

from __future__ import annotations

from huc_monitor.subgroups._memberships import WORD, Cells, Memberships, Words
from huc_monitor.subgroups._subgroups import MIN_SIZE, Subgroups

__all__ = ["MIN_SIZE", "WORD", "Cells", "Memberships", "Subgroups", "Words"]
