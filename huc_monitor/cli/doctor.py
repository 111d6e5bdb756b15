"""``huc-monitor doctor``: is everything there that a check needs, and if not, what to fix."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from huc_monitor._common.safe_text import line
from huc_monitor.cli.showing import print_json
from huc_monitor.errors import EXTRAS, HUCError

if TYPE_CHECKING:
    from huc_monitor.config import Config

FINE, ERROR = 0, 2
OLDEST_PYTHON = (3, 11)
GROUP = "huc_monitor.trackers"
# This many windows without anything new are worth a word.
LATE = 3

Outcome = Literal["ok", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look showed; `fix` says what to do about it."""

    check: str
    outcome: Outcome
    text: str
    fix: str | None = None


def run(
    *,
    config: Annotated[
        Path | None,
        typer.Option(help="Configuration file to look at; huc.yaml if it is there."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead.")
    ] = False,
) -> None:
    """Look at the installation, and at a configuration with its log; say what to fix.

    Audits nothing and records nothing. Exit code 2: a check would fail.

    Example: huc-monitor doctor --config huc.yaml
    """
    findings = list(_installation())
    chosen = config or (Path("huc.yaml") if Path("huc.yaml").is_file() else None)
    if chosen is not None:
        findings += _project(chosen)
    wrong = any(finding.outcome == "wrong" for finding in findings)
    if as_json:
        document = {
            "status": "wrong" if wrong else "ok",
            "findings": [asdict(finding) for finding in findings],
        }
        print_json(document)
    else:
        _show(findings, looked_at=chosen)
    raise typer.Exit(ERROR if wrong else FINE)


def _show(findings: list[Finding], *, looked_at: Path | None) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        typer.echo(f"{finding.outcome:<5}  {finding.check:<{width}}  {line(finding.text)}")
        if finding.fix is not None:
            typer.echo(f"{'':<5}  {'':<{width}}  -> {line(finding.fix)}")
    if looked_at is None:
        typer.echo("No huc.yaml here: --config FILE looks at one; huc-monitor init writes one.")


def _installation() -> Iterator[Finding]:
    yield _python()
    yield _numba()
    yield _cache()
    for package, extra in EXTRAS.items():
        yield _extra(package, extra)


def _python() -> Finding:
    have = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return Finding("python", "ok", have)
    wanted = ".".join(map(str, OLDEST_PYTHON))
    return Finding("python", "wrong", have, f"use Python {wanted} or newer")


def _numba() -> Finding:
    try:
        import numba
    except Exception as error:  # noqa: BLE001 - a broken build fails in its own ways
        return Finding("numba", "wrong", _line(error), "pip install --upgrade numba")
    return Finding("numba", "ok", str(numba.__version__))


def _cache() -> Finding:
    """Compiled kernels are kept beside the package, or where NUMBA_CACHE_DIR says."""
    import huc_monitor

    given = os.environ.get("NUMBA_CACHE_DIR")
    beside = Path(str(huc_monitor.__file__)).parent / "_kernels"
    places = [Path(given)] if given else [beside, Path.home() / ".cache"]
    for place in places:
        if _writable(place):
            return Finding("cache", "ok", f"compiled code is kept in {place}")
    return Finding(
        "cache",
        "note",
        f"cannot write to {places[-1]}: every start compiles anew and takes a minute",
        "export NUMBA_CACHE_DIR=/a/folder/you/can/write",
    )


def _extra(package: str, extra: str) -> Finding:
    try:
        have = version(package)
    except PackageNotFoundError:
        fix = f"if you need it: pip install 'huc-monitor[{extra}]'"
        return Finding(f"extra {extra}", "note", f"{package} is not installed", fix)
    return Finding(f"extra {extra}", "ok", f"{package} {have}")


def _project(path: Path) -> Iterator[Finding]:
    from huc_monitor.config import load_config

    try:
        config = load_config(path)
    except (HUCError, OSError) as error:
        yield Finding("config", "wrong", _line(error), "correct the file; see huc-monitor init")
        return
    leaves, branches = config.tree.n_leaves, len(config.tree.branches)
    yield Finding("config", "ok", f"{path}: {leaves} leaves, {branches} branches")
    yield from _guarded("log", lambda: _log(config), "check source and columns in the file")
    yield from _guarded("state", lambda: _tracker(config), _tracker_fix(config))
    yield from _channels(config)
    for kind in ("attachments", "exporters"):
        yield from _hosts(config, kind)


def _guarded(check: str, look: Callable[[], Iterator[Finding]], fix: str) -> Iterator[Finding]:
    """Turn whatever a host, a database or a file system throws into a finding."""
    try:
        yield from look()
    except Exception as error:  # noqa: BLE001 - a doctor must survive its patients
        yield Finding(check, "wrong", _line(error), fix)


def _log(config: Config) -> Iterator[Finding]:
    source = config.open_source()
    span = source.time_range()
    if span is None:
        yield Finding("log", "wrong", "has no rows", "point source.log at the predictions")
        return
    text = f"predictions from {span.first:%Y-%m-%d %H:%M} to {span.last:%Y-%m-%d %H:%M} UTC"
    age = datetime.now(UTC) - span.last
    if age > LATE * _window(config):
        fix = f"none for {age.days} days: is this the log that is written to?"
        yield Finding("log", "note", text, fix)
    else:
        yield Finding("log", "ok", text)
    yield _freshness(config, source, span)
    if config.settings.columns.id is not None:
        yield from _guarded("ids", lambda: _repeats(config, source, span), "see the reason")


def _window(config: Config) -> timedelta:
    """Length of a window; a day where windows count rows."""
    from huc_monitor._common.times import Span

    return Span.parse(getattr(config.windows, "length", "1d")).nominal


def _repeats(config: Config, source: Any, span: Any) -> Iterator[Finding]:
    """Whether ids come more than once in the newest window whose labels are due."""
    from huc_monitor.monitor.messages import say_repeats

    due = span.last - _lag(config) + timedelta(microseconds=1)
    if due <= span.first:
        return
    said = say_repeats(source.labelled(max(due - _window(config), span.first), due))
    if said is None:
        yield Finding("ids", "ok", "each comes once in the newest window")
    else:
        yield Finding("ids", "note", f"newest window: {said}", "write each prediction once")


def _lag(config: Config) -> timedelta:
    from huc_monitor._common.times import Span

    return Span.parse(config.settings.windows.label_lag, argument="label_lag").nominal


def _freshness(config: Config, source: Any, span: Any) -> Finding:
    """How many of the newest predictions whose labels are due have one."""
    lag = _lag(config)
    window = _window(config)
    due = span.last - lag + timedelta(microseconds=1)
    counts = source.counts(max(due - window, span.first), due) if due > span.first else None
    if counts is None or counts.n_predictions == 0:
        return Finding("labels", "note", "none is due yet", f"they are due after {lag}")
    share, least = counts.coverage, config.settings.windows.min_coverage
    text = f"{share:.0%} of the newest {counts.n_predictions:,} predictions due have a label"
    if counts.n_labelled == 0:
        older = source.counts(max(due - LATE * (window + lag), span.first), due)
        fix = (
            "check source.labels, columns.id and columns.label"
            if older.n_labelled == 0
            else "labels stopped coming, or take longer: raise windows.label_lag"
        )
        return Finding("labels", "wrong", text, fix)
    if counts.n_labelled < config.settings.windows.min_labelled or share < least:
        fix = "lower windows.min_labelled or min_coverage, or lengthen windows.length"
        return Finding("labels", "note", f"{text}: too few for an audit", fix)
    return Finding("labels", "ok", text)


def _tracker(config: Config) -> Iterator[Finding]:
    host = config.settings.tracker
    if host.name == "files":
        if not _writable(config.state_folder):
            fix = "make the folder writable, or set state in the file"
            yield Finding("state", "wrong", f"cannot write to {config.state_folder}", fix)
            return
        yield Finding("state", "ok", f"kept in {config.state_folder}")
        return
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if host.name not in found:
        text = f"no tracker {host.name!r} is installed"
        yield Finding("state", "wrong", text, f"choose one of: files, {', '.join(sorted(found))}")
        return
    tracker = found[host.name].load()
    ping = getattr(tracker, "ping", None)
    place = "is installed" if ping is None else ping(**host.options())
    yield Finding("state", "ok", _without_password(f"{host.name} {place}"))


def _tracker_fix(config: Config) -> str:
    if config.settings.tracker.name == "mlflow":
        return "start the server, or correct tracker.settings.tracking_uri or MLFLOW_TRACKING_URI"
    return "correct tracker in the file"


def _channels(config: Config) -> Iterator[Finding]:
    from huc_monitor.monitor.ports.notifier import make_notifier

    installed = {entry.name for entry in entry_points(group="huc_monitor.notifiers")}
    for name in config.settings.alerts.channels:
        check, host = f"channel {name}", config.settings.channels[name]
        if host.name not in installed:
            text = f"no notifier {host.name!r} is installed"
            fix = "pip install 'huc-monitor[notify]', or take it out of alerts.channels"
            yield Finding(check, "wrong", text, fix)
            continue

        def look(check: str = check, host: Any = host) -> Iterator[Finding]:
            make_notifier(host.name, host.options())  # reads its address; sends nothing
            yield Finding(check, "ok", host.name)

        yield from _guarded(check, look, "correct channels in the file")


def _hosts(config: Config, kind: Literal["attachments", "exporters"]) -> Iterator[Finding]:
    """Ask each host of a kind whether it could do its work; those that cannot tell are trusted."""
    installed = {entry.name: entry for entry in entry_points(group=f"huc_monitor.{kind}")}
    for name, host in getattr(config.settings, kind).items():
        check = f"{kind[:-1]} {name}"
        if host.name not in installed:
            text = f"no {kind[:-1]} {host.name!r} is installed"
            yield Finding(check, "wrong", text, f"choose one of: {', '.join(sorted(installed))}")
            continue

        def look(check: str = check, host: Any = host) -> Iterator[Finding]:
            ping = getattr(installed[host.name].load(), "ping", None)
            place = "is installed" if ping is None else ping(**host.options())
            yield Finding(check, "ok", _without_password(f"{host.name} {place}"))

        yield from _guarded(check, look, f"correct {kind} in the file")


def _writable(folder: Path) -> bool:
    """Whether a file can be made in a folder, or the folder itself where it is missing."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return False
    try:
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


def _line(error: BaseException) -> str:
    return _without_password(" ".join(str(error).split())) or type(error).__name__


def _without_password(text: str) -> str:
    """Take user and password out of any address.

    Examples
    --------
    >>> _without_password("mlflow answers at https://me:secret@host:5000/x")
    'mlflow answers at https://...@host:5000/x'
    """
    return re.sub(r"//[^/@\s]*@", "//...@", text)
