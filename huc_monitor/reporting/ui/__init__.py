"""One local web application over any number of monitors, and the same pages as a static site."""

from __future__ import annotations

from huc_monitor.reporting.ui._access import Access, read_token
from huc_monitor.reporting.ui._fleet import Fleet, Watched

__all__ = ["Access", "Fleet", "Watched", "read_token"]
