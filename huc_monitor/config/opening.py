"""From a configuration file to a monitor that is ready to check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from huc_monitor.config import Config
from huc_monitor.config._settings import HostSettings
from huc_monitor.monitor import Monitor
from huc_monitor.monitor.acting import AlertActions
from huc_monitor.monitor.discovering import GrowingSubgroups
from huc_monitor.monitor.hosts import Hosts
from huc_monitor.monitor.messages import NextSteps
from huc_monitor.monitor.ports import (
    Attachment,
    Exporter,
    FilesTracker,
    Notifier,
    RecalibrationHost,
    Tracker,
    make_plugin,
    plugin_names,
)
from huc_monitor.monitor.records import RecalibrationTrigger
from huc_monitor.subgroups import Subgroups

RECALIBRATORS = "huc_monitor.recalibrators"


def open_monitor(
    config: Config | str | Path = "huc.yaml",
    *,
    tracker: Tracker | None = None,
    recalibrate: Callable[[RecalibrationTrigger], None] | None = None,
    exporters: Mapping[str, Exporter] | None = None,
) -> Monitor:
    """Make the monitor that a configuration file describes.

    Parameters
    ----------
    config : Config or path, default "huc.yaml"
    tracker : Tracker, optional
        Instead of the one the file names.
    recalibrate : callable, optional
        Gets triggers instead of the recalibration host of the tracker's package.
    exporters : dict of str to Exporter, optional
        Instead of new ones of those the file names.
    """
    from huc_monitor.config import Config, load_config  # pydantic takes a while to import

    given = config if isinstance(config, Config) else load_config(config)
    settings = given.settings
    chosen = open_tracker(given) if tracker is None else tracker
    host = None
    if recalibrate is None and given.recalibrates:
        host = open_recalibration_host(given, chosen)
    first = given.make_subgroups if given.feature_columns else Subgroups.whole()
    searched = settings.subgroups.discover
    return Monitor(
        source=given.open_source(),
        windows=given.windows,
        tree=given.tree,
        utilities=given.utilities,
        subgroups=first if searched is None else GrowingSubgroups(searched, first),
        reference=given.reference,
        policy=settings,
        hosts=Hosts(
            notifiers={name: open_notifier(given, name) for name in settings.alerts.channels},
            attachments={name: open_attachment(given, name) for name in settings.attachments},
            exporters=open_exporters(given) if exporters is None else exporters,
            recalibrate=recalibrate or host,
            follow=None if host is None else host.follow,
            place=NextSteps(
                config=str(given.folder / given.document.name),
                page=settings.alerts.page,
                recalibrates=settings.tracker.name in plugin_names(RECALIBRATORS),
            ),
        ),
        tracker=chosen,
        name=settings.model.name,
        model=settings.model.name,
        identity=given.identity,
        changes=given.changes,
    )


def open_actions(
    config: Config | str | Path = "huc.yaml", *, tracker: Tracker | None = None
) -> AlertActions:
    """Return what people can do about the alerts of a configuration's monitor; reads no log."""
    from huc_monitor.config import Config, load_config

    given = config if isinstance(config, Config) else load_config(config)
    return AlertActions(
        tracker=open_tracker(given) if tracker is None else tracker,
        identity=given.identity,
        tree=given.tree,
        utilities=given.utilities,
        zone=given.windows.time_zone,
        file=given.document.name,
        maintenance=given.settings.maintenance,
    )


def open_tracker(config: Config) -> Tracker:
    """Open the tracker that a configuration names; ``files`` uses the folder `state`."""
    tracker: Tracker = _open(
        "trackers", Tracker, config.settings.tracker, config, "tracker", {"files": FilesTracker}
    )
    return tracker


def open_notifier(config: Config, channel: str) -> Notifier:
    """Open the notifier of a channel; sends nothing."""
    host = config.settings.channels[channel]
    notifier: Notifier = _open("notifiers", Notifier, host, config, f"channel {channel}")
    return notifier


def open_attachment(config: Config, name: str) -> Attachment:
    """Open one of the attachments that a configuration names."""
    host = config.settings.attachments[name]
    attachment: Attachment = _open("attachments", Attachment, host, config, f"attachment {name}")
    return attachment


def open_exporter(config: Config, name: str) -> Exporter:
    """Open one of the exporters that a configuration names."""
    host = config.settings.exporters[name]
    exporter: Exporter = _open("exporters", Exporter, host, config, f"exporter {name}")
    return exporter


def open_exporters(config: Config) -> dict[str, Exporter]:
    """Open the exporters that a configuration names."""
    return {name: open_exporter(config, name) for name in config.settings.exporters}


def open_recalibration_host(config: Config, tracker: Tracker) -> RecalibrationHost | None:
    """Open what the tracker's package registered to act on triggers; None if it has nothing."""
    name = config.settings.tracker.name
    if name not in plugin_names(RECALIBRATORS):
        return None
    info = replace(config.info, tracker=tracker)
    host: RecalibrationHost = make_plugin(
        RECALIBRATORS, name, RecalibrationHost, info, role="recalibration host"
    )
    return host


def _open(
    kind: str,
    protocol: type,
    host: HostSettings,
    config: Config,
    role: str,
    own: Mapping[str, Callable[..., Any]] | None = None,
) -> Any:
    group, options = f"huc_monitor.{kind}", host.options()
    return make_plugin(group, host.name, protocol, config.info, options, role=role, own=own or {})
