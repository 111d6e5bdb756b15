"""A notifier that appends each message to a file, once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from huc_monitor.monitor.ports import Message, MonitorInfo


class BoardNotifier:
    """Append messages as lines of JSON to a file beside ``huc.yaml``.

    A plugin is made as ``factory(info, **options)``: `info` says which monitor asks, options are
    the keys below ``settings:`` and ``secrets:`` of its channel. Making it must neither connect nor
    write, because ``huc-monitor doctor`` makes all that are configured.
    """

    def __init__(self, info: MonitorInfo, *, path: str = "board.jsonl") -> None:
        self.monitor = info.name
        self.path = info.folder / path

    def send(self, message: Message) -> None:
        """Deliver a message, or raise: then it is kept and sent again by the next check."""
        lines = self.path.read_text("utf-8").splitlines() if self.path.exists() else []
        if any(json.loads(line)["key"] == message.key for line in lines):
            return  # sent before: the check died right after
        new = {"key": message.key, "level": message.level, "title": message.title}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**new, "monitor": self.monitor}) + "\n")
