"""The plugins of a monitor besides its tracker: channels, exporters, attachments, recalibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from huc_monitor.monitor.messages import NextSteps
from huc_monitor.monitor.windows import Window

if TYPE_CHECKING:
    from huc_monitor.monitor.ports.attachment import Attachment
    from huc_monitor.monitor.ports.exporter import Exporter
    from huc_monitor.monitor.ports.notifier import Notifier
    from huc_monitor.monitor.records import RecalibrationTrigger


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hosts:
    """The channels, exporters, attachments and recalibration host of a monitor.

    Parameters
    ----------
    notifiers : dict of str to Notifier
        Get messages to people.
    attachments : dict of str to Attachment
        Make files about windows that alert.
    exporters : dict of str to Exporter
        Show other systems where the monitor stands, after every check.
    recalibrate : callable, optional
        Gets the trigger of the recalibration policy; a `RecalibrationHost` is one.
    follow : callable, optional
        Gets the last window at the end of every check; `RecalibrationHost.follow` is one.
    place : NextSteps, optional
        Configuration file and page that messages name.
    """

    notifiers: Mapping[str, Notifier] = field(default_factory=dict)
    attachments: Mapping[str, Attachment] = field(default_factory=dict)
    exporters: Mapping[str, Exporter] = field(default_factory=dict)
    recalibrate: Callable[[RecalibrationTrigger], None] | None = None
    follow: Callable[[Window], str | None] | None = None
    place: NextSteps = NextSteps()  # noqa: RUF009 - frozen
