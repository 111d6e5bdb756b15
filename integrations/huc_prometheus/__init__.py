"""HUC in Prometheus: gauges with a bounded number of series, scraped, pushed or as a text file.

``python -m huc_prometheus rules`` and ``dashboard`` print alert rules and a Grafana dashboard.
"""

from __future__ import annotations

from importlib import import_module, resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from huc_prometheus._exporter import PrometheusExporter as PrometheusExporter

HOST = "prometheus_client"
__all__ = ["PrometheusExporter", "dashboard", "rules"]


def rules() -> str:
    """Return the alert rules, for ``rule_files`` of Prometheus.

    Examples
    --------
    >>> rules().splitlines()[-1] != "" and "alert: HUCBranchCritical" in rules()
    True
    """
    return _read("rules.yaml")


def dashboard() -> str:
    """Return the dashboard as JSON, to import or to provision in Grafana.

    Examples
    --------
    >>> import json
    >>> json.loads(dashboard())["title"]
    'Utility calibration by branch'
    """
    return _read("dashboard.json")


def _read(name: str) -> str:
    return (resources.files(__name__) / name).read_text("utf-8")


def __getattr__(name: str) -> Any:
    if name != "PrometheusExporter":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    try:
        module = import_module(f"{__name__}._exporter")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != HOST:
            raise
        from huc_monitor.errors import MissingExtraError

        raise MissingExtraError.of(HOST, extra="prometheus") from error
    return getattr(module, name)
