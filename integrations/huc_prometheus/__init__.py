"""HUC in Prometheus: gauges with a bounded number of series, scraped, pushed or as a text file.

``python -m huc_prometheus rules`` and ``dashboard`` print alert rules and a Grafana dashboard.
"""

from __future__ import annotations

from huc_monitor._common.extras import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
