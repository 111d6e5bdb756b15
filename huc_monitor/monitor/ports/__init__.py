"""What the monitor asks of its hosts: full protocols, and how plugins are loaded and checked.

Packages register a factory for each in a group of entry points. All are called alike, as
``factory(info, **options)`` with a `MonitorInfo` and the options of the configuration:

=================== ============================ ================================================
protocol            group                        what it is for
=================== ============================ ================================================
`Tracker`           ``huc_monitor.trackers``     keeps records and state
`Notifier`          ``huc_monitor.notifiers``    gets messages to people
`Exporter`          ``huc_monitor.exporters``    shows other systems where the monitor stands
`Attachment`        ``huc_monitor.attachments``  makes files about windows that alert
`RecalibrationHost` ``huc_monitor.recalibrators``   recalibrates, and keeps versions of the model
=================== ============================ ================================================

Making one must neither connect nor write: ``huc-monitor doctor`` makes all that are configured.
"""

from __future__ import annotations

from huc_monitor._common.plugins import check_plugin, load_plugin, make_plugin, plugin_names
from huc_monitor.monitor.ports.attachment import Attachment
from huc_monitor.monitor.ports.exporter import Exporter, Standing
from huc_monitor.monitor.ports.info import MonitorInfo
from huc_monitor.monitor.ports.notifier import Message, Notifier, NotSentError, RejectedError
from huc_monitor.monitor.ports.recalibration import (
    Move,
    RecalibrationHost,
    RecalibrationOutcome,
    VersionInfo,
)
from huc_monitor.monitor.ports.tracker import FilesTracker, MemoryTracker, Tracker

__all__ = [
    "Attachment",
    "Exporter",
    "FilesTracker",
    "MemoryTracker",
    "Message",
    "MonitorInfo",
    "Move",
    "NotSentError",
    "Notifier",
    "RecalibrationHost",
    "RecalibrationOutcome",
    "RejectedError",
    "Standing",
    "Tracker",
    "VersionInfo",
    "check_plugin",
    "load_plugin",
    "make_plugin",
    "plugin_names",
]
