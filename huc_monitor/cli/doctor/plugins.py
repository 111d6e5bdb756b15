"""Checks that every plugin of a configuration is installed and has its options and methods."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from huc_monitor.cli.doctor.findings import Diagnosis, guarded, without_password
from huc_monitor.config.opening import (
    open_attachment,
    open_exporter,
    open_notifier,
    open_recalibration_host,
    open_tracker,
)

if TYPE_CHECKING:
    from huc_monitor.config import Config
    from huc_monitor.monitor.ports import Tracker

_MOST_VERSIONS = 5


def look_at_plugins(config: Config) -> Iterator[Diagnosis]:
    """Make each plugin as a check does, and ask it whether it could work; nothing is sent."""
    given = config.settings
    yield from guarded("state", partial(_tracker, config), _tracker_fix(config))
    for name in given.alerts.channels:
        fix = f"correct channels.{name} in the file, or take it out of alerts.channels"
        yield from guarded(f"channel {name}", partial(_channel, config, name), fix)
    others = {"attachment": given.attachments, "exporter": given.exporters}
    for kind, hosts in others.items():
        for name in hosts:
            look = partial(_other, config, kind, name, hosts[name].name)
            yield from guarded(f"{kind} {name}", look, f"correct {kind}s.{name} in the file")
    if config.recalibrates:
        fix = f"repair or update the package that provides {given.tracker.name!r}"
        yield from guarded("recalibration", partial(_recalibration, config), fix)


def _tracker(config: Config) -> Iterator[Diagnosis]:
    tracker = open_tracker(config)
    yield _fine("state", config.settings.tracker.name, tracker.ping())
    fix = "checks and alerts need no registry; recalibrate, promote and rollback do"
    yield from guarded("registry", partial(_registry, config, tracker), fix, "note")


def _registry(config: Config, tracker: Tracker) -> Iterator[Diagnosis]:
    """Say which versions of the model there are and which of them serves."""
    host, name = open_recalibration_host(config, tracker), config.settings.model.name
    if host is None:
        return
    found = host.versions()
    if not found:
        how = "register the model under this name, or let `model` in the file be the one it has"
        yield Diagnosis("registry", "note", f"has no model {name!r}: nothing to recalibrate", how)
        return
    numbers = ", ".join(one.number for one in reversed(found[:_MOST_VERSIONS]))
    roles = [f"{role} is version {one.number}" for one in found for role in one.roles]
    fix = None
    if not any("champion" in one.roles for one in found):
        roles.append("no champion")
        fix = "say which version serves: huc-monitor promote --version N"
    text = f"{name}: version {numbers}; {', '.join(roles)}"
    yield Diagnosis("registry", "note" if fix else "ok", text, fix)


def _tracker_fix(config: Config) -> str:
    if config.settings.tracker.name == "mlflow":
        return "start the server, or correct tracker.settings.tracking_uri or MLFLOW_TRACKING_URI"
    return "correct tracker or state in the file"


def _channel(config: Config, name: str) -> Iterator[Diagnosis]:
    open_notifier(config, name)
    yield _fine(f"channel {name}", config.settings.channels[name].name)


def _other(config: Config, kind: str, name: str, plugin: str) -> Iterator[Diagnosis]:
    opened = open_attachment if kind == "attachment" else open_exporter
    yield _fine(f"{kind} {name}", plugin, opened(config, name).ping())


def _recalibration(config: Config) -> Iterator[Diagnosis]:
    tracker = config.settings.tracker.name
    host = open_recalibration_host(config, open_tracker(config))
    if host is not None:
        fix = "correct the tree or the registered model, or set recalibration.enabled: false"
        yield from guarded(
            "recalibration", lambda: iter([_fine("recalibration", tracker, host.ping())]), fix
        )
        return
    text = f"the tracker {tracker!r} keeps no model versions: nothing acts on a trigger"
    fix = "write tracker: mlflow, or set recalibration.enabled: false"
    yield Diagnosis("recalibration", "note", text, fix)


def _fine(check: str, plugin: str, says: str = "") -> Diagnosis:
    return Diagnosis(check, "ok", without_password(f"{plugin} {says}".rstrip()))
