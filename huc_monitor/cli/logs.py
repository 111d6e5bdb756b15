"""What the command logs on standard error: lines for people, or JSON for machines.

With ``--log-format json`` every line is one JSON object whose members are those of the
OpenTelemetry log data model, under names that are short to read:

=================== ==================== =========================================================
member              OpenTelemetry        content
=================== ==================== =========================================================
``time``            Timestamp            UTC, ISO 8601 with microseconds
``level``           SeverityText         ``debug``, ``info``, ``warning``, ``error``, ``critical``
``severity_number`` SeverityNumber       5, 9, 13, 17, 21
``event``           EventName            what kind of line it is, such as ``huc.window_checked``;
                                         of other libraries, the name of their logger
``message``         Body                 a sentence
``fields``          Attributes           the particulars, under ``huc.`` or ``exception.``
``resource``        Resource             ``service.name``, ``service.version``
``trace_id``, ...   TraceId, ...         with ``span_id`` and ``trace_flags``, if there is a trace
=================== ==================== =========================================================

The trace is that of the span which is current, or of the environment variable ``TRACEPARENT``.
"""

from __future__ import annotations

import logging
import math
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal

from huc_monitor import __version__
from huc_monitor._common.safe_text import json_line, line

LogFormat = Literal["text", "json"]

_LOGGERS: Final = ("huc_monitor", "huc_evidently", "huc_mlflow", "huc_notify", "huc_prometheus")
_SEVERITY: Final = {"DEBUG": 5, "INFO": 9, "WARNING": 13, "ERROR": 17, "CRITICAL": 21}
_TRACE_PARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_chosen: dict[str, LogFormat] = {}


class JsonFormatter(logging.Formatter):
    """One JSON document per line; see the module's text for its members."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record with what the library attached to it."""
        given = dict(getattr(record, "huc", {}))
        event = f"huc.{given.pop('event')}" if "event" in given else _event(record)
        fields = {f"huc.{name}": value for name, value in given.items()}
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            fields |= {"exception.type": type(error).__name__, "exception.message": str(error)}
        time = datetime.fromtimestamp(record.created, UTC)
        content = {
            "time": time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "severity_number": _SEVERITY.get(record.levelname, 0),
            "event": event,
            "message": line(record.getMessage()),
            "fields": _finite(fields),
            "resource": {
                "service.name": os.environ.get("OTEL_SERVICE_NAME") or "huc-monitor",
                "service.version": __version__,
            },
            **_trace(),
        }
        return json_line(content, default=str)


class TextFormatter(logging.Formatter):
    """One line per record, without a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the message, with the error that caused it."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" ({record.exc_info[1]!r})"
        return f"huc-monitor: {line(text)}"


def choose(form: LogFormat) -> None:
    """Choose the form for the whole command; what a command is told itself goes first."""
    _chosen["form"] = form


def start_logging(form: LogFormat | None) -> None:
    """Send the library's log to standard error; windows are told in JSON only."""
    is_json = (form or _chosen.get("form")) == "json"
    _chosen["form"] = "json" if is_json else "text"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter())
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.INFO if is_json else logging.WARNING)
        logger.propagate = False
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old.formatter, JsonFormatter)]:
        root.removeHandler(old)
    if is_json:
        # Warnings of Python's own and of other libraries would be lines that are no JSON.
        logging.captureWarnings(capture=True)
        os.environ.setdefault("MLFLOW_CONFIGURE_LOGGING", "false")
        root.addHandler(handler)


def tell_error(text: str) -> None:
    """Say in one line on standard error why the command ends, in the chosen form."""
    told = f"huc-monitor: {line(text)}"
    if _chosen.get("form") == "json":
        record = logging.LogRecord("huc_monitor", logging.ERROR, "", 0, "%s", (text,), None)
        record.huc = {"event": "command_failed"}
        told = JsonFormatter().format(record)
    print(told, file=sys.stderr)  # noqa: T201 - the command's voice


def _event(record: logging.LogRecord) -> str:
    """Name a line that was given no name by its sentence, without what varies in it.

    Examples
    --------
    >>> text = "exporter %s failed; again: %s"
    >>> for name in ("huc_monitor", "mlflow.store"):
    ...     print(_event(logging.LogRecord(name, 30, "", 0, text, (), None)))
    huc.exporter_failed
    mlflow.store
    """
    if record.name.split(".")[0] not in _LOGGERS:
        return record.name
    start = re.split(r"[;:(,]", re.sub(r"%[a-z]", " ", str(record.msg)))[0]
    return "huc." + ("_".join(re.findall(r"[a-z0-9]+", start.lower())) or "log")


def _finite(value: Any) -> Any:
    """Replace what JSON has no number for; a log must not fail for it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _trace() -> dict[str, str]:
    """Return the ids of the current span; of the environment's if no library knows of one."""
    trace = sys.modules.get("opentelemetry.trace")  # nobody traces who has not loaded it
    if trace is not None:
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            return {
                "trace_id": f"{span.trace_id:032x}",
                "span_id": f"{span.span_id:016x}",
                "trace_flags": f"{int(span.trace_flags):02x}",
            }
    found = _TRACE_PARENT.fullmatch(os.environ.get("TRACEPARENT", ""))
    names = ("trace_id", "span_id", "trace_flags")
    return dict(zip(names, found.groups(), strict=True)) if found else {}
