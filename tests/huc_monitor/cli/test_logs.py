from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk.trace import TracerProvider
from support.production_log import make_log, write_project

import huc_monitor
from huc_monitor.cli import main
from huc_monitor.cli.logs import _LOGGERS, JsonFormatter

log = logging.getLogger("huc_monitor")


@pytest.fixture(autouse=True)
def quiet_after(monkeypatch):
    """Put the loggers back as they were."""
    names = (*_LOGGERS, "py.warnings")
    before = {n: (logging.getLogger(n).handlers, logging.getLogger(n).propagate) for n in names}
    monkeypatch.delenv("MLFLOW_CONFIGURE_LOGGING", raising=False)
    yield
    logging.captureWarnings(capture=False)
    root = logging.getLogger()
    root.handlers = [h for h in root.handlers if not isinstance(h.formatter, JsonFormatter)]
    os.environ.pop("MLFLOW_CONFIGURE_LOGGING", None)
    for name, (handlers, propagate) in before.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(logging.NOTSET)


def formatted(message="window", *args, level=logging.INFO, exc_info=None, **given):
    record = logging.LogRecord("huc_monitor", level, "f.py", 1, message, args, exc_info)
    record.huc = given
    text = JsonFormatter().format(record)
    assert "\n" not in text
    return json.loads(text)


def test_a_line_has_time_level_event_message_and_fields():
    line = formatted("window", event="window_checked", **{"window.ordinal": 3})
    age = datetime.now(UTC) - datetime.fromisoformat(line.pop("time"))
    assert timedelta(0) <= age < timedelta(seconds=10)
    assert line == {
        "level": "info",
        "severity_number": 9,
        "event": "huc.window_checked",
        "message": "window",
        "fields": {"huc.window.ordinal": 3},
        "resource": {"service.name": "huc-monitor", "service.version": huc_monitor.__version__},
    }


@pytest.mark.parametrize("name", ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
def test_severities_are_those_of_opentelemetry(name):
    line = formatted(level=getattr(logging, name))
    names = {"WARNING": "WARN", "CRITICAL": "FATAL"}
    assert line["severity_number"] == SeverityNumber[names.get(name, name)].value
    assert line["level"] == name.lower()


def test_a_line_without_a_name_is_named_by_its_sentence():
    line = formatted("exporter %s failed; tried again: %s", "p", "no\nway")
    assert line["event"] == "huc.exporter_failed"
    assert line["message"] == "exporter p failed; tried again: no way"


def test_an_error_is_told_in_the_names_of_opentelemetry():
    error = ValueError("no\nway")
    line = formatted(exc_info=(type(error), error, None))
    assert line["fields"] == {"exception.type": "ValueError", "exception.message": "no\nway"}


def test_numbers_that_json_does_not_know_are_null():
    line = formatted(value=float("nan"), all=[float("inf"), 1.5], when=datetime(2024, 3, 1))  # noqa: DTZ001
    assert line["fields"] == {
        "huc.value": None,
        "huc.all": [None, 1.5],
        "huc.when": "2024-03-01 00:00:00",
    }


def test_the_trace_is_that_of_the_current_span():
    assert "trace_id" not in formatted()
    with TracerProvider().get_tracer("test").start_as_current_span("check") as span:
        line = formatted()
    context = span.get_span_context()
    assert line["trace_id"] == trace.format_trace_id(context.trace_id)
    assert line["span_id"] == trace.format_span_id(context.span_id)
    assert line["trace_flags"] == f"{int(context.trace_flags):02x}"


def test_the_trace_of_whoever_started_the_command_is_taken_over(monkeypatch):
    monkeypatch.setenv("TRACEPARENT", f"00-{'a' * 32}-{'b' * 16}-01")
    line = formatted()
    assert (line["trace_id"], line["span_id"], line["trace_flags"]) == ("a" * 32, "b" * 16, "01")
    monkeypatch.setenv("TRACEPARENT", "nonsense")
    assert "trace_id" not in formatted()


def test_the_service_may_have_another_name(monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "triage")
    assert formatted()["resource"]["service.name"] == "triage"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    log_, labels = make_log(3, 200)
    return str(write_project(tmp_path_factory.mktemp("logs"), log_, labels))


@pytest.mark.parametrize("place", ["before", "after", "environment"])
def test_json_can_be_asked_for_of_any_command(config, place, capsys, monkeypatch):
    if place == "environment":
        monkeypatch.setenv("HUC_MONITOR_LOG_FORMAT", "json")
    option = ["--log-format", "json"]
    command = ["check", "--config", config, "--now", "2024-03-09", "--dry-run"]
    arguments = {"before": [*option, *command], "after": [*command, *option]}
    assert main(arguments.get(place, command)) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["fields"]["huc.window.status"] for line in lines] == ["audited"] * 3
    assert {line["fields"]["huc.monitor"] for line in lines} == {"intrusion"}


def test_what_a_command_is_told_itself_goes_first(config, capsys):
    command = ["check", "--config", config, "--now", "2024-03-09", "--dry-run"]
    assert main(["--log-format", "json", *command, "--log-format", "text"]) == 0
    assert not capsys.readouterr().err, "windows are told in JSON only"


@pytest.mark.parametrize(
    "arguments",
    [["status", "--config", "nowhere.yaml"], ["check", "--no-such"], ["nothing"]],
)
def test_an_error_is_a_line_of_json_too(arguments, capsys):
    assert main(["--log-format", "json", *arguments]) == 2
    (line,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (line["level"], line["event"]) == ("error", "huc.command_failed")
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("huc-monitor: "), "the next command is asked anew"


def test_a_warning_of_pythons_own_is_a_line_of_json_too(capsys):
    main(["--log-format", "json", "init", "--schema"])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old", UserWarning, stacklevel=1)
    (line,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert line["level"] == "warning"
    assert "UserWarning: old" in line["message"]


def test_a_warning_of_another_library_is_a_line_of_json_under_its_own_name(capsys):
    main(["--log-format", "json", "init", "--schema"])
    logging.getLogger("urllib3.pool").warning("retrying %s", "soon")
    (line,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (line["event"], line["message"]) == ("urllib3.pool", "retrying soon")
    main(["init", "--schema"])


def test_an_unknown_form_is_refused_by_name(capsys):
    assert main(["--log-format", "xml", "status"]) == 2
    assert "'text', 'json'" in capsys.readouterr().err


@pytest.mark.seconds
def test_the_log_of_a_real_process_is_nothing_but_json(config):
    code = "import sys; from huc_monitor.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--log-format", "json", "check", "--config", config]
    done = subprocess.run(
        [*command, "--now", "2024-03-09"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len([json.loads(line) for line in done.stderr.splitlines()]) == 3


@pytest.mark.slow
def test_the_log_of_a_check_that_writes_to_mlflow_is_nothing_but_json(config, tmp_path):
    folder = tmp_path / "project"
    shutil.copytree(Path(config).parent, folder, ignore=shutil.ignore_patterns("huc-state"))
    with (folder / "huc.yaml").open("a") as file:
        store = f"sqlite:///{folder / 'mlflow.db'}"
        file.write(f"tracker: {{name: mlflow, settings: {{tracking_uri: '{store}'}}}}\n")
    code = "import sys; from huc_monitor.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--log-format", "json", "check", "--config", "huc.yaml"]
    done = subprocess.run(
        [*command, "--now", "2024-03-09"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert events.count("huc.window_checked") == 3
