"""A monitor over the production log, made of explicit parts."""

from __future__ import annotations

import huc_monitor as hm
from huc_monitor.monitor import Monitor
from huc_monitor.monitor.hosts import Hosts
from huc_monitor.monitor.policy import Policy
from huc_monitor.monitor.windows import TimeWindows
from huc_monitor.sources import Columns, FrameTable, LabelTable, TableSource
from support.production_log import tree

UTILITIES = [
    hm.LevelCorrectness(level=1, name="status"),
    hm.LevelCorrectness(level=2, name="family"),
]
DAILY = TimeWindows(length="1d", label_lag="12h", min_labelled=50)


def revisited(span):
    """Daily windows that are asked for late labels for a while."""
    return TimeWindows(length="1d", label_lag="12h", min_labelled=50, revisit=span)


def by_protocol(features):
    return hm.Subgroups.from_reference(features, {"protocol": "each"})


def source_of(log, labels, **changes):
    columns = Columns(
        time="at",
        id="id",
        model_version="version",
        probabilities="p_{leaf}",
        features=("protocol",),
    )
    return TableSource(
        FrameTable(log),
        tree=tree(),
        columns=columns,
        labels=LabelTable(table=FrameTable(labels), id="id", label="label", time="known_at"),
        **changes,
    )


def make(log, labels, **changes):
    """Make a monitor; sections of its policy and its hosts may be given by their names."""
    policy = {"tolerance": 0.03, "audit": {"n_draws": 100}}
    hosts = {}
    settings = {
        "source": source_of(log, labels),
        "windows": DAILY,
        "tree": tree(),
        "utilities": UTILITIES,
        "subgroups": by_protocol,
        "name": "intrusion",
    }
    for name, value in changes.items():
        if name in Policy.model_fields:
            policy[name] = value
        elif name in Hosts.__slots__:
            hosts[name] = value
        else:
            settings[name] = value
    return Monitor(policy=Policy(**policy), hosts=Hosts(**hosts), **settings)


class Ear:
    """Hears messages, or fails to."""

    def __init__(self, *, deaf=False):
        self.deaf, self.heard = deaf, []

    def send(self, message):
        if self.deaf:
            raise ConnectionError(111)
        self.heard.append(message)
