"""What Prometheus and Grafana load: files that come with the package."""

from __future__ import annotations

from importlib import resources


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
    return (resources.files(__package__) / name).read_text("utf-8")
