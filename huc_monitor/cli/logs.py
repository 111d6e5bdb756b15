"""What the command logs on standard error: lines for people, or JSON for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

LogFormat = Literal["text", "json"]


class JsonFormatter(logging.Formatter):
    """One JSON document per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write time, level and message, and what the library attached."""
        content = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "huc", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            content["error"] = repr(record.exc_info[1])
        return json.dumps(content, default=str)


class TextFormatter(logging.Formatter):
    """One line, without a traceback: it is the command's voice."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the message, with the error that caused it."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" ({record.exc_info[1]!r})"
        return f"huc-monitor: {text}"


def start_logging(form: LogFormat) -> None:
    """Send the library's log to standard error; windows are told in JSON only."""
    logger = logging.getLogger("huc_monitor")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logger.handlers = [handler]
    logger.setLevel(logging.INFO if form == "json" else logging.WARNING)
    logger.propagate = False
