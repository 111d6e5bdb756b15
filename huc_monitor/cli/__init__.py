"""The ``huc-monitor`` command: arguments in, exit code out.

Exit codes: 0 when all is well, 1 when something exceeds what the user tolerates, 2 for bad usage
or bad data. A scheduler must be able to trust 1, so no error ever ends with it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from huc_monitor import __version__
from huc_monitor._common import safe_text
from huc_monitor.cli import (
    acting,
    audit,
    check,
    compare,
    demo,
    discover,
    doctor,
    forecast,
    init,
    keeping,
    plan,
    report,
    sample,
    status,
    ui,
    versions,
    watch,
)
from huc_monitor.cli.logs import LogFormat, choose, start_logging, tell_error
from huc_monitor.cli.showing import working
from huc_monitor.errors import HUCError, HUCWarning

ERROR = 2
INTERRUPTED = 130
_USUAL_FORMAT = warnings.formatwarning
CLOSED = 141  # as of programs that a closed pipe ends
_OWN_PROGRESS = frozenset({"check", "demo", "recalibrate", "ui", "watch"})

app = typer.Typer(
    name="huc-monitor",
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("ack")(acting.ack)
app.command("prune")(keeping.prune)
app.command("backup")(keeping.backup)
app.command("restore")(keeping.restore)
app.command("migrate")(keeping.migrate)
app.command("note")(acting.note)
app.command("mute")(acting.mute)
app.command("audit")(audit.run)
app.command("compare")(compare.run)
app.command("demo")(demo.run)
app.command("discover")(discover.run)
app.command("doctor")(doctor.run)
app.command("init")(init.run)
app.command("plan")(plan.run)
app.command("check")(check.run)
app.command("watch")(watch.run)
app.command("status")(status.run)
app.command("ui")(ui.run)
app.command("report")(report.run)
app.command("forecast")(forecast.run)
app.command("sample")(sample.run)
app.command("recalibrate")(versions.recalibrate)
app.command("promote")(versions.promote)
app.command("rollback")(versions.rollback)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"huc-monitor {__version__}")
        raise typer.Exit


def _choose_log(form: LogFormat) -> LogFormat:
    # Here and not in the body below, so that an unknown command is told in the same form.
    choose(form)
    if form == "json":
        start_logging(form)
    return form


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            envvar="HUC_MONITOR_LOG_FORMAT",
            callback=_choose_log,
            is_eager=True,
            help="Form of the log on standard error; json is one object per line.",
        ),
    ] = "text",
) -> None:
    """Say which branch of a label tree costs utility, for whom, and how certain that is.

    Exit code: 0 fine, 1 alert, 2 bad usage or bad data.

    Begin with: huc-monitor demo, or huc-monitor init LOG --tree TREE on your own predictions.
    """


@functools.cache
def _command() -> Callable[..., object]:
    """Build the commands once: calling `app` would do so for each command that a process runs."""
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors become one line on standard error."""
    choose("text")
    warnings.formatwarning = _format_warning
    try:
        given = sys.argv[1:] if arguments is None else arguments
        name = next((word for word in given if not word.startswith("-")), "")
        with contextlib.nullcontext() if name in _OWN_PROGRESS else working(f"huc-monitor {name}"):
            code = _command()(args=arguments, prog_name="huc-monitor", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as stop:
        if isinstance(stop, SystemExit) and not stop.code:
            sys.stdout.flush()
            return 0  # a shell asked for completions
        # The reader (`| head`) has gone, which typer turns into exit code 1: give the interpreter
        # somewhere else to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED
    except Exception as error:
        # Left to Python this would end with exit code 1, which means an alert.
        if os.environ.get("HUC_MONITOR_DEBUG"):
            raise
        tell_error(_one_line(error))
        return ERROR
    finally:
        warnings.formatwarning = _USUAL_FORMAT
    return code if isinstance(code, int) else 0


def _format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Tell the library's own warnings as notes: where in its code they arose helps nobody."""
    if issubclass(category, HUCWarning):
        return f"huc-monitor: note: {safe_text.line(str(message))}\n"
    return _USUAL_FORMAT(message, category, filename, lineno, line)


def _one_line(error: Exception) -> str:
    # Usage errors come from typer or from click, whichever this typer was built on.
    usage = getattr(error, "format_message", None)
    if callable(usage):
        text = f"{usage()} See 'huc-monitor --help'."
    elif isinstance(error, HUCError):
        text = str(error)
    elif isinstance(error, OSError) and error.filename is not None:
        text = f"{error.strerror}: {str(error.filename)!r}"
    else:
        kind = type(error).__name__
        text = f"unexpected {kind}: {error} (HUC_MONITOR_DEBUG=1 shows the traceback)"
    return text
