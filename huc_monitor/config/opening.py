"""From a configuration file to a monitor that is ready to check."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from huc_monitor.monitor import Monitor
from huc_monitor.monitor.alerts import AlertPolicy
from huc_monitor.monitor.drift import DriftPolicy
from huc_monitor.monitor.ports.attachment import make_attachment
from huc_monitor.monitor.ports.exporter import make_exporter
from huc_monitor.monitor.ports.notifier import make_notifier
from huc_monitor.monitor.ports.tracker import MonitorInfo, make_tracker
from huc_monitor.monitor.retraining import RetrainingPolicy
from huc_monitor.monitor.tolerance import Tolerance, ToleranceRule

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
    retraining = None
    if settings.retraining.enabled:
        retraining = RetrainingPolicy(
            critical_windows=settings.retraining.critical_windows,
            on_alarm=settings.retraining.on_sequential_alarm,
            cool_down=settings.retraining.cool_down,
        )
    # A trial goes on in every check, also of a version that a person asked for.
    if settings.retraining.enabled or settings.retraining.promotion == "shadow":
        retrain = retrain or open_retrainer(given, chosen)
    channels = {name: settings.channels[name] for name in settings.alerts.channels}
    bounds, sequential = settings.bounds, settings.sequential
    return Monitor(
        source=given.open_source(),
        windows=given.windows,
        tree=given.tree,
        utilities=given.utilities,
        tolerance=_tolerance(given),
        subgroups=given.make_subgroups if given.feature_columns else None,
        tracker=chosen,
        name=settings.model.name,
        model=settings.model.name,
        identity=given.identity,
        reference=given.reference,
        bounds=bounds.method,
        confidence_level=bounds.confidence_level,
        n_draws=bounds.draws,
        rng=bounds.seed,
        average_run_length=sequential.average_run_length if sequential.enabled else None,
        detector_tolerance=sequential.tolerance,
        alerts=AlertPolicy(
            cool_down=settings.alerts.cool_down,
            min_windows=settings.alerts.min_windows,
            resolve_after=settings.alerts.resolve_after,
            quiet_after=settings.alerts.quiet_after,
        ),
        drift=_drift(given),
        retraining=retraining,
        retrain=retrain,
        notifiers={name: make_notifier(c.name, c.options()) for name, c in channels.items()},
        artifacts=artifacts,
        attachments={
            name: make_attachment(host.name, given, host.options())
            for name, host in settings.attachments.items()
        },
        exporters=open_exporters(given) if exporters is None else exporters,
        revisit=settings.windows.revisit,
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


def _drift(config: Config) -> DriftPolicy | None:
    given = config.settings.drift
    if not given.enabled:
        return None
    return DriftPolicy(min_distance=given.min_distance, confidence_level=given.confidence_level)


def _tolerance(config: Config) -> Tolerance:
    given = config.settings.tolerance
    return Tolerance(
        value=given.value,
        rules=[
            ToleranceRule(value=o.value, utility=o.utility, subgroup=o.subgroup, node=o.node)
            for o in given.overrides
        ],
        in_units=given.unit == "money",
        relative=given.relative_to == "reference",
    )


def open_retrainer(config: Config, tracker: Tracker) -> Retrainer | None:
    """Open what the tracker's package registered to act on triggers; None if it has nothing."""
    for entry in entry_points(group=RETRAINERS):
        if entry.name == config.settings.tracker.name:
            found: Retrainer = entry.load()(config, tracker)
            return found
    return None
