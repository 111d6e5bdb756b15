"""From a configuration file to a monitor that is ready to check."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from huc_monitor.monitor import Monitor
from huc_monitor.monitor.hosts import Hosts
from huc_monitor.monitor.ports.attachment import make_attachment
from huc_monitor.monitor.ports.exporter import make_exporter
from huc_monitor.monitor.ports.notifier import make_notifier
from huc_monitor.monitor.ports.tracker import MonitorInfo, make_tracker
from huc_monitor.subgroups import Subgroups

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from huc_monitor.config import Config
    from huc_monitor.monitor.ports.exporter import Exporter
    from huc_monitor.monitor.ports.tracker import Tracker
    from huc_monitor.monitor.records import WindowRecord
    from huc_monitor.monitor.retraining import Retrainer

__all__ = ["open_exporters", "open_monitor", "open_retrainer", "open_tracker"]

RETRAINERS = "huc_monitor.retrainers"


def open_monitor(
    config: Config | str | Path = "huc.yaml",
    *,
    tracker: Tracker | None = None,
    retrain: Retrainer | None = None,
    artifacts: Callable[[WindowRecord], Mapping[str, bytes]] | None = None,
    exporters: Mapping[str, Exporter] | None = None,
) -> Monitor:
    """Make the monitor that a configuration file describes.

    Parameters
    ----------
    config : Config or path, default "huc.yaml"
    tracker : Tracker, optional
        Instead of the one the file names.
    retrain : callable, optional
        Instead of what the tracker's package registered in the entry point group
        ``huc_monitor.retrainers``: a factory called as ``factory(config, tracker)``.
    artifacts : callable, optional
        As in `Monitor`.
    exporters : dict of str to Exporter, optional
        Instead of new ones of those the file names.
    """
    from huc_monitor.config import Config, load_config  # pydantic takes a while to import

    given = config if isinstance(config, Config) else load_config(config)
    settings = given.settings
    chosen = open_tracker(given) if tracker is None else tracker
    # A trial goes on in every check, also of a version that a person asked for.
    if settings.retraining.enabled or settings.retraining.promotion == "shadow":
        retrain = retrain or open_retrainer(given, chosen)
    channels = {name: settings.channels[name] for name in settings.alerts.channels}
    return Monitor(
        source=given.open_source(),
        windows=given.windows,
        tree=given.tree,
        utilities=given.utilities,
        subgroups=given.make_subgroups if given.feature_columns else Subgroups.whole(),
        reference=given.reference,
        policy=settings,
        hosts=Hosts(
            notifiers={name: make_notifier(c.name, c.options()) for name, c in channels.items()},
            attachments={
                name: make_attachment(host.name, given, host.options())
                for name, host in settings.attachments.items()
            },
            exporters=open_exporters(given) if exporters is None else exporters,
            artifacts=artifacts,
            retrain=retrain,
        ),
        tracker=chosen,
        name=settings.model.name,
        model=settings.model.name,
        identity=given.identity,
    )


def open_tracker(config: Config) -> Tracker:
    """Open the tracker that a configuration names; ``files`` uses the folder `state`."""
    host = config.settings.tracker
    options: dict[str, Any] = host.options()
    if host.name == "files":
        folder = options.get("folder")
        options["folder"] = config.state_folder if folder is None else config.folder / folder
    return make_tracker(host.name, _info(config), options)


def open_exporters(config: Config) -> dict[str, Exporter]:
    """Make the exporters that a configuration names."""
    info = _info(config)
    hosts = config.settings.exporters
    return {name: make_exporter(host.name, info, host.options()) for name, host in hosts.items()}


def _info(config: Config) -> MonitorInfo:
    return MonitorInfo(
        name=config.settings.model.name,
        identity=config.identity,
        model=config.settings.model.name,
        settings=config.to_dict() | {"tree_content": config.tree.to_dict()},
    )


def open_retrainer(config: Config, tracker: Tracker) -> Retrainer | None:
    """Open what the tracker's package registered to act on triggers; None if it has nothing."""
    for entry in entry_points(group=RETRAINERS):
        if entry.name == config.settings.tracker.name:
            found: Retrainer = entry.load()(config, tracker)
            return found
    return None
